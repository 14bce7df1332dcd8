/* test_cache.c - decoding with a cache gives what one pass over the whole text gives: for every
 * golden model, windows of keys that are shorter than the text and states of scans among them. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "tests/analysis/ref_golden.h"

static const ModelOptions IN_F32 = {.dtype = DTYPE_F32};

/* Angles of earlier keys follow the length so far in these, as in transformers: a cache and a
 * whole pass are two different things. */
static bool follows_length(const ModelConfig *c)
{
    return c->rope.kind == ROPE_DYNAMIC || c->rope.kind == ROPE_LONGROPE;
}

static Status run_part(Run *r, Subject *s, const int32_t *ids, int64_t n, Cache *cache)
{
    int32_t start[2] = {0, (int32_t)n};
    int64_t number = 0;
    Batch   batch = {.n_sequences = 1, .start = start, .number = &number};
    return subject_run(r, s, ids, &batch, NULL, cache);
}

/* The first sequence of a golden file, whole and in parts of `part` tokens. Worst difference of
 * any logit, as a share of the largest; of parts of more than one token none is allowed, but
 * single rows have products of their own (cpu_gemm.h). */
static Status decode(double *worst, Subject *s, const Golden *g, int64_t part)
{
    int64_t n = g->batch.start[1], V = s->m.config.vocab, n_parts = 0;
    Run     whole, step;
    Cache  *cache;
    *worst = 0;
    if (part > n / 2)
        part = n / 2;   // a short text, in two
    TRY(run_part(&whole, s, g->ids, n, NULL));
    TRY(cache_init(&cache, &s->m, &s->arena, n));
    for (int64_t at = 0, rows; at < n; at += rows, n_parts++) {
        rows = at + 2 * part > n ? n - at : part;   // no single row at the end
        TRY(run_part(&step, s, g->ids + at, rows, cache));
        double e = ref_worst_gap(step.logits, whole.logits + at * V, rows * V);
        if (!(e <= *worst))
            *worst = e;
        if (part > 1 && memcmp(step.hidden, whole.hidden + at * s->m.config.hidden,
                               (size_t)(rows * s->m.config.hidden) * sizeof(float)) != 0)
            *worst = 1;
    }
    CHECK(n_parts > 1);
    return OK;
}

/* How many layers have what the test is about. */
typedef struct {
    int64_t models, windows, scans, crosses;
} Seen;

static void look(Seen *seen, const ModelConfig *c, int64_t n)
{
    seen->models++;
    for (int64_t l = 0; l < c->n_layers; l++) {
        seen->windows += c->layers[l].reach > 0 && c->layers[l].reach < n;
        seen->scans += c->layers[l].mixer == MIX_MAMBA;
        seen->crosses += c->layers[l].mixer == MIX_CROSS;
    }
}

static Status check_model(const char *name, int64_t part, double bound, Seen *seen)
{
    Subject one;
    Golden  g;
    Status  s = OK;
    double  worst;
    GUARD(subject_open(&one, golden_folder(name), &IN_F32, 1));
    GUARD(golden_read(&g, &one.arena, golden_file(name)));
    if (follows_length(&one.m.config) || g.batch.start[1] < 2)
        goto out;
    GUARD(decode(&worst, &one, &g, part));
    look(seen, &one.m.config, g.batch.start[1]);
    if (!(worst <= bound))
        check_fail(__FILE__, __LINE__, "%s in parts of %lld: off by %.1e", name,
                   (long long)part, worst);
out:
    subject_close(&one);
    return s;
}

static void check_all(int64_t part, double bound)
{
    Arena        a = {0};
    Seen         seen = {0};
    const char **names;
    int64_t      n;
    T_STATUS_OK(golden_names(&names, &n, &a));
    for (int64_t i = 0; i < n; i++)
        if (check_model(names[i], part, bound, &seen) != OK)
            check_fail(__FILE__, __LINE__, "%s: %s", names[i], status_text());
    arena_close(&a);
    T_OK(seen.models > 60 && seen.windows > 5 && seen.scans > 2 && seen.crosses > 1);
}

TEST(parts_of_a_text_equal_the_whole)
{
    check_all(2, 0);
    check_all(7, 0);
}

TEST(single_steps_are_within_rounding_of_the_whole)
{
    check_all(1, 5e-6);
}
