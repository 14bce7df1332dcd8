/* ref_ssm.c - operations of state space models and wider norms, in double. */
#include "tests/kernels/ref_ssm.h"

#include <math.h>

void ref_layernorm(double *y, const float *x, const float *w, const float *b, int64_t n,
                   float eps)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; i < n; i++)
        mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    double scale = 1 / sqrt(var + (double)eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = ((double)x[i] - mean) * scale * (w ? (double)w[i] : 1) + (b ? (double)b[i] : 0);
}

/* The mean of z^2 over the row, z = g^power. */
static double mean_square(const float *g, int64_t n, int power)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += pow((double)g[i], 2 * power);
    return sum / (double)n;
}

void ref_poly_glu(double *y, const float *gate, const float *up, const float poly[4],
                  int64_t n)
{
    double norm[4] = {0};
    for (int power = 1; power <= 3; power++)
        norm[power] = sqrt(mean_square(gate, n, power) + 1e-6);
    for (int64_t i = 0; i < n; i++) {
        double g = (double)gate[i];
        y[i] = (double)poly[0] * (pow(g, 3) / norm[3]) + (double)poly[1] * (g * g / norm[2]) +
               (double)poly[2] * (g / norm[1]) + (double)poly[3];
        y[i] *= (double)up[i];
    }
}

void ref_convolve(double *y, const float *x, const float *w, const float *b, int64_t T,
                  int64_t E, int64_t J)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t e = 0; e < E; e++) {
            double sum = b ? (double)b[e] : 0;
            for (int64_t j = 0; j < J; j++) {
                int64_t from = t - (J - 1) + j;
                sum += from < 0 ? 0 : (double)w[e * J + j] * (double)x[from * E + e];
            }
            y[t * E + e] = sum / (1 + exp(-sum));
        }
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* One channel. */
static void scan_channel(double *y, const float *u, const float *dt, const float *bc,
                         const Scan *s, int64_t e, int64_t T, int64_t E)
{
    enum { MOST = 128 };
    int64_t      N = s->n_states;
    const float *a = s->a.data, *d = s->d.data, *bias = s->dt_bias.data;
    double       h[MOST] = {0};
    for (int64_t t = 0; t < T; t++) {
        double delta = softplus((double)dt[t * E + e] + (double)bias[e]);
        double input = (double)u[t * E + e], sum = (double)d[e] * input;
        for (int64_t n = 0; n < N; n++) {
            double b = (double)bc[t * 2 * N + n], c = (double)bc[t * 2 * N + N + n];
            h[n] = exp(delta * (double)a[e * N + n]) * h[n] + delta * b * input;
            sum += c * h[n];
        }
        y[t * E + e] = sum;
    }
}

void ref_scan(double *y, const float *u, const float *dt, const float *bc, const Scan *s,
              int64_t T, int64_t E)
{
    CHECK(s->n_states <= 128);
    for (int64_t e = 0; e < E; e++)
        scan_channel(y, u, dt, bc, s, e, T, E);
}
