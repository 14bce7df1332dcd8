/* ref_codes.c - codes with every option, and their products in double. */
#include "tests/kernels/ref_codes.h"

#include <math.h>

#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

static void shuffle(int32_t *order, int64_t n, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(fabsf(check_uniform(seed)) * (float)i);
        int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

void ref_codes_open(CodesCase *c, CodesShape s, int64_t T)
{
    uint64_t seed = (uint64_t)(s.N * 7 + s.K * 31 + s.group + s.bits);
    int64_t  group = s.group == ROW ? s.K : s.group, groups = s.N * (s.K / group);
    *c = (CodesCase){0};
    int8_t  *codes = arena_alloc(&c->arena, s.N * s.K, 1);
    int32_t *order = arena_alloc(&c->arena, s.K, sizeof *order);
    float   *scales = ref_normal(&c->arena, 1, groups, seed).data;
    float   *offsets = ref_normal(&c->arena, 1, groups, seed + 1).data;
    for (int64_t i = 0; i < s.N * s.K; i++)
        codes[i] = (int8_t)((int)floorf(check_uniform(&seed) * (float)(1 << (s.bits - 1))));
    for (int64_t i = 0; i < groups; i++)
        offsets[i] *= (float)(1 << (s.bits - 2));
    shuffle(order, s.K, &seed);
    c->codes = (Codes){s.N, s.K, s.bits, group, codes, scales, s.offsets ? offsets : NULL,
                       s.order ? order : NULL};
    c->bias = s.bias ? ref_normal(&c->arena, 1, s.N, seed + 2).data : NULL;
    c->w = ref_guarded(&c->arena, s.N * s.K);
    codes_decode(c->w, &c->codes, 0, s.N);
    c->x = ref_normal(&c->arena, T, s.K, seed + 3);
}

double ref_codes_output(double *size, const CodesCase *c, int64_t n, const float *x,
                        Dtype dtype, int64_t T)
{
    const Codes *q = &c->codes;
    int64_t      n_groups = q->k / q->group;
    double       total = c->bias ? (double)c->bias[n] : 0;
    *size = fabs(total);
    for (int64_t k = 0; k < q->k; k++) {
        int64_t at = n * n_groups + k / q->group, input = q->order ? q->order[k] : k;
        double  xk = dtype == DTYPE_BF16 ? bf16_round(x[input]) : x[input];
        double  offset = q->offsets ? q->offsets[at] : 0;
        double  code = (double)q->scales[at] * q->codes[n * q->k + k];
        float   w = c->w[n * q->k + input];
        total += xk * (T == 1 ? code + offset : dtype == DTYPE_BF16 ? bf16_round(w) : w);
        *size += fabs(xk * code) + fabs(xk * offset);
    }
    return total;
}
