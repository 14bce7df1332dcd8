/* study_paired.c - is the difference of two cells more than noise? Both scored the same
 * items, so their answers are compared item by item. */
#include "analysis/study.h"

#include <math.h>
#include <string.h>

static const char *const CELL_DIMS[] = {"weights", "logit_bits"};
static const char *const TASK_DIMS[] = {"task", "weights", "logit_bits"};

static int64_t cell_count(const Study *s)
{
    return s->o.n_weights * s->o.n_bits;
}

static int64_t task_item(const StudyTask *t, int64_t i)
{
    return t->items ? t->items[i] : i;
}

/* One comparison of two cells of studies with the same items. */
typedef struct {
    double difference, error, p;
} Test;

/* Questions that were asked once: right or wrong. */
static Test test_answers(const StudyTask *t, const StudyTask *u, const uint8_t *of_t,
                         const uint8_t *of_u, uint8_t *tmp)
{
    for (int64_t k = 0; k < t->n; k++) {
        tmp[k] = of_t[task_item(t, k)];
        tmp[t->n + k] = of_u[task_item(u, k)];
    }
    Paired p = paired_of(tmp, tmp + t->n, t->n);
    return (Test){p.difference, p.error, p.p};
}

/* Asked several times, they are no more questions than that: means are compared. */
static Test test_means(const StudyTask *t, const StudyTask *u, const uint8_t *of_t,
                       const uint8_t *of_u, double *tmp)
{
    int64_t n = t->n / t->turns;
    for (int64_t k = 0; k < n; k++) {
        tmp[k] = study_question(t, of_t, k);
        tmp[n + k] = study_question(u, of_u, k);
    }
    PairedMean m = paired_mean(tmp, tmp + n, n);
    return (Test){m.difference, m.error, m.p};
}

static Status task_test(Test *out, const StudyTask *t, const StudyCell *x, const StudyTask *u,
                        const StudyCell *y)
{
    const uint8_t *of_t = x->correct[t->source], *of_u = y->correct[u->source];
    Arena          a = {0};
    double        *tmp = arena_alloc(&a, 2 * t->n, sizeof *tmp);
    if (!tmp)
        FAIL(ERR_MEMORY, "out of memory for the paired test of %s", t->name);
    *out = t->turns > 1 ? test_means(t, u, of_t, of_u, tmp)
                        : test_answers(t, u, of_t, of_u, (uint8_t *)tmp);
    arena_close(&a);
    return OK;
}

/* The three series of one kind of comparison. */
typedef struct {
    double *difference, *error, *p;
} Triple;

static Status add_triple(Triple *t, const Study *s, SeriesSet *set, const char *prefix,
                         const char *of, const char *unit, bool tasks)
{
    static const struct {
        const char *name, *about;
    } PARTS[] = {{"", "Difference."},
                 {"_stderr", "Standard error of the difference, paired."},
                 {"_p", "Two-sided p: McNemar's exact test; of windows and orders, sign flips."}};
    double **to[] = {&t->difference, &t->error, &t->p};
    int64_t  shape[] = {s->n_tasks, s->o.n_weights, s->o.n_bits};
    for (int i = 0; i < 3; i++) {
        Series     *out;
        const char *name = arena_printf(set->arena, "%s/%s%s", prefix, of, PARTS[i].name);
        if (!name)
            FAIL(ERR_MEMORY, "out of memory for the names of paired tests");
        TRY(series_add(set, &out, SERIES_F64, name, i < 2 ? unit : "", PARTS[i].about,
                       tasks ? 3 : 2, tasks ? TASK_DIMS : CELL_DIMS,
                       tasks ? shape : shape + 1));
        *to[i] = out->data;
        for (int64_t k = 0; k < series_count(out); k++)
            ((double *)out->data)[k] = NAN;
    }
    return OK;
}

static void set_triple(Triple *t, int64_t i, Test test)
{
    t->difference[i] = test.difference;
    t->error[i] = test.error;
    t->p[i] = test.p;
}

/* Task of b that is task i of a; -1: none. */
static int64_t same_task(const Study *a, int64_t i, const Study *b)
{
    for (int64_t j = 0; j < b->n_tasks; j++)
        if (strcmp(a->tasks[i].name, b->tasks[j].name) == 0 &&
            a->tasks[i].n == b->tasks[j].n && a->tasks[i].turns == b->tasks[j].turns)
            return j;
    return -1;
}

/* Cell c of s is compared with cell `of(c)` of other; -1: with none. */
typedef struct {
    const Study *s, *other;
    int64_t      fixed;   // the cell of other, or -1: the same
} Against;

static const StudyCell *other_cell(const Against *g, int64_t c)
{
    const StudyCell *o = &g->other->cells[g->fixed >= 0 ? g->fixed : c];
    bool itself = o == &g->s->cells[c];
    return o->done && g->s->cells[c].done && !itself ? o : NULL;
}

static Status test_tasks(const Against *g, SeriesSet *set, const char *prefix)
{
    Triple  t;
    int64_t n = cell_count(g->s);
    TRY(add_triple(&t, g->s, set, prefix, "accuracy", "", true));
    for (int64_t i = 0; i < g->s->n_tasks; i++) {
        int64_t j = same_task(g->s, i, g->other);
        for (int64_t c = 0; j >= 0 && c < n; c++) {
            Test             test;
            const StudyCell *o = other_cell(g, c);
            if (!o)
                continue;
            TRY(task_test(&test, &g->other->tasks[j], o, &g->s->tasks[i], &g->s->cells[c]));
            set_triple(&t, i * n + c, test);
        }
    }
    return OK;
}

/* Of the windows' means: windows of one text have about as many tokens each. */
static Status test_text(const Against *g, SeriesSet *set, const char *prefix)
{
    Triple t;
    TRY(add_triple(&t, g->s, set, prefix, "nll", "nat", false));
    if (!g->other->o.text || g->other->o.text->seq.n != g->s->o.text->seq.n)
        return OK;
    for (int64_t c = 0; c < cell_count(g->s); c++) {
        const StudyCell *o = other_cell(g, c);
        if (!o)
            continue;
        PairedMean m =
            paired_mean(o->text.window_nll, g->s->cells[c].text.window_nll, g->s->o.text->seq.n);
        set_triple(&t, c, (Test){m.difference, m.error, m.p});
    }
    return OK;
}

static Status add_tests(const Against *g, SeriesSet *set, const char *prefix)
{
    if (g->s->o.text)
        TRY(test_text(g, set, prefix));
    return g->s->n_tasks ? test_tasks(g, set, prefix) : OK;
}

Status study_paired(const Study *s, SeriesSet *set)
{
    Against exact = {s, s, study_exact(s)};
    return exact.fixed >= 0 && cell_count(s) > 1 ? add_tests(&exact, set, "paired") : OK;
}

Status study_versus(const Study *s, const Study *first, const char *first_name,
                    SeriesSet *set)
{
    Against same = {s, first, -1};
    CHECK(cell_count(s) == cell_count(first));
    TRY(series_attr_text(set, "versus", first_name));
    return add_tests(&same, set, "versus");
}
