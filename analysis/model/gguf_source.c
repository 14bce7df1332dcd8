/* gguf_source.c - tensors of a GGUF file by the names of LlamaForCausalLM.
 * Names: formats.md 4.3. */
#include "analysis/model/gguf_source.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/model/packed.h"
#include "analysis/textbuf.h"

#define BLOCK "blk."
#define LAYER "model.layers."

typedef enum { ROWS_PLAIN, ROWS_OF_Q, ROWS_OF_K } RowOrder;

/* With .weight or .bias behind; those of layers have "blk.N." in front. */
static const struct {
    const char *gguf, *here;
    RowOrder    order;
} MODEL_NAMES[] = {
    {"token_embd", "model.embed_tokens", ROWS_PLAIN},
    {"output_norm", "model.norm", ROWS_PLAIN},
    {"output", "lm_head", ROWS_PLAIN},
}, LAYER_NAMES[] = {
    {"attn_norm", "input_layernorm", ROWS_PLAIN},
    {"ffn_norm", "post_attention_layernorm", ROWS_PLAIN},
    {"attn_q", "self_attn.q_proj", ROWS_OF_Q},
    {"attn_k", "self_attn.k_proj", ROWS_OF_K},
    {"attn_v", "self_attn.v_proj", ROWS_PLAIN},
    {"attn_output", "self_attn.o_proj", ROWS_PLAIN},
    {"ffn_gate", "mlp.gate_proj", ROWS_PLAIN},
    {"ffn_up", "mlp.up_proj", ROWS_PLAIN},
    {"ffn_down", "mlp.down_proj", ROWS_PLAIN},
};

/* Rotary tables: gguf_config.c has read them, or nobody needs them. */
static bool is_rotary(const char *name)
{
    return strcmp(name, "rope_freqs.weight") == 0 ||
           strncmp(name, "rope_factors_", 13) == 0 || strstr(name, ".attn_rot_embd.");
}

/* --- names --- */

typedef struct {
    const char *path;
    const char *file;   // its last part
    const Config *config;
} Context;

/* Is name part[0..n)? */
static bool is_part(const char *part, size_t n, const char *name)
{
    return strlen(name) == n && strncmp(part, name, n) == 0;
}

/* *out is NULL for a name that no llama has. */
static Status translate(const char **out, RowOrder *order, Arena *a, const char *name)
{
    const char *dot = strrchr(name, '.'), *part = name;
    size_t      digits = 0;
    bool        layer = strncmp(name, BLOCK, strlen(BLOCK)) == 0;
    *out = NULL;
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0))
        return OK;
    if (layer) {
        part = name + strlen(BLOCK);
        digits = strspn(part, "0123456789");
        if (digits == 0 || part[digits] != '.' || part + digits >= dot)
            return OK;
        part += digits + 1;
    }
    size_t n = (size_t)(dot - part);
    size_t rows = layer ? sizeof LAYER_NAMES / sizeof *LAYER_NAMES
                        : sizeof MODEL_NAMES / sizeof *MODEL_NAMES;
    for (size_t i = 0; i < rows; i++) {
        if (!is_part(part, n, layer ? LAYER_NAMES[i].gguf : MODEL_NAMES[i].gguf))
            continue;
        *order = layer ? LAYER_NAMES[i].order : ROWS_PLAIN;
        *out = layer ? arena_printf(a, LAYER "%.*s.%s%s", (int)digits, name + strlen(BLOCK),
                                    LAYER_NAMES[i].here, dot)
                     : arena_printf(a, "%s%s", MODEL_NAMES[i].here, dot);
        if (!*out)
            FAIL(ERR_MEMORY, "out of memory: a tensor's name");
    }
    return OK;
}

/* --- tensors --- */

/* Heads whose rows lie pair by pair; 0 where the order is the usual one, or the shape
 * is wrong: then it is refused as such. */
static int64_t paired_heads(const Context *c, RowOrder order, int64_t rows)
{
    const ConfigKeys *k = &c->config->keys;
    int64_t heads = order == ROWS_OF_Q ? k->num_attention_heads : k->num_key_value_heads;
    return order != ROWS_PLAIN && rows == heads * k->head_dim ? heads : 0;
}

static Status pack(ModelTensor *t, Arena *a, const GgufTensor *g, int64_t heads)
{
    Packed *p;
    ARENA_NEW(p, a, 1);
    *p = (Packed){
        .kind = g->is_block ? PACKED_BLOCKS : PACKED_NUMBERS,
        .n = t->view.shape[0],
        .k = t->view.n_dims == 2 ? t->view.shape[1] : 1,
        .data = g->data,
        .bytes = g->bytes,
        .block = g->block,
        .dtype = g->dtype,
        .paired_heads = heads,
        .codes = t,
    };
    t->packed = p;
    t->view.data = NULL;
    return OK;
}

static Status fill_tensor(ModelTensor *t, Arena *a, const Context *c, const GgufTensor *g,
                          RowOrder order)
{
    t->file = c->file;
    /* Blocks hold sums of products of small numbers: f32 is what they decode to. */
    t->view = (Tensor){.dtype = g->is_block ? DTYPE_F32 : g->dtype, .n_dims = g->n_dims,
                       .data = (void *)(uintptr_t)g->data};
    for (int i = 0; i < g->n_dims; i++)
        t->view.shape[i] = g->ne[g->n_dims - 1 - i];
    if (g->is_block && g->n_dims != 2)
        FAIL(ERR_UNSUPPORTED, "%s: tensor %s has %d dims and is %s, expected F32, F16 or BF16: "
             "only matrices may go in blocks", c->path, g->name, g->n_dims,
             block_info(g->block)->name);
    int64_t heads = g->n_dims <= 2 ? paired_heads(c, order, t->view.shape[0]) : 0;
    return g->is_block || heads ? pack(t, a, g, heads) : OK;
}

static int by_name(const void *x, const void *y)
{
    const char *const *a = x, *const *b = y;
    return strcmp(*a, *b);
}

/* A tensor on its way to the table. */
typedef struct {
    const char       *name;  // first: by_name
    const GgufTensor *from;
    RowOrder          order;
} Renamed;

static Status rename_all(Renamed *out, int64_t *n, Arena *a, const GgufFile *f)
{
    *n = 0;
    for (int64_t i = 0; i < f->n_tensors; i++) {
        const GgufTensor *g = &f->tensors[i];
        Renamed          *r = &out[*n];
        r->from = g;
        TRY(translate(&r->name, &r->order, a, g->name));
        if (!r->name && !is_rotary(g->name))
            FAIL(ERR_UNSUPPORTED, "%s: tensor %s is not part of a llama", f->path, g->name);
        *n += r->name != NULL;
    }
    qsort(out, (size_t)*n, sizeof *out, by_name);
    return OK;
}

static Status list_tensors(Checkpoint *ck, Arena *a, const Context *c)
{
    Renamed *all;
    ARENA_NEW(all, a, ck->gguf->n_tensors);
    TRY(rename_all(all, &ck->n, a, ck->gguf));
    ARENA_NEW(ck->tensors, a, ck->n);
    for (int64_t i = 0; i < ck->n; i++) {
        ck->tensors[i].name = all[i].name;
        TRY(fill_tensor(&ck->tensors[i], a, c, all[i].from, all[i].order));
    }
    return OK;
}

/* The types of blocks that there are, for people; NULL where all are plain. */
static Status summarize(const char **out, Arena *a, const GgufFile *f)
{
    bool        seen[N_BLOCKS] = {false};
    const char *comma = " ";
    TextBuf     b;
    textbuf_init(&b, a);
    for (int64_t i = 0; i < f->n_tensors; i++) {
        const GgufTensor *t = &f->tensors[i];
        if (!t->is_block || seen[t->block])
            continue;
        seen[t->block] = true;
        textbuf_printf(&b, "%s%s%s", *comma == ' ' ? "GGUF:" : "", comma,
                       block_info(t->block)->name);
        comma = ", ";
    }
    *out = b.n ? b.at : NULL;
    return textbuf_status(&b);
}

Status gguf_source_open(Config *c, Checkpoint *ck, Arena *a, const char *path)
{
    const char *text = NULL, *slash = strrchr(path, '/');
    Context     context = {.path = path, .config = c};
    *ck = (Checkpoint){0};
    ARENA_NEW(ck->files, a, 1);  // no safetensors, but one file
    ck->n_files = 1;
    ARENA_NEW(ck->gguf, a, 1);
    TRY(gguf_file_open(ck->gguf, a, path));
    TRY(gguf_config_text(&text, a, ck->gguf));
    TRY(config_parse(c, a, path, text, strlen(text)));
    TRY(summarize(&c->quant.summary, a, ck->gguf));
    context.file = arena_printf(a, "%s", slash ? slash + 1 : path);
    if (!context.file)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    return list_tensors(ck, a, &context);
}
