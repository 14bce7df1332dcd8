/* plan.c - a table of matrices: which scheme each gets, and what rounding did. */
#include "quant/plan.h"

#include <math.h>
#include <string.h>

#include "quant/methods/method.h"

Status plan_init(Plan *p, Arena *a, const char *spec)
{
    Scheme s;
    char text[SCHEME_TEXT];
    TRY(scheme_parse(&s, spec));
    const char *canonical = arena_printf(a, "%s", scheme_text(&s, text));
    if (!canonical)
        FAIL(ERR_MEMORY, "out of memory for a plan");
    *p = (Plan){.spec = canonical, .scheme = s, .arena = a};
    return OK;
}

static PlanEntry *find(const Plan *p, const char *name)
{
    for (int64_t i = 0; i < p->n; i++)
        if (strcmp(p->at[i].name, name) == 0)
            return &p->at[i];
    return NULL;
}

const PlanEntry *plan_find(const Plan *p, const char *name)
{
    return find(p, name);
}

/* The entry of that name; a new one gets the plan's scheme. */
static Status entry_of(PlanEntry **out, Plan *p, const char *name)
{
    *out = find(p, name);
    if (*out)
        return OK;
    if (p->n == p->capacity) {
        PlanEntry *more;
        int64_t capacity = p->capacity ? 2 * p->capacity : 64;
        ARENA_NEW(more, p->arena, capacity);
        if (p->n)
            memcpy(more, p->at, (size_t)p->n * sizeof *more);
        p->at = more;
        p->capacity = capacity;
    }
    const char *copy = arena_text(p->arena, name, strlen(name));
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory for the plan of %s", name);
    *out = &p->at[p->n++];
    **out = (PlanEntry){.name = copy, .scheme = p->scheme};
    return OK;
}

Status plan_set(Plan *p, const char *name, Scheme scheme)
{
    PlanEntry *e;
    TRY(entry_of(&e, p, name));
    e->scheme = scheme;
    return OK;
}

static void add_errors(RoundError *e, const float *before, const float *after, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double lost = (double)before[i] - after[i];
        e->error2 += lost * lost;
        e->sum2 += (double)before[i] * before[i];
    }
}

/* A method writes codes, of which only what they decode to is wanted here. */
static Status round_by_codes(float *w, const char *name, int64_t N, int64_t K, const Scheme *s,
                             RoundError *e, Arena *a)
{
    float   *before;
    RtnCodes codes;
    int64_t  groups = N * rtn_groups(s, K);
    Matrix   m = {.name = name, .n = N, .k = K, .w = w, .scheme = *s};
    ARENA_NEW(before, a, N * K);
    ARENA_NEW(codes.codes, a, N * K);
    ARENA_NEW(codes.scales, a, groups);
    ARENA_NEW(codes.zeros, a, groups);
    memcpy(before, w, (size_t)(N * K) * sizeof *w);
    TRY(method_encode(&codes, &m, a));
    add_errors(e, before, w, N * K);
    return OK;
}

static Status round_weights(float *w, const char *name, int64_t N, int64_t K, const Scheme *s,
                            RoundError *e)
{
    if (s->method == METHOD_RTN)
        return rtn_fake(w, name, N, K, s, e);
    if (s->method != METHOD_CLIP)
        FAIL(ERR_UNSUPPORTED, "%s: %s cannot be done while a model loads: it needs the inputs "
             "of the matrix", name, method_name(s->method));
    Arena  a = {0};
    Status status = round_by_codes(w, name, N, K, s, e, &a);
    arena_close(&a);
    return status;
}

Status plan_edit(void *plan, const char *name, float *w, int64_t N, int64_t K)
{
    PlanEntry *e;
    RoundError error = {0};
    TRY(entry_of(&e, plan, name));
    if (e->scheme.bits)
        TRY(round_weights(w, name, N, K, &e->scheme, &error));
    e->n = N;
    e->k = K;
    e->error = error;
    return OK;
}

double round_error(const RoundError *e)
{
    return e->sum2 > 0 ? sqrt(e->error2 / e->sum2) : 0;
}

double plan_error(const Plan *p)
{
    /* Unrounded matrices have no sums: they are no part of the figure. */
    RoundError all = {0};
    for (int64_t i = 0; i < p->n; i++) {
        all.error2 += p->at[i].error.error2;
        all.sum2 += p->at[i].error.sum2;
    }
    return round_error(&all);
}

double plan_bits(const Plan *p)
{
    double bits = 0, weights = 0;
    for (int64_t i = 0; i < p->n; i++) {
        if (!p->at[i].scheme.bits)
            continue;
        double count = (double)p->at[i].n * (double)p->at[i].k;
        bits += count * scheme_bits(&p->at[i].scheme, p->at[i].k);
        weights += count;
    }
    return weights > 0 ? bits / weights : 0;
}
