/* normalizer.c - see normalizer.h. */
#include "analysis/text/normalizer.h"

#include <string.h>

#include "analysis/text/nfc.h"

Status normalizer_prepend(Piece *p, PieceSpace *space, const char *text)
{
    PieceWriter w;
    int64_t     n = (int64_t)strlen(text);
    TRY(piece_write_begin(&w, space, p->n + n));
    TRY(piece_write(&w, text, n, p->base));
    TRY(piece_copy(&w, p, 0, p->n));
    *p = piece_written(&w, p);
    return OK;
}

Status normalizer_replace(Piece *p, PieceSpace *space, const Pattern *pattern, const char *text)
{
    PieceWriter w;
    PatternWalk walk = pattern_walk(pattern, p->text, p->n);
    int64_t     from, to, done = 0, n = (int64_t)strlen(text);
    TRY(pattern_next(&walk, &from, &to));
    if (from < 0 || p->n == 0)
        return OK;
    TRY(piece_write_begin(&w, space, p->n + p->n / 2));
    while (from >= 0) {
        TRY(piece_copy(&w, p, done, from));
        TRY(piece_write(&w, text, n, piece_origin(p, from < p->n ? from : p->n - 1)));
        done = to;
        TRY(pattern_next(&walk, &from, &to));
    }
    TRY(piece_copy(&w, p, done, p->n));
    *p = piece_written(&w, p);
    return OK;
}

static Status apply(const NormalStep *step, Piece *p, PieceSpace *space)
{
    switch (step->kind) {
    case NORMAL_NFC:
        return nfc_apply(p, space);
    case NORMAL_PREPEND:
        return p->n ? normalizer_prepend(p, space, step->text) : OK;
    case NORMAL_REPLACE:
        return normalizer_replace(p, space, step->pattern, step->text);
    }
    FAIL(ERR_UNSUPPORTED, "tokenizer: normalizer number %d", (int)step->kind);
}

Status normalizer_apply(const Normalizer *z, Piece *p, PieceSpace *space)
{
    for (int i = 0; i < z->n; i++)
        TRY(apply(&z->step[i], p, space));
    return OK;
}
