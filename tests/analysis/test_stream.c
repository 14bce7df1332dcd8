/* test_stream.c - models whose weights are read anew for each batch give the bits of those that
 * hold them, whatever the parts in which a batch goes through a layer. */
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/choice.h"
#include "analysis/model/load.h"
#include "analysis/score.h"
#include "tests/analysis/ref_golden.h"
#include "tests/analysis/ref_tiny.h"

enum { N_SEQUENCES = 9, LONGEST = 24, MOST_TOKENS = N_SEQUENCES * LONGEST };

/* Lengths that part and batch sizes do not divide; some neighbours are alike. */
static const int64_t LENGTHS[N_SEQUENCES] = {16, 16, 5, 24, 16, 16, 1, 7, 16};

typedef struct {
    Sequences s;
    int64_t   start[N_SEQUENCES + 1];
    int32_t   ids[MOST_TOKENS], targets[MOST_TOKENS];
    Span      spans[N_SEQUENCES];
} Text;

static void make_text(Text *t, int64_t vocab)
{
    uint64_t seed = 3;
    *t = (Text){.s = {.n = N_SEQUENCES}};
    for (int i = 0; i < N_SEQUENCES; i++) {
        t->start[i + 1] = t->start[i] + LENGTHS[i];
        t->spans[i] = (Span){i % 3, i % 3 + (LENGTHS[i] > 5 ? 2 : 0)};
    }
    for (int64_t i = 0; i < t->start[N_SEQUENCES]; i++) {
        t->ids[i] = (int32_t)((check_uniform(&seed) + 1) / 2 * (float)(vocab - 1));
        t->targets[i] = i % 4 ? (int32_t)((check_uniform(&seed) + 1) / 2 * (float)(vocab - 1)) : -1;
    }
    t->s.start = t->start;
    t->s.ids = t->ids;
    t->s.targets = t->targets;
    t->s.spans = t->spans;
}

/* All that a run leaves: scores, and every series of its records. */
typedef struct {
    Arena     arena;
    SeriesSet set;
    float     logprob[MOST_TOKENS];
    int32_t   best[MOST_TOKENS];
} Result;

static Status run(Result *r, Subject *s, const Text *t, RunQuant quant, int64_t batch_tokens)
{
    Probe  probe;
    Scorer sc = {.model = &s->m, .quant = quant, .probe = &probe, .batch_tokens = batch_tokens};
    *r = (Result){0};
    series_set_init(&r->set, &r->arena, "m");
    TRY(probe_init(&probe, &r->arena, &s->m, LONGEST));
    TRY(score_run(&sc, &t->s, r->logprob, r->best));
    return probe_series(&probe, &s->m, &r->set);
}

static bool same_series(const Series *a, const Series *b)
{
    return b && series_count(a) == series_count(b) && a->type == b->type &&
           memcmp(a->data, b->data, (size_t)series_count(a) * series_type_size(a->type)) == 0;
}

static bool same_result(const Result *a, const Result *b)
{
    bool same = memcmp(a->logprob, b->logprob, sizeof a->logprob) == 0 &&
                memcmp(a->best, b->best, sizeof a->best) == 0 && a->set.n == b->set.n;
    for (int64_t i = 0; same && i < a->set.n; i++)
        same = same_series(&a->set.at[i], series_find(&b->set, a->set.at[i].name));
    return same;
}

/* Streamed in one part, in parts of several sequences and of one, over one batch and over
 * several. */
static void check_model(const char *name, Dtype dtype, RunQuant quant)
{
    static const struct {
        int64_t batch, part;
    } CASES[] = {{0, 0}, {0, 33}, {0, 1}, {50, 20}};
    ModelOptions held = {.dtype = dtype}, streamed = {.dtype = dtype, .stream = true};
    Subject      a, b;
    Text         t;
    Result       want, got;
    T_STATUS_OK(subject_open(&a, golden_folder(name), &held, 2));
    make_text(&t, a.m.config.vocab);
    T_STATUS_OK(run(&want, &a, &t, quant, 0));
    T_STATUS_OK(subject_open(&b, golden_folder(name), &streamed, 1));
    size_t idle = b.be.arena.used;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        b.m.loader->part_rows = CASES[i].part;
        T_STATUS_OK(run(&got, &b, &t, quant, CASES[i].batch));
        bool same = same_result(&want, &got);
        if (!same)
            printf("%s: case %zu\n", name, i);
        T_OK(same);
        T_OK(b.be.arena.used == idle);   // nothing of a layer is left behind
        arena_close(&got.arena);
    }
    arena_close(&want.arena);
    subject_close(&a);
    subject_close(&b);
}

TEST(every_model_streams_to_the_same_bits)
{
    Arena        a = {0};
    const char **names;
    int64_t      n;
    T_STATUS_OK(golden_names(&names, &n, &a));
    T_OK(n > 50);
    for (int64_t i = 0; i < n; i++)
        check_model(names[i], i % 3 ? DTYPE_F32 : DTYPE_BF16, (RunQuant){.bits = 16});
    arena_close(&a);
}
