/* memory.c - see memory.h. */
#include "analysis/memory.h"

#include "analysis/score.h"
#include "analysis/stats/summary.h"
#include "kernels/size.h"

/* --- the records, without their arrays --- */

static Status shape_logits(Probe *p, Arena *a, const ModelConfig *c, int64_t positions,
                           size_t *bytes)
{
    ARENA_NEW(p->logits, a, c->n_layers);
    ARENA_NEW(p->shares, a, c->n_layers * c->n_heads);
    for (int64_t l = 0; l < c->n_layers; l++)
        p->logits[l] = (LogitRecord){.layer = (int32_t)l, .n_heads = c->n_heads,
                                     .n_maps = c->n_maps, .n_positions = positions};
    *bytes += (size_t)c->n_layers *
              (sizeof *p->logits + (size_t)c->n_heads * sizeof *p->shares +
               logit_record_bytes(c->n_heads, c->n_maps, positions));
    return OK;
}

static Status shape_values(Probe *p, Arena *a, const ModelConfig *c, int64_t positions,
                           size_t *bytes)
{
    for (int t = 0; t < N_TAPS; t++) {
        ARENA_NEW(p->values[t], a, c->n_layers);
        for (int64_t l = 0; l < c->n_layers; l++) {
            int64_t C = tap_channels(c, (Tap)t, l);
            p->values[t][l] = (ValueRecord){.layer = (int32_t)l, .n_channels = C,
                                            .n_positions = positions};
            *bytes += sizeof(ValueRecord) + value_record_bytes(C, positions);
        }
    }
    return OK;
}

/* --- a text --- */

/* Windows for a batch at least; all tokens are alike. */
static Status make_windows(Sequences *s, Arena *a, const Scorer *sc, const MemoryAsk *ask)
{
    int64_t  context = ask->context;
    int64_t  rows = i64_max(score_tokens(sc, false) / context, 1) * context;
    int64_t *start;
    int32_t *ids, *targets;
    if (ask->n_tokens)
        rows = i64_min(rows, ask->n_tokens);
    s->n = ceil_div(rows, context);
    ARENA_NEW(start, a, s->n + 1);
    ARENA_NEW(ids, a, rows);
    ARENA_NEW(targets, a, rows);
    for (int64_t i = 0; i <= s->n; i++) {
        start[i] = i64_min(i * context, rows);
        if (i > 0)
            targets[start[i] - 1] = -1;
    }
    s->start = start;
    s->ids = ids;
    s->targets = targets;
    return OK;
}

/* --- the run --- */

static Status run(Memory *out, Model *m, Arena *a, const MemoryAsk *ask)
{
    const ModelConfig *c = &m->config;
    Probe     probe = {0};
    Scorer    sc = {.model = m, .quant = {.bits = 16}, .probe = &probe};
    Sequences text = {0};
    int32_t  *best;
    float    *logprob;
    out->weights = backend_measured(m->backend).held;
    TRY(shape_logits(&probe, a, c, ask->context, &out->records));
    TRY(shape_values(&probe, a, c, ask->context, &out->records));
    TRY(make_windows(&text, a, &sc, ask));
    out->batch = text.start[text.n];
    ARENA_NEW(logprob, a, out->batch);
    ARENA_NEW(best, a, out->batch);
    out->token = sizeof *text.ids + sizeof *text.targets + sizeof *logprob + sizeof *best;
    TRY(score_run(&sc, &text, logprob, best));
    BackendMeasure b = backend_measured(m->backend);
    out->pass = b.peak - out->weights;
    out->scratch = b.scratch;
    out->peak = b.peak + b.scratch + out->records;
    return OK;
}

static Status open_and_run(Memory *out, Arena *a, Backend *be, const char *path,
                           const MemoryAsk *ask)
{
    Model        m;
    ModelOptions o = {.dtype = ask->dtype, .stream = ask->stream};
    TRY(model_load(&m, a, be, path, &o));
    Status s = run(out, &m, a, ask);
    model_close(&m);
    return s;
}

Status memory_measure(Memory *out, const char *path, const MemoryAsk *ask)
{
    Arena   a = {0};
    Backend be;
    *out = (Memory){0};
    TRY(backend_open_measure(&be, ask->n_threads));
    Status s = open_and_run(out, &a, &be, path, ask);
    backend_close(&be);
    arena_close(&a);
    return s;
}
