/* ref_ops.c - the operations in double. */
#include "tests/kernels/ref_ops.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/check.h"

static double larger(double worst, double error)
{
    error = fabs(error);
    return error > worst || isnan(error) ? error : worst;
}

double ref_linear(double *y, const float *x, const float *w, const float *bias, int64_t T,
                  int64_t N, int64_t K, Dtype dtype)
{
    double loss = 0;
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0;
            float  plain = 0;
            for (int64_t k = 0; k < K; k++) {
                float a = x[t * K + k], b = w[n * K + k];
                if (dtype == DTYPE_BF16) {
                    a = bf16_round(a);
                    b = bf16_round(b);
                }
                sum += (double)a * b;
                plain += a * b;
            }
            y[t * N + n] = sum + (bias ? (double)bias[n] : 0);
            loss = larger(loss, plain + (bias ? bias[n] : 0) - y[t * N + n]);
        }
    return loss;
}

double ref_rmsnorm(double *y, const float *x, const float *w, int64_t C, float eps)
{
    double sum = 0, loss = 0;
    float  plain = 0;
    for (int64_t c = 0; c < C; c++) {
        sum += (double)x[c] * x[c];
        plain += x[c] * x[c];
    }
    float scale = 1 / sqrtf(plain / (float)C + eps);
    for (int64_t c = 0; c < C; c++) {
        y[c] = x[c] / sqrt(sum / (double)C + (double)eps) * w[c];
        loss = larger(loss, (double)(x[c] * scale * w[c]) - y[c]);
    }
    return loss;
}

static double activation(double x, Activation act)
{
    switch (act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_RELU:
        return isnan(x) || x > 0 ? x : 0;
    default:
        return NAN;
    }
}

/* The same with float functions, as PyTorch writes them. */
static float activation_f32(float x, Activation act)
{
    switch (act) {
    case ACT_SILU:
        return x / (1 + expf(-x));
    case ACT_GELU:
        return 0.5f * x * (1 + erff(x * (float)M_SQRT1_2));
    case ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    default:
        return (float)activation(x, act);
    }
}

double ref_glu(double *y, const float *gate, const float *up, int64_t n, Activation act)
{
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = activation(gate[i], act) * up[i];
        loss = larger(loss, (double)(activation_f32(gate[i], act) * up[i]) - y[i]);
    }
    return loss;
}

void ref_rope(double *y, const float *x, const float *cs, const float *sn, int64_t d,
              int64_t half)
{
    for (int64_t i = 0; i < d; i++)
        y[i] = x[i];
    for (int64_t i = 0; i < half; i++) {
        double a = x[i], b = x[half + i];
        y[i] = a * cs[i] - b * sn[i];
        y[half + i] = b * cs[i] + a * sn[i];
    }
}

double ref_logprob(const double *logits, int64_t V, int64_t target)
{
    double top = logits[0], sum = 0;
    for (int64_t v = 0; v < V; v++)
        top = fmax(top, logits[v]);
    for (int64_t v = 0; v < V; v++)
        sum += exp(logits[v] - top);
    return logits[target] - top - log(sum);
}

int32_t ref_best(const double *logits, int64_t V)
{
    int64_t best = 0;
    for (int64_t v = 1; v < V; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

/* --- buffers --- */

enum { GUARD_FLOATS = 16 };
static const uint32_t GUARD_BITS = 0x7fc0dead;  // a NaN that nobody computes

float *ref_guarded(Arena *a, int64_t n)
{
    float *p = arena_alloc(a, n + 2 * GUARD_FLOATS, sizeof *p);
    for (int64_t i = 0; i < n + 2 * GUARD_FLOATS; i++)
        p[i] = i < GUARD_FLOATS || i >= n + GUARD_FLOATS ? f32_from_bits(GUARD_BITS) : NAN;
    return p + GUARD_FLOATS;
}

bool ref_guards_hold(const float *p, int64_t n)
{
    for (int i = 1; i <= GUARD_FLOATS; i++)
        if (f32_bits(p[-i]) != GUARD_BITS || f32_bits(p[n + i - 1]) != GUARD_BITS)
            return false;
    return true;
}

Tensor ref_empty(Arena *a, int64_t T, int64_t C)
{
    return tensor_2d(DTYPE_F32, ref_guarded(a, T * C), T, C);
}

Tensor ref_normal(Arena *a, int64_t T, int64_t C, uint64_t seed)
{
    Tensor t = ref_empty(a, T, C);
    float *p = t.data;
    for (int64_t i = 0; i < T * C; i++)
        p[i] = check_normal(&seed);
    return t;
}

double ref_worst(const float *a, const double *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = larger(worst, (double)a[i] - b[i]);
    return worst;
}

bool ref_next_isa(CpuIsa *isa)
{
    static int kind;   // of bf16, within AVX-512
    bool       again = *isa == CPU_AVX512 && kind + 1 < N_CPU_BF16;
    kind = again ? kind + 1 : 0;
    *isa = *isa == N_CPU_ISAS ? CPU_PLAIN : again ? *isa : (CpuIsa)(*isa + 1);
    if (*isa < N_CPU_ISAS && cpu_isa_force(*isa) && cpu_bf16_force((CpuBf16)kind))
        return true;
    cpu_isa_force(N_CPU_ISAS);
    cpu_bf16_force(N_CPU_BF16);
    return false;
}

void ref_each_dtype(void (*check)(Dtype dtype))
{
    REF_EACH_ISA(isa)
    {
        check(DTYPE_F32);
        check(DTYPE_BF16);
    }
}

Tensor ref_part(const Tensor *t, int64_t first, int64_t end)
{
    int64_t E = t->shape[1];
    return tensor_2d(DTYPE_F32, (float *)t->data + first * E, end - first, E);
}
