/* test_cuda_attn_share.c - shares of attention and whole maps on the GPU, against whole maps in
 * double. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda/ref_cuda_case.h"
#include "tests/kernels/ref_shares.h"

enum { H = 4, D = 12, ROWS = 130 + 1 + 49 + 30 };
/* The third sequence begins at position 131 - 49 = 82 of its cache. */
static const CaseShape DIFF = {H, 1, 2, D, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const CaseShape PLAIN = {H, 1, 1, D, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const Span SPANS[4] = {{40, 90}, {3, 9}, {82, 82}, {250, 280}};
/* Ends just before a sampled row (47), and just after one (95). */
static const Span EDGES[4] = {{0, 47}, {0, 60}, {82, 96}, {0, 1}};

static void fill_lambda(float *rows, int64_t n)
{
    uint64_t state = 77;
    for (int64_t i = 0; i < n; i++)
        rows[i] = 0.5f + 0.49f * check_uniform(&state);
}

/* What a test asks for besides the shape. */
typedef struct {
    CaseWide    wide;
    const Span *spans;
    int         bits;      // 0: logits as they are
    LogitScale  scale;
    bool        by_row;    // lambda of each row, and chosen rows
    Dtype       dtype;
} Wish;

static Status open_case(Case *c, const CaseShape *shape, const Wish *w, float *lambda,
                        uint8_t *rows)
{
    TRY(case_init_wide(c, shape, &w->wide, 5));
    ref_cuda_case_fill(c, 6);
    fill_lambda(lambda, H * ROWS);
    for (int i = 0; i < ROWS; i++)
        rows[i] = i % 48 >= 47 || i % 48 < 2 || i % 7 == 3;
    c->a.spans = w->spans;
    c->a.dtype = w->dtype;
    c->a.logit_bits = w->bits ? w->bits : 16;
    c->a.logit_scale = w->scale;
    c->a.share_rows = w->by_row ? rows : NULL;
    c->a.lambda_rows = w->by_row ? lambda : NULL;
    return OK;
}

static void check_shares(const CaseShape *shape, Wish w)
{
    static float   lambda[H * ROWS];
    static uint8_t rows[ROWS];
    ShareRecord    sh[H] = {0}, ref[H];
    Backend        be;
    Case           c;
    T_GPU(&be);
    T_STATUS_OK(open_case(&c, shape, &w, lambda, rows));
    c.a.shares = sh;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_STATUS_OK(ref_shares(ref, &c, w.spans));
    T_OK(ref->rows > 8);
    for (int h = 0; h < H; h++)
        T_OK(ref_shares_close(&sh[h], &ref[h]));
    arena_close(&c.arena);
    backend_close(&be);
}

TEST(shares_of_plain_and_differential_layers)
{
    check_shares(&DIFF, (Wish){.spans = SPANS});
    check_shares(&PLAIN, (Wish){.spans = SPANS});
    check_shares(&DIFF, (Wish){.spans = EDGES, .by_row = true});
    check_shares(&PLAIN, (Wish){.by_row = true});
}

TEST(shares_in_bf16)
{
    check_shares(&DIFF, (Wish){.spans = SPANS, .dtype = DTYPE_BF16});
}

TEST(shares_of_shared_noise_within_a_reach)
{
    check_shares(&DIFF, (Wish){.wide = {.n_signals = 2, .reach = 47}, .spans = SPANS});
    check_shares(&DIFF, (Wish){.wide = {.n_signals = 4, .reach = 15, .shared_keys = true},
                               .spans = EDGES, .by_row = true});
    check_shares(&PLAIN, (Wish){.wide = {.reach = 129}, .spans = SPANS});
    check_shares(&PLAIN, (Wish){.wide = {.reach = 1}});
}

TEST(shares_use_quantized_logits)
{
    check_shares(&DIFF, (Wish){.bits = 4, .scale = SCALE_TENSOR, .spans = SPANS});
    check_shares(&DIFF, (Wish){.wide = {.n_signals = 2, .reach = 48}, .bits = 6,
                               .scale = SCALE_HEAD});
    check_shares(&PLAIN, (Wish){.bits = 8, .scale = SCALE_ROW});
}

/* Under a limit on memory rows go one piece after another; the figures stay. */
TEST(shares_in_pieces_are_the_same)
{
    static float diff[2][H * 130 * 130];
    ShareRecord  sh[2][H] = {{{0}}};
    Backend      be;
    T_GPU(&be);
    for (int i = 0; i < 2; i++) {
        Case      c;
        MapWindow w = {.sequence = 0, .n_positions = 130, .diff = diff[i]};
        T_STATUS_OK(case_init(&c, &DIFF, 5));
        c.a.shares = sh[i];
        c.a.window = &w;
        if (i == 1)  // one query takes 8 rows of 300 keys and 4 of 3 * 130 weights: 15840 bytes
            cuda_state(&be)->limit = cuda_state(&be)->held + (500 << 10);
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        arena_close(&c.arena);
    }
    T_OK(ref_cuda_same_bits(sh[1], sh[0], sizeof sh[0]));
    T_OK(ref_cuda_same_bits(diff[1], diff[0], sizeof diff[0]));
    backend_close(&be);
}

TEST(shares_do_not_depend_on_the_batch)
{
    ShareRecord whole[H] = {0}, parts[H] = {0};
    Backend     be;
    Case        c, one;
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &DIFF, 3));
    c.a.shares = whole;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    for (int64_t b = 0; b < DIFF.n_sequences; b++) {
        T_STATUS_OK(case_one_sequence(&one, &c, b));
        one.a.shares = parts;
        T_STATUS_OK(ref_cuda_case_run(&be, &one, 1));
        arena_close(&one.arena);
    }
    T_OK(ref_cuda_same_bits(parts, whole, sizeof whole));
    arena_close(&c.arena);
    backend_close(&be);
}

/* d = 1 and q = 1: the logits are the keys; half of them -inf in both maps. */
TEST(shares_of_weights_that_are_zero)
{
    CaseShape   shape = {1, 1, 2, 1, 1, {16}, {16}};
    ShareRecord sh = {0};
    Backend     be;
    Case        c;
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &shape, 7));
    for (int i = 0; i < 32; i++) {
        ((float *)c.q.data)[i] = 1;
        ((float *)c.k.data)[i] = i % 4 < 2 ? 0 : -INFINITY;
    }
    c.a.shares = &sh;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    for (int m = 0; m < 2; m++) {
        T_NEAR(sh.entropy[m], log(8), 1e-6);
        T_NEAR(sh.first[m], 0.125, 1e-7);
    }
    T_NEAR(sh.diff_abs, 0.6, 1e-6);
    T_OK(sh.negative == 0 && sh.rows == 1 && sh.weights == 16);
    arena_close(&c.arena);
    backend_close(&be);
}

TEST(shares_of_a_row_with_nan_are_nan)
{
    static float lambda[H * ROWS];
    ShareRecord  sh[H] = {0};
    Backend      be;
    Case         c;
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &DIFF, 4));
    fill_lambda(lambda, H * ROWS);
    ((float *)c.q.data)[15 * H * 2 * D] = NAN;  // head 0, map 0 of position 15
    lambda[31 * H + 2] = NAN;
    c.a.shares = sh;
    c.a.lambda_rows = lambda;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_OK(isnan(sh[0].entropy[0]) && isnan(sh[0].first[0]) && isnan(sh[0].diff_abs) &&
         isnan(sh[0].cancelled) && isnan(sh[0].row_sum_error) && isfinite(sh[0].entropy[1]));
    for (int h = 1; h < H; h++)
        T_OK(isfinite(sh[h].entropy[0]) && isnan(sh[h].diff_abs) == (h == 2) &&
             isnan(sh[h].row_sum_error) == (h == 2));
    arena_close(&c.arena);
    backend_close(&be);
}

/* --- whole maps --- */

/* Rows and columns of the window against the reference; 0 elsewhere. */
static void check_window(const CaseShape *shape, Wish w, int64_t n)
{
    enum { S = 130 };
    static float   maps[H * 2 * S * S], diff[H * S * S], lambda[H * ROWS];
    static uint8_t rows[ROWS];
    int64_t        M = shape->n_maps;
    MapWindow      window = {0, n, maps, diff};
    ShareRecord    sh[H] = {0}, ref[H];
    Backend        be;
    Case           c;
    RefMaps        r;
    memset(maps, 0x7f, sizeof maps);
    memset(diff, 0x7f, sizeof diff);
    T_GPU(&be);
    T_STATUS_OK(open_case(&c, shape, &w, lambda, rows));
    c.a.window = &window;
    c.a.shares = w.by_row ? sh : NULL;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_STATUS_OK(ref_attention(&r, &c.arena, &c, 0));
    for (int64_t i = 0; i < H * (M + 1) * n * n; i++) {
        int64_t key = i % n, t = i / n % n, map = i / n / n;
        bool there = ref_sees(&c, &r, t, key), is_diff = map >= H * M;
        const double *from = is_diff ? r.diff + (map - H * M) * r.T * r.S
                                     : r.weights + map * r.T * r.S;
        float got = is_diff ? diff[i - H * M * n * n] : maps[i];
        T_NEAR(got, there ? from[t * r.S + key] : 0, there ? 2e-6 : 0);
    }
    T_STATUS_OK(ref_shares(ref, &c, NULL));
    for (int h = 0; w.by_row && h < H; h++)
        T_OK(ref_shares_close(&sh[h], &ref[h]));
    arena_close(&c.arena);
    backend_close(&be);
}

TEST(window_of_whole_maps)
{
    check_window(&DIFF, (Wish){.by_row = true}, 130);
    check_window(&DIFF, (Wish){.wide = {.n_signals = 2, .reach = 47}}, 130);
    check_window(&DIFF, (Wish){.wide = {.n_signals = 4}, .dtype = DTYPE_BF16}, 33);
    check_window(&PLAIN, (Wish){.by_row = true}, 60);
    check_window(&PLAIN, (Wish){.bits = 6, .scale = SCALE_HEAD}, 1);
}

TEST(window_parts_may_be_left_out)
{
    static float diff[H * 40 * 40], maps[H * 2 * 40 * 40];
    MapWindow none = {-1, 40, NULL, NULL}, only_diff = {0, 40, NULL, diff};
    MapWindow only_maps = {0, 40, maps, NULL};
    Backend   be;
    Case      c;
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &DIFF, 6));
    c.a.window = &none;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    c.a.window = &only_diff;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_NEAR(diff[0], 1 - (double)c.a.lambda, 1e-6);
    c.a.window = &only_maps;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_NEAR(maps[0], 1, 1e-6);
    arena_close(&c.arena);
    backend_close(&be);
}
