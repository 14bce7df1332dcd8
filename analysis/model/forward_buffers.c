/* forward_buffers.c - what a pass holds of its rows.
 * What only mixes positions and what only the MLP needs are never needed at once: they share
 * their memory, unless layers read what earlier ones have left there. */
#include "analysis/model/forward_mix.h"
#include "kernels/size.h"

enum { ALIGN = 16 };   // floats: tensors begin where vectors may be loaded

/* Until the pass ends; until the layer has attended; in the MLP. */
typedef enum { FOR_PASS, FOR_MIXING, FOR_MLP } Use;

typedef struct {
    size_t  at;            // offset of the tensor in Pass
    Use     use;
    int64_t rows, width;
} Buffer;

enum { MOST_BUFFERS = 17 };

typedef struct {
    int    n;
    Buffer at[MOST_BUFFERS];
} Buffers;

static void add(Buffers *b, size_t at, Use use, int64_t rows, int64_t width)
{
    CHECK(b->n < MOST_BUFFERS);
    b->at[b->n++] = (Buffer){at, use, rows, width};
}

static bool has_mixer(const ModelConfig *c, Mixer mixer)
{
    for (int64_t l = 0; c->layers && l < c->n_layers; l++)
        if (c->layers[l].mixer == mixer)
            return true;
    return false;
}

bool forward_carries(const ModelConfig *c)
{
    return has_mixer(c, MIX_MAMBA) || has_mixer(c, MIX_MEMORY) || has_mixer(c, MIX_CROSS);
}

/* keys: rows that the batch attends to, where they are gathered (branches), else 0. */
static void list_mixing(Buffers *b, const ModelConfig *c, int64_t T, int64_t keys, bool cached)
{
    Use use = forward_carries(c) ? FOR_PASS : FOR_MIXING;
    add(b, offsetof(Pass, q), use, T, model_query_width(c));
    add(b, offsetof(Pass, heads), use, T, model_out_width(c));
    if (!cached) {
        add(b, offsetof(Pass, k), use, T, model_key_width(c));
        add(b, offsetof(Pass, v), use, T, model_value_width(c));
    }
    if (keys) {
        add(b, offsetof(Pass, keys), use, keys, model_key_width(c));
        add(b, offsetof(Pass, values), use, keys, model_value_width(c));
    }
    if (c->lambda_rows)
        add(b, offsetof(Pass, lambda), use, T, c->n_heads);
    if (!has_mixer(c, MIX_MAMBA))
        return;
    add(b, offsetof(Pass, u), use, T, c->inner);
    add(b, offsetof(Pass, z), use, T, c->inner);
    add(b, offsetof(Pass, memory), use, T, c->inner);
    add(b, offsetof(Pass, rank), use, T, c->rank);
    add(b, offsetof(Pass, bc), use, T, 2 * c->n_states);
}

static void list(Buffers *b, const ModelConfig *c, int64_t T, int64_t keys, bool cached)
{
    b->n = 0;
    add(b, offsetof(Pass, x), FOR_PASS, T, c->hidden);
    add(b, offsetof(Pass, n), FOR_PASS, T, c->hidden);
    add(b, offsetof(Pass, y), FOR_PASS, T, c->hidden);
    list_mixing(b, c, T, keys, cached);
    add(b, offsetof(Pass, gate), FOR_MLP, T, c->inter);
    if (c->gated)
        add(b, offsetof(Pass, up), FOR_MLP, T, c->inter);
}

static int64_t floats_of(const Buffer *b)
{
    return ceil_div(b->rows * b->width, ALIGN) * ALIGN;
}

/* Of one use together. */
static int64_t floats_for(const Buffers *b, Use use)
{
    int64_t sum = 0;
    for (int i = 0; i < b->n; i++)
        sum += b->at[i].use == use ? floats_of(&b->at[i]) : 0;
    return sum;
}

static int64_t shared_floats(const Buffers *b)
{
    return i64_max(floats_for(b, FOR_MIXING), floats_for(b, FOR_MLP));
}

size_t forward_bytes(const ModelConfig *c, int64_t T)
{
    Buffers b;
    list(&b, c, T, 0, false);
    return (size_t)(floats_for(&b, FOR_PASS) + shared_floats(&b)) * sizeof(float);
}

int64_t forward_rows(const ModelConfig *c, size_t bytes)
{
    enum { MANY = 1024 };   // what they are aligned to is nothing to them
    return (int64_t)(bytes / (forward_bytes(c, MANY) / MANY));
}

Status forward_buffers(Pass *p)
{
    Backend *be = p->m->backend;
    Buffers  b;
    Tensor   shared;
    int64_t  used[2] = {0, 0};
    int64_t  keys = p->branches ? p->branches->key_start[p->batch->n_sequences] : 0;
    list(&b, &p->m->config, p->T, keys, p->cache != NULL);
    TRY(backend_tensor(be, &shared, 1, (int64_t[]){shared_floats(&b)}));
    for (int i = 0; i < b.n; i++) {
        const Buffer *at = &b.at[i];
        Tensor       *t = (Tensor *)((char *)p + at->at);
        if (t == &p->x && t->data)
            continue;
        if (at->use == FOR_PASS) {
            TRY(backend_tensor(be, t, 2, (int64_t[]){at->rows, at->width}));
            continue;
        }
        int64_t *from = &used[at->use == FOR_MLP];
        *t = tensor_2d(DTYPE_F32, (float *)shared.data + *from, at->rows, at->width);
        *from += floats_of(at);
    }
    return OK;
}
