/* test_rtn.c - rounding to nearest against worked numbers, and against trying
 * every code. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/methods/rtn.h"
#include "tests/check.h"
#include "tests/quant/ref_isa.h"

enum { MOST = 40 * 512 };

static float  w[MOST], back[MOST];
static int8_t codes[MOST], zeros[MOST];
static float  scales[MOST];

static Scheme scheme(int bits, int group, bool asym, Dtype scale)
{
    return (Scheme){bits, group, asym, scale, METHOD_RTN};
}

static RtnCodes out(void)
{
    memset(codes, 99, sizeof codes);
    memset(zeros, 99, sizeof zeros);
    for (int i = 0; i < MOST; i++)
        scales[i] = NAN;
    return (RtnCodes){codes, scales, zeros};
}

static void fill(int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = 0.02f * check_normal(&seed);
}

TEST(symmetric_worked_by_hand)
{
    /* scale 7 / 7 = 1: halves go to the even neighbour */
    float x[8] = {7, -7, 0.5f, 1.5f, -2.5f, 3.49f, -0.0f, 6.6f};
    int8_t want[8] = {7, -7, 0, 2, -2, 3, 0, 7};
    Scheme s = scheme(4, 0, false, DTYPE_F16);
    RtnCodes o = out();
    T_STATUS_OK(rtn_encode(&o, "x", x, 1, 8, &s));
    for (int i = 0; i < 8; i++)
        T_NEAR(codes[i], want[i], 0);
    T_NEAR(scales[0], 1, 0);
    T_NEAR(zeros[0], 0, 0);
    T_OK(codes[8] == 99 && isnan(scales[1]) && zeros[1] == 99);
}

TEST(asymmetric_worked_by_hand)
{
    /* -5 .. 10: scale 1, zero -8 + 5 = -3. 0.5 is code -2.5: to the even -2. */
    float x[6] = {-5, 10, 0, 0.5f, 1.5f, -4.9f};
    int8_t want[6] = {-8, 7, -3, -2, -2, -8};
    Scheme s = scheme(4, 0, true, DTYPE_F16);
    RtnCodes o = out();
    T_STATUS_OK(rtn_encode(&o, "x", x, 1, 6, &s));
    for (int i = 0; i < 6; i++)
        T_NEAR(codes[i], want[i], 0);
    T_NEAR(scales[0], 1, 0);
    T_NEAR(zeros[0], -3, 0);
}

TEST(asymmetric_range_always_holds_zero)
{
    float x[4] = {3, 6, 9, 15};  // no negatives: 0 .. 15, not 3 .. 15
    Scheme s = scheme(4, 0, true, DTYPE_F32);
    RtnCodes o = out();
    T_STATUS_OK(rtn_encode(&o, "x", x, 1, 4, &s));
    T_NEAR(scales[0], 1, 0);
    T_NEAR(zeros[0], -8, 0);
    for (int i = 0; i < 4; i++)
        T_NEAR(codes[i], x[i] - 8, 0);
}

TEST(codes_fit_the_stored_scale)
{
    /* 1 / 127 = 0.0078740157 is 0.00787353515625 in bf16: 0.49999 becomes 63.503,
     * code 64, where the scale as computed gives 63.499, code 63. */
    float x[3] = {1, 0.49999f, -1};
    Scheme s = scheme(8, 0, false, DTYPE_BF16);
    RtnCodes o = out();
    T_STATUS_OK(rtn_encode(&o, "x", x, 1, 3, &s));
    T_NEAR(scales[0], 0.00787353515625, 0);
    T_NEAR(scales[0], bf16_round(1.0f / 127), 0);
    T_NEAR(codes[0], 127, 0);
    T_NEAR(codes[1], 64, 0);
    T_NEAR(codes[2], -127, 0);
}

/* The stored scale is the definition's, and no other code comes nearer. */
static bool is_nearest(int64_t groups, int64_t n, Scheme s)
{
    int top = (1 << (s.bits - 1)) - 1, bottom = s.asym ? -top - 1 : -top;
    double unit = s.scale == DTYPE_F16 ? 0x1p-11 : s.scale == DTYPE_BF16 ? 0x1p-8 : 0x1p-24;
    for (int64_t g = 0; g < groups; g++) {
        double min = 0, max = 0, scale = scales[g], zero = s.asym ? zeros[g] : 0;
        for (int64_t i = g * n; i < (g + 1) * n; i++) {
            min = fmin(min, w[i]);
            max = fmax(max, w[i]);
        }
        double ideal = s.asym ? (max - min) / (top - bottom) : fmax(-min, max) / top;
        /* half a unit of the dtype, and half of f32 before it */
        if (!(fabs(scale - ideal) <= ideal * (unit + 0x1p-24)))
            return false;
        for (int64_t i = g * n; i < (g + 1) * n; i++) {
            double best = INFINITY;
            for (int c = bottom; c <= top; c++)
                best = fmin(best, fabs(w[i] - scale * (c - zero)));
            double mine = fabs(w[i] - scale * (codes[i] - zero));
            /* w / scale <= 256 is rounded to 2^-17, and adding zero again */
            if (!(mine <= best + scale * 0x1p-15) || codes[i] < bottom || codes[i] > top)
                return false;
        }
    }
    return true;
}

TEST(no_other_code_is_nearer)
{
    static const int BITS[] = {4, 6, 8}, GROUPS[] = {0, 32, 64, 128};
    static const Dtype DTYPES[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 3 * 4 * 3 * 2; i++) {
        Scheme s = scheme(BITS[i % 3], GROUPS[i / 3 % 4], i / 36, DTYPES[i / 12 % 3]);
        int64_t N = 1 + i % 7, K = s.group ? 384 : 1 + 37 * (i % 11);
        RtnCodes o = out();
        fill(N * K, (uint64_t)i + 1);
        w[i % (N * K)] = 3.0f;  // an outlier a hundred times the rest
        T_STATUS_OK(rtn_encode(&o, "w", w, N, K, &s));
        T_OK(is_nearest(N * rtn_groups(&s, K), s.group ? s.group : K, s));
        T_OK(codes[N * K] == 99 && isnan(scales[N * rtn_groups(&s, K)]));
    }
}

TEST(fake_is_what_encode_says)
{
    for (int asym = 0; asym < 2; asym++) {
        Scheme s = scheme(4, asym ? 64 : 0, asym, DTYPE_F16);
        int64_t N = 9, K = asym ? 320 : 301, n = asym ? 64 : 301;
        RtnCodes o = out();
        RoundError e;
        double error2 = 0, sum2 = 0;
        fill(N * K + 1, 5);
        T_STATUS_OK(rtn_encode(&o, "w", w, N, K, &s));
        memcpy(back, w, sizeof w);
        T_STATUS_OK(rtn_fake(back, "w", N, K, &s, &e));
        for (int64_t i = 0; i < N * K; i++) {
            T_NEAR(back[i], scales[i / n] * (float)(codes[i] - zeros[i / n]), 0);
            error2 += ((double)w[i] - back[i]) * ((double)w[i] - back[i]);
            sum2 += (double)w[i] * w[i];
        }
        T_NEAR(e.error2, error2, 1e-12 * error2);
        T_NEAR(e.sum2, sum2, 1e-12 * sum2);
        T_OK(back[N * K] == w[N * K]);
    }
}

TEST(rounding_twice_changes_nothing)
{
    Scheme s = scheme(6, 32, false, DTYPE_F32);
    RoundError e;
    fill(8 * 64, 3);
    T_STATUS_OK(rtn_fake(w, "w", 8, 64, &s, NULL));
    memcpy(back, w, sizeof w);
    T_STATUS_OK(rtn_fake(back, "w", 8, 64, &s, &e));
    /* The scale of the second time is the first within a rounding of f32. */
    for (int i = 0; i < 8 * 64; i++)
        T_NEAR(back[i], w[i], 0x1p-22 * fabs(w[i]));
    T_OK(round_error(&e) <= 0x1p-22);
}

TEST(more_bits_and_smaller_groups_err_less)
{
    static const Scheme BY_ERROR[] = {
        {4, 0, false, DTYPE_F16, METHOD_RTN},   {4, 128, false, DTYPE_F16, METHOD_RTN},
        {4, 32, false, DTYPE_F16, METHOD_RTN},  {6, 128, false, DTYPE_F16, METHOD_RTN},
        {8, 128, false, DTYPE_F16, METHOD_RTN},
    };
    double last = 1;
    for (int i = 0; i < 5; i++) {
        RoundError e;
        fill(16 * 512, 7);
        T_STATUS_OK(rtn_fake(w, "w", 16, 512, &BY_ERROR[i], &e));
        T_OK(round_error(&e) < 0.95 * last);
        last = round_error(&e);
    }
    /* uniform error of a step: scale / sqrt(12), scale = 3 sigma / 127 or so */
    T_OK(last > 0.004 && last < 0.012);
}

TEST(zeros_stay_zeros)
{
    for (int asym = 0; asym < 2; asym++) {
        Scheme s = scheme(4, 32, asym, DTYPE_F16);
        RoundError e;
        RtnCodes o = out();
        memset(w, 0, sizeof w);
        w[32] = -0.0f;
        w[64] = 1;
        T_STATUS_OK(rtn_encode(&o, "w", w, 1, 96, &s));
        T_NEAR(scales[0], 1, 0);
        T_OK(codes[0] == 0 && zeros[0] == 0 && codes[32] == 0);
        T_STATUS_OK(rtn_fake(w, "w", 1, 96, &s, &e));
        for (int i = 0; i < 96; i++)
            T_NEAR(w[i], i == 64 ? 1 : 0, 0x1p-10);
    }
}

TEST(one_huge_outlier_flattens_its_group_only)
{
    Scheme s = scheme(4, 32, false, DTYPE_F16);
    fill(64, 9);
    w[3] = -1e5f;
    memcpy(back, w, sizeof w);
    T_STATUS_OK(rtn_fake(w, "w", 1, 64, &s, NULL));
    T_NEAR(w[3], -1e5, 1e5 * 0x1p-11);
    for (int i = 0; i < 32; i++)
        T_OK(i == 3 || w[i] == 0);
    for (int i = 32; i < 64; i++)
        T_NEAR(w[i], back[i], 0.5 * 0.06 / 7 * 1.2);
}

TEST(tiny_weights_keep_a_positive_scale)
{
    /* 1e-7 / 7 is below half of the smallest f16: the scale becomes 2^-24. */
    float x[2] = {1e-7f, -1e-7f};
    Scheme s = scheme(4, 0, false, DTYPE_F16);
    RtnCodes o = out();
    T_STATUS_OK(rtn_encode(&o, "x", x, 1, 2, &s));
    T_NEAR(scales[0], 0x1p-24, 0);
    T_OK(codes[0] == 2 && codes[1] == -2);
    float y[1] = {1e-45f};
    s.scale = DTYPE_F32;
    T_STATUS_OK(rtn_fake(y, "y", 1, 1, &s, NULL));
    T_NEAR(y[0], 1e-45f, 0);
}

TEST(full_range_of_floats_does_not_overflow)
{
    float x[2] = {-3e38f, 3e38f};
    Scheme s = scheme(8, 0, true, DTYPE_F32);
    T_STATUS_OK(rtn_fake(x, "x", 1, 2, &s, NULL));
    T_NEAR(x[0], -3e38, 3e38 / 200);
    T_NEAR(x[1], 3e38, 3e38 / 200);
}

/* rtn_fake fails with that sentence and leaves w alone. */
static bool refuses(int64_t N, int64_t K, Scheme s, Status code, const char *text)
{
    memcpy(back, w, sizeof w);
    Status got = rtn_fake(w, "layers.0.w", N, K, &s, NULL);
    bool same = memcmp(back, w, sizeof w) == 0;
    RtnCodes o = out();
    Status encoded = rtn_encode(&o, "layers.0.w", w, N, K, &s);
    return got == code && encoded == code && same && codes[0] == 99 && isnan(scales[0]) &&
           strstr(status_text(), text) && strstr(status_text(), "layers.0.w");
}

static void refuse_bad_weights(void)
{
    Scheme s = scheme(4, 32, false, DTYPE_F16);
    fill(4 * 96, 1);
    w[2 * 96 + 33] = NAN;
    w[3 * 96] = INFINITY;
    T_OK(refuses(4, 96, s, ERR_RANGE, "NaN at [2,33]"));
    w[2 * 96 + 33] = -NAN;
    T_OK(refuses(4, 96, s, ERR_RANGE, "NaN at [2,33]"));
    w[2 * 96 + 33] = -INFINITY;
    T_OK(refuses(4, 96, s, ERR_RANGE, "-Inf at [2,33]"));
    s.asym = true;
    T_OK(refuses(4, 96, s, ERR_RANGE, "-Inf at [2,33]"));
    w[2 * 96 + 33] = 1e6f;
    w[3 * 96] = 0;
    T_OK(refuses(4, 96, s, ERR_RANGE, "row 2 need a scale beyond what F16"));
    s.scale = DTYPE_BF16;
    T_STATUS_OK(rtn_fake(w, "w", 4, 96, &s, NULL));
}

TEST(bad_weights_are_refused_untouched)
{
    CpuIsa isa = N_CPU_ISAS;
    while (ref_each_isa(&isa))
        refuse_bad_weights();
}

TEST(ragged_rows_are_refused)
{
    fill(4 * 96, 1);
    T_OK(refuses(4, 96, scheme(4, 64, false, DTYPE_F16), ERR_SHAPE,
                 "rows of 96 weights cannot be cut into groups of 64"));
    /* four rows of 96 are six groups of 64, but not of one row each */
    T_OK(refuses(2, 33, scheme(8, 32, true, DTYPE_F16), ERR_SHAPE, "rows of 33"));
}

/* Codes, scales, zeros, what they decode to and sums, of groups of every length. */
static uint64_t print_of_all(void)
{
    uint64_t print = 0xcbf29ce484222325u;
    for (int i = 0; i < 3 * 2 * 3 * 40; i++) {
        static const int BITS[] = {4, 6, 8};
        Scheme           s = scheme(BITS[i % 3], 0, i / 3 % 2, (Dtype)(i / 6 % 3));
        int64_t          N = 5, K = 1 + i / 18 * 7;
        RtnCodes         o = out();
        RoundError       e;
        fill(N * K, (uint64_t)i + 1);
        w[i % (N * K)] = i % 5 ? -0.0f : 0.5f;
        if (rtn_encode_fake(&o, w, "w", N, K, &s, &e) != OK)
            return 0;
        const struct {
            const void *at;
            size_t      n;
        } PARTS[] = {{codes, (size_t)(N * K)}, {scales, (size_t)N * sizeof *scales},
                     {zeros, (size_t)N}, {w, (size_t)(N * K) * sizeof *w}, {&e, sizeof e}};
        for (int p = 0; p < 5; p++)
            for (size_t b = 0; b < PARTS[p].n; b++)
                print = (print ^ ((const uint8_t *)PARTS[p].at)[b]) * 0x100000001b3u;
    }
    return print;
}

/* The number is what the plain loops of before the vectors gave. */
TEST(same_bits_with_every_instruction_set)
{
    CpuIsa isa = N_CPU_ISAS;
    while (ref_each_isa(&isa))
        if (print_of_all() != 0xb75d174fc2df7791u)
            check_fail(__FILE__, __LINE__, "%s: %llx", cpu_isa_name(isa),
                       (unsigned long long)print_of_all());
}

TEST(threads_change_nothing)
{
    Scheme s = scheme(4, 0, true, DTYPE_F16);
    RoundError one, many;
    int before = omp_get_max_threads();
    fill(37 * 511, 2);
    memcpy(back, w, sizeof w);
    omp_set_num_threads(1);
    T_STATUS_OK(rtn_fake(w, "w", 37, 511, &s, &one));
    omp_set_num_threads(5);
    T_STATUS_OK(rtn_fake(back, "w", 37, 511, &s, &many));
    omp_set_num_threads(before);
    T_OK(memcmp(w, back, sizeof w) == 0);
    T_OK(memcmp(&one, &many, sizeof one) == 0);
}
