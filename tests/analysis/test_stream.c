/* test_stream.c - models whose weights are read anew for each batch give the bits of those that
 * hold them, whatever the parts in which a batch goes through a layer. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "analysis/choice.h"
#include "analysis/divergence.h"
#include "analysis/model/load.h"
#include "tests/analysis/ref_golden.h"

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
        t->targets[i] = i % 4 ? t->ids[i] / 2 : -1;
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

static Status open_both(Subject *held, Subject *streamed, const char *name)
{
    ModelOptions o = {.dtype = DTYPE_F32};
    TRY(subject_open(held, golden_folder(name), &o, 1));
    o.stream = true;
    return subject_open(streamed, golden_folder(name), &o, 2);
}

/* Choices whose beginning is run once: rows of one sequence are keys of another. */
TEST(choices_stream_to_the_same_bits)
{
    enum { N = 3, PREFIX = 9 };
    Subject       a, b;
    int32_t       ids[N * (PREFIX + N)], targets[N * (PREFIX + N)];
    int64_t       start[N + 1] = {0}, first[2] = {0, N};
    ChoiceRequest requests[N] = {{.choice = 0}, {.choice = 1}, {.choice = 2}};
    double        want[N], got[N];
    for (int64_t r = 0, at = 0; r < N; r++) {
        for (int64_t t = 0; t < PREFIX + r + 1; t++, at++) {
            ids[at] = (int32_t)(t < PREFIX ? 3 + t : 20 + r + t);
            targets[at] = t + 1 < PREFIX ? -1 : (int32_t)(21 + r + t);
        }
        start[r + 1] = at;
    }
    Choice c = {.name = "by hand", .kind = CHOICE_GENERIC, .n = 1, .first = first,
                .n_requests = N, .requests = requests,
                .seq = {.n = N, .start = start, .ids = ids, .targets = targets}};
    T_STATUS_OK(open_both(&a, &b, "models/diff_gqa"));
    Scorer held = {.model = &a.m, .quant = {.bits = 16}};
    Scorer streamed = {.model = &b.m, .quant = {.bits = 16}};
    T_OK(model_can_branch(&a.m, held.quant));
    T_STATUS_OK(choice_run(&c, &held, want, NULL));
    T_STATUS_OK(choice_run(&c, &streamed, got, NULL));
    T_OK(memcmp(want, got, sizeof want) == 0 && want[0] < 0 && want[0] != want[2]);
    subject_close(&a);
    subject_close(&b);
}

static Status diverge(Divergence *d, Model *m, Model *reference, const Windows *w)
{
    Scorer     sc = {.model = m, .quant = {.bits = 4}};
    Scorer     exact = {.model = reference, .quant = {.bits = 16}};
    Arena      a = {0};
    Reference  r;
    Perplexity p;
    TRY(reference_open(&r, &exact, w, 0));
    TRY(divergence_run(d, &p, &a, &sc, &r));
    arena_close(&a);
    return OK;
}

/* Two heads are at work at once, of two models or of one. */
TEST(divergence_streams_to_the_same_bits)
{
    Subject       a, b, c;
    Arena         arena = {0};
    WindowOptions o = {.context = 16};
    Windows       w;
    int32_t       ids[100];
    Divergence    want, got[2];
    for (int32_t i = 0; i < 100; i++)
        ids[i] = 3 + i * 7 % 90;
    T_STATUS_OK(open_both(&a, &b, "models/diff_gqa"));
    T_STATUS_OK(subject_open(&c, golden_folder("models/diff_gqa"),
                             &(ModelOptions){.dtype = DTYPE_F32}, 1));
    T_STATUS_OK(windows_from_ids(&w, &arena, "x", ids, 100, 1, &o));
    T_STATUS_OK(diverge(&want, &a.m, &c.m, &w));
    T_STATUS_OK(diverge(&got[0], &b.m, &a.m, &w));
    T_STATUS_OK(diverge(&got[1], &b.m, &b.m, &w));
    T_OK(want.kl > 0);
    for (int i = 0; i < 2; i++)
        T_OK(memcmp(&want, &got[i], sizeof want) == 0);
    subject_close(&a);
    subject_close(&b);
    subject_close(&c);
    arena_close(&arena);
}

/* Streamed weights are looked at as they are read; nothing is left half packed. */
TEST(a_stream_survives_every_failed_allocation)
{
    Subject s;
    Text    t;
    Result  want, r;
    ModelOptions o = {.dtype = DTYPE_F32, .stream = true};
    T_STATUS_OK(subject_open(&s, golden_folder("models/diff_gqa"), &o, 1));
    make_text(&t, s.m.config.vocab);
    T_STATUS_OK(run(&want, &s, &t, (RunQuant){.bits = 16}, 0));
    size_t idle = s.be.arena.used;
    Status status = ERR_MEMORY;
    for (int k = 1; status != OK && k < 5000; k += 1 + k / 20) {
        arena_fail_at(k);
        status = run(&r, &s, &t, (RunQuant){.bits = 16}, 0);
        arena_fail_at(0);
        T_OK(status == OK || status == ERR_MEMORY);
        T_OK(s.be.arena.used == idle);
        arena_close(&r.arena);
    }
    T_OK(status == OK);
    T_STATUS_OK(run(&r, &s, &t, (RunQuant){.bits = 16}, 0));
    T_OK(same_result(&want, &r));
    arena_close(&r.arena);
    arena_close(&want.arena);
    subject_close(&s);
}
