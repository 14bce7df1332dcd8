/* test_kquant.c - encoders of the block formats: byte for byte those of ggml, with every
 * instruction set. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/methods/kquant.h"
#include "tests/check.h"
#include "tests/quant/ref_isa.h"

enum { ROWS = 4, K = 1024, MOST = ROWS * K };

static float   x[MOST], h[K], back[MOST];
static uint8_t blocks[4 * MOST];

static float next(uint32_t *s)
{
    *s = *s * 1664525 + 1013904223;
    return (float)((int)(*s >> 8 & 0xffff) - 32768) / 32768.0f;
}

/* The input of formats.md 4.5: heavy tails, zeros, and one block all alike. */
static void fill(void)
{
    uint32_t s = 1;
    for (int i = 0; i < MOST; i++) {
        float a = next(&s), b = next(&s), c = next(&s);
        x[i] = a * b * c * 0.125f;
        if (i % 97 == 0)
            x[i] *= 16;
    }
    memset(x + 2048, 0, 256 * sizeof *x);
    for (int i = 3072; i < 3104; i++)
        x[i] = 0.25f;
    s = 7;
    for (int i = 0; i < K; i++) {
        float a = next(&s);
        h[i] = a * a + 0.0009765625f;
    }
}

static uint64_t hash(const void *data, size_t n)
{
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return sum;
}

static void encode(BlockType t, const float *importance)
{
    size_t per = kquant_bytes(t, K);
    for (int r = 0; r < ROWS; r++)
        kquant_encode(blocks + (size_t)r * per, t, x + r * K, importance, K);
}

static const struct {
    int      bytes;
    uint64_t plain, weighted;
} GOLDEN[N_BLOCKS] = {
    [BLOCK_Q4_0] = {2304, 0x1eb585efa494b138, 0x06e6a08ab1b5379c},
    [BLOCK_Q4_1] = {2560, 0x73469f83761c7a41, 0x02225f642afe44a7},
    [BLOCK_Q5_0] = {2816, 0x809a77b3a8045296, 0xc0a2d811ea100c21},
    [BLOCK_Q5_1] = {3072, 0xfce02fa0787320ab, 0x05b777969fc7b0dd},
    [BLOCK_Q8_0] = {4352, 0x91dd7a46f5562b7e, 0x91dd7a46f5562b7e},
    [BLOCK_Q4_K] = {2304, 0x64d826fdbe0c243a, 0xaf71470d80cb8830},
    [BLOCK_Q5_K] = {2816, 0x7ca0dcf7417404dc, 0xb78e9c633df1af4f},
    [BLOCK_Q6_K] = {3360, 0xa4f736251a509575, 0xf8a1739a0d20e9f1},
};

TEST(input_of_the_hashes)
{
    fill();
    T_OK(hash(x, sizeof x) == 0x736164089d6332fe);
    T_OK(hash(h, sizeof h) == 0x18f8b50be19d63fc);
}

static void same_as_golden(const char *isa)
{
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        size_t n = ROWS * kquant_bytes(t, K);
        T_OK(n == (size_t)GOLDEN[t].bytes);
        blocks[n] = 0xa5;
        encode(t, NULL);
        if (hash(blocks, n) != GOLDEN[t].plain)
            check_fail(__FILE__, __LINE__, "%s, %s", block_info(t)->name, isa);
        encode(t, h);
        if (hash(blocks, n) != GOLDEN[t].weighted)
            check_fail(__FILE__, __LINE__, "%s with importance, %s", block_info(t)->name, isa);
        T_OK(blocks[n] == 0xa5);
    }
}

TEST(bytes_are_those_of_ggml)
{
    CpuIsa isa = N_CPU_ISAS;
    fill();
    while (ref_each_isa(&isa))
        same_as_golden(cpu_isa_name(isa));
}

/* Blocks are searched a few at a time: one by one they are the same. Rows of whole
 * blocks of the same numbers have the same mean of squares, which the small types use. */
static void blocks_do_not_see_their_neighbours(void)
{
    fill();
    for (BlockType t = 0; t < N_BLOCKS; t++)
        for (int n = 1; n * block_info(t)->items <= K; n++) {
            int     items = block_info(t)->items;
            size_t  bytes = (size_t)block_info(t)->bytes;
            uint8_t one[256];
            for (int i = 0; i < n * items; i++) {
                back[i] = x[i % items];
                h[i] = 1 + (float)(i % items);
            }
            for (int with = 0; with < 2; with++) {
                kquant_encode(one, t, back, with ? h : NULL, items);
                blocks[n * (int)bytes] = 0xa5;
                kquant_encode(blocks, t, back, with ? h : NULL, n * items);
                for (int b = 0; b < n; b++)
                    T_OK(memcmp(blocks + (size_t)b * bytes, one, bytes) == 0);
                T_OK(blocks[n * (int)bytes] == 0xa5);
            }
        }
}

static void q8_halves_go_away_from_zero(void)
{
    static const int WANT[8] = {127, 1, -1, 2, -2, 3, 0, 0};
    float            w[32] = {127, 0.5f, -0.5f, 1.5f, -1.5f, 2.5f, 0.49999997f, -0.49999997f};
    BlockQ8_0        b;
    kquant_encode(&b, BLOCK_Q8_0, w, NULL, 32);
    T_OK(b.d == 0x3c00);
    for (int i = 0; i < 8; i++)
        T_NEAR(b.q[i], WANT[i], 0);
}

static double error_of(BlockType t, const float *importance)
{
    double sum = 0;
    encode(t, importance);
    block_decode(back, t, blocks, MOST);
    for (int i = 0; i < MOST; i++)
        sum += h[i % K] * pow((double)x[i] - back[i], 2);
    return sum;
}

/* Numbers like those of weights. */
static void fill_normal(void)
{
    uint64_t seed = 3;
    for (int i = 0; i < MOST; i++)
        x[i] = 0.02f * check_normal(&seed);
}

TEST(importance_lowers_the_error_that_it_weighs)
{
    fill();  // h
    fill_normal();
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        double plain = error_of(t, NULL), weighted = error_of(t, h);
        T_OK(t == BLOCK_Q8_0 ? weighted == plain : weighted < plain);
    }
}

/* Of normal numbers, relative. For scale: a uniform grid of b bits over +-2.7 sigma (the
 * range of 32 numbers is about so wide) errs by 2.7 * 2 / 2^b / sqrt(12) = 0.097 at 4 bits,
 * half that at 5. The bounds are a tenth above what these bytes, which are ggml's, give. */
TEST(errors_are_of_the_size_of_the_format)
{
    static const double MOST_ERROR[N_BLOCKS] = {0.093, 0.086, 0.047, 0.041,
                                                0.0059, 0.077, 0.040, 0.020};
    fill_normal();
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        double error2 = 0, sum2 = 0;
        encode(t, NULL);
        block_decode(back, t, blocks, MOST);
        for (int i = 0; i < MOST; i++) {
            error2 += pow((double)x[i] - back[i], 2);
            sum2 += pow(x[i], 2);
        }
        T_OK(sqrt(error2 / sum2) <= MOST_ERROR[t]);
    }
}

static bool all_of(const float *w, int n, float value)
{
    for (int i = 0; i < n; i++)
        if (w[i] != value)
            return false;
    return true;
}

static void zeros_and_dead_inputs(void)
{
    static const float NOTHING[K];
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        memset(x, 0, sizeof x);
        for (int with = 0; with < 2; with++) {
            encode(t, with ? NOTHING : NULL);
            block_decode(back, t, blocks, MOST);
            T_OK(all_of(back, MOST, 0));
        }
        fill_normal();
        encode(t, NOTHING);  // no column counts: any finite numbers will do
        block_decode(back, t, blocks, MOST);
        for (int i = 0; i < MOST; i++)
            T_OK(isfinite(back[i]));
    }
}

/* Below what f16 holds, down to where 1 / scale is infinite: zeros, no undefined casts. */
static void tiny_numbers_become_zeros(void)
{
    static const float SIZES[] = {1e-10f, 1e-20f, 1e-38f, 1e-41f, 1.4e-45f};
    fill();  // h
    for (BlockType t = 0; t < N_BLOCKS; t++)
        for (int s = 0; s < 5; s++) {
            for (int i = 0; i < MOST; i++)
                x[i] = SIZES[s] * (float)(i % 7 - 3);
            for (int with = 0; with < 2; with++) {
                encode(t, with ? h : NULL);
                block_decode(back, t, blocks, MOST);
                for (int i = 0; i < MOST; i++)
                    T_NEAR(back[i], 0, 1e-6);
            }
        }
}

/* Finite, but beyond f16, or with a range beyond f32: no number comes back as if nothing
 * was, and nothing undefined happens on the way. */
static void too_large_numbers_are_not_finite(void)
{
    static const float SIZES[] = {1e10f, 1e20f, 3e38f};
    fill();  // h
    for (BlockType t = 0; t < N_BLOCKS; t++)
        for (int s = 0; s < 3; s++) {
            for (int i = 0; i < MOST; i++)
                x[i] = SIZES[s] * ((float)(i % 7 - 3) / 3);
            for (int with = 0; with < 2; with++) {
                double error2 = 0;
                encode(t, with ? h : NULL);
                block_decode(back, t, blocks, MOST);
                for (int i = 0; i < MOST; i++)
                    error2 += pow((double)x[i] - back[i], 2);
                T_OK(!isfinite(error2));
            }
        }
}

TEST(every_instruction_set)
{
    CpuIsa isa = N_CPU_ISAS;
    while (ref_each_isa(&isa)) {
        blocks_do_not_see_their_neighbours();
        q8_halves_go_away_from_zero();
        zeros_and_dead_inputs();
        tiny_numbers_become_zeros();
        too_large_numbers_are_not_finite();
    }
}

/* The first of the largest, or least, counts: of both signs, and of zeros, which have two. */
static void fill_ties(uint32_t *seed)
{
    static const float FEW[] = {-2, -1, -0.0f, 0, 0, 1, 2};
    int                kinds = 1;  // of a block, from one end of FEW
    for (int i = 0; i < MOST; i++) {
        int draw = (int)((next(seed) + 1) * 32768);
        kinds = i % 32 == 0 ? 1 + draw % 7 : kinds;
        x[i] = FEW[(i / 32 % 2 ? 7 - kinds : 0) + draw / 7 % kinds];
    }
}

TEST(ties_are_the_same_with_every_instruction_set)
{
    static uint8_t plain[sizeof blocks];
    uint32_t       seed = 11;
    fill();  // h
    for (int round = 0; round < 20; round++) {
        fill_ties(&seed);
        for (BlockType t = 0; t < N_BLOCKS; t++)
            for (int with = 0; with < 2; with++) {
                CpuIsa isa = N_CPU_ISAS;
                while (ref_each_isa(&isa)) {
                    encode(t, with ? h : NULL);
                    if (isa == CPU_PLAIN)
                        memcpy(plain, blocks, sizeof blocks);
                    if (memcmp(plain, blocks, ROWS * kquant_bytes(t, K)) != 0)
                        check_fail(__FILE__, __LINE__, "%s, %s", block_info(t)->name,
                                   cpu_isa_name(isa));
                }
            }
    }
}

/* One outlier of a block takes the scale with it; its neighbours in other blocks do
 * not notice. All of a block alike comes back but for the rounding of the f16. */
TEST(outliers_and_constant_blocks)
{
    for (BlockType t = 0; t < N_BLOCKS; t++) {
        int items = block_info(t)->items;
        fill_normal();
        x[items + 5] = 100;
        for (int i = 2 * items; i < 3 * items; i++)
            x[i] = -0.3f;
        kquant_encode(blocks, t, x, NULL, K);
        block_decode(back, t, blocks, 3 * items);
        T_NEAR(back[items + 5], 100, 100 * 0.02);
        for (int i = 0; i < items; i++)
            T_NEAR(back[i], x[i], 0.02);
        for (int i = 2 * items; i < 3 * items; i++)
            T_NEAR(back[i], -0.3, 0.3 * 0.035);
    }
}
