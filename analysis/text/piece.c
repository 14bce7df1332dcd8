/* piece.c - see piece.h. */
#include "analysis/text/piece.h"

#include <string.h>

#include "analysis/text/utf8.h"

static const char REPLACEMENT[] = "\xef\xbf\xbd";  // U+FFFD

Status piece_write_begin(PieceWriter *w, PieceSpace *space, int64_t room)
{
    *w = (PieceWriter){.space = space, .room = room + 16};
    w->text = arena_raw(space->arena, w->room, 1);
    if (space->track)
        w->origin = arena_raw(space->arena, w->room, sizeof *w->origin);
    if (!w->text || (space->track && !w->origin))
        FAIL(ERR_MEMORY, "out of memory: %lld bytes of text", (long long)w->room);
    return OK;
}

static Status make_room(PieceWriter *w, int64_t n)
{
    if (n <= w->room - w->n)
        return OK;
    PieceWriter old = *w;
    TRY(piece_write_begin(w, old.space, 2 * (old.n + n)));
    memcpy(w->text, old.text, (size_t)old.n);
    if (old.origin)
        memcpy(w->origin, old.origin, (size_t)old.n * sizeof *old.origin);
    w->n = old.n;
    return OK;
}

Status piece_write(PieceWriter *w, const char *text, int64_t n, int64_t origin)
{
    TRY(make_room(w, n));
    memcpy(w->text + w->n, text, (size_t)n);
    for (int64_t i = 0; w->origin && i < n; i++)
        w->origin[w->n + i] = origin;
    w->n += n;
    return OK;
}

Status piece_copy(PieceWriter *w, const Piece *p, int64_t from, int64_t to)
{
    int64_t n = to - from;
    TRY(make_room(w, n));
    memcpy(w->text + w->n, p->text + from, (size_t)n);
    for (int64_t i = 0; w->origin && i < n; i++)
        w->origin[w->n + i] = piece_origin(p, from + i);
    w->n += n;
    return OK;
}

Piece piece_written(const PieceWriter *w, const Piece *p)
{
    return (Piece){w->text, w->n, p->base, w->origin};
}

/* Place of the first malformed byte, n where there is none. */
static int64_t valid_prefix(const char *text, int64_t n)
{
    int64_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, text + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        bool valid;
        int  step = utf8_step(text + i, n - i, &valid);
        if (!valid)
            return i;
        i += step;
    }
    return n;
}

Status piece_repair(Piece *p, PieceSpace *space)
{
    int64_t i = valid_prefix(p->text, p->n);
    if (i == p->n)
        return OK;
    PieceWriter w;
    TRY(piece_write_begin(&w, space, p->n + p->n / 4));
    TRY(piece_copy(&w, p, 0, i));
    while (i < p->n) {
        bool valid;
        int  step = utf8_step(p->text + i, p->n - i, &valid);
        if (valid)
            TRY(piece_copy(&w, p, i, i + step));
        else
            TRY(piece_write(&w, REPLACEMENT, 3, piece_origin(p, i)));
        i += step;
    }
    *p = piece_written(&w, p);
    return OK;
}
