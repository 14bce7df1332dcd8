/* test_attention_share.c - shares of attention and whole maps of a window. */
#include <math.h>
#include <string.h>

#include "kernels/cpufeat.h"
#include "tests/check.h"
#include "tests/kernels/ref_attention.h"
#include "tests/kernels/ref_shares.h"

enum { H = 2, D = 24 };
/* The second sequence begins at position 131 - 49 = 82 of its cache. */
static const CaseShape DIFF = {H, 1, 2, D, 3, {140, 49, 5}, {140, 131, 5}};
static const CaseShape PLAIN = {H, 1, 1, D, 3, {140, 49, 5}, {140, 131, 5}};
static const Span SPANS[3] = {{40, 90}, {82, 82}, {0, 3}};
/* Ends just before a sampled row (47), and just after one (95). */
static const Span EDGES[3] = {{0, 47}, {82, 96}, {0, 0}};

static void check_shares(const CaseShape *shape, const Span *spans, int bits, LogitScale scale)
{
    Case c;
    ShareRecord sh[H] = {0}, ref[H];
    T_STATUS_OK(case_init(&c, shape, 1));
    if (bits < 16)
        case_make_exact(&c, 2);
    c.a.shares = sh;
    c.a.spans = spans;
    c.a.logit_bits = bits;
    c.a.logit_scale = scale;
    T_STATUS_OK(case_run(&c, 2));
    T_STATUS_OK(ref_shares(ref, &c, spans));
    T_OK(ref->rows == 8 + 3);
    for (int h = 0; h < H; h++)
        T_OK(ref_shares_close(&sh[h], &ref[h]));
    arena_close(&c.arena);
}

TEST(shares_of_a_differential_layer)
{
    check_shares(&DIFF, NULL, 16, SCALE_ROW);
}

TEST(shares_of_a_plain_layer)
{
    check_shares(&PLAIN, NULL, 16, SCALE_ROW);
}

TEST(shares_of_marked_spans)
{
    check_shares(&DIFF, SPANS, 16, SCALE_ROW);
    check_shares(&PLAIN, SPANS, 16, SCALE_ROW);
    check_shares(&DIFF, EDGES, 16, SCALE_ROW);
    check_shares(&PLAIN, EDGES, 16, SCALE_ROW);
}

TEST(shares_use_quantized_logits)
{
    check_shares(&DIFF, SPANS, 4, SCALE_TENSOR);
    check_shares(&DIFF, SPANS, 6, SCALE_HEAD);
    check_shares(&PLAIN, SPANS, 8, SCALE_ROW);
}

/* Runs of rows across tiles (48 queries), single ones, the first and last of a sequence,
 * rows that see 1, 15, 16, 17, 127, 128 and 129 keys; a sequence without any. */
static void choose_rows(uint8_t *rows, int which)
{
    static const int FIRST[] = {0, 14, 15, 16, 46, 47, 48, 49, 95, 126, 127, 128, 139};
    memset(rows, 0, 194);
    for (size_t i = 0; which & 1 && i < sizeof FIRST / sizeof FIRST[0]; i++)
        rows[FIRST[i]] = 1;
    for (int t = 150; which & 2 && t < 194; t++)   // from row 10 of the second on
        rows[t] = 1;
}

static void check_chosen(const CaseShape *shape, const Span *spans, int which, int n_rows)
{
    Case c;
    uint8_t rows[194];
    ShareRecord sh[H] = {0}, ref[H];
    choose_rows(rows, which);
    T_STATUS_OK(case_init(&c, shape, 8));
    c.a.shares = sh;
    c.a.spans = spans;
    c.a.share_rows = rows;
    T_STATUS_OK(case_run(&c, 2));
    T_STATUS_OK(ref_shares(ref, &c, spans));
    T_OK(ref->rows == n_rows);
    for (int h = 0; h < H; h++)
        T_OK(ref_shares_close(&sh[h], &ref[h]));
    arena_close(&c.arena);
}

TEST(shares_of_chosen_rows)
{
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        check_chosen(&DIFF, SPANS, 1, 13);
        check_chosen(&DIFF, EDGES, 2, 44);
        check_chosen(&PLAIN, SPANS, 3, 57);
        check_chosen(&DIFF, NULL, 0, 0);
    }
    cpu_isa_force(N_CPU_ISAS);
}

TEST(shares_of_chosen_rows_beside_a_window)
{
    static float diff[H * 140 * 140], alone[H * 140 * 140];
    Case c;
    uint8_t rows[194];
    ShareRecord sh[H] = {0}, ref[H];
    MapWindow w = {.sequence = 0, .n_positions = 140, .diff = alone};
    choose_rows(rows, 3);
    T_STATUS_OK(case_init(&c, &DIFF, 8));
    c.a.window = &w;
    T_STATUS_OK(case_run(&c, 2));
    w.diff = diff;
    c.a.shares = sh;
    c.a.share_rows = rows;
    T_STATUS_OK(case_run(&c, 2));
    T_STATUS_OK(ref_shares(ref, &c, NULL));
    for (int h = 0; h < H; h++)
        T_OK(ref_shares_close(&sh[h], &ref[h]));
    T_OK(memcmp(diff, alone, sizeof diff) == 0);
    arena_close(&c.arena);
}

TEST(shares_are_the_same_for_any_threads_and_batches)
{
    Case c, one;
    ShareRecord ref[H] = {0}, sh[H] = {0}, cut[H] = {0};
    T_STATUS_OK(case_init(&c, &DIFF, 3));
    c.a.spans = SPANS;
    c.a.shares = ref;
    T_STATUS_OK(case_run(&c, 1));
    c.a.shares = sh;
    T_STATUS_OK(case_run(&c, 3));
    T_OK(memcmp(sh, ref, sizeof ref) == 0);
    c.a.shares = cut;
    for (int64_t b = 0; b < 3; b++) {
        T_STATUS_OK(case_one_sequence(&one, &c, b));
        one.a.spans = SPANS + b;
        T_STATUS_OK(case_run(&one, 2));
        arena_close(&one.arena);
    }
    T_OK(memcmp(cut, ref, sizeof ref) == 0);
    arena_close(&c.arena);
}

/* d = 1 and q = 1: the logits are the keys; half of them -inf in both maps. */
TEST(shares_of_weights_that_are_zero)
{
    CaseShape shape = {1, 1, 2, 1, 1, {16}, {16}};
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        Case c;
        ShareRecord sh = {0};
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        T_STATUS_OK(case_init(&c, &shape, 7));
        for (int i = 0; i < 32; i++) {
            ((float *)c.q.data)[i] = 1;
            ((float *)c.k.data)[i] = i % 4 < 2 ? 0 : -INFINITY;
        }
        c.a.shares = &sh;
        T_STATUS_OK(case_run(&c, 1));
        for (int m = 0; m < 2; m++) {
            T_NEAR(sh.entropy[m], log(8), 1e-6);
            T_NEAR(sh.first[m], 0.125, 1e-7);
        }
        T_NEAR(sh.diff_abs, 0.6, 1e-6);
        T_OK(sh.negative == 0 && sh.rows == 1 && sh.weights == 16);
        arena_close(&c.arena);
    }
    cpu_isa_force(N_CPU_ISAS);
}

TEST(shares_of_a_row_with_nan_are_nan)
{
    Case c;
    ShareRecord sh[H] = {0}, more = {0};
    T_STATUS_OK(case_init(&c, &DIFF, 4));
    ((float *)c.q.data)[15 * H * 2 * D] = NAN;  // head 0, map 0 of position 15
    c.a.shares = sh;
    T_STATUS_OK(case_run(&c, 2));
    T_OK(isnan(sh[0].entropy[0]) && isnan(sh[0].first[0]) && isnan(sh[0].diff_abs) &&
         isnan(sh[0].cancelled) && isnan(sh[0].row_sum_error) && !isnan(sh[0].entropy[1]));
    T_OK(!isnan(sh[1].entropy[0]) && !isnan(sh[1].row_sum_error));
    share_record_merge(&more, &sh[0]);
    share_record_merge(&more, &sh[1]);
    T_OK(isnan(more.row_sum_error) && more.rows == 22);
    arena_close(&c.arena);
}

/* Rows and columns of the window against the reference; 0 elsewhere. */
static void check_window(const CaseShape *shape, int64_t sequence, int64_t n)
{
    enum { S = 150 };
    static float maps[H * 2 * S * S], diff[H * S * S];
    Case c;
    RefMaps r;
    memset(maps, 0x7f, sizeof maps);
    memset(diff, 0x7f, sizeof diff);
    MapWindow w = {sequence, n, maps, diff};
    T_STATUS_OK(case_init(&c, shape, 5));
    c.a.window = &w;
    T_STATUS_OK(case_run(&c, 2));
    T_STATUS_OK(ref_attention(&r, &c.arena, &c, sequence));
    int64_t M = shape->n_maps;
    for (int64_t i = 0; i < H * M * n * n; i++) {
        int64_t key = i % n, query = i / n % n, map = i / n / n, t = query - (r.S - r.T);
        bool there = t >= 0 && t < r.T && key <= query;
        double want = there ? r.weights[(map * r.T + t) * r.S + key] : 0;
        T_NEAR(maps[i], want, there ? 2e-6 * want + 1e-37 : 0);
    }
    for (int64_t i = 0; i < H * n * n; i++) {
        int64_t key = i % n, query = i / n % n, h = i / n / n, t = query - (r.S - r.T);
        bool there = t >= 0 && t < r.T && key <= query;
        T_NEAR(diff[i], there ? r.diff[(h * r.T + t) * r.S + key] : 0, there ? 2e-6 : 0);
    }
    arena_close(&c.arena);
}

TEST(window_of_whole_maps)
{
    check_window(&DIFF, 0, 140);
    check_window(&DIFF, 0, 60);   // less than the sequence, more than a tile
    check_window(&DIFF, 1, 131);  // no queries before position 82
    check_window(&DIFF, 2, 9);    // longer than the sequence
    check_window(&PLAIN, 0, 70);
}

TEST(window_parts_may_be_left_out)
{
    Case c;
    static float diff[H * 140 * 140], maps[H * 2 * 140 * 140];
    MapWindow only_maps = {0, 140, maps, NULL};
    MapWindow none = {-1, 140, NULL, NULL}, only_diff = {0, 140, NULL, diff};
    T_STATUS_OK(case_init(&c, &DIFF, 6));
    c.a.window = &none;
    T_STATUS_OK(case_run(&c, 2));
    c.a.window = &only_diff;
    T_STATUS_OK(case_run(&c, 2));
    T_NEAR(diff[0], 1 - (double)c.a.lambda, 1e-6);
    c.a.window = &only_maps;
    T_STATUS_OK(case_run(&c, 2));
    T_NEAR(maps[0], 1, 1e-6);
    arena_close(&c.arena);
}
