/* test_glu.c - activations against double over all magnitudes, ragged tails. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

/* Values from -30 to 30, dense around 0, and tiny and huge ones. */
static void fill_gate(float *x, int64_t n)
{
    const float AWKWARD[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-42f, 88, -88, 105, -105, 1e30f,
                             -5.79f, -5.81f, 1.4142f, -1.4143f, 5.79f, -5.6f};
    for (int64_t i = 0; i < n; i++)
        x[i] = i < 16 ? AWKWARD[i] : (float)(i - n / 2) * 60.0f / (float)n;
}

static void check_act(Activation act, int64_t n)
{
    Arena   arena = {0};
    Backend be;
    Tensor  gate = ref_empty(&arena, 1, n), up = ref_normal(&arena, 1, n, 9);
    double *want = arena_alloc(&arena, n, sizeof *want);
    fill_gate(gate.data, n);
    for (int64_t i = 0; i < n; i++)  // products with 1e30 must stay finite
        ((float *)up.data)[i] *= 0.25f;
    T_STATUS_OK(backend_open(&be, "cpu", 2));
    float *input = ref_guarded(&arena, n);
    memcpy(input, gate.data, (size_t)n * sizeof *input);
    T_STATUS_OK(op_glu(&be, &gate, &up, act));
    for (int64_t i = 0; i < n; i++) {
        /* What float functions lose near a value: one part in 2^23, four
         * roundings; gelu subtracts from 1, so |x| 2^-23 remains. */
        ref_glu(want, input + i, (float *)up.data + i, 1, act);
        double size = fabs((double)input[i] * ((float *)up.data)[i]);
        T_NEAR(((float *)gate.data)[i], *want, size * 3e-7 + 1e-38);
    }
    T_OK(ref_guards_hold(gate.data, n));
    backend_close(&be);
    arena_close(&arena);
}

TEST(glu_agrees_with_double)
{
    const int64_t LENGTHS[] = {1, 3, 4, 15, 16, 17, 33, 40001};
    REF_EACH_ISA(isa)
    for (int act = 0; act < N_ACTS; act++)
        for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
            check_act((Activation)act, LENGTHS[i]);
}

/* Over a fine grid no worse than twice what libm's float functions lose. */
TEST(glu_loses_no_more_than_twice_libm)
{
    enum { N = 100003 };
    REF_EACH_ISA(isa)
    for (int act = 0; act < N_ACTS; act++) {
        Arena   arena = {0};
        Backend be;
        Tensor  gate = ref_empty(&arena, 1, N), up = ref_empty(&arena, 1, N);
        double *want = arena_alloc(&arena, N, sizeof *want);
        for (int i = 0; i < N; i++) {
            ((float *)gate.data)[i] = (float)(i - N / 2) * 1.6e-4f;
            ((float *)up.data)[i] = 1;
        }
        double loss = ref_glu(want, gate.data, up.data, N, (Activation)act);
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_glu(&be, &gate, &up, (Activation)act));
        T_NEAR(ref_worst(gate.data, want, N), 0, 2 * loss);
        backend_close(&be);
        arena_close(&arena);
    }
}

/* act(gate) alone is act(gate) * 1. */
TEST(glu_without_up_is_the_activation)
{
    const int64_t LENGTHS[] = {1, 3, 4, 15, 16, 17, 33, 1001};
    REF_EACH_ISA(isa)
    for (int act = 0; act < N_ACTS; act++)
        for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
            Arena   arena = {0};
            Backend be;
            int64_t n = LENGTHS[i];
            Tensor  a = ref_normal(&arena, 2, n, 3), b = ref_normal(&arena, 2, n, 3);
            Tensor  ones = ref_empty(&arena, 2, n);
            for (int64_t j = 0; j < 2 * n; j++)
                ((float *)ones.data)[j] = 1;
            T_STATUS_OK(backend_open(&be, "cpu", 2));
            T_STATUS_OK(op_glu(&be, &a, NULL, (Activation)act));
            T_STATUS_OK(op_glu(&be, &b, &ones, (Activation)act));
            T_OK(memcmp(a.data, b.data, tensor_bytes(&a)) == 0);
            T_OK(ref_guards_hold(a.data, 2 * n));
            backend_close(&be);
            arena_close(&arena);
        }
}

TEST(glu_keeps_nan_and_infinity_in_place)
{
    REF_EACH_ISA(isa)
    for (int act = 0; act < N_ACTS; act++) {
        Arena   arena = {0};
        Backend be;
        Tensor  gate = ref_empty(&arena, 1, 19), up = ref_empty(&arena, 1, 19);
        float  *g = gate.data, *u = up.data;
        for (int i = 0; i < 19; i++)
            g[i] = u[i] = 1;
        g[2] = g[17] = NAN;
        g[5] = g[18] = INFINITY;
        u[7] = NAN;
        T_STATUS_OK(backend_open(&be, "cpu", 1));
        T_STATUS_OK(op_glu(&be, &gate, &up, (Activation)act));
        for (int i = 0; i < 19; i++) {
            bool nan = i == 2 || i == 17 || i == 7, inf = i == 5 || i == 18;
            T_OK(nan ? isnan(g[i]) : inf ? g[i] == INFINITY : isfinite(g[i]));
        }
        backend_close(&be);
        arena_close(&arena);
    }
}

TEST(glu_bits_do_not_depend_on_threads)
{
    enum { T = 40, F = 1027 };
    Arena   arena = {0};
    Backend one, two;
    Tensor  a = ref_normal(&arena, T, F, 1), b = ref_normal(&arena, T, F, 1);
    Tensor  up = ref_normal(&arena, T, F, 2);
    T_STATUS_OK(backend_open(&one, "cpu", 1));
    T_STATUS_OK(backend_open(&two, "cpu", 2));
    T_STATUS_OK(op_glu(&one, &a, &up, ACT_SILU));
    T_STATUS_OK(op_glu(&two, &b, &up, ACT_SILU));
    T_OK(memcmp(a.data, b.data, tensor_bytes(&a)) == 0);
    backend_close(&one);
    backend_close(&two);
    arena_close(&arena);
}

TEST(glu_checks_shapes)
{
    Arena   arena = {0};
    Backend be;
    Tensor  gate = ref_normal(&arena, 2, 3, 1), up = ref_normal(&arena, 3, 2, 1);
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    T_FAILS(op_glu(&be, &gate, &up, ACT_SILU), ERR_SHAPE,
            "glu: up is F32 [3,2], expected F32 [2,3]");
    T_FAILS(op_glu(&be, &gate, &gate, N_ACTS), ERR_UNSUPPORTED, "unknown activation 4");
    T_TEXT(activation_name(ACT_GELU_TANH), "gelu_tanh");
    backend_close(&be);
    arena_close(&arena);
}
