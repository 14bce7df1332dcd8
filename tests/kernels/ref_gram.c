/* ref_gram.c - gram matrices in double. */
#include "tests/kernels/ref_gram.h"

#include <float.h>
#include <math.h>

#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

enum { LOOKED_AT = 20000 };

void ref_gram_open(RefGram *c, int64_t T, int64_t K, uint64_t seed)
{
    *c = (RefGram){.T = T, .K = K};
    c->x = ref_normal(&c->arena, T, K, seed);
    float *x = c->x.data;
    for (int64_t i = 0; i < T * K; i++)
        x[i] *= i % K == 7 ? 300.0f : i % K == 5 ? 0.0f : 1.0f;
    c->start = arena_alloc(&c->arena, K * K, sizeof *c->start);
    for (int64_t i = 0; i < K * K; i++)
        c->start[i] = (double)check_normal(&seed);
}

void ref_gram_round(RefGram *c)
{
    float *x = c->x.data;
    for (int64_t i = 0; i < c->T * c->K; i++)
        x[i] = bf16_round(x[i]);
}

/* sum x_i x_j in double, and *plain as a float loop has it. */
static double sum_of(const RefGram *c, int64_t i, int64_t j, double *plain)
{
    const float *x = c->x.data;
    double       sum = 0;
    float        part = 0;
    *plain = 0;
    for (int64_t t = 0; t < c->T; t++) {
        float a = x[t * c->K + i], b = x[t * c->K + j];
        sum += (double)a * b;
        part += a * b;
        if (t % GRAM_PART == GRAM_PART - 1 || t == c->T - 1) {
            *plain += (double)part;
            part = 0;
        }
    }
    return sum;
}

bool ref_gram_agrees(const RefGram *c, const double *got)
{
    int64_t K = c->K, n = K * K, step = 1 + n / LOOKED_AT;
    double  ours = 0, loop = 0, *norm;
    Arena   arena = {0};
    norm = arena_alloc(&arena, K, sizeof *norm);
    for (int64_t i = 0; i < K; i++)
        norm[i] = sqrt(sum_of(c, i, i, &(double){0}));
    for (int64_t at = 0; at < n; at += step) {
        int64_t i = at / K, j = at % K;
        double  plain, scale = norm[i] * norm[j] + DBL_MIN;
        if (j < i)
            continue;
        double want = sum_of(c, i, j, &plain);
        double e = fabs(got[at] - (c->start[at] + want)) - 4 * DBL_EPSILON * fabs(c->start[at]);
        ours = !(e / scale <= ours) ? e / scale : ours;
        loop = fmax(loop, fabs(plain - want) / scale);
    }
    arena_close(&arena);
    return ours <= 2 * loop + 4 * DBL_EPSILON;
}
