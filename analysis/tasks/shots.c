/* shots.c - draws demonstrations and queries, and puts them into several orders. */
#include "analysis/shots.h"

#include <string.h>

#include "analysis/random.h"
#include "analysis/tasks/shots_pieces.h"
#include "analysis/tasks/shots_read.h"
#include "analysis/tasks/task_name.h"
#include "kernels/size.h"

enum { MOST_PERMUTATIONS = 10000 };

typedef struct {
    const ShotOptions *o;
    Arena     *arena;     // of what stays
    Tokenizer *tokenizer;
    Examples   e;
    int64_t   *order;     // [e.n] the first n_shots are demonstrations, then queries
    int64_t    n_shots, n_queries;
    Piece     *shots;     // [e.n] those of demonstrations
    Piece     *asked;     // [e.n, n_labels] query and label
    int32_t    bos;
} Draw;

/* --- tokens --- */

static Status encode(Piece *p, Draw *t, const char *text, const char *more)
{
    Arena       tmp = {0};
    const char *all = arena_printf(&tmp, "%s\nLabel:%s", text, more);
    Status s = all ? tokenizer_encode(t->tokenizer, t->arena, all, strlen(all), false, &p->ids,
                                      &p->n, NULL)
                   : STATUS(ERR_MEMORY, "%s: out of memory", t->e.path);
    arena_close(&tmp);
    return s;
}

static Status encode_with(Piece *p, Draw *t, const Example *x, int64_t label, const char *end)
{
    Arena       tmp = {0};
    const char *more = arena_printf(&tmp, " %s%s", t->e.labels[label], end);
    Status      s = more ? encode(p, t, x->text, more)
                         : STATUS(ERR_MEMORY, "%s: out of memory", t->e.path);
    arena_close(&tmp);
    return s;
}

static Status encode_query(Piece *p, Draw *t, const Example *x)
{
    Piece context;
    TRY(encode(&context, t, x->text, ""));
    for (int64_t k = 0; k < t->e.n_labels; k++) {
        TRY(encode_with(&p[k], t, x, k, ""));
        p[k].n_context = context.n;
        if (p[k].n <= context.n)
            FAIL(ERR_RANGE, "%s: label \"%.100s\" adds no token to \"%.100s\"", t->e.path,
                 t->e.labels[k], x->text);
    }
    return OK;
}

/* --- what is drawn --- */

/* Balanced demonstrations first, as many as are wanted or fit beside the longest query. */
static Status choose_shots(Draw *t, int64_t longest)
{
    const ShotOptions *o = t->o;
    int64_t most = t->e.n - i64_max(o->queries, 1), used = longest + (t->bos >= 0);
    if (o->shots < 0 || o->queries < 0 || most < 1 || o->shots > most)
        FAIL(ERR_RANGE, "%s: %lld demonstrations and %lld queries of %lld examples",
             t->e.path, (long long)o->shots, (long long)o->queries, (long long)t->e.n);
    most = o->shots ? o->shots : most;
    ARENA_NEW(t->shots, t->arena, t->e.n);
    for (t->n_shots = 0; t->n_shots < most; t->n_shots++) {
        int64_t        i = t->order[t->n_shots];
        const Example *x = &t->e.at[i];
        TRY(encode_with(&t->shots[i], t, x, x->label, "\n\n"));
        used += t->shots[i].n;
        if (used > o->context)
            break;
    }
    if (t->n_shots < i64_max(o->shots, 1))
        FAIL(ERR_RANGE, "%s: %lld demonstrations fit a context of %lld tokens beside a query "
             "of %lld, wanted %lld", t->e.path, (long long)t->n_shots, (long long)o->context,
             (long long)longest, (long long)i64_max(o->shots, 1));
    t->n_queries = o->queries ? o->queries : t->e.n - t->n_shots;
    return OK;
}

static Status choose(Draw *t, Arena *tmp)
{
    uint64_t state = random_stream(t->o->seed, 0);
    int64_t  n = t->e.n, L = t->e.n_labels, longest = 0;
    int64_t *items;
    ARENA_NEW(items, tmp, n);
    ARENA_NEW(t->order, tmp, n);
    ARENA_NEW(t->asked, t->arena, n * L);
    for (int64_t i = 0; i < n; i++) {
        items[i] = i;
        TRY(encode_query(&t->asked[i * L], t, &t->e.at[i]));
        for (int64_t k = 0; k < L; k++)
            longest = i64_max(longest, t->asked[i * L + k].n);
    }
    random_shuffle(items, n, &state);
    TRY(examples_alternate(t->order, &t->e, items, n, &state));
    TRY(choose_shots(t, longest));
    random_shuffle(t->order + t->n_shots, n - t->n_shots, &state);
    return OK;
}

/* Demonstrations in the order of permutation number p, out [n_shots]; any: as many. */
static Status permute(int64_t *out, int64_t *any, const Draw *t, int64_t p)
{
    uint64_t state = random_stream(t->o->seed, 1 + p);
    size_t   bytes = (size_t)t->n_shots * sizeof *out;
    memcpy(any, t->order, bytes);
    random_shuffle(any, t->n_shots, &state);
    if (t->o->by_class)
        return examples_alternate(out, &t->e, any, t->n_shots, &state);
    memcpy(out, any, bytes);
    return OK;
}

/* --- what stays --- */

static Status keep_names(Shots *out, Arena *a)
{
    const char *stem = task_name(a, out->path);
    if (stem)
        out->name = arena_printf(a, "%s orders", stem);
    out->path = arena_text(a, out->path, strlen(out->path));
    return out->name && out->path ? OK : STATUS(ERR_MEMORY, "out of memory for a name");
}

static Status keep_order(Shots *out, Arena *a, const Draw *t, Arena *tmp)
{
    int64_t *demonstrations, *queries, *answers, *any;
    ARENA_NEW(demonstrations, a, out->n_permutations * out->n_shots);
    ARENA_NEW(queries, a, out->n_queries);
    ARENA_NEW(answers, a, out->n_queries);
    ARENA_NEW(any, tmp, out->n_shots);
    for (int64_t p = 0; p < out->n_permutations; p++)
        TRY(permute(demonstrations + p * out->n_shots, any, t, p));
    for (int64_t i = 0; i < out->n_queries; i++) {
        queries[i] = t->order[t->n_shots + i];
        answers[i] = t->e.at[queries[i]].label;
    }
    out->demonstrations = demonstrations;
    out->queries = queries;
    out->answers = answers;
    return OK;
}

static Status keep_pieces(Shots *out, Arena *a, const Draw *t)
{
    ShotPieces *p;
    int64_t     prefix = t->bos >= 0, rows = 0;
    ARENA_NEW(p, a, 1);
    *p = (ShotPieces){t->bos, t->shots, t->asked};
    out->pieces = p;
    for (int64_t i = 0; i < out->n_shots; i++)
        prefix += t->shots[t->order[i]].n;
    for (int64_t i = 0; i < out->n_queries; i++)
        for (int64_t k = 0; k < out->n_labels; k++)
            rows += prefix + shots_asked(out, i, k)->n - 1;
    out->n_tokens = rows * out->n_permutations;
    return OK;
}

static Status load(Shots *out, Draw *t, Arena *tmp, const char *path)
{
    TRY(examples_read(&t->e, tmp, path));
    TRY(choose(t, tmp));
    *out = (Shots){.o = *t->o, .path = path, .n_shots = t->n_shots,
                   .n_permutations = t->o->permutations, .n_queries = t->n_queries,
                   .n_labels = t->e.n_labels};
    TRY(keep_names(out, t->arena));
    TRY(keep_order(out, t->arena, t, tmp));
    return keep_pieces(out, t->arena, t);
}

Status shots_load(Shots *out, Arena *a, Tokenizer *t, const char *path, const ShotOptions *o)
{
    Arena tmp = {0};
    Draw  draw = {.o = o, .arena = a, .tokenizer = t, .bos = windows_bos(t, o->no_bos)};
    if (o->permutations < 1 || o->permutations > MOST_PERMUTATIONS)
        FAIL(ERR_RANGE, "%lld permutations: 1 to %d are possible", (long long)o->permutations,
             MOST_PERMUTATIONS);
    Status s = load(out, &draw, &tmp, path);
    arena_close(&tmp);
    return s;
}
