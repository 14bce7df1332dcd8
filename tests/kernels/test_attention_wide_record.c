/* test_attention_wide_record.c - records, shares, maps and quantized logits where heads
 * share a noise map and queries look back on a window of keys. */
#include <math.h>
#include <string.h>

#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_attention.h"
#include "tests/kernels/ref_shares.h"

enum { H = 4, D = 8, S_MAX = 300, ROWS = 130 + 1 + 49 + 30 };
static const CaseShape DIFF = {H, 1, 2, D, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const CaseShape PLAIN = {H, 1, 1, D, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const int64_t REACH[] = {0, 1, 2, 47, 48, 64, 129, 1000};
enum { N_REACH = sizeof REACH / sizeof *REACH };

/* --- the record --- */

/* Keys that all queries see: what a map's count must be. */
static int64_t allowed_entries(const CaseShape *s, int64_t reach)
{
    int64_t n = 0;
    for (int64_t b = 0; b < s->n_sequences; b++)
        for (int64_t t = 0; t < s->queries[b]; t++) {
            int64_t position = s->keys[b] - s->queries[b] + t;
            n += reach && position + 1 > reach ? reach : position + 1;
        }
    return n;
}

/* One map of a head: its logits in a row, each in its bin, column and row. */
static Status ref_record_map(LogitRecord *r, Arena *arena, const Case *c, int64_t h, int64_t m)
{
    float  *x;
    int64_t n = 0, M = c->a.n_maps;
    ARENA_NEW(x, arena, 130 * 130 + 60 + 49 * 131 + 30 * 300);
    for (int64_t b = 0; b < c->shape.n_sequences; b++) {
        RefMaps maps;
        TRY(ref_attention(&maps, arena, c, b));
        for (int64_t i = 0; i < maps.T * maps.S; i++) {
            int64_t t = i / maps.S, s = i % maps.S, at = maps.S - maps.T + t;
            if (!ref_sees(c, &maps, t, s))
                continue;
            float v = (float)maps.logits[(h * M + m) * maps.T * maps.S + i];
            float *query = &r->query_absmax[m * S_MAX + at];
            float *key = &r->key_absmax[m * S_MAX + s];
            x[n++] = v;
            hist_add(&r->hist[m], hist_bin(f32_bits(v)), 1);
            *query = fmaxf(*query, fabsf(v));
            *key = fmaxf(*key, fabsf(v));
            peaks_add(&r->peaks, &(Peak){.value = v, .head = (int32_t)h, .map = (int32_t)m,
                                         .position = (int32_t)at, .key = (int32_t)s,
                                         .sequence = c->number[b]});
        }
    }
    moments_add(&r->moments[h * M + m], x, n);
    return OK;
}

/* The noise of a block once, with its first head. */
static Status ref_record(LogitRecord *r, Arena *arena, const Case *c)
{
    int64_t signals = c->a.n_signals ? c->a.n_signals : 1;
    TRY(logit_record_init(r, arena, 0, H, c->a.n_maps, S_MAX));
    for (int64_t i = 0; i < H * c->a.n_maps; i++) {
        int64_t h = i / c->a.n_maps, m = i % c->a.n_maps;
        if (m == 0 || h % signals == 0)
            TRY(ref_record_map(r, arena, c, h, m));
    }
    return OK;
}

static bool near(double a, double b, double scale)
{
    return fabs(a - b) <= 1e-10 * scale;
}

static bool moments_near(const Moments *a, const Moments *b)
{
    double n = (double)b->count, sigma = sqrt(b->m2 / fmax(n, 1));
    return a->count == b->count && a->n_nan == 0 && a->n_pos_inf == 0 && a->n_neg_inf == 0 &&
           a->min == b->min && a->max == b->max && near(a->mean, b->mean, sigma) &&
           near(a->m2, b->m2, b->m2) && near(a->m3, b->m3, n * pow(sigma, 3)) &&
           near(a->m4, b->m4, b->m4);
}

static bool same_peaks(const Peaks *a, const Peaks *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) {  // member by member: there is padding
        const Peak *p = &a->at[i], *q = &b->at[i];
        same = p->value == q->value && p->head == q->head && p->map == q->map &&
               p->position == q->position && p->key == q->key && p->sequence == q->sequence;
    }
    return same;
}

static bool same_counts(const LogitRecord *a, const LogitRecord *b)
{
    size_t M = (size_t)b->n_maps;
    bool   same = true;
    for (size_t m = 0; m < M; m++)
        same = same && hist_equal(&a->hist[m], &b->hist[m]);
    return same &&
           memcmp(a->query_absmax, b->query_absmax, M * S_MAX * sizeof(float)) == 0 &&
           memcmp(a->key_absmax, b->key_absmax, M * S_MAX * sizeof(float)) == 0 &&
           same_peaks(&a->peaks, &b->peaks);
}

/* Whole numbers in q and k: the same logits in f32 and in double. */
static void check_record(const CaseShape *shape, CaseWide wide)
{
    Case c;
    LogitRecord r, ref;
    int64_t signals = wide.n_signals ? wide.n_signals : 1;
    T_STATUS_OK(case_init_wide(&c, shape, &wide, 1));
    case_make_exact(&c, 2);
    T_STATUS_OK(ref_record(&ref, &c.arena, &c));
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        T_STATUS_OK(logit_record_init(&r, &c.arena, 0, H, shape->n_maps, S_MAX));
        c.a.record = &r;
        T_STATUS_OK(case_run(&c, 2));
        T_OK(same_counts(&r, &ref));
        for (int64_t i = 0; i < H * shape->n_maps; i++) {
            bool empty = i % shape->n_maps == 1 && i / 2 % signals != 0;
            T_OK(moments_near(&r.moments[i], &ref.moments[i]));
            T_OK(r.moments[i].count == (empty ? 0 : allowed_entries(shape, wide.reach)));
        }
    }
    cpu_isa_force(N_CPU_ISAS);
    arena_close(&c.arena);
}

TEST(wide_record_counts_what_may_be_seen)
{
    for (int i = 0; i < N_REACH; i++) {
        check_record(&PLAIN, (CaseWide){.reach = REACH[i]});
        check_record(&DIFF, (CaseWide){.n_signals = 1 << i % 3, .reach = REACH[i],
                                       .shared_keys = i % 2});
    }
}

TEST(wide_record_has_the_noise_of_a_block_once)
{
    for (int64_t signals = 1; signals <= 4; signals *= 2)
        for (int shared = 0; shared < 2; shared++)
            check_record(&DIFF, (CaseWide){.n_signals = signals, .shared_keys = shared});
}

static bool same_record(const LogitRecord *a, const LogitRecord *b)
{
    return same_counts(a, b) &&
           memcmp(a->moments, b->moments, (size_t)(H * b->n_maps) * sizeof(Moments)) == 0;
}

TEST(wide_record_does_not_depend_on_threads_batch_or_instructions)
{
    for (int i = 0; i < N_REACH; i++) {
        CaseWide wide = {.n_signals = 2, .reach = REACH[i]};
        Case c, one;
        LogitRecord ref, r[3];
        T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 3));
        T_STATUS_OK(logit_record_init(&ref, &c.arena, 0, H, 2, S_MAX));
        for (int j = 0; j < 3; j++)
            T_STATUS_OK(logit_record_init(&r[j], &c.arena, 0, H, 2, S_MAX));
        c.a.record = &ref;
        T_STATUS_OK(case_run(&c, 1));
        c.a.record = &r[0];
        T_STATUS_OK(case_run(&c, 3));
        T_OK(same_record(&r[0], &ref));
        c.a.record = &r[1];
        for (int64_t b = 0; b < DIFF.n_sequences; b++) {
            T_STATUS_OK(case_one_sequence(&one, &c, b));
            T_STATUS_OK(case_run(&one, 2));
            arena_close(&one.arena);
        }
        T_OK(same_record(&r[1], &ref));
        if (cpu_isa() == CPU_AVX512) {
            cpu_isa_force(CPU_AVX2);
            c.a.record = &r[2];
            T_STATUS_OK(case_run(&c, 2));
            cpu_isa_force(N_CPU_ISAS);
            T_OK(same_record(&r[2], &ref));
        }
        arena_close(&c.arena);
    }
}

/* d = 1 and q = 1: the logits are the keys. Those out of reach count for nothing. */
TEST(wide_record_counts_nan_within_reach)
{
    CaseShape shape = {1, 1, 1, 1, 1, {3}, {200}};
    CaseWide wide = {.reach = 70};
    LogitRecord r;
    Case c;
    T_STATUS_OK(case_init_wide(&c, &shape, &wide, 8));
    T_STATUS_OK(logit_record_init(&r, &c.arena, 0, 1, 1, S_MAX));
    for (int i = 0; i < 3; i++)
        ((float *)c.q.data)[i] = 1;
    float *k = c.k.data;
    for (int i = 0; i < 200; i++)
        k[i] = 1 + (float)(i % 4);
    k[127] = NAN;                       // queries 197, 198, 199 see from 128, 129, 130 on
    k[128] = NAN, k[129] = INFINITY, k[130] = -INFINITY, k[131] = -9;
    c.a.record = &r;
    T_STATUS_OK(case_run(&c, 1));
    const Moments *m = r.moments;
    T_OK(m->n_nan == 1 && m->n_pos_inf == 2 && m->n_neg_inf == 3 && m->count == 210 - 6);
    T_OK(m->min == -9 && m->max == 4);
    T_OK(r.key_absmax[126] == 0 && r.key_absmax[131] == 9 && r.query_absmax[197] == 9);
    arena_close(&c.arena);
}

/* --- shares and maps --- */

static const Span SPANS[4] = {{40, 90}, {3, 9}, {82, 82}, {250, 280}};

static void fill_lambda(float *rows, int64_t n)
{
    uint64_t state = 77;
    for (int64_t i = 0; i < n; i++)
        rows[i] = 0.5f + 0.49f * check_uniform(&state);
}

/* by_row: lambda of each row, and rows on both sides of tiles. */
static void check_shares(const CaseShape *shape, CaseWide wide, bool by_row)
{
    static float lambda[H * ROWS];
    static uint8_t rows[ROWS];
    Case c;
    ShareRecord sh[H] = {0}, ref[H];
    fill_lambda(lambda, H * ROWS);
    for (int i = 0; i < ROWS; i++)
        rows[i] = i % 48 >= 47 || i % 48 < 2 || i % 7 == 3;
    T_STATUS_OK(case_init_wide(&c, shape, &wide, 5));
    c.a.shares = sh;
    c.a.spans = SPANS;
    c.a.share_rows = by_row ? rows : NULL;
    c.a.lambda_rows = by_row ? lambda : NULL;
    T_STATUS_OK(ref_shares(ref, &c, SPANS));
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        memset(sh, 0, sizeof sh);
        T_STATUS_OK(case_run(&c, 2));
        for (int h = 0; h < H; h++)
            T_OK(ref_shares_close(&sh[h], &ref[h]));
    }
    cpu_isa_force(N_CPU_ISAS);
    arena_close(&c.arena);
}

TEST(wide_shares_within_a_reach)
{
    for (int i = 0; i < N_REACH; i++)
        for (int by_row = 0; by_row < 2; by_row++) {
            check_shares(&PLAIN, (CaseWide){.reach = REACH[i]}, by_row);
            check_shares(&DIFF, (CaseWide){.n_signals = 1 << i % 3, .reach = REACH[i],
                                           .shared_keys = by_row}, by_row);
        }
}

TEST(wide_shares_of_heads_with_one_noise_map)
{
    for (int64_t signals = 2; signals <= 4; signals *= 2)
        for (int by_row = 0; by_row < 2; by_row++)
            check_shares(&DIFF, (CaseWide){.n_signals = signals}, by_row);
}

/* Out of reach of every row that is measured, position 0 has nothing. */
TEST(wide_share_of_the_first_token_out_of_reach_is_zero)
{
    CaseWide wide = {.n_signals = 2, .reach = 15};  // rows 15, 31, ... do not see 0
    Case c;
    ShareRecord sh[H] = {0};
    T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 5));
    c.a.shares = sh;
    T_STATUS_OK(case_run(&c, 2));
    for (int h = 0; h < H; h++) {
        T_OK(sh[h].rows > 8 && sh[h].weights == 15 * sh[h].rows);
        T_OK(sh[h].first[0] == 0 && sh[h].first[1] == 0 && sh[h].diff_first == 0 &&
             sh[h].diff_abs_first == 0);
    }
    arena_close(&c.arena);
}

TEST(wide_nan_lambda_makes_its_heads_shares_nan)
{
    static float lambda[H * ROWS];
    CaseWide wide = {.n_signals = 4, .reach = 20};
    Case c;
    ShareRecord sh[H] = {0};
    fill_lambda(lambda, H * ROWS);
    lambda[15 * H + 2] = NAN;
    T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 5));
    c.a.shares = sh;
    c.a.lambda_rows = lambda;
    T_STATUS_OK(case_run(&c, 2));
    for (int h = 0; h < H; h++)
        T_OK(isnan(sh[h].diff_abs) == (h == 2) && isnan(sh[h].row_sum_error) == (h == 2) &&
             isfinite(sh[h].entropy[1]));
    arena_close(&c.arena);
}

static void check_window(const CaseShape *shape, CaseWide wide, int64_t sequence, int64_t n)
{
    enum { S = 131 };
    static float maps[H * 2 * S * S], diff[H * S * S], lambda[H * ROWS];
    Case c;
    RefMaps r;
    fill_lambda(lambda, H * ROWS);
    memset(maps, 0x7f, sizeof maps);
    memset(diff, 0x7f, sizeof diff);
    MapWindow w = {sequence, n, maps, diff};
    T_STATUS_OK(case_init_wide(&c, shape, &wide, 5));
    c.a.lambda_rows = lambda;
    c.a.window = &w;
    T_STATUS_OK(case_run(&c, 2));
    T_STATUS_OK(ref_attention(&r, &c.arena, &c, sequence));
    int64_t M = shape->n_maps;
    for (int64_t i = 0; i < H * (M + 1) * n * n; i++) {
        int64_t key = i % n, query = i / n % n, map = i / n / n, t = query - (r.S - r.T);
        bool there = t >= 0 && t < r.T && ref_sees(&c, &r, t, key);
        bool is_diff = map >= H * M;
        const double *from = is_diff ? r.diff + (map - H * M) * r.T * r.S
                                     : r.weights + map * r.T * r.S;
        float got = is_diff ? diff[i - H * M * n * n] : maps[i];
        T_NEAR(got, there ? from[t * r.S + key] : 0, there ? 2e-6 : 0);
    }
    arena_close(&c.arena);
}

TEST(wide_window_of_whole_maps)
{
    for (int i = 0; i < N_REACH; i++) {
        check_window(&PLAIN, (CaseWide){.reach = REACH[i]}, 0, 130);
        check_window(&DIFF, (CaseWide){.n_signals = 1 << i % 3, .reach = REACH[i]}, 0, 130);
        check_window(&DIFF, (CaseWide){.n_signals = 4, .reach = REACH[i]}, 2, 131);
    }
    check_window(&DIFF, (CaseWide){.n_signals = 2, .shared_keys = true}, 0, 60);
}

/* --- quantized logits --- */

static void check_quantized(const CaseShape *shape, CaseWide wide, int bits, LogitScale scale)
{
    Case c;
    ShareRecord sh[H] = {0}, ref[H];
    T_STATUS_OK(case_init_wide(&c, shape, &wide, 1));
    case_make_exact(&c, 2);
    c.a.norm_eps = -1;
    c.a.logit_bits = bits;
    c.a.logit_scale = scale;
    c.a.shares = sh;
    T_STATUS_OK(ref_shares(ref, &c, NULL));
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        memset(sh, 0, sizeof sh);
        T_STATUS_OK(case_run(&c, 2));
        T_NEAR(ref_case_error(&c), 0, 2e-6);
        for (int h = 0; h < H; h++)
            T_OK(ref_shares_close(&sh[h], &ref[h]));
    }
    cpu_isa_force(N_CPU_ISAS);
    arena_close(&c.arena);
}

TEST(wide_quantized_logits_equal_plain_loops)
{
    static const int BITS[] = {4, 6, 8};
    static const int64_t NEAR_AND_FAR[] = {0, 2, 48, 129};
    CaseShape diff = {H, 1, 2, D, 2, {70, 30}, {70, 150}};
    CaseShape plain = {H, 1, 1, D, 2, {70, 30}, {70, 150}};
    for (int i = 0; i < 36; i++) {
        int64_t    reach = NEAR_AND_FAR[i / 9];
        LogitScale scale = (LogitScale)(i / 3 % 3);
        check_quantized(&plain, (CaseWide){.reach = reach}, BITS[i % 3], scale);
        check_quantized(&diff, (CaseWide){1 << i % 3, 0, reach, i / 9 % 2}, BITS[i % 3], scale);
    }
}

/* A key that the query before has lost sight of would ruin the scale if it counted. */
TEST(wide_quantized_scale_ignores_what_is_out_of_reach)
{
    CaseShape shape = {1, 1, 1, 8, 1, {20}, {60}};
    CaseWide  wide = {.reach = 20};
    for (int scale = 0; scale < N_SCALES; scale++) {
        Case c, without;
        T_STATUS_OK(case_init_wide(&c, &shape, &wide, 5));
        T_STATUS_OK(case_init_wide(&without, &shape, &wide, 5));
        for (int i = 0; i < 8; i++) {
            ((float *)c.k.data)[20 * 8 + i] = 1e6f;  // the last key before position 40's
            ((float *)c.k.data)[21 * 8 + i] = 1e6f;  // of the first query, which
            ((float *)c.q.data)[i] = 0;              // makes zeros of it
            ((float *)without.q.data)[i] = 0;
        }
        c.a.logit_bits = without.a.logit_bits = 6;
        c.a.logit_scale = without.a.logit_scale = (LogitScale)scale;
        T_STATUS_OK(case_run(&c, 1));
        T_STATUS_OK(case_run(&without, 1));
        T_OK(memcmp(c.out.data, without.out.data, tensor_bytes(&c.out)) == 0);
        arena_close(&c.arena);
        arena_close(&without.arena);
    }
}

/* --- memory --- */

TEST(wide_attention_reports_missing_memory)
{
    CaseWide wide = {.n_signals = 4, .value_dim = 20, .reach = 48, .shared_keys = true};
    Case c;
    LogitRecord r;
    ShareRecord sh[H] = {0};
    Status s = ERR_MEMORY;
    int failures = 0;
    T_STATUS_OK(case_init_wide(&c, &DIFF, &wide, 1));
    T_STATUS_OK(logit_record_init(&r, &c.arena, 0, H, 2, S_MAX));
    c.a.record = &r;
    c.a.shares = sh;
    c.a.logit_bits = 4;
    while (s == ERR_MEMORY && failures < 100) {
        arena_fail_at(++failures);
        s = case_run(&c, 2);
    }
    arena_fail_at(0);
    T_OK(s == OK && failures > 5);
    arena_close(&c.arena);
}
