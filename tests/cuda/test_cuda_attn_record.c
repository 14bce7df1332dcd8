/* test_cuda_attn_record.c - what attention records on the GPU, against the CPU's record of the
 * same logits: q and k are such that both have them exactly. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/cuda/ref_cuda_case.h"

enum { LAYER = 5, S_MAX = 420 };

static Status new_record(LogitRecord *r, Case *c)
{
    return logit_record_init(r, &c->arena, LAYER, c->a.n_heads, c->a.n_maps, S_MAX);
}

static bool near(double a, double b, double scale)
{
    return fabs(a - b) <= 1e-6 * scale;
}

/* A strip of a row is summed in f32, 4 to 16 values a lane, then lanes in pairs: within 1e-6 of
 * the sum of magnitudes at worst, and by far not all round the same way. The shift is near the
 * mean, so that little of it cancels. */
static bool moments_near(const Moments *a, const Moments *b)
{
    double n = (double)b->count, sigma = sqrt(b->m2 / fmax(n, 1));
    return a->count == b->count && a->n_nan == b->n_nan && a->n_pos_inf == b->n_pos_inf &&
           a->n_neg_inf == b->n_neg_inf && a->min == b->min && a->max == b->max &&
           near(a->mean, b->mean, sigma + 1e-9 * fabs(b->mean)) && near(a->m2, b->m2, b->m2) &&
           near(a->m3, b->m3, n * pow(sigma, 3)) && near(a->m4, b->m4, b->m4);
}

static bool same_moments(const LogitRecord *a, const LogitRecord *b)
{
    bool same = true;
    for (int64_t i = 0; i < b->n_heads * b->n_maps; i++)
        same = same && moments_near(&a->moments[i], &b->moments[i]);
    return same;
}

static bool same_peaks(const Peaks *a, const Peaks *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) {  // member by member: there is padding
        const Peak *p = &a->at[i], *q = &b->at[i];
        same = p->value == q->value && p->layer == q->layer && p->head == q->head &&
               p->map == q->map && p->position == q->position && p->key == q->key &&
               p->channel == q->channel && p->sequence == q->sequence;
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
           memcmp(a->key_absmax, b->key_absmax, M * S_MAX * sizeof(float)) == 0;
}

/* Each on its own, so that a failure says which. */
static void check_same(const LogitRecord *got, const LogitRecord *want)
{
    T_OK(same_counts(got, want));
    T_OK(same_peaks(&got->peaks, &want->peaks));
    T_OK(same_moments(got, want));
}

/* `calls` times into one record, then the CPU likewise. */
static void check_case(Backend *be, Case *c, int calls)
{
    LogitRecord got, want;
    T_STATUS_OK(new_record(&got, c));
    T_STATUS_OK(new_record(&want, c));
    for (int i = 0; i < calls; i++) {
        c->a.record = &got;
        T_STATUS_OK(ref_cuda_case_run(be, c, i % 3));
        c->a.record = &want;
        T_STATUS_OK(case_run(c, 1));
    }
    check_same(&got, &want);
}

static const CaseShape DIFF = {4, 2, 2, 24, 4, {130, 1, 49, 30}, {130, 60, 131, 300}};
static const CaseShape PLAIN = {3, 1, 1, 24, 3, {70, 2, 65}, {70, 129, 257}};

static void check_shape(const CaseShape *shape, CaseWide wide, Dtype dtype)
{
    Case    c;
    Backend be;
    T_GPU(&be);
    T_STATUS_OK(case_init_wide(&c, shape, &wide, 1));
    ref_cuda_case_fill(&c, 2);
    c.a.dtype = dtype;
    check_case(&be, &c, 1);
    arena_close(&c.arena);
    backend_close(&be);
}

static void check_shapes(Dtype dtype)
{
    check_shape(&DIFF, (CaseWide){0}, dtype);
    check_shape(&PLAIN, (CaseWide){0}, dtype);
    check_shape(&PLAIN, (CaseWide){.reach = 1}, dtype);
    check_shape(&DIFF, (CaseWide){.n_signals = 2, .reach = 47, .shared_keys = true}, dtype);
    check_shape(&DIFF, (CaseWide){.n_signals = 2, .reach = 129}, dtype);
}

TEST(record_is_the_cpus)
{
    check_shapes(DTYPE_F32);
}

TEST(record_is_the_cpus_in_bf16)
{
    check_shapes(DTYPE_BF16);
}

/* --- numbers: one dim and q = 1, so that the logits are the keys --- */

typedef struct {
    Case    c;
    Backend be;
    float  *k;  // [n_keys]
} Line;

/* One head and map, queries for the last `queries` of the keys. */
static Status line_open(Line *l, int64_t queries, int64_t keys, int64_t reach)
{
    CaseShape shape = {1, 1, 1, 1, 1, {queries}, {keys}};
    TRY(case_init_wide(&l->c, &shape, &(CaseWide){.reach = reach}, 3));
    l->c.a.scale = 1;
    l->k = l->c.k.data;
    for (int64_t i = 0; i < queries; i++)
        ((float *)l->c.q.data)[i] = 1;
    return OK;
}

static void line_close(Line *l)
{
    arena_close(&l->c.arena);
    backend_close(&l->be);
}

TEST(record_counts_nan_and_infinities_apart)
{
    Line l;
    T_GPU(&l.be);
    T_STATUS_OK(line_open(&l, 80, 300, 0));
    for (int i = 0; i < 300; i++)
        l.k[i] = 1 + (float)(i % 4);
    l.k[0] = NAN, l.k[50] = INFINITY, l.k[130] = -INFINITY, l.k[198] = -1e30f, l.k[299] = NAN;
    for (int i = 256; i < 290; i++)
        l.k[i] = NAN;
    check_case(&l.be, &l.c, 2);
    line_close(&l);
}

/* A row may begin with any number of keys that say nothing about its shift. */
TEST(record_rows_that_begin_without_a_finite_value)
{
    Line l;
    T_GPU(&l.be);
    T_STATUS_OK(line_open(&l, 5, 300, 0));
    for (int i = 0; i < 300; i++)
        l.k[i] = i < 140 ? NAN : i % 2 ? -INFINITY : 1 + (float)i / 64;
    check_case(&l.be, &l.c, 1);
    for (int i = 0; i < 300; i++)
        l.k[i] = NAN;
    check_case(&l.be, &l.c, 1);
    line_close(&l);
}

/* f32 is too narrow for fourth powers of these; the bins lie outside of the block's window. */
TEST(record_of_numbers_of_any_size)
{
    static const float SIZE[] = {1e30f, 1e-30f, 1e9f, 1e-4f, 300, 1e-41f, 3e38f, 0};
    for (size_t i = 0; i < sizeof SIZE / sizeof *SIZE; i++) {
        Line     l;
        uint64_t state = 7;
        T_GPU(&l.be);
        T_STATUS_OK(line_open(&l, 70, 150, 0));
        for (int j = 0; j < 150; j++)
            l.k[j] = SIZE[i] * check_uniform(&state) * (j % 5 ? 1 : 1e-3f);
        check_case(&l.be, &l.c, 1);
        line_close(&l);
    }
}

/* The first key is far from all others: a shift there would cost 6000 times the precision. */
TEST(record_moments_where_the_first_key_stands_out)
{
    Line     l;
    uint64_t state = 9;
    T_GPU(&l.be);
    T_STATUS_OK(line_open(&l, 70, 400, 0));
    for (int i = 0; i < 400; i++)
        l.k[i] = i == 0 ? -80 : check_normal(&state);
    check_case(&l.be, &l.c, 1);
    for (int i = 0; i < 400; i++)  // the mean moves away from the first keys'
        l.k[i] = (i < 128 ? 30 : -50) + check_normal(&state);
    check_case(&l.be, &l.c, 1);
    line_close(&l);
}

/* But for the last bit that the host's merge with an empty record loses. */
TEST(record_of_a_constant_has_no_variance)
{
    Line        l;
    LogitRecord r;
    T_GPU(&l.be);
    T_STATUS_OK(line_open(&l, 70, 150, 0));
    for (int i = 0; i < 150; i++)
        l.k[i] = 0.3f;
    T_STATUS_OK(new_record(&r, &l.c));
    l.c.a.record = &r;
    T_STATUS_OK(ref_cuda_case_run(&l.be, &l.c, 0));
    T_OK(r.moments->count == 70 * 80 + 70 * 71 / 2 && r.moments->min == (double)0.3f &&
         r.moments->max == (double)0.3f);
    T_NEAR(r.moments->mean, (double)0.3f, 1e-16);
    T_NEAR(r.moments->m2, 0, 0);
    T_NEAR(r.moments->m4, 0, 0);
    line_close(&l);
}

/* --- peaks --- */

/* More rows than the GPU lists, all of one magnitude: the first of them, in their order; then
 * a call whose few larger ones are listed, then again one without. */
TEST(record_peaks_among_many_equal_rows)
{
    CaseShape   shape = {1, 1, 1, 1, 3, {2100, 3, 2200}, {2100, 40, 2200}};
    LogitRecord got, want;
    Backend     be;
    Case        c;
    T_GPU(&be);
    T_STATUS_OK(case_init_wide(&c, &shape, &(CaseWide){.reach = 2}, 3));
    T_STATUS_OK(logit_record_init(&got, &c.arena, LAYER, 1, 1, 2200));
    T_STATUS_OK(logit_record_init(&want, &c.arena, LAYER, 1, 1, 2200));
    c.a.scale = 1;
    c.number[0] = 40, c.number[1] = 30, c.number[2] = 20;  // against their order in the batch
    for (int call = 0; call < 3; call++) {
        float *q = c.q.data, *k = c.k.data;
        for (int i = 0; i < 4303; i++)
            q[i] = i % 3 ? 1 : -1;
        for (int i = 0; i < 4340; i++)
            k[i] = call == 1 && i % 100 == 7 ? 2 : 1;
        c.a.record = &got;
        T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
        c.a.record = &want;
        T_STATUS_OK(case_run(&c, 1));
        T_OK(same_peaks(&got.peaks, &want.peaks));
        c.number[0] -= 1;  // now before those of the first call
    }
    T_OK(got.peaks.n == N_PEAKS);
    arena_close(&c.arena);
    backend_close(&be);
}

/* Zeros are peaks as long as there is room. */
TEST(record_peaks_of_few_logits)
{
    Line l;
    T_GPU(&l.be);
    T_STATUS_OK(line_open(&l, 3, 12, 0));
    for (int i = 0; i < 12; i++)
        l.k[i] = i % 3 ? 0 : i % 2 ? NAN : -0.0f;
    check_case(&l.be, &l.c, 1);
    line_close(&l);
}

/* Rows without a finite value take no place from rows of zeros. */
TEST(record_peaks_behind_many_rows_without_any)
{
    Line l;
    T_GPU(&l.be);
    T_STATUS_OK(line_open(&l, 130, 130, 0));
    for (int i = 0; i < 130; i++)
        l.k[i] = i < 125 ? NAN : 0;
    check_case(&l.be, &l.c, 1);
    line_close(&l);
}

/* --- calls --- */

static bool same_record(const LogitRecord *a, const LogitRecord *b)
{
    return same_counts(a, b) && same_peaks(&a->peaks, &b->peaks) &&
           memcmp(a->moments, b->moments,
                  (size_t)(b->n_heads * b->n_maps) * sizeof *a->moments) == 0;
}

TEST(record_does_not_depend_on_the_batch)
{
    Case        c, one;
    Backend     be;
    LogitRecord whole, parts;
    T_GPU(&be);
    T_STATUS_OK(case_init_wide(&c, &DIFF, &(CaseWide){.n_signals = 2}, 4));
    T_STATUS_OK(new_record(&whole, &c));
    T_STATUS_OK(new_record(&parts, &c));
    c.a.record = &whole;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    c.a.record = &parts;
    for (int64_t b = 0; b < DIFF.n_sequences; b++) {
        T_STATUS_OK(case_one_sequence(&one, &c, b));
        T_STATUS_OK(ref_cuda_case_run(&be, &one, b % 3));
        arena_close(&one.arena);
    }
    T_OK(same_record(&parts, &whole));
    arena_close(&c.arena);
    backend_close(&be);
}

TEST(record_changes_nothing_in_the_output)
{
    Case        c, plain;
    Backend     be;
    LogitRecord r;
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &PLAIN, 7));
    T_STATUS_OK(case_init(&plain, &PLAIN, 7));
    T_STATUS_OK(new_record(&r, &c));
    c.a.record = &r;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_STATUS_OK(ref_cuda_case_run(&be, &plain, 0));
    T_OK(ref_cuda_same_bits(c.out.data, plain.out.data, tensor_bytes(&c.out)));
    arena_close(&plain.arena);
    arena_close(&c.arena);
    backend_close(&be);
}

TEST(record_is_of_logits_before_they_are_quantized)
{
    Case        c;
    Backend     be;
    LogitRecord plain, quantized;
    T_GPU(&be);
    T_STATUS_OK(case_init(&c, &PLAIN, 8));
    T_STATUS_OK(new_record(&plain, &c));
    T_STATUS_OK(new_record(&quantized, &c));
    c.a.record = &plain;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    c.a.record = &quantized;
    c.a.logit_bits = 4;
    T_STATUS_OK(ref_cuda_case_run(&be, &c, 0));
    T_OK(same_record(&quantized, &plain));
    arena_close(&c.arena);
    backend_close(&be);
}
