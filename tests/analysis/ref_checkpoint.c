/* ref_checkpoint.c - safetensors written by hand: the reader is what we test. */
#include "tests/analysis/ref_checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/half.h"
#include "tests/check.h"

const char *ref_path(const char *format, ...)
{
    static char text[8][512];
    static int  turn;
    char       *p = text[turn++ % 8];
    int         n = snprintf(p, sizeof text[0], "%s/", check_tmp());
    va_list     args;
    va_start(args, format);
    vsnprintf(p + n, sizeof text[0] - (size_t)n, format, args);
    va_end(args);
    return p;
}

void ref_write(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || (n && fwrite(data, 1, n, f) != n) || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

void ref_write_text(const char *path, const char *text)
{
    ref_write(path, text, strlen(text));
}

static void put_size(unsigned char *out, uint64_t n)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(n >> (8 * i));
}

void ref_write_safetensors(const char *path, const char *header, size_t n_data)
{
    size_t         n = strlen(header);
    unsigned char *all = malloc(8 + n + n_data);
    put_size(all, n);
    memcpy(all + 8, header, n);
    for (size_t i = 0; i < n_data; i++)
        all[8 + n + i] = (unsigned char)(i + 1);
    ref_write(path, all, 8 + n + n_data);
    free(all);
}

unsigned char *ref_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*n + 1);
    if (fread(data, 1, *n, f) != *n)
        exit(1);
    fclose(f);
    return data;
}

const char *ref_replace(const char *text, const char *from, const char *to)
{
    static char out[8192];
    const char *at = strstr(text, from);
    if (!at) {
        fprintf(stderr, "ref_replace: \"%s\" is not there\n", from);
        exit(1);
    }
    char copy[sizeof out];
    snprintf(copy, sizeof copy, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    memcpy(out, copy, sizeof out);
    return out;
}

/* --- models --- */

RefTensor *ref_model_add(RefModel *m, const char *name, int64_t rows, int64_t cols)
{
    RefTensor *t = &m->at[m->n++];
    uint64_t   seed = (uint64_t)m->n;
    int64_t    n = rows * (cols ? cols : 1);
    *t = (RefTensor){.dtype = "F32", .rows = rows, .cols = cols};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->data = malloc((size_t)n * sizeof *t->data);
    for (int64_t i = 0; i < n; i++)
        t->data[i] = bf16_round(check_normal(&seed) * 0.25f);  // exact in bf16
    return t;
}

static void add_layer(RefModel *m, int layer)
{
    int64_t C = m->hidden, F = m->inter, d = m->head_dim;
    int64_t Q = m->heads * d, KV = m->kv_heads * d;
    const struct {
        const char *name;
        int64_t     rows, cols;
        bool        there;
    } ROWS[] = {
        {"input_layernorm.weight", C, 0, true},
        {"post_attention_layernorm.weight", C, 0, true},
        {"self_attn.q_proj.weight", Q, C, true},
        {"self_attn.k_proj.weight", KV, C, true},
        {"self_attn.v_proj.weight", KV, C, true},
        {"self_attn.o_proj.weight", C, Q, true},
        {"self_attn.q_proj.bias", Q, 0, m->attention_bias},
        {"self_attn.k_proj.bias", KV, 0, m->attention_bias},
        {"self_attn.v_proj.bias", KV, 0, m->attention_bias},
        {"self_attn.o_proj.bias", C, 0, m->attention_bias},
        {"mlp.gate_proj.weight", F, C, true},
        {"mlp.up_proj.weight", F, C, true},
        {"mlp.down_proj.weight", C, F, true},
        {"mlp.gate_proj.bias", F, 0, m->mlp_bias},
        {"mlp.up_proj.bias", F, 0, m->mlp_bias},
        {"mlp.down_proj.bias", C, 0, m->mlp_bias},
        {"self_attn.lambda_q1", d, 0, m->diff},
        {"self_attn.lambda_k1", d, 0, m->diff},
        {"self_attn.lambda_q2", d, 0, m->diff},
        {"self_attn.lambda_k2", d, 0, m->diff},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, ROWS[i].name);
        if (ROWS[i].there)
            ref_model_add(m, name, ROWS[i].rows, ROWS[i].cols);
    }
}

void ref_model_fill(RefModel *m, const char *dtype)
{
    m->n = 0;
    ref_model_add(m, "model.embed_tokens.weight", m->vocab, m->hidden);
    for (int l = 0; l < m->layers; l++)
        add_layer(m, l);
    ref_model_add(m, "model.norm.weight", m->hidden, 0);
    if (!m->tied)
        ref_model_add(m, "lm_head.weight", m->vocab, m->hidden);
    for (int i = 0; i < m->n; i++)
        snprintf(m->at[i].dtype, sizeof m->at[i].dtype, "%s", dtype);
}

RefTensor *ref_model_find(RefModel *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->at[i].name, name) == 0)
            return &m->at[i];
    fprintf(stderr, "ref_model_find: no tensor %s\n", name);
    exit(1);
}

void ref_model_drop(RefModel *m, const char *name)
{
    RefTensor *t = ref_model_find(m, name);
    free(t->data);
    *t = m->at[--m->n];
}

void ref_model_free(RefModel *m)
{
    for (int i = 0; i < m->n; i++)
        free(m->at[i].data);
    m->n = 0;
}

const char *ref_model_config(const RefModel *m)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"vocab_size\": %d, "
             "\"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d, "
             "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
             "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
             "\"rope_scaling\": null, \"max_position_embeddings\": 64, "
             "\"tie_word_embeddings\": %s, \"attention_bias\": %s, \"mlp_bias\": %s}",
             m->diff ? "DiffLlamaForCausalLM" : "LlamaForCausalLM",
             m->diff ? "diffllama" : "llama", (int)m->vocab, (int)m->hidden, (int)m->inter,
             (int)m->layers, (int)m->heads, (int)m->kv_heads, (int)m->head_dim,
             m->tied ? "true" : "false", m->attention_bias ? "true" : "false",
             m->mlp_bias ? "true" : "false");
    return text;
}

/* --- files --- */

typedef struct {
    char          *header;
    unsigned char *data;
    size_t         n_header, n_data;
} Shard;

static void put_tensor(Shard *s, const RefTensor *t)
{
    int64_t n = t->rows * (t->cols ? t->cols : 1);
    bool    f16 = strcmp(t->dtype, "F16") == 0, bf16 = strcmp(t->dtype, "BF16") == 0;
    size_t  size = f16 || bf16 ? 2 : 4, begin = s->n_data;
    for (int64_t i = 0; i < n; i++, s->n_data += size) {
        uint16_t half = f16 ? f16_from_f32(t->data[i]) : bf16_from_f32(t->data[i]);
        memcpy(s->data + s->n_data, size == 2 ? (void *)&half : (void *)&t->data[i], size);
    }
    char shape[64];
    snprintf(shape, sizeof shape, t->cols ? "%lld,%lld" : "%lld", (long long)t->rows,
             (long long)t->cols);
    if (t->shape[0])
        snprintf(shape, sizeof shape, "%s", t->shape);
    s->n_header += (size_t)sprintf(
        s->header + s->n_header,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        s->n_header > 1 ? "," : "", t->name, t->dtype, shape, begin, s->n_data);
}

static void write_shard(const RefModel *m, const char *path, int shard, int shards)
{
    size_t room = 0;
    for (int i = 0; i < m->n; i++)
        room += (size_t)(m->at[i].rows * (m->at[i].cols ? m->at[i].cols : 1)) * 4;
    Shard s = {malloc((size_t)(m->n + 1) * 256), malloc(8 + 256 * (size_t)(m->n + 1) + room),
               0, 0};
    s.n_header = (size_t)sprintf(s.header, "{");
    for (int i = shard; i < m->n; i += shards)
        put_tensor(&s, &m->at[i]);
    s.n_header += (size_t)sprintf(s.header + s.n_header, "}");
    unsigned char *all = malloc(8 + s.n_header + s.n_data);
    put_size(all, s.n_header);
    memcpy(all + 8, s.header, s.n_header);
    memcpy(all + 8 + s.n_header, s.data, s.n_data);
    ref_write(path, all, 8 + s.n_header + s.n_data);
    free(all);
    free(s.header);
    free(s.data);
}

void ref_model_write(const RefModel *m, const char *folder, int shards)
{
    char path[600];
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/config.json", folder);
    ref_write_text(path, ref_model_config(m));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (shards == 1) {
        write_shard(m, path, 0, 1);
        return;
    }
    char *index = malloc((size_t)(m->n + 1) * 256), *p = index;
    p += sprintf(p, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (int i = 0; i < m->n; i++)
        p += sprintf(p, "%s\"%s\": \"model-%05d-of-%05d.safetensors\"", i ? ", " : "",
                     m->at[i].name, i % shards + 1, shards);
    sprintf(p, "}}");
    for (int s = 0; s < shards; s++) {
        snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", folder, s + 1, shards);
        write_shard(m, path, s, shards);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    ref_write_text(path, index);
    free(index);
}
