/* pretoken.c - see pretoken.h. */
#include "analysis/text/pretoken.h"

#include <string.h>

#include "analysis/text/normalizer.h"

typedef struct {
    const Pretokenizer *z;
    PieceSpace         *space;
    PretokenWord        word;
    void               *context;
    bool                enough;
} Run;

static Status run_step(Run *r, int i, Piece p);

/* A split under way: the stretch that may still grow. */
typedef struct {
    Run    *run;
    Piece   piece;
    int     step;
    bool    open, separator;  // there is a stretch; it ends in a separator
    int64_t from, to;
} Cutter;

static Status emit(const Cutter *c, int64_t from, int64_t to)
{
    return from < to ? run_step(c->run, c->step + 1, piece_sub(c->piece, from, to)) : OK;
}

static bool joins(SplitRule rule, bool before, bool now)
{
    switch (rule) {
    case SPLIT_CONTIGUOUS:
        return before == now;
    case SPLIT_WITH_PREVIOUS:
        return !before && now;
    case SPLIT_WITH_NEXT:
        return before && !now;
    default:
        return false;
    }
}

/* The next stretch of the text, a separator or what lies between two. */
static Status cut(Cutter *c, int64_t from, int64_t to, bool separator)
{
    const PretokenStep *s = &c->run->z->step[c->step];
    separator ^= s->invert;
    if (s->rule == SPLIT_REMOVED && separator)
        return OK;
    if (c->open && joins(s->rule, c->separator, separator)) {
        c->to = to;
    } else {
        if (c->open)
            TRY(emit(c, c->from, c->to));
        c->from = from;
        c->to = to;
    }
    c->open = true;
    c->separator = separator;
    return OK;
}

static Status split(Run *r, int i, Piece p)
{
    Cutter      c = {.run = r, .piece = p, .step = i};
    PatternWalk walk = pattern_walk(r->z->step[i].pattern, p.text, p.n);
    int64_t     done = 0, from, to;
    while (!r->enough) {
        TRY(pattern_next(&walk, &from, &to));
        if (from < 0)
            break;
        if (done < from)
            TRY(cut(&c, done, from, false));
        TRY(cut(&c, from, to, true));
        done = to;
    }
    if (done < p.n)
        TRY(cut(&c, done, p.n, false));
    return c.open ? emit(&c, c.from, c.to) : OK;
}

static Status prepend(const Run *r, const PretokenStep *s, Piece *p)
{
    size_t n = strlen(s->text);
    if ((s->first && p->base != 0) ||
        ((size_t)p->n >= n && memcmp(p->text, s->text, n) == 0))
        return OK;
    return normalizer_prepend(p, r->space, s->text);
}

static Status run_step(Run *r, int i, Piece p)
{
    if (p.n == 0 || r->enough)
        return OK;
    if (i == r->z->n)
        return r->word(r->context, &p, &r->enough);
    const PretokenStep *s = &r->z->step[i];
    if (s->kind == PRETOKEN_SPLIT)
        return split(r, i, p);
    ArenaMark mark = arena_mark(r->space->arena);
    if (s->kind == PRETOKEN_REPLACE)
        TRY(normalizer_replace(&p, r->space, s->pattern, s->text));
    else
        TRY(prepend(r, s, &p));
    TRY(run_step(r, i + 1, p));
    arena_rewind(r->space->arena, mark);
    return OK;
}

Status pretoken_run(const Pretokenizer *z, PieceSpace *space, const Piece *p, PretokenWord word,
                    void *context)
{
    Run r = {.z = z, .space = space, .word = word, .context = context};
    return run_step(&r, 0, *p);
}
