/* test_study.c - the cells of a study against single runs, and their series. */
#include "analysis/study.h"

#include <math.h>
#include <string.h>

#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

#define EPISODE(id, n) "{\"id\":\"" id "\",\"n\":" n ",\"context\":\"some text, k\"," \
                       "\"answer\":\"ey\",\"span\":[0,4]}\n"

typedef struct {
    Arena      arena;
    Tokenizer *t;
    TinyModel  m;
    Windows    w;
    Retrieval  files[2];
} Bench;

static const char *const WEIGHTS[] = {"fp", "w4:g32"};
static const int         BITS[] = {16, 8, 4};

static Status bench_open(Bench *b)
{
    static const char text[] = "the quick brown fox jumps over the lazy dog, again and again";
    WindowOptions o = {.context = 16};
    *b = (Bench){0};
    TRY(tiny_open(&b->m, "diff_gqa"));
    TRY(tiny_tokenizer(&b->t, &b->arena, true));
    TRY(windows_from_text(&b->w, &b->arena, b->t, "text", text, sizeof text - 1, &o));
    const char *first = tiny_file("one.jsonl", EPISODE("a", "1") EPISODE("b", "4"));
    const char *second = tiny_file("two.jsonl", EPISODE("a", "2") EPISODE("b", "2"));
    TRY(retrieval_load(&b->files[0], &b->arena, b->t, first, 64, false));
    return retrieval_load(&b->files[1], &b->arena, b->t, second, 64, false);
}

static void bench_close(Bench *b)
{
    tokenizer_close(b->t);
    tiny_close(&b->m);
    arena_close(&b->arena);
}

static StudyOptions options(const Bench *b)
{
    return (StudyOptions){.n_weights = 2, .weights = WEIGHTS, .n_bits = 3, .bits = BITS,
                          .scale = SCALE_HEAD, .text = &b->w, .n_files = 2,
                          .files = b->files};
}

static int64_t last_done, last_total;

static void see(void *context, int64_t done, int64_t total, const char *what)
{
    (void)context;
    if (done > last_done && strstr(what, "fp, logits of"))
        last_done = done;
    last_total = total;
}

TEST(cells_are_single_runs)
{
    Bench    b;
    Study    s;
    Progress progress = {see, NULL};
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.progress = &progress;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_OK(s.n_tasks == 3 && isnan(study_cell(&s, 1, 2)->text.perplexity));
    last_done = 0;
    T_STATUS_OK(study_weights(&s, 0, &b.m.model));
    T_OK(last_done == s.total / 2 && last_total == s.total);
    for (int i = 0; i < 3; i++) {
        Perplexity p;
        uint8_t    correct[2];
        Scorer     sc = {.model = &b.m.model, .quant = {.bits = BITS[i], .scale = SCALE_HEAD}};
        T_STATUS_OK(perplexity_run(&p, &sc, &b.w));
        T_STATUS_OK(retrieval_run(&b.files[1], &sc, correct));
        StudyCell *c = study_cell(&s, 0, i);
        T_NEAR(c->text.nll, p.nll, 0);
        T_OK(memcmp(c->correct[1], correct, 2) == 0 && c->tasks[2].n == 2);
        T_OK(isnan(study_cell(&s, 1, i)->tasks[0].accuracy));  // not run
    }
    T_OK(study_cell(&s, 0, 0)->text.nll != study_cell(&s, 0, 2)->text.nll);
    bench_close(&b);
}

TEST(series_hold_the_cells)
{
    Bench     b;
    Study     s;
    SeriesSet set;
    Arena     results = {0};
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_OK(study_cell(&s, 1, 0) == &s.cells[3] && study_cell(&s, 0, 2) == &s.cells[2]);
    for (int i = 0; i < 6; i++) {
        s.cells[i].text.perplexity = 10 + i;
        s.cells[i].text.nll = 20 + i;
        for (int k = 0; k < 3; k++)
            s.cells[i].tasks[k] = (TaskScore){2, 1, 100 * k + i, 200 * k + i};
    }
    series_set_init(&set, &results, "m");
    T_STATUS_OK(study_series(&s, &set));
    bench_close(&b);
    const Series *ppl = series_find(&set, "eval/perplexity");
    const Series *nll = series_find(&set, "eval/nll");
    const Series *acc = series_find(&set, "eval/accuracy");
    const Series *se = series_find(&set, "eval/stderr");
    const Series *items = series_find(&set, "eval/items");
    const Series *bits = series_find(&set, "logit_bits");
    T_OK(ppl && nll && acc && se && items && bits);
    T_OK(ppl->n_dims == 2 && ppl->shape[0] == 2 && ppl->shape[1] == 3);
    T_OK(acc->n_dims == 3 && acc->shape[0] == 3 && acc->shape[1] == 2 && acc->shape[2] == 3);
    T_TEXT(acc->dims[0], "task");
    T_TEXT(acc->dims[1], "weights");
    T_TEXT(acc->dims[2], "logit_bits");
    for (int i = 0; i < 6; i++) {
        T_NEAR(series_at(ppl, i), 10 + i, 0);
        T_NEAR(series_at(nll, i), 20 + i, 0);
        for (int k = 0; k < 3; k++) {
            T_NEAR(series_at(acc, 6 * k + i), 100 * k + i, 0);
            T_NEAR(series_at(se, 6 * k + i), 200 * k + i, 0);
        }
    }
    T_OK(series_at(items, 0) == 1 && series_at(items, 2) == 2 && series_at(bits, 2) == 4);
    T_TEXT(series_attr(&set, "eval_tasks")->text, "one-n1,one-n4,two-n2");
    T_TEXT(series_attr(&set, "eval_weights")->text, "fp,w4:g32");
    T_TEXT(series_attr(&set, "eval_logit_scale")->text, "head");
    T_OK(strstr(series_attr(&set, "eval_convention")->text, "Windows of 16 tokens"));
    T_OK(strstr(series_attr(&set, "eval_convention")->text, "exact match"));
    arena_close(&results);
}

TEST(text_or_tasks_alone)
{
    Bench     b;
    Study     s;
    SeriesSet set;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.n_files = 0;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_weights(&s, 1, &b.m.model));
    series_set_init(&set, &b.arena, "text");
    T_STATUS_OK(study_series(&s, &set));
    T_OK(series_find(&set, "eval/nll") && !series_find(&set, "eval/accuracy"));
    o = options(&b);
    o.text = NULL;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_weights(&s, 1, &b.m.model));
    series_set_init(&set, &b.arena, "tasks");
    T_STATUS_OK(study_series(&s, &set));
    T_OK(!series_find(&set, "eval/nll") && series_find(&set, "eval/accuracy"));
    bench_close(&b);
}

TEST(impossible_studies)
{
    static const int FIVE[] = {16, 5};
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.bits = FIVE;
    o.n_bits = 2;
    T_FAILS(study_init(&s, &b.arena, &o), ERR_RANGE, "attention logits of 5 bits");
    o = options(&b);
    b.files[1] = b.files[0];
    T_FAILS(study_init(&s, &b.arena, &o), ERR_RANGE, "two tasks are named one-n1");
    o.n_files = 0;
    o.text = NULL;
    T_FAILS(study_init(&s, &b.arena, &o), ERR_RANGE, "needs a text or a task");
    o = options(&b);
    o.n_weights = 0;
    T_FAILS(study_init(&s, &b.arena, &o), ERR_RANGE, "has no cells");
    bench_close(&b);
}

static Status whole_study(Bench *b, Arena *a)
{
    Study        s;
    SeriesSet    set;
    StudyOptions o = options(b);
    o.n_bits = 1;
    TRY(study_init(&s, a, &o));
    TRY(study_weights(&s, 0, &b->m.model));
    series_set_init(&set, a, "m");
    return study_series(&s, &set);
}

TEST(every_allocation_may_fail)
{
    Bench   b;
    Status  s = ERR_MEMORY;
    int64_t k = 0;
    T_STATUS_OK(bench_open(&b));
    for (; s != OK; k += 1 + k / 16) {  // all of the first, then some of the many alike
        Arena a = {0};
        arena_fail_at(k + 1);
        s = whole_study(&b, &a);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        arena_close(&a);
    }
    T_OK(k > 100);
    bench_close(&b);
}
