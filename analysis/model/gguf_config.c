/* gguf_config.c - the keys of a llama as the config.json of a LlamaForCausalLM.
 * Keys: formats.md 4.2. Values go through as they stand, so that config_parse, which
 * every folder goes through, judges them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/model/gguf_source.h"
#include "analysis/textbuf.h"

#define LLAMA "llama."
#define TOKENS "tokenizer.ggml."

/* What the text is written from; 0 where a key is absent. */
typedef struct {
    int64_t vocab, hidden, inter, layers, heads, kv_heads, context;
    int64_t rope_dims, key_width, value_width, experts, original;
    double  eps, theta, factor, attention, beta_fast, beta_slow, scale, log_multiplier;
    const char *rope;
} Keys;

/* --- reading --- */

static Status need(const GgufFile *f, const char *name)
{
    if (!gguf_key(f, name))
        FAIL(ERR_FORMAT, "%s: key %s is missing", f->path, name);
    return OK;
}

static Status read_counts(Keys *k, const GgufFile *f)
{
    const struct {
        const char *name;
        int64_t    *out;
        bool        required;
    } ROWS[] = {
        {LLAMA "embedding_length", &k->hidden, true},
        {LLAMA "feed_forward_length", &k->inter, true},
        {LLAMA "block_count", &k->layers, true},
        {LLAMA "attention.head_count", &k->heads, true},
        {LLAMA "context_length", &k->context, true},
        {LLAMA "attention.head_count_kv", &k->kv_heads, false},
        {LLAMA "vocab_size", &k->vocab, false},
        {LLAMA "rope.dimension_count", &k->rope_dims, false},
        {LLAMA "attention.key_length", &k->key_width, false},
        {LLAMA "attention.value_length", &k->value_width, false},
        {LLAMA "rope.scaling.original_context_length", &k->original, false},
        {LLAMA "expert_count", &k->experts, false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (ROWS[i].required)
            TRY(need(f, ROWS[i].name));
        TRY(gguf_key_int(ROWS[i].out, f, ROWS[i].name, ROWS[i].required, INT32_MAX));
    }
    const GgufKey *tokens = gguf_key(f, TOKENS "tokens");
    if (!k->vocab && tokens)
        k->vocab = tokens->n;
    if (!k->kv_heads)
        k->kv_heads = k->heads;
    return k->vocab ? OK : need(f, LLAMA "vocab_size");
}

static Status read_numbers(Keys *k, Arena *a, const GgufFile *f)
{
    const struct {
        const char *name;
        double     *out;
    } ROWS[] = {
        {LLAMA "attention.layer_norm_rms_epsilon", &k->eps},
        {LLAMA "rope.freq_base", &k->theta},
        {LLAMA "rope.scale_linear", &k->factor},
        {LLAMA "rope.scaling.factor", &k->factor},  // the newer name wins
        {LLAMA "rope.scaling.attn_factor", &k->attention},
        {LLAMA "rope.scaling.yarn_beta_fast", &k->beta_fast},
        {LLAMA "rope.scaling.yarn_beta_slow", &k->beta_slow},
        {LLAMA "rope.scaling.yarn_log_multiplier", &k->log_multiplier},
        {LLAMA "attention.scale", &k->scale},
    };
    TRY(need(f, LLAMA "attention.layer_norm_rms_epsilon"));
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        TRY(gguf_key_real(ROWS[i].out, f, ROWS[i].name));
    return gguf_key_text(&k->rope, a, f, LLAMA "rope.scaling.type");
}

/* --- what the llama of transformers cannot say --- */

static Status check_width(const GgufFile *f, const char *name, int64_t got, int64_t wanted)
{
    if (got && got != wanted)
        FAIL(ERR_UNSUPPORTED, "%s: key %s is %lld, expected the width of a head, %lld", f->path,
             name, (long long)got, (long long)wanted);
    return OK;
}

static Status check_graph(const Keys *k, const GgufFile *f)
{
    bool    causal = true;
    int64_t width = k->key_width ? k->key_width : k->hidden / k->heads;
    if (k->experts)
        FAIL(ERR_UNSUPPORTED, "%s: key " LLAMA "expert_count is %lld: mixtures of experts are "
             "not supported", f->path, (long long)k->experts);
    TRY(gguf_key_bool(&causal, f, LLAMA "attention.causal"));
    if (!causal)
        FAIL(ERR_UNSUPPORTED, "%s: key " LLAMA "attention.causal is false: only models that "
             "look back are supported", f->path);
    if (k->scale != 0 && fabs(k->scale * sqrt((double)width) - 1) > 1e-6)
        FAIL(ERR_UNSUPPORTED, "%s: key " LLAMA "attention.scale is %g, expected 1 / sqrt(%lld)",
             f->path, k->scale, (long long)width);
    TRY(check_width(f, LLAMA "attention.value_length", k->value_width, width));
    return check_width(f, LLAMA "rope.dimension_count", k->rope_dims, width);
}

/* --- writing --- */

/* The shortest text that reads back as the same f32: what the file holds. */
static void add_real(TextBuf *b, double x)
{
    char text[32];
    int  digits = 1;
    do
        snprintf(text, sizeof text, "%.*g", digits, x);
    while (strtof(text, NULL) != (float)x && digits++ < 17);
    textbuf_add(b, text);
}

static void add_count(TextBuf *b, const char *name, int64_t value)
{
    textbuf_printf(b, ",\n  \"%s\": %lld", name, (long long)value);
}

/* Divisors of the frequencies, one for each pair of dims, times factor. */
static Status add_divisors(TextBuf *b, const GgufFile *f, const GgufTensor *t, double factor)
{
    if (t->is_block || t->dtype != DTYPE_F32 || t->n_dims != 1)
        FAIL(ERR_FORMAT, "%s: tensor %s should be a vector of F32", f->path, t->name);
    textbuf_add(b, "[");
    for (int64_t i = 0; i < t->ne[0]; i++) {
        float x;
        memcpy(&x, t->data + (size_t)i * sizeof x, sizeof x);
        if (!isfinite(x))
            FAIL(ERR_RANGE, "%s: tensor %s[%lld] is %g, expected a finite number", f->path,
                 t->name, (long long)i, x);
        textbuf_add(b, i ? ", " : "");
        add_real(b, (double)x * factor);
    }
    textbuf_add(b, "]");
    return OK;
}

/* Frequencies divided by lists: "longrope" with a factor of attention that is given.
 * So go the rotations of Llama 3.1, which GGUF stores as their result. */
static Status add_lists(TextBuf *b, const GgufFile *f, const Keys *k, const GgufTensor *small,
                        const GgufTensor *large, double factor)
{
    textbuf_add(b, ",\n  \"rope_scaling\": {\"rope_type\": \"longrope\", "
                "\"attention_factor\": ");
    add_real(b, k->attention > 0 ? k->attention : 1);
    textbuf_printf(b, ", \"original_max_position_embeddings\": %lld, \"short_factor\": ",
                   (long long)(k->original ? k->original : k->context));
    TRY(add_divisors(b, f, small, factor));
    textbuf_add(b, ", \"long_factor\": ");
    TRY(add_divisors(b, f, large, factor));
    textbuf_add(b, "}");
    return OK;
}

/* ggml multiplies its own factor for yarn, 1 + 0.1 ln(factor), by attn_factor. */
static void add_yarn(TextBuf *b, const Keys *k)
{
    textbuf_add(b, ",\n  \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": ");
    add_real(b, k->factor);
    textbuf_printf(b, ", \"original_max_position_embeddings\": %lld",
                   (long long)(k->original ? k->original : k->context));
    if (k->attention > 0) {
        textbuf_add(b, ", \"attention_factor\": ");
        add_real(b, k->attention * (1 + 0.1 * log(k->factor)));
    }
    if (k->beta_fast > 0 && k->beta_slow > 0) {
        textbuf_add(b, ", \"beta_fast\": ");
        add_real(b, k->beta_fast);
        textbuf_add(b, ", \"beta_slow\": ");
        add_real(b, k->beta_slow);
    }
    textbuf_add(b, "}");
}

static Status need_tensor(const GgufTensor **out, const GgufFile *f, const char *name)
{
    *out = gguf_tensor(f, name);
    if (!*out)
        FAIL(ERR_FORMAT, "%s: tensor %s is missing: key " LLAMA "rope.scaling.type is longrope",
             f->path, name);
    return OK;
}

static Status add_rope(TextBuf *b, const GgufFile *f, const Keys *k)
{
    const GgufTensor *freqs = gguf_tensor(f, "rope_freqs.weight"), *small, *large;
    const char       *type = k->rope ? k->rope : "linear";  // ggml's default
    double            factor = k->factor > 0 ? k->factor : 1;
    if (strcmp(type, "longrope") == 0) {
        TRY(need_tensor(&small, f, "rope_factors_short.weight"));
        TRY(need_tensor(&large, f, "rope_factors_long.weight"));
        return add_lists(b, f, k, small, large, 1);
    }
    if (strcmp(type, "yarn") == 0) {
        if (freqs || k->log_multiplier != 0 || factor <= 1)
            FAIL(ERR_UNSUPPORTED, "%s: key " LLAMA "rope.scaling.type is yarn with %s", f->path,
                 freqs ? "rope_freqs.weight" : factor <= 1 ? "no factor above 1"
                                                           : "yarn_log_multiplier");
        add_yarn(b, k);
        return OK;
    }
    if (strcmp(type, "none") == 0)
        factor = 1;
    else if (strcmp(type, "linear") != 0)
        FAIL(ERR_UNSUPPORTED, "%s: key " LLAMA "rope.scaling.type is \"%.80s\", expected none, "
             "linear, yarn or longrope", f->path, type);
    if (freqs)
        return add_lists(b, f, k, freqs, freqs, factor);
    if (factor != 1) {
        textbuf_add(b, ",\n  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": ");
        add_real(b, factor);
        textbuf_add(b, "}");
    }
    return OK;
}

/* Biases in any layer mean biases in all: what lacks one is refused later. */
static bool has_bias(const GgufFile *f, const char *part)
{
    for (int64_t i = 0; i < f->n_tensors; i++) {
        const char *name = f->tensors[i].name, *dot = strrchr(name, '.');
        if (strncmp(name, "blk.", 4) == 0 && strstr(name, part) && strcmp(dot, ".bias") == 0)
            return true;
    }
    return false;
}

/* SentencePiece has ids for BOS and EOS where the file says nothing. */
static Status has_spm(bool *out, Arena *a, const GgufFile *f)
{
    const char *model = "";
    TRY(gguf_key_text(&model, a, f, TOKENS "model"));
    *out = strcmp(model, "llama") == 0;
    return OK;
}

/* eos_token_id: where a text ends, where a turn or a message does. */
static Status add_tokens(TextBuf *b, const GgufFile *f)
{
    static const char *const ENDS[] = {TOKENS "eos_token_id", TOKENS "eot_token_id",
                                       TOKENS "eom_token_id"};
    int64_t bos, n = 0, seen[3];
    bool    spm = false;
    TRY(has_spm(&spm, b->arena, f));
    bos = spm ? 1 : -1;
    TRY(gguf_key_int(&bos, f, TOKENS "bos_token_id", 0, INT32_MAX));
    add_count(b, "bos_token_id", bos);
    textbuf_add(b, ",\n  \"eos_token_id\": [");
    for (int i = 0; i < 3; i++) {
        int64_t id = spm && i == 0 ? 2 : -1;
        TRY(gguf_key_int(&id, f, ENDS[i], 0, INT32_MAX));
        bool again = id < 0;
        for (int64_t j = 0; j < n; j++)
            again |= seen[j] == id;
        if (again)
            continue;
        textbuf_printf(b, "%s%lld", n ? ", " : "", (long long)id);
        seen[n++] = id;
    }
    textbuf_add(b, "]");
    return OK;
}

static Status write_config(TextBuf *b, const GgufFile *f, const Keys *k)
{
    textbuf_add(b, "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n"
                "  \"model_type\": \"llama\",\n  \"hidden_act\": \"silu\"");
    add_count(b, "vocab_size", k->vocab);
    add_count(b, "hidden_size", k->hidden);
    add_count(b, "intermediate_size", k->inter);
    add_count(b, "num_hidden_layers", k->layers);
    add_count(b, "num_attention_heads", k->heads);
    add_count(b, "num_key_value_heads", k->kv_heads);
    if (k->key_width)
        add_count(b, "head_dim", k->key_width);
    add_count(b, "max_position_embeddings", k->context);
    textbuf_add(b, ",\n  \"rms_norm_eps\": ");
    add_real(b, k->eps);
    textbuf_add(b, ",\n  \"rope_theta\": ");
    add_real(b, k->theta);
    TRY(add_rope(b, f, k));
    textbuf_printf(b, ",\n  \"tie_word_embeddings\": %s,\n  \"attention_bias\": %s,\n"
                   "  \"mlp_bias\": %s", gguf_tensor(f, "output.weight") ? "false" : "true",
                   has_bias(f, ".attn_") ? "true" : "false",
                   has_bias(f, ".ffn_") ? "true" : "false");
    TRY(add_tokens(b, f));
    textbuf_add(b, "\n}\n");
    return textbuf_status(b);
}

static Status check_architecture(Arena *a, const GgufFile *f)
{
    const char *arch = NULL;
    TRY(need(f, "general.architecture"));
    TRY(gguf_key_text(&arch, a, f, "general.architecture"));
    if (strcmp(arch, "llama") != 0)
        FAIL(ERR_UNSUPPORTED, "%s: architecture \"%.80s\" is not supported; of GGUF files only "
             "llama is", f->path, arch);
    return OK;
}

Status gguf_config_text(const char **text, Arena *a, const GgufFile *f)
{
    Keys    k = {.theta = 10000};
    TextBuf b;
    textbuf_init(&b, a);
    TRY(check_architecture(a, f));
    TRY(read_counts(&k, f));
    TRY(read_numbers(&k, a, f));
    TRY(check_graph(&k, f));
    TRY(write_config(&b, f, &k));
    *text = b.at;
    return OK;
}
