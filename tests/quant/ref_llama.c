/* ref_llama.c - small Llama checkpoints, tensor by tensor. */
#include "tests/quant/ref_llama.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/check.h"

enum { MOST_TENSORS = 512 };

typedef struct {
    char    name[96];
    int64_t rows, cols;  // cols 0: a vector
} Shape;

typedef struct {
    int   n;
    Shape at[MOST_TENSORS];
} Shapes;

float ref_llama_weight(const char *tensor, int64_t i)
{
    uint64_t h = 1469598103934665603u + (uint64_t)i * 0x9e3779b97f4a7c15u;
    for (const char *c = tensor; *c; c++)
        h = (h ^ (unsigned char)*c) * 1099511628211u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    float x = (float)((int64_t)(h >> 40) - (1 << 23)) * 0x1p-23f * 0.1f;
    return strstr(tensor, "norm") ? 1 + x : x;
}

static void add(Shapes *s, const char *name, int64_t rows, int64_t cols)
{
    Shape *t = &s->at[s->n++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
}

static void add_linear(Shapes *s, int64_t layer, const char *name, int64_t n, int64_t k,
                       bool bias)
{
    char text[96];
    snprintf(text, sizeof text, "model.layers.%d.%s.weight", (int)layer, name);
    add(s, text, n, k);
    snprintf(text, sizeof text, "model.layers.%d.%s.bias", (int)layer, name);
    if (bias)
        add(s, text, n, 0);
}

static void list(Shapes *s, const RefLlama *m)
{
    int64_t C = m->hidden, F = m->inter;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    char    text[96];
    s->n = 0;
    add(s, "model.embed_tokens.weight", m->vocab, C);
    add(s, "model.norm.weight", C, 0);
    if (!m->tied)
        add(s, "lm_head.weight", m->vocab, C);
    for (int64_t l = 0; l < m->layers; l++) {
        add_linear(s, l, "self_attn.q_proj", q, C, m->bias);
        add_linear(s, l, "self_attn.k_proj", kv, C, m->bias);
        add_linear(s, l, "self_attn.v_proj", kv, C, m->bias);
        add_linear(s, l, "self_attn.o_proj", C, q, m->bias);
        add_linear(s, l, "mlp.gate_proj", F, C, m->bias);
        add_linear(s, l, "mlp.up_proj", F, C, m->bias);
        add_linear(s, l, "mlp.down_proj", C, F, m->bias);
        snprintf(text, sizeof text, "model.layers.%d.input_layernorm.weight", (int)l);
        add(s, text, C, 0);
        snprintf(text, sizeof text, "model.layers.%d.post_attention_layernorm.weight", (int)l);
        add(s, text, C, 0);
    }
}

static int64_t count(const Shape *t)
{
    return t->rows * (t->cols ? t->cols : 1);
}

static void write_header(FILE *f, const Shapes *s)
{
    static char text[MOST_TENSORS * 160];
    size_t      n = 0;
    int64_t     at = 0;
    for (int i = 0; i < s->n; i++) {
        const Shape *t = &s->at[i];
        char         shape[48];
        snprintf(shape, sizeof shape, t->cols ? "%d,%d" : "%d", (int)t->rows, (int)t->cols);
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":"
                              "[%lld,%lld]}", i ? "," : "{", t->name, shape, (long long)at,
                              (long long)(at + 4 * count(t)));
        at += 4 * count(t);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}");
    while (n % 8)
        text[n++] = ' ';
    fwrite(&n, 8, 1, f);
    fwrite(text, 1, n, f);
}

static bool write_weights(const RefLlama *m, const char *path)
{
    static Shapes s;
    FILE         *f = fopen(path, "wb");
    if (!f)
        return false;
    list(&s, m);
    write_header(f, &s);
    for (int t = 0; t < s.n; t++)
        for (int64_t i = 0; i < count(&s.at[t]); i++) {
            float x = ref_llama_weight(s.at[t].name, i);
            if (m->spoiled && strcmp(m->spoiled, s.at[t].name) == 0 && i == count(&s.at[t]) - 1)
                x = m->spoil;
            fwrite(&x, sizeof x, 1, f);
        }
    return fclose(f) == 0;
}

static bool write_config(const RefLlama *m, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", %s"
            "\"hidden_size\": %d, \"intermediate_size\": %d, \"vocab_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d, \"head_dim\": %d, \"hidden_act\": \"silu\", "
            "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": %s, \"attention_bias\": %s, "
            "\"mlp_bias\": %s, \"torch_dtype\": \"float32\"}", m->config ? m->config : "",
            (int)m->hidden, (int)m->inter, (int)m->vocab, (int)m->layers, (int)m->heads,
            (int)m->kv_heads, (int)m->head_dim, m->tied ? "true" : "false",
            m->bias ? "true" : "false", m->bias ? "true" : "false");
    return fclose(f) == 0;
}

/* A file that is not there is left out. */
static void copy(const char *folder, const char *tokenizer, const char *file)
{
    char  from[512], to[512], part[4096];
    snprintf(from, sizeof from, "%s/golden/tokenizers/%s/%s", DQ_TESTS, tokenizer, file);
    snprintf(to, sizeof to, "%s/%s", folder, file);
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    for (size_t n; out && (n = fread(part, 1, sizeof part, in)) > 0;)
        fwrite(part, 1, n, out);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
}

const char *ref_llama_write(const RefLlama *m, const char *name)
{
    static char folders[4][512];
    static int  turn;
    char       *folder = folders[turn++ % 4], path[600];
    snprintf(folder, sizeof folders[0], "%s/%s", check_tmp(), name);
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/config.json", folder);
    bool ok = write_config(m, path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ok = ok && write_weights(m, path);
    if (m->tokenizer) {
        copy(folder, m->tokenizer, "tokenizer.json");
        copy(folder, m->tokenizer, "tokenizer_config.json");
        copy(folder, m->tokenizer, "special_tokens_map.json");
    }
    return ok ? folder : NULL;
}
