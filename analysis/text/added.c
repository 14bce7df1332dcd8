/* added.c - see added.h. A trie of bytes, children in lists. */
#include "analysis/text/added.h"

#include <string.h>

/* \w of the regular expressions that the library uses here (not those of its
 * pre-tokenizers): Unicode's annex C, with the alphabetic symbols. */
static const char WORD[] =
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}"
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]";

static int32_t find_child(const AddedFinder *f, int32_t node, unsigned char byte)
{
    int32_t c = f->node[node].child;
    while (c && f->node[c].byte != byte)
        c = f->node[c].next;
    return c;
}

static int32_t make_child(AddedFinder *f, int32_t node, unsigned char byte)
{
    int32_t c = find_child(f, node, byte);
    if (c)
        return c;
    c = f->n_nodes++;
    f->node[c] = (AddedNode){.next = f->node[node].child, .token = -1, .byte = byte};
    f->node[node].child = c;
    return c;
}

static Status add_token(AddedFinder *f, const char *name, int32_t i)
{
    const AddedToken *t = &f->tokens[i];
    int32_t           node = 0;
    for (const char *p = t->form; *p; p++)
        node = make_child(f, node, (unsigned char)*p);
    if (f->node[node].token >= 0)
        FAIL(ERR_FORMAT, "%s: added tokens %d and %d are both \"%.100s\"", name,
             (int)f->tokens[f->node[node].token].id, (int)t->id, t->form);
    f->node[node].token = i;
    f->first[(unsigned char)t->form[0]] = true;
    return OK;
}

Status added_finder(AddedFinder *f, Arena *a, const char *name, const AddedToken *tokens,
                    int32_t n, bool normalized, PatternList *patterns)
{
    Pattern *word = NULL;
    int64_t bytes = 1;
    for (int32_t i = 0; i < n; i++)
        bytes += (int64_t)strlen(tokens[i].form);
    if (bytes > INT32_MAX)
        FAIL(ERR_RANGE, "%s: added tokens of %lld bytes", name, (long long)bytes);
    *f = (AddedFinder){.tokens = tokens, .n_nodes = 1};
    ARENA_NEW(f->node, a, bytes);
    f->node[0].token = -1;
    for (int32_t i = 0; i < n; i++) {
        if (tokens[i].normalized != normalized || !tokens[i].form[0])
            continue;
        TRY(add_token(f, name, i));
        if (tokens[i].single_word && !word)
            TRY(pattern_compile(&word, patterns, a, name, WORD));
    }
    f->word = word;
    return OK;
}

AddedWalk added_walk(const AddedFinder *f, const char *text, int64_t n)
{
    return (AddedWalk){f, text, n, 0, 0};
}

/* Longest token at w->text[at], NULL for none. */
static const AddedToken *match_at(const AddedWalk *w, int64_t at, int64_t *end)
{
    const AddedFinder *f = w->finder;
    const AddedToken  *best = NULL;
    int32_t            node = 0;
    for (int64_t i = at; i < w->n; i++) {
        node = find_child(f, node, (unsigned char)w->text[i]);
        if (!node)
            break;
        if (f->node[node].token >= 0) {
            best = &f->tokens[f->node[node].token];
            *end = i + 1;
        }
    }
    return best;
}

static int64_t char_before(const AddedWalk *w, int64_t at)
{
    do
        at--;
    while (at > 0 && (w->text[at] & 0xc0) == 0x80);
    return at;
}

static bool is_word(const AddedWalk *w, int64_t at)
{
    int64_t from, to;
    int     step;
    utf8_get(w->text + at, &step);
    PatternWalk one = pattern_walk(w->finder->word, w->text + at, step);
    return pattern_next(&one, &from, &to) == OK && from >= 0;
}

static bool stands_alone(const AddedWalk *w, int64_t from, int64_t to)
{
    return (from == 0 || !is_word(w, char_before(w, from))) && (to == w->n || !is_word(w, to));
}

static int64_t space_begin(const AddedWalk *w, int64_t at)
{
    while (at > 0) {
        int64_t before = char_before(w, at);
        int     step;
        if (!utf8_is_space(utf8_get(w->text + before, &step)))
            break;
        at = before;
    }
    return at;
}

static int64_t space_end(const AddedWalk *w, int64_t at)
{
    int step;
    while (at < w->n && utf8_is_space(utf8_get(w->text + at, &step)))
        at += step;
    return at;
}

const AddedToken *added_next(AddedWalk *w, int64_t *before, int64_t *from, int64_t *to)
{
    *before = w->done;
    while (w->at < w->n && w->finder->node) {
        const AddedToken *t = NULL;
        int64_t           begin = w->at;
        if (w->finder->first[(unsigned char)w->text[begin]])
            t = match_at(w, begin, &w->at);
        if (!t) {
            w->at++;
            continue;
        }
        *from = begin;
        *to = w->at;
        if (t->single_word && !stands_alone(w, *from, *to))
            continue;
        if (t->lstrip) {
            *from = space_begin(w, *from);
            *from = *from > w->done ? *from : w->done;
        }
        if (t->rstrip)
            *to = space_end(w, *to);
        w->done = *to;
        return t;
    }
    *from = *to = w->n;
    return NULL;
}
