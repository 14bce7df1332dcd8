/* cache.c - a row of keys and one of values for each position and layer. */
#include "analysis/model/cache.h"

struct Cache {
    int64_t capacity, length;
    int64_t width;          // floats a row: groups * maps * head_dim
    Tensor *k, *v;          // [n_layers] of [capacity, width], backend memory
};

Status cache_init(Cache **out, Model *m, Arena *a, int64_t capacity)
{
    const ModelConfig *config = &m->config;
    Cache             *c;
    ARENA_NEW(c, a, 1);
    ARENA_NEW(c->k, a, config->n_layers);
    ARENA_NEW(c->v, a, config->n_layers);
    c->capacity = capacity;
    c->width = config->n_groups * config->n_maps * config->head_dim;
    for (int64_t l = 0; l < config->n_layers; l++) {
        int64_t shape[2] = {capacity, c->width};
        TRY(backend_tensor(m->backend, &c->k[l], 2, shape));
        TRY(backend_tensor(m->backend, &c->v[l], 2, shape));
    }
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

static Tensor rows_of(const Cache *c, const Tensor *t, int64_t first, int64_t n)
{
    return tensor_2d(DTYPE_F32, (float *)t->data + first * c->width, n, c->width);
}

void cache_views(const Cache *c, int64_t layer, int64_t n, Tensor *k_new, Tensor *v_new,
                 Tensor *k_all, Tensor *v_all)
{
    *k_new = rows_of(c, &c->k[layer], c->length, n);
    *v_new = rows_of(c, &c->v[layer], c->length, n);
    *k_all = rows_of(c, &c->k[layer], 0, c->length + n);
    *v_all = rows_of(c, &c->v[layer], 0, c->length + n);
}

void cache_advance(Cache *c, int64_t n)
{
    c->length += n;
}
