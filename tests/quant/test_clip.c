/* test_clip.c - the range of least error: never worse than the whole range, close to
 * the best that trying every scale finds, and what a loader reads back. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/methods/method.h"
#include "tests/check.h"

enum { MOST = 16 * 640, N_SHAPES = 8 };

static float  w[MOST], back[MOST], weight[MOST], scales[MOST];
static int8_t codes[MOST], zeros[MOST];

static Scheme scheme(int bits, int group, bool asym, Dtype scale)
{
    return (Scheme){bits, group, asym, scale, METHOD_CLIP};
}

static RtnCodes out(void)
{
    memset(codes, 99, sizeof codes);
    memset(zeros, 99, sizeof zeros);
    for (int i = 0; i < MOST; i++)
        scales[i] = NAN;
    return (RtnCodes){codes, scales, zeros};
}

static float one_of(int shape, int64_t i, uint64_t *seed)
{
    float x = check_normal(seed);
    switch (shape) {
    case 0: return 0.02f * x;
    case 1: return 0.02f * x * x * x;                 // heavy tails
    case 2: return -0.37f;                            // constant
    case 3: return 0;
    case 4: return i == 3 ? -1e4f : 0.02f * x;        // one huge outlier
    case 5: return 0.05f + 0.01f * fabsf(x);          // far from 0, one sign
    case 6: return x > 0 ? 0.0f : 1e-6f * x;          // tiny, half of them 0
    default: return i % 2 ? 1e30f * x : 1e-30f * x;   // what f32 can hardly square
    }
}

static void fill(int shape, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        w[i] = one_of(shape, i, &seed);
        weight[i] = i % 5 == 4 ? 0 : expf(2 * check_normal(&seed));
    }
}

static double error_of(const float *h, int64_t n, RtnGrid g)
{
    double error = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)w[i] - rtn_decode(rtn_code(w[i], g), g);
        error += (h ? h[i] : 1) * d * d;
    }
    return error;
}

static bool is_stored(float scale, Dtype d)
{
    return scale > 0 && isfinite(scale) && rtn_stored_scale(scale, d) == scale;
}

/* No worse than rtn.h, in a form that can be stored. */
static bool no_worse(const float *h, int64_t n, const Scheme *s)
{
    RtnGrid whole;
    if (!rtn_fit(&whole, w, n, s))
        return true;  // no such scale: clip_encode refuses
    GroupScale got = clip_group(w, h, n, s);
    RtnGrid    g = rtn_grid(got.scale, got.zero, s);
    return is_stored(got.scale, s->scale) && (s->asym || got.zero == 0) &&
           (float)got.zero >= g.lo && (float)got.zero <= g.hi &&
           error_of(h, n, g) <= error_of(h, n, whole);
}

TEST(never_worse_than_the_whole_range)
{
    static const int     BITS[] = {4, 6, 8};
    static const int64_t SIZES[] = {1, 2, 7, 8, 9, 32, 67, 300};
    static const Dtype   DTYPES[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < N_SHAPES * 8 * 3 * 3 * 2; i++) {
        int64_t n = SIZES[i / N_SHAPES % 8];
        Scheme  s = scheme(BITS[i / 64 % 3], 0, i / 576 % 2, DTYPES[i / 192 % 3]);
        fill(i % N_SHAPES, n, (uint64_t)i + 1);
        if (!no_worse(NULL, n, &s) || !no_worse(weight, n, &s))
            check_fail(__FILE__, __LINE__, "shape %d, %lld weights, %s", i % N_SHAPES,
                       (long long)n, scheme_text(&s, (char[SCHEME_TEXT]){0}));
    }
}

/* Least error over a dense grid of scales and all zeros. */
static double least_error(const float *h, int64_t n, const Scheme *s)
{
    RtnGrid whole;
    double  least = INFINITY;
    CHECK(rtn_fit(&whole, w, n, s));
    RtnGrid all = rtn_grid(1, 0, s);
    for (double p = 0.15; p < 1.3; p += s->asym ? 0.004 : 0.001)
        for (float z = s->asym ? all.lo : 0; z <= (s->asym ? all.hi : 0); z++) {
            float scale = rtn_stored_scale((float)(p * (double)whole.scale), s->scale);
            least = fmin(least, error_of(h, n, rtn_grid(scale, (int)z, s)));
        }
    return least;
}

TEST(near_the_least_of_all_scales)
{
    for (int asym = 0; asym < 2; asym++) {
        for (int weighted = 0; weighted < 2; weighted++) {
            Scheme       s = scheme(4, 0, asym, DTYPE_F16);
            const float *h = weighted ? weight : NULL;
            double       got = 0, least = 0, whole = 0;
            for (uint64_t seed = 1; seed <= 12; seed++) {
                RtnGrid g;
                fill(seed % 2, 61, seed);
                GroupScale c = clip_group(w, h, 61, &s);
                CHECK(rtn_fit(&g, w, 61, &s));
                /* the heavy-tailed groups must not drown the others */
                double unit = error_of(h, 61, g);
                got += error_of(h, 61, rtn_grid(c.scale, c.zero, &s)) / unit;
                least += least_error(h, 61, &s) / unit;
                whole += 1;
            }
            T_OK(got <= 1.0005 * least);
            T_OK(got <= 0.95 * whole);
        }
    }
}

TEST(a_lattice_is_found)
{
    /* Codes -8 and 7 both: the whole range has steps of 8 / 7. */
    float      x[5] = {-8, 7, 3, 1, -5}, y[5] = {-2, 13, 5, 0, 1};
    Scheme     s = scheme(4, 0, false, DTYPE_F16);
    GroupScale g = clip_group(x, NULL, 5, &s);
    T_NEAR(g.scale, 1, 0);
    T_NEAR(g.zero, 0, 0);
    s.asym = true;
    g = clip_group(y, NULL, 5, &s);
    T_NEAR(g.scale, 1, 0);
    T_NEAR(g.zero, -6, 0);
}

TEST(weights_that_do_not_count_are_clipped)
{
    for (int asym = 0; asym < 2; asym++) {
        Scheme s = scheme(4, 0, asym, DTYPE_F32);
        fill(0, 64, 5);
        w[4] = 1000;  // weight[4] is 0
        GroupScale g = clip_group(w, weight, 64, &s);
        T_OK(g.scale > 0.001f && g.scale < 0.02f);
        g = clip_group(w, NULL, 64, &s);
        T_OK(g.scale > 50);
    }
}

TEST(another_method_is_the_whole_range)
{
    RtnGrid g;
    Scheme  s = scheme(4, 0, true, DTYPE_F16);
    s.method = METHOD_RTN;
    fill(1, 100, 3);
    GroupScale got = clip_group(w, weight, 100, &s);
    T_OK(rtn_fit(&g, w, 100, &s));
    T_OK(got.scale == g.scale && (float)got.zero == g.zero);
}

static Matrix matrix(int64_t N, int64_t K, Scheme s, const InputStats *inputs)
{
    memcpy(back, w, sizeof w);
    return (Matrix){.name = "layers.0.w", .n = N, .k = K, .w = back, .scheme = s,
                    .inputs = inputs};
}

/* Every group has the scale that clip_group finds, the nearest codes, and w is what
 * they decode to. */
static bool is_encoded(int64_t N, int64_t K, const Scheme *s, const float *h)
{
    int64_t n = rtn_group_size(s, K), in_row = rtn_groups(s, K);
    for (int64_t i = 0; i < N * in_row; i++) {
        GroupScale c = clip_group(w + i * n, h ? h + i % in_row * n : NULL, n, s);
        RtnGrid    g = rtn_grid(c.scale, c.zero, s);
        if (scales[i] != c.scale || zeros[i] != c.zero)
            return false;
        for (int64_t k = i * n; k < (i + 1) * n; k++)
            if ((float)codes[k] != rtn_code(w[k], g) ||
                back[k] != scales[i] * (float)(codes[k] - zeros[i]))
                return false;
    }
    return codes[N * K] == 99 && isnan(scales[N * in_row]) && zeros[N * in_row] == 99;
}

TEST(encoded_is_what_a_loader_reads)
{
    Arena  a = {0};
    double sum2[384], mean = 0;
    for (int k = 0; k < 384; k++)
        sum2[k] = 1e6 * exp(3 * sin(k));
    for (int k = 0; k < 384; k++)
        mean += sum2[k] / 384;
    for (int k = 0; k < 384; k++)
        weight[k] = (float)(sum2[k] / mean);
    InputStats stats = {.k = 384, .n_rows = 9, .sum2 = sum2};
    float      h[384];
    memcpy(h, weight, sizeof h);
    for (int i = 0; i < 2 * 2 * 2; i++) {
        Scheme   s = scheme(i & 1 ? 4 : 6, i & 2 ? 64 : 0, i & 4, DTYPE_BF16);
        bool     weighted = i % 3;
        RtnCodes o = out();
        fill(0, 5 * 384, (uint64_t)i + 1);
        Matrix m = matrix(5, 384, s, weighted ? &stats : NULL);
        T_STATUS_OK(clip_encode(&o, &m, &a));
        T_OK(a.used == 0);
        T_OK(is_encoded(5, 384, &s, weighted ? h : NULL));
    }
    arena_close(&a);
}

TEST(inputs_that_were_all_zero_count_alike)
{
    Arena      a = {0};
    double     sum2[64] = {0};
    InputStats stats = {.k = 64, .n_rows = 9, .sum2 = sum2};
    Scheme     s = scheme(4, 32, false, DTYPE_F16);
    RtnCodes   o = out();
    fill(0, 64, 2);
    Matrix m = matrix(1, 64, s, &stats);
    T_STATUS_OK(clip_encode(&o, &m, &a));
    T_OK(is_encoded(1, 64, &s, NULL));
    arena_close(&a);
}

TEST(bad_weights_are_refused_untouched)
{
    Arena    a = {0};
    Scheme   s = scheme(4, 32, false, DTYPE_F16);
    RtnCodes o = out();
    fill(0, 4 * 96, 1);
    w[2 * 96 + 33] = NAN;
    Matrix m = matrix(4, 96, s, NULL);
    T_FAILS(clip_encode(&o, &m, &a), ERR_RANGE, "layers.0.w: NaN at [2,33]");
    T_OK(memcmp(w, back, sizeof w) == 0 && codes[0] == 99 && isnan(scales[0]));
    w[2 * 96 + 33] = 1e6f;
    m = matrix(4, 96, s, NULL);
    T_FAILS(clip_encode(&o, &m, &a), ERR_RANGE, "row 2 need a scale beyond what F16");
    m.scheme.group = 64;
    T_FAILS(clip_encode(&o, &m, &a), ERR_SHAPE, "groups of 64");
    T_OK(memcmp(w, back, sizeof w) == 0 && codes[0] == 99 && isnan(scales[0]));
    arena_close(&a);
}

TEST(no_memory_is_an_error)
{
    Arena      a = {0};
    double     sum2[64] = {1};
    InputStats stats = {.k = 64, .n_rows = 9, .sum2 = sum2};
    RtnCodes   o = out();
    fill(0, 64, 2);
    Matrix m = matrix(1, 64, scheme(4, 32, false, DTYPE_F16), &stats);
    arena_fail_at(1);
    Status s = clip_encode(&o, &m, &a);
    arena_fail_at(0);
    T_OK(s == ERR_MEMORY && memcmp(w, back, sizeof w) == 0);
    arena_close(&a);
}

TEST(threads_change_nothing)
{
    static int8_t once[MOST];
    Arena    a = {0};
    Scheme   s = scheme(4, 32, true, DTYPE_F16);
    RtnCodes o = out();
    int      before = omp_get_max_threads();
    fill(1, 15 * 320, 2);
    Matrix m = matrix(15, 320, s, NULL);
    omp_set_num_threads(1);
    T_STATUS_OK(clip_encode(&o, &m, &a));
    memcpy(once, codes, sizeof once);
    m = matrix(15, 320, s, NULL);
    omp_set_num_threads(5);
    T_STATUS_OK(clip_encode(&o, &m, &a));
    omp_set_num_threads(before);
    T_OK(memcmp(once, codes, sizeof once) == 0);
    arena_close(&a);
}
