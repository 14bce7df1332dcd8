/* probe.c - makes the records that a forward pass fills. */
#include "analysis/stats/summary.h"

int64_t tap_channels(const ModelConfig *c, Tap tap, int64_t layer)
{
    switch (tap) {
    case TAP_O_IN:
        return model_attends(c, layer) ? model_out_width(c) : c->inner;
    case TAP_DOWN_IN:
        return c->inter;
    default:
        return c->hidden;
    }
}

static Status init_logits(Probe *p, Arena *a, const ModelConfig *c, int64_t n_positions)
{
    ARENA_NEW(p->logits, a, c->n_layers);
    ARENA_NEW(p->shares, a, c->n_layers * c->n_heads);
    for (int64_t l = 0; l < c->n_layers; l++)
        TRY(logit_record_init(&p->logits[l], a, (int32_t)l, c->n_heads, c->n_maps,
                              n_positions));
    return OK;
}

Status probe_init(Probe *p, Arena *a, const Model *m, int64_t n_positions)
{
    const ModelConfig *c = &m->config;
    *p = (Probe){0};
    TRY(init_logits(p, a, c, n_positions));
    for (int t = 0; t < N_TAPS; t++) {
        ARENA_NEW(p->values[t], a, c->n_layers);
        for (int64_t l = 0; l < c->n_layers; l++)
            TRY(value_record_init(&p->values[t][l], a, (int32_t)l, tap_channels(c, (Tap)t, l),
                                  n_positions));
    }
    return OK;
}
