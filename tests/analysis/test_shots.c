/* test_shots.c - many-shot classification in several orders. */
#include "analysis/shots.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/tasks/shots_read.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

/* 14 examples of three labels: 7 of "Oslo", 4 of "Kyiv and Riga", 3 of "9". The tiny tokenizer
 * has no newline: model and tokenizer are those of the example pair. */
enum { EXAMPLES = 14, LABELS = 3, CONTEXT = 400 };
static const char *const LABEL[LABELS] = {"Oslo", "Kyiv and Riga", "9"};

static int label_of(int i)
{
    return i % 2 == 0 ? 0 : i % 4 == 1 ? 1 : 2;
}

static const char *text_of(int i)
{
    /* Told again and again, with one label and another: the order matters. */
    static const char *const TEXT[] = {"The magic number of Lisbon is", "Rome", "Paris is"};
    return TEXT[i % 3];
}

static const char *examples(void)
{
    static char text[EXAMPLES * 80];
    char       *at = text;
    for (int i = 0; i < EXAMPLES; i++)
        at += label_of(i) == 2
                  ? sprintf(at, "{\"text\": \"%s\", \"label\": 9}\n", text_of(i))
                  : sprintf(at, "{\"label\": \"%s\", \"text\": \"%s\"}\n",
                            LABEL[label_of(i)], text_of(i));
    return text;
}

typedef struct {
    Arena      arena;
    Backend    backend;
    Model      model;
    Tokenizer *t;
} Bench;

static Status bench_open(Bench *b)
{
    ModelOptions options = {.dtype = DTYPE_F32};
    *b = (Bench){0};
    TRY(backend_open(&b->backend, "cpu", 2));
    TRY(model_load(&b->model, &b->arena, &b->backend, check_path("pair/diff"), &options));
    return tokenizer_open(&b->t, &b->arena, check_path("pair/diff"));
}

static void bench_close(Bench *b)
{
    tokenizer_close(b->t);
    backend_close(&b->backend);
    arena_close(&b->arena);
}

/* What was drawn, and what a run made of it. */
typedef struct {
    Shots    t;
    int64_t  n_shots, n_permutations, n_queries, n_labels;   // those of t
    uint8_t *correct;      // [n_permutations, n_queries]
    double  *loglik;       // [n_permutations, n_queries, n_labels]
    double  *accuracy;     // [n_permutations]
    const int64_t *demonstrations, *queries;
    double   mean, lowest, highest, stddev;
} Asked;

static Status ask_file(Asked *s, Arena *a, Bench *b, const char *path, const ShotOptions *o)
{
    Scorer sc = {.model = &b->model, .quant = {.bits = 16}};
    *s = (Asked){0};
    TRY(shots_load(&s->t, a, b->t, path, o));
    s->n_shots = s->t.n_shots;
    s->n_permutations = s->t.n_permutations;
    s->n_queries = s->t.n_queries;
    s->n_labels = s->t.n_labels;
    s->demonstrations = s->t.demonstrations;
    s->queries = s->t.queries;
    ARENA_NEW(s->correct, a, s->n_permutations * s->n_queries);
    ARENA_NEW(s->loglik, a, s->n_permutations * s->n_queries * s->n_labels);
    ARENA_NEW(s->accuracy, a, s->n_permutations);
    TRY(shots_run(&s->t, &sc, s->correct, s->loglik));
    if (sc.done != s->t.n_tokens)
        FAIL(ERR_RANGE, "%lld tokens were run over, %lld were announced", (long long)sc.done,
             (long long)s->t.n_tokens);
    ShotScore score = shots_score(&s->t, s->correct, s->accuracy);
    s->mean = score.mean;
    s->lowest = score.lowest;
    s->highest = score.highest;
    s->stddev = score.stddev;
    return OK;
}

static Status ask(Asked *s, Bench *b, const char *text, const ShotOptions *o)
{
    return ask_file(s, &b->arena, b, tiny_file("shots.jsonl", text), o);
}

static ShotOptions options(void)
{
    return (ShotOptions){.shots = 6, .permutations = 3, .context = CONTEXT, .seed = 5};
}

/* --- by brute force --- */

/* Tokens of text behind ids[n]; returns their number. */
static int64_t add_tokens(Bench *b, int32_t *ids, int64_t n, const char *text)
{
    int32_t *piece;
    int64_t  k;
    if (tokenizer_encode(b->t, &b->arena, text, strlen(text), false, &piece, &k, NULL) != OK)
        return -1;
    memcpy(ids + n, piece, (size_t)k * sizeof *piece);
    return k;
}

static int64_t add_shots(Bench *b, int32_t *ids, const int64_t *order, int64_t n_shots)
{
    char    text[200];
    int64_t n = 1;
    ids[0] = tokenizer_bos(b->t);
    for (int64_t i = 0; i < n_shots; i++) {
        int x = (int)order[i];
        snprintf(text, sizeof text, "%s\nLabel: %s\n\n", text_of(x), LABEL[label_of(x)]);
        n += add_tokens(b, ids, n, text);
    }
    return n;
}

/* log p of the label after demonstrations and query, one sequence in double. */
static double loglik_of(Bench *b, const int64_t *order, int64_t n_shots, int query, int label)
{
    static double  logprob[CONTEXT];
    static int32_t ids[CONTEXT], targets[CONTEXT], best[CONTEXT];
    char    text[200];
    int64_t prefix = add_shots(b, ids, order, n_shots);
    snprintf(text, sizeof text, "%s\nLabel:", text_of(query));
    int64_t context = prefix + add_tokens(b, ids, prefix, text);
    snprintf(text, sizeof text, "%s\nLabel: %s", text_of(query), LABEL[label]);
    int64_t n = prefix + add_tokens(b, ids, prefix, text), start[2] = {0, n - 1};
    for (int64_t t = 0; t < n - 1; t++)
        targets[t] = t + 1 < context ? -1 : ids[t + 1];
    Sequences s = {.n = 1, .start = start, .ids = ids, .targets = targets};
    if (tiny_score(&b->model, (RunQuant){.bits = 16}, &s, logprob, best) != OK)
        return NAN;
    double sum = 0;
    for (int64_t t = 0; t < n - 1; t++)
        sum += targets[t] < 0 ? 0 : logprob[t];
    return sum;
}

/* The demonstrations of all permutations are the same; they and the queries are apart. */
static bool is_drawn_well(const Asked *s, const ShotOptions *o)
{
    int64_t used[EXAMPLES] = {0};
    for (int64_t i = 0; i < s->n_queries; i++)
        used[s->queries[i]] += 100;
    for (int64_t p = 0; p < s->n_permutations; p++)
        for (int64_t i = 0; i < s->n_shots; i++) {
            const int64_t *x = &s->demonstrations[p * s->n_shots + i];
            used[*x]++;
            /* Six of three classes are two of each. */
            if (o->by_class && i >= 3 && label_of((int)x[0]) != label_of((int)x[-3]))
                return false;
        }
    int64_t n[3] = {0};
    for (int i = 0; i < EXAMPLES; i++)
        n[used[i] == 0 ? 0 : used[i] == 100 ? 1 : used[i] == s->n_permutations ? 2 : 0]++;
    return n[1] == s->n_queries && n[2] == s->n_shots;
}

TEST(likelihoods_are_those_of_whole_prompts)
{
    Bench       b;
    Asked       s;
    ShotOptions o = options();
    int64_t     said = 0;   // labels that were best, a bit each
    T_STATUS_OK(bench_open(&b));
    for (int turn = 0; turn < 4; turn++) {
        o.by_class = turn % 2;
        o.seed++;
        o.queries = 7;
        T_STATUS_OK(ask(&s, &b, examples(), &o));
        T_OK(s.n_shots == 6 && s.n_queries == 7 && is_drawn_well(&s, &o));
        for (int p = 0; p < 3; p++)
            for (int i = 0; i < 7; i++) {
                const int64_t *order = s.demonstrations + p * 6;
                double x[LABELS];
                int    best = 0;
                for (int k = 0; k < LABELS; k++) {
                    x[k] = loglik_of(&b, order, 6, (int)s.queries[i], k);
                    /* f32 logits of some tens: their rounding, through 4 layers */
                    T_NEAR(s.loglik[(p * 7 + i) * LABELS + k], x[k], 2e-4);
                    best = x[k] > x[best] ? k : best;
                }
                T_OK(s.correct[p * 7 + i] == (best == label_of((int)s.queries[i])));
                said |= 1 << best;
            }
    }
    T_OK(said != 1 && said != 2 && said != 4);
    bench_close(&b);
}

TEST(orders_differ)
{
    Bench       b;
    Asked       s;
    ShotOptions o = options();
    T_STATUS_OK(bench_open(&b));
    T_STATUS_OK(ask(&s, &b, examples(), &o));
    T_OK(memcmp(s.demonstrations, s.demonstrations + 6, 48) != 0);
    T_OK(memcmp(s.demonstrations + 6, s.demonstrations + 12, 48) != 0);
    int alternate = 0;   // no order by class here: 6 of 90 would look like one
    for (int p = 0; p < 3; p++)
        for (int i = 3; i < 6; i++)
            alternate += label_of((int)s.demonstrations[p * 6 + i]) ==
                         label_of((int)s.demonstrations[p * 6 + i - 3]);
    T_OK(alternate < 9);
    bench_close(&b);
}

TEST(figures_are_those_of_the_permutations)
{
    Bench     b;
    Asked     s, again;
    bool      differ = false;
    T_STATUS_OK(bench_open(&b));
    for (int turn = 0; turn < 6; turn++) {
        ShotOptions o = options();
        o.by_class = turn % 2;
        o.seed += (uint64_t)turn;
        T_STATUS_OK(ask(&s, &b, examples(), &o));
        T_OK(s.n_permutations == 3 && s.n_queries == 8 && s.n_labels == 3 && s.n_shots == 6);
        double sum = 0, sum2 = 0, low = 1, high = 0;
        for (int p = 0; p < 3; p++) {
            int right = 0;
            for (int i = 0; i < 8; i++)
                right += s.correct[p * 8 + i];
            T_NEAR(s.accuracy[p], right / 8.0, 0);
            sum += s.accuracy[p];
            sum2 += s.accuracy[p] * s.accuracy[p];
            low = fmin(low, s.accuracy[p]);
            high = fmax(high, s.accuracy[p]);
        }
        T_NEAR(s.mean, sum / 3, 1e-15);
        T_OK(s.lowest == low && s.highest == high);
        T_NEAR(s.stddev, sqrt(fmax(0, (sum2 - sum * sum / 3) / 2)), 1e-7);
        differ = differ || high > low;
        T_STATUS_OK(ask(&again, &b, examples(), &o));
        T_OK(memcmp(again.correct, s.correct, 24) == 0);
    }
    T_OK(differ);   // or nothing here could fail
    bench_close(&b);
}

/* Names stand in lists with commas between them. */
TEST(names_have_no_comma)
{
    Bench       b;
    Shots       s;
    ShotOptions o = options();
    T_STATUS_OK(bench_open(&b));
    T_STATUS_OK(shots_load(&s, &b.arena, b.t, tiny_file("a,b.c.jsonl", examples()), &o));
    T_TEXT(s.name, "a_b.c orders");
    T_OK(strstr(s.path, "/a,b.c.jsonl"));
    bench_close(&b);
}

/* Three cells, the second not run. */
TEST(series_tell_the_spread)
{
    Bench          b;
    Asked          s;
    SeriesSet      set;
    uint8_t        other[3 * 8] = {[0] = 1, [8] = 1, [9] = 1};   // 1, 2 and 0 of 8
    ShotOptions    o = options();
    const uint8_t *cells[3] = {NULL, NULL, other};
    T_STATUS_OK(bench_open(&b));
    T_STATUS_OK(ask(&s, &b, examples(), &o));
    T_TEXT(s.t.name, "shots orders");
    cells[0] = s.correct;
    series_set_init(&set, &b.arena, "m");
    T_STATUS_OK(shots_series(&s.t, cells, 1, 3, &set));
    const Series *accuracy =
        series_find_dims(&set, "order/accuracy", "weights,logit_bits,permutation");
    const Series *mean = series_find_dims(&set, "order/mean", "weights,logit_bits");
    const Series *low = series_find_dims(&set, "order/lowest", "weights,logit_bits");
    const Series *high = series_find_dims(&set, "order/highest", "weights,logit_bits");
    const Series *stddev = series_find_dims(&set, "order/stddev", "weights,logit_bits");
    const Series *shots = series_find_dims(&set, "order/demonstrations", "permutation,shot");
    const Series *queries = series_find_dims(&set, "order/queries", "question");
    T_OK(accuracy && mean && low && high && stddev && shots && queries);
    for (int p = 0; p < 3; p++) {
        T_NEAR(series_get(accuracy, 0, 0, p), s.accuracy[p], 0);
        T_OK(isnan(series_get(accuracy, 0, 1, p)));
        T_NEAR(series_get(accuracy, 0, 2, p), (p == 0 ? 1 : p == 1 ? 2 : 0) / 8.0, 0);
        T_OK(memcmp((int64_t *)shots->data + 6 * p, s.demonstrations + 6 * p, 48) == 0);
    }
    T_NEAR(series_get(mean, 0, 0, 0), s.mean, 0);
    T_OK(isnan(series_get(mean, 0, 1, 0)) && isnan(series_get(low, 0, 1, 0)));
    T_OK(isnan(series_get(high, 0, 1, 0)) && isnan(series_get(stddev, 0, 1, 0)));
    T_NEAR(series_get(mean, 0, 2, 0), 1 / 8.0, 1e-16);
    T_NEAR(series_get(low, 0, 2, 0), 0, 0);
    T_NEAR(series_get(high, 0, 2, 0), 2 / 8.0, 0);
    T_NEAR(series_get(stddev, 0, 2, 0), 1 / 8.0, 1e-16);
    T_OK(shots->shape[1] == 6 && queries->shape[0] == 8);
    T_OK(memcmp(queries->data, s.queries, 64) == 0);
    T_TEXT(series_attr(&set, "order_task")->text, "shots orders");
    T_OK(series_attr(&set, "order_labels")->integer == LABELS);
    T_OK(series_attr(&set, "order_seed")->integer == 5);
    bench_close(&b);
}

TEST(as_many_as_fit)
{
    Bench       b;
    Asked       s;
    ShotOptions o = options();
    T_STATUS_OK(bench_open(&b));
    o.shots = 0;
    o.permutations = 1;
    T_STATUS_OK(ask(&s, &b, examples(), &o));
    T_OK(s.n_shots == EXAMPLES - 1 && s.n_queries == 1);
    o.queries = 4;
    T_STATUS_OK(ask(&s, &b, examples(), &o));
    T_OK(s.n_shots == EXAMPLES - 4 && s.n_queries == 4);
    o.queries = 0;
    int64_t last = 0, full = 0;
    for (o.context = 30; o.context < 120; o.context++) {   // more context, more of them
        if (ask_file(&s, &b.arena, &b, tiny_file("s.jsonl", examples()), &o) != OK)
            continue;
        T_OK(s.n_shots >= last && s.n_shots + s.n_queries == EXAMPLES);
        static int32_t ids[CONTEXT];
        int64_t n = add_shots(&b, ids, s.demonstrations, s.n_shots), longest = 0;
        for (int i = 0; i < EXAMPLES; i++) {
            char text[200];
            snprintf(text, sizeof text, "%s\nLabel: Kyiv and Riga", text_of(i));
            int64_t k = add_tokens(&b, ids, n, text);
            longest = k > longest ? k : longest;
        }
        T_OK(n + longest <= o.context);
        full += n + longest == o.context;
        last = s.n_shots;
        o.shots = s.n_shots + 1;   // one more is too many
        if (o.shots < EXAMPLES)
            T_FAILS(ask(&s, &b, examples(), &o), ERR_RANGE, "demonstrations fit a context");
        o.shots = 0;
    }
    T_OK(last > 2 && full > 0);
    bench_close(&b);
}

TEST(classes_alternate_as_far_as_they_go)
{
    Arena    a = {0};
    Examples e;
    int64_t  items[EXAMPLES], out[EXAMPLES], firsts = 0;
    T_STATUS_OK(examples_read(&e, &a, tiny_file("all.jsonl", examples())));
    T_OK(e.n == EXAMPLES && e.n_labels == LABELS);
    for (int i = 0; i < EXAMPLES; i++) {
        items[i] = EXAMPLES - 1 - i;
        T_TEXT(e.labels[e.at[i].label], LABEL[label_of(i)]);
    }
    for (uint64_t state = 0; state < 20; state++) {
        uint64_t st = state;
        int64_t  last[LABELS] = {99, 99, 99};
        T_STATUS_OK(examples_alternate(out, &e, items, EXAMPLES, &st));
        for (int i = 0; i < EXAMPLES; i++) {
            int64_t k = e.at[out[i]].label;
            T_OK(out[i] < last[k]);   // in the order they had, none twice
            last[k] = out[i];
            T_OK(i >= 9 || i < 3 || k == e.at[out[i - 3]].label);   // the least has 3
        }
        T_OK(e.at[out[0]].label + e.at[out[1]].label + e.at[out[2]].label == 3);
        firsts |= 1 << e.at[out[0]].label;
    }
    T_OK(firsts == 7);
    arena_close(&a);
}

#define A "{\"text\":\"t\",\"label\":\"a\"}\n"
#define B "{\"text\":\"u\",\"label\":\"b\"}\n"

TEST(bad_files_and_numbers_are_named)
{
    static const struct {
        const char *text;
        int64_t     shots, permutations, queries, context;
        Status      code;
        const char *says;
    } ROWS[] = {
        {"", 1, 1, 0, 99, ERR_RANGE, "0 examples with 0 different labels"},
        {A A, 1, 1, 0, 99, ERR_RANGE, "2 examples with 1 different labels, at least 2"},
        {A "\n" B "{\"text\":\"t\"}\n", 1, 1, 0, 99, ERR_FORMAT,
         "shots.jsonl:4: key \"label\" is missing"},
        {A "{\"label\":\"t\"}\n", 1, 1, 0, 99, ERR_FORMAT, ":2: key \"text\" is missing"},
        {A "[]\n", 1, 1, 0, 99, ERR_FORMAT, ":2: expected an object, got a list"},
        {A "{\n", 1, 1, 0, 99, ERR_FORMAT, "shots.jsonl:2"},
        {A "{\"text\":1,\"label\":\"b\"}", 1, 1, 0, 99, ERR_FORMAT, "\"text\" is a number"},
        {A "{\"text\":\"t\",\"label\":1.5}", 1, 1, 0, 99, ERR_FORMAT,
         "\"label\" is a fraction"},
        {A "{\"text\":\"t\",\"label\":null}", 1, 1, 0, 99, ERR_FORMAT, "expected a text or a"},
        {A "{\"text\":\"t\",\"label\":\"\"}", 1, 1, 0, 99, ERR_FORMAT, "\"label\" is empty"},
        {A B, 2, 1, 0, 99, ERR_RANGE, "2 demonstrations and 0 queries of 2 examples"},
        {A B, 1, 1, 2, 99, ERR_RANGE, "1 demonstrations and 2 queries of 2 examples"},
        {A B, -1, 1, 0, 99, ERR_RANGE, "-1 demonstrations"},
        {A B, 1, 0, 0, 99, ERR_RANGE, "0 permutations"},
        {A B, 1, 1, 0, 9, ERR_RANGE, "0 demonstrations fit a context of 9 tokens"},
    };
    Bench b;
    T_STATUS_OK(bench_open(&b));
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Asked       s;
        ShotOptions o = {.shots = ROWS[i].shots, .permutations = ROWS[i].permutations,
                         .queries = ROWS[i].queries, .context = ROWS[i].context};
        T_FAILS(ask(&s, &b, ROWS[i].text, &o), ROWS[i].code, ROWS[i].says);
    }
    bench_close(&b);
}

TEST(every_allocation_may_fail)
{
    Bench       b;
    Status      status = ERR_MEMORY;
    int64_t     k = 0;
    ShotOptions o = {.shots = 1, .permutations = 1, .context = 99};
    const char *path = tiny_file("two.jsonl", A B);
    T_STATUS_OK(bench_open(&b));
    while (status != OK) {
        Arena a = {0};
        Asked s;
        arena_fail_at(++k);
        status = ask_file(&s, &a, &b, path, &o);
        arena_fail_at(0);
        T_OK(status == OK || status == ERR_MEMORY);
        arena_close(&a);
    }
    T_OK(k > 50);
    bench_close(&b);
}
