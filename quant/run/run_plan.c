/* run_plan.c - options and rules to a scheme for each matrix. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "quant/run/run.h"

/* The last rule that matches; NULL: none. */
static const SchemeRule *rule_of(const Run *r, const char *name)
{
    for (int64_t i = r->o->n_rules - 1; i >= 0; i--)
        if (fnmatch(r->o->rules[i].pattern, name, 0) == 0)
            return &r->o->rules[i];
    return NULL;
}

bool run_has_rule(const Run *r, const char *name)
{
    return rule_of(r, name) != NULL;
}

static Scheme scheme_of(const Run *r, const char *name)
{
    const SchemeRule *rule = rule_of(r, name);
    Scheme            s = rule ? rule->scheme : r->o->scheme;
    s.scale = r->dtype;
    return s;
}

/* The head is meant only where a pattern spells it: "*" leaves it as it is. */
static bool names_head(const Run *r, const char *pattern)
{
    const char *name = layers_head_name(&r->layers);
    char        module[64];
    snprintf(module, sizeof module, "%.*s", (int)strcspn(name, "."), name);
    return strstr(pattern, module) && fnmatch(pattern, name, 0) == 0;
}

/* A pattern that matches nothing is a slip of the pen. */
static Status check_rules(const Run *r)
{
    for (int64_t i = 0; i < r->o->n_rules; i++) {
        const ModelInfo *info = &r->layers.info;
        int64_t          t = 0;
        if (names_head(r, r->o->rules[i].pattern))
            continue;
        while (t < info->n_tensors &&
               !(info->tensors[t].quantizable &&
                 fnmatch(r->o->rules[i].pattern, info->tensors[t].name, 0) == 0))
            t++;
        if (t == info->n_tensors)
            FAIL(ERR_USAGE, "--scheme %s: no matrix of %s that is quantized has such a name",
                 r->o->rules[i].pattern, r->o->model);
    }
    return OK;
}

static Status check_matrix(const Run *r, const LayerMatrix *m)
{
    const Scheme *s = run_scheme(r, m->name);
    if (!s->bits)
        return OK;
    if (s->group && m->k % s->group)
        FAIL(ERR_SHAPE, "%s: tensor %s: rows of %lld weights are no multiple of groups of %d; "
             "take a smaller group or channel", r->o->model, m->name, (long long)m->k, s->group);
    if (s->method == METHOD_GPTQ && !r->calibrated)
        FAIL(ERR_USAGE, "tensor %s: gptq needs a text to calibrate on: give --text", m->name);
    return OK;
}

/* GPTQ becomes the range of least error where inputs are not gathered. */
static Status plan_matrix(Run *r, const LayerMatrix *m, WeightKind kind)
{
    Scheme s = m->float_only ? (Scheme){.scale = r->dtype} : scheme_of(r, m->name);
    if (s.bits && s.method == METHOD_GPTQ && tap_of_weight(kind) == TAP_HIDDEN) {
        s.method = METHOD_CLIP;
        r->without_inputs = true;
    }
    TRY(plan_set(&r->plan, m->name, s));
    return check_matrix(r, m);
}

/* Its inputs are not gathered either. */
static Status plan_head(Run *r)
{
    const SchemeRule *rule = NULL;
    LayerMatrix       head = run_head(r);
    for (int64_t i = 0; i < r->o->n_rules; i++)
        if (names_head(r, r->o->rules[i].pattern))
            rule = &r->o->rules[i];
    if (!rule || !rule->scheme.bits)
        return OK;
    if (r->layers.info.config.tied && !r->o->rotate)
        FAIL(ERR_UNSUPPORTED, "--scheme %s: the head of %s is its embedding, which stays "
             "floats%s", rule->pattern, r->o->model,
             rotate_refusal(&r->layers) ? "" : "; --rotate gives it a head of its own");
    Scheme s = rule->scheme;
    s.scale = r->dtype;
    if (s.method == METHOD_GPTQ)
        s.method = METHOD_CLIP;
    TRY(plan_set(&r->plan, head.name, s));
    return check_matrix(r, &head);
}

Status run_plan(Run *r)
{
    TRY(check_rules(r));
    for (int64_t l = 0; l < r->layers.info.config.n_layers; l++) {
        LayerWeights w;
        layers_describe(&w, &r->layers, l);
        for (int kind = 0; kind < N_WEIGHTS; kind++)
            if (w.at[kind].name)
                TRY(plan_matrix(r, &w.at[kind], (WeightKind)kind));
    }
    return plan_head(r);
}

/* --- what is asked of it --- */

const Scheme *run_scheme(const Run *r, const char *name)
{
    static const Scheme FP;
    if (!name)
        return &FP;
    const PlanEntry *e = plan_find(&r->plan, name);
    CHECK(e);
    return &e->scheme;
}

bool run_in_set(const Run *r, const LayerWeights *w, int kind, Tap set)
{
    return tap_of_weight((WeightKind)kind) == set && run_scheme(r, w->at[kind].name)->bits;
}

bool run_has_inputs(const Run *r, const LayerWeights *w, Tap set)
{
    for (int kind = 0; kind < N_WEIGHTS && set != TAP_HIDDEN; kind++)
        if (run_in_set(r, w, kind, set))
            return true;
    return false;
}
