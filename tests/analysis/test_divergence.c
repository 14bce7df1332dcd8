/* test_divergence.c - two models' predictions against whole logits in double. */
#include "analysis/divergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/perplexity.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

enum { MOST = 700, VOCAB = 101, CONTEXT = 37 };

static double logits[2][MOST][VOCAB];
static double want_kl[MOST], want_dp[MOST];

static Status random_windows(Windows *w, Arena *a, int64_t n, WindowConvention convention)
{
    static int32_t ids[MOST];
    uint64_t       seed = 12;
    WindowOptions  o = {.context = CONTEXT, .convention = convention};
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(50.0f + 47.0f * check_uniform(&seed));
    return windows_from_ids(w, a, "random", ids, n, TINY_BOS, &o);
}

/* Without anything kept. */
static Status measure(Divergence *d, Scorer *sc, const Scorer *of, const Windows *w)
{
    Reference  r;
    Perplexity p;
    Arena      a = {0};
    ArenaMark  mark = backend_mark(of->model->backend);
    Status     s = reference_open(&r, of, w, 0);
    if (s == OK)
        s = divergence_run(d, &p, &a, sc, &r);
    backend_rewind(of->model->backend, mark);
    arena_close(&a);
    return s;
}

/* --- the definitions, on log p of every word --- */

/* Of the T tokens of one window, by whole logits. */
static Status window_words(double out[][VOCAB], Model *m, RunQuant quant, const int32_t *ids,
                           int32_t T)
{
    static float  host[MOST][VOCAB];
    const int32_t start[2] = {0, T};
    const int64_t number = 0;
    const Batch   batch = {1, start, &number};
    Tensor        x, y;
    TRY(backend_tensor(m->backend, &x, 2, (int64_t[]){T, m->config.hidden}));
    TRY(backend_tensor(m->backend, &y, 2, (int64_t[]){T, VOCAB}));
    TRY(model_forward(m, &x, ids, &batch, quant, NULL, NULL));
    TRY(op_linear(m->backend, &y, &x, &m->head));
    TRY(backend_download(m->backend, host, &y));
    for (int32_t t = 0; t < T; t++) {
        double sum = 0;
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double)host[t][v]);
        for (int v = 0; v < VOCAB; v++)
            out[t][v] = (double)host[t][v] - log(sum);
    }
    return OK;
}

static Status all_words(double out[MOST][VOCAB], Model *m, RunQuant quant, const Windows *w)
{
    for (int64_t i = 0; i < w->seq.n; i++) {
        int64_t first = w->seq.start[i], T = w->seq.start[i + 1] - first;
        TRY(window_words(out + first, m, quant, w->seq.ids + first, (int32_t)T));
    }
    return OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, int64_t n, double at)
{
    double  place = at * (double)(n - 1);
    int64_t i = (int64_t)place, next = i + 1 < n ? i + 1 : i;
    return sorted[i] + (place - (double)i) * (sorted[next] - sorted[i]);
}

static int64_t first_choice(const double *row)
{
    int64_t best = 0;
    for (int64_t v = 1; v < VOCAB; v++)
        best = row[v] > row[best] ? v : best;
    return best;
}

/* want_kl and want_dp sorted; d gets everything else. */
static void expect(Divergence *d, const Windows *w)
{
    double squares = 0;
    *d = (Divergence){0};
    for (int64_t t = 0; t < w->n_tokens; t++) {
        const double *a = logits[0][t], *b = logits[1][t];
        int32_t       target = w->seq.targets[t];
        double        kl = 0;
        if (target < 0)
            continue;
        for (int v = 0; v < VOCAB; v++)
            kl += exp(b[v]) * (b[v] - a[v]);
        want_kl[d->n] = kl;
        want_dp[d->n++] = exp(a[target]) - exp(b[target]);
        d->kl += kl;
        d->top1 += first_choice(a) == first_choice(b);
        d->nll -= a[target];
        d->nll_reference -= b[target];
    }
    double n = (double)d->n;
    d->kl /= n, d->top1 /= n, d->nll /= n, d->nll_reference /= n;
    for (int64_t i = 0; i < d->n; i++) {
        squares += (want_kl[i] - d->kl) * (want_kl[i] - d->kl);
        d->dp_rms += want_dp[i] * want_dp[i] / n;
    }
    d->dp_rms = sqrt(d->dp_rms);
    d->kl_error = sqrt(squares / (n - 1)) / sqrt(n);
    d->top1_error = sqrt(d->top1 * (1 - d->top1) / (n - 1));
    qsort(want_kl, (size_t)d->n, sizeof *want_kl, ascending);
    qsort(want_dp, (size_t)d->n, sizeof *want_dp, ascending);
    d->kl_max = want_kl[d->n - 1];
}

/* Logits below 30 in f32, each with a few roundings of 2^-24 * 30, and not the same ones
 * here: KL moves by twice that at most. */
#define CLOSE(got, want) T_NEAR(got, want, 2e-5)

static void check_models(const char *name[2], const RunQuant quant[2], WindowConvention by)
{
    TinyModel  m[2];
    Windows    w;
    Divergence d, want;
    for (int i = 0; i < 2; i++)
        T_STATUS_OK(tiny_open(&m[i], name[i]));
    T_STATUS_OK(random_windows(&w, &m[0].arena, 500, by));
    Scorer sc[2] = {{.model = &m[0].model, .quant = quant[0]},
                    {.model = &m[1].model, .quant = quant[1]}};
    for (int i = 0; i < 2; i++)
        T_STATUS_OK(all_words(logits[i], &m[i].model, quant[i], &w));
    T_STATUS_OK(measure(&d, &sc[0], &sc[1], &w));
    expect(&want, &w);
    T_OK(d.n == w.n_scored && d.n == want.n && d.kl > 1e-3);
    CLOSE(d.kl, want.kl);
    CLOSE(d.kl_error, want.kl_error);
    CLOSE(d.kl_max, want.kl_max);
    CLOSE(d.nll, want.nll);
    CLOSE(d.nll_reference, want.nll_reference);
    CLOSE(d.dp_rms, want.dp_rms);
    T_OK(d.top1 == want.top1 && fabs(d.top1_error - want.top1_error) < 1e-15);
    for (int q = 0; q < DIVERGENCE_QUANTILES; q++) {
        CLOSE(d.kl_quantiles[q], quantile(want_kl, want.n, DIVERGENCE_AT[q]));
        CLOSE(d.dp_quantiles[q], quantile(want_dp, want.n, DIVERGENCE_AT[q]));
    }
    for (int i = 0; i < 2; i++)
        tiny_close(&m[i]);
}

TEST(agrees_with_whole_logits)
{
    const RunQuant full = {.bits = 16}, four = {.bits = 4, .scale = SCALE_HEAD};
    check_models((const char *[]){"llama_gqa", "diff_gqa"}, (RunQuant[]){full, full},
                 WINDOWS_DISJOINT);
    check_models((const char *[]){"diff_gqa", "diff_gqa"}, (RunQuant[]){four, full},
                 WINDOWS_LLAMA_CPP);
    check_models((const char *[]){"diff_gqa", "diff_gqa"}, (RunQuant[]){full, four},
                 WINDOWS_LM_EVAL);
}

TEST(a_model_does_not_diverge_from_itself)
{
    TinyModel  m;
    Windows    w;
    Divergence d;
    Perplexity p;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 300, WINDOWS_STRIDED));
    Scorer sc = {.model = &m.model, .quant = {.bits = 16}}, same = sc;
    T_STATUS_OK(perplexity_run(&p, &sc, &w));
    sc.done = 0;
    T_STATUS_OK(measure(&d, &sc, &same, &w));
    T_OK(d.kl == 0 && d.kl_max == 0 && d.kl_error == 0 && d.kl_quantiles[6] == 0);
    T_OK(d.top1 == 1 && d.top1_error == 0 && d.dp_rms == 0 && d.dp_quantiles[0] == 0);
    T_OK(d.nll == d.nll_reference && sc.done == w.n_tokens && same.done == 0);
    T_NEAR(d.nll, p.nll, 2e-6);
    tiny_close(&m);
}

TEST(batches_threads_and_backends_leave_no_trace)
{
    static const int64_t BATCHES[] = {1, CONTEXT, 2 * CONTEXT + 1, 100000};
    TinyModel  m, own;
    Windows    w;
    Divergence d, other;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(tiny_open(&own, "diff_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 500, WINDOWS_DISJOINT));
    Scorer sc = {.model = &m.model, .quant = {.bits = 4}};
    Scorer reference = {.model = &m.model, .quant = {.bits = 16}};
    T_STATUS_OK(measure(&d, &sc, &reference, &w));
    T_OK(d.kl > 0);
    size_t used = own.backend.arena.used;
    for (int i = 0; i < 12; i++) {
        sc.batch_tokens = BATCHES[i % 4];
        m.backend.n_threads = own.backend.n_threads = 1 + i / 4;
        reference.model = i % 2 ? &own.model : &m.model;
        T_STATUS_OK(measure(&other, &sc, &reference, &w));
        T_OK(memcmp(&d, &other, sizeof d) == 0 && own.backend.arena.used == used);
    }
    tiny_close(&own);
    tiny_close(&m);
}

static bool same_perplexity(const Perplexity *a, const Perplexity *b)
{
    Perplexity x = *a, y = *b;
    x.window_nll = y.window_nll = NULL;
    return memcmp(&x, &y, sizeof x) == 0 &&
           memcmp(a->window_nll, b->window_nll, (size_t)a->n_windows * sizeof(double)) == 0;
}

/* Room for no row, a row less than two batches, all but one, all. */
TEST(what_is_kept_is_not_read_again)
{
    TinyModel  m, of;
    Windows    w;
    Perplexity p, plain, p_of, plain_of;
    Divergence want, d;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(tiny_open(&of, "diff_gqa"));
    T_STATUS_OK(tiny_embed(&of));
    T_STATUS_OK(random_windows(&w, &m.arena, 500, WINDOWS_DISJOINT));
    Scorer sc = {.model = &m.model, .quant = {.bits = 4}, .batch_tokens = 2 * CONTEXT};
    Scorer exact = {.model = &of.model, .quant = {.bits = 16}, .batch_tokens = 2 * CONTEXT};
    T_STATUS_OK(measure(&want, &sc, &exact, &w));
    T_STATUS_OK(perplexity_run_windows(&plain, &m.arena, &sc, &w));
    T_STATUS_OK(perplexity_run_windows(&plain_of, &m.arena, &exact, &w));
    const int64_t batch = 2 * (CONTEXT - 1), C = of.model.config.hidden;
    const int64_t room[] = {0, 2 * batch - 1, w.n_scored - 1, w.n_scored, 2 * w.n_scored};
    const int64_t kept[] = {0, batch, w.n_scored / batch * batch, w.n_scored, w.n_scored};
    T_OK(w.n_scored % batch > 1);   // the last batch is a shorter one
    float *first = (float *)of.model.embed.data + w.seq.ids[0] * C, healthy = *first;
    for (int i = 0; i < 10; i++) {
        Reference r;
        T_STATUS_OK(reference_open(&r, &exact, &w, (size_t)(room[i / 2] * C) * sizeof(float)));
        exact.done = sc.done = 0;
        if (i % 2 == 0) {
            T_STATUS_OK(reference_run(&r, &p_of, &m.arena, &exact));
            T_OK(same_perplexity(&p_of, &plain_of) && exact.done == w.n_tokens);
        } else {
            T_STATUS_OK(divergence_run(&d, &p, &m.arena, &sc, &r));
            T_OK(memcmp(&d, &want, sizeof d) == 0);
            sc.done = 0;
        }
        T_OK(r.n_kept == kept[i / 2]);
        *first = r.n_kept == w.n_scored ? NAN : healthy;   // nothing must be read again
        T_STATUS_OK(divergence_run(&d, &p, &m.arena, &sc, &r));
        *first = healthy;
        T_OK(memcmp(&d, &want, sizeof d) == 0 && same_perplexity(&p, &plain));
        T_OK(sc.done == w.n_tokens && r.n_kept == kept[i / 2]);
    }
    tiny_close(&of);
    tiny_close(&m);
}

TEST(nan_is_not_lost)
{
    TinyModel  m, sick;
    Windows    w;
    Divergence d;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(tiny_open(&sick, "diff_gqa"));
    T_STATUS_OK(tiny_embed(&sick));
    T_STATUS_OK(random_windows(&w, &m.arena, 100, WINDOWS_DISJOINT));
    /* One word that is read somewhere. */
    ((float *)sick.model.embed.data)[w.seq.ids[50] * sick.model.config.hidden] = NAN;
    Scorer sc = {.model = &sick.model, .quant = {.bits = 16}};
    Scorer reference = {.model = &m.model, .quant = {.bits = 16}};
    T_STATUS_OK(measure(&d, &sc, &reference, &w));
    T_OK(isnan(d.kl) && isnan(d.kl_max) && isnan(d.kl_error) && isnan(d.dp_rms));
    T_OK(isnan(d.kl_quantiles[0]) && isnan(d.kl_quantiles[3]) && isnan(d.dp_quantiles[6]));
    T_OK(isnan(d.nll) && isfinite(d.nll_reference) && d.top1 < 1);
    tiny_close(&sick);
    tiny_close(&m);
}

TEST(one_position_has_no_error)
{
    TinyModel  m;
    Windows    w;
    Divergence d;
    WindowOptions o = {.context = 3, .convention = WINDOWS_LLAMA_CPP};
    int32_t    ids[] = {5, 6, 7};
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(windows_from_ids(&w, &m.arena, "x", ids, 3, TINY_BOS, &o));
    Scorer sc = {.model = &m.model, .quant = {.bits = 4}};
    Scorer reference = {.model = &m.model, .quant = {.bits = 16}};
    T_STATUS_OK(measure(&d, &sc, &reference, &w));
    T_OK(d.n == 1 && isnan(d.kl_error) && isnan(d.top1_error) && d.kl == d.kl_max);
    T_OK(d.kl_quantiles[0] == d.kl && d.kl_quantiles[6] == d.kl);
    tiny_close(&m);
}

TEST(models_that_do_not_fit_are_refused)
{
    TinyModel  m, other;
    Windows    w;
    Divergence d;
    BackendOps ops;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(tiny_open(&other, "llama_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 100, WINDOWS_DISJOINT));
    Scorer sc = {.model = &m.model, .quant = {.bits = 16}};
    Scorer reference = {.model = &other.model, .quant = {.bits = 16}};
    const BackendOps *cpu = other.backend.ops;
    ops = *cpu;
    ops.name = "cuda";
    other.backend.ops = &ops;
    T_FAILS(measure(&d, &sc, &reference, &w), ERR_UNSUPPORTED,
            "diff_gqa is on cpu and llama_gqa on cuda");
    other.backend.ops = cpu;
    other.model.config.vocab--;
    T_FAILS(measure(&d, &sc, &reference, &w), ERR_SHAPE,
            "diff_gqa has a vocabulary of 101 tokens, llama_gqa one of 100");
    other.model.config.vocab++;
    w.n_scored = 0;
    T_FAILS(measure(&d, &sc, &reference, &w), ERR_RANGE, "nothing to score");
    tiny_close(&other);
    tiny_close(&m);
}

TEST(every_allocation_may_fail)
{
    TinyModel  m;
    Windows    w;
    Divergence d, whole;
    Status     s = ERR_MEMORY;
    int64_t    k = 0;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 60, WINDOWS_DISJOINT));
    Scorer sc = {.model = &m.model, .quant = {.bits = 4}, .batch_tokens = CONTEXT};
    Scorer reference = {.model = &m.model, .quant = {.bits = 16}};
    T_STATUS_OK(measure(&whole, &sc, &reference, &w));
    size_t used = m.backend.arena.used;
    while (s != OK) {
        arena_fail_at(++k);
        s = measure(&d, &sc, &reference, &w);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(m.backend.arena.used == used);  // what the passes took is given back
    }
    T_OK(k > 20 && d.kl == whole.kl);
    tiny_close(&m);
}
