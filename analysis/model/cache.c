/* cache.c - of each layer what later positions need: a row of keys and one of values for each
 * position, or the state of a scan. */
#include "analysis/model/cache.h"

struct Cache {
    int64_t capacity, length;
    int64_t key_width, value_width;  // floats a row
    Tensor *k, *v;                   // [n_layers] of [capacity, width], backend memory
    Tensor *window, *state;          // [n_layers] of [J-1,E] and [2N,E]
};

/* A state begins as zeros. */
static Status make_zeros(Model *m, Tensor *t, int64_t rows, int64_t cols)
{
    Arena  scratch = {0};
    float *zeros = arena_alloc(&scratch, rows * cols, sizeof *zeros);
    Status s = zeros ? backend_tensor(m->backend, t, 2, (int64_t[]){rows, cols})
                     : STATUS(ERR_MEMORY, "out of memory: a state of %lld x %lld",
                              (long long)rows, (long long)cols);
    if (s == OK)
        s = backend_upload(m->backend, t, zeros);
    arena_close(&scratch);
    return s;
}

static Status make_layer(Cache *c, Model *m, int64_t l)
{
    const ModelConfig *config = &m->config;
    switch (config->layers[l].mixer) {
    case MIX_ATTENTION:
        TRY(backend_tensor(m->backend, &c->k[l], 2, (int64_t[]){c->capacity, c->key_width}));
        return backend_tensor(m->backend, &c->v[l], 2,
                              (int64_t[]){c->capacity, c->value_width});
    case MIX_MAMBA:
        TRY(make_zeros(m, &c->window[l], config->n_taps - 1, config->inner));
        return make_zeros(m, &c->state[l], 2 * config->n_states, config->inner);
    default:
        return OK;
    }
}

Status cache_init(Cache **out, Model *m, Arena *a, int64_t capacity)
{
    const ModelConfig *config = &m->config;
    Cache             *c;
    ARENA_NEW(c, a, 1);
    ARENA_NEW(c->k, a, config->n_layers);
    ARENA_NEW(c->v, a, config->n_layers);
    ARENA_NEW(c->window, a, config->n_layers);
    ARENA_NEW(c->state, a, config->n_layers);
    c->capacity = capacity;
    c->key_width = model_key_width(config);
    c->value_width = model_value_width(config);
    for (int64_t l = 0; l < config->n_layers; l++)
        TRY(make_layer(c, m, l));
    *out = c;
    return OK;
}

int64_t cache_length(const Cache *c)
{
    return c->length;
}

Status cache_reserve(const Cache *c, int64_t n)
{
    if (n > c->capacity - c->length)
        FAIL(ERR_RANGE, "%lld positions after %lld do not fit a cache of %lld", (long long)n,
             (long long)c->length, (long long)c->capacity);
    return OK;
}

static Tensor rows_of(const Tensor *t, int64_t first, int64_t n)
{
    return tensor_2d(DTYPE_F32, (float *)t->data + first * t->shape[1], n, t->shape[1]);
}

void cache_views(const Cache *c, int64_t layer, int64_t n, Tensor *k_new, Tensor *v_new,
                 Tensor *k_all, Tensor *v_all)
{
    *k_new = rows_of(&c->k[layer], c->length, n);
    *v_new = rows_of(&c->v[layer], c->length, n);
    *k_all = rows_of(&c->k[layer], 0, c->length + n);
    *v_all = rows_of(&c->v[layer], 0, c->length + n);
}

void cache_states(Cache *c, int64_t layer, Tensor **window, Tensor **state)
{
    *window = &c->window[layer];
    *state = &c->state[layer];
}

void cache_advance(Cache *c, int64_t n)
{
    c->length += n;
}
