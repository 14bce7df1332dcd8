/* cpu_fakequant.c - fake quantization of inputs of linear layers, and of keys and values.
 * rows    x' = s round(x / s) in place; s of each row, or of all rows of a sequence
 * kv      keys: one s and m for each channel and KV_GROUP rows; values: for each row and
 *         KV_GROUP channels of a head; rows after a sequence's last whole group stay
 * shapes  backend.h
 * cost    rows: 8TK bytes, 12TK by sequence; kv: 16TC bytes: memory bound
 * sums    none; the same bits for any number of threads
 * NaN     NaN or infinity makes all that share its scale NaN (cpu_attention_quant.c)
 * test    tests/kernels/test_fakequant.c */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/half.h"
#include "kernels/size.h"

/* --- rows --- */

typedef struct {
    float limit;      // the largest magnitude is so many scales
    float low, high;  // codes
} CodeRange;

static CodeRange code_range(const RowRounding *r)
{
    float half = (float)(1 << (r->bits - 1));
    if (r->wide)
        return (CodeRange){half - 0.5f, -half, half - 1};
    return (CodeRange){half - 1, 1 - half, half - 1};
}

static void each_row(Backend *be, Tensor *x, CodeRange c)
{
    const FakequantIsa *isa = cpu_fakequant_isa();
    int64_t T = x->shape[0], K = x->shape[1];
    float  *values = x->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * K))
    for (int64_t t = 0; t < T; t++) {
        float *row = values + t * K;
        isa->symmetric(row, K, f32_from_bits(isa->absmax(row, K)) / c.limit, c.low, c.high);
    }
}

/* max [T] of each row becomes the scale of its sequence. */
static void share_scales(float *max, const Batch *batch, float limit)
{
    for (int64_t b = 0; b < batch->n_sequences; b++) {
        uint32_t top = 0;
        for (int64_t t = batch->start[b]; t < batch->start[b + 1]; t++)
            top = f32_bits(max[t]) > top ? f32_bits(max[t]) : top;
        for (int64_t t = batch->start[b]; t < batch->start[b + 1]; t++)
            max[t] = f32_from_bits(top) / limit;
    }
}

static Status each_sequence(Backend *be, Tensor *x, const Batch *batch, CodeRange c)
{
    const FakequantIsa *isa = cpu_fakequant_isa();
    int64_t T = x->shape[0], K = x->shape[1];
    float  *values = x->data;
    void   *scratch;
    TRY(cpu_scratch(be, &scratch, (size_t)T * sizeof(float)));
    float *scale = scratch;
#pragma omp parallel for num_threads(cpu_threads(be, T * K))
    for (int64_t t = 0; t < T; t++)
        scale[t] = f32_from_bits(isa->absmax(values + t * K, K));
    share_scales(scale, batch, c.limit);
#pragma omp parallel for num_threads(cpu_threads(be, T * K))
    for (int64_t t = 0; t < T; t++)
        isa->symmetric(values + t * K, K, scale[t], c.low, c.high);
    return OK;
}

Status cpu_fakequant_rows(Backend *be, Tensor *x, const Batch *batch, const RowRounding *r)
{
    CodeRange c = code_range(r);
    if (r->by_sequence)
        return each_sequence(be, x, batch, c);
    each_row(be, x, c);
    return OK;
}

/* --- keys and values --- */

/* First row of whole group number i of all sequences, -1 after the last. */
static int64_t group_row(const Batch *batch, int64_t i)
{
    for (int64_t b = 0; b < batch->n_sequences; b++) {
        int64_t n = (batch->start[b + 1] - batch->start[b]) / KV_GROUP;
        if (i < n)
            return batch->start[b] + i * KV_GROUP;
        i -= n;
    }
    return -1;
}

static void round_values(float *row, int64_t C, int64_t head_dim, float levels)
{
    const FakequantIsa *isa = cpu_fakequant_isa();
    for (int64_t head = 0; head < C; head += head_dim)
        for (int64_t i = 0; i < head_dim; i += KV_GROUP)
            isa->span(row + head + i, i64_min(KV_GROUP, head_dim - i), levels);
}

Status cpu_fakequant_kv(Backend *be, Tensor *k, Tensor *v, const Batch *batch, int64_t head_dim,
                        int bits)
{
    int64_t C = k->shape[1], n = k->shape[0] / KV_GROUP;  // no more groups than that
    float   levels = (float)((1 << bits) - 1), *keys = k->data, *values = v->data;
#pragma omp parallel for num_threads(cpu_threads(be, n * KV_GROUP * C))
    for (int64_t i = 0; i < n; i++) {
        int64_t first = group_row(batch, i);
        if (first < 0)
            continue;
        cpu_fakequant_isa()->columns(keys + first * C, KV_GROUP, C, levels);
        for (int64_t t = first; t < first + KV_GROUP; t++)
            round_values(values + t * C, C, head_dim, levels);
    }
    return OK;
}
