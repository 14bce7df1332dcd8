/* test_cuda_attn_strips.cu - statistics inside a tile (cuda_attn_record.cuh), in every way that
 * a warp may hold a tile: against moments_add and plain loops, row by row. */
#include "kernels/cuda/cuda_attn_record.cuh"

#include <math.h>
#include <string.h>

extern "C" {
#include "kernels/half.h"
#include "tests/cuda/ref_cuda.h"
}

enum { T = 70, S = 210, BLOCK_ROWS = 32, BLOCKS = (T + BLOCK_ROWS - 1) / BLOCK_ROWS };

/* Map `map` of x [2,T,S]: row t sees keys t / 2 .. S - T + t. A block of two warps takes
 * BLOCK_ROWS rows; a warp rows `lane / LANES + r * 32 / LANES`, keys as record_strips has
 * them. */
template <int LANES, int RUN, int ROWS, int N>
static __global__ void strips_kernel(AttnCall c, const float *x)
{
    constexpr int GROUPS = WARP / LANES, STRIDE = LANES * RUN, KEYS = LANES * N;
    extern __shared__ double shared[];
    int lane = threadIdx.x % WARP, map = blockIdx.y;
    TileRecord rec = record_open(shared, BLOCK_ROWS, c);
    x += map * T * S;
    __syncthreads();
    for (int first = threadIdx.x / WARP * GROUPS * ROWS; first < BLOCK_ROWS;
         first += 2 * GROUPS * ROWS)
        for (int key = 0; key < S; key += KEYS) {
            float    v[ROWS][N];
            uint32_t allowed[ROWS];
            int      row = first + lane / LANES, k = key + lane % LANES * RUN;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int t = blockIdx.x * BLOCK_ROWS + row + r * GROUPS;
                allowed[r] = 0;
#pragma unroll
                for (int i = 0; i < N; i++) {
                    int  at = k + i / RUN * STRIDE + i % RUN;
                    bool in = t < T && at < S && at >= t / 2 && at <= S - T + t;
                    v[r][i] = in ? x[t * S + at] : 12345;
                    allowed[r] |= (uint32_t)in << i;
                }
            }
            record_strips<LANES, RUN, STRIDE>(&rec, map, row, GROUPS, k, v, allowed);
        }
    __syncthreads();
    record_flush(&rec);
    int t = blockIdx.x * BLOCK_ROWS + threadIdx.x;
    if (threadIdx.x < BLOCK_ROWS && t < T)
        record_close(&rec, threadIdx.x, S - T + t + 1 - t / 2, &c.moments[map * T + t],
                     &c.row_absmax[map * T + t]);
}

typedef void Kernel(AttnCall c, const float *x);

static const struct {
    const char *name;
    Kernel     *run;
} WAYS[] = {
    {"32 lanes a row, 8 rows of 4 keys", strips_kernel<32, 1, 8, 4>},
    {"32 lanes a row, one row of one key", strips_kernel<32, 1, 1, 1>},
    {"16 lanes a row, 4 rows of 4 keys side by side", strips_kernel<16, 4, 4, 4>},
    {"8 lanes a row, 2 rows of 8 keys", strips_kernel<8, 1, 2, 8>},
    {"fragments of 64 keys", strips_kernel<4, 2, 2, 16>},
    {"fragments of 32 keys", strips_kernel<4, 2, 2, 8>},
    {"2 lanes a row, 2 rows of 4 keys", strips_kernel<2, 2, 2, 4>},
    {"a lane a row of 32 keys", strips_kernel<1, 1, 1, 32>},
};
enum { WAYS_N = sizeof WAYS / sizeof *WAYS };

typedef struct {
    Moments  moments[2 * T];
    uint32_t row_absmax[2 * T], key_absmax[2 * S];
    uint64_t hist[2 * HIST_BINS];
} Found;

static void expect(Found *f, const float *x)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < 2 * T; i++) {
        int map = i / T, t = i % T, from = t / 2, end = S - T + t + 1;
        moments_init(&f->moments[i]);
        moments_add(&f->moments[i], x + i * S + from, end - from);
        for (int k = from; k < end; k++) {
            uint32_t u = f32_bits(x[i * S + k]) & 0x7fffffff;
            if (u >= 0x7f800000)
                continue;
            f->hist[map * HIST_BINS + (u >> 15)]++;
            f->row_absmax[i] = u > f->row_absmax[i] ? u : f->row_absmax[i];
            if (u > f->key_absmax[map * S + k])
                f->key_absmax[map * S + k] = u;
        }
    }
}

#define CUDA_OK(call)                                                    \
    do {                                                                 \
        cudaError_t e_ = (call);                                         \
        if (e_ != cudaSuccess)                                           \
            return e_;                                                   \
    } while (0)

template <class P> static cudaError_t zeros(P **p, size_t bytes)
{
    CUDA_OK(cudaMalloc((void **)p, bytes));
    return cudaMemset(*p, 0, bytes);
}

static cudaError_t run(int way, Found *f, const float *x)
{
    float   *there;
    AttnCall c = {};
    c.longest = S;
    c.n_maps = 2;
    CUDA_OK(zeros(&there, 2 * T * S * sizeof *x));
    CUDA_OK(zeros(&c.moments, sizeof f->moments));
    CUDA_OK(zeros(&c.row_absmax, sizeof f->row_absmax));
    CUDA_OK(zeros(&c.key_absmax, sizeof f->key_absmax));
    CUDA_OK(zeros(&c.hist, sizeof f->hist));
    CUDA_OK(cudaMemcpy(there, x, 2 * T * S * sizeof *x, cudaMemcpyHostToDevice));
    WAYS[way].run<<<dim3(BLOCKS, 2), 2 * WARP, record_bytes(BLOCK_ROWS, 2)>>>(c, there);
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaMemcpy(f->moments, c.moments, sizeof f->moments, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(f->row_absmax, c.row_absmax, sizeof f->row_absmax,
                       cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(f->key_absmax, c.key_absmax, sizeof f->key_absmax,
                       cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(f->hist, c.hist, sizeof f->hist, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaFree(there));
    CUDA_OK(cudaFree(c.moments));
    CUDA_OK(cudaFree(c.row_absmax));
    CUDA_OK(cudaFree(c.key_absmax));
    return cudaFree(c.hist);
}

static bool near(double a, double b, double scale)
{
    return fabs(a - b) <= scale;
}

/* Sums in f32 of up to 32 values a lane, then of lanes, are right within 32 * 2^-24 = 2e-6 of
 * their terms' magnitudes at worst; of third powers these are at most sqrt(m2 m4). A constant
 * has no error. */
static bool same_row(const Moments *a, const Moments *b, double tol)
{
    double sigma = b->count ? sqrt(b->m2 / (double)b->count) : 0;
    return a->count == b->count && a->n_nan == b->n_nan && a->n_pos_inf == b->n_pos_inf &&
           a->n_neg_inf == b->n_neg_inf && a->min == b->min && a->max == b->max &&
           near(a->mean, b->mean, tol * sigma + 1e-15 * fabs(b->mean)) &&
           near(a->m2, b->m2, tol * b->m2) && near(a->m4, b->m4, tol * b->m4) &&
           near(a->m3, b->m3, tol * sqrt(b->m2) * sqrt(b->m4));
}

static void check_all_ways(const float *x, double tol)
{
    static Found got, want;
    if (!ref_cuda_there())
        T_SKIP(status_text());
    expect(&want, x);
    for (int way = 0; way < WAYS_N; way++) {
        T_TEXT(cudaGetErrorString(run(way, &got, x)), "no error");
        bool rows = true;
        for (int i = 0; i < 2 * T; i++)
            rows = rows && same_row(&got.moments[i], &want.moments[i], tol);
        T_TEXT(rows ? "rows are right" : WAYS[way].name, "rows are right");
        T_OK(memcmp(got.row_absmax, want.row_absmax, sizeof got.row_absmax) == 0);
        T_OK(memcmp(got.key_absmax, want.key_absmax, sizeof got.key_absmax) == 0);
        T_OK(memcmp(got.hist, want.hist, sizeof got.hist) == 0);
    }
}

static float numbers[2 * T * S];

/* Each map's own; `all`: every value from its row, key and a normal number. */
static void fill(float (*value)(int map, int t, int key, float normal))
{
    uint64_t state = 11;
    for (int i = 0; i < 2 * T * S; i++)
        numbers[i] = value(i / S / T, i / S % T, i % S, check_normal(&state));
}

static float normal(int map, int, int, float x)
{
    return x + (float)map;
}

TEST(strips_of_normal_numbers)
{
    fill(normal);
    check_all_ways(numbers, 2e-6);
}

static float constant(int map, int t, int, float)
{
    return map ? 0 : 0.3f * (float)t;
}

TEST(strips_of_constant_rows)
{
    fill(constant);
    check_all_ways(numbers, 2e-6);
}

/* A first key far from the rest, or a mean that moves: of a row of n keys with k in its first
 * call an error may grow n / k times, which is at most 20 here. */
static float moving(int map, int t, int key, float x)
{
    if (map)
        return key == t / 2 && key % 32 == 0 ? 80 + x : x;
    return x + (key < 100 ? 20 : -30);
}

TEST(strips_whose_first_values_say_little)
{
    fill(moving);
    check_all_ways(numbers, 5e-6);
}

static float special(int map, int t, int key, float x)
{
    if (map && t % 3 == 0 && key < 100)
        return NAN;  // rows that begin late, or not at all
    if (map && t == 69)
        return key % 2 ? INFINITY : NAN;
    return key % 29 == 3 ? NAN : key % 31 == 5 ? -INFINITY : key == 128 ? INFINITY : x;
}

TEST(strips_with_nan_and_infinities)
{
    fill(special);
    check_all_ways(numbers, 2e-6);
}

/* Too large and too small for fourth powers in f32, on both sides of the limits, rows of one
 * size and mixed. */
static float sized(int map, int t, int key, float x)
{
    static const float SIZE[] = {1e30f, 2e9f, 1e-7f, 1e-30f, 1e-41f, 1e7f, 1e-9f};
    x = fmaxf(fminf(x, 3), -3);
    return x * SIZE[(map ? key / 40 : t / 10) % 7];
}

TEST(strips_of_numbers_of_any_size)
{
    fill(sized);
    check_all_ways(numbers, 2e-6);
}

/* The window's ends: 2^-9 and 2^7, and their neighbours. */
static float edges(int, int t, int key, float x)
{
    float edge = (t + key) % 2 ? 0x1p-9f : 0x1p7f;
    edge = key % 3 == 0 ? nextafterf(edge, 0) : edge;
    return x < 0 ? -edge : edge;
}

TEST(strips_at_the_ends_of_the_window)
{
    fill(edges);
    check_all_ways(numbers, 2e-6);
}
