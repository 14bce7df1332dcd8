/* test_choice.c - lines of each task as token sequences, and who is right. */
#include "analysis/choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

typedef struct {
    Arena      arena;
    Tokenizer *t;
    Choice     c;
} Loaded;

static Status load(Loaded *l, const char *text, ChoiceOptions o)
{
    *l = (Loaded){0};
    if (o.context == 0)
        o.context = 10000;
    TRY(tiny_tokenizer(&l->t, &l->arena, true));
    return choice_load(&l->c, &l->arena, l->t, tiny_file("task.jsonl", text), &o);
}

static void unload(Loaded *l)
{
    tokenizer_close(l->t);
    arena_close(&l->arena);
}

/* The text of request r: rows, a bar before what is scored, the last target. BOS, which
 * comes first, is "^". */
static const char *shown(const Loaded *l, int64_t r)
{
    static char      out[4][2048];
    static int       turn;
    const Sequences *s = &l->c.seq;
    char            *text = out[turn++ % 4], *at = text;
    bool             scored = false;
    for (int64_t t = s->start[r]; t < s->start[r + 1]; t++) {
        int32_t next = s->targets[t];
        int32_t id = s->ids[t];
        const char *piece = tokenizer_piece(l->t, id);
        if (id == TINY_BOS)
            *at++ = '^';
        else if (id == 3)
            *at++ = ' ';
        else if (strcmp(piece, "\u010a") == 0)
            *at++ = '/';
        else
            at += sprintf(at, "%s", piece);
        if (!scored && next >= 0)
            *at++ = '|';
        scored = scored || next >= 0;
        if (scored && next < 0)
            return "a target is missing";
        if (scored && t + 1 < s->start[r + 1] && s->ids[t + 1] != next)
            return "a target is not the next token";
        if (t + 1 == s->start[r + 1])
            at += sprintf(at, "%s", next == 3 ? " " : tokenizer_piece(l->t, next));
    }
    *at = 0;
    return text;
}

#define ITEM(id) "{\"id\":\"" id "\",\"context\":\"one\",\"choices\":[\"a\",\"bc\"]," \
                 "\"answer\":1}\n"

TEST(a_plain_task)
{
    Loaded l;
    T_STATUS_OK(load(&l, ITEM("x") "\n" ITEM("y"), (ChoiceOptions){0}));
    T_TEXT(l.c.name, "task");
    T_OK(l.c.kind == CHOICE_GENERIC && l.c.n == 2 && l.c.n_requests == 4 && l.c.has_norm);
    T_OK(l.c.first[1] == 2 && l.c.first[2] == 4 && l.c.gold[0] == 1);
    T_TEXT(shown(&l, 0), "^one| a");
    T_TEXT(shown(&l, 1), "^one| bc");
    T_OK(l.c.requests[3].item == 1 && l.c.requests[3].choice == 1 &&
         l.c.requests[3].length == 2);
    unload(&l);
}
