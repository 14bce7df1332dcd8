/* decoder.c - see decoder.h. Each step makes a list of pieces from a list. */
#include "analysis/text/decoder.h"

#include <string.h>

#include "analysis/text/bytemap.h"
#include "analysis/text/normalizer.h"

typedef struct {
    PieceSpace *space;
    Piece      *at;
    int64_t     n;
} List;

static Piece piece_of(const char *text, int64_t n)
{
    return (Piece){.text = text, .n = n};
}

/* Joins pieces [from, to) with gap between them. */
static Status join(const List *l, int64_t from, int64_t to, const char *gap, Piece *out)
{
    int64_t     room = 0, n_gap = (int64_t)strlen(gap);
    PieceWriter w;
    for (int64_t i = from; i < to; i++)
        room += l->at[i].n + n_gap;
    TRY(piece_write_begin(&w, l->space, room));
    for (int64_t i = from; i < to; i++) {
        if (i > from)
            TRY(piece_write(&w, gap, n_gap, 0));
        TRY(piece_copy(&w, &l->at[i], 0, l->at[i].n));
    }
    *out = piece_of(w.text, w.n);
    return OK;
}

static Status fuse(List *l, const char *gap)
{
    Piece all;
    TRY(join(l, 0, l->n, gap, &all));
    if (!l->n)
        ARENA_NEW(l->at, l->space->arena, 1);
    l->at[0] = all;
    l->n = 1;
    return OK;
}

/* Bytes of a spelling in bytemap's characters; any other one stays. */
static Status spelled_bytes(PieceSpace *space, Piece *p)
{
    char   *out = arena_raw(space->arena, p->n, 1);
    int64_t n = 0;
    if (!out)
        FAIL(ERR_MEMORY, "out of memory: %lld bytes of text", (long long)p->n);
    for (int64_t i = 0; i < p->n;) {
        int step, byte = bytemap_byte(utf8_get(p->text + i, &step));
        if (byte < 0)
            return OK;
        out[n++] = (char)byte;
        i += step;
    }
    *p = piece_of(out, n);
    return OK;
}

static Status decode_bytes(List *l)
{
    for (int64_t i = 0; i < l->n; i++)
        TRY(spelled_bytes(l->space, &l->at[i]));
    TRY(fuse(l, ""));
    return piece_repair(&l->at[0], l->space);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0xXX>", -1 for other spellings. */
static int fallback_byte(const Piece *p)
{
    if (p->n != 6 || memcmp(p->text, "<0x", 3) != 0 || p->text[5] != '>')
        return -1;
    int high = hex_digit(p->text[3]), low = hex_digit(p->text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool is_valid(const char *text, int64_t n)
{
    bool valid = true;
    for (int64_t i = 0; i < n && valid;)
        i += utf8_step(text + i, n - i, &valid);
    return valid;
}

/* Each run of byte tokens becomes text, or U+FFFD a byte if it is no UTF-8. */
static Status decode_fallback(List *l)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        int64_t end = i;
        while (end < l->n && fallback_byte(&l->at[end]) >= 0)
            end++;
        if (end > i) {
            char *run = arena_raw(l->space->arena, end - i, 1);
            if (!run)
                FAIL(ERR_MEMORY, "out of memory: %lld bytes of text", (long long)(end - i));
            for (int64_t j = i; j < end; j++)
                run[j - i] = (char)fallback_byte(&l->at[j]);
            bool valid = is_valid(run, end - i);
            for (int64_t j = i; j < (valid ? i + 1 : end); j++)
                l->at[n++] = valid ? piece_of(run, end - i) : piece_of("\xef\xbf\xbd", 3);
        }
        if (end < l->n)
            l->at[n++] = l->at[end];
        i = end;
    }
    l->n = n;
    return OK;
}

static bool ends_with(const Piece *p, const char *text, int64_t n)
{
    return p->n >= n && memcmp(p->text + p->n - n, text, (size_t)n) == 0;
}

static void strip(const DecodeStep *s, Piece *p)
{
    int64_t n = (int64_t)strlen(s->text);
    for (int64_t i = 0; i < s->start && p->n >= n && memcmp(p->text, s->text, (size_t)n) == 0;
         i++)
        *p = piece_of(p->text + n, p->n - n);
    for (int64_t i = 0; i < s->stop && ends_with(p, s->text, n); i++)
        p->n -= n;
}

static Status decode(List *l, const DecodeStep *s)
{
    switch (s->kind) {
    case DECODE_BYTES:
        return decode_bytes(l);
    case DECODE_FALLBACK:
        return decode_fallback(l);
    case DECODE_FUSE:
        return fuse(l, "");
    case DECODE_REPLACE:
    case DECODE_METASPACE:
        for (int64_t i = 0; i < l->n; i++)
            TRY(normalizer_replace(&l->at[i], l->space, s->pattern,
                              s->kind == DECODE_REPLACE     ? s->text
                              : i == 0 && s->start ? ""
                                                            : " "));
        return OK;
    case DECODE_STRIP:
        for (int64_t i = 0; i < l->n; i++)
            strip(s, &l->at[i]);
        return OK;
    }
    FAIL(ERR_UNSUPPORTED, "tokenizer: decoder number %d", (int)s->kind);
}

Status decoder_run(const Decoder *d, PieceSpace *space, const Piece *spelling, int64_t n,
                   char **text, int64_t *length)
{
    List l = {.space = space, .n = n};
    ARENA_NEW(l.at, space->arena, n);
    if (n)
        memcpy(l.at, spelling, (size_t)n * sizeof *spelling);
    for (int i = 0; i < d->n; i++)
        TRY(decode(&l, &d->step[i]));
    TRY(fuse(&l, d->n ? "" : " "));
    *text = arena_text(space->arena, l.at[0].text, (size_t)l.at[0].n);
    *length = l.at[0].n;
    if (!*text)
        FAIL(ERR_MEMORY, "out of memory: %lld bytes of text", (long long)*length);
    return OK;
}
