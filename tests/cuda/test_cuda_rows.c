/* test_cuda_rows.c - operations on values and on rows, GPU against double or the exact bits:
 * sizes on both sides of four values, a warp, a block; tensors that start anywhere. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

/* How far two tensors are from a multiple of 16 bytes. */
static const int64_t SHIFTS[][2] = {{0, 0}, {1, 1}, {0, 3}, {2, 0}};
enum { N_SHIFTS = sizeof SHIFTS / sizeof *SHIFTS };

static bool same_bits(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* --- add, copy, sigmoid --- */

static void check_add_and_copy(Backend *be, int64_t T, int64_t C, const int64_t shift[2])
{
    Arena   arena = {0};
    Tensor  a = ref_normal(&arena, T, C, 1), b = ref_normal(&arena, T, C, 2), x, y;
    int64_t n = T * C;
    float  *pa = a.data, *pb = b.data, *got = ref_guarded(&arena, n);
    bool    whole;
    pb[n / 2] = NAN;
    pb[n - 1] = -INFINITY;
    T_STATUS_OK(ref_cuda_tensor(be, &y, pa, T, C, shift[0]));
    T_STATUS_OK(ref_cuda_tensor(be, &x, pb, T, C, shift[1]));
    T_STATUS_OK(op_add(be, &y, &x));
    T_STATUS_OK(ref_cuda_read(be, got, &y, &whole));
    T_OK(whole);
    for (int64_t i = 0; i < n; i++)
        T_OK(isnan(pb[i]) ? isnan(got[i]) : got[i] == pa[i] + pb[i]);
    T_STATUS_OK(op_copy(be, &y, &x));
    T_STATUS_OK(ref_cuda_read(be, got, &y, &whole));
    T_OK(whole && same_bits(got, pb, n));
    arena_close(&arena);
}

TEST(add_and_copy_are_exact)
{
    static const int64_t SIZES[] = {1, 3, 4, 5, 1023, 1024, 1025, 4099};
    Backend be;
    T_GPU(&be);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int j = 0; j < N_SHIFTS; j++) {
            ArenaMark mark = backend_mark(&be);
            check_add_and_copy(&be, 1 + (int64_t)i % 3, SIZES[i], SHIFTS[j]);
            backend_rewind(&be, mark);
        }
    backend_close(&be);
}

/* Memory of exactly their size: nothing past it is read. */
TEST(add_reads_no_further_than_its_tensors)
{
    Backend be;
    T_GPU(&be);
    for (int64_t n = 1; n < 8; n++) {
        float  in[7] = {1, 2, 3, 4, 5, 6, 7}, got[7];
        Tensor x, y;
        T_STATUS_OK(ref_cuda_exact(&be, &x, in, 1, n));
        T_STATUS_OK(ref_cuda_exact(&be, &y, in, 1, n));
        T_STATUS_OK(op_add(&be, &y, &x));
        T_STATUS_OK(backend_download(&be, got, &y));
        for (int64_t i = 0; i < n; i++)
            T_OK(got[i] == 2 * in[i]);
    }
    backend_close(&be);
}

/* In double: one rounding, and half a unit more for the exp. */
TEST(sigmoid_agrees_with_double)
{
    enum { N = 700 };
    Backend be;
    float   in[N], got[N];
    Tensor  x;
    bool    whole;
    T_GPU(&be);
    for (int i = 0; i < N; i++)
        in[i] = (float)(i - N / 2) * 0.31f;
    in[0] = NAN;
    in[1] = -INFINITY;
    in[2] = INFINITY;
    in[3] = -3e38f;
    T_STATUS_OK(ref_cuda_tensor(&be, &x, in, 7, N / 7, 1));
    T_STATUS_OK(op_sigmoid(&be, &x));
    T_STATUS_OK(ref_cuda_read(&be, got, &x, &whole));
    T_OK(whole && isnan(got[0]));
    for (int i = 1; i < N; i++) {
        double want = 1 / (1 + exp(-(double)in[i]));
        T_NEAR((double)got[i], want, want * 1.01 * 0x1p-24 + 1e-45);
    }
    backend_close(&be);
}

/* --- embed --- */

static void check_embed(Backend *be, int64_t C, const int64_t shift[2])
{
    enum { V = 11, T = 5 };
    static const int32_t IDS[T] = {10, 0, 3, 3, 9};
    Arena  arena = {0};
    Tensor host = ref_normal(&arena, V, C, 1), table, y;
    float *got = ref_guarded(&arena, T * C);
    bool   whole;
    T_STATUS_OK(ref_cuda_tensor(be, &table, host.data, V, C, shift[0]));
    T_STATUS_OK(ref_cuda_empty(be, &y, T, C, shift[1]));
    T_STATUS_OK(op_embed(be, &y, &table, IDS));
    T_STATUS_OK(ref_cuda_read(be, got, &y, &whole));
    T_OK(whole);
    for (int t = 0; t < T; t++)
        T_OK(same_bits(got + t * C, (float *)host.data + IDS[t] * C, C));
    arena_close(&arena);
}

TEST(embed_copies_the_rows_asked_for)
{
    static const int64_t WIDTHS[] = {1, 4, 7, 1024, 1025, 2052};
    Backend be;
    T_GPU(&be);
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        for (int j = 0; j < N_SHIFTS; j++) {
            ArenaMark mark = backend_mark(&be);
            check_embed(&be, WIDTHS[i], SHIFTS[j]);
            backend_rewind(&be, mark);
        }
    backend_close(&be);
}

/* --- rope --- */

enum { ROPE_T = 19, ROPE_P = 50 };

/* The CPU's bits: each product is rounded there too. */
static void check_rope(Backend *be, Backend *cpu, int64_t heads, int64_t d, int64_t half,
                       int64_t shift)
{
    Arena   arena = {0};
    int64_t C = heads * d, n = ROPE_T * C;
    Tensor  host = ref_normal(&arena, ROPE_T, C, 8), x, cs, sn;
    Tensor  hcs = ref_normal(&arena, ROPE_P, half, 1);
    Tensor  hsn = ref_normal(&arena, ROPE_P, half, 2);
    float  *got = ref_guarded(&arena, n);
    int32_t positions[ROPE_T];
    bool    whole;
    for (int t = 0; t < ROPE_T; t++)
        positions[t] = heads % 2 ? (t * 31) % ROPE_P : heads % 4 ? 2 * t : t + 7;
    ((float *)host.data)[C] = NAN;
    T_STATUS_OK(ref_cuda_tensor(be, &x, host.data, ROPE_T, C, shift));
    T_STATUS_OK(ref_cuda_tensor(be, &cs, hcs.data, ROPE_P, half, 1));
    T_STATUS_OK(ref_cuda_tensor(be, &sn, hsn.data, ROPE_P, half, 2));
    T_STATUS_OK(op_rope(be, &x, heads, &cs, &sn, positions));
    T_STATUS_OK(ref_cuda_read(be, got, &x, &whole));
    T_STATUS_OK(op_rope(cpu, &host, heads, &hcs, &hsn, positions));
    T_OK(whole);
    for (int64_t i = 0; i < n; i++) {
        float want = ((float *)host.data)[i];
        T_OK(isnan(want) ? isnan(got[i]) : f32_bits(got[i]) == f32_bits(want));
    }
    T_OK(isnan(got[C]));
    arena_close(&arena);
}

TEST(rope_gives_the_bits_of_the_cpu)
{
    static const int64_t SIZES[][3] = {{1, 2, 1},   {3, 8, 3},    {2, 64, 32}, {5, 80, 20},
                                       {1, 37, 17}, {4, 32, 16},  {2, 5, 0},   {9, 64, 32},
                                       {2, 520, 260}, {300, 2, 1}, {2, 512, 256}};
    Backend be, cpu;
    T_GPU(&be);
    T_STATUS_OK(backend_open(&cpu, "cpu", 1));
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        check_rope(&be, &cpu, SIZES[i][0], SIZES[i][1], SIZES[i][2], (int64_t)i % 3);
    backend_close(&cpu);
    backend_close(&be);
}

/* --- glu --- */

/* Values from -30 to 30, dense around 0, and tiny and huge ones. */
static void fill_gate(float *x, int64_t n)
{
    static const float AWKWARD[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-42f, 88, -88, 105, -105,
                                    1e30f, -1e30f, -5.79f, 1.4142f, -1.4143f, 5.79f, -5.6f};
    for (int64_t i = 0; i < n; i++)
        x[i] = i < 16 ? AWKWARD[i] : (float)(i - n / 2) * 60.0f / (float)n;
}

/* As on the CPU: four roundings, and gelu keeps 2^-23 of |x|. */
static void check_glu(Backend *be, Activation act, int64_t n, const int64_t shift[2], bool two)
{
    Arena  arena = {0};
    Tensor gate, up, ups = ref_normal(&arena, 1, n, 9);
    float *in = ref_guarded(&arena, n), *got = ref_guarded(&arena, n), *u = ups.data;
    bool   whole;
    fill_gate(in, n);
    for (int64_t i = 0; i < n; i++)  // products with 1e30 must stay finite
        u[i] = two ? u[i] * 0.25f : 1;
    T_STATUS_OK(ref_cuda_tensor(be, &gate, in, 1, n, shift[0]));
    T_STATUS_OK(ref_cuda_tensor(be, &up, u, 1, n, shift[1]));
    T_STATUS_OK(op_glu(be, &gate, two ? &up : NULL, act));
    T_STATUS_OK(ref_cuda_read(be, got, &gate, &whole));
    T_OK(whole);
    for (int64_t i = 0; i < n; i++) {
        double want;
        ref_glu(&want, in + i, u + i, 1, act);
        double size = fabs((double)in[i] * (double)u[i]);
        T_NEAR((double)got[i], want, size * 3e-7 + 1e-38);
    }
    arena_close(&arena);
}

TEST(glu_agrees_with_double)
{
    static const int64_t LENGTHS[] = {1, 3, 4, 17, 1023, 1024, 1025, 4001};
    Backend be;
    T_GPU(&be);
    for (int act = 0; act < N_ACTS; act++)
        for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
            for (int two = 0; two < 2; two++) {
                ArenaMark mark = backend_mark(&be);
                check_glu(&be, (Activation)act, LENGTHS[i], SHIFTS[i % N_SHIFTS], two);
                backend_rewind(&be, mark);
            }
    backend_close(&be);
}

/* All magnitudes; of CPUs with fused multiply-adds. */
TEST(glu_gives_the_bits_of_the_cpu)
{
    enum { N = 4001 };
    Backend be, cpu;
    T_GPU(&be);
    T_STATUS_OK(backend_open(&cpu, "cpu", 1));
    for (int act = 0; act < N_ACTS && cpu_isa() != CPU_PLAIN; act++) {
        Arena  arena = {0};
        Tensor gate, up, host = ref_empty(&arena, 1, N), by = ref_normal(&arena, 1, N, 9);
        float *got = ref_guarded(&arena, N);
        bool   whole;
        fill_gate(host.data, N);
        T_STATUS_OK(ref_cuda_tensor(&be, &gate, host.data, 1, N, 1));
        T_STATUS_OK(ref_cuda_tensor(&be, &up, by.data, 1, N, 0));
        T_STATUS_OK(op_glu(&be, &gate, &up, (Activation)act));
        T_STATUS_OK(op_glu(&cpu, &host, &by, (Activation)act));
        T_STATUS_OK(ref_cuda_read(&be, got, &gate, &whole));
        T_OK(same_bits(got, host.data, N));
        arena_close(&arena);
    }
    backend_close(&cpu);
    backend_close(&be);
}

/* An infinity stays one but where act(-inf) is 0 times infinity. */
TEST(glu_keeps_nan_and_infinity_in_place)
{
    enum { F = 19 };
    Backend be;
    T_GPU(&be);
    for (int act = 0; act < N_ACTS; act++) {
        float  g[F], u[F], got[F];
        Tensor gate, up;
        bool   whole;
        for (int i = 0; i < F; i++)
            g[i] = u[i] = 1;
        g[2] = g[17] = u[7] = NAN;
        g[5] = g[18] = INFINITY;
        g[9] = -INFINITY;
        T_STATUS_OK(ref_cuda_tensor(&be, &gate, g, 1, F, 0));
        T_STATUS_OK(ref_cuda_tensor(&be, &up, u, 1, F, 0));
        T_STATUS_OK(op_glu(&be, &gate, &up, (Activation)act));
        T_STATUS_OK(ref_cuda_read(&be, got, &gate, &whole));
        for (int i = 0; i < F; i++) {
            bool nan = i == 2 || i == 17 || i == 7 || (i == 9 && act != ACT_RELU);
            bool inf = i == 5 || i == 18;
            T_OK(nan ? isnan(got[i]) : inf ? got[i] == INFINITY : isfinite(got[i]));
        }
    }
    backend_close(&be);
}

/* --- nothing --- */

TEST(operations_on_no_rows_do_nothing)
{
    Backend be;
    Tensor  none, cs;
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_empty(&be, &none, 0, 8, 0));
    T_STATUS_OK(ref_cuda_empty(&be, &cs, 3, 2, 0));
    T_STATUS_OK(op_add(&be, &none, &none));
    T_STATUS_OK(op_copy(&be, &none, &none));
    T_STATUS_OK(op_sigmoid(&be, &none));
    T_STATUS_OK(op_glu(&be, &none, &none, ACT_SILU));
    T_STATUS_OK(op_embed(&be, &none, &(Tensor){.dtype = DTYPE_F32, .n_dims = 2,
                                               .shape = {3, 8}, .data = cs.data}, NULL));
    T_STATUS_OK(op_rope(&be, &none, 2, &cs, &cs, NULL));
    backend_close(&be);
}
