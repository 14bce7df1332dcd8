/* packbits.h - codes of 1 to 8 bits in 32-bit words, least significant first.
 * A code q in [-2^(b-1), 2^(b-1) - 1] is stored as u = q + 2^(b-1).
 *   dense   code i at bit b*i of its row, across words (compressed-tensors >= 0.18;
 *           the same as padded for 1, 2, 4 and 8 bits)
 *   padded  floor(32/b) codes a word, the rest of the bits 0 (compressed-tensors 0.17)
 * Rows begin with a new word, and bits past the last code are 0. Goldens: formats.md
 * 2.2, 2.3, 3.1. One thread: rows are independent, the caller may share them out. */
#ifndef DQ_PACKBITS_H
#define DQ_PACKBITS_H

#include <stdint.h>

typedef enum { PACK_DENSE, PACK_PADDED } PackLayout;

/* Words that n codes of a row take. */
int64_t packbits_words(PackLayout layout, int bits, int64_t n);

/* words [rows, packbits_words(n)] <-> codes [rows, n]. Words are little-endian
 * in files, and so is the machine this runs on; they need not be aligned. */
void packbits_rows(void *words, const int8_t *codes, int64_t rows, int64_t n, PackLayout layout,
                   int bits);
void packbits_unpack_rows(int8_t *codes, const void *words, int64_t rows, int64_t n,
                          PackLayout layout, int bits);

/* The same down the columns: words [packbits_words(rows), n] <-> codes [rows, n].
 * So lie zero points of compressed-tensors, and weights of GPTQ (whose rows are
 * inputs: codes [K,N]). */
void packbits_columns(void *words, const int8_t *codes, int64_t rows, int64_t n,
                      PackLayout layout, int bits);
void packbits_unpack_columns(int8_t *codes, const void *words, int64_t rows, int64_t n,
                             PackLayout layout, int bits);

#endif
