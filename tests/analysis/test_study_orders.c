/* test_study_orders.c - orders of demonstrations and generated needles as columns of a
 * study: what is stored, the errors and the tests that follow from it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/needles.h"
#include "analysis/study.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

/* The tiny tokenizer has no newline: the example pair has. */
typedef struct {
    Arena      arena;
    Backend    backend;
    Model      model;
    Tokenizer *t;
    Shots      orders;      // 3 orders of 5 questions
    Needles    needles;     // 5 episodes
    Retrieval  file;        // of them
} Bench;

enum { ORDERS = 3, QUESTIONS = 5, EPISODES = 5 };
static const char *const WEIGHTS[] = {"fp", "w16kv4"};
static const RunQuant    RUNS[] = {{.bits = 16}, {.bits = 16, .kv = 4}};
static const int         BITS[] = {8, 16};

static const char *examples(void)
{
    static char text[900];
    char       *at = text;
    for (int i = 0; i < 9; i++)
        at += sprintf(at, "{\"text\": \"The magic number of %s is\", \"label\": \"%s\"}\n",
                      i % 2 ? "Rome" : "Lisbon", i % 3 ? "Oslo" : "Riga");
    return text;
}

static const char FILLER[] = "The ls command lists the files of a folder. It sorts names. "
                             "The cat command prints a file. The cd command goes there. "
                             "The rm command removes what it is told to remove. ";

static Status bench_open(Bench *b)
{
    ModelOptions  options = {.dtype = DTYPE_F32};
    ShotOptions   so = {.shots = 4, .permutations = ORDERS, .context = 200};
    NeedleOptions no = {.needles = 1, .asked = 1, .samples = 1, .context = 40, .filler = FILLER,
                        .n_filler = sizeof FILLER - 1, .form = NEEDLES_STATEMENT};
    *b = (Bench){0};
    TRY(backend_open(&b->backend, "cpu", 2));
    TRY(model_load(&b->model, &b->arena, &b->backend, check_path("pair/diff"), &options));
    TRY(tokenizer_open(&b->t, &b->arena, check_path("pair/diff")));
    TRY(shots_load(&b->orders, &b->arena, b->t, tiny_file("trec.jsonl", examples()), &so));
    TRY(needles_make(&b->needles, &b->arena, b->t, &no));
    b->file = b->needles.episodes;
    return OK;
}

static void bench_close(Bench *b)
{
    tokenizer_close(b->t);
    backend_close(&b->backend);
    arena_close(&b->arena);
}

static StudyOptions options(const Bench *b)
{
    return (StudyOptions){.n_weights = 2, .weights = WEIGHTS, .runs = RUNS, .n_bits = 2,
                          .bits = BITS, .scale = SCALE_ROW, .n_files = 1, .files = &b->file,
                          .orders = &b->orders};
}

static int64_t last_done, last_total;

static void see(void *context, int64_t done, int64_t total, const char *what)
{
    (void)context;
    (void)what;
    last_done = done;
    last_total = total;
}

TEST(orders_are_the_last_column)
{
    Bench    b;
    Study    s;
    Progress progress = {see, NULL};
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.progress = &progress;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_OK(s.n_tasks == 2 && s.n_sources == 2 && s.source_items[1] == ORDERS * QUESTIONS);
    T_TEXT(s.tasks[0].name, "needles-n1r1");
    T_TEXT(s.tasks[1].name, "trec orders");
    T_OK(s.tasks[0].turns == 1 && s.tasks[1].turns == ORDERS);
    T_OK(s.tasks[1].n == ORDERS * QUESTIONS && s.tasks[1].source == 1);
    for (int w = 0; w < 2; w++)
        T_STATUS_OK(study_weights(&s, w, &b.model, NULL));
    T_OK(last_done == last_total && last_total == s.total);
    for (int c = 0; c < 4; c++) {
        uint8_t  correct[ORDERS * QUESTIONS], found[EPISODES];
        RunQuant q = RUNS[c / 2];
        q.bits = BITS[c % 2];
        q.scale = SCALE_ROW;
        Scorer sc = {.model = &b.model, .quant = q};
        T_STATUS_OK(shots_run(&b.orders, &sc, correct, NULL));
        T_STATUS_OK(retrieval_run(&b.file, &sc, found));
        T_OK(memcmp(s.cells[c].correct[1], correct, sizeof correct) == 0);
        T_OK(memcmp(s.cells[c].correct[0], found, sizeof found) == 0);
    }
    bench_close(&b);
}

/* Questions asked three times are five, not fifteen: right 3, 3, 1, 0 and 2 times. */
static const uint8_t THRICE[] = {1, 1, 0, 0, 1,  1, 1, 1, 0, 1,  1, 1, 0, 0, 0};
static const uint8_t OTHER[] = {1, 1, 0, 0, 0,  1, 0, 0, 0, 0,  1, 1, 0, 0, 0};

TEST(errors_are_of_questions)
{
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    StudyCell *c = study_cell(&s, 0, 1);
    memcpy(c->correct[1], THRICE, sizeof THRICE);
    memcpy(c->correct[0], (uint8_t[]){1, 0, 0, 1, 1}, EPISODES);
    study_score(&s, c);
    T_NEAR(study_question(&s.tasks[1], THRICE, 0), 1, 0);
    T_NEAR(study_question(&s.tasks[1], THRICE, 2), 1 / 3.0, 0);
    T_NEAR(study_question(&s.tasks[1], THRICE, 4), 2 / 3.0, 0);
    T_OK(c->tasks[1].n == 15 && c->tasks[1].n_correct == 9);
    T_NEAR(c->tasks[1].accuracy, 0.6, 1e-16);
    /* of 1, 1, 1/3, 0, 2/3: squares of .4, .4, .26667, .6, .06667 sum to .75556 */
    T_NEAR(c->tasks[1].error, sqrt((0.32 + 0.36 + 0.64 / 9 + 0.04 / 9) / 4 / 5), 1e-15);
    T_NEAR(c->tasks[0].accuracy, 0.6, 1e-16);
    T_NEAR(c->tasks[0].error, sqrt(0.6 * 0.4 / 4), 1e-15);
    bench_close(&b);
}

static void fill(Study *s, int w, int b, const uint8_t *orders, const uint8_t *needles)
{
    StudyCell *c = study_cell(s, w, b);
    memcpy(c->correct[1], orders, ORDERS * QUESTIONS);
    memcpy(c->correct[0], needles, EPISODES);
    study_score(s, c);
    c->done = true;
}

TEST(tests_are_of_questions)
{
    static const uint8_t ALL[] = {1, 1, 1, 1, 1}, TWO[] = {1, 0, 0, 1, 0};
    Bench     b;
    Study     s, first;
    SeriesSet set;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_init(&first, &b.arena, &o));
    fill(&s, 0, 1, THRICE, ALL);   // the unquantized one: its bits come second
    fill(&s, 1, 0, OTHER, TWO);
    fill(&first, 1, 0, THRICE, TWO);
    series_set_init(&set, &b.arena, "m");
    T_STATUS_OK(study_series(&s, &set));
    T_STATUS_OK(study_versus(&s, &first, "other", &set));
    const Series *d = series_find_dims(&set, "paired/accuracy", "task,weights,logit_bits");
    const Series *e = series_find(&set, "paired/accuracy_stderr");
    const Series *p = series_find(&set, "paired/accuracy_p");
    const Series *v = series_find(&set, "versus/accuracy");
    const Series *vp = series_find(&set, "versus/accuracy_p");
    T_OK(d && e && p && v && vp);
    double one[] = {1, 1, 1 / 3.0, 0, 2 / 3.0}, other[] = {1, 2 / 3.0, 0, 0, 0};
    PairedMean want = paired_mean(one, other, QUESTIONS);
    T_NEAR(series_get(d, 1, 1, 0), want.difference, 1e-16);
    T_NEAR(series_get(e, 1, 1, 0), want.error, 1e-16);
    T_NEAR(series_get(p, 1, 1, 0), want.p, 1e-16);
    T_NEAR(series_get(d, 1, 1, 0), -4 / 15.0, 1e-15);
    T_NEAR(series_get(v, 1, 1, 0), -4 / 15.0, 1e-15);
    T_NEAR(series_get(vp, 1, 1, 0), want.p, 1e-16);
    T_NEAR(series_get(d, 0, 1, 0), -0.6, 1e-15);
    T_NEAR(series_get(p, 0, 1, 0), paired_of(ALL, TWO, EPISODES).p, 0);   // McNemar's
    T_NEAR(series_get(v, 0, 1, 0), 0, 0);
    T_NEAR(series_get(vp, 0, 1, 0), 1, 0);
    for (int w = 0; w < 2; w++)
        for (int k = 0; k < 2; k++) {   // itself, and what was not run
            T_OK(isnan(series_get(d, 1, w, k)) == (w != 1 || k != 0));
            T_OK(isnan(series_get(v, 1, w, k)) == (w != 1 || k != 0));
        }
    bench_close(&b);
}

TEST(series_of_orders)
{
    Bench     b;
    Study     s;
    SeriesSet set;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    fill(&s, 1, 0, THRICE, (const uint8_t[EPISODES]){0});
    series_set_init(&set, &b.arena, "m");
    T_STATUS_OK(study_series(&s, &set));
    const Series *accuracy = series_find(&set, "order/accuracy");
    const Series *items = series_find(&set, "eval/correct");
    T_OK(accuracy && items && accuracy->shape[0] == 2 && accuracy->shape[1] == 2);
    T_NEAR(series_get(accuracy, 1, 0, 0), 3 / 5.0, 0);
    T_NEAR(series_get(accuracy, 1, 0, 1), 4 / 5.0, 0);
    T_NEAR(series_get(accuracy, 1, 0, 2), 2 / 5.0, 0);
    T_OK(isnan(series_get(accuracy, 1, 1, 0)) && isnan(series_get(accuracy, 0, 0, 0)));
    T_NEAR(series_get(series_find(&set, "order/lowest"), 1, 0, 0), 2 / 5.0, 0);
    T_NEAR(series_get(series_find(&set, "order/stddev"), 1, 0, 0), 0.2, 1e-15);
    T_OK(items->shape[2] == EPISODES + ORDERS * QUESTIONS);
    for (int i = 0; i < ORDERS * QUESTIONS; i++) {
        T_OK(series_get(items, 1, 0, EPISODES + i) == THRICE[i]);
        T_OK(series_get(items, 0, 0, EPISODES + i) == -1);
    }
    T_OK(series_get(series_find(&set, "eval/items"), 1, 0, 0) == ORDERS * QUESTIONS);
    T_OK(strstr(series_attr(&set, "eval_convention")->text, "a question's mean over the orders"));
    bench_close(&b);
}

/* What another run has found stands in the unquantized cell, and in no other. */
TEST(what_is_given_is_not_asked)
{
    Bench    b;
    Study    s;
    Progress progress = {see, NULL};
    uint8_t  given[EPISODES], found[EPISODES];
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.progress = &progress;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    Scorer sc = {.model = &b.model, .quant = {.bits = 16, .scale = SCALE_ROW}};
    T_STATUS_OK(retrieval_run(&b.file, &sc, found));
    for (int i = 0; i < EPISODES; i++)
        given[i] = !found[i];   // nothing that this model says
    T_STATUS_OK(study_give(&s, 0, given, 5));
    memset(given, 7, sizeof given);   // it was copied
    for (int w = 0; w < 2; w++) {
        T_STATUS_OK(study_weights(&s, w, &b.model, NULL));
        T_OK(last_done == (w + 1) * s.total / 2);   // told as if they had been
    }
    for (int c = 0; c < 4; c++) {
        RunQuant q = RUNS[c / 2];
        q.bits = BITS[c % 2];
        q.scale = SCALE_ROW;
        sc.quant = q;
        T_STATUS_OK(retrieval_run(&b.file, &sc, found));
        T_OK(s.cells[c].n_nan == (c == 1 ? 5 : 0));
        for (int i = 0; i < EPISODES; i++)
            T_OK(s.cells[c].correct[0][i] == (c == 1 ? !found[i] : found[i]));
    }
    o.n_bits = 1;   // without the unquantized cell it is for nothing
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_give(&s, 0, given, 0));
    T_STATUS_OK(study_weights(&s, 0, &b.model, NULL));
    T_OK(s.cells[0].correct[0][0] <= 1);
    bench_close(&b);
}

/* needles_run, which records attention as well, finds what a cell finds; and its series give
 * that back. */
TEST(needles_of_a_record_are_those_of_a_cell)
{
    Bench       b;
    NeedleScore score;
    SeriesSet   set;
    uint8_t     found[EPISODES], *correct;
    int64_t     n_nan;
    T_STATUS_OK(bench_open(&b));
    Scorer sc = {.model = &b.model, .quant = {.bits = 16}};
    T_STATUS_OK(needles_run(&score, &b.arena, &b.needles, &sc));
    T_STATUS_OK(retrieval_run(&b.file, &sc, found));
    T_OK(memcmp(score.correct, found, EPISODES) == 0);
    T_OK(score.n_nan == 0);
    score.n_nan = 6;
    score.correct[1] = 1;
    score.correct[2] = 0;
    series_set_init(&set, &b.arena, "m");
    T_FAILS(needles_correct(&correct, &n_nan, &b.arena, &b.needles, &set), ERR_FORMAT,
            "n1_r1/correct");
    T_STATUS_OK(needles_series(&score, &b.needles, &set));
    T_OK(series_find_dims(&set, "needles/n1_r1/correct", "depth,sample")->shape[1] == 1);
    T_STATUS_OK(needles_correct(&correct, &n_nan, &b.arena, &b.needles, &set));
    T_OK(memcmp(score.correct, correct, EPISODES) == 0 && correct[1] == 1 && correct[2] == 0 &&
         n_nan == 6);
    b.needles.n++;   // other episodes than those
    T_FAILS(needles_correct(&correct, &n_nan, &b.arena, &b.needles, &set), ERR_FORMAT,
            "6 episodes");
    bench_close(&b);
}

/* Tasks of another name, of more items, or of as many in other turns; texts cut otherwise. */
TEST(what_is_not_the_same_is_not_compared)
{
    Bench         b;
    Study         s, first;
    Shots         turned;
    Needles       more;
    Windows       w[2];
    RetrievalTask task;
    double        zeros[64] = {0};
    ShotOptions   so = {.shots = 4, .permutations = 5, .queries = 3, .context = 200};
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(shots_load(&turned, &b.arena, b.t, tiny_file("trec.jsonl", examples()), &so));
    NeedleOptions no = b.needles.o;
    no.samples = 2;
    T_STATUS_OK(needles_make(&more, &b.arena, b.t, &no));
    for (int i = 0; i < 2; i++)
        T_STATUS_OK(windows_from_text(&w[i], &b.arena, b.t, "text", FILLER, sizeof FILLER - 1,
                                      &(WindowOptions){.context = i ? 4 : 8}));
    T_OK(w[0].seq.n < w[1].seq.n && w[1].seq.n < 64 &&
         turned.n_permutations * turned.n_queries == 15);
    task = b.file.tasks[0];
    task.name = "another";
    Retrieval    renamed = b.file;
    StudyOptions of[4] = {o, o, o, o};
    renamed.tasks = &task;
    of[0].orders = &turned;             // and the needles are the same
    of[1].files = &more.episodes;       // and the orders are
    of[2].files = &renamed;
    for (int k = 0; k < 4; k++) {
        o.text = &w[0];
        of[k].text = &w[k == 3];
        T_STATUS_OK(study_init(&s, &b.arena, &o));
        T_STATUS_OK(study_init(&first, &b.arena, &of[k]));
        for (int c = 0; c < 4; c++) {
            s.cells[c].done = first.cells[c].done = true;
            s.cells[c].text.window_nll = first.cells[c].text.window_nll = zeros;
        }
        SeriesSet set;
        series_set_init(&set, &b.arena, "m");
        T_STATUS_OK(study_versus(&s, &first, "first", &set));
        const Series *v = series_find(&set, "versus/accuracy"), *n;
        n = series_find(&set, "versus/nll");
        T_OK(isnan(series_get(v, 0, 1, 0)) == (k == 1 || k == 2));
        T_OK(isnan(series_get(v, 1, 1, 0)) == (k == 0));
        T_OK(isnan(series_get(n, 1, 0, 0)) == (k == 3));
    }
    bench_close(&b);
}

/* Nothing was left as it is: there is nothing to compare with. */
TEST(without_an_unquantized_cell)
{
    static const int EIGHT[] = {8, 4};
    Bench     b;
    Study     s;
    SeriesSet set;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.bits = EIGHT;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_OK(study_exact(&s) == -1);
    series_set_init(&set, &b.arena, "m");
    T_STATUS_OK(study_series(&s, &set));
    T_OK(series_find(&set, "eval/accuracy") && !series_find(&set, "paired/accuracy"));
    bench_close(&b);
}

TEST(two_columns_of_one_name)
{
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    Retrieval    twice[] = {b.file, b.file};
    o.files = twice;
    o.n_files = 2;
    T_FAILS(study_init(&s, &b.arena, &o), ERR_RANGE, "two tasks are named needles-n1r1");
    o.n_files = 0;   // orders alone are a study
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_OK(s.n_tasks == 1 && s.cell_tokens == b.orders.n_tokens);
    bench_close(&b);
}
