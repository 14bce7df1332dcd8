/* cuda_attention.h - the parts of attention on the GPU.
 *
 * A tile is a run of queries of one sequence; a block of threads takes a tile and one block of
 * heads (those that share a noise map; backend.h) and walks over the keys: logits, recording,
 * fake quantization, softmax with a running maximum, product with V. A query has R rows, one a
 * head of the block, then the noise; all of them run against the same tiles of V.
 *
 * cuda_attention.c         one call: plan, memory, order of the launches
 * cuda_attn.cuh            what its kernels share: places, masks, weights, the end of a row
 * cuda_attn_f32.cu         tiles in f32: a logit is one chain of fused multiply-adds over d in
 *                          order, times the scale: the bits of the CPU's. How they lie:
 *                          cuda_attn_lines.cuh; a warp's arithmetic: cuda_attn_eight.cuh
 * cuda_attn_f32_rows.cu    chosen rows of logits, the same bits
 * cuda_attn_bf16.cu        tiles in tensor cores
 * cuda_attn_quant.cu       scales of quantized logits
 * cuda_attn_record.cuh     statistics inside a tile, shared by both
 * cuda_attn_record.cu      what the tiles found into a LogitRecord
 * cuda_attn_second.cu      chosen rows again: the exact largest logits, shares, whole maps
 *
 * The exact N_PEAKS largest logits need no list of candidates: tiles leave each row's largest
 * magnitude. Of all rows only the N_PEAKS with the largest (in the order of peaks, ties by
 * place), and of those only such that reach the threshold of the record so far, can hold one;
 * their logits are worked out again and looked at one by one. */
#ifndef DQ_CUDA_ATTENTION_H
#define DQ_CUDA_ATTENTION_H

#include "kernels/cuda/cuda_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Some queries of one sequence: rows row .. row + n_rows of q, the first of them at
 * `position` of its sequence. */
typedef struct {
    int32_t sequence, row, n_rows, position;
} AttnTile;

/* exp(x - top) of a row sums to sum; top is -inf and sum 0 of a row without keys. */
typedef struct {
    float  top;
    double sum;
} AttnSoftmax;

/* A call, as kernels see it: passed by value, all pointers in device memory. */
typedef struct {
    const float   *q;            // [T, B*R, d]
    const float   *k;            // [S, G*K, d]
    const float   *v;            // [S, G, dv]
    float         *out;          // [T, H, dv]
    const int32_t *start;        // [n_sequences + 1] rows of q
    const int32_t *key_start;    // [n_sequences + 1] rows of k and v
    const float   *lambda_rows;  // [T,H] or NULL
    const float   *norm_weight;  // [dv] or NULL
    int64_t        n_queries;    // T
    int64_t        n_keys;       // S of all sequences
    int32_t        n_sequences;
    int32_t        longest;      // S of the longest
    int32_t        reach;        // at most `longest`
    int32_t        n_heads, n_groups, n_maps, d, dv;
    int32_t        n_signals;    // heads of a block
    int32_t        n_blocks;     // B
    int32_t        n_rows;       // R: n_signals, and the noise where there are two maps
    int32_t        n_key_maps;   // K
    float          scale, lambda, norm_eps, out_scale;
    float          code_limit;   // of quantized logits, 2^(bits-1) - 1
    float         *row_scale;    // [T,B,R] of quantized logits, or NULL: none
    AttnSoftmax   *softmax;      // [T,B,R] for the second pass, or NULL
    /* Recording, all NULL without it. */
    Moments       *moments;      // [T,B,R] of each row, about its mean
    uint32_t      *row_absmax;   // [T,B,R] bits of the largest finite magnitude, 0 without one
    uint64_t      *hist;         // [M,HIST_BINS] counts of this call, zeroed before the tiles
    uint32_t      *key_absmax;   // [M,longest] bits, zeroed before the tiles
} AttnCall;

/* One row of logits, worked out again: query `row` of q at `position` of `sequence`, row r of
 * block `block`. */
typedef struct {
    int32_t sequence, row, position, block, r;
} AttnRow;

/* Tiles of up to n queries each, on the device; the longest come first. */
MUST_USE Status cuda_attn_tiles(Backend *be, const Attention *a, int32_t n, AttnTile **tiles,
                                int64_t *n_tiles);

/* All tiles of the call, cuda_attn_f32.cu and cuda_attn_bf16.cu; only_scale: nothing but the
 * largest magnitude of each row's logits, into row_scale. */
typedef Status AttnRun(Backend *be, const Attention *a, const AttnCall *c, bool only_scale);
AttnRun cuda_attn_f32, cuda_attn_bf16;

/* x [n,ld] device: the logits of rows[0..n) (device) from key 0 of their sequence on, as the
 * tiles have them bit for bit, before quantization; keys out of reach or after the query are
 * -inf; ld >= longest. */
typedef Status AttnRows(Backend *be, const Attention *a, const AttnCall *c, const AttnRow *rows,
                        int64_t n, float *x, int64_t ld);
AttnRows cuda_attn_rows_f32, cuda_attn_rows_bf16;

/* Magnitudes in row_scale to scales of the call's scope. */
MUST_USE Status cuda_attn_scales(Backend *be, const Attention *a, const AttnCall *c);
/* After the tiles: everything into a->record. Ends with the stream idle. */
MUST_USE Status cuda_attn_record(Backend *be, const Attention *a, const AttnCall *c,
                                 AttnRows *rows);
/* a->shares and a->window, where wanted. */
MUST_USE Status cuda_attn_shares(Backend *be, const Attention *a, const AttnCall *c,
                                 AttnRows *rows);

#ifdef __cplusplus
}
#endif
#endif
