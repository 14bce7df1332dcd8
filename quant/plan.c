/* plan.c - reads specifications of schemes and keeps one for each matrix. */
#include "quant/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/size.h"
#include "quant/methods/rtn.h"

/* What an option says: one of four things, each at most once. */
typedef enum { SETS_GROUP, SETS_ASYM, SETS_SCALE, SETS_METHOD, N_SETS } OptionSets;

static const struct {
    const char *text;
    OptionSets  sets;
    int         value;
} OPTIONS[] = {
    {"channel", SETS_GROUP, 0},         {"g32", SETS_GROUP, 32},
    {"g64", SETS_GROUP, 64},            {"g128", SETS_GROUP, 128},
    {"sym", SETS_ASYM, false},          {"asym", SETS_ASYM, true},
    {"f16", SETS_SCALE, DTYPE_F16},     {"bf16", SETS_SCALE, DTYPE_BF16},
    {"f32", SETS_SCALE, DTYPE_F32},     {"rtn", SETS_METHOD, METHOD_RTN},
    {"clip", SETS_METHOD, METHOD_CLIP}, {"gptq", SETS_METHOD, METHOD_GPTQ},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

/* Is text[0..n) that word? */
static bool is_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

static Status parse_option(Scheme *s, bool *seen, const char *spec, const char *text, size_t n)
{
    int i = 0;
    while (i < N_OPTIONS && !is_word(text, n, OPTIONS[i].text))
        i++;
    if (i == N_OPTIONS)
        FAIL(ERR_USAGE, "weights \"%.60s\": \"%.*s\" is not one of channel, g32, g64, g128, "
             "sym, asym, f16, bf16, f32, rtn, clip, gptq", spec, (int)n, text);
    if (seen[OPTIONS[i].sets])
        FAIL(ERR_USAGE, "weights \"%.60s\": \"%.*s\" says a second time what was said before",
             spec, (int)n, text);
    seen[OPTIONS[i].sets] = true;
    switch (OPTIONS[i].sets) {
    case SETS_GROUP:
        s->group = OPTIONS[i].value;
        break;
    case SETS_ASYM:
        s->asym = OPTIONS[i].value;
        break;
    case SETS_SCALE:
        s->scale = (Dtype)OPTIONS[i].value;
        break;
    default:
        s->method = (Method)OPTIONS[i].value;
    }
    return OK;
}

const char *method_name(Method m)
{
    static const char *const NAMES[N_METHODS] = {"rtn", "clip", "gptq"};
    CHECK((unsigned)m < N_METHODS);
    return NAMES[m];
}

Status scheme_parse(Scheme *out, const char *spec)
{
    Scheme s = {.scale = DTYPE_F16};
    bool seen[N_SETS] = {0};
    size_t n = strcspn(spec, ":");
    if (strcmp(spec, "fp") == 0) {
        *out = s;
        return OK;
    }
    if (!is_word(spec, n, "w4") && !is_word(spec, n, "w6") && !is_word(spec, n, "w8"))
        FAIL(ERR_USAGE, "weights \"%.60s\": begins with \"%.*s\", expected fp, w4, w6 or w8",
             spec, (int)i64_min((int64_t)n, 40), spec);
    s.bits = spec[1] - '0';
    for (const char *at = spec + n; *at; at += n) {
        at++;  // the colon
        n = strcspn(at, ":");
        TRY(parse_option(&s, seen, spec, at, n));
    }
    *out = s;
    return OK;
}

const char *scheme_text(const Scheme *s, char *text)
{
    if (!s->bits)
        return strcpy(text, "fp");
    int n = snprintf(text, SCHEME_TEXT, "w%d", s->bits);
    if (s->group)
        n += snprintf(text + n, (size_t)(SCHEME_TEXT - n), ":g%d", s->group);
    snprintf(text + n, (size_t)(SCHEME_TEXT - n), "%s%s%s%s", s->asym ? ":asym" : "",
             s->scale == DTYPE_BF16 ? ":bf16" : s->scale == DTYPE_F32 ? ":f32" : "",
             s->method ? ":" : "", s->method ? method_name(s->method) : "");
    return text;
}

double scheme_bits(const Scheme *s, int64_t K)
{
    if (!s->bits)
        return 0;
    size_t beside = 8 * dtype_size(s->scale) + (s->asym ? (size_t)s->bits : 0);
    return s->bits + (double)beside / (double)(s->group ? s->group : K);
}

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

Status plan_edit(void *plan, const char *name, float *w, int64_t N, int64_t K)
{
    PlanEntry *e;
    RoundError error = {0};
    TRY(entry_of(&e, plan, name));
    if (e->scheme.bits)
        TRY(rtn_fake(w, name, N, K, &e->scheme, &error));
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
