/* shots.c - draws demonstrations and queries, and asks them in several orders. */
#include "analysis/shots.h"

#include <math.h>
#include <string.h>

#include "analysis/choice.h"
#include "analysis/random.h"
#include "analysis/tasks/shots_read.h"
#include "kernels/size.h"

typedef struct {
    int32_t *ids;
    int64_t  n;
    int64_t  n_context;   // of a query with a label: tokens before the label
} Piece;

typedef struct {
    const ShotOptions *o;
    Arena     *arena;
    Tokenizer *tokenizer;
    Examples   e;
    int64_t   *order;     // [e.n] the first n_shots are demonstrations, then queries
    int64_t    n_shots, n_queries;
    Piece     *shots;     // [n_shots]
    Piece     *asked;     // [e.n, n_labels] query and label
    int32_t    bos;
} Test;

/* --- tokens --- */

static Status encode(Piece *p, Test *t, const char *text, const char *more)
{
    const char *all = arena_printf(t->arena, "%s\nLabel:%s", text, more);
    if (!all)
        FAIL(ERR_MEMORY, "%s: out of memory", t->e.path);
    return tokenizer_encode(t->tokenizer, t->arena, all, strlen(all), false, &p->ids, &p->n,
                            NULL);
}

static Status encode_shot(Piece *p, Test *t, const Example *x)
{
    const char *label = arena_printf(t->arena, " %s\n\n", t->e.labels[x->label]);
    if (!label)
        FAIL(ERR_MEMORY, "%s: out of memory", t->e.path);
    return encode(p, t, x->text, label);
}

static Status encode_query(Piece *p, Test *t, const Example *x)
{
    Piece context;
    TRY(encode(&context, t, x->text, ""));
    for (int64_t k = 0; k < t->e.n_labels; k++) {
        const char *label = arena_printf(t->arena, " %s", t->e.labels[k]);
        if (!label)
            FAIL(ERR_MEMORY, "%s: out of memory", t->e.path);
        TRY(encode(&p[k], t, x->text, label));
        p[k].n_context = context.n;
        if (p[k].n <= context.n)
            FAIL(ERR_RANGE, "%s: label \"%.100s\" adds no token to \"%.100s\"", t->e.path,
                 t->e.labels[k], x->text);
    }
    return OK;
}

/* --- what is drawn --- */

/* Balanced demonstrations first, as many as are wanted or fit beside the longest query. */
static Status choose_shots(Test *t, int64_t longest)
{
    const ShotOptions *o = t->o;
    int64_t most = t->e.n - i64_max(o->queries, 1), used = longest + (t->bos >= 0);
    if (o->shots < 0 || o->queries < 0 || most < 1 || o->shots > most)
        FAIL(ERR_RANGE, "%s: %lld demonstrations and %lld queries of %lld examples",
             t->e.path, (long long)o->shots, (long long)o->queries, (long long)t->e.n);
    most = o->shots ? o->shots : most;
    ARENA_NEW(t->shots, t->arena, most);
    for (t->n_shots = 0; t->n_shots < most; t->n_shots++) {
        Piece *p = &t->shots[t->n_shots];
        TRY(encode_shot(p, t, &t->e.at[t->order[t->n_shots]]));
        used += p->n;
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

static Status choose(Test *t)
{
    uint64_t state = random_stream(t->o->seed, 0);
    int64_t  n = t->e.n, L = t->e.n_labels, longest = 0;
    int64_t *items;
    ARENA_NEW(items, t->arena, n);
    ARENA_NEW(t->order, t->arena, n);
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

/* Demonstrations in the order of permutation number p, out [n_shots]. */
static Status permute(int64_t *out, Arena *a, const Test *t, int64_t p)
{
    uint64_t state = random_stream(t->o->seed, 1 + p);
    size_t   bytes = (size_t)t->n_shots * sizeof *out;
    int64_t *any;
    ARENA_NEW(any, a, t->n_shots);
    memcpy(any, t->order, bytes);
    random_shuffle(any, t->n_shots, &state);
    if (t->o->by_class)
        return examples_alternate(out, &t->e, any, t->n_shots, &state);
    memcpy(out, any, bytes);
    return OK;
}

/* Demonstrations in that order as tokens, BOS first. */
static Status prefix_of(Piece *out, Arena *a, const Test *t, const int64_t *order)
{
    int64_t *place, bos = t->bos >= 0;
    ARENA_NEW(place, a, t->e.n);
    *out = (Piece){.n = bos};
    for (int64_t i = 0; i < t->n_shots; i++) {
        place[t->order[i]] = i;
        out->n += t->shots[i].n;
    }
    ARENA_NEW(out->ids, a, out->n);
    int32_t *to = out->ids;
    if (bos)
        *to++ = t->bos;
    for (int64_t i = 0; i < t->n_shots; i++) {
        const Piece *s = &t->shots[place[order[i]]];
        memcpy(to, s->ids, (size_t)s->n * sizeof *to);
        to += s->n;
    }
    return OK;
}

/* --- asking --- */

/* Queries first .. end with each label as one item of choices: what they have in common,
 * the demonstrations, is then read once. */
static Status make_item(Choice *c, Arena *a, const Test *t, const Piece *prefix, int64_t first,
                        int64_t end)
{
    int64_t        L = t->e.n_labels, n = (end - first) * L, rows = 0;
    int64_t       *start, *item;
    int32_t       *ids, *targets;
    ChoiceRequest *requests;
    ARENA_NEW(start, a, n + 1);
    ARENA_NEW(item, a, 2);
    ARENA_NEW(requests, a, n);
    for (int64_t r = 0; r < n; r++) {
        const Piece *q = &t->asked[t->order[t->n_shots + first + r / L] * L + r % L];
        start[r + 1] = rows += prefix->n + q->n - 1;
        requests[r].choice = r % L;
    }
    ARENA_NEW(ids, a, rows);
    ARENA_NEW(targets, a, rows);
    for (int64_t r = 0; r < n; r++) {
        const Piece *q = &t->asked[t->order[t->n_shots + first + r / L] * L + r % L];
        int32_t *to = ids + start[r], *want = targets + start[r];
        memcpy(to, prefix->ids, (size_t)prefix->n * sizeof *to);
        memcpy(to + prefix->n, q->ids, (size_t)(q->n - 1) * sizeof *to);
        for (int64_t i = 0; i < prefix->n + q->n - 1; i++)
            want[i] = i + 1 < prefix->n + q->n_context ? -1 : q->ids[i + 1 - prefix->n];
    }
    item[1] = n;
    *c = (Choice){.name = "shots", .path = t->e.path, .kind = CHOICE_GENERIC, .n = 1,
                  .first = item, .n_requests = n, .requests = requests};
    c->seq = (Sequences){.n = n, .start = start, .ids = ids, .targets = targets};
    return OK;
}

/* As many queries as are shared in any case: together no longer than one with its
 * demonstrations (choice_share.c). */
static int64_t chunk_end(const Test *t, const Piece *prefix, int64_t first)
{
    int64_t L = t->e.n_labels, rows = 0, end = first;
    do {
        for (int64_t k = 0; k < L; k++)
            rows += t->asked[t->order[t->n_shots + end] * L + k].n;
        end += rows <= prefix->n || end == first;
    } while (end < t->n_queries && rows <= prefix->n);
    return end;
}

/* The first of the largest; NaN before all. */
static int64_t best_of(const double *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n && !isnan(x[best]); i++)
        if (x[i] > x[best] || isnan(x[i]))
            best = i;
    return best;
}

/* loglik [n_queries, n_labels] of one permutation. */
static Status ask_all(double *loglik, Arena *a, const Test *t, const int64_t *order,
                      Scorer *sc)
{
    Piece prefix = {0};
    TRY(prefix_of(&prefix, a, t, order));
    for (int64_t first = 0, end; first < t->n_queries; first = end) {
        ArenaMark mark = arena_mark(a);
        Choice    c;
        end = chunk_end(t, &prefix, first);
        TRY(make_item(&c, a, t, &prefix, first, end));
        TRY(choice_run(&c, sc, loglik + first * t->e.n_labels, NULL));
        arena_rewind(a, mark);
    }
    return OK;
}

static Status run_permutation(ShotScore *out, Arena *a, const Test *t, int64_t p, Scorer *sc)
{
    int64_t  L = t->e.n_labels, right = 0;
    uint8_t *correct = out->correct + p * t->n_queries;
    double  *loglik = out->loglik + p * t->n_queries * L;
    int64_t *order = out->demonstrations + p * t->n_shots;
    TRY(permute(order, a, t, p));
    TRY(ask_all(loglik, a, t, order, sc));
    for (int64_t i = 0; i < t->n_queries; i++) {
        correct[i] = best_of(loglik + i * L, L) == t->e.at[out->queries[i]].label;
        right += correct[i];
    }
    out->accuracy[p] = (double)right / (double)t->n_queries;
    return OK;
}

static void summarize(ShotScore *s)
{
    double n = (double)s->n_permutations, sum = 0;
    s->lowest = s->highest = s->accuracy[0];
    for (int64_t i = 0; i < s->n_permutations; i++) {
        s->mean += s->accuracy[i] / n;
        s->lowest = fmin(s->lowest, s->accuracy[i]);
        s->highest = fmax(s->highest, s->accuracy[i]);
    }
    for (int64_t i = 0; i < s->n_permutations; i++)
        sum += (s->accuracy[i] - s->mean) * (s->accuracy[i] - s->mean);
    s->stddev = s->n_permutations > 1 ? sqrt(sum / (n - 1)) : NAN;
}

static Status run(ShotScore *out, Arena *a, Test *t, const char *path, Scorer *sc)
{
    TRY(examples_read(&t->e, t->arena, path));
    TRY(choose(t));
    *out = (ShotScore){.n_shots = t->n_shots, .n_permutations = t->o->permutations,
                       .n_queries = t->n_queries, .n_labels = t->e.n_labels};
    ARENA_NEW(out->accuracy, a, out->n_permutations);
    ARENA_NEW(out->correct, a, out->n_permutations * out->n_queries);
    ARENA_NEW(out->loglik, a, out->n_permutations * out->n_queries * out->n_labels);
    ARENA_NEW(out->demonstrations, a, out->n_permutations * out->n_shots);
    ARENA_NEW(out->queries, a, out->n_queries);
    for (int64_t i = 0; i < out->n_queries; i++)
        out->queries[i] = t->order[t->n_shots + i];
    for (int64_t p = 0; p < out->n_permutations; p++) {
        ArenaMark mark = arena_mark(t->arena);
        TRY(run_permutation(out, t->arena, t, p, sc));
        arena_rewind(t->arena, mark);
    }
    summarize(out);
    return OK;
}

Status shots_run(ShotScore *out, Arena *a, Tokenizer *t, const char *path,
                 const ShotOptions *o, Scorer *sc)
{
    enum { MOST = 10000 };
    Arena tmp = {0};
    Test  test = {.o = o, .arena = &tmp, .tokenizer = t, .bos = windows_bos(t, o->no_bos)};
    if (o->permutations < 1 || o->permutations > MOST)
        FAIL(ERR_RANGE, "%lld permutations: 1 to %d are possible", (long long)o->permutations,
             MOST);
    Status s = run(out, a, &test, path, sc);
    arena_close(&tmp);
    return s;
}
