/* test_attention_record.c - what attention records, against whole maps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "tests/check.h"
#include "tests/kernels/ref_attention.h"

enum { H = 4, G = 2, M = 2, D = 8, LAYER = 5, S_MAX = 200 };
static const CaseShape SHAPE = {H, G, M, D, 4, {130, 1, 49, 200}, {130, 60, 131, 200}};

/* All logits of all sequences, by the reference, with their places. */
static Peak  *all;
static int64_t n_all;

static Status collect(const Case *c, Arena *arena)
{
    n_all = 0;
    ARENA_NEW(all, arena, H * M * (130 * 130 + 60 + 49 * 131 + 200 * 200));
    for (int64_t b = 0; b < c->shape.n_sequences; b++) {
        RefMaps r;
        TRY(ref_attention(&r, arena, c, b));
        for (int64_t i = 0; i < H * M * r.T * r.S; i++) {
            int64_t s = i % r.S, t = i / r.S % r.T, map = i / r.S / r.T;
            if (s <= r.S - r.T + t)
                all[n_all++] = (Peak){.value = (float)r.logits[i], .layer = LAYER,
                                      .head = (int32_t)(map / M), .map = (int32_t)(map % M),
                                      .position = (int32_t)(r.S - r.T + t),
                                      .key = (int32_t)s, .sequence = c->number[b]};
        }
    }
    return OK;
}

static int sign_of(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_rank(const void *pa, const void *pb)
{
    const Peak *a = pa, *b = pb;
    float va = fabsf(a->value), vb = fabsf(b->value);
    int order[] = {va > vb ? -1 : va < vb, sign_of(a->sequence, b->sequence),
                   sign_of(a->head, b->head), sign_of(a->map, b->map),
                   sign_of(a->position, b->position), sign_of(a->key, b->key)};
    for (int i = 0; i < 6; i++)
        if (order[i])
            return order[i];
    return 0;
}

static Status run(Case *c, LogitRecord *r, Arena *arena, int n_threads)
{
    TRY(logit_record_init(r, arena, LAYER, H, M, S_MAX));
    c->a.record = r;
    return case_run(c, n_threads);
}

/* Whole numbers in q and k: the same logits in f32 and in double. */
static Status exact_case(Case *c, LogitRecord *r)
{
    TRY(case_init(c, &SHAPE, 1));
    case_make_exact(c, 2);
    TRY(collect(c, &c->arena));
    return run(c, r, &c->arena, 2);
}

TEST(record_has_the_largest_hundred_with_their_places)
{
    Case c;
    LogitRecord r;
    T_STATUS_OK(exact_case(&c, &r));
    qsort(all, (size_t)n_all, sizeof *all, by_rank);
    T_OK(r.peaks.n == N_PEAKS);
    T_OK(fabsf(all[N_PEAKS - 1].value) == fabsf(all[N_PEAKS].value));  // ties at the end
    for (int i = 0; i < N_PEAKS; i++)
        T_OK(r.peaks.at[i].value == all[i].value && r.peaks.at[i].layer == LAYER &&
             by_rank(&r.peaks.at[i], &all[i]) == 0);
    arena_close(&c.arena);
}

static bool close_to(double a, double ref, double scale)
{
    return fabs(a - ref) <= 1e-9 * scale;
}

/* Two passes in long double over one head and map. */
static bool moments_right(const Moments *m, int64_t head, int64_t map)
{
    long double sum = 0, m2 = 0, m3 = 0, m4 = 0, n = 0;
    double min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n_all; i++)
        if (all[i].head == head && all[i].map == map) {
            sum += (long double)all[i].value;
            n++;
            min = fmin(min, (double)all[i].value);
            max = fmax(max, (double)all[i].value);
        }
    for (int64_t i = 0; i < n_all; i++)
        if (all[i].head == head && all[i].map == map) {
            long double t = (long double)all[i].value - sum / n;
            m2 += t * t, m3 += t * t * t, m4 += t * t * t * t;
        }
    double deviation = sqrt((double)(m2 / n));
    return m->count == (int64_t)n && m->min == min && m->max == max &&
           close_to(m->mean, (double)(sum / n), deviation) &&
           close_to(m->m2, (double)m2, (double)m2) &&
           close_to(m->m3, (double)m3, (double)n * pow(deviation, 3)) &&
           close_to(m->m4, (double)m4, (double)m4) && m->n_nan == 0 && m->n_pos_inf == 0;
}

TEST(record_moments_of_each_head_and_map)
{
    Case c;
    LogitRecord r;
    T_STATUS_OK(exact_case(&c, &r));
    for (int64_t i = 0; i < H * M; i++)
        T_OK(moments_right(&r.moments[i], i / M, i % M));
    arena_close(&c.arena);
}

TEST(record_counts_every_logit_in_its_bin)
{
    static uint64_t bins[M][HIST_BINS];
    Case c;
    LogitRecord r;
    memset(bins, 0, sizeof bins);
    T_STATUS_OK(exact_case(&c, &r));
    for (int64_t i = 0; i < n_all; i++)
        bins[all[i].map][hist_bin(f32_bits(all[i].value))]++;
    for (int m = 0; m < M; m++)
        T_OK(memcmp(bins[m], r.hist[m].bins, sizeof bins[m]) == 0);
    arena_close(&c.arena);
}

TEST(record_absmax_of_queries_and_keys)
{
    float query[M][S_MAX] = {{0}}, key[M][S_MAX] = {{0}};
    Case c;
    LogitRecord r;
    T_STATUS_OK(exact_case(&c, &r));
    for (int64_t i = 0; i < n_all; i++) {
        float *q = &query[all[i].map][all[i].position], *k = &key[all[i].map][all[i].key];
        *q = fmaxf(*q, fabsf(all[i].value));
        *k = fmaxf(*k, fabsf(all[i].value));
    }
    T_OK(memcmp(query, r.query_absmax, sizeof query) == 0);
    T_OK(memcmp(key, r.key_absmax, sizeof key) == 0);
    arena_close(&c.arena);
}

static int by_magnitude(const void *pa, const void *pb)
{
    float a = fabsf(((const Peak *)pa)->value), b = fabsf(((const Peak *)pb)->value);
    return a < b ? -1 : a > b;
}

TEST(record_quantiles_within_0_2_percent)
{
    Hist   both;
    double q[] = {0.01, 0.5, 0.9, 0.99, 0.999, 0.9999};
    Case c;
    LogitRecord r;
    T_STATUS_OK(case_init(&c, &SHAPE, 3));
    T_STATUS_OK(collect(&c, &c.arena));
    T_STATUS_OK(run(&c, &r, &c.arena, 2));
    T_STATUS_OK(hist_init(&both, &c.arena));
    hist_merge(&both, &r.hist[0]);
    hist_merge(&both, &r.hist[1]);
    qsort(all, (size_t)n_all, sizeof *all, by_magnitude);
    for (int i = 0; i < 6; i++) {
        float want = fabsf(all[(int64_t)ceil(q[i] * (double)n_all) - 1].value);
        T_NEAR(hist_quantile(&both, q[i]) / (double)want, 1, 0.002);
    }
    arena_close(&c.arena);
}

static bool same_peaks(const Peaks *a, const Peaks *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n; i++)  // by_rank leaves out the sign
        same = same && by_rank(&a->at[i], &b->at[i]) == 0 && a->at[i].value == b->at[i].value;
    return same;
}

static bool same_record(const LogitRecord *a, const LogitRecord *b)
{
    return memcmp(a->moments, b->moments, H * M * sizeof(Moments)) == 0 &&
           hist_equal(&a->hist[0], &b->hist[0]) && hist_equal(&a->hist[1], &b->hist[1]) &&
           memcmp(a->query_absmax, b->query_absmax, M * S_MAX * sizeof(float)) == 0 &&
           memcmp(a->key_absmax, b->key_absmax, M * S_MAX * sizeof(float)) == 0 &&
           same_peaks(&a->peaks, &b->peaks);
}

TEST(record_is_the_same_for_any_threads_and_instruction_set)
{
    Case c;
    LogitRecord ref, r;
    T_STATUS_OK(case_init(&c, &SHAPE, 4));
    T_STATUS_OK(run(&c, &ref, &c.arena, 1));
    for (int threads = 2; threads <= 4; threads++) {
        T_STATUS_OK(run(&c, &r, &c.arena, threads));
        T_OK(same_record(&r, &ref));
    }
    if (cpu_isa() == CPU_AVX512) {  // plain rounds its products once more
        cpu_isa_force(CPU_AVX2);
        T_STATUS_OK(run(&c, &r, &c.arena, 2));
        T_OK(same_record(&r, &ref));
        cpu_isa_force(N_CPU_ISAS);
    }
    case_make_exact(&c, 5);  // but here nothing is rounded
    T_STATUS_OK(run(&c, &ref, &c.arena, 2));
    cpu_isa_force(CPU_PLAIN);
    T_STATUS_OK(run(&c, &r, &c.arena, 2));
    T_OK(same_record(&r, &ref));
    cpu_isa_force(N_CPU_ISAS);
    arena_close(&c.arena);
}

TEST(record_is_the_same_however_the_sequences_are_batched)
{
    Case c, one;
    LogitRecord ref, r;
    T_STATUS_OK(case_init(&c, &SHAPE, 6));
    T_STATUS_OK(run(&c, &ref, &c.arena, 2));
    T_STATUS_OK(logit_record_init(&r, &c.arena, LAYER, H, M, S_MAX));
    c.a.record = &r;
    for (int64_t b = 0; b < SHAPE.n_sequences; b++) {
        T_STATUS_OK(case_one_sequence(&one, &c, b));
        T_STATUS_OK(case_run(&one, 1 + (int)b % 3));
        arena_close(&one.arena);
    }
    T_OK(same_record(&r, &ref));
    arena_close(&c.arena);
}

TEST(record_changes_nothing_in_the_output)
{
    Case c, plain;
    LogitRecord r;
    T_STATUS_OK(case_init(&plain, &SHAPE, 7));
    T_STATUS_OK(case_run(&plain, 2));
    T_STATUS_OK(case_init(&c, &SHAPE, 7));
    T_STATUS_OK(run(&c, &r, &c.arena, 2));
    T_OK(memcmp(c.out.data, plain.out.data, tensor_bytes(&c.out)) == 0);
    arena_close(&c.arena);
    arena_close(&plain.arena);
}

/* One head and map; d = 1 and q = 1, so that the logits are the keys. */
TEST(record_counts_nan_and_infinities_apart)
{
    CaseShape shape = {1, 1, 1, 1, 1, {3}, {200}};
    LogitRecord r;
    Case c;
    T_STATUS_OK(case_init(&c, &shape, 8));
    T_STATUS_OK(logit_record_init(&r, &c.arena, LAYER, 1, 1, S_MAX));
    for (int i = 0; i < 3; i++)
        ((float *)c.q.data)[i] = 1;
    float *k = c.k.data;
    for (int i = 0; i < 200; i++)
        k[i] = 1 + (float)(i % 4);
    k[0] = NAN, k[50] = INFINITY, k[130] = -INFINITY, k[198] = -1e30f, k[199] = NAN;
    c.a.record = &r;
    T_STATUS_OK(case_run(&c, 1));
    const Moments *m = r.moments;
    T_OK(m->n_nan == 4 && m->n_pos_inf == 3 && m->n_neg_inf == 3);  // key 199 once
    T_OK(m->count == 198 + 199 + 200 - 10 && m->min == (double)-1e30f && m->max == 4);
    T_OK(r.peaks.at[0].value == -1e30f && r.peaks.at[0].key == 198 &&
         r.peaks.at[0].position == 198 && r.peaks.at[1].position == 199);
    T_OK(fabsf(r.peaks.at[2].value) == 4 && r.peaks.n == N_PEAKS);
    T_OK(r.key_absmax[0] == 0 && r.key_absmax[50] == 0 && r.key_absmax[51] == 4 &&
         r.key_absmax[198] == 1e30f && r.query_absmax[197] == 4 &&
         r.query_absmax[198] == 1e30f);
    T_OK(r.hist[0].bins[hist_bin(f32_bits(-1e30f))] == 2);
    arena_close(&c.arena);
}

TEST(records_of_parts_merge_to_the_whole)
{
    Case c, one;
    LogitRecord ref, sum, r;
    T_STATUS_OK(case_init(&c, &SHAPE, 9));
    T_STATUS_OK(run(&c, &ref, &c.arena, 2));
    T_STATUS_OK(logit_record_init(&sum, &c.arena, LAYER, H, M, S_MAX));
    for (int64_t b = SHAPE.n_sequences - 1; b >= 0; b--) {
        T_STATUS_OK(case_one_sequence(&one, &c, b));
        T_STATUS_OK(run(&one, &r, &c.arena, 1));
        logit_record_merge(&sum, &r);
        arena_close(&one.arena);
    }
    for (int i = 0; i < H * M; i++) {
        Moments *a = &sum.moments[i], *m = &ref.moments[i];
        T_OK(a->count == m->count && a->min == m->min && a->max == m->max);
        T_NEAR(a->mean, m->mean, 1e-12);
        T_NEAR(a->m2 / m->m2, 1, 1e-12);
        T_NEAR(a->m4 / m->m4, 1, 1e-12);
    }
    memcpy(sum.moments, ref.moments, H * M * sizeof(Moments));
    T_OK(same_record(&sum, &ref));
    arena_close(&c.arena);
}
