/* run_transforms.c - what is done to a layer before it is coded: it is turned, and scales
 * move; and which models allow which of these. */
#include "quant/methods/awq.h"
#include "quant/methods/fold.h"
#include "quant/methods/smooth.h"
#include "quant/run/run.h"

/* --- which models: why not, as words for a sentence, or NULL --- */

static const char *norm_refusal(const LayerWeights *first, const ModelConfig *c)
{
    if (c->residual == RESIDUAL_POST)
        return "its norms come after the halves of a layer, and what they give is added to the "
               "hidden states as well";
    return first->norm_name[0] ? NULL : "its norms have no weights";
}

static const char *values_refusal(const LayerWeights *first, const ModelConfig *c)
{
    if (c->head_norm_eps >= 0)
        return "a norm of each head lies between values and outputs";
    if (c->n_heads != c->n_groups)
        return "several heads read the same values";
    return first->at[W_V].name ? NULL : "values are stored with queries and keys";
}

/* act(gate) * up and relu(up) are scaled as up is; other activations are not. */
static const char *down_refusal(const ModelConfig *c)
{
    return c->gated || c->act == ACT_RELU ? NULL
                                          : "an activation that is no relu lies between up and "
                                            "down";
}

static Status check_awq(Run *r, const char *norms, const char *values, const char *down)
{
    const char *path = r->layers.info.path;
    if (norms && values && down)
        FAIL(ERR_UNSUPPORTED, "--awq: no scales can move in %s: %s; %s; %s", path, norms,
             values, down);
    if (norms)
        textbuf_printf(&r->notes, "AWQ moves no scales into norms: %s.\n", norms);
    if (values)
        textbuf_printf(&r->notes, "AWQ moves no scales between values and outputs, which stay "
                       "as they are: %s.\n", values);
    if (down)
        textbuf_printf(&r->notes, "AWQ moves no scales between the halves of the MLP: %s.\n",
                       down);
    return OK;
}

Status run_transforms_check(Run *r)
{
    const QuantizeOptions *o = r->o;
    const ModelConfig     *c = &r->layers.info.config;
    const char            *turns = rotate_refusal(&r->layers);
    LayerWeights           first;
    layers_describe(&first, &r->layers, 0);
    const char *norms = norm_refusal(&first, c), *values = values_refusal(&first, c);
    const char *down = down_refusal(c);
    if (o->rotate && turns)
        FAIL(ERR_UNSUPPORTED, "--rotate: %s cannot be turned: %s", r->layers.info.path, turns);
    if (o->smooth > 0 && norms)
        FAIL(ERR_UNSUPPORTED, "--smooth: no scales can move into the norms of %s: %s",
             r->layers.info.path, norms);
    if (o->smooth > 0 && c->head_norm_eps >= 0)
        textbuf_add(&r->notes, "SmoothQuant leaves values and outputs as they are: a norm of each "
                    "head lies between them.\n");
    r->scales_norms = !norms;
    r->scales_values = !values;
    r->scales_down = !down;
    return o->awq ? check_awq(r, norms, values, down) : OK;
}

/* --- rotation --- */

Status run_layer_rotate(Run *r, LayerWeights *w)
{
    const ValueMap *map = &r->values;
    Rotation        r2;
    if (!r->o->rotate)
        return OK;
    TRY(rotation_init(&r2, &r->scratch, map->head_dim * map->n_parts,
                      rotate_seed(r->o->seed, w->number)));
    return rotate_layer(w, map, &r->r1, map->paired ? &r2 : NULL, &r->scratch);
}

/* --- scales --- */

/* Between a norm and what reads it. */
static Status scale_norm(Run *r, LayerWeights *w, int norm, const Scheme *schemes)
{
    const QuantizeOptions *o = r->o;
    ArenaMark              mark = arena_mark(&r->scratch);
    InputStats             in;
    double                 ratio;
    if (!r->scales_norms || !fold_has_norm(w, norm))
        return OK;
    TRY(run_layer_inputs(&in, r, w, norm == 0 ? TAP_QKV_IN : TAP_MLP_IN, o->awq));
    if (o->smooth > 0)
        TRY(smooth_norm(w, norm, &in, o->smooth, &r->scratch));
    if (o->awq)
        TRY(awq_norm(w, norm, &in, schemes, &r->scratch, o->backend, &ratio));
    arena_rewind(&r->scratch, mark);
    return OK;
}

static Status scale_values(Run *r, LayerWeights *w, const Scheme *schemes)
{
    ArenaMark  mark = arena_mark(&r->scratch);
    InputStats in;
    double     ratio;
    if (!r->scales_values)
        return OK;
    TRY(run_layer_inputs(&in, r, w, TAP_O_IN, true));
    TRY(awq_value_out(w, &r->values, r->layers.info.config.head_norm_eps, &in, schemes,
                      &r->scratch, r->o->backend, &ratio));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* A matrix of its own, or rows of one that holds gate too. */
static LayerMatrix up_of(const Run *r, const LayerWeights *w)
{
    LayerMatrix up = w->at[W_UP];
    if (up.w)
        return up;
    up = w->at[W_GATE_UP];
    int64_t first = layers_first_row(&r->layers, W_UP, W_GATE_UP);
    up.n = r->layers.info.config.inter;
    up.w += first * up.k;
    up.bias = up.bias ? up.bias + first : NULL;
    return up;
}

static Status scale_down(Run *r, LayerWeights *w, const Scheme *schemes)
{
    ArenaMark   mark = arena_mark(&r->scratch);
    LayerMatrix up = up_of(r, w);
    InputStats  in;
    double      ratio;
    if (!r->scales_down)
        return OK;
    TRY(run_layer_inputs(&in, r, w, TAP_DOWN_IN, true));
    TRY(awq_up_down(w, &up, &in, schemes, &r->scratch, r->o->backend, &ratio));
    arena_rewind(&r->scratch, mark);
    return OK;
}

/* Scales of AWQ and SmoothQuant, with the inputs that floats before them give. */
Status run_layer_transform(Run *r, LayerWeights *w)
{
    const QuantizeOptions *o = r->o;
    Scheme                 schemes[N_WEIGHTS];
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        schemes[kind] = *run_scheme(r, w->at[kind].name);
    if (!o->awq && !(o->smooth > 0))
        return OK;
    TRY(scale_norm(r, w, 0, schemes));
    if (o->awq)
        TRY(scale_values(r, w, schemes));
    TRY(scale_norm(r, w, 1, schemes));
    return o->awq ? scale_down(r, w, schemes) : OK;
}
