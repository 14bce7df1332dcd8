/* nfc.c - Unicode normalization form C (UAX 15).
 * A text is cut into clusters: a character that NFC surely leaves alone, and the
 * ones after it that may change. Only clusters of more than that one character
 * are decomposed, sorted by combining class and composed again. */
#include "analysis/text/nfc.h"

#include <stdlib.h>
#include <string.h>


typedef struct {
    uint32_t code, first, second;
} NfcPair;
typedef struct {
    uint32_t first, last;
    int      mark;
} NfcRange;

#include "analysis/text/nfc_table.h"

/* Hangul syllables are computed: L + V + T (Unicode 3.12). */
enum {
    L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7, S_BASE = 0xac00,
    L_COUNT = 19, V_COUNT = 21, T_COUNT = 28, S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

typedef struct {
    uint32_t code;
    int      mark;    // combining class
    int64_t  order;   // place before sorting
} NfcChar;

typedef struct {
    Arena   *arena;
    NfcChar *at;
    int64_t  n, room;
} Cluster;

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof *(table)))

static const NfcRange *find_range(const NfcRange *table, int64_t n, uint32_t c)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (c > table[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && c >= table[low].first ? &table[low] : NULL;
}

static const NfcPair *find_pair(const NfcPair *table, int64_t n, uint32_t c)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (c > table[middle].code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && table[low].code == c ? &table[low] : NULL;
}

static int mark_of(uint32_t c)
{
    const NfcRange *r = find_range(NFC_MARKS, COUNT(NFC_MARKS), c);
    return r ? r->mark : 0;
}

static bool may_change(uint32_t c)
{
    return c >= 0x300 && find_range(NFC_MAYBE, COUNT(NFC_MAYBE), c) != NULL;
}

static Status cluster_add(Cluster *k, uint32_t c)
{
    if (k->n == k->room) {
        int64_t  room = 2 * k->room + 32;
        NfcChar *at = arena_raw(k->arena, room, sizeof *at);
        if (!at)
            FAIL(ERR_MEMORY, "out of memory: %lld combining characters", (long long)room);
        if (k->n)
            memcpy(at, k->at, (size_t)k->n * sizeof *at);
        k->at = at;
        k->room = room;
    }
    k->at[k->n] = (NfcChar){c, mark_of(c), k->n};
    k->n++;
    return OK;
}

/* Depth is bounded: a decomposition's first part is at most a few steps away
 * from one that has none. */
static Status decompose(Cluster *k, uint32_t c)
{
    if (c >= S_BASE && c < S_BASE + S_COUNT) {
        uint32_t s = c - S_BASE, t = s % T_COUNT;
        TRY(cluster_add(k, L_BASE + s / (V_COUNT * T_COUNT)));
        TRY(cluster_add(k, V_BASE + s / T_COUNT % V_COUNT));
        return t ? cluster_add(k, T_BASE + t) : OK;
    }
    const NfcPair *p = find_pair(NFC_PAIRS, COUNT(NFC_PAIRS), c);
    if (!p)
        p = find_pair(NFC_ONE_WAY, COUNT(NFC_ONE_WAY), c);
    if (!p)
        return cluster_add(k, c);
    TRY(decompose(k, p->first));
    return p->second ? decompose(k, p->second) : OK;
}

static int by_mark(const void *x, const void *y)
{
    const NfcChar *a = x, *b = y;
    if (a->mark != b->mark)
        return a->mark < b->mark ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* Sorts each run of marks by class, stably. */
static void reorder(Cluster *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        int64_t end = i;
        while (end < k->n && k->at[end].mark)
            end++;
        if (end - i > 1)
            qsort(k->at + i, (size_t)(end - i), sizeof *k->at, by_mark);
        i = end;
    }
}

/* The character that a and b make together, 0 for none. */
static uint32_t compose_two(uint32_t a, uint32_t b)
{
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    int64_t low = 0, high = COUNT(NFC_BY_PARTS);
    while (low < high) {
        int64_t        middle = low + (high - low) / 2;
        const NfcPair *p = &NFC_PAIRS[NFC_BY_PARTS[middle]];
        if (p->first == a && p->second == b)
            return p->code;
        if (p->first < a || (p->first == a && p->second < b))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* A mark joins the last starter unless one of its own class, or a starter,
 * stands between them. */
static void compose(Cluster *k)
{
    int64_t n = 0, starter = -1;
    int     last_mark = -1;  // of what was kept since the starter; -1: nothing
    for (int64_t i = 0; i < k->n; i++) {
        NfcChar  c = k->at[i];
        uint32_t joined = 0;
        if (starter >= 0 && last_mark < c.mark)
            joined = compose_two(k->at[starter].code, c.code);
        if (joined) {
            k->at[starter].code = joined;
            continue;
        }
        if (c.mark == 0) {
            starter = n;
            last_mark = -1;
        } else {
            last_mark = c.mark;
        }
        k->at[n++] = c;
    }
    k->n = n;
}

static Status write_cluster(PieceWriter *w, Cluster *k, const Piece *p, int64_t from,
                            int64_t to)
{
    k->n = 0;
    for (int64_t i = from; i < to;) {
        int      step;
        uint32_t c = utf8_get(p->text + i, &step);
        TRY(decompose(k, c));
        i += step;
    }
    reorder(k);
    compose(k);
    for (int64_t i = 0; i < k->n; i++) {
        char out[UTF8_MAX];
        int  n = utf8_put(out, k->at[i].code);
        TRY(piece_write(w, out, n, piece_origin(p, from)));
    }
    return OK;
}

/* The first cluster at or after `at` that may change: its place to *from, its
 * end returned; p->n with *from == p->n where there is none. */
static int64_t next_cluster(const Piece *p, int64_t at, int64_t *from)
{
    int64_t safe = at, i = at;
    bool    open = false;
    while (i < p->n) {
        int      step;
        uint32_t c = utf8_get(p->text + i, &step);
        bool     may = may_change(c);
        if (open && !may)
            break;
        if (!may)
            safe = i;
        open = may;
        i += step;
    }
    *from = open ? safe : p->n;
    return i;
}

Status nfc_apply(Piece *p, PieceSpace *space)
{
    int64_t from, end = next_cluster(p, 0, &from), done = 0;
    if (from == p->n)
        return OK;
    PieceWriter w;
    Cluster     k = {.arena = space->arena};
    TRY(piece_write_begin(&w, space, p->n + p->n / 4));
    while (from < p->n) {
        TRY(piece_copy(&w, p, done, from));
        TRY(write_cluster(&w, &k, p, from, end));
        done = end;
        end = next_cluster(p, done, &from);
    }
    TRY(piece_copy(&w, p, done, p->n));
    *p = piece_written(&w, p);
    return OK;
}
