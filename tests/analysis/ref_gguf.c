/* ref_gguf.c - see ref_gguf.h. */
#include "tests/analysis/ref_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "tests/analysis/ref_checkpoint.h"

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, LIST = 9 };

void ref_gguf_bytes(RefGguf *g, const void *bytes, size_t n)
{
    if (g->n + n > g->room) {
        g->room = 2 * (g->n + n) + 256;
        g->bytes = realloc(g->bytes, g->room);
    }
    if (n)
        memcpy(g->bytes + g->n, bytes, n);
    g->n += n;
}

void ref_gguf_u32(RefGguf *g, uint32_t x)
{
    ref_gguf_bytes(g, &x, sizeof x);
}

void ref_gguf_u64(RefGguf *g, uint64_t x)
{
    ref_gguf_bytes(g, &x, sizeof x);
}

void ref_gguf_name(RefGguf *g, const char *text)
{
    ref_gguf_u64(g, strlen(text));
    ref_gguf_bytes(g, text, strlen(text));
}

void ref_gguf_begin(RefGguf *g, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    *g = (RefGguf){0};
    ref_gguf_bytes(g, "GGUF", 4);
    ref_gguf_u32(g, version);
    ref_gguf_u64(g, n_tensors);
    ref_gguf_u64(g, n_keys);
}

static void key(RefGguf *g, const char *name, uint32_t kind)
{
    ref_gguf_name(g, name);
    ref_gguf_u32(g, kind);
}

void ref_gguf_key_u32(RefGguf *g, const char *name, uint32_t x)
{
    key(g, name, U32);
    ref_gguf_u32(g, x);
}

void ref_gguf_key_f32(RefGguf *g, const char *name, float x)
{
    key(g, name, F32);
    ref_gguf_bytes(g, &x, sizeof x);
}

void ref_gguf_key_bool(RefGguf *g, const char *name, bool x)
{
    unsigned char byte = x;
    key(g, name, BOOL);
    ref_gguf_bytes(g, &byte, 1);
}

void ref_gguf_key_text(RefGguf *g, const char *name, const char *text)
{
    key(g, name, TEXT);
    ref_gguf_name(g, text);
}

void ref_gguf_key_list(RefGguf *g, const char *name, uint32_t kind, uint64_t n)
{
    key(g, name, LIST);
    ref_gguf_u32(g, kind);
    ref_gguf_u64(g, n);
}

void ref_gguf_tensor(RefGguf *g, const char *name, uint32_t type, int n_dims,
                     const uint64_t *ne, size_t bytes)
{
    ref_gguf_name(g, name);
    ref_gguf_u32(g, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        ref_gguf_u64(g, ne[i]);
    ref_gguf_u32(g, type);
    ref_gguf_u64(g, g->data);
    g->data += (bytes + 31) / 32 * 32;
}

void ref_gguf_data(RefGguf *g)
{
    static const unsigned char zero[32];
    ref_gguf_bytes(g, zero, (32 - g->n % 32) % 32);
    for (size_t i = 0; i < g->data; i++) {
        unsigned char byte = (unsigned char)(i + 1);
        ref_gguf_bytes(g, &byte, 1);
    }
}

void ref_gguf_save(RefGguf *g, const char *path)
{
    ref_write(path, g->bytes, g->n);
    free(g->bytes);
    *g = (RefGguf){0};
}

/* --- a tokenizer --- */

static void put_merges(RefGguf *g, const Json *merges)
{
    ref_gguf_key_list(g, "tokenizer.ggml.merges", TEXT, (uint64_t)merges->n);
    for (int64_t i = 0; i < merges->n; i++) {
        const Json *m = &merges->at[i];
        char        text[512];
        if (m->kind == JSON_TEXT)
            snprintf(text, sizeof text, "%s", m->text);
        else
            snprintf(text, sizeof text, "%s %s", m->at[0].text, m->at[1].text);
        ref_gguf_name(g, text);
    }
}

static void put_scores(RefGguf *g, int64_t n)
{
    ref_gguf_key_list(g, "tokenizer.ggml.scores", F32, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        float score = -(float)(i / 3);
        ref_gguf_bytes(g, &score, sizeof score);
    }
}

/* Tokens by id, with the added ones behind; types likewise. */
static int64_t collect(const char ***tokens, int32_t **types, Arena *a, const Json *root)
{
    const Json *vocab = json_member(json_member(root, "model"), "vocab");
    const Json *added = json_member(root, "added_tokens");
    int64_t     n = vocab->n;
    *tokens = arena_alloc(a, n + added->n, sizeof **tokens);
    *types = arena_alloc(a, n + added->n, sizeof **types);
    for (int64_t i = 0; i < vocab->n; i++) {
        bool byte = strncmp(vocab->at[i].key, "<0x", 3) == 0;
        (*tokens)[vocab->at[i].integer] = vocab->at[i].key;
        (*types)[vocab->at[i].integer] = byte ? 6 : 1;
    }
    for (int64_t i = 0; i < added->n; i++) {
        const Json *t = &added->at[i];
        int64_t     id = json_member(t, "id")->integer;
        bool        special = json_member(t, "special")->truth;
        if (id >= n)
            n = id + 1;
        (*tokens)[id] = json_member(t, "content")->text;
        (*types)[id] = strcmp((*tokens)[id], "<unk>") == 0 ? 2 : special ? 3 : 4;
    }
    return n;
}

static uint32_t find(const char *const *tokens, int64_t n, const char *text, uint32_t other)
{
    for (int64_t i = 0; i < n; i++)
        if (strcmp(tokens[i], text) == 0)
            return (uint32_t)i;
    return other;
}

void ref_gguf_tokenizer(const char *path, const char *json, const RefGgufTokenizer *t)
{
    Arena        a = {0};
    RefGguf      g;
    const Json  *root;
    const char **tokens;
    int32_t     *types;
    if (json_read(&root, &a, json) != OK)
        abort();
    int64_t n = collect(&tokens, &types, &a, root);
    ref_gguf_begin(&g, 3, 0, t->pre ? 9 : 8);
    ref_gguf_key_text(&g, "tokenizer.ggml.model", t->model);
    if (t->pre)
        ref_gguf_key_text(&g, "tokenizer.ggml.pre", t->pre);
    ref_gguf_key_list(&g, "tokenizer.ggml.tokens", TEXT, (uint64_t)n);
    for (int64_t i = 0; i < n; i++)
        ref_gguf_name(&g, tokens[i]);
    ref_gguf_key_list(&g, "tokenizer.ggml.token_type", I32, (uint64_t)n);
    ref_gguf_bytes(&g, types, (size_t)n * sizeof *types);
    if (t->merges)
        put_merges(&g, json_member(json_member(root, "model"), "merges"));
    else
        put_scores(&g, n);
    ref_gguf_key_u32(&g, "tokenizer.ggml.bos_token_id", find(tokens, n, "<s>", 0));
    ref_gguf_key_u32(&g, "tokenizer.ggml.eos_token_id", find(tokens, n, "</s>", 0));
    ref_gguf_key_bool(&g, "tokenizer.ggml.add_bos_token", t->bos);
    ref_gguf_key_bool(&g, "tokenizer.ggml.add_eos_token", t->eos);
    ref_gguf_save(&g, path);
    arena_close(&a);
}
