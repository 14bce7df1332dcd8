/* test_perplexity.c - scores against log-softmax in double of whole logits. */
#include "analysis/perplexity.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

enum { MOST = 600, CONTEXT = 37 };

static int32_t ids[MOST];
static double  want[MOST];
static float   logprob[MOST], other[MOST];
static int32_t best[MOST], other_best[MOST], want_best[MOST];

static Status random_windows(Windows *w, Arena *a, int64_t n, int32_t bos)
{
    uint64_t      seed = 11;
    WindowOptions o = {.context = CONTEXT};
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(50.0f + 47.0f * check_uniform(&seed));
    return windows_from_ids(w, a, "random", ids, n, bos, &o);
}

static bool agrees(const char *name, RunQuant quant)
{
    TinyModel  m;
    Windows    w;
    Perplexity p;
    double     sum = 0;
    int64_t    hits = 0;
    if (tiny_open(&m, name) != OK || random_windows(&w, &m.arena, 500, TINY_BOS) != OK)
        return false;
    Scorer sc = {.model = &m.model, .quant = quant};
    bool ok = score_run(&sc, &w.seq, logprob, best) == OK &&
              perplexity_run(&p, &sc, &w) == OK &&
              tiny_score(&m.model, quant, &w.seq, want, want_best) == OK;
    for (int64_t t = 0; ok && t < w.n_tokens; t++) {
        bool scored = w.seq.targets[t] >= 0;
        /* log-softmax of f32 logits below 100: a few roundings of 2^-24 * 100 */
        ok = fabs(logprob[t] - want[t]) <= 2e-5;
        ok = ok && best[t] == (scored ? want_best[t] : -1);
        sum -= want[t];
        hits += scored && want_best[t] == w.seq.targets[t];
    }
    double nll = sum / (double)w.n_scored;
    ok = ok && p.n_tokens == 500 && p.n_windows == w.seq.n && fabs(p.nll - nll) <= 2e-5 &&
         fabs(p.perplexity - exp(nll)) <= 4e-5 * exp(nll) &&
         p.accuracy == (double)hits / 500 && nll > 1;
    tiny_close(&m);
    return ok;
}

TEST(agrees_with_whole_logits)
{
    T_OK(agrees("diff_gqa", (RunQuant){.bits = 16}));
    T_OK(agrees("llama_gqa", (RunQuant){.bits = 16}));
    T_OK(agrees("diff_gqa", (RunQuant){.bits = 4, .scale = SCALE_TENSOR}));
    T_OK(agrees("llama_gqa", (RunQuant){.bits = 6, .scale = SCALE_HEAD}));
}

TEST(batches_and_threads_leave_no_trace)
{
    static const int64_t BATCHES[] = {1, CONTEXT, 2 * CONTEXT + 1, 100000};
    Windows   w;
    TinyModel m;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 500, TINY_BOS));
    Scorer sc = {.model = &m.model, .quant = {.bits = 4}};
    T_STATUS_OK(score_run(&sc, &w.seq, logprob, best));
    for (int i = 0; i < 8; i++) {
        int before = omp_get_max_threads();
        sc.batch_tokens = BATCHES[i % 4];
        memset(other, 0xff, sizeof other);
        omp_set_num_threads(i < 4 ? 1 : 3);
        m.backend.n_threads = i < 4 ? 1 : 3;
        Status s = score_run(&sc, &w.seq, other, other_best);
        omp_set_num_threads(before);
        T_STATUS_OK(s);
        size_t n = (size_t)w.n_tokens;
        T_OK(memcmp(logprob, other, n * sizeof *other) == 0);
        T_OK(memcmp(best, other_best, n * sizeof *best) == 0);
        T_OK(isnan(other[n]));
    }
    tiny_close(&m);
}

typedef struct {
    int64_t calls, done, total;
} Seen;

static void see(void *context, int64_t done, int64_t total, const char *what)
{
    Seen *s = context;
    if (done > s->done && strcmp(what, "scoring") == 0)
        s->calls++;
    s->done = done;
    s->total = total;
}

TEST(progress_counts_tokens)
{
    TinyModel  m;
    Windows    w;
    Perplexity p;
    Seen       seen = {0};
    Progress   progress = {see, &seen};
    T_STATUS_OK(tiny_open(&m, "llama_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 100, -1));
    Scorer sc = {.model = &m.model, .quant = {.bits = 16}, .batch_tokens = CONTEXT,
                 .progress = &progress, .what = "scoring", .total = 1000};
    T_STATUS_OK(perplexity_run(&p, &sc, &w));
    T_OK(seen.calls == 3 && seen.done == 100 && seen.total == 1000 && sc.done == 100);
    T_OK(p.n_tokens == 97);
    tiny_close(&m);
}

/* Figures of a whole text, and those of its windows. */
TEST(words_bytes_and_windows)
{
    static const char TEXT[] = "Where a word ends, another begins; and so on. ";
    TinyModel  m;
    Tokenizer *t;
    Windows    w;
    Perplexity p;
    double     sum = 0, mean = 0, squares = 0, n_windows, spread = 0;
    WindowOptions o = {.context = 8};
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(tiny_tokenizer(&t, &m.arena, true));
    T_STATUS_OK(windows_from_text(&w, &m.arena, t, "x", TEXT, sizeof TEXT - 1, &o));
    Scorer sc = {.model = &m.model, .quant = {.bits = 16}};
    T_STATUS_OK(score_run(&sc, &w.seq, logprob, best));
    T_STATUS_OK(perplexity_run_windows(&p, &m.arena, &sc, &w));
    for (int64_t i = 0; i < w.n_tokens; i++)
        sum -= (double)logprob[i];
    T_OK(p.n_words == 10 && p.n_bytes == sizeof TEXT - 1 && w.seq.n == 7);
    T_NEAR(p.word_perplexity / exp(sum / 10), 1, 1e-12);
    T_NEAR(p.byte_perplexity, exp(sum / (sizeof TEXT - 1)), 1e-12 * p.byte_perplexity);
    T_NEAR(p.bits_per_byte, log2(p.byte_perplexity), 1e-12);
    n_windows = (double)p.n_windows;
    for (int64_t i = 0; i < w.seq.n; i++) {
        double of = 0, n = (double)(w.seq.start[i + 1] - w.seq.start[i] - 1);
        for (int64_t r = w.seq.start[i]; r < w.seq.start[i + 1]; r++)
            of -= (double)logprob[r];
        T_NEAR(p.window_nll[i], of * n_windows / (double)p.n_tokens, 1e-12);
        mean += p.window_nll[i] / n_windows;
        squares += (of - n * p.nll) * (of - n * p.nll);
        spread = fmax(spread, fabs(of / n - p.nll));
    }
    T_NEAR(mean, p.nll, 1e-13);
    T_NEAR(p.nll_error, sqrt(squares * 7 / 6) / (double)p.n_tokens, 1e-13);
    T_OK(p.nll_error > 0 && p.nll_error < spread);
    T_STATUS_OK(perplexity_run(&p, &sc, &w));
    T_OK(!p.window_nll);
    o.convention = WINDOWS_GPTQ;
    T_STATUS_OK(windows_from_text(&w, &m.arena, t, "x", TEXT, sizeof TEXT - 1, &o));
    T_STATUS_OK(perplexity_run(&p, &sc, &w));
    T_OK(p.n_bytes == 0 && isnan(p.byte_perplexity) && isnan(p.word_perplexity));
    T_OK(isnan(p.bits_per_byte) && p.nll > 0);
    T_STATUS_OK(windows_slice(&w, &m.arena, &w, 0, 1));
    T_STATUS_OK(perplexity_run(&p, &sc, &w));
    T_OK(isnan(p.nll_error));  // a single window has no spread
    tokenizer_close(t);
    tiny_close(&m);
}

TEST(ids_outside_the_vocabulary_are_named)
{
    TinyModel  m;
    Windows    w;
    Perplexity p;
    WindowOptions o = {.context = 8};
    int32_t    wrong[4] = {5, 6, 101, 7};
    T_STATUS_OK(tiny_open(&m, "llama_gqa"));
    T_STATUS_OK(windows_from_ids(&w, &m.arena, "x", wrong, 4, 1, &o));
    Scorer sc = {.model = &m.model, .quant = {.bits = 16}};
    T_FAILS(perplexity_run(&p, &sc, &w), ERR_RANGE, "101");
    tiny_close(&m);
}

TEST(every_allocation_may_fail)
{
    TinyModel  m;
    Windows    w;
    Perplexity p, whole;
    Status     s = ERR_MEMORY;
    int64_t    k = 0;
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    T_STATUS_OK(random_windows(&w, &m.arena, 60, 1));
    Scorer sc = {.model = &m.model, .quant = {.bits = 16}, .batch_tokens = CONTEXT};
    T_STATUS_OK(perplexity_run(&whole, &sc, &w));
    size_t used = m.backend.arena.used;
    while (s != OK) {
        arena_fail_at(++k);
        s = perplexity_run_windows(&p, &m.arena, &sc, &w);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(m.backend.arena.used == used);  // what the pass took is given back
    }
    T_OK(k > 10 && p.nll == whole.nll);
    tiny_close(&m);
}
