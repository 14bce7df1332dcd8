/* test_memory.c - what is stated before a run against what its arenas hold at their peak. */
#include "analysis/memory.h"

#include <stdio.h>
#include <string.h>

#include "analysis/score.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/analysis/ref_golden.h"
#include "tests/check.h"

typedef struct {
    const char *model;
    Dtype       dtype;
    bool        stream;
    int64_t     context, n_windows;
} Case;

static const Case CASES[] = {
    {"pair/diff", DTYPE_F32, false, 128, 5},     {"pair/diff", DTYPE_BF16, true, 300, 3},
    {"pair/base", DTYPE_BF16, false, 512, 2},    {"pair/base", DTYPE_F32, true, 64, 9},
    {"golden/packed/diff_compressed", DTYPE_F32, false, 64, 4},
    {"golden/packed/llama_gptq", DTYPE_BF16, true, 64, 4},
    {"golden/variants/phi4flash", DTYPE_F32, false, 40, 4},
    {"golden/variants/phi4flash", DTYPE_F32, true, 40, 4},
    {"golden/baselines/gpt2_prefix", DTYPE_F32, false, 16, 4},
};

static size_t untouched_octaves(const Hist *h)
{
    size_t n = 0;
    for (int i = 0; i < HIST_OCTAVES; i++)
        n += !h->used[i];
    return n;
}

/* Bytes of histograms that were never touched. */
static size_t untouched(const Probe *p, const ModelConfig *c)
{
    size_t octaves = 0;
    for (int64_t l = 0; l < c->n_layers; l++) {
        for (int64_t m = 0; m < p->logits[l].n_maps; m++)
            octaves += untouched_octaves(&p->logits[l].hist[m]);
        for (int t = 0; t < N_TAPS; t++)
            octaves += untouched_octaves(&p->values[t][l].hist);
    }
    return octaves * HIST_OCTAVE * sizeof(uint64_t);
}

/* A run as analyze makes it, of tokens 0, and what it held at once. */
static Status run(size_t *held, const Case *c)
{
    ModelOptions o = {.dtype = c->dtype, .stream = c->stream};
    Subject      s;
    Arena        a = {0};
    Probe        probe;
    int64_t     *start, T = c->context * c->n_windows;
    int32_t     *ids, *best;
    float       *logprob;
    TRY(subject_open(&s, check_path(c->model), &o, 2));
    TRY(probe_init(&probe, &a, &s.m, c->context));
    size_t records = a.used;
    ARENA_NEW(start, &a, c->n_windows + 1);
    ARENA_NEW(ids, &a, T);
    ARENA_NEW(best, &a, T);
    ARENA_NEW(logprob, &a, T);
    for (int64_t i = 0; i <= c->n_windows; i++)
        start[i] = i * c->context;
    Sequences text = {.n = c->n_windows, .start = start, .ids = ids, .targets = ids};
    Scorer    sc = {.model = &s.m, .quant = {.bits = 16}, .probe = &probe};
    TRY(score_run(&sc, &text, logprob, best));
    *held = s.be.arena.peak + cpu_state(&s.be)->scratch.bytes + records -
            untouched(&probe, &s.m.config);
    subject_close(&s);
    arena_close(&a);
    return OK;
}

TEST(a_run_takes_what_was_stated)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        Memory      m;
        MemoryAsk   ask = {.dtype = c->dtype, .stream = c->stream, .n_threads = 2,
                           .context = c->context, .n_tokens = c->context * c->n_windows};
        size_t      held;
        T_STATUS_OK(run(&held, c));
        T_STATUS_OK(memory_measure(&m, check_path(c->model), &ask));
        printf("%s %s%s: stated %.2f MiB, held %.2f\n", c->model, dtype_name(c->dtype),
               c->stream ? " streamed" : "", (double)m.peak / (1 << 20),
               (double)held / (1 << 20));
        T_NEAR((double)m.peak / (double)held, 1, 0.1);
        T_OK(m.batch == ask.n_tokens && m.peak == m.weights + m.pass + m.scratch + m.records);
    }
}

/* A long text goes batch by batch: its length is nothing to the statement. */
TEST(a_long_text_takes_no_more_than_a_batch)
{
    Memory    some, all, wide;
    MemoryAsk ask = {.dtype = DTYPE_F32, .n_threads = 1, .context = 128};
    T_STATUS_OK(memory_measure(&all, check_path("pair/diff"), &ask));
    T_OK(all.batch > 128 && all.batch % 128 == 0 && all.batch <= 4096);
    ask.n_tokens = 1000000000;
    T_STATUS_OK(memory_measure(&some, check_path("pair/diff"), &ask));
    T_OK(some.peak == all.peak && some.batch == all.batch);
    ask.n_tokens = 100;
    T_STATUS_OK(memory_measure(&some, check_path("pair/diff"), &ask));
    T_OK(some.batch == 100 && some.peak < all.peak && some.weights == all.weights);
    ask.n_tokens = 0;
    ask.context = 8192;   // a window is never cut
    T_STATUS_OK(memory_measure(&wide, check_path("pair/diff"), &ask));
    T_OK(wide.batch == 8192 && wide.peak > all.peak);
}

/* In proportion, but for histograms, which take an octave more for twice the values: these
 * contexts are as near as that. */
TEST(statistics_grow_with_the_context_alone)
{
    Memory    a, b, c;
    MemoryAsk ask = {.dtype = DTYPE_F32, .n_threads = 1, .context = 740};
    T_STATUS_OK(memory_measure(&a, check_path("pair/base"), &ask));
    ask.dtype = DTYPE_BF16;
    ask.context = 840;
    T_STATUS_OK(memory_measure(&b, check_path("pair/base"), &ask));
    ask.context = 940;
    T_STATUS_OK(memory_measure(&c, check_path("pair/base"), &ask));
    T_OK(c.records - b.records == b.records - a.records && b.records > a.records);
    T_OK(b.weights < a.weights && b.weights > a.weights * 2 / 5);
    T_FAILS(memory_measure(&a, check_path("pair/nothing"), &ask), ERR_IO, "pair/nothing");
}
