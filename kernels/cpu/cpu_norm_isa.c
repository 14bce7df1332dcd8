/* cpu_norm_isa.c - norms of one row of n values.
 * rms       y = x w / sqrt(mean x^2 + eps)
 * centred   y = (x - m) w / sqrt(mean (x - m)^2 + eps) + b, m = mean x
 * poly_glu  gate = (p0 N(g^3) + p1 N(g^2) + p2 N(g) + p3) up, N(z) = z / sqrt(mean z^2 + 1e-6)
 * shapes    any n >= 1; y may be x; w NULL: 1, b NULL: 0
 * sums      double, 16 lanes whatever the instruction set, no fused operations: all give the
 *           same bits. The variance has its own pass: a mean 1e4 times the spread would leave
 *           mean x^2 - m^2 no digits in float and few in double
 * rounding  rms multiplies in float; centred and poly_glu stay in double and round once.
 *           g^6 of any float fits a double
 * NaN       makes its whole row NaN. An infinity: centred the same; in rms and poly_glu its
 *           own place becomes NaN, the others what is left when the norm's factor is 0
 * test      tests/kernels/test_{norm,norm_rows,poly_glu}.c, every instruction set */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/vec.h"

enum { LANES = 16, LANE_DVECS = LANES / DVEC };

typedef union {
    Dvec   vec[LANE_DVECS];
    double lane[LANES];
} Lanes;

static double lanes_total(Lanes *s)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            s->lane[j] += s->lane[j + half];
    return s->lane[0];
}

static double sum(const float *x, int64_t n)
{
    Lanes   s = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANE_DVECS; j++)
            s.vec[j] += dvec_from(x + i + j * DVEC);
    for (int j = 0; i < n; i++, j++)
        s.lane[j] += (double)x[i];
    return lanes_total(&s);
}

static double squares_about(double mean, const float *x, int64_t n)
{
    Lanes   s = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANE_DVECS; j++) {
            Dvec v = dvec_from(x + i + j * DVEC) - mean;
            s.vec[j] += v * v;
        }
    for (int j = 0; i < n; i++, j++) {
        double v = (double)x[i] - mean;
        s.lane[j] += v * v;
    }
    return lanes_total(&s);
}

static void rms(float *y, const float *x, const NormVectors *v, int64_t n, float eps)
{
    float        scale = (float)(1 / sqrt(squares_about(0, x, n) / (double)n + (double)eps));
    const float *w = v->w;
    for (int64_t i = 0; i < n; i += VEC) {
        int64_t some = n - i < VEC ? n - i : VEC;
        Vec     z = vec_load_some(x + i, some) * vec_all(scale);
        vec_store_some(y + i, w ? z * vec_load_some(w + i, some) : z, some);
    }
}

static void centred(float *y, const float *x, const NormVectors *v, int64_t n, float eps)
{
    const float *w = v->w, *b = v->b;
    double       mean = sum(x, n) / (double)n;
    double       scale = 1 / sqrt(squares_about(mean, x, n) / (double)n + (double)eps);
    int64_t      i = 0;
    for (; i + DVEC <= n; i += DVEC) {
        Dvec z = (dvec_from(x + i) - mean) * scale;
        z = w ? z * dvec_from(w + i) : z;
        dvec_to(y + i, b ? z + dvec_from(b + i) : z);
    }
    for (; i < n; i++) {
        double z = ((double)x[i] - mean) * scale;
        z = w ? z * (double)w[i] : z;
        y[i] = (float)(b ? z + (double)b[i] : z);
    }
}

/* --- PolyNorm --- */

/* Sums of g^2, g^4, g^6. */
static void even_powers(double total[3], const float *g, int64_t n)
{
    Lanes   s[3] = {{{{0}}}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANE_DVECS; j++) {
            Dvec x = dvec_from(g + i + j * DVEC), square = x * x, fourth = square * square;
            s[0].vec[j] += square;
            s[1].vec[j] += fourth;
            s[2].vec[j] += fourth * square;
        }
    for (int j = 0; i < n; i++, j++) {
        double x = (double)g[i], square = x * x, fourth = square * square;
        s[0].lane[j] += square;
        s[1].lane[j] += fourth;
        s[2].lane[j] += fourth * square;
    }
    for (int k = 0; k < 3; k++)
        total[k] = lanes_total(&s[k]);
}

static void poly_glu(float *gate, const float *up, const float poly[4], int64_t n)
{
    double c[4] = {(double)poly[3]}, total[3];  // of g^0 .. g^3
    even_powers(total, gate, n);
    for (int k = 1; k <= 3; k++)
        c[k] = (double)poly[3 - k] / sqrt(total[k - 1] / (double)n + 1e-6);
    int64_t i = 0;
    for (; i + DVEC <= n; i += DVEC) {
        Dvec x = dvec_from(gate + i);
        dvec_to(gate + i, (((c[3] * x + c[2]) * x + c[1]) * x + c[0]) * dvec_from(up + i));
    }
    for (; i < n; i++) {
        double x = (double)gate[i];
        gate[i] = (float)((((c[3] * x + c[2]) * x + c[1]) * x + c[0]) * (double)up[i]);
    }
}

const NormIsa ISA_NAME(norm_) = {rms, centred, poly_glu};
