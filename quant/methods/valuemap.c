/* valuemap.c - v heads of each output head, and whether they pair up cleanly. With an
 * odd number of key-value heads they do not: two wide heads then share a v head, or
 * one holds the same v head twice. */
#include "quant/methods/valuemap.h"

#include <string.h>

static bool is_known(const ValueMap *map, const int64_t *wide, int64_t n, const int64_t *heads)
{
    for (int64_t i = 0; i < n; i++)
        if (!memcmp(wide + i * map->n_parts, heads, (size_t)map->n_parts * sizeof *heads))
            return true;
    return false;
}

Status valuemap_pair(ValueMap *map, Arena *a)
{
    int64_t  n = 0, M = map->n_parts;
    int64_t *wide, *times;
    ARENA_NEW(wide, a, map->n_heads * M);
    ARENA_NEW(times, a, map->n_values);
    for (int64_t h = 0; h < map->n_heads; h++)
        if (!is_known(map, wide, n, map->head + h * M))
            memcpy(wide + n++ * M, map->head + h * M, (size_t)M * sizeof *wide);
    for (int64_t i = 0; i < n * M; i++) {
        CHECK(wide[i] >= 0 && wide[i] < map->n_values);
        times[wide[i]]++;
    }
    map->wide = wide;
    map->n_wide = n;
    map->paired = true;
    for (int64_t v = 0; v < map->n_values; v++)
        map->paired = map->paired && times[v] == 1;
    return OK;
}

Status valuemap_of(ValueMap *out, Arena *a, const Layers *l)
{
    const ModelConfig *c = &l->info.config;
    int64_t            P = c->value_dim / c->head_dim;
    LayerWeights       w;
    int64_t           *head;
    layers_describe(&w, l, 0);
    CHECK(w.at[W_V].name && w.at[W_O].k == c->n_heads * c->value_dim);
    ARENA_NEW(head, a, c->n_heads * P);
    for (int64_t h = 0; h < c->n_heads; h++)
        for (int64_t p = 0; p < P; p++)
            head[h * P + p] = layers_value_head(l, h, p);
    *out = (ValueMap){.n_heads = c->n_heads, .n_parts = P, .head_dim = c->head_dim,
                      .n_values = w.at[W_V].n / c->head_dim, .head = head};
    return valuemap_pair(out, a);
}
