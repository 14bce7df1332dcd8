/* test_cuda_attn_bf16.c - attention in tensor cores against whole maps in double, against itself
 * in other pieces, and against the CPU where logits are exact. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/half.h"
#include "kernels/size.h"
#include "tests/cuda/ref_cuda_case.h"

/* What is left between reference and kernel are the weights, rounded to 8 bits before they
 * meet v. */
static const double TOL = 2.0 / 256;

/* Takes blocks as large as there are, as a GPU does when it has work for all. */
static void few_processors(Backend *be)
{
    cuda_state(be)->n_multiprocessors = 1;
}

/* A norm of nearly cancelled rows would multiply errors without end: its eps is large. */
static void check_case(Backend *be, Case *c, int64_t shift)
{
    c->a.dtype = DTYPE_BF16;
    c->a.norm_eps = c->a.norm_eps >= 0 ? 0.1f : -1;
    T_STATUS_OK(ref_cuda_case_run(be, c, shift));
    T_NEAR(ref_case_error(c), 0, TOL);
}

static bool same_output(const Case *a, const Case *b)
{
    return ref_cuda_same_bits(a->out.data, b->out.data, tensor_bytes(&a->out));
}

/* --- against double --- */

typedef struct {
    CaseShape shape;
    CaseWide  wide;
} Sized;

/* Both sides of 16 queries of a warp, of blocks of 32 and 64 queries, of 32 and 64 keys; every
 * pair of padded widths; with and without keys before the queries. */
static const Sized SIZES[] = {
    {{4, 2, 1, 8, 3, {1, 1, 3}, {1, 9, 3}}, {0}},
    {{4, 2, 2, 8, 3, {1, 1, 3}, {1, 9, 3}}, {0}},
    {{2, 1, 1, 24, 3, {15, 16, 17}, {15, 64, 65}}, {0}},
    {{2, 1, 2, 24, 3, {31, 32, 33}, {127, 128, 129}}, {0}},
    {{1, 1, 1, 64, 2, {65, 2}, {130, 57}}, {0}},
    {{2, 2, 2, 64, 2, {33, 2}, {33, 70}}, {0}},                     // 64, 128
    {{1, 1, 1, 33, 1, {20}, {70}}, {.value_dim = 200}},             // 64, 256
    {{1, 1, 2, 100, 1, {20}, {40}}, {.value_dim = 63}},             // 128, 64
    {{2, 1, 1, 100, 1, {20}, {66}}, {0}},                           // 128, 128
    {{1, 1, 2, 127, 1, {33}, {65}}, {0}},                           // 128, 256
    {{1, 1, 2, 128, 1, {17}, {31}}, {.value_dim = 100}},
    {{2, 1, 2, 1, 1, {20}, {20}}, {0}},
    {{2, 1, 2, 130, 2, {5, 2}, {9, 40}}, {.value_dim = 20}},        // by rows
    {{4, 2, 1, 17, 2, {5, 18}, {9, 18}}, {.value_dim = 257}},
};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

TEST(bf16_equals_whole_maps_in_double)
{
    for (int i = 0; i < N_SIZES; i++) {
        Backend be;
        Case    c;
        T_GPU(&be);
        if (i % 2)
            few_processors(&be);
        T_STATUS_OK(case_init_wide(&c, &SIZES[i].shape, &SIZES[i].wide, (uint64_t)i + 1));
        check_case(&be, &c, i % 4);
        arena_close(&c.arena);
        backend_close(&be);
    }
}

/* The narrowest tiles that hold d and dv may take more shared memory than wider ones, or all of
 * them more than there is. */
TEST(bf16_takes_the_shared_memory_there_is)
{
    static const size_t MOST[] = {99 << 10, 64 << 10};
    for (int i = 0; i < 2; i++) {
        CaseShape shape = {1, 1, 2, 100, 1, {3}, {70}};
        CaseWide  wide = {.value_dim = 100};
        Backend   be;
        Case      c;
        T_GPU(&be);
        cuda_state(&be)->shared_most = MOST[i];
        T_STATUS_OK(case_init_wide(&c, &shape, &wide, 7));
        check_case(&be, &c, 0);
        arena_close(&c.arena);
        backend_close(&be);
    }
}

static void fill_lambda(float *rows, int64_t n)
{
    uint64_t state = 77;
    for (int64_t i = 0; i < n; i++)
        rows[i] = 0.5f + 0.49f * check_uniform(&state);
}

/* Blocks of heads that share a noise map, more of them than a block of threads holds, keys for
 * both maps, windows of keys, lambda by row, a norm's weights. */
TEST(bf16_wide)
{
    static const Sized WIDE[] = {
        {{2, 1, 2, 8, 2, {40, 3}, {70, 131}}, {2, 0, 20, false}},
        {{4, 1, 2, 24, 2, {18, 1}, {130, 60}}, {4, 8, 48, true}},
        {{7, 1, 2, 8, 1, {17}, {20}}, {7, 8, 0, true}},
        {{8, 1, 2, 8, 1, {17}, {33}}, {8, 33, 5, false}},    // two pieces of four
        {{10, 1, 2, 8, 1, {17}, {33}}, {10, 3, 64, true}},
        {{6, 2, 2, 6, 1, {50}, {70}}, {3, 0, 1, false}},
        {{4, 2, 1, 20, 2, {70, 5}, {70, 200}}, {0, 0, 63, false}},
        {{4, 2, 1, 20, 1, {3}, {200}}, {0, 0, 64, false}},
        {{4, 1, 2, 9, 1, {9}, {40}}, {2, 300, 12, false}},   // by rows
    };
    float lambda[10 * 100], weight[300];
    fill_lambda(lambda, 1000);
    fill_lambda(weight, 300);
    for (size_t i = 0; i < sizeof WIDE / sizeof *WIDE; i++) {
        Backend be;
        Case    c;
        T_GPU(&be);
        if (i % 2)
            few_processors(&be);
        T_STATUS_OK(case_init_wide(&c, &WIDE[i].shape, &WIDE[i].wide, i + 1));
        c.a.norm_eps = i % 3 == 2 ? -1 : c.a.norm_eps;
        c.a.norm_weight = i % 2 ? weight : NULL;
        c.a.lambda_rows = i % 2 ? lambda : NULL;
        c.a.lambda = i % 2 ? NAN : 0.4f;  // not looked at
        check_case(&be, &c, (int64_t)i % 2);
        arena_close(&c.arena);
        backend_close(&be);
    }
}

/* --- what must give the same bits --- */

TEST(bf16_does_not_depend_on_blocks)
{
    static const int64_t REACH[] = {0, 1, 31, 64};
    for (int i = 0; i < 4; i++) {
        Backend   be;
        Case      many, few;
        CaseShape shape = {2, 1, 1 + i % 2, 24, 2, {130, 20}, {150, 20}};
        CaseWide  wide = {.reach = REACH[i]};
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&many, &shape, &wide, 5));
        T_STATUS_OK(case_init_wide(&few, &shape, &wide, 5));
        many.a.dtype = few.a.dtype = DTYPE_BF16;
        T_STATUS_OK(ref_cuda_case_run(&be, &many, 0));
        few_processors(&be);
        T_STATUS_OK(ref_cuda_case_run(&be, &few, 1));
        T_OK(same_output(&many, &few));
        arena_close(&many.arena);
        arena_close(&few.arena);
        backend_close(&be);
    }
}

TEST(bf16_of_a_sequence_does_not_see_the_batch)
{
    Backend   be;
    Case      c, one;
    CaseShape shape = {2, 1, 2, 24, 3, {33, 1, 20}, {40, 65, 20}};
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &shape, 11));
    c.a.dtype = DTYPE_BF16;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    for (int64_t b = 0; b < 3; b++) {
        T_STATUS_OK(case_one_sequence(&one, &c, b));
        T_STATUS_OK(ref_cuda_case_run(&be, &one, 0));
        const float *part = (const float *)c.out.data +
                            c.start[b] * c.out.shape[1] * c.out.shape[2];
        T_OK(ref_cuda_same_bits(one.out.data, part, tensor_bytes(&one.out)));
        arena_close(&one.arena);
    }
    arena_close(&c.arena);
    backend_close(&be);
}

/* The last n queries alone; what none of them reaches is not even looked at. */
TEST(bf16_with_a_cache_equals_all_at_once)
{
    enum { ALL = 150, ROW = 3 * 24 };
    for (int i = 0; i < 4; i++) {
        Backend   be;
        Case      c, later;
        CaseShape shape = {2, 1, 2, 24, 1, {ALL}, {ALL}};
        CaseWide  wide = {.n_signals = 2, .value_dim = 20, .reach = i / 2 * 40};
        int64_t   n = i % 2 ? 37 : 1;
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&c, &shape, &wide, 13));
        c.a.dtype = DTYPE_BF16;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_STATUS_OK(case_one_sequence(&later, &c, 0));
        later.q.data = (float *)c.q.data + (ALL - n) * ROW;
        later.q.shape[0] = later.out.shape[0] = later.start[1] = (int32_t)n;
        for (int64_t s = 0; wide.reach && s <= ALL - n - wide.reach; s++) {
            memset((float *)c.k.data + s * 2 * 24, 0xff, 2 * 24 * sizeof(float));
            memset((float *)c.v.data + s * 20, 0xff, 20 * sizeof(float));
        }
        T_STATUS_OK(ref_cuda_case_run(&be, &later, 0));
        T_OK(ref_cuda_same_bits(later.out.data, (float *)c.out.data + (ALL - n) * 2 * 20,
                                tensor_bytes(&later.out)));
        arena_close(&later.arena);
        arena_close(&c.arena);
        backend_close(&be);
    }
}

TEST(bf16_rounds_each_input_once)
{
    for (int which = 0; which < 3; which++) {
        Backend   be;
        Case      c, before;
        CaseShape shape = {1, 1, 2, 24, 1, {20}, {20}};
        T_GPU(&be);
        T_STATUS_OK(case_init(&c, &shape, 1));
        T_STATUS_OK(case_init(&before, &shape, 1));
        Tensor *t = which == 0 ? &before.q : which == 1 ? &before.k : &before.v;
        for (int64_t i = 0; i < tensor_count(t); i++)
            ((float *)t->data)[i] = bf16_round(((float *)t->data)[i]);
        c.a.dtype = before.a.dtype = DTYPE_BF16;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_STATUS_OK(ref_cuda_case_run(&be, &before, 0));
        T_OK(same_output(&c, &before));
        arena_close(&c.arena);
        arena_close(&before.arena);
        backend_close(&be);
    }
}

/* --- NaN and infinity --- */

/* Heads first .. end of rows from .. to are NaN, all else is that of ref bit for bit. */
static bool nan_within(const Case *c, const Case *ref, int64_t from, int64_t to,
                       int64_t first, int64_t end)
{
    int64_t H = c->out.shape[1], dv = c->out.shape[2];
    const float *x = c->out.data, *y = ref->out.data;
    for (int64_t i = 0; i < tensor_count(&c->out); i++) {
        int64_t t = i / dv / H, h = i / dv % H;
        bool bad = t >= from && t < to && h >= first && h < end;
        if (bad ? !isnan(x[i]) : !ref_cuda_same_bits(&x[i], &y[i], sizeof *x) || isnan(x[i]))
            return false;
    }
    return true;
}

/* A key or value that is no number spoils the queries that reach it, and no others; also by
 * rows (dv 300). */
TEST(bf16_nan_key_stays_within_its_reach)
{
    static const int AT[] = {37, 63, 64}, W[] = {1, 33, 1000};
    static const float bad[] = {NAN, INFINITY, -3.4e38f};  // the last becomes infinite
    for (int i = 0; i < 12; i++) {
        int       at = AT[i % 3], reach = W[i / 3 % 3], end = at + reach < 90 ? at + reach : 90;
        Backend   be;
        Case      c, ref;
        CaseShape shape = {2, 1, 2, 24, 1, {90}, {90}};
        CaseWide  how = {.n_signals = 2, .reach = reach, .value_dim = i < 9 ? 48 : 260};
        int64_t   dv = how.value_dim;
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 19));
        ref.a.dtype = DTYPE_BF16;
        T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 19));
        c.a.dtype = DTYPE_BF16;
        for (int64_t j = 0; j < dv; j++)
            ((float *)c.v.data)[at * dv + j] = bad[i % 3];
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(nan_within(&c, &ref, at, end, 0, 2));
        arena_close(&c.arena);
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 19));
        c.a.dtype = DTYPE_BF16;
        ((float *)c.k.data)[at * 48] = NAN;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(nan_within(&c, &ref, at, end, 0, 2));
        arena_close(&c.arena);
        arena_close(&ref.arena);
        backend_close(&be);
    }
}

/* The first key out of the last query's reach begins a tile that all others see whole. */
TEST(bf16_nan_key_out_of_reach_begins_a_tile)
{
    static const int64_t WIDTH[] = {48, 200}, REACH[] = {95, 63};
    for (int i = 0; i < 2; i++) {
        Backend   be;
        Case      c, ref;
        int       at = 64, end = at + (int)REACH[i];
        CaseShape shape = {1, 1, 1, 24, 1, {end + 1}, {end + 1}};
        CaseWide  how = {.reach = REACH[i], .value_dim = WIDTH[i]};
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 23));
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 23));
        c.a.dtype = ref.a.dtype = DTYPE_BF16;
        ((float *)c.k.data)[at * 24] = NAN;
        T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(nan_within(&c, &ref, at, end, 0, 1));
        arena_close(&c.arena);
        arena_close(&ref.arena);
        backend_close(&be);
    }
}

/* Values that are not finite are flagged by group and by 64 keys of all sequences: a tile of one
 * that begins between has two flags, and looks at the second. */
TEST(bf16_infinite_value_behind_the_first_flag)
{
    enum { BEFORE = 40, T = 100, AT = 30 };
    Backend   be;
    Case      c, ref;
    CaseShape shape = {4, 2, 2, 24, 2, {BEFORE, T}, {BEFORE, T}};
    T_GPU(&be);
    T_STATUS_OK(case_init(&ref, &shape, 24));
    T_STATUS_OK(case_init(&c, &shape, 24));
    c.a.dtype = ref.a.dtype = DTYPE_BF16;
    for (int64_t j = 0; j < 48; j++)
        ((float *)c.v.data)[((BEFORE + AT) * 2 + 1) * 48 + j] = INFINITY;
    T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_OK(nan_within(&c, &ref, BEFORE + AT, BEFORE + T, 2, 4));
    arena_close(&c.arena);
    arena_close(&ref.arena);
    backend_close(&be);
}

/* Without norm and noise an infinite value is the infinity of its column alone, and NaN where
 * its weight is 0 or the other infinity is there too. */
TEST(bf16_infinite_value_is_its_column)
{
    enum { T = 20, DV = 70 };
    Backend   be;
    Case      c, ref;
    CaseShape shape = {1, 1, 1, 8, 1, {T}, {T}};
    CaseWide  how = {.value_dim = DV};
    T_GPU(&be);
    T_STATUS_OK(case_init_wide(&ref, &shape, &how, 3));
    T_STATUS_OK(case_init_wide(&c, &shape, &how, 3));
    c.a.dtype = ref.a.dtype = DTYPE_BF16;
    float *v = c.v.data, *k = c.k.data, *k_ref = ref.k.data;
    v[5 * DV + 3] = INFINITY;
    v[7 * DV + 3] = -INFINITY;
    v[6 * DV + 69] = -INFINITY;
    v[2 * DV + 40] = INFINITY;  // of a key whose weight is 0
    for (int i = 0; i < 8; i++)
        k[2 * 8 + i] = k_ref[2 * 8 + i] = 0;
    for (int t = 0; t < T; t++) {  // all others at 256 and more
        float *q = (float *)c.q.data + t * 8, *q_ref = (float *)ref.q.data + t * 8;
        q[0] = q_ref[0] = 32;
        k[t * 8] = k_ref[t * 8] = t == 2 ? 0 : 32;
    }
    T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    for (int t = 0; t < T; t++)
        for (int j = 0; j < DV; j++) {
            float x = ((float *)c.out.data)[t * DV + j], y = ((float *)ref.out.data)[t * DV + j];
            T_OK(j == 3 && t >= 7    ? isnan(x)
                 : j == 3 && t >= 5  ? x == INFINITY
                 : j == 69 && t >= 6 ? x == -INFINITY
                 : j == 40 && t >= 2 ? isnan(x)
                                     : ref_cuda_same_bits(&x, &y, sizeof x));
        }
    arena_close(&c.arena);
    arena_close(&ref.arena);
    backend_close(&be);
}

/* NaN in a query's row of q, or in its lambda of a head. */
TEST(bf16_nan_query_or_lambda_spoils_its_heads_only)
{
    enum { T = 40, AT = 21 };
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float       lambda[4 * T];
    for (int i = 0; i < 6; i++) {
        Backend   be;
        Case      c, ref;
        CaseShape shape = {4, 1, 2, 24, 1, {T}, {T}};
        CaseWide  how = {.n_signals = 2, .reach = 30};
        T_GPU(&be);
        fill_lambda(lambda, 4 * T);
        T_STATUS_OK(case_init_wide(&ref, &shape, &how, 21));
        T_STATUS_OK(case_init_wide(&c, &shape, &how, 21));
        ref.a.lambda_rows = c.a.lambda_rows = lambda;
        ref.a.dtype = c.a.dtype = DTYPE_BF16;
        T_STATUS_OK(ref_cuda_case_run(&be, &ref, 0));
        if (i < 3)  // rows of q: heads 0, 1, their noise, heads 2, 3, their noise
            ((float *)c.q.data)[(AT * 6 + 3 + i) * 24] = NAN;
        else
            lambda[AT * 4 + 3] = bad[i - 3];
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        T_OK(nan_within(&c, &ref, AT, AT + 1, i == 0 || i == 2 ? 2 : 3, i == 0 ? 3 : 4));
        arena_close(&c.arena);
        arena_close(&ref.arena);
        backend_close(&be);
    }
}

/* d = 1 and q = 1: the logits are the keys. */
static float of_logits(Backend *be, const float *logits, int64_t n, int64_t dv)
{
    CaseShape shape = {1, 1, 1, 1, 1, {1}, {n}};
    CaseWide  wide = {.value_dim = dv};
    Case      c;
    float     got = -1;
    if (case_init_wide(&c, &shape, &wide, 23) == OK) {
        memcpy(c.k.data, logits, (size_t)n * sizeof *logits);
        *(float *)c.q.data = 1;
        for (int64_t i = 0; i < n * dv; i++)
            ((float *)c.v.data)[i] = (float)(i / dv + 1);
        c.a.dtype = DTYPE_BF16;
        got = ref_cuda_case_run(be, &c, 0) == OK ? ((float *)c.out.data)[dv - 1] : -1;
    }
    arena_close(&c.arena);
    return got;
}

TEST(bf16_of_extreme_logits)
{
    enum { N = 150 };
    float x[N];
    for (int64_t dv = 1; dv <= 300; dv += 299) {  // tiles, and by rows
        Backend be;
        T_GPU(&be);
        for (int sign = -1; sign <= 1; sign += 2) {  // all +200 or -200: the mean
            for (int i = 0; i < N; i++)
                x[i] = 200.0f * (float)sign;
            T_NEAR((double)of_logits(&be, x, N, dv) / 75.5, 1, 1e-6);
        }
        x[100] = 1e30f;  // one takes all
        T_NEAR((double)of_logits(&be, x, N, dv) / 101, 1, 1e-6);
        for (int i = 0; i < N; i++)
            x[i] = i < 90 ? -INFINITY : 0;  // first tiles of nothing
        T_NEAR((double)of_logits(&be, x, N, dv) / 120.5, 1, 1e-6);
        for (int bad = 0; bad < 3; bad++) {  // softmax of these is not defined
            for (int i = 0; i < N; i++)
                x[i] = bad == 0 ? NAN : bad == 1 ? -INFINITY : (float)i;
            x[N - 1] = bad == 2 ? INFINITY : x[N - 1];
            T_OK(isnan(of_logits(&be, x, N, dv)));
        }
        backend_close(&be);
    }
}

/* --- quantized logits --- */

/* Exact logits, so that kernel and reference quantize the same numbers. */
TEST(bf16_quantized_logits_equal_plain_loops)
{
    static const int   BITS[] = {4, 6, 8};
    static const Sized OF[] = {
        {{2, 1, 2, 8, 2, {35, 1}, {70, 60}}, {0}},
        {{2, 1, 1, 70, 2, {17, 1}, {66, 40}}, {0}},
        {{4, 1, 2, 8, 1, {9}, {20}}, {2, 260, 7, true}},
    };
    for (int i = 0; i < 9; i++) {
        Backend be;
        Case    c;
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&c, &OF[i / 3].shape, &OF[i / 3].wide, 1));
        case_make_exact(&c, 2);
        c.a.logit_bits = BITS[(i + i / 3) % 3];
        c.a.logit_scale = (LogitScale)(i % 3);
        if (OF[i / 3].wide.n_signals)
            c.a.logit_scale = SCALE_ROW;  // the reference counts a shared noise by head
        check_case(&be, &c, 0);
        arena_close(&c.arena);
        backend_close(&be);
    }
}

/* --- logits --- */

/* All that a call leaves about its rows of logits, and these rows by cuda_attn_rows_bf16. */
typedef struct {
    AttnCall     call;
    int64_t      n_rows;     // T*B*R
    float       *x;          // [n_rows,longest]
    AttnRow     *row;
    uint32_t    *absmax;
    float       *largest;    // of only_scale
    AttnSoftmax *softmax;
} Logits;

/* n items in the device's memory of `from`, or of bytes 0. */
static Status device(Backend *be, void **out, const void *from, size_t bytes)
{
    if (from)
        return cuda_sent(be, out, from, bytes);
    TRY(cuda_scratch(be, out, bytes));
    return cuda_zero(be, *out, bytes);
}

static Status make_call(Backend *be, Case *c, AttnCall *call)
{
    Attention *a = &c->a;
    int64_t    n = c->shape.n_sequences, M = a->n_maps;
    a->batch = (Batch){n, c->start, c->number};
    a->key_start = c->key_start;
    int32_t R = (int32_t)(M == 2 && a->n_signals ? a->n_signals : 1);
    *call = (AttnCall){
        .n_queries = c->start[n], .n_keys = c->key_start[n], .n_sequences = (int32_t)n,
        .n_heads = (int32_t)a->n_heads, .n_groups = (int32_t)a->n_groups, .n_maps = (int32_t)M,
        .n_key_maps = a->shared_keys ? 1 : (int32_t)M, .d = (int32_t)a->head_dim,
        .dv = (int32_t)case_value_dim(a), .n_signals = R, .scale = a->scale,
        .lambda = a->lambda, .norm_eps = a->norm_eps, .out_scale = a->out_scale,
    };
    for (int64_t b = 0; b < n; b++)
        call->longest = (int32_t)i64_max(call->longest, c->shape.keys[b]);
    call->reach = a->reach ? (int32_t)i64_min(a->reach, call->longest) : call->longest;
    call->n_blocks = call->n_heads / R;
    call->n_rows = M == 2 ? R + 1 : R;
    size_t starts = ((size_t)n + 1) * sizeof(int32_t);
    size_t rows = (size_t)(call->n_queries * call->n_blocks * call->n_rows);
    TRY(device(be, (void **)&call->q, c->q.data, tensor_bytes(&c->q)));
    TRY(device(be, (void **)&call->k, c->k.data, tensor_bytes(&c->k)));
    TRY(device(be, (void **)&call->v, c->v.data, tensor_bytes(&c->v)));
    TRY(device(be, (void **)&call->out, NULL, tensor_bytes(&c->out)));
    TRY(device(be, (void **)&call->start, c->start, starts));
    TRY(device(be, (void **)&call->key_start, c->key_start, starts));
    TRY(device(be, (void **)&call->softmax, NULL, rows * sizeof *call->softmax));
    TRY(device(be, (void **)&call->moments, NULL, rows * sizeof *call->moments));
    TRY(device(be, (void **)&call->row_absmax, NULL, rows * sizeof *call->row_absmax));
    TRY(device(be, (void **)&call->hist, NULL, (size_t)M * HIST_BINS * sizeof *call->hist));
    return device(be, (void **)&call->key_absmax, NULL,
                  (size_t)(M * call->longest) * sizeof *call->key_absmax);
}

/* Rows in reverse order: any order will do. */
static Status spell_rows(Arena *arena, const Case *c, Logits *l)
{
    int32_t R = l->call.n_rows, maps = R * l->call.n_blocks;
    ARENA_NEW(l->row, arena, l->n_rows);
    for (int32_t b = 0; b < l->call.n_sequences; b++)
        for (int32_t t = c->start[b]; t < c->start[b + 1]; t++)
            for (int32_t j = 0; j < maps; j++)
                l->row[l->n_rows - 1 - (t * maps + j)] = (AttnRow){
                    .sequence = b, .row = t, .block = j / R, .r = j % R,
                    .position = (int32_t)(c->shape.keys[b] - c->shape.queries[b]) + t -
                                c->start[b]};
    return OK;
}

static Status find_logits(Backend *be, Arena *arena, Case *c, Logits *l)
{
    AttnRow *rows;
    float   *x;
    TRY(cuda_begin(be, NULL));
    TRY(make_call(be, c, &l->call));
    l->n_rows = l->call.n_queries * l->call.n_blocks * l->call.n_rows;
    size_t n = (size_t)l->n_rows, n_x = n * (size_t)l->call.longest * sizeof *x;
    TRY(spell_rows(arena, c, l));
    ARENA_NEW(l->x, arena, l->n_rows * l->call.longest);
    ARENA_NEW(l->absmax, arena, l->n_rows);
    ARENA_NEW(l->largest, arena, l->n_rows);
    ARENA_NEW(l->softmax, arena, l->n_rows);
    TRY(cuda_attn_bf16(be, &c->a, &l->call, false));
    TRY(cuda_sent(be, (void **)&rows, l->row, n * sizeof *rows));
    TRY(cuda_scratch(be, (void **)&x, n_x));
    TRY(cuda_attn_rows_bf16(be, &c->a, &l->call, rows, l->n_rows, x, l->call.longest));
    TRY(cuda_fetch(be, l->x, x, n_x));
    TRY(cuda_fetch(be, l->absmax, l->call.row_absmax, n * sizeof *l->absmax));
    TRY(cuda_fetch(be, l->softmax, l->call.softmax, n * sizeof *l->softmax));
    TRY(device(be, (void **)&l->call.row_scale, NULL, n * sizeof *l->largest));
    TRY(cuda_attn_bf16(be, &c->a, &l->call, true));
    return cuda_fetch(be, l->largest, l->call.row_scale, n * sizeof *l->largest);
}

/* Row i of the list against what the tiles found. */
static bool row_holds(const Logits *l, int64_t i)
{
    const AttnRow *r = &l->row[i];
    int64_t      at = ((int64_t)r->row * l->call.n_blocks + r->block) * l->call.n_rows + r->r;
    const float *x = l->x + i * l->call.longest;
    uint32_t     absmax = 0;
    float        top = -INFINITY;
    double       sum = 0;
    for (int32_t j = 0; j < l->call.longest; j++) {
        bool seen = j <= r->position && j > r->position - l->call.reach;
        if (seen != (x[j] > -INFINITY))
            return false;
        if (seen && (f32_bits(x[j]) & 0x7fffffff) > absmax)
            absmax = f32_bits(x[j]) & 0x7fffffff;
        top = x[j] > top ? x[j] : top;
    }
    for (int32_t j = 0; j < l->call.longest; j++)
        sum += exp((double)x[j] - (double)top);
    return l->absmax[at] == absmax && f32_bits(l->largest[at]) == absmax &&
           l->softmax[at].top == top && fabs(l->softmax[at].sum / sum - 1) <= 1e-6;
}

/* Rows worked out again have the bits that tiles had: their largest magnitude and their top
 * are the same; and they are q k^T. */
TEST(bf16_rows_are_those_of_tiles)
{
    static const Sized OF[] = {
        {{2, 1, 2, 24, 2, {33, 1}, {70, 5}}, {0}},
        {{4, 2, 1, 101, 2, {17, 3}, {17, 90}}, {.reach = 40, .value_dim = 8}},
        {{9, 1, 2, 8, 1, {18}, {20}}, {.n_signals = 9, .shared_keys = true, .value_dim = 8}},
        {{2, 1, 2, 150, 1, {5}, {20}}, {0}},  // by rows
    };
    for (size_t i = 0; i < sizeof OF / sizeof *OF; i++) {
        Backend be;
        Case    c;
        Logits  l = {0};
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&c, &OF[i].shape, &OF[i].wide, 31));
        c.a.dtype = DTYPE_BF16;
        T_STATUS_OK(find_logits(&be, &c.arena, &c, &l));
        for (int64_t j = 0; j < l.n_rows; j++)
            T_OK(row_holds(&l, j));
        for (int64_t b = 0; b < c.shape.n_sequences; b++) {
            RefMaps ref;
            T_STATUS_OK(ref_attention(&ref, &c.arena, &c, b));
            for (int64_t j = 0; j < l.n_rows; j++) {
                const AttnRow *r = &l.row[j];
                if (r->sequence != b)
                    continue;
                bool    noise = r->r == l.call.n_signals;
                int64_t h = r->block * l.call.n_signals + (noise ? 0 : r->r);
                for (int64_t s = 0; s <= r->position; s++) {
                    double want = ref.logits[((h * c.a.n_maps + noise) * ref.T + r->row -
                                              c.start[b]) * ref.S + s];
                    float  got = l.x[j * l.call.longest + s];
                    T_OK(want == -INFINITY ? got == -INFINITY
                                           : fabs((double)got - want) <= 2e-5);
                }
            }
        }
        arena_close(&c.arena);
        backend_close(&be);
    }
}

/* --- recording --- */

static bool same_moments(const Moments *a, const Moments *b)
{
    double s = sqrt(a->count ? a->m2 / (double)a->count : 0);
    return a->count == b->count && a->n_nan == b->n_nan && a->n_pos_inf == b->n_pos_inf &&
           a->n_neg_inf == b->n_neg_inf && a->min == b->min && a->max == b->max &&
           (a->count == 0 || (fabs(a->mean - b->mean) <= 1e-6 * s + 1e-12 &&
                              fabs(a->m2 - b->m2) <= 2e-6 * a->m2 &&
                              fabs(a->m4 - b->m4) <= 1e-5 * a->m4));
}

static bool same_peak(const Peak *a, const Peak *b)
{
    return a->value == b->value && a->layer == b->layer && a->head == b->head &&
           a->map == b->map && a->position == b->position && a->key == b->key &&
           a->sequence == b->sequence;
}

static void check_records(const LogitRecord *a, const LogitRecord *b)
{
    int64_t maps = a->n_maps * a->n_positions;
    for (int64_t i = 0; i < a->n_heads * a->n_maps; i++)
        T_OK(same_moments(&a->moments[i], &b->moments[i]));
    for (int64_t m = 0; m < a->n_maps; m++)
        T_OK(hist_equal(&a->hist[m], &b->hist[m]));
    for (int64_t i = 0; i < maps; i++) {
        T_OK(a->query_absmax[i] == b->query_absmax[i]);
        T_OK(a->key_absmax[i] == b->key_absmax[i]);
    }
    T_OK(a->peaks.n == b->peaks.n);
    for (int i = 0; i < a->peaks.n; i++)
        T_OK(same_peak(&a->peaks.at[i], &b->peaks.at[i]));
}

/* Exact logits: the CPU's record. Also quantized, which is recorded before. */
TEST(bf16_records_what_the_cpu_records)
{
    static const Sized OF[] = {
        {{2, 1, 2, 24, 2, {33, 1}, {70, 5}}, {0}},
        {{2, 1, 1, 100, 1, {40}, {70}}, {.reach = 33, .value_dim = 8}},
        {{9, 1, 2, 8, 1, {18}, {20}}, {.n_signals = 9, .shared_keys = true, .value_dim = 8}},
        {{2, 1, 2, 150, 1, {5}, {40}}, {0}},  // by rows
    };
    for (size_t i = 0; i < sizeof OF / sizeof *OF; i++) {
        Backend     be;
        Case        c;
        LogitRecord gpu, cpu;
        T_GPU(&be);
        T_STATUS_OK(case_init_wide(&c, &OF[i].shape, &OF[i].wide, 41));
        ref_cuda_case_fill(&c, 42);
        if (i == 1)
            case_make_exact(&c, 2);
        c.a.dtype = DTYPE_BF16;
        c.a.logit_bits = i % 2 ? 16 : 8;
        if (i == 3)
            case_make_exact(&c, 3);
        ((float *)c.k.data)[5] = NAN;
        T_STATUS_OK(logit_record_init(&gpu, &c.arena, 3, c.a.n_heads, c.a.n_maps, 90));
        T_STATUS_OK(logit_record_init(&cpu, &c.arena, 3, c.a.n_heads, c.a.n_maps, 90));
        c.a.record = &gpu;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        c.a.record = &cpu;
        T_STATUS_OK(case_run(&c, 1));
        check_records(&cpu, &gpu);
        arena_close(&c.arena);
        backend_close(&be);
    }
}
