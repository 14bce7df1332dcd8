/* cuda_codes.h - products on weights that are codes of 4, 6 or 8 bits, unpacked next to the
 * product.
 *
 * A brick is CODES_STRIP outputs x CODES_STEP inputs, and what one warp reads at once: lane
 * 4c + q has outputs 4c .. 4c + 3 and of each inputs 16q .. 16q + 15, which share a scale. Its
 * words, bits / 2 of each output, lie as
 *   brick   [bits / 2][32 lanes][4 words]
 *   codes   [n_pad / CODES_STRIP][k_pad / CODES_STEP] bricks
 * That is what fragments of B in cuda_ptx.cuh want if inputs are counted another way
 * (cuda_codes.cuh), and the rows of x are brought to that when they are rounded to bf16.
 *   4 bits  code + 8: of eight codes the pair (2i, 2i + 1) at bits 4i and 4i + 16
 *   6 bits  code + 32: pairs 2i, 2i + 1 in word i at bits 0, 6, 16 and 22; pair 6 in what is
 *           left of word 0 and, its upper two bits, at bits 12 and 28 of word 1; pair 7 in
 *           word 2 and at bits 14 and 30 of word 1
 *   8 bits  of four codes 0, 2, 1, 3 a byte each
 * Then scales and offsets, [n_groups][n_pad] f32 each, and the order [K]; past N and K codes
 * are 0, past N scales and offsets as well. Each part begins at a multiple of 256 bytes. */
#ifndef DQ_CUDA_CODES_H
#define DQ_CUDA_CODES_H

#include "kernels/cuda/cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CODES_STRIP = 32, CODES_STEP = 64, CODES_RUN = 16,
    CODES_WHOLE_INPUTS = 130000  // int32 holds sums of so many products of codes
};

/* How the codes of a matrix lie in its one piece of memory (cuda_weights.h). */
typedef struct CudaCodes {
    int     bits;
    int64_t k, group, n_groups;
    int64_t n_pad, k_pad;            // multiples of CODES_STRIP, CODES_STEP
    size_t  scales, offsets, order;  // places in the piece; 0: none
    size_t  bytes;
    bool    whole_numbers;           // 8 bits, one scale a row, no more: multiplies a twin
} CudaCodes;

/* y [T,N] = x [T,K] W^T + bias. The caller has called cuda_begin. */
MUST_USE Status cuda_codes_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w);
/* Outputs first .. first + n of it, with their bias, into y [T,n]; first is a multiple of
 * CODES_STRIP. Gives its scratch back: may be called for one block after another. */
MUST_USE Status cuda_codes_block(Backend *be, float *y, const Tensor *x, const Linear *w,
                                 int64_t first, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
