/* test_study_store.c - cells of several kinds of models and tasks, kept as files and taken
 * up: by their names, and only where everything they hang on is the same. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/study.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

#define EPISODE(id, n, answer) "{\"id\":\"" id "\",\"n\":" n ",\"context\":\"some text, k\"," \
                               "\"answer\":\"" answer "\",\"span\":[0,4]}\n"

static const char CHOICES[] =
    "{\"context\":\"the quick\",\"choices\":[\"brown fox\",\"dog\"],\"answer\":0}\n"
    "{\"context\":\"over the\",\"choices\":[\"lazy\",\"fox jumps\",\"a\"],\"answer\":1}\n"
    "{\"context\":\"and\",\"choices\":[\"again\",\"over\"],\"answer\":1}\n";

typedef struct {
    Arena      arena;
    Tokenizer *t;
    TinyModel  m;
    Windows    w;
    Retrieval  file;
    Choice     choice;
} Bench;

/* As many as there are kinds of rounding while a pass runs. */
static const char *const WEIGHTS[] = {"fp", "w16a4", "w16kv4", "w16a6:atensor"};
static const RunQuant    RUNS[] = {{.bits = 16}, {.bits = 16, .acts = 4}, {.bits = 16, .kv = 4},
                                   {.bits = 16, .acts = 6, .act_scale = ACTS_TENSOR}};
static const int         BITS[] = {16, 4};
enum { N_KINDS = 4, N_BITS = 2, N_CELLS = N_KINDS * N_BITS };

static Status bench_open(Bench *b)
{
    static const char text[] =
        "the quick brown fox jumps over the lazy dog, again and again, until the dog wakes up "
        "and the fox is gone; nobody has seen either of them since that morning in November";
    WindowOptions wo = {.context = 72};   // longer than the groups of keys
    ChoiceOptions co = {.context = 64};
    *b = (Bench){0};
    TRY(tiny_open(&b->m, "diff_gqa"));
    TRY(tiny_tokenizer(&b->t, &b->arena, true));
    TRY(windows_from_text(&b->w, &b->arena, b->t, "text", text, sizeof text - 1, &wo));
    TRY(retrieval_load(&b->file, &b->arena, b->t,
                       tiny_file("one.jsonl", EPISODE("a", "1", "ey") EPISODE("b", "4", "'")
                                 EPISODE("c", "1", "n")), 64, false));
    return choice_load(&b->choice, &b->arena, b->t, tiny_file("pick.jsonl", CHOICES), &co);
}

static void bench_close(Bench *b)
{
    tokenizer_close(b->t);
    tiny_close(&b->m);
    arena_close(&b->arena);
}

static const char SETTINGS[] = "context 72\nbos auto\nseed 0\n";

static StudyOptions options(const Bench *b)
{
    return (StudyOptions){.n_weights = N_KINDS, .weights = WEIGHTS, .runs = RUNS,
                          .n_bits = N_BITS, .bits = BITS, .scale = SCALE_ROW, .text = &b->w,
                          .divergence = true, .n_files = 1, .files = &b->file, .n_choices = 1,
                          .choices = &b->choice, .folder = check_tmp(), .name = "a b/c",
                          .settings = SETTINGS};
}

static Status run_all(Study *s, Bench *b, const StudyOptions *o)
{
    TRY(study_init(s, &b->arena, o));
    for (int64_t i = 0; i < o->n_weights; i++)
        TRY(study_weights(s, i, &b->m.model, &b->m.model));
    return OK;
}

static bool same_cell(const Study *s, const StudyCell *x, const StudyCell *y)
{
    bool same = x->done && y->done && x->text.nll == y->text.nll &&
                x->text.n_tokens == y->text.n_tokens &&
                x->divergence.n == y->divergence.n && x->divergence.kl == y->divergence.kl &&
                memcmp(x->divergence.kl_quantiles, y->divergence.kl_quantiles,
                       sizeof x->divergence.kl_quantiles) == 0;
    for (int64_t i = 0; same && i < s->o.text->seq.n; i++)
        same = x->text.window_nll[i] == y->text.window_nll[i];
    for (int64_t i = 0; same && i < s->n_sources; i++)
        same = memcmp(x->correct[i], y->correct[i], (size_t)s->source_items[i]) == 0;
    for (int64_t i = 0; same && i < s->n_tasks; i++)
        same = x->tasks[i].n_correct == y->tasks[i].n_correct &&
               x->tasks[i].accuracy == y->tasks[i].accuracy;
    return same;
}

/* A cell is what single runs with its roundings give, and no two are alike. */
TEST(cells_round_what_their_names_say)
{
    Bench   b;
    Study   s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(run_all(&s, &b, &o));
    for (int64_t c = 0; c < N_CELLS; c++) {
        const StudyCell *cell = study_cell(&s, c / N_BITS, c % N_BITS);
        RunQuant   q = RUNS[c / N_BITS];
        Perplexity p;
        uint8_t    found[3], acc[3], norm[3];
        double     loglik[7];
        q.bits = BITS[c % N_BITS];
        q.scale = SCALE_ROW;
        Scorer sc = {.model = &b.m.model, .quant = q};
        T_STATUS_OK(perplexity_run(&p, &sc, &b.w));
        T_STATUS_OK(retrieval_run(&b.file, &sc, found));
        T_STATUS_OK(choice_run(&b.choice, &sc, loglik, NULL));
        choice_correct(acc, norm, &b.choice, loglik);
        T_NEAR(cell->text.nll, p.nll, 0);
        T_OK(memcmp(cell->correct[0], found, 3) == 0 && memcmp(cell->correct[1], acc, 3) == 0);
        T_OK(memcmp(cell->correct[2], norm, 3) == 0);
        for (int64_t k = 0; k < c; k++)
            T_OK(cell->text.nll != s.cells[k].text.nll);
        T_OK((cell->divergence.n == 0) == (c == 0));   // of the unquantized one there is none
        T_OK(c == 0 || cell->divergence.kl > 0);
    }
    T_STATUS_OK(study_forget(&s));
    bench_close(&b);
}

/* In another order, and some of them: a cell is known by its name. */
TEST(cells_are_taken_up_by_name)
{
    static const char *const OTHERS[] = {"w16kv4", "w8", "fp"};
    static const RunQuant    OTHER_RUNS[] = {{.bits = 16, .kv = 4}, {.bits = 16}, {.bits = 16}};
    static const int         OTHER_BITS[] = {4, 8, 16};
    Bench b;
    Study s, t;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(run_all(&s, &b, &o));
    o.n_weights = 3;
    o.weights = OTHERS;
    o.runs = OTHER_RUNS;
    o.n_bits = 3;
    o.bits = OTHER_BITS;
    T_STATUS_OK(study_init(&t, &b.arena, &o));
    T_STATUS_OK(study_load(&t));
    T_OK(same_cell(&t, study_cell(&t, 0, 0), study_cell(&s, 2, 1)));
    T_OK(same_cell(&t, study_cell(&t, 0, 2), study_cell(&s, 2, 0)));
    T_OK(same_cell(&t, study_cell(&t, 2, 0), study_cell(&s, 0, 1)));
    T_OK(same_cell(&t, study_cell(&t, 2, 2), study_cell(&s, 0, 0)));
    T_OK(!same_cell(&t, study_cell(&t, 2, 2), study_cell(&s, 0, 1)));
    for (int i = 0; i < 3; i++)
        T_OK(!study_cell(&t, 1, i)->done && !study_cell(&t, i, 1)->done);
    T_OK(!study_finished(&t, 0) && !study_finished(&t, 1));
    T_STATUS_OK(study_forget(&t));
    T_STATUS_OK(study_init(&t, &b.arena, &o));
    T_STATUS_OK(study_load(&t));
    T_OK(!study_cell(&t, 0, 0)->done);
    o = options(&b);
    T_STATUS_OK(study_init(&t, &b.arena, &o));   // those that t has no name for are there yet
    T_STATUS_OK(study_load(&t));
    T_OK(study_finished(&t, 1) && study_finished(&t, 3) && !study_cell(&t, 0, 0)->done);
    T_STATUS_OK(study_forget(&s));
    bench_close(&b);
}

static bool is_there(const char *name)
{
    char        path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    return stat(path, &st) == 0;
}

TEST(files_have_names_that_files_can_have)
{
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(run_all(&s, &b, &o));
    T_OK(is_there("a-b-c-fp-16.cell") && is_there("a-b-c-w16a6-atensor-4.cell"));
    T_STATUS_OK(study_forget(&s));
    T_OK(!is_there("a-b-c-fp-16.cell") && !is_there("a-b-c-w16a6-atensor-4.cell"));
    T_STATUS_OK(study_forget(&s));   // there is nothing, and nothing wrong
    bench_close(&b);
}

/* The first line that differs is told; a text that ends early differs in what is missing. */
TEST(settings_are_compared_line_by_line)
{
    static const struct {
        const char *was, *now, *says;   // NULL: the same
    } ROWS[] = {
        {"", "", NULL},
        {"a\nb\n", "a\nb\n", NULL},
        {"a\nb\n", "a\nc\n", "was made with \"b\", now it is \"c\""},
        {"x\nb\n", "y\nc\n", "was made with \"x\", now it is \"y\""},
        {"a\nb\n", "a\n", "was made with \"b\", now it is \"\""},
        {"a\n", "a\nb\n", "was made with \"\", now it is \"b\""},
        {"a\nbb\n", "a\nb\n", "was made with \"bb\", now it is \"b\""},
        {"a", "a\n", "was made with"},
        {"", "a", "was made with \"\", now it is \"a\""},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (ROWS[i].says)
            T_FAILS(study_same("f.cell", ROWS[i].was, strlen(ROWS[i].was), ROWS[i].now),
                    ERR_USAGE, ROWS[i].says);
        else
            T_STATUS_OK(study_same("f.cell", ROWS[i].was, strlen(ROWS[i].was), ROWS[i].now));
        T_OK(!ROWS[i].says || strstr(status_text(), "f.cell: "));
    }
    T_OK(study_same("f", "a\nb\nrest", 4, "a\nb\n") == OK);   // n, not a zero, ends it
}

/* Every one of the settings, and what no setting says: fewer tasks. */
TEST(cells_of_other_settings_are_refused)
{
    static const char *const OTHERS[] = {"context 64\nbos auto\nseed 0\n",
                                         "context 72\nbos none\nseed 0\n",
                                         "context 72\nbos auto\nseed 1\n",
                                         "context 72\nbos auto\n"};
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_weights(&s, 1, &b.m.model, &b.m.model));
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        o.settings = OTHERS[i];
        T_STATUS_OK(study_init(&s, &b.arena, &o));
        T_FAILS(study_load(&s), ERR_USAGE, "a-b-c-w16a4-16.cell: was made with");
        T_OK(strstr(status_text(), "without --resume") && !study_cell(&s, 1, 0)->done);
    }
    for (int i = 0; i < 2; i++) {
        o = options(&b);
        o.n_files = i;
        o.n_choices = !i;
        T_STATUS_OK(study_init(&s, &b.arena, &o));
        T_FAILS(study_load(&s), ERR_FORMAT, "its figures are not whole");
    }
    o = options(&b);
    o.text = NULL;
    o.divergence = false;
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_FAILS(study_load(&s), ERR_FORMAT, "its figures are not whole");
    o = options(&b);
    o.name = "another";   // another model's cells are its own
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_load(&s));
    T_OK(!study_cell(&s, 1, 0)->done);
    o = options(&b);
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_forget(&s));
    bench_close(&b);
}

TEST(folders_that_cannot_be_written)
{
    Bench b;
    Study s;
    T_STATUS_OK(bench_open(&b));
    StudyOptions o = options(&b);
    o.folder = "/nowhere/cells";
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_STATUS_OK(study_load(&s));
    T_FAILS(study_weights(&s, 0, &b.m.model, &b.m.model), ERR_IO, "/nowhere/cells/a-b-c-fp-16");
    o.folder = tiny_file("plain", "");
    T_STATUS_OK(study_init(&s, &b.arena, &o));
    T_FAILS(study_forget(&s), ERR_IO, "cannot be removed");
    bench_close(&b);
}

static Status stored_study(Bench *b, Arena *a)
{
    Study        s;
    StudyOptions o = options(b);
    o.n_weights = o.n_bits = 1;
    TRY(study_init(&s, a, &o));
    TRY(study_load(&s));
    if (study_finished(&s, 0))
        return OK;
    ARENA_NEW(study_cell(&s, 0, 0)->text.window_nll, a, b->w.seq.n);
    return study_save(&s, 0, 0);
}

/* Whatever fails, what is in the folder is whole or not there. */
TEST(every_allocation_may_fail)
{
    Bench b;
    T_STATUS_OK(bench_open(&b));
    for (int turn = 0; turn < 2; turn++) {   // writing, then reading
        Status s = ERR_MEMORY;
        for (int64_t k = 1; s != OK && k < 1000; k++) {
            Arena a = {0};
            arena_fail_at(k);
            s = stored_study(&b, &a);
            arena_fail_at(0);
            T_OK(s == OK || s == ERR_MEMORY);
            T_OK(turn == 1 || is_there("a-b-c-fp-16.cell") == (s == OK));
            arena_close(&a);
        }
        T_OK(s == OK);
    }
    bench_close(&b);
}
