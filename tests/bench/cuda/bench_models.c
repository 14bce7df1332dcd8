/* bench_models.c - models of 1.2 billion random weights through the forward pass that all verbs
 * take: a text, scored, with and without its statistics; and generation step by step. */
#include <stdio.h>

#include "analysis/probe.h"
#include "tests/bench/cuda/bench_cuda.h"

typedef struct {
    int64_t layers, hidden, inter, vocab, head_dim, text, past, steps, group;
} Size;

static const Size WHOLE = {22, 2048, 5632, 32000, 64, 2048, 512, 32, 128};
static const Size TINY = {2, 64, 128, 300, 16, 40, 6, 2, 32};

typedef struct {
    Bench       *b;
    const Size  *size;
    Model        m;
    LayerConfig *mixers;
    Tensor       ones;
    Probe        probe;
    bool         recorded;
    Cache       *cache;
    Tensor       out, one;    // [T,C], [1,C]
    int32_t     *ids, *best;  // [T]
    float       *logprob;
} Run;

/* --- a model --- */

static void configure(Run *r, int64_t n_maps)
{
    const Size *z = r->size;
    int64_t     d = z->head_dim;
    for (int64_t l = 0; l < z->layers; l++)
        r->mixers[l] = (LayerConfig){.mixer = MIX_ATTENTION, .scale = 1, .keys_of = l};
    r->m.config = (ModelConfig){
        .n_layers = z->layers, .hidden = z->hidden, .inter = z->inter, .vocab = z->vocab,
        .n_heads = z->hidden / d / n_maps, .n_groups = z->hidden / d / n_maps,
        .n_maps = n_maps, .n_signals = 1, .head_dim = d, .value_dim = d * n_maps,
        .max_positions = 4096, .norm_eps = 1e-5, .head_norm_eps = n_maps == 2 ? 1e-5 : -1,
        .act = ACT_SILU, .gated = true, .tied = true,
        .rope = {.kind = ROPE_DEFAULT, .theta = 10000, .factor = 1, .dims = d},
        .layers = r->mixers, .bos = -1, .eos = -1};
}

/* bits 0: bf16. */
static Status weights(Run *r, Linear *out, int64_t n, int64_t k, int bits)
{
    Bench    *b = r->b;
    ArenaMark mark = arena_mark(&b->arena);
    float    *w = bench_numbers(b, &b->arena, bits ? n * k / r->size->group : n * k, 0.02f);
    int8_t   *codes = bits ? arena_raw(&b->arena, n * k, 1) : NULL;
    Status    s = OK;
    if (!w || (bits && !codes))
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld]", (long long)n, (long long)k);
    for (int64_t i = 0; codes && i < n * k; i++)
        codes[i] = (int8_t)((i * 7919 & 15) - 8);
    Codes c = {.n = n, .k = k, .bits = 4, .group = r->size->group, .codes = codes, .scales = w};
    GUARD(bits ? op_linear_codes(&b->be, out, &c, NULL, DTYPE_BF16)
               : op_linear_pack(&b->be, out, w, NULL, n, k, DTYPE_BF16));
out:
    arena_rewind(&b->arena, mark);
    return s;
}

static Status make_layer(Run *r, Layer *l, int bits)
{
    const ModelConfig *c = &r->m.config;
    const struct {
        WeightKind kind;
        int64_t    n, k;
    } shapes[] = {
        {W_Q, model_query_width(c), c->hidden}, {W_K, model_key_width(c), c->hidden},
        {W_V, model_value_width(c), c->hidden}, {W_O, c->hidden, model_out_width(c)},
        {W_GATE, c->inter, c->hidden},          {W_UP, c->inter, c->hidden},
        {W_DOWN, c->hidden, c->inter},
    };
    l->norm_attn = l->norm_mlp = (Norm){.w = r->ones, .eps = 1e-5f};
    l->lambda = 0.3f;
    l->lambda_init = 0.2f;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        TRY(weights(r, &l->w[shapes[i].kind], shapes[i].n, shapes[i].k, bits));
    return OK;
}

static Status make_model(Run *r, int64_t n_maps, int bits)
{
    Bench      *b = r->b;
    const Size *z = r->size;
    ARENA_NEW(r->mixers, &b->arena, z->layers);
    ARENA_NEW(r->m.layers, &b->arena, z->layers);
    configure(r, n_maps);
    r->m.name = "random";
    r->m.dtype = DTYPE_BF16;
    r->m.backend = &b->be;
    TRY(bench_tensor(b, &r->m.embed, z->vocab, z->hidden));
    TRY(bench_tensor(b, &r->ones, 1, z->hidden));
    r->ones = tensor_1d(DTYPE_F32, r->ones.data, z->hidden);
    r->m.norm = (Norm){.w = r->ones, .eps = 1e-5f};
    r->m.has_norm = true;
    TRY(weights(r, &r->m.head, z->vocab, z->hidden, 0));
    for (int64_t l = 0; l < z->layers; l++)
        TRY(make_layer(r, &r->m.layers[l], bits));
    ARENA_NEW(r->ids, &b->arena, z->text);
    ARENA_NEW(r->best, &b->arena, z->text);
    ARENA_NEW(r->logprob, &b->arena, z->text);
    for (int64_t t = 0; t < z->text; t++)
        r->ids[t] = (int32_t)(t * 7919 % z->vocab);
    TRY(backend_tensor(&b->be, &r->one, 2, (int64_t[]){1, z->hidden}));
    return backend_tensor(&b->be, &r->out, 2, (int64_t[]){z->text, z->hidden});
}

/* --- what is timed --- */

static Status read_text(void *context)
{
    Run        *r = context;
    int64_t     number = 0;
    int32_t     start[] = {0, (int32_t)r->size->text};
    TRY(model_forward(&r->m, &r->out, r->ids, &(Batch){1, start, &number},
                      (RunQuant){.bits = 16}, r->recorded ? &r->probe : NULL, NULL));
    return op_score(&r->b->be, &r->out, &r->m.head, r->ids, r->logprob, r->best);
}

static Status take_steps(void *context)
{
    Run    *r = context;
    int64_t number = 0;
    int32_t start[] = {0, 1}, none = -1, id = 1;
    float   logprob;
    for (int64_t i = 0; i < r->size->steps; i++) {
        TRY(model_forward(&r->m, &r->one, &id, &(Batch){1, start, &number},
                          (RunQuant){.bits = 16}, NULL, r->cache));
        TRY(op_score(&r->b->be, &r->one, &r->m.head, &none, &logprob, &id));
    }
    return OK;
}

static Status fill_cache(Run *r)
{
    int64_t number = 0, past = r->size->past;
    int32_t start[] = {0, (int32_t)past};
    Tensor  out = tensor_2d(DTYPE_F32, r->out.data, past, r->size->hidden);
    TRY(cache_init(&r->cache, &r->m, &r->b->arena, past + 32 * r->size->steps));
    return model_forward(&r->m, &out, r->ids, &(Batch){1, start, &number},
                         (RunQuant){.bits = 16}, NULL, r->cache);
}

/* --- rows --- */

static double n_weights(const ModelConfig *c)
{
    double block = (double)c->hidden * (double)(model_query_width(c) + model_key_width(c) +
                                                model_value_width(c) + model_out_width(c)) +
                   3.0 * (double)c->hidden * (double)c->inter;
    return (double)c->n_layers * block + (double)c->vocab * (double)c->hidden;
}

/* Products alone: attention adds to that. */
static void say(const Run *r, const char *name, const char *what, int64_t n, double ms,
                double ratio, const char *against)
{
    Row *row = bench_row(r->b, "models", n, ms);
    snprintf(row->name, sizeof row->name, "%s %s", name, what);
    snprintf(row->against, sizeof row->against, "%s", against);
    row->ratio = ratio;
    row->flops = n > r->size->steps ? 2 * n_weights(&r->m.config) * (double)n : 0;
    row->peak = r->b->bf16_peak;
    row->tokens = (double)n;
    bench_say(row);
}

static Status one(Bench *b, const char *name, int64_t n_maps, int bits)
{
    Run    r = {.b = b, .size = b->tiny ? &TINY : &WHOLE};
    double plain, ms;
    TRY(make_model(&r, n_maps, bits));
    TRY(bench_time(b, &plain, read_text, &r, true));
    say(&r, name, "text", r.size->text, plain, 0, "");
    TRY(probe_init(&r.probe, &b->arena, &r.m, r.size->text));
    r.recorded = true;
    TRY(bench_time(b, &ms, read_text, &r, true));
    say(&r, name, "text, recorded", r.size->text, ms, ms / plain, "times without recording");
    TRY(fill_cache(&r));
    TRY(bench_time(b, &ms, take_steps, &r, true));
    say(&r, name, "steps", r.size->steps, ms, 0, "");
    return OK;
}

Status bench_models(Bench *b)
{
    static const struct {
        const char *name;
        int64_t     n_maps;
        int         bits;
    } MODELS[] = {
        {"diff bf16", 2, 0},
        {"llama bf16", 1, 0},
        {"diff 4 bits", 2, 4},
        {"llama 4 bits", 1, 4},
    };
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        ArenaMark mark = backend_mark(&b->be), own = arena_mark(&b->arena);
        Status    s = one(b, MODELS[i].name, MODELS[i].n_maps, MODELS[i].bits);
        backend_rewind(&b->be, mark);
        arena_rewind(&b->arena, own);
        TRY(s);
    }
    return OK;
}
