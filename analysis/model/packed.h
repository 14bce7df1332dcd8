/* packed.h - a weight matrix of few bits as it lies in its files, mapped.
 *   w[n,k] = scale[n,g] * (u - zero[n,g]),  g = k / group, or as the file's index says
 * One description for what compressed-tensors, GPTQ and GGUF write; readers of the
 * formats fill it in, the loader turns it into numbers or into Codes. */
#ifndef DQ_PACKED_H
#define DQ_PACKED_H

#include "analysis/model.h"
#include "kernels/blocks.h"
#include "kernels/packbits.h"

enum { PACKED_TILE = 16 };  // rows that are best decoded together

typedef enum {
    PACKED_ROWS,     // codes in words along a row: I32 [N,words] (compressed-tensors)
    PACKED_COLUMNS,  // codes in words down the inputs: I32 [words,N] (GPTQ)
    PACKED_BYTES,    // a code a byte: I8 [N,K] (compressed-tensors int-quantized)
    PACKED_BLOCKS,   // blocks with their scales inside (GGUF)
    PACKED_NUMBERS   // F32, F16 or BF16 whose rows lie in another order (GGUF)
} PackedKind;

/* How zero points lie. Words hold them unsigned, as they hold codes. */
typedef enum {
    ZEROS_NONE,     // symmetric
    ZEROS_DOWN,     // words down the outputs: I32 [words,G] (compressed-tensors)
    ZEROS_ALONG,    // words along the outputs: I32 [G,words] (GPTQ)
    ZEROS_BYTES     // I8, of the shape of the scales
} PackedZeros;

struct Packed {
    PackedKind  kind;
    int64_t     n, k;           // outputs, inputs
    const void *data;           // codes or blocks; the file need not have aligned them
    size_t      bytes;          // in the files: codes, scales, zero points and all
    BlockType   block;          // PACKED_BLOCKS: of this type; what follows is not used
    Dtype       dtype;          // PACKED_NUMBERS: of this one; likewise
    int64_t     paired_heads;   // rows of that many heads lie in pairs: of a head of d rows,
                                //   row p * d/2 + j is row 2j + p of the file; 0: as they are
    PackLayout  layout;         // of words
    int         bits;           // of a code, 1 to 8
    int64_t     group;          // inputs that share a scale; K: all of a row
    int64_t     n_groups;       // ceil(K / group)
    PackedZeros zeros_as;
    int         zeros_less;     // what they are stored less: 1 in GPTQ v1, else 0
    bool        one_scale;      // one for the whole matrix
    bool        symmetric;      // zero points, where stored, are all in the middle
    const ModelTensor *codes;   // the tensors it is made of, for messages
    const ModelTensor *scales;  // F32, F16, BF16: [N,G]; of PACKED_COLUMNS [G,N]
    const ModelTensor *zeros;   // as zeros_as says, or NULL
    const ModelTensor *index;   // I32 [K], all in [0,G): group of each input; NULL: k / group
};

/* Scales are finite, and so are their products with codes; bytes are codes. Numbers of
 * PACKED_NUMBERS are looked at as they are read. ERR_RANGE names path (of the folder),
 * file, tensor and place. */
MUST_USE Status packed_check(const Packed *p, const char *path);

/* Rows first .. first + n as f32 into out [n,K]: scale * (code - zero), rounded once.
 * May be called from several threads at once. */
void packed_rows(float *out, const Packed *p, int64_t first, int64_t n);

/* Do its groups fit the products on codes? */
bool packed_has_codes(const Packed *p);
/* All of it as Codes in a; the same numbers (but for the last bit where the scales
 * are F32 and there are zero points). Needs packed_check and packed_has_codes. codes
 * is NULL where an index makes groups of different sizes. */
MUST_USE Status packed_codes(Codes *out, Arena *a, const Packed *p);
/* Bytes of it in the memory of a backend, packed from codes (about). */
size_t packed_loaded_bytes(const Packed *p);

#endif
