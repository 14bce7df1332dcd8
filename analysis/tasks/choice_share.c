/* choice_share.c - see choice_share.h.
 *
 *   a b c d e      a b c d e f       requests abcd+e, abcd+ef, abg
 *   a b c d e f      \       g h       -> prefix ab, branches cde, cdef, g
 *   a b g
 *
 * What all requests of an item begin with is one sequence, its prefix; what follows is a
 * sequence a request, which attends to the prefix and to itself. A request that is the
 * prefix has no rows of its own: two choices of one token each are one sequence. */
#include "analysis/tasks/choice_share.h"

#include <string.h>

#include "kernels/size.h"

/* Requests that share a prefix: all of an item, or one alone. */
typedef struct {
    int64_t first, end;
    int64_t prefix;   // rows in common
    int64_t rows;     // with the prefix once
} Group;

static int64_t length_of(const Sequences *s, int64_t r)
{
    return s->start[r + 1] - s->start[r];
}

static int64_t common(const Sequences *s, int64_t first, int64_t end)
{
    const int32_t *ids = s->ids + s->start[first];
    int64_t        n = length_of(s, first);
    for (int64_t r = first + 1; r < end; r++) {
        int64_t k = 0, most = i64_min(n, length_of(s, r));
        while (k < most && s->ids[s->start[r] + k] == ids[k])
            k++;
        n = k;
    }
    return n;
}

static Group group_of(const Sequences *s, int64_t first, int64_t end)
{
    Group g = {.first = first, .end = end, .prefix = common(s, first, end)};
    g.rows = s->start[end] - s->start[first] - (end - first - 1) * g.prefix;
    return g;
}

/* The group that begins with a request. An item of many rows that have little in common
 * would take the memory of all its requests at once. */
static Group next_group(const Choice *c, int64_t first, int64_t n_rows)
{
    int64_t item = c->requests[first].item, end = c->first[item + 1];
    Group   g = group_of(&c->seq, c->first[item], end);
    int64_t longest = 0;
    for (int64_t r = g.first; r < end; r++)
        longest = i64_max(longest, length_of(&c->seq, r));
    return g.rows <= i64_max(n_rows, 2 * longest) ? g : group_of(&c->seq, first, first + 1);
}

/* --- the batch --- */

typedef struct {
    const Sequences *s;
    int32_t         *ids, *start, *key_start, *key_rows, *rows, *targets;
    int64_t         *number;
    int64_t          n_sequences, T, n_keys, n;
} Build;

/* Rows from .. end of request r, whose earlier rows are the batch's from `prefix` on. */
static void add_sequence(Build *b, int64_t r, int64_t prefix, int64_t from, int64_t end)
{
    const int32_t *ids = b->s->ids + b->s->start[r];
    if (from == end)
        return;
    for (int64_t t = 0; t < end; t++)
        b->key_rows[b->n_keys++] = (int32_t)(t < from ? prefix + t : b->T + t - from);
    memcpy(b->ids + b->T, ids + from, (size_t)(end - from) * sizeof *ids);
    b->number[b->n_sequences++] = r;
    b->T += end - from;
    b->start[b->n_sequences] = (int32_t)b->T;
    b->key_start[b->n_sequences] = (int32_t)b->n_keys;
}

static void add_group(Build *b, const Group *g)
{
    int64_t prefix = b->T;
    add_sequence(b, g->first, prefix, 0, g->prefix);
    for (int64_t r = g->first; r < g->end; r++) {
        int64_t own = b->T, n = length_of(b->s, r);
        add_sequence(b, r, prefix, g->prefix, n);
        for (int64_t t = 0; t < n; t++) {
            int32_t target = b->s->targets[b->s->start[r] + t];
            if (target < 0)
                continue;
            b->rows[b->n] = (int32_t)(t < g->prefix ? prefix + t : own + t - g->prefix);
            b->targets[b->n++] = target;
        }
    }
}

/* first .. end as groups; false where the next one would be too much. */
static bool take(const Choice *c, int64_t *end, int64_t *rows, int64_t n_rows)
{
    if (*end == c->n_requests)
        return false;
    Group g = next_group(c, *end, n_rows);
    if (*rows > 0 && *rows + g.rows > n_rows)
        return false;
    *rows += g.rows;
    *end = g.end;
    return true;
}

static Status make_build(Build *b, Arena *a, const Sequences *s, int64_t first, int64_t end)
{
    int64_t n = 2 * (end - first), most = 2 * (s->start[end] - s->start[first]);
    if (most > INT32_MAX)
        FAIL(ERR_RANGE, "an item of %lld tokens: at most %d are possible", (long long)most / 2,
             INT32_MAX / 2);
    *b = (Build){.s = s};
    ARENA_NEW(b->ids, a, most);
    ARENA_NEW(b->key_rows, a, most);
    ARENA_NEW(b->rows, a, most);
    ARENA_NEW(b->targets, a, most);
    ARENA_NEW(b->start, a, n + 1);
    ARENA_NEW(b->key_start, a, n + 1);
    ARENA_NEW(b->number, a, n);
    return OK;
}

Status share_make(Share *out, Arena *a, const Choice *c, int64_t first, int64_t n_rows)
{
    Build   b;
    int64_t end = first, rows = 0;
    while (take(c, &end, &rows, n_rows))
        ;
    TRY(make_build(&b, a, &c->seq, first, end));
    for (int64_t r = first; r < end;) {
        Group g = next_group(c, r, n_rows);
        add_group(&b, &g);
        r = g.end;
    }
    *out = (Share){.first = first, .end = end, .T = b.T, .ids = b.ids, .n = b.n,
                   .rows = b.rows, .targets = b.targets};
    out->branches.batch = (Batch){.n_sequences = b.n_sequences, .start = b.start,
                                  .number = b.number};
    out->branches.key_start = b.key_start;
    out->branches.key_rows = b.key_rows;
    return OK;
}
