/* packed_parts.h - single numbers and tiles of a Packed, between packed.c, packed_codes.c
 * and packed_check.c. Nothing in the file need be aligned. */
#ifndef DQ_PACKED_PARTS_H
#define DQ_PACKED_PARTS_H

#include "analysis/model/packed.h"

/* Item i of t, F32, F16 or BF16. */
float packed_float(const Tensor *t, int64_t i);
/* Scale and zero point (as codes are in Codes: signed) of row n and group g. */
float packed_scale(const Packed *p, int64_t n, int64_t g);
int   packed_zero(const Packed *p, int64_t n, int64_t g);
/* Group of input k. */
int64_t packed_group(const Packed *p, int64_t k);
/* PACKED_BLOCKS, PACKED_NUMBERS: row n as it lies in the file. */
const unsigned char *packed_file_row(const Packed *p, int64_t n);

/* A multiple of 480: of 32 codes and of 32/b codes, b = 1 to 8, so that a tile's first
 * input begins a word in every layout of every width. */
enum { PACKED_COLS = 960 };

/* Some rows by some inputs; col is a multiple of PACKED_COLS. */
typedef struct {
    int64_t row, rows, col, cols;
    int8_t  codes[PACKED_TILE * PACKED_COLS];  // [rows,cols]
} PackedCodes;

/* Fills in the codes of the tile's place: words or bytes. */
void packed_tile(PackedCodes *t, const Packed *p);

#endif
