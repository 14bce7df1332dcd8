/* test_study.c - the cells of a study against single runs, and their series. */
#include "analysis/study.h"

#include <math.h>
#include <stdio.h>
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
    const StudyCell *last = study_cell(&s, 1, 2);
    T_OK(s.n_tasks == 3 && !last->done && isnan(last->text.perplexity));
    last_done = 0;
    T_STATUS_OK(study_weights(&s, 0, &b.m.model, &b.m.model));
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

/* A checkpoint of W8A8: every cell rounds inputs as it says, but where a kind of weights
 * names other bits; and the distance is measured from the checkpoint as it says. */
TEST(cells_run_a_checkpoint_as_it_says)
{
    static const RunQuant RUNS[] = {{.bits = 16}, {.bits = 16, .kv = 4}, {.bits = 16, .acts = 6}};
    static const char *const NAMES[] = {"fp", "w16kv4", "w16a6"};
    const RunQuant asked = {.bits = 16, .acts = 4, .act_scale = ACTS_TENSOR, .act_wide = true};
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    b.m.model.run = asked;
    StudyOptions o = options(&b);
    o.n_weights = 3;
    o.weights = NAMES;
    o.runs = RUNS;
    o.divergence = true;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    for (int w = 0; w < 3; w++) {
        T_STATUS_OK(study_weights(&s, w, &b.m.model, &b.m.model));
        for (int i = 0; i < 3; i++) {
            Perplexity p;
            RunQuant   q = w == 2 ? RUNS[2] : asked;
            q.bits = BITS[i];
            q.scale = SCALE_HEAD;
            q.kv = RUNS[w].kv;
            Scorer sc = {.model = &b.m.model, .quant = q};
            T_STATUS_OK(perplexity_run(&p, &sc, &b.w));
            T_NEAR(study_cell(&s, w, i)->text.nll, p.nll, 0);
        }
    }
    Scorer exact = {.model = &b.m.model, .quant = asked};
    for (int w = 0; w < 3; w++)
        for (int i = w == 0; i < 3; i++) {   // cell (0, 0) is the reference itself
            Reference  r;
            Perplexity p;
            Divergence d;
            RunQuant   q = w == 2 ? RUNS[2] : asked;
            q.bits = BITS[i];
            q.scale = SCALE_HEAD;
            q.kv = RUNS[w].kv;
            Scorer one = {.model = &b.m.model, .quant = q};
            T_STATUS_OK(reference_open(&r, &exact, &b.w, 0));
            T_STATUS_OK(divergence_run(&d, &p, &b.arena, &one, &r));
            T_OK(memcmp(&d, &study_cell(&s, w, i)->divergence, sizeof d) == 0);
        }
    T_OK(study_cell(&s, 0, 0)->divergence.n == 0 && s.reference.n_kept == b.w.n_scored);
    /* Windows are shorter than a group of keys: kv4 rounds nothing, and is at no distance
     * from the checkpoint, read as it says. */
    T_NEAR(study_cell(&s, 1, 0)->divergence.kl, 0, 0);
    T_OK(study_cell(&s, 2, 0)->divergence.kl > 0 && study_cell(&s, 0, 2)->divergence.kl > 0);
    T_OK(study_cell(&s, 0, 0)->text.nll != study_cell(&s, 2, 0)->text.nll);
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
    T_OK(!strstr(series_attr(&set, "eval_convention")->text, "Multiple choice"));
    arena_close(&results);
}

static const char CHOICES[] =
    "{\"context\":\"the quick\",\"choices\":[\"brown fox\",\"dog\"],\"answer\":0}\n"
    "{\"context\":\"over the\",\"choices\":[\"lazy\",\"fox jumps\",\"a\"],\"answer\":1}\n"
    "{\"context\":\"and\",\"choices\":[\"again\",\"over\"],\"answer\":1}\n";

/* A choice is two columns, each what choice_run and choice_correct say. */
TEST(choices_are_two_columns)
{
    Bench         b;
    Study         s;
    Choice        c;
    ChoiceOptions co = {.context = 64};
    double        loglik[7];
    uint8_t       acc[3], norm[3];
    T_STATUS_OK(bench_open(&b));
    T_STATUS_OK(choice_load(&c, &b.arena, b.t, tiny_file("pick.jsonl", CHOICES), &co));
    T_OK(c.n_requests == 7 && c.has_norm);
    StudyOptions o = options(&b);
    o.n_choices = 1;
    o.choices = &c;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_OK(s.n_tasks == 5 && s.n_sources == 4);
    T_TEXT(s.tasks[3].name, "pick");
    T_TEXT(s.tasks[4].name, "pick norm");
    T_STATUS_OK(study_weights(&s, 0, &b.m.model, NULL));
    for (int i = 0; i < 3; i++) {
        Scorer     sc = {.model = &b.m.model, .quant = {.bits = BITS[i], .scale = SCALE_HEAD}};
        StudyCell *cell = study_cell(&s, 0, i);
        T_STATUS_OK(choice_run(&c, &sc, loglik, NULL));
        choice_correct(acc, norm, &c, loglik);
        T_OK(memcmp(cell->correct[2], acc, 3) == 0 && memcmp(cell->correct[3], norm, 3) == 0);
        T_OK(cell->tasks[3].n_correct == acc[0] + acc[1] + acc[2] && cell->tasks[4].n == 3);
    }
    bench_close(&b);
}

/* Cells compared item by item with the unquantized one; and two studies with each other. */
TEST(differences_are_paired)
{
    Bench     b;
    Study     s, other;
    SeriesSet set;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_init(&other, &b.arena, &o));
    T_STATUS_OK(study_weights(&s, 0, &b.m.model, NULL));
    T_STATUS_OK(study_weights(&other, 0, &b.m.model, NULL));
    T_OK(study_exact(&s) == 0 && study_finished(&s, 0) && !study_finished(&s, 1));
    /* File one has an episode of 1 needle, one of 4; file two has two of 2. */
    uint8_t *exact = study_cell(&s, 0, 0)->correct[1], *four = study_cell(&s, 0, 2)->correct[1];
    exact[0] = exact[1] = 1;
    four[0] = 0;
    four[1] = 1;
    study_cell(&other, 0, 2)->correct[1][0] = 1;
    study_cell(&other, 0, 2)->correct[1][1] = 1;
    series_set_init(&set, &b.arena, "m");
    T_STATUS_OK(study_series(&s, &set));
    T_STATUS_OK(study_versus(&s, &other, "other", &set));
    const Series *d = series_find_dims(&set, "paired/accuracy", "task,weights,logit_bits");
    const Series *p = series_find(&set, "paired/accuracy_p");
    const Series *e = series_find(&set, "paired/accuracy_stderr");
    const Series *v = series_find(&set, "versus/accuracy");
    const Series *nll = series_find_dims(&set, "paired/nll", "weights,logit_bits");
    T_OK(d && p && e && v && nll);
    T_NEAR(series_get(d, 2, 0, 2), -0.5, 1e-15);
    T_NEAR(series_get(e, 2, 0, 2), 0.5, 1e-15);   // sample stddev of {-1, 0} / sqrt(2)
    T_NEAR(series_get(p, 2, 0, 2), 1, 0);
    T_OK(isnan(series_get(d, 2, 0, 0)) && isnan(series_get(d, 2, 1, 1)));  // itself; not run
    T_NEAR(series_get(v, 2, 0, 2), -0.5, 1e-15);
    T_NEAR(series_get(nll, 0, 2, 0),
           study_cell(&s, 0, 2)->text.nll - study_cell(&s, 0, 0)->text.nll, 1e-12);
    T_TEXT(series_attr(&set, "versus")->text, "other");
    const Series *items = series_find_dims(&set, "eval/correct", "weights,logit_bits,item");
    T_OK(items && items->shape[2] == 4);
    T_OK(series_get(items, 0, 2, 2) == 0 && series_get(items, 0, 2, 3) == 1);
    T_OK(series_get(items, 1, 0, 0) == -1);
    bench_close(&b);
}

/* --- resuming --- */

static StudyOptions stored(const Bench *b, const char *settings)
{
    StudyOptions o = options(b);
    o.folder = check_tmp();
    o.name = "m/x";
    o.settings = settings;
    return o;
}

TEST(finished_cells_are_taken_up)
{
    Bench     b;
    Study     s, again;
    SeriesSet one, two;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = stored(&b, "context 16\nbos auto\n");
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_load(&s));           // nothing is there
    T_OK(!study_cell(&s, 0, 0)->done);
    T_STATUS_OK(study_weights(&s, 0, &b.m.model, NULL));
    T_STATUS_OK(study_init(&again, &b.arena, &o));
    T_STATUS_OK(study_load(&again));
    T_OK(study_finished(&again, 0) && !study_finished(&again, 1));
    T_STATUS_OK(study_weights(&again, 0, NULL, NULL));   // needs no model
    T_OK(again.done == again.total / 2);
    series_set_init(&one, &b.arena, "m");
    series_set_init(&two, &b.arena, "m");
    T_STATUS_OK(study_series(&s, &one));
    T_STATUS_OK(study_series(&again, &two));
    T_OK(one.n == two.n);
    for (int64_t i = 0; i < one.n; i++)
        T_OK(memcmp(one.at[i].data, two.at[i].data,
                    (size_t)series_count(&one.at[i]) * series_type_size(one.at[i].type)) == 0);
    o.settings = "context 16\nbos none\n";
    T_STATUS_OK(study_init(&again, &b.arena, &o));
    T_FAILS(study_load(&again), ERR_USAGE, "was made with \"bos auto\", now it is \"bos none\"");
    T_STATUS_OK(study_forget(&again));
    T_STATUS_OK(study_load(&again));
    T_OK(!study_cell(&again, 0, 0)->done);
    bench_close(&b);
}

/* With the unquantized cell there already, another one makes the reference be read. */
TEST(a_resumed_study_measures_the_same_distances)
{
    Bench b;
    Study s, again;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = stored(&b, "settings\n");
    o.divergence = true;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    for (int w = 0; w < 2; w++)
        T_STATUS_OK(study_weights(&s, w, &b.m.model, &b.m.model));
    T_STATUS_OK(study_init(&again, &b.arena, &o));
    T_STATUS_OK(study_load(&again));
    study_cell(&again, 0, 2)->done = study_cell(&again, 1, 0)->done = false;
    T_STATUS_OK(study_weights(&again, 0, &b.m.model, &b.m.model));
    T_STATUS_OK(study_weights(&again, 1, &b.m.model, &b.m.model));
    T_OK(again.done == again.total && again.reference.n_kept == b.w.n_scored);
    for (int i = 0; i < 6; i++)
        T_OK(!memcmp(&again.cells[i].divergence, &s.cells[i].divergence, sizeof(Divergence)));
    T_OK(s.cells[2].divergence.kl > 0);
    T_STATUS_OK(study_forget(&s));
    bench_close(&b);
}

/* Perplexity that another run has found stands in the unquantized cell, and in no other; the
 * reference is then read by the first cell that is measured from it. */
TEST(a_text_that_is_given_is_not_read_again)
{
    Bench      b;
    Study      s, own;
    Perplexity p;
    Progress   progress = {see, NULL};
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.divergence = true;
    o.progress = &progress;
    T_STATUS_OK(study_init(&own, &b.arena, &o));
    T_STATUS_OK(study_weights(&own, 0, &b.m.model, &b.m.model));
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    Scorer sc = {.model = &b.m.model, .quant = {.bits = 8}};   // not what the cell would say
    T_STATUS_OK(perplexity_run_windows(&p, &b.arena, &sc, &b.w));
    double nll = p.window_nll[0];
    T_STATUS_OK(study_give_text(&s, &p));
    p.window_nll[0] = 7;   // it was copied
    last_done = 0;
    T_STATUS_OK(study_weights(&s, 0, &b.m.model, &b.m.model));
    T_OK(last_done == s.total / 2);
    T_OK(s.cells[0].text.nll == p.nll && s.cells[0].text.window_nll[0] == nll);
    T_OK(s.cells[0].text.nll != own.cells[0].text.nll && s.cells[0].divergence.n == 0);
    for (int i = 1; i < 3; i++) {
        T_OK(s.cells[i].text.nll == own.cells[i].text.nll);
        T_OK(memcmp(&s.cells[i].divergence, &own.cells[i].divergence, sizeof(Divergence)) == 0);
    }
    bench_close(&b);
}

/* Every byte of a cell changed, and the cell cut at every length: a sentence, never
 * another figure. */
TEST(a_broken_cell_is_told)
{
    Bench b;
    Study s, again;
    char  path[300];
    static unsigned char bytes[1 << 16];
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = stored(&b, "settings\n");
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_weights(&s, 0, &b.m.model, NULL));
    snprintf(path, sizeof path, "%s/m-x-fp-16.cell", check_tmp());
    FILE *f = fopen(path, "rb");
    T_OK(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    T_OK(n > 100 && n < sizeof bytes);
    for (size_t i = 0; i < n; i += 1 + i / 64) {
        for (int cut = 0; cut < 2; cut++) {
            bytes[i] ^= cut ? 0 : 0x41;
            f = fopen(path, "wb");
            fwrite(bytes, 1, cut ? i : n, f);
            fclose(f);
            bytes[i] ^= cut ? 0 : 0x41;
            T_STATUS_OK(study_init(&again, &b.arena, &o));
            Status status = study_load(&again);
            T_OK(status == ERR_FORMAT || status == ERR_USAGE);
            T_OK(strstr(status_text(), "m-x-fp-16.cell"));
        }
    }
    T_STATUS_OK(study_forget(&s));
    bench_close(&b);
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
    T_STATUS_OK(study_weights(&s, 1, &b.m.model, &b.m.model));
    series_set_init(&set, &b.arena, "text");
    T_STATUS_OK(study_series(&s, &set));
    T_OK(series_find(&set, "eval/nll") && !series_find(&set, "eval/accuracy"));
    o = options(&b);
    o.text = NULL;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_weights(&s, 1, &b.m.model, &b.m.model));
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
    TRY(study_weights(&s, 0, &b->m.model, &b->m.model));
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
