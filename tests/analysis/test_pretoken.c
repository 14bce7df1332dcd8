/* test_pretoken.c - every rule of a split, as the library has it, and the steps
 * that change a word. */
#include <string.h>

#include "analysis/text/pretoken.h"
#include "tests/check.h"

typedef struct {
    char    text[256];
    int64_t begin[32];
    int     n, most;   // most 0: all
} Words;

static Status add_word(void *context, const Piece *word, bool *enough)
{
    Words *w = context;
    if (w->n)
        strcat(w->text, "|");
    strncat(w->text, word->text, (size_t)word->n);
    w->begin[w->n++] = piece_origin(word, 0);
    *enough = w->n == w->most;
    return OK;
}

static Status run(const Pretokenizer *z, Arena *a, const char *text, int64_t base, Words *w)
{
    PieceSpace space = {a, true};
    Piece      p = {.text = text, .n = (int64_t)strlen(text), .base = base};
    *w = (Words){.most = w->most};
    return pretoken_run(z, &space, &p, add_word, w);
}

TEST(rules_of_a_split)
{
    static const char *const WANT[2][N_SPLITS] = {
        {"a|bc|d", "-|-|a|-|bc|-|-|-|d|-|-", "-|-|a-|bc-|-|-|d-|-", "-|-a|-bc|-|-|-d|-|-",
         "--|a|-|bc|---|d|--"},
        {"-|-|-|-|-|-|-|-", "-|-|a|-|bc|-|-|-|d|-|-", "-|-a|-bc|-|-|-d|-|-",
         "-|-|a-|bc-|-|-|d-|-", "--|a|-|bc|---|d|--"},
    };
    Arena    a = {0};
    Pattern *p;
    Words    w = {0};
    T_STATUS_OK(pattern_literal(&p, &a, "-", 1));
    for (int invert = 0; invert < 2; invert++)
        for (int rule = 0; rule < N_SPLITS; rule++) {
            Pretokenizer z = {.n = 1};
            z.step[0] = (PretokenStep){.kind = PRETOKEN_SPLIT, .pattern = p,
                                       .rule = (SplitRule)rule, .invert = invert};
            T_STATUS_OK(run(&z, &a, "--a-bc---d--", 0, &w));
            T_TEXT(w.text, WANT[invert][rule]);
        }
    arena_close(&a);
}

TEST(steps_work_on_each_others_words)
{
    Arena    a = {0};
    Pattern *dash, *space;
    Words    w = {0};
    T_STATUS_OK(pattern_literal(&dash, &a, "-", 1));
    T_STATUS_OK(pattern_literal(&space, &a, " ", 1));
    Pretokenizer z = {.n = 3};
    z.step[0] = (PretokenStep){.kind = PRETOKEN_SPLIT, .pattern = dash, .rule = SPLIT_REMOVED};
    z.step[1] = (PretokenStep){.kind = PRETOKEN_REPLACE, .pattern = space, .text = "__"};
    z.step[2] = (PretokenStep){.kind = PRETOKEN_PREPEND, .text = "__"};
    T_STATUS_OK(run(&z, &a, "a b- c-d", 0, &w));
    T_TEXT(w.text, "__a__b|__c|__d");
    T_OK(w.begin[0] == 0 && w.begin[1] == 4 && w.begin[2] == 7);
    z.step[2].first = true;
    T_STATUS_OK(run(&z, &a, "a b- c-d", 0, &w));
    T_TEXT(w.text, "__a__b|__c|d");
    T_STATUS_OK(run(&z, &a, "a-d", 5, &w));  // not at the beginning of the input
    T_TEXT(w.text, "a|d");
    w.most = 2;                              // no word is made after these
    T_STATUS_OK(run(&z, &a, "a-b-c-d", 0, &w));
    T_OK(w.n == 2);
    w.most = 0;
    T_STATUS_OK(run(&z, &a, "---", 0, &w));
    T_OK(w.n == 0);
    T_STATUS_OK(run(&z, &a, "", 0, &w));
    T_OK(w.n == 0);
    arena_close(&a);
}
