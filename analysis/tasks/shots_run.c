/* shots_run.c - asks the queries after every order of the demonstrations. */
#include <math.h>
#include <string.h>

#include "analysis/choice.h"
#include "analysis/tasks/shots_pieces.h"

/* --- prompts --- */

/* Demonstrations in the order of permutation number p as tokens, BOS first. */
static Status prefix_of(Piece *out, Arena *a, const Shots *s, int64_t p)
{
    const int64_t *order = s->demonstrations + p * s->n_shots;
    const Piece   *shots = s->pieces->shots;
    int64_t        bos = s->pieces->bos >= 0;
    *out = (Piece){.n = bos};
    for (int64_t i = 0; i < s->n_shots; i++)
        out->n += shots[order[i]].n;
    ARENA_NEW(out->ids, a, out->n);
    int32_t *to = out->ids;
    if (bos)
        *to++ = s->pieces->bos;
    for (int64_t i = 0; i < s->n_shots; i++) {
        const Piece *shot = &shots[order[i]];
        memcpy(to, shot->ids, (size_t)shot->n * sizeof *to);
        to += shot->n;
    }
    return OK;
}

/* Queries first .. end with each label as one item of choices: what they have in common,
 * the demonstrations, is then read once. */
static Status make_item(Choice *c, Arena *a, const Shots *s, const Piece *prefix,
                        int64_t first, int64_t end)
{
    int64_t        L = s->n_labels, n = (end - first) * L, rows = 0;
    int64_t       *start, *item;
    int32_t       *ids, *targets;
    ChoiceRequest *requests;
    ARENA_NEW(start, a, n + 1);
    ARENA_NEW(item, a, 2);
    ARENA_NEW(requests, a, n);
    for (int64_t r = 0; r < n; r++) {
        start[r + 1] = rows += prefix->n + shots_asked(s, first + r / L, r % L)->n - 1;
        requests[r].choice = r % L;
    }
    ARENA_NEW(ids, a, rows);
    ARENA_NEW(targets, a, rows);
    for (int64_t r = 0; r < n; r++) {
        const Piece *q = shots_asked(s, first + r / L, r % L);
        int32_t *to = ids + start[r], *want = targets + start[r];
        memcpy(to, prefix->ids, (size_t)prefix->n * sizeof *to);
        memcpy(to + prefix->n, q->ids, (size_t)(q->n - 1) * sizeof *to);
        for (int64_t i = 0; i < prefix->n + q->n - 1; i++)
            want[i] = i + 1 < prefix->n + q->n_context ? -1 : q->ids[i + 1 - prefix->n];
    }
    item[1] = n;
    *c = (Choice){.name = "shots", .path = s->path, .kind = CHOICE_GENERIC, .n = 1,
                  .first = item, .n_requests = n, .requests = requests};
    c->seq = (Sequences){.n = n, .start = start, .ids = ids, .targets = targets};
    return OK;
}

/* As many queries as are shared in any case: together no longer than one with its
 * demonstrations (choice_share.c). */
static int64_t chunk_end(const Shots *s, const Piece *prefix, int64_t first)
{
    int64_t rows = 0, end = first;
    do {
        for (int64_t k = 0; k < s->n_labels; k++)
            rows += shots_asked(s, end, k)->n;
        end += rows <= prefix->n || end == first;
    } while (end < s->n_queries && rows <= prefix->n);
    return end;
}

/* --- asking --- */

/* loglik [n_queries, n_labels] of permutation number p. */
static Status ask_all(double *loglik, Arena *a, const Shots *s, int64_t p, Scorer *sc)
{
    Piece prefix = {0};
    TRY(prefix_of(&prefix, a, s, p));
    for (int64_t first = 0, end; first < s->n_queries; first = end) {
        ArenaMark mark = arena_mark(a);
        Choice    c;
        end = chunk_end(s, &prefix, first);
        TRY(make_item(&c, a, s, &prefix, first, end));
        TRY(choice_run(&c, sc, loglik + first * s->n_labels, NULL));
        arena_rewind(a, mark);
    }
    return OK;
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

static Status run(const Shots *s, Arena *a, Scorer *sc, uint8_t *correct, double *loglik)
{
    int64_t Q = s->n_queries, L = s->n_labels;
    double *x;
    ARENA_NEW(x, a, Q * L);
    for (int64_t p = 0; p < s->n_permutations; p++) {
        ArenaMark mark = arena_mark(a);
        TRY(ask_all(x, a, s, p, sc));
        arena_rewind(a, mark);
        for (int64_t i = 0; i < Q; i++)
            correct[p * Q + i] = best_of(x + i * L, L) == s->answers[i];
        if (loglik)
            memcpy(loglik + p * Q * L, x, (size_t)(Q * L) * sizeof *x);
    }
    return OK;
}

Status shots_run(const Shots *s, Scorer *sc, uint8_t *correct, double *loglik)
{
    Arena  a = {0};
    Status status = run(s, &a, sc, correct, loglik);
    arena_close(&a);
    return status;
}
