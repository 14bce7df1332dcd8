/* input_sums_isa.c - sums of channels in double, row after row: the order of a plain loop, so
 * every instruction set gives its bits (squares of floats are exact in double). */
#include <math.h>
#include <string.h>

#include "analysis/stats/input_sums.h"
#include "kernels/vec.h"

enum { STEP = 4 * DVEC };   // channels whose sums stay in registers

ALWAYS Dvec magnitude(Dvec v)
{
    typedef int64_t Bits __attribute__((vector_size(8 * DVEC)));
    return (Dvec)((Bits)v & INT64_MAX);
}

static void add_step(const InputSums *s, const float *x, int64_t c)
{
    Dvec sum_abs[4], sum2[4];
    Ivec top[2] = {ivec_load(s->top + c), ivec_load(s->top + c + VEC)};
    memcpy(sum_abs, s->sum_abs + c, sizeof sum_abs);
    memcpy(sum2, s->sum2 + c, sizeof sum2);
    for (int64_t t = 0; t < s->T; t++) {
        const float *row = x + t * s->K + c;
        for (int i = 0; i < 4; i++) {
            Dvec v = dvec_from(row + i * DVEC);
            sum_abs[i] += magnitude(v);
            sum2[i] += v * v;
        }
        for (int i = 0; i < 2; i++)
            top[i] = ivec_max(top[i], ivec_load(row + i * VEC) & 0x7fffffff);
    }
    memcpy(s->sum_abs + c, sum_abs, sizeof sum_abs);
    memcpy(s->sum2 + c, sum2, sizeof sum2);
    ivec_store(s->top + c, top[0]);
    ivec_store(s->top + c + VEC, top[1]);
}

static void add_one(const InputSums *s, const float *x, int64_t c)
{
    for (int64_t t = 0; t < s->T; t++) {
        float   v = fabsf(x[t * s->K + c]);
        int32_t bits;
        memcpy(&bits, &v, sizeof bits);
        s->sum_abs[c] += (double)v;
        s->sum2[c] += (double)v * v;
        s->top[c] = bits > s->top[c] ? bits : s->top[c];
    }
}

void ISA_NAME(input_sums_)(const InputSums *s, const float *x)
{
    int64_t c = 0;
    for (; c + STEP <= s->n; c += STEP)
        add_step(s, x, c);
    for (; c < s->n; c++)
        add_one(s, x, c);
}
