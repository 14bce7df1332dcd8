/* cuda_logits.cuh - rows of logits in spans of the vocabulary, a block of threads a span: what
 * op_score and op_divergence share.
 *
 * Spans are counted from the first word, whatever the rows of a call and the products that
 * their logits come from: what is summed in a span, and in which order, depends on V alone. */
#ifndef DQ_CUDA_LOGITS_CUH
#define DQ_CUDA_LOGITS_CUH

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_linear.h"

enum { LOGITS_EACH = 16, LOGITS_SPAN = LOGITS_EACH * BLOCK };

/* Most rows of logits at a time, and bytes of them: what the cache of a large GPU holds. */
enum { LOGITS_ROWS = 1024, LOGITS_BYTES = 16 << 20 };

/* A product of rows x so many spans stays within LOGITS_BYTES. */
static inline int64_t logits_spans(int64_t rows)
{
    return i64_max(1, LOGITS_BYTES / (rows * LOGITS_SPAN * (int64_t)sizeof(float)));
}

/* Logits of one product [rows,n], beginning with span `first`. */
struct LogitsBlock {
    const float *x;
    int64_t      n, first;
};

/* Word of this span that the thread has as its j-th, counted from the span's first. */
static __device__ inline int logits_word(int j)
{
    return j * BLOCK + (int)threadIdx.x;
}

/* The thread's logits of row blockIdx.x, the block's span blockIdx.y; -inf past the last. */
static __device__ inline void logits_load(float (&v)[LOGITS_EACH], const LogitsBlock &b)
{
    int64_t      first = (int64_t)blockIdx.y * LOGITS_SPAN, left = b.n - first;
    const float *row = b.x + blockIdx.x * b.n + first;
#pragma unroll
    for (int j = 0; j < LOGITS_EACH; j++)
        v[j] = logits_word(j) < left ? row[logits_word(j)] : -INFINITY;
}

/* exp(-inf - -inf) would be NaN where nothing but -inf came. */
static __device__ inline float safe_top(float top)
{
    return top == -INFINITY ? 0 : top;
}

/* Largest of the block, which passes over NaN, and the word where it first stands. */
static __device__ inline float logits_top(const float (&v)[LOGITS_EACH], int *best,
                                          float *shared, int *places)
{
    float top = -INFINITY;
    int   place = -LOGITS_SPAN;
#pragma unroll
    for (int j = 0; j < LOGITS_EACH; j++)
        top = v[j] > top ? v[j] : top;
    top = block_max(top, shared);
#pragma unroll
    for (int j = LOGITS_EACH - 1; j >= 0; j--)
        place = v[j] == top ? -logits_word(j) : place;
    *best = -block_max(place, places);
    return top;
}

#endif
