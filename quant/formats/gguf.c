/* gguf.c - a llama as one GGUF file: what goes in, head, data. */
#include "quant/formats/gguf.h"

#include <string.h>
#include <sys/stat.h>

#include "kernels/filemap.h"
#include "kernels/size.h"
#include "quant/formats/gguf_parts.h"

/* All tensors of the file in its order. */
typedef struct {
    GgufOptions *o;
    Arena       *arena;
    GgufChoice   choice;
    int64_t      n;
    GgufItem    *at;
} Listing;

static const ModelTensor *find(const ModelInfo *info, const char *name)
{
    for (int64_t i = 0; i < info->n_tensors; i++)
        if (strcmp(info->tensors[i].name, name) == 0)
            return &info->tensors[i];
    return NULL;
}

/* --- what goes in --- */

/* A tensor of a layer, or of none where layer < 0. name without "blk.N.". */
static Status add(GgufItem **out, Listing *l, const char *name, int64_t layer,
                  const ModelTensor *source)
{
    char *full = layer < 0 ? arena_printf(l->arena, "%s", name)
                           : arena_printf(l->arena, "blk.%lld.%s", (long long)layer, name);
    if (!full)
        FAIL(ERR_MEMORY, "out of memory: name of a tensor");
    GgufItem *item = &l->at[l->n++];
    *item = (GgufItem){.name = full, .source = source, .is_vector = true, .k = 1};
    item->store = (GgufStore){false, 0, DTYPE_F32};
    if (source) {
        item->is_vector = source->view.n_dims == 1;
        item->n = source->view.shape[0];
        item->k = item->is_vector ? 1 : source->view.shape[1];
    }
    *out = item;
    return OK;
}

static Status add_vector(Listing *l, const char *name, int64_t layer, const ModelTensor *source)
{
    GgufItem *item;
    return add(&item, l, name, layer, source);
}

static Status add_numbers(Listing *l, const char *name, const float *numbers, int64_t n)
{
    GgufItem *item;
    if (!numbers)
        return OK;
    TRY(add(&item, l, name, -1, NULL));
    item->numbers = numbers;
    item->n = n;
    return OK;
}

/* Embedding or head: role is one of ours. */
static Status add_vocab(Listing *l, const char *name, int role, const ModelTensor *source)
{
    GgufItem *item;
    if (!source)
        return OK;
    TRY(add(&item, l, name, -1, source));
    item->store = gguf_choose(&l->choice, role, 0, item->k);
    return OK;
}

static Status add_matrix(Listing *l, WeightKind kind, int64_t layer, const LayerMatrix *m)
{
    static const char *const NAMES[N_WEIGHTS][2] = {
        [W_Q] = {"attn_q.weight", "attn_q.bias"},
        [W_K] = {"attn_k.weight", "attn_k.bias"},
        [W_V] = {"attn_v.weight", "attn_v.bias"},
        [W_O] = {"attn_output.weight", "attn_output.bias"},
        [W_GATE] = {"ffn_gate.weight", "ffn_gate.bias"},
        [W_UP] = {"ffn_up.weight", "ffn_up.bias"},
        [W_DOWN] = {"ffn_down.weight", "ffn_down.bias"},
    };
    const ModelInfo *info = &l->o->source->info;
    int64_t          head_dim = kind == W_Q || kind == W_K ? info->config.head_dim : 0;
    GgufItem        *item;
    TRY(add(&item, l, NAMES[kind][0], layer, find(info, m->name)));
    item->store = gguf_choose(&l->choice, kind, layer, item->k);
    item->head_dim = head_dim;
    if (l->o->importance)
        item->importance = l->o->importance[layer * N_TAPS + tap_of_weight(kind)];
    if (!m->bias_name)
        return OK;
    TRY(add(&item, l, NAMES[kind][1], layer, find(info, m->bias_name)));
    item->head_dim = head_dim;
    return OK;
}

static Status add_layer(Listing *l, int64_t layer)
{
    const ModelInfo *info = &l->o->source->info;
    LayerWeights     w;
    layers_describe(&w, l->o->source, layer);
    TRY(add_vector(l, "attn_norm.weight", layer, find(info, w.norm_name[0])));
    for (int kind = W_Q; kind <= W_O; kind++)
        TRY(add_matrix(l, (WeightKind)kind, layer, &w.at[kind]));
    TRY(add_vector(l, "ffn_norm.weight", layer, find(info, w.norm_name[1])));
    for (int kind = W_GATE; kind <= W_DOWN; kind++)
        TRY(add_matrix(l, (WeightKind)kind, layer, &w.at[kind]));
    return OK;
}

static Status list_tensors(Listing *l)
{
    enum { COMPUTED = 3 };  // lists of rope at most
    Layers            *source = l->o->source;
    const ModelConfig *c = &source->info.config;
    GgufDivisors       d;
    ARENA_NEW(l->at, l->arena, source->info.n_tensors + COMPUTED);
    l->choice = (GgufChoice){l->o->type, c->n_layers, layers_head(source) == NULL,
                             c->n_groups < c->n_heads, l->o->importance != NULL};
    TRY(gguf_divisors(&d, l->arena, c));
    TRY(add_numbers(l, "rope_freqs.weight", d.all, c->rope.dims / 2));
    TRY(add_numbers(l, "rope_factors_short.weight", d.small, c->rope.dims / 2));
    TRY(add_numbers(l, "rope_factors_long.weight", d.large, c->rope.dims / 2));
    TRY(add_vocab(l, "token_embd.weight", GGUF_ROLE_EMBED, layers_embed(source)));
    for (int64_t layer = 0; layer < c->n_layers; layer++)
        TRY(add_layer(l, layer));
    TRY(add_vector(l, "output_norm.weight", -1, layers_norm(source)));
    return add_vocab(l, "output.weight", GGUF_ROLE_HEAD, layers_head(source));
}

/* --- head --- */

static size_t padded(size_t n)
{
    return (n + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
}

/* Name, dims (inputs first), type, offset of the data. */
static Status put_info(GgufPut *p, const GgufItem *item, uint64_t offset)
{
    enum { MOST_NAME = 63 };
    uint32_t n_dims = item->is_vector ? 1 : 2;
    int64_t  ne[2] = {item->is_vector ? item->n : item->k, item->n};
    int32_t  type = gguf_store_number(&item->store);
    if (strlen(item->name) > MOST_NAME)
        FAIL(ERR_UNSUPPORTED, "tensor %s: GGUF holds names of at most %d bytes", item->name,
             MOST_NAME);
    gguf_put_item(p, item->name, strlen(item->name));
    gguf_put_bytes(p, &n_dims, sizeof n_dims);
    gguf_put_bytes(p, ne, n_dims * sizeof *ne);
    gguf_put_bytes(p, &type, sizeof type);
    gguf_put_bytes(p, &offset, sizeof offset);
    return OK;
}

static void put_zeros(GgufPut *p)
{
    static const char ZEROS[GGUF_ALIGN];
    gguf_put_bytes(p, ZEROS, padded(p->out.n) - p->out.n);
}

/* The file's bytes up to the data. */
static Status make_head(GgufPut *head, Arena *a, Listing *l)
{
    GgufPut  keys;
    uint32_t version = 3;
    uint64_t offset = 0;
    int64_t  n_tensors = l->n;
    gguf_put_init(&keys, a);
    TRY(gguf_meta(&keys, a, &l->o->source->info, l->o->type));
    TRY(gguf_tokens(&keys, a, &l->o->source->info, &l->o->warning));
    TRY(textbuf_status(&keys.out));
    gguf_put_init(head, a);
    gguf_put_bytes(head, "GGUF", 4);
    gguf_put_bytes(head, &version, sizeof version);
    gguf_put_bytes(head, &n_tensors, sizeof n_tensors);
    gguf_put_bytes(head, &keys.n_keys, sizeof keys.n_keys);
    gguf_put_bytes(head, keys.out.at, keys.out.n);
    for (int64_t i = 0; i < l->n; i++) {
        TRY(put_info(head, &l->at[i], offset));
        l->at[i].place = offset;
        offset += padded(gguf_item_bytes(&l->at[i]));
    }
    put_zeros(head);
    for (int64_t i = 0; i < l->n; i++)
        l->at[i].place += head->out.n;
    l->o->bytes = head->out.n + offset;
    return textbuf_status(&head->out);
}

/* --- data --- */

static void note_row(GgufOptions *o, const GgufItem *item)
{
    if (item->is_vector)
        return;
    double bits = 8 * (double)gguf_item_bytes(item) / (double)(item->n * item->k);
    o->rows[o->n_rows++] = (GgufRow){item->source->name, gguf_store_name(&item->store),
                                     item->n, item->k, bits, round_error(&item->error)};
}

static Status write_data(OutFile *f, Listing *l)
{
    TRY(gguf_items_write(f, l->arena, l->o, l->at, l->n));
    for (int64_t i = 0; i < l->n; i++)
        note_row(l->o, &l->at[i]);
    return OK;
}

/* --- the way in --- */

/* What is there may be written over only if it was asked for, and is a GGUF. */
static Status check_target(const GgufOptions *o)
{
    struct stat st;
    FileMap     map;
    if (stat(o->path, &st) != 0 || !S_ISREG(st.st_mode))
        return OK;  // what else it is, outfile_open says
    if (!o->overwrite)
        FAIL(ERR_USAGE, "%s: is there already: choose another name, or replace it with --force",
             o->path);
    TRY(filemap_open(&map, o->path));
    bool known = map.size == 0 || (map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0);
    filemap_close(&map);
    if (!known)
        FAIL(ERR_USAGE, "%s: is there already and no GGUF file: it is not replaced", o->path);
    return OK;
}

/* A GGUF file, or a folder around one, has no tokenizer.json to go with the weights. */
static Status check_source(const ModelInfo *info, Arena *a)
{
    struct stat st;
    const char *config = arena_printf(a, "%s/config.json", info->path);
    if (!config)
        FAIL(ERR_MEMORY, "out of memory: path of config.json");
    if (stat(config, &st) != 0)
        FAIL(ERR_UNSUPPORTED, "%s: has no config.json: GGUF is written from a Hugging Face "
             "folder, whose tokenizer goes with it", info->path);
    return gguf_check_graph(info);
}

/* The head is written from an arena of its own: a large vocabulary takes room. */
static Status write_head(OutFile *f, Listing *l)
{
    Arena   scratch = {0};
    GgufPut head;
    Status  s;
    GUARD(make_head(&head, &scratch, l));
    GUARD(outfile_expect(f, l->o->bytes));
    GUARD(outfile_write(f, head.out.at, head.out.n));
    if (l->o->warning) {
        l->o->warning = arena_printf(l->arena, "%s", l->o->warning);
        s = l->o->warning ? OK : STATUS(ERR_MEMORY, "out of memory: a warning");
    }
out:
    if (s != OK)
        l->o->warning = NULL;
    arena_close(&scratch);
    return s;
}

static Status write_file(Listing *l)
{
    OutFile f = {0};
    Status  s;
    GUARD(list_tensors(l));
    GUARD(outfile_open(&f, l->arena, l->o->path));
    GUARD(write_head(&f, l));
    GUARD(write_data(&f, l));
    GUARD(outfile_commit(&f));
out:
    outfile_close(&f);
    return s;
}

Status gguf_check(Arena *a, const GgufOptions *o)
{
    TRY(check_source(&o->source->info, a));
    TRY(check_target(o));
    return outfile_try(a, o->path);
}

Status gguf_write(Arena *a, GgufOptions *o)
{
    o->n_rows = 0;
    o->bytes = 0;
    o->warning = NULL;
    TRY(gguf_check(a, o));
    Listing l = {.o = o, .arena = a};
    return write_file(&l);
}
