/* bpe.c - see bpe.h. */
#include "analysis/text/bpe.h"

#include <stdio.h>
#include <string.h>

#include "analysis/text/bytemap.h"

struct BpeSymbol {
    int32_t id;          // -1: merged into its left neighbour
    int32_t prev, next;  // neighbours in the segment, -1: none
    int32_t length;      // bytes of the word
};

struct BpeMerge {
    uint64_t order;      // rank, then place of the left symbol
    int32_t  result;
};

/* A word on its way: symbols gather until no merge can cross to the next. */
typedef struct {
    Bpe         *bpe;
    BpeSpace    *space;
    const Piece *word;
    Ids         *out;
    int64_t      n;          // symbols in the segment
    int64_t      done;       // bytes of the word that are in out
    int32_t      unk_length; // bytes of an unknown stretch not yet added
    bool         odd;        // had unknown characters: lengths are not spellings
} Run;

/* --- tables --- */

Status bpe_init(Bpe *b, Arena *a)
{
    ARENA_NEW(b->cache, a, BPE_CACHE_SLOTS);
    for (uint32_t c = 0; c < BPE_DIRECT; c++) {
        char text[UTF8_MAX];
        int  n = utf8_put(text, c);
        b->char_id[c] = vocab_find(b->vocab, text, n);
    }
    for (int i = 0; i < 256; i++) {
        char text[8];
        int  n = snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        b->fallback[i] = vocab_find(b->vocab, text, n);
    }
    return OK;
}

static Status make_room(BpeSpace *s, int64_t n)
{
    if (n < s->room)
        return OK;
    int64_t    room = 2 * n + 256;
    BpeSymbol *symbols = arena_raw(s->arena, room, sizeof *symbols);
    BpeMerge  *heap = arena_raw(s->arena, 3 * room, sizeof *heap);
    if (!symbols || !heap)
        FAIL(ERR_MEMORY, "out of memory: %lld characters that merge", (long long)room);
    if (n)
        memcpy(symbols, s->symbols, (size_t)n * sizeof *symbols);
    s->symbols = symbols;
    s->heap = heap;
    s->room = room;
    return OK;
}

/* --- the heap: smallest order on top --- */

static void heap_push(BpeMerge *heap, int64_t *n, BpeMerge m)
{
    int64_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2].order > m.order) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = m;
}

static BpeMerge heap_pop(BpeMerge *heap, int64_t *n)
{
    BpeMerge top = heap[0], last = heap[--*n];
    int64_t  i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && heap[child + 1].order < heap[child].order)
            child++;
        if (heap[child].order >= last.order)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* --- merging a segment --- */

static void offer(const Bpe *b, BpeSpace *s, int64_t *n_heap, int32_t left, int32_t right)
{
    const Merge *m = merges_find(&b->merges, s->symbols[left].id, s->symbols[right].id);
    if (m)
        heap_push(s->heap, n_heap,
                  (BpeMerge){(uint64_t)(uint32_t)m->rank << 32 | (uint32_t)left, m->result});
}

/* A merge may be stale: one of its two symbols changed since. What counts is
 * that the two there now still make the same token (the library's rule). */
static bool still_stands(const Bpe *b, const BpeSymbol *symbols, const BpeMerge *m)
{
    const BpeSymbol *left = &symbols[(uint32_t)m->order];
    if (left->id < 0 || left->next < 0)
        return false;
    const Merge *now = merges_find(&b->merges, left->id, symbols[left->next].id);
    return now && now->result == m->result;
}

static void merge_segment(const Bpe *b, BpeSpace *s, int64_t n)
{
    BpeSymbol *symbols = s->symbols;
    int64_t    n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        offer(b, s, &n_heap, i, i + 1);
    while (n_heap) {
        BpeMerge m = heap_pop(s->heap, &n_heap);
        if (!still_stands(b, symbols, &m))
            continue;
        int32_t    at = (int32_t)(uint32_t)m.order;
        BpeSymbol *left = &symbols[at], *right = &symbols[left->next];
        left->id = m.result;
        left->length += right->length;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0)
            symbols[left->next].prev = at;
        if (left->prev >= 0)
            offer(b, s, &n_heap, left->prev, at);
        if (left->next >= 0)
            offer(b, s, &n_heap, at, left->next);
    }
}

static Status flush(Run *r)
{
    BpeSpace *s = r->space;
    if (r->n > 1)
        merge_segment(r->bpe, s, r->n);
    TRY(ids_reserve(r->out, r->n));
    for (int64_t i = 0; i < r->n; i++) {
        if (s->symbols[i].id < 0)
            continue;
        int64_t begin = r->done < r->word->n ? r->done : r->word->n - 1;
        ids_push(r->out, s->symbols[i].id, r->out->track ? piece_origin(r->word, begin) : 0);
        r->done += s->symbols[i].length;
    }
    r->n = 0;
    return OK;
}

/* --- from characters to symbols --- */

static Status add_symbol(Run *r, int32_t id, int32_t length)
{
    BpeSpace *s = r->space;
    if (r->n && !merges_may_join(&r->bpe->merges, s->symbols[r->n - 1].id, id))
        TRY(flush(r));
    if (r->n >= INT32_MAX)
        FAIL(ERR_RANGE, "tokenizer: a word of more than %d characters", INT32_MAX);
    TRY(make_room(s, r->n));
    if (r->n)
        s->symbols[r->n - 1].next = (int32_t)r->n;
    s->symbols[r->n] = (BpeSymbol){id, (int32_t)r->n - 1, -1, length};
    r->n++;
    return OK;
}

static Status flush_unk(Run *r)
{
    int32_t length = r->unk_length;
    r->unk_length = 0;
    return length ? add_symbol(r, r->bpe->unk, length) : OK;
}

/* All bytes as <0xXX>, if all of those exist. A waiting unknown stretch goes on
 * waiting: the library's order. */
static Status add_fallback(Run *r, const char *text, int n, int32_t length, bool *added)
{
    const Bpe *b = r->bpe;
    *added = b->byte_fallback;
    for (int i = 0; i < n && *added; i++)
        *added = b->fallback[(unsigned char)text[i]] >= 0;
    for (int i = 0; i < n && *added; i++)
        TRY(add_symbol(r, b->fallback[(unsigned char)text[i]], length == n ? 1 : i == 0));
    return OK;
}

static Status add_unknown(Run *r, uint32_t c, const char *text, int n, int32_t length)
{
    bool added;
    r->odd = true;
    TRY(add_fallback(r, text, n, length, &added));
    if (added)
        return OK;
    if (r->bpe->unk < 0)
        FAIL(ERR_RANGE,
             "%s: character U+%04X (\"%.*s\") is not in the vocabulary, which has no "
             "unknown token",
             r->bpe->name, (unsigned)c, n, text);
    if (!r->bpe->fuse_unk)
        TRY(flush_unk(r));
    if (__builtin_add_overflow(r->unk_length, length, &r->unk_length))
        FAIL(ERR_RANGE, "%s: more than %d bytes of unknown characters", r->bpe->name,
             INT32_MAX);
    return OK;
}

/* Character c, spelled text[0..n), that stands for length bytes of the word. */
static Status add_char(Run *r, uint32_t c, const char *text, int n, int32_t length)
{
    const Bpe *b = r->bpe;
    int32_t    id = c < BPE_DIRECT ? b->char_id[c] : vocab_find(b->vocab, text, n);
    if (id < 0)
        return add_unknown(r, c, text, n, length);
    if (r->unk_length)
        TRY(flush_unk(r));
    return add_symbol(r, id, length);
}

static Status add_bytes(Run *r)
{
    for (int64_t i = 0; i < r->word->n && !ids_enough(r->out); i++) {
        char     text[UTF8_MAX];
        uint32_t c = bytemap_char((unsigned char)r->word->text[i]);
        TRY(add_char(r, c, text, utf8_put(text, c), 1));
    }
    return OK;
}

static Status add_chars(Run *r)
{
    for (int64_t i = 0; i < r->word->n && !ids_enough(r->out);) {
        int      n;
        uint32_t c = utf8_get(r->word->text + i, &n);
        TRY(add_char(r, c, r->word->text + i, n, n));
        i += n;
    }
    return OK;
}

/* --- whole words --- */

/* The word's own token, -1 where it is none. */
static Status find_whole(const Bpe *b, BpeSpace *s, const Piece *word, int32_t *id)
{
    if (!b->bytes) {
        *id = vocab_find(b->vocab, word->text, word->n);
        return OK;
    }
    if (s->spelling_room < 2 * word->n) {
        s->spelling_room = 4 * word->n + 256;
        s->spelling = arena_raw(s->arena, s->spelling_room, 1);
        if (!s->spelling) {
            s->spelling_room = 0;
            FAIL(ERR_MEMORY, "out of memory: word of %lld bytes", (long long)word->n);
        }
    }
    int64_t n = 0;
    for (int64_t i = 0; i < word->n; i++)  // bytemap's characters are below U+0800
        n += utf8_put(s->spelling + n, bytemap_char((unsigned char)word->text[i]));
    *id = vocab_find(b->vocab, s->spelling, n);
    return OK;
}

/* Bytes of the word that a token covers, for words without unknown characters. */
static int64_t token_width(const Bpe *b, int32_t id)
{
    int64_t n = b->vocab->length[id], width = 0;
    if (!b->bytes)
        return n;
    for (int64_t i = 0; i < n; i++)
        width += (b->vocab->text[id][i] & 0xc0) != 0x80;
    return width;
}

static Status recall(const Bpe *b, const BpeCached *c, const Piece *word, Ids *out)
{
    TRY(ids_reserve(out, c->n_ids));
    int64_t at = 0;
    for (int i = 0; i < c->n_ids; i++) {
        ids_push(out, c->ids[i], out->track ? piece_origin(word, at) : 0);
        at += out->track ? token_width(b, c->ids[i]) : 0;
    }
    return OK;
}

static void remember(BpeCached *c, uint32_t hash, const Piece *word, const int32_t *ids,
                     int64_t n)
{
    c->hash = hash;
    c->n_bytes = (uint8_t)word->n;
    c->n_ids = (uint8_t)n;
    memcpy(c->text, word->text, (size_t)word->n);
    memcpy(c->ids, ids, (size_t)n * sizeof *ids);
}

static Status merge_word(Bpe *b, BpeSpace *space, const Piece *word, Ids *out, bool *odd)
{
    if (b->ignore_merges) {
        int32_t id = -1;
        TRY(find_whole(b, space, word, &id));
        if (id >= 0) {
            TRY(ids_reserve(out, 1));
            ids_push(out, id, piece_origin(word, 0));
            return OK;
        }
    }
    Run r = {.bpe = b, .space = space, .word = word, .out = out};
    TRY(b->bytes ? add_bytes(&r) : add_chars(&r));
    TRY(flush_unk(&r));
    TRY(flush(&r));
    *odd = r.odd;
    return OK;
}

Status bpe_word(Bpe *b, BpeSpace *space, const Piece *word, Ids *out)
{
    bool odd = false;
    if (word->n > BPE_CACHE_BYTES)
        return merge_word(b, space, word, out, &odd);
    uint32_t   hash = (uint32_t)vocab_hash(word->text, word->n);
    BpeCached *c = &b->cache[hash % BPE_CACHE_SLOTS];
    if (c->hash == hash && c->n_bytes == word->n &&
        memcmp(c->text, word->text, (size_t)word->n) == 0)
        return recall(b, c, word, out);
    int64_t before = out->n;
    TRY(merge_word(b, space, word, out, &odd));
    if (!odd && out->n - before <= BPE_CACHE_IDS && !ids_enough(out))   // else it may be cut
        remember(c, hash, word, out->id + before, out->n - before);
    return OK;
}
