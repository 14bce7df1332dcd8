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

static Status task_test(Test *out, const Study *a, const StudyCell *x, int64_t i,
                        const Study *b, const StudyCell *y, int64_t j)
{
    const StudyTask *t = &a->tasks[i], *u = &b->tasks[j];
    uint8_t         *one, *other;
    Arena            tmp = {0};
    one = arena_alloc(&tmp, 2 * t->n, 1);
    if (!one)
        FAIL(ERR_MEMORY, "out of memory for the paired test of %s", t->name);
    other = one + t->n;
    for (int64_t k = 0; k < t->n; k++) {
        one[k] = x->correct[t->source][task_item(t, k)];
        other[k] = y->correct[u->source][task_item(u, k)];
    }
    Paired p = paired_of(one, other, t->n);
    *out = (Test){p.difference, p.error, p.p};
    arena_close(&tmp);
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
                 {"_p", "Two-sided p: McNemar's exact test, or sign flips of the windows."}};
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
        if (strcmp(a->tasks[i].name, b->tasks[j].name) == 0 && a->tasks[i].n == b->tasks[j].n)
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
            TRY(task_test(&test, g->other, o, j, g->s, &g->s->cells[c], i));
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
