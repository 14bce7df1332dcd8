/* test_attention_wide.c - attention beyond a noise map a head: blocks of heads that share
 * one, maps that share keys, values of another width, windows of keys, lambda by row. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpufeat.h"
#include "tests/check.h"
#include "tests/kernels/ref_attention.h"
#include "tests/kernels/ref_ops.h"

/* Both sides of tiles of queries (48) and keys (128, panels of 64), with caches. */
static const CaseShape DIFF = {4, 1, 2, 8, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const CaseShape PLAIN = {4, 1, 1, 8, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const int64_t REACH[] = {0, 1, 2, 47, 48, 64, 129, 1000};
enum { N_REACH = sizeof REACH / sizeof *REACH, N_ROWS = 130 + 1 + 49 + 30 };

static bool same_output(const Case *a, const Case *b)
{
    return memcmp(a->out.data, b->out.data, tensor_bytes(&a->out)) == 0;
}

/* In (0,1), as sigmoids are. */
static void fill_lambda(float *rows, int64_t n)
{
    uint64_t state = 77;
    for (int64_t i = 0; i < n; i++)
        rows[i] = 0.5f + 0.49f * check_uniform(&state);
}

/* A norm of nearly cancelled rows would multiply errors without end: eps is large. tol: as
 * in test_attention.c. */
static void check_case(Case *c)
{
    static RefMaps maps[8];
    Arena arena = {0};
    c->a.norm_eps = c->a.norm_eps >= 0 ? 0.1f : -1;
    for (int64_t b = 0; b < c->shape.n_sequences; b++)
        T_STATUS_OK(ref_attention(&maps[b], &arena, c, b));
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        T_STATUS_OK(case_run(c, 2));
        T_OK(case_guard_intact(c));
        for (int64_t b = 0; b < c->shape.n_sequences; b++)
            T_NEAR(ref_error(c, &maps[b], b), 0, 2e-6);
    }
    cpu_isa_force(N_CPU_ISAS);
    arena_close(&arena);
}

static void check_shape(const CaseShape *shape, const CaseWide *wide, bool norm)
{
    Case c;
    T_STATUS_OK(case_init_wide(&c, shape, wide, 1));
    c.a.norm_eps = norm ? 0.1f : -1;
    check_case(&c);
    arena_close(&c.arena);
}

static void check_reaches(const CaseShape *shape, CaseWide wide)
{
    for (int i = 0; i < N_REACH; i++) {
        wide.reach = REACH[i];
        wide.value_dim = i % 3 == 0 ? 0 : i % 3 == 1 ? 8 : 3;
        check_shape(shape, &wide, wide.value_dim != 8);
    }
    wide.reach = 0;
    wide.value_dim = 20;
    check_shape(shape, &wide, true);
}

TEST(wide_plain_heads_within_a_reach)
{
    check_reaches(&PLAIN, (CaseWide){0});
}

static void check_signals(int64_t n_signals)
{
    check_reaches(&DIFF, (CaseWide){.n_signals = n_signals});
    check_reaches(&DIFF, (CaseWide){.n_signals = n_signals, .shared_keys = true});
}

TEST(wide_a_noise_map_a_head)
{
    check_signals(1);
}

TEST(wide_two_heads_to_a_noise_map)
{
    check_signals(2);
}

TEST(wide_four_heads_to_a_noise_map)
{
    check_signals(4);
}

/* Widths that are no multiple of a vector, several groups, blocks that share a group. */
TEST(wide_ragged_widths)
{
    static const struct {
        CaseShape shape;
        CaseWide  wide;
    } RAGGED[] = {
        {{6, 2, 2, 6, 2, {50, 3}, {70, 131}}, {3, 0, 20, false}},
        {{8, 2, 2, 20, 2, {50, 3}, {70, 131}}, {2, 33, 48, false}},
        {{8, 2, 2, 20, 1, {97}, {140}}, {4, 20, 0, true}},
        {{4, 4, 2, 100, 1, {49}, {60}}, {1, 100, 33, true}},
        {{4, 2, 1, 100, 1, {49}, {60}}, {0, 0, 33, false}},
        {{4, 1, 2, 128, 1, {51}, {130}}, {4, 0, 64, false}},  // Motif-2-12.7B, fewer groups
        {{4, 2, 2, 64, 1, {51}, {130}}, {0, 0, 47, false}},   // Phi-4-mini-flash
    };
    for (size_t i = 0; i < sizeof RAGGED / sizeof *RAGGED; i++)
        check_shape(&RAGGED[i].shape, &RAGGED[i].wide, true);
}

/* --- one query (cpu_attention_step.c) --- */

/* The last query of two sequences alone, where keys and values lie, against tiles. */
static void check_step(const CaseShape *shape, const CaseWide *wide, Dtype dtype)
{
    Case c, step;
    T_STATUS_OK(case_init_wide(&c, shape, wide, 3));
    T_STATUS_OK(case_init_wide(&step, shape, wide, 3));
    c.a.dtype = step.a.dtype = dtype;
    int64_t q = c.q.shape[1] * c.q.shape[2], out = c.out.shape[1] * c.out.shape[2];
    for (int64_t b = 0; b < 2; b++) {
        memcpy((float *)step.q.data + b * q, (float *)c.q.data + (c.start[b + 1] - 1) * q,
               (size_t)q * sizeof(float));
        step.start[b + 1] = (int32_t)b + 1;
    }
    step.q.shape[0] = step.out.shape[0] = 2;
    T_STATUS_OK(case_run(&c, 2));
    for (int threads = 1; threads <= 3; threads++) {
        memset(step.out.data, 0xff, tensor_bytes(&step.out));  // NaN
        T_STATUS_OK(case_run(&step, threads));
        for (int64_t b = 0; b < 2; b++)
            T_OK(memcmp((float *)step.out.data + b * out,
                        (float *)c.out.data + (c.start[b + 1] - 1) * out,
                        (size_t)out * sizeof(float)) == 0);
    }
    arena_close(&step.arena);
    arena_close(&c.arena);
}

TEST(wide_steps_have_the_bits_of_tiles)
{
    static const struct {
        CaseShape shape;
        CaseWide  wide;
    } STEPS[] = {
        {{6, 2, 1, 20, 2, {2, 3}, {64, 300}}, {0}},
        {{9, 3, 1, 64, 2, {3, 2}, {1000, 129}}, {.value_dim = 33}},
        {{4, 2, 2, 40, 2, {2, 2}, {65, 257}}, {0}},
        {{8, 2, 2, 20, 2, {4, 2}, {300, 128}}, {4, 20, 0, true}},
        {{12, 2, 2, 6, 2, {2, 2}, {70, 258}}, {3, 0, 20, false}},
        {{12, 2, 2, 6, 2, {2, 2}, {200, 258}}, {2, 20, 129, true}},
        {{4, 1, 1, 8, 2, {2, 2}, {200, 300}}, {.reach = 47}},
        {{4, 2, 1, 7, 2, {2, 3}, {201, 64}}, {.reach = 48}},   // odd dims, an odd first key
    };
    REF_EACH_ISA(isa)
        for (size_t i = 0; i < 8; i++) {
            check_step(&STEPS[i].shape, &STEPS[i].wide, DTYPE_F32);
            check_step(&STEPS[i].shape, &STEPS[i].wide, DTYPE_BF16);
        }
}

TEST(wide_step_of_a_norm_weight_and_lambda_by_row)
{
    CaseShape shape = {6, 2, 2, 12, 2, {1, 1}, {150, 20}};
    CaseWide  wide = {.n_signals = 3, .value_dim = 18};
    float     weight[18], lambda[12];
    Case      c;
    T_STATUS_OK(case_init_wide(&c, &shape, &wide, 4));
    for (int i = 0; i < 18; i++)
        weight[i] = 1 + 0.1f * (float)i;
    fill_lambda(lambda, 12);
    c.a.norm_weight = weight;
    c.a.lambda_rows = lambda;
    check_case(&c);
    arena_close(&c.arena);
}

/* norm_weight has dv numbers. */
TEST(wide_norm_weight_of_another_width)
{
    CaseWide wide = {.n_signals = 2, .value_dim = 33};
    float weight[33];
    Case c;
    uint64_t state = 5;
    for (int i = 0; i < 33; i++)
        weight[i] = 1 + check_uniform(&state);
    T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 2));
    c.a.norm_weight = weight;
    check_case(&c);
    arena_close(&c.arena);
}

TEST(wide_lambda_of_each_row)
{
    static float lambda[4 * N_ROWS];
    static const int64_t SIGNALS[] = {1, 2, 4};
    fill_lambda(lambda, 4 * N_ROWS);
    for (int i = 0; i < 6; i++) {
        CaseWide wide = {SIGNALS[i % 3], 8, i % 2 ? 48 : 0, i < 3};
        Case c;
        T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 3));
        c.a.lambda_rows = lambda;
        c.a.lambda = NAN;  // not looked at
        check_case(&c);
        arena_close(&c.arena);
    }
}

TEST(wide_bf16)
{
    CaseWide wide = {.n_signals = 2, .reach = 48};
    Case c;
    T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 4));
    c.a.dtype = DTYPE_BF16;
    c.a.norm_eps = 0.1f;
    T_STATUS_OK(case_run(&c, 2));
    T_NEAR(ref_case_error(&c), 0, 2.0 / 256);  // the weights' rounding
    arena_close(&c.arena);
}

/* --- what must give the same bits --- */

/* b as a, but for what change() does to it; the same seed fills both. */
static void check_same(const CaseShape *shape, CaseWide wa, CaseWide wb,
                       void (*change)(Case *to, const Case *from))
{
    Case a, b;
    T_STATUS_OK(case_init_wide(&a, shape, &wa, 6));
    T_STATUS_OK(case_init_wide(&b, shape, &wb, 6));
    if (change)
        change(&b, &a);
    T_STATUS_OK(case_run(&a, 2));
    T_STATUS_OK(case_run(&b, 2));
    T_OK(same_output(&a, &b));
    arena_close(&a.arena);
    arena_close(&b.arena);
}

TEST(wide_reach_longer_than_the_keys_is_none)
{
    check_same(&DIFF, (CaseWide){0}, (CaseWide){.reach = 300}, NULL);
    check_same(&DIFF, (CaseWide){0}, (CaseWide){.reach = INT64_MAX}, NULL);
    check_same(&PLAIN, (CaseWide){0}, (CaseWide){.reach = 300}, NULL);
}

TEST(wide_signals_without_noise_are_heads)
{
    check_same(&PLAIN, (CaseWide){0}, (CaseWide){.n_signals = 4, .shared_keys = true}, NULL);
}

/* to has a noise map for each head, from one for four of them. */
static void repeat_noise(Case *to, const Case *from)
{
    int64_t d = from->a.head_dim, T = from->start[from->shape.n_sequences];
    memcpy(to->k.data, from->k.data, tensor_bytes(&from->k));
    memcpy(to->v.data, from->v.data, tensor_bytes(&from->v));
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < 8; h++) {
            float *q = (float *)to->q.data + (t * 8 + h) * d;
            memcpy(q, (const float *)from->q.data + (t * 5 + (h % 2 ? 4 : h / 2)) * d,
                   (size_t)d * sizeof *q);
        }
}

TEST(wide_noise_of_a_block_is_that_of_each_head)
{
    for (int i = 0; i < N_REACH; i++)
        check_same(&DIFF, (CaseWide){.n_signals = 4, .reach = REACH[i]},
                   (CaseWide){.reach = REACH[i]}, repeat_noise);
}

/* to has each key twice. */
static void repeat_keys(Case *to, const Case *from)
{
    int64_t d = from->a.head_dim, n = tensor_count(&from->k) / d;
    memcpy(to->q.data, from->q.data, tensor_bytes(&from->q));
    memcpy(to->v.data, from->v.data, tensor_bytes(&from->v));
    for (int64_t i = 0; i < 2 * n; i++)
        memcpy((float *)to->k.data + i * d, (const float *)from->k.data + i / 2 * d,
               (size_t)d * sizeof(float));
}

TEST(wide_shared_keys_are_keys_twice)
{
    check_same(&DIFF, (CaseWide){2, 0, 48, true}, (CaseWide){2, 0, 48, false}, repeat_keys);
}

static void check_is_the_same_for_any_threads_and_batch(Dtype dtype)
{
    static float lambda[4 * N_ROWS];
    fill_lambda(lambda, 4 * N_ROWS);
    for (int i = 0; i < N_REACH; i++) {
        CaseWide how = {2, 20, REACH[i], false};
        Case c, ref, one;
        T_STATUS_OK(case_init_wide(&ref, &DIFF, &how, 9));
        ref.a.dtype = dtype;
        T_STATUS_OK(case_init_wide(&c, &DIFF, &how, 9));
        c.a.dtype = dtype;
        ref.a.lambda_rows = c.a.lambda_rows = lambda;
        T_STATUS_OK(case_run(&ref, 1));
        for (int threads = 2; threads <= 5; threads++) {
            T_STATUS_OK(case_run(&c, threads));
            T_OK(same_output(&c, &ref));
        }
        for (int64_t b = 0; b < DIFF.n_sequences; b++) {
            T_STATUS_OK(case_one_sequence(&one, &c, b));
            T_STATUS_OK(case_run(&one, 2));
            T_OK(memcmp(one.out.data, (float *)ref.out.data + c.start[b] * 4 * 20,
                        tensor_bytes(&one.out)) == 0);
            arena_close(&one.arena);
        }
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
}

TEST(wide_is_the_same_for_any_threads_and_batch)
{
    ref_each_dtype(check_is_the_same_for_any_threads_and_batch);
}

TEST(wide_avx2_and_avx512_give_the_same_bits)
{
    if (!cpu_isa_force(CPU_AVX512))
        T_SKIP("no avx512 on this machine");
    for (int i = 0; i < N_REACH; i++) {
        CaseWide how = {2, 20, REACH[i], false};
        Case wide, narrow;
        T_STATUS_OK(case_init_wide(&wide, &DIFF, &how, 17));
        T_STATUS_OK(case_init_wide(&narrow, &DIFF, &how, 17));
        cpu_isa_force(CPU_AVX512);
        T_STATUS_OK(case_run(&wide, 2));
        cpu_isa_force(CPU_AVX2);
        T_STATUS_OK(case_run(&narrow, 2));
        T_OK(same_output(&wide, &narrow));
        arena_close(&wide.arena);
        arena_close(&narrow.arena);
    }
    cpu_isa_force(N_CPU_ISAS);
}

/* The last n queries alone; what none of them reaches is not even looked at. */
static void check_with_a_cache_equals_all_at_once(Dtype dtype)
{
    for (int i = 0; i < N_REACH; i++)
        for (int32_t n = 1; n <= 61; n += 20) {
            CaseShape all = {4, 1, 2, 24, 1, {200}, {200}};
            CaseWide how = {2, 20, REACH[i], false};
            Case c, later;
            T_STATUS_OK(case_init_wide(&c, &all, &how, 13));
            c.a.dtype = dtype;
            T_STATUS_OK(case_run(&c, 2));
            T_STATUS_OK(case_one_sequence(&later, &c, 0));
            later.q.data = (float *)c.q.data + (200 - n) * 6 * 24;
            later.q.shape[0] = later.out.shape[0] = later.start[1] = n;
            for (int64_t s = 0; REACH[i] && s <= 200 - n - REACH[i]; s++) {
                memset((float *)c.k.data + s * 2 * 24, 0xff, 2 * 24 * sizeof(float));
                memset((float *)c.v.data + s * 20, 0xff, 20 * sizeof(float));
            }
            T_STATUS_OK(case_run(&later, 2));
            T_OK(memcmp(later.out.data, (float *)c.out.data + (200 - n) * 4 * 20,
                        tensor_bytes(&later.out)) == 0);
            arena_close(&later.arena);
            arena_close(&c.arena);
        }
}

TEST(wide_with_a_cache_equals_all_at_once)
{
    ref_each_dtype(check_with_a_cache_equals_all_at_once);
}

/* --- NaN and infinity --- */

/* A key or value that is no number spoils the queries that reach it, and no others. */
static void check_nan_key_stays_within_its_reach(Dtype dtype)
{
    static const int AT[] = {77, 127, 128}, W[] = {1, 2, 33, 64};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 12; i++) {
        int at = AT[i % 3], reach = W[i / 3], end = at + reach < 200 ? at + reach : 200;
        CaseShape shape = {4, 1, 2, 24, 1, {200}, {200}};
        CaseWide how = {.n_signals = 2, .reach = reach};
        Case c, ref;
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 19));
        ref.a.dtype = dtype;
        T_STATUS_OK(case_run(&ref, 2));
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 19));
        c.a.dtype = dtype;
        for (int j = 0; j < 48; j++)
            ((float *)c.v.data)[at * 48 + j] = bad[i % 3];
        T_STATUS_OK(case_run(&c, 2));
        T_OK(ref_nan_within(&c, &ref, at, end, 0, 4));
        arena_close(&c.arena);
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 19));
        c.a.dtype = dtype;
        ((float *)c.k.data)[at * 48] = NAN;
        T_STATUS_OK(case_run(&c, 2));
        T_OK(ref_nan_within(&c, &ref, at, end, 0, 4));
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
}

TEST(wide_nan_key_stays_within_its_reach)
{
    ref_each_dtype(check_nan_key_stays_within_its_reach);
}

/* NaN in a query's row of q, or in its lambda of a head. */
static void check_nan_query_or_lambda_spoils_its_heads_only(Dtype dtype)
{
    CaseShape shape = {4, 1, 2, 24, 1, {150}, {150}};
    CaseWide how = {.n_signals = 2, .reach = 64};
    float lambda[4 * 150];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    fill_lambda(lambda, 4 * 150);
    for (int i = 0; i < 6; i++) {
        Case c, ref;
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 21));
        ref.a.dtype = dtype;
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 21));
        c.a.dtype = dtype;
        ref.a.lambda_rows = c.a.lambda_rows = lambda;
        T_STATUS_OK(case_run(&ref, 2));
        if (i < 3)  // rows of q: heads 0, 1, their noise, heads 2, 3, their noise
            ((float *)c.q.data)[(100 * 6 + 3 + i) * 24] = NAN;
        else
            lambda[100 * 4 + 3] = bad[i - 3];
        T_STATUS_OK(case_run(&c, 2));
        T_OK(ref_nan_within(&c, &ref, 100, 101, i == 0 || i == 2 ? 2 : 3, i == 0 ? 3 : 4));
        fill_lambda(lambda, 4 * 150);
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
}

TEST(wide_nan_query_or_lambda_spoils_its_heads_only)
{
    ref_each_dtype(check_nan_query_or_lambda_spoils_its_heads_only);
}
