/* gguf_meta.c - keys that describe a model to the llama graph of llama.cpp
 * (formats.md 4.2), and what that graph cannot compute. */
#include <math.h>
#include <string.h>

#include "quant/formats/gguf_parts.h"

#define LLAMA "llama."

static const char USE_INSTEAD[] =
    "write compressed-tensors (--format compressed-tensors) or GPTQ (--format gptq) instead";

/* --- what cannot be said --- */

static Status check_rope(const ModelInfo *info)
{
    const Rope *r = &info->config.rope;
    if (r->kind == ROPE_DYNAMIC)
        FAIL(ERR_UNSUPPORTED, "%s: the llama graph of GGUF has no rope_type dynamic: %s",
             info->path, USE_INSTEAD);
    if (r->kind == ROPE_YARN && !r->truncate)
        FAIL(ERR_UNSUPPORTED, "%s: the llama graph of GGUF has no yarn with truncate false: %s",
             info->path, USE_INSTEAD);
    if (r->dims != info->config.head_dim)
        FAIL(ERR_UNSUPPORTED, "%s: rotary dims %lld of a head of %lld: the llama graph of GGUF "
             "turns whole heads: %s", info->path, (long long)r->dims,
             (long long)info->config.head_dim, USE_INSTEAD);
    return OK;
}

static Status check_windows(const ModelInfo *info)
{
    const ModelConfig *c = &info->config;
    for (int64_t l = 0; l < c->n_layers; l++)
        if (c->layers[l].reach && c->layers[l].reach < c->max_positions)
            FAIL(ERR_UNSUPPORTED, "%s: a query of layer %lld sees %lld positions of %lld: the "
                 "llama graph of GGUF has no such windows: %s", info->path, (long long)l,
                 (long long)c->layers[l].reach, (long long)c->max_positions, USE_INSTEAD);
    return OK;
}

Status gguf_check_graph(const ModelInfo *info)
{
    static const char *const ACTS[N_ACTS] = {"silu", "gelu", "gelu of tanh", "relu"};
    static const char *const SAME[] = {"LlamaForCausalLM", "MistralForCausalLM"};
    const ModelConfig       *c = &info->config;
    bool                     same = false;
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
        same |= strcmp(info->arch, SAME[i]) == 0;
    if (c->n_maps != 1)
        FAIL(ERR_UNSUPPORTED, "%s: a differential model (%s): GGUF has no architecture for it, "
             "and no tool would read it: %s", info->path, info->arch, USE_INSTEAD);
    if (!same)
        FAIL(ERR_UNSUPPORTED, "%s: %s is not the llama graph of GGUF, the only one that is "
             "written: %s", info->path, info->arch, USE_INSTEAD);
    if (c->act != ACT_SILU)
        FAIL(ERR_UNSUPPORTED, "%s: activation %s: the llama graph of GGUF has silu only: %s",
             info->path, ACTS[c->act], USE_INSTEAD);
    TRY(check_windows(info));
    return check_rope(info);
}

/* --- rope --- */

static int64_t original_length(const ModelConfig *c)
{
    return c->rope.original_max_positions ? c->rope.original_max_positions : c->max_positions;
}

static double stretch(const ModelConfig *c)
{
    return c->rope.factor > 0 ? c->rope.factor
                              : (double)c->max_positions / (double)original_length(c);
}

/* What multiplies cosines and sines beside what ggml's own yarn does. */
static double yarn_attention(const ModelConfig *c)
{
    const Rope *r = &c->rope;
    double      own = 1 + 0.1 * log(stretch(c));
    if (r->attention_factor > 0)
        return r->attention_factor / own;
    if (r->mscale > 0 && r->mscale_all_dim > 0)
        return (1 + 0.1 * r->mscale * log(stretch(c))) /
               (1 + 0.1 * r->mscale_all_dim * log(stretch(c))) / own;
    return 1;
}

static double longrope_attention(const ModelConfig *c)
{
    double factor = stretch(c);
    if (c->rope.attention_factor > 0)
        return c->rope.attention_factor;
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log((double)original_length(c)));
}

static void put_yarn(GgufPut *p, const ModelConfig *c)
{
    const Rope *r = &c->rope;
    double      attention = yarn_attention(c);
    gguf_put_text(p, LLAMA "rope.scaling.type", "yarn");
    gguf_put_f32(p, LLAMA "rope.scaling.factor", stretch(c));
    gguf_put_u32(p, LLAMA "rope.scaling.original_context_length", original_length(c));
    if (fabs(attention - 1) > 1e-7)
        gguf_put_f32(p, LLAMA "rope.scaling.attn_factor", attention);
    if (r->beta_fast != 32 || r->beta_slow != 1) {  // ggml's own
        gguf_put_f32(p, LLAMA "rope.scaling.yarn_beta_fast", r->beta_fast);
        gguf_put_f32(p, LLAMA "rope.scaling.yarn_beta_slow", r->beta_slow);
    }
}

/* llama3 has no keys: its result is a tensor. */
static void put_rope(GgufPut *p, const ModelConfig *c)
{
    gguf_put_u32(p, LLAMA "rope.dimension_count", c->rope.dims);
    gguf_put_f32(p, LLAMA "rope.freq_base", c->rope.theta);
    if (c->rope.kind == ROPE_LINEAR) {
        gguf_put_text(p, LLAMA "rope.scaling.type", "linear");
        gguf_put_f32(p, LLAMA "rope.scaling.factor", c->rope.factor);
    } else if (c->rope.kind == ROPE_YARN && stretch(c) > 1) {
        put_yarn(p, c);
    } else if (c->rope.kind == ROPE_LONGROPE) {
        gguf_put_text(p, LLAMA "rope.scaling.type", "longrope");
        gguf_put_f32(p, LLAMA "rope.scaling.attn_factor", longrope_attention(c));
        gguf_put_u32(p, LLAMA "rope.scaling.original_context_length", original_length(c));
    }
}

/* Waves longer than the original length / low are stretched by factor, shorter ones than
 * length / high kept, a ramp between. */
static float llama3_divisor(const ModelConfig *c, int64_t i)
{
    const Rope *r = &c->rope;
    double length = (double)original_length(c);
    double wave = 2 * M_PI * pow(r->theta, 2 * (double)i / (double)r->dims);
    if (wave < length / r->high_freq_factor)
        return 1;
    if (wave > length / r->low_freq_factor)
        return (float)r->factor;
    double ramp = (length / wave - r->low_freq_factor) /
                  (r->high_freq_factor - r->low_freq_factor);
    return (float)(1 / ((1 - ramp) / r->factor + ramp));
}

static Status narrow(const float **out, Arena *a, const double *x, int64_t n)
{
    float *y;
    ARENA_NEW(y, a, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    *out = y;
    return OK;
}

Status gguf_divisors(GgufDivisors *out, Arena *a, const ModelConfig *c)
{
    int64_t half = c->rope.dims / 2;
    *out = (GgufDivisors){0};
    if (c->rope.kind == ROPE_LONGROPE) {
        TRY(narrow(&out->small, a, c->rope.short_factor, half));
        return narrow(&out->large, a, c->rope.long_factor, half);
    }
    if (c->rope.kind != ROPE_LLAMA3)
        return OK;
    float *all;
    ARENA_NEW(all, a, half);
    for (int64_t i = 0; i < half; i++)
        all[i] = llama3_divisor(c, i);
    out->all = all;
    return OK;
}

/* --- the rest --- */

/* Converters write the widths of heads where the config names them. */
static Status put_head_widths(GgufPut *p, Arena *a, const ModelInfo *info)
{
    const Json *root;
    TRY(json_parse(&root, a, info->path, info->config_text, strlen(info->config_text)));
    const Json *width = json_member(root, "head_dim");
    if (!width || width->kind == JSON_NULL)
        return OK;
    gguf_put_u32(p, LLAMA "attention.key_length", info->config.head_dim);
    gguf_put_u32(p, LLAMA "attention.value_length", info->config.head_dim);
    return OK;
}

Status gguf_meta(GgufPut *p, Arena *a, const ModelInfo *info, GgufType type)
{
    const ModelConfig *c = &info->config;
    gguf_put_text(p, "general.architecture", "llama");
    gguf_put_text(p, "general.type", "model");
    gguf_put_text(p, "general.name", info->name);
    gguf_put_u32(p, "general.file_type", gguf_type_number(type));
    gguf_put_u32(p, "general.quantization_version", 2);
    gguf_put_u32(p, LLAMA "block_count", c->n_layers);
    gguf_put_u32(p, LLAMA "context_length", c->max_positions);
    gguf_put_u32(p, LLAMA "embedding_length", c->hidden);
    gguf_put_u32(p, LLAMA "feed_forward_length", c->inter);
    gguf_put_u32(p, LLAMA "attention.head_count", c->n_heads);
    gguf_put_u32(p, LLAMA "attention.head_count_kv", c->n_groups);
    gguf_put_f32(p, LLAMA "attention.layer_norm_rms_epsilon", c->norm_eps);
    gguf_put_u32(p, LLAMA "vocab_size", c->vocab);
    TRY(put_head_widths(p, a, info));
    put_rope(p, c);
    return OK;
}
