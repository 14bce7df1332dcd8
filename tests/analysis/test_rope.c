/* test_rope.c - the tables against frequencies that transformers 5.24 gives
 * (ROPE_INIT_FUNCTIONS, float32), for every kind and its options. */
#include <math.h>
#include <string.h>

#include "analysis/model.h"
#include "tests/check.h"

enum { P = 301, MAX_HALF = 8 };

static const double SHORT[] = {1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0};
static const double LONG[] = {1.0, 1.3, 1.9, 2.7, 3.6, 4.8, 6.1, 8.0};

#define LONGROPE .kind = ROPE_LONGROPE, .theta = 10000, .dims = 16, .short_factor = SHORT, \
                 .long_factor = LONG, .original_max_positions = 512
#define LLAMA3 .kind = ROPE_LLAMA3, .theta = 500000, .factor = 8, .low_freq_factor = 1, \
               .high_freq_factor = 4, .original_max_positions = 1024
#define YARN .kind = ROPE_YARN, .beta_fast = 32, .beta_slow = 1, .truncate = true

static const struct {
    const char *name;
    Rope        rope;
    int64_t     max_positions, sequence;
    double      attention;
    float       inv[MAX_HALF];
} ROWS[] = {
    {"default", {.kind = ROPE_DEFAULT, .theta = 10000, .dims = 16}, 128, 1, 1,
     {1, 0.316227764f, 0.100000001f, 0.0316227786f, 0.00999999978f, 0.00316227786f,
      0.00100000005f, 0.000316227786f}},
    {"linear", {.kind = ROPE_LINEAR, .theta = 10000, .dims = 16, .factor = 3}, 128, 1, 1,
     {0.333333343f, 0.105409257f, 0.0333333351f, 0.0105409259f, 0.00333333318f, 0.00105409266f,
      0.000333333359f, 0.000105409265f}},
    {"linear, half of the head", {.kind = ROPE_LINEAR, .theta = 10000, .dims = 8, .factor = 3},
     128, 1, 1, {0.333333343f, 0.0333333351f, 0.00333333318f, 0.000333333359f}},
    {"dynamic at its length",
     {.kind = ROPE_DYNAMIC, .theta = 10000, .dims = 16, .factor = 2.5}, 128, 128, 1,
     {1, 0.316227764f, 0.100000001f, 0.0316227786f, 0.00999999978f, 0.00316227786f,
      0.00100000005f, 0.000316227786f}},
    {"dynamic beyond", {.kind = ROPE_DYNAMIC, .theta = 10000, .dims = 16, .factor = 2.5}, 128,
     300, 1, {1, 0.256243974f, 0.0656609833f, 0.0168252308f, 0.00431136414f, 0.00110476126f,
      0.000283088419f, 7.2539704e-05f}},
    {"yarn", {YARN, .theta = 1e6, .dims = 16, .factor = 8, .original_max_positions = 512}, 4096,
     1, 1.2079441541679836, {1, 0.125961453f, 0.0131761581f, 0.000702926656f, 0.000125000006f,
      2.22284925e-05f, 3.95284678e-06f, 7.02926684e-07f}},
    {"yarn, factor from the lengths",
     {YARN, .theta = 10000, .dims = 16, .original_max_positions = 1024}, 4096, 1,
     1.1386294361119891, {1, 0.316227764f, 0.0812500045f, 0.0197642371f, 0.00437500002f,
      0.000790569466f, 0.000250000012f, 7.90569466e-05f}},
    {"yarn without the original length", {YARN, .theta = 10000, .dims = 16, .factor = 4}, 2048,
     1, 1.1386294361119891, {1, 0.316227764f, 0.100000001f, 0.025693506f, 0.00624999963f,
      0.00138349656f, 0.000250000012f, 7.90569466e-05f}},
    {"yarn with mscale",
     {YARN, .theta = 10000, .dims = 16, .factor = 40, .original_max_positions = 4096,
      .mscale = 0.707, .mscale_all_dim = 0.5}, 4096, 1, 1.064468903941252,
     {1, 0.316227764f, 0.100000001f, 0.0239147246f, 0.00512499968f, 0.000849862176f,
      2.49999994e-05f, 7.90569447e-06f}},
    {"yarn, smooth ends of the ramp",
     {.kind = ROPE_YARN, .theta = 10000, .dims = 16, .factor = 4, .beta_fast = 16,
      .beta_slow = 2, .original_max_positions = 2048, .attention_factor = 1.25}, 8192, 1, 1.25,
     {1, 0.316227764f, 0.100000001f, 0.0266074985f, 0.00426161895f, 0.000790569466f,
      0.000250000012f, 7.90569466e-05f}},
    {"yarn, half of the head",
     {YARN, .theta = 10000, .dims = 8, .factor = 4, .original_max_positions = 2048}, 8192, 1,
     1.1386294361119891, {1, 0.100000001f, 0.00624999963f, 0.000250000012f}},
    {"llama3", {LLAMA3, .dims = 16}, 8192, 1, 1, {1, 0.193922758f, 0.0376060307f,
      0.00131256948f, 0.000176776681f, 3.42810235e-05f, 6.64786967e-06f, 1.28917316e-06f}},
    {"llama3, three quarters of the head", {LLAMA3, .dims = 12}, 8192, 1, 1, {1, 0.112246193f,
      0.00544572528f, 0.000176776681f, 1.98425078e-05f, 2.22724748e-06f}},
    {"longrope, short", {LONGROPE}, 4096, 512, 1.1547005383792515, {1, 0.301169306f,
      0.0909090936f, 0.0263523124f, 0.0076923077f, 0.00210818532f, 0.000588235271f,
      0.000158113893f}},
    {"longrope, long", {LONGROPE}, 4096, 513, 1.1547005383792515, {1, 0.243252128f,
      0.0526315793f, 0.0117121395f, 0.00277777785f, 0.00065880781f, 0.000163934426f,
      3.95284733e-05f}},
    {"longrope with a factor", {LONGROPE, .factor = 16}, 4096, 4096, 1.2018504251546631, {1,
      0.243252128f, 0.0526315793f, 0.0117121395f, 0.00277777785f, 0.00065880781f,
      0.000163934426f, 3.95284733e-05f}},
    {"longrope with its attention factor", {LONGROPE, .factor = 16, .attention_factor = 1.5},
     4096, 4096, 1.5, {1, 0.243252128f, 0.0526315793f, 0.0117121395f, 0.00277777785f,
      0.00065880781f, 0.000163934426f, 3.95284733e-05f}},
};

/* f32 roundings: two of the frequency (PyTorch's pow is off by one bit now and
 * then) and one of the angle; one each of cosine, attention factor, product. */
static double tolerance(double angle, double attention)
{
    return attention * (3 * angle + 3) * 0x1p-24;
}

TEST(rope_frequencies_of_transformers)
{
    static float cs[P * MAX_HALF], sn[P * MAX_HALF];
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++) {
        int64_t half = ROWS[r].rope.dims / 2;
        double  f = ROWS[r].attention;
        memset(cs, 0xff, sizeof cs);  // NaN
        memset(sn, 0xff, sizeof sn);
        T_STATUS_OK(rope_tables(&ROWS[r].rope, ROWS[r].max_positions, ROWS[r].sequence, P, cs,
                                sn));
        for (int64_t p = 0; p < P; p++)
            for (int64_t i = 0; i < half; i++) {
                double angle = (double)p * ROWS[r].inv[i], tol = tolerance(angle, f);
                double e = fabs(cs[p * half + i] - f * cos(angle));
                double g = fabs(sn[p * half + i] - f * sin(angle));
                if (!(e <= tol && g <= tol))
                    check_fail(__FILE__, __LINE__, "%s: position %d, pair %d: off by %g and %g",
                               ROWS[r].name, (int)p, (int)i, e, g);
            }
    }
}

TEST(rope_rows_are_those_of_the_tables)
{
    enum { FIRST = 5 };
    static float all[2][P * MAX_HALF], some[2][P * MAX_HALF];
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++) {
        const Rope *rope = &ROWS[r].rope;
        int64_t     half = rope->dims / 2, max = ROWS[r].max_positions, n = P - FIRST - 1;
        T_STATUS_OK(rope_tables(rope, max, ROWS[r].sequence, P, all[0], all[1]));
        T_STATUS_OK(rope_rows(rope, max, ROWS[r].sequence, FIRST, n, some[0], some[1]));
        for (int i = 0; i < 2; i++)
            T_OK(memcmp(some[i], all[i] + FIRST * half,
                        (size_t)(n * half) * sizeof **some) == 0);
    }
}

TEST(rope_tables_must_be_finite)
{
    float cs[8], sn[8];
    Rope  r = {.kind = ROPE_LINEAR, .theta = 10000, .dims = 4};
    T_FAILS(rope_tables(&r, 16, 1, 2, cs, sn), ERR_RANGE, "frequency 0 is inf");
    r = (Rope){.kind = ROPE_LONGROPE, .theta = 10000, .dims = 4, .factor = 8,
               .short_factor = SHORT, .long_factor = LONG, .original_max_positions = 1};
    T_FAILS(rope_tables(&r, 16, 1, 2, cs, sn), ERR_RANGE, "attention factor inf");
}

TEST(lambda_follows_the_paper)
{
    T_NEAR(diff_lambda_init(0), 0.2, 1e-15);
    T_NEAR(diff_lambda_init(1), 0.3555091, 5e-8);
    T_NEAR(diff_lambda_init(2), 0.4707130, 5e-8);
    T_NEAR(diff_lambda_init(15), 0.7933346, 5e-8);
    T_NEAR(diff_lambda_init(31), 0.7999451, 5e-8);
    float one[3] = {1, 0.5f, -2}, zero[3] = {0, 0, 0};
    T_NEAR(diff_lambda(zero, one, one, zero, 3, 0.25), 0.25, 0);
    T_NEAR(diff_lambda(one, one, zero, one, 3, 0.25), exp(5.25) - 1 + 0.25, 1e-12);
    T_NEAR(diff_lambda(zero, one, one, one, 2, 0.25), 1 - exp(1.25) + 0.25, 1e-12);
}
