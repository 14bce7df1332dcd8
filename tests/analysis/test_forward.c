/* test_forward.c - what must hold of the forward pass whatever the numbers are:
 * sums of rows, scales that cancel, and that no result depends on neighbours,
 * threads, recording or a cache. The models are those of the golden tests. */
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/analysis/ref_golden.h"
#include "tests/analysis/ref_heads.h"

enum { N_TOKENS = 300 };   // several tiles of attention

static Status open_golden(Subject *s, const char *name, const ModelOptions *options,
                          int n_threads)
{
    char path[256];
    snprintf(path, sizeof path, "golden/models/%s", name);
    return subject_open(s, check_path(path), options, n_threads);
}

static const ModelOptions IN_F32 = {.dtype = DTYPE_F32}, IN_BF16 = {.dtype = DTYPE_BF16};

/* The same tokens every time, within the smallest vocabulary (97). */
static const int32_t *tokens(void)
{
    static int32_t ids[N_TOKENS];
    uint64_t       seed = 7;
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (int32_t)((check_uniform(&seed) + 1.0f) * 48.0f);
    return ids;
}

static Status run_one(Run *r, Subject *s, const int32_t *ids, int32_t n, Probe *probe,
                      Cache *cache)
{
    int32_t start[2] = {0, n};
    int64_t number = 0;
    Batch   batch = {.n_sequences = 1, .start = start, .number = &number};
    return subject_run(r, s, ids, &batch, probe, cache);
}

static bool same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* --- rows of the maps --------------------------------------------------------------- */

static Status map_window(Subject *s, MapWindow *w, int64_t layer, int32_t n)
{
    const ModelConfig *c = &s->m.config;
    Probe probe = {.window = w, .window_layer = layer};
    Run   r;
    *w = (MapWindow){.sequence = 0, .n_positions = n};
    ARENA_NEW(w->maps, &s->arena, c->n_heads * c->n_maps * n * n);
    ARENA_NEW(w->diff, &s->arena, c->n_heads * n * n);
    return run_one(&r, s, tokens(), n, &probe, NULL);
}

/* Each row sums to `sum`, and nothing is above the diagonal. n weights of at most
 * `size`, each off by a few roundings. */
static bool rows_sum_to(const float *map, int64_t n, double sum, double size)
{
    for (int64_t q = 0; q < n; q++) {
        double total = 0.0;
        for (int64_t k = 0; k < n; k++) {
            total += (double)map[q * n + k];
            if (k > q && map[q * n + k] != 0.0f)
                return false;
        }
        if (!(fabs(total - sum) <= 2e-6 * size))
            return false;
    }
    return true;
}

TEST(rows_sum_to_one_and_to_one_minus_lambda)
{
    enum { N = 37 };
    Subject s;
    T_STATUS_OK(open_golden(&s, "diff_gqa", &IN_F32, 0));
    const ModelConfig *c = &s.m.config;
    int64_t n_negative = 0;
    for (int64_t l = 0; l < c->n_layers; l++) {
        MapWindow w;
        T_STATUS_OK(map_window(&s, &w, l, N));
        double lambda = (double)s.m.layers[l].lambda;
        for (int64_t i = 0; i < c->n_heads * 2; i++)
            T_OK(rows_sum_to(w.maps + i * N * N, N, 1.0, 1.0));
        for (int64_t h = 0; h < c->n_heads; h++)
            T_OK(rows_sum_to(w.diff + h * N * N, N, 1.0 - lambda, 1.0 + fabs(lambda)));
        for (int64_t i = 0; i < c->n_heads * N * N; i++)
            n_negative += w.diff[i] < 0.0f;
    }
    T_OK(n_negative > 0);
    T_OK(s.m.layers[0].lambda > 1.0f && s.m.layers[1].lambda < 0.0f);
    subject_close(&s);
}

/* --- lambda ------------------------------------------------------------------------- */

TEST(lambda_of_special_vectors)
{
    const float zero[3] = {0}, q[3] = {0.5f, -1.0f, 2.0f}, k[3] = {1.0f, 0.25f, 0.5f};
    double x = 0.5 - 0.25 + 1.0, init = diff_lambda_init(3);
    T_NEAR(init, 0.8 - 0.6 * exp(-0.9), 1e-15);
    T_NEAR(diff_lambda_init(0), 0.2, 1e-15);
    /* Equal products cancel exactly. */
    T_OK(diff_lambda(zero, zero, zero, zero, 3, init) == init);
    T_NEAR(diff_lambda(q, k, q, k, 3, init), init, 0.0);
    T_NEAR(diff_lambda(q, k, zero, k, 3, init), exp(x) - 1.0 + init, 1e-15 * exp(x));
    T_NEAR(diff_lambda(zero, k, q, k, 3, init), 1.0 - exp(x) + init, 1e-15 * exp(x));
    T_OK(diff_lambda(zero, k, q, k, 3, init) < 0.0);
}

/* --- the norm of the heads ---------------------------------------------------------- */

static Status enlarge_values(void *context, const char *name, float *w, int64_t N, int64_t K)
{
    const bool *second_half = context;
    if (!strstr(name, "v_proj"))
        return OK;
    for (int64_t i = *second_half ? N * K / 2 : 0; i < N * K; i++)
        w[i] *= 4.0f;
    return OK;
}

static Status change_from_larger_values(double *change, const char *name, bool second_half)
{
    Subject      plain = {0}, edited = {0};
    ModelOptions options = {.dtype = DTYPE_F32, .edit = enlarge_values,
                            .edit_context = &second_half};
    Run          a, b;
    Status       s = OK;
    GUARD(open_golden(&plain, name, &IN_F32, 0));
    GUARD(open_golden(&edited, name, &options, 0));
    GUARD(run_one(&a, &plain, tokens(), 40, NULL, NULL));
    GUARD(run_one(&b, &edited, tokens(), 40, NULL, NULL));
    *change = ref_worst_gap(b.logits, a.logits, 40 * plain.m.config.vocab);
out:
    subject_close(&plain);
    subject_close(&edited);
    return s;
}

/* A differential head divides by its own size, so all of V times 4 is nothing but a
 * smaller share of eps: eps / mean square, about 1e-4 of what it was. Half of the
 * heads of V (one half of each differential head) is not, nor is a plain model's V. */
TEST(scale_of_values_cancels_in_differential_heads)
{
    double change = NAN;
    T_STATUS_OK(change_from_larger_values(&change, "diff_gqa_two", false));
    T_OK(change < 1e-3 && change > 0.0);
    T_STATUS_OK(change_from_larger_values(&change, "diff_gqa_two", true));
    T_OK(change > 0.1);
    T_STATUS_OK(change_from_larger_values(&change, "llama_gqa", false));
    T_OK(change > 0.1);
}

/* --- grouped heads ------------------------------------------------------------------ */

/* A model and the same one with its key-value heads written out: other shapes, and,
 * where the number of heads is odd, another way to pair them. Same products in the
 * same order, so a few roundings at most. */
static void check_groups(const char *name)
{
    char    path[256], written[256];
    Subject grouped = {0}, full = {0};
    ModelOptions options = {.dtype = DTYPE_F32};
    Run     a, b;
    Status  s = OK;
    snprintf(path, sizeof path, "golden/models/%s", name);
    snprintf(written, sizeof written, "%s/%s", check_tmp(), name);
    GUARD(heads_write_out(check_path(path), written));
    GUARD(subject_open(&grouped, check_path(path), &options, 0));
    GUARD(subject_open(&full, written, &options, 0));
    GUARD(run_one(&a, &grouped, tokens(), N_TOKENS, NULL, NULL));
    GUARD(run_one(&b, &full, tokens(), N_TOKENS, NULL, NULL));
    double worst = ref_worst_gap(a.logits, b.logits, N_TOKENS * full.m.config.vocab);
    if (!(worst <= 1e-6))
        check_fail(__FILE__, __LINE__, "%s: %.1e from the model without groups", name, worst);
out:
    if (s != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    subject_close(&grouped);
    subject_close(&full);
}

TEST(grouped_heads_are_repeated_heads)
{
    check_groups("diff_gqa");
    check_groups("diff_gqa_two");
    check_groups("diff_mqa");
    check_groups("diff_odd_kv");
    check_groups("diff_odd_kv_wide");
    check_groups("llama_gqa_three");
    check_groups("llama_mqa_relu");
}

/* --- independence ------------------------------------------------------------------- */

static const char *const FEW[] = {"diff_gqa", "diff_d20", "diff_mqa", "diff_wide",
                                  "llama_gqa", "llama_d100", "rope_dynamic",
                                  "rope_longrope"};
enum { N_FEW = sizeof FEW / sizeof *FEW };

typedef Status (*Claim)(bool *good, const char *name, const ModelOptions *options);

static void check_claim(Claim claim, const char *name, const ModelOptions *options)
{
    bool good = false;
    if (claim(&good, name, options) != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    else if (!good)
        check_fail(__FILE__, __LINE__, "%s in %s: results differ", name,
                   dtype_name(options->dtype));
}

/* The claim holds for the first n of the few, whatever the products are made in. */
static void each_of_few(Claim claim, int n)
{
    for (int i = 0; i < n; i++) {
        check_claim(claim, FEW[i], &IN_F32);
        check_claim(claim, FEW[i], &IN_BF16);
    }
}

/* Rows [from, from + n) of a against the first n rows of b, [T,C] and [T,V]; every
 * layer's output, a of T rows in all and b of n. */
static bool same_rows(const Run *a, int64_t T, int64_t from, const Run *b, int64_t n,
                      const ModelConfig *c)
{
    int64_t C = c->hidden, V = c->vocab;
    bool    good = same(a->final + from * C, b->final, n * C) &&
                same(a->logits + from * V, b->logits, n * V);
    for (int64_t l = 0; l < c->n_layers; l++)
        good = good && same(a->hidden + (l * T + from) * C, b->hidden + l * n * C, n * C);
    return good;
}

static Status cut(bool *good, const char *name, const ModelOptions *options)
{
    static const int32_t start[5] = {0, 2, 131, 298, 300};  // 2, 129, 167 and 2 tokens
    static const int64_t number[4] = {3, 0, 1, 2};
    Batch   batch = {.n_sequences = 4, .start = start, .number = number};
    Subject one;
    Run     together, alone;
    Status  s = OK;
    *good = true;
    GUARD(open_golden(&one, name, options, 0));
    GUARD(subject_run(&together, &one, tokens(), &batch, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        int32_t n = start[i + 1] - start[i];
        GUARD(run_one(&alone, &one, tokens() + start[i], n, NULL, NULL));
        *good = *good && same_rows(&together, N_TOKENS, start[i], &alone, n, &one.m.config);
    }
out:
    subject_close(&one);
    return s;
}

TEST(windows_together_equal_windows_alone)
{
    each_of_few(cut, N_FEW);
}

static Status thread_counts(bool *good, const char *name, const ModelOptions *options)
{
    Subject one = {0}, two = {0};
    Run     a, b;
    Status  s = OK;
    GUARD(open_golden(&one, name, options, 1));
    GUARD(open_golden(&two, name, options, 2));
    GUARD(run_one(&a, &one, tokens(), N_TOKENS, NULL, NULL));
    GUARD(run_one(&b, &two, tokens(), N_TOKENS, NULL, NULL));
    *good = same_rows(&a, N_TOKENS, 0, &b, N_TOKENS, &one.m.config);
out:
    subject_close(&one);
    subject_close(&two);
    return s;
}

TEST(one_thread_equals_two)
{
    each_of_few(thread_counts, N_FEW);
}

/* A probe of everything, whole maps of layer 0 too. */
static Status probe_all(Probe *p, MapWindow *w, Subject *one)
{
    const ModelConfig *c = &one->m.config;
    int64_t            n = w->n_positions;
    TRY(probe_init(p, &one->arena, &one->m, N_TOKENS));
    ARENA_NEW(w->maps, &one->arena, c->n_heads * c->n_maps * n * n);
    ARENA_NEW(w->diff, &one->arena, c->n_heads * n * n);
    p->window = w;
    return OK;
}

static double largest(const float *x, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Recording changes nothing; and it happened: the hidden records hold the largest
 * value of each layer's output, exactly. */
static Status recording(bool *good, const char *name, const ModelOptions *options)
{
    Subject   one;
    Run       bare, recorded;
    MapWindow w = {.sequence = 0, .n_positions = 9};
    Probe     probe;
    Status    s = OK;
    GUARD(open_golden(&one, name, options, 0));
    GUARD(probe_all(&probe, &w, &one));
    GUARD(run_one(&bare, &one, tokens(), N_TOKENS, NULL, NULL));
    GUARD(run_one(&recorded, &one, tokens(), N_TOKENS, &probe, NULL));
    *good = same_rows(&bare, N_TOKENS, 0, &recorded, N_TOKENS, &one.m.config);
    int64_t size = N_TOKENS * one.m.config.hidden;
    for (int64_t l = 0; l < one.m.config.n_layers; l++)
        *good = *good && moments_absmax(&probe.values[TAP_HIDDEN][l].moments) ==
                             largest(bare.hidden + l * size, size);
out:
    subject_close(&one);
    return s;
}

TEST(recording_changes_nothing)
{
    each_of_few(recording, N_FEW);
}

/* --- the cache ---------------------------------------------------------------------- */

/* The tokens in parts of 1, 13, 1, 1, 132 and 152. */
static Status decode(bool *good, const char *name, const ModelOptions *options)
{
    static const int32_t start[] = {0, 2, 15, 17, 19, 148, 300};
    Subject one;
    Run     whole, part;
    Cache  *cache;
    Status  s = OK;
    *good = true;
    GUARD(open_golden(&one, name, options, 0));
    GUARD(run_one(&whole, &one, tokens(), N_TOKENS, NULL, NULL));
    GUARD(cache_init(&cache, &one.m, &one.arena, N_TOKENS));
    for (int i = 0; i < 6; i++) {
        int32_t n = start[i + 1] - start[i];
        GUARD(run_one(&part, &one, tokens() + start[i], n, NULL, cache));
        *good = *good && same_rows(&whole, N_TOKENS, start[i], &part, n, &one.m.config);
    }
out:
    subject_close(&one);
    return s;
}

/* Not the last two: there the angles of earlier keys follow the length so far, in
 * transformers as well, so a cache and a whole pass are two different things. */
TEST(decoding_with_a_cache_equals_the_whole_pass)
{
    each_of_few(decode, N_FEW - 2);
}

/* One token at a time, as generation does. Products of a single row have a kernel of
 * their own, which adds up in another order (cpu_gemm.h): f32 stays within rounding, in
 * bf16 an input may round the other way now and then, 2^-8 of itself. */
static double one_by_one(const char *name, const ModelOptions *options)
{
    enum { N = 40 };
    Subject one;
    Run     whole, step;
    Cache  *cache;
    double  worst = 0.0;
    Status  s = OK;
    GUARD(open_golden(&one, name, options, 0));
    int64_t V = one.m.config.vocab;
    GUARD(run_one(&whole, &one, tokens(), N, NULL, NULL));
    GUARD(cache_init(&cache, &one.m, &one.arena, N));
    for (int i = 0; i < N; i++) {
        GUARD(run_one(&step, &one, tokens() + i, 1, NULL, cache));
        double e = ref_worst_gap(step.logits, whole.logits + i * V, V);
        if (!(e <= worst))
            worst = e;
    }
out:
    subject_close(&one);
    return s == OK ? worst : NAN;
}

TEST(single_steps_stay_close_to_the_whole_pass)
{
    for (int i = 0; i < N_FEW - 2; i++) {
        double f32 = one_by_one(FEW[i], &IN_F32), bf16 = one_by_one(FEW[i], &IN_BF16);
        printf("%s in single steps: f32 %.1e, bf16 %.1e\n", FEW[i], f32, bf16);
        if (!(f32 <= 5e-6) || !(bf16 <= 3e-2))
            check_fail(__FILE__, __LINE__, "%s: f32 off by %.1e, bf16 by %.1e", FEW[i], f32,
                       bf16);
    }
}

TEST(a_full_cache_is_an_error)
{
    Subject one;
    Run     r;
    Cache  *cache;
    T_STATUS_OK(open_golden(&one, "diff_gqa", &IN_F32, 0));
    T_STATUS_OK(cache_init(&cache, &one.m, &one.arena, 10));
    T_STATUS_OK(run_one(&r, &one, tokens(), 8, NULL, cache));
    T_FAILS(run_one(&r, &one, tokens(), 3, NULL, cache), ERR_RANGE, "cache of 10");
    T_STATUS_OK(run_one(&r, &one, tokens(), 2, NULL, cache));
    subject_close(&one);
}

TEST(a_token_outside_the_vocabulary_is_an_error)
{
    Subject one;
    Run     r;
    int32_t ids[3] = {5, 101, 7};
    T_STATUS_OK(open_golden(&one, "diff_gqa", &IN_F32, 0));
    T_FAILS(run_one(&r, &one, ids, 3, NULL, NULL), ERR_RANGE, "101");
    ids[1] = -1;
    T_FAILS(run_one(&r, &one, ids, 3, NULL, NULL), ERR_RANGE, "-1");
    subject_close(&one);
}
