/* backend_attention.c - what attention is asked for must fit together. */
#include <math.h>

#include "kernels/backend.h"

/* t: `rows` rows of `width` f32, however many dims a row is split into. */
static Status check_rows_of(const char *name, const Tensor *t, int64_t rows, int64_t width)
{
    char    text[128];
    int64_t row = 1;
    for (int i = 1; i < t->n_dims; i++)
        row *= t->shape[i];
    if (t->dtype != DTYPE_F32 || t->n_dims < 2 || t->shape[0] != rows || row != width)
        FAIL(ERR_SHAPE, "attention: %s is %s %s, expected F32 with %lld rows of %lld", name,
             dtype_name(t->dtype), tensor_shape_text(t, text), (long long)rows,
             (long long)width);
    return OK;
}

/* Heads to a noise map: 1 where there is none. */
static int64_t n_signals(const Attention *a)
{
    return a->n_maps == 2 && a->n_signals ? a->n_signals : 1;
}

/* How heads, groups and maps fit together. */
static Status check_heads(const Attention *a)
{
    if (a->n_heads < 1 || a->n_groups < 1 || a->n_heads % a->n_groups)
        FAIL(ERR_SHAPE, "attention: %lld heads in %lld groups", (long long)a->n_heads,
             (long long)a->n_groups);
    if (a->n_maps != 1 && a->n_maps != 2)
        FAIL(ERR_UNSUPPORTED, "attention: %lld maps a head, expected 1 or 2",
             (long long)a->n_maps);
    if (a->n_signals < 0 || a->n_heads / a->n_groups % n_signals(a))
        FAIL(ERR_SHAPE, "attention: %lld heads to a noise map, expected a divisor of the "
             "%lld heads of a group", (long long)a->n_signals,
             (long long)(a->n_heads / a->n_groups));
    return OK;
}

/* Sizes, and the numbers of the softmax and the norm. */
static Status check_numbers(const Attention *a)
{
    if (a->head_dim < 1 || a->value_dim < 0)
        FAIL(ERR_SHAPE, "attention: head_dim is %lld, value_dim %lld", (long long)a->head_dim,
             (long long)a->value_dim);
    if (a->reach < 0)
        FAIL(ERR_RANGE, "attention: a reach of %lld keys", (long long)a->reach);
    if (!isfinite(a->scale) || !isfinite(a->out_scale) || isnan(a->norm_eps))
        FAIL(ERR_RANGE, "attention: scale %g, out_scale %g, norm_eps %g, expected finite",
             (double)a->scale, (double)a->out_scale, (double)a->norm_eps);
    if (a->n_maps == 2 && !a->lambda_rows && !isfinite(a->lambda))
        FAIL(ERR_RANGE, "attention: lambda is %g, expected finite", (double)a->lambda);
    return OK;
}

static Status check_kinds(const Attention *a)
{
    if (a->dtype != DTYPE_F32 && a->dtype != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "attention: products in %s, expected F32 or BF16",
             dtype_name(a->dtype));
    switch (a->logit_bits) {
    case 4:
    case 6:
    case 8:
    case 16:
        break;
    default:
        FAIL(ERR_UNSUPPORTED, "attention: logits of %d bits, expected 16, 8, 6 or 4",
             a->logit_bits);
    }
    if ((unsigned)a->logit_scale >= N_SCALES)
        FAIL(ERR_UNSUPPORTED, "attention: unknown logit scale %d", (int)a->logit_scale);
    return OK;
}

/* Sequence by sequence: no fewer keys than queries, spans within the keys. */
static Status check_sequence(const Attention *a, const int32_t *key_start, int64_t b)
{
    int64_t T = a->batch.start[b + 1] - a->batch.start[b], S = key_start[b + 1] - key_start[b];
    if (T < 0 || S < T)
        FAIL(ERR_SHAPE, "attention: sequence %lld has %lld queries and %lld keys",
             (long long)b, (long long)T, (long long)S);
    if (a->record && S > a->record->n_positions)
        FAIL(ERR_SHAPE, "attention: sequence %lld has %lld positions, its record %lld",
             (long long)b, (long long)S, (long long)a->record->n_positions);
    if (a->spans && (a->spans[b].first < 0 || a->spans[b].end < a->spans[b].first ||
                     a->spans[b].end > S))
        FAIL(ERR_RANGE, "attention: span %d to %d of sequence %lld with %lld keys",
             (int)a->spans[b].first, (int)a->spans[b].end, (long long)b, (long long)S);
    return OK;
}

static Status check_window(const Attention *a, const int32_t *key_start)
{
    const MapWindow *w = a->window;
    if (w->sequence == -1)
        return OK;
    if (w->sequence < 0 || w->sequence >= a->batch.n_sequences)
        FAIL(ERR_RANGE, "attention: maps of sequence %lld wanted, there are %lld",
             (long long)w->sequence, (long long)a->batch.n_sequences);
    int64_t b = w->sequence, T = a->batch.start[b + 1] - a->batch.start[b];
    if (w->n_positions < 0 || w->n_positions > T || key_start[b + 1] - key_start[b] != T)
        FAIL(ERR_RANGE, "attention: maps of %lld positions wanted of a sequence with %lld "
             "queries and %lld keys", (long long)w->n_positions, (long long)T,
             (long long)(key_start[b + 1] - key_start[b]));
    return OK;
}

Status op_attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                    const Tensor *v, const Attention *a)
{
    const int32_t *key_start = a->key_start ? a->key_start : a->batch.start;
    int64_t        n = a->batch.n_sequences;
    TRY(check_heads(a));
    TRY(check_numbers(a));
    TRY(check_kinds(a));
    if (n < 1 || a->batch.start[0] != 0 || key_start[0] < 0)
        FAIL(ERR_SHAPE, "attention: %lld sequences, the first from row %d and key %d",
             (long long)n, n < 1 ? 0 : (int)a->batch.start[0], n < 1 ? 0 : (int)key_start[0]);
    if (a->record && (a->record->n_heads != a->n_heads || a->record->n_maps != a->n_maps))
        FAIL(ERR_SHAPE, "attention: a record of %lld heads with %lld maps, expected %lld "
             "with %lld", (long long)a->record->n_heads, (long long)a->record->n_maps,
             (long long)a->n_heads, (long long)a->n_maps);
    for (int64_t b = 0; b < n; b++)
        TRY(check_sequence(a, key_start, b));
    if (a->window)
        TRY(check_window(a, key_start));
    int64_t d = a->head_dim, M = a->n_maps, H = a->n_heads, G = a->n_groups;
    int64_t T = a->batch.start[n], S = key_start[n], dv = a->value_dim ? a->value_dim : d * M;
    int64_t noises = M == 2 ? H / n_signals(a) : 0;
    TRY(check_rows_of("q", q, T, (H + noises) * d));
    TRY(check_rows_of("k", k, S, G * (a->shared_keys ? 1 : M) * d));
    TRY(check_rows_of("v", v, S, G * dv));
    TRY(check_rows_of("out", out, T, H * dv));
    return be->ops->attention(be, out, q, k, v, a);
}
