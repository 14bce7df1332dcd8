/* rotate.c - the list of blocks that a layer's weights are cut into: rows of what reads
 * the hidden state, columns of what adds to it, wide heads of v and o. */
#include "quant/methods/rotate.h"

#include "kernels/size.h"

typedef struct {
    RotationBlock  *at;
    int64_t         n;
    const Rotation *r1, *r2;
} List;

uint64_t rotate_seed(uint64_t seed, int64_t layer)
{
    /* Far from R1's: its generator starts at the seed and adds an odd number. */
    return (seed ^ 0xd1b54a32d192ed03u) + ((uint64_t)layer << 32);
}

/* --- which models --- */

/* Each matrix of its own, its rows what the products take. */
static bool is_plain(const LayerWeights *w)
{
    for (int kind = 0; kind < N_WEIGHTS; kind++)
        if (w->at[kind].name && (kind >= N_LINEARS || w->at[kind].transposed))
            return false;
    return true;
}

const char *rotate_refusal(const Layers *l)
{
    const ModelConfig *c = &l->info.config;
    if (c->centred)
        return "its LayerNorms subtract the mean of the hidden states, which a rotation moves";
    if (c->residual != RESIDUAL_PRE)
        return "its halves do not follow one another, each after its norm";
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        LayerWeights w;
        layers_describe(&w, l, layer);
        if (c->layers[layer].mixer != MIX_ATTENTION)
            return "it has layers without attention of their own";
        if (!is_plain(&w))
            return "some of its matrices are stored as one, or transposed";
    }
    return NULL;
}

/* --- the list --- */

static void add_input(List *l, const LayerMatrix *m, const float *norm)
{
    if (!m->w)
        return;
    CHECK(m->k == l->r1->n);
    l->n += rotation_cut_rows(l->at + l->n, l->r1, m->w, m->n, norm);
}

static void add_bias(List *l, const LayerMatrix *m)
{
    if (m->bias)
        l->n += rotation_cut_cols(l->at + l->n, l->r1, m->bias, 1);
}

static void add_output(List *l, const LayerMatrix *m)
{
    CHECK(m->n == l->r1->n);
    l->n += rotation_cut_cols(l->at + l->n, l->r1, m->w, m->k);
    add_bias(l, m);
}

/* Rows of v that wide head i is made of, head after head: into row [d * n_parts]. */
static void wide_rows(int64_t *row, const ValueMap *map, int64_t i)
{
    for (int64_t m = 0; m < map->n_parts; m++)
        for (int64_t k = 0; k < map->head_dim; k++)
            *row++ = map->wide[i * map->n_parts + m] * map->head_dim + k;
}

/* v: R2^T (w diag(norm)) R1 for the rows of each wide head, R2^T bias. */
static void add_values(List *l, const LayerMatrix *v, const float *norm, const ValueMap *map,
                       int64_t *rows)
{
    int64_t wide = map->head_dim * map->n_parts;
    CHECK(v->k == l->r1->n && wide == l->r2->n);
    for (int64_t i = 0; i < map->n_wide; i++) {
        int64_t *row = rows + i * wide;
        wide_rows(row, map, i);
        RotationBlock b = {.left = l->r2, .right = l->r1, .scale = norm, .row = row,
                           .w = v->w, .ld = v->k, .rows = wide, .cols = v->k};
        l->at[l->n++] = b;
        if (!v->bias)
            continue;
        l->at[l->n++] = (RotationBlock){.left = l->r2, .row = row, .w = v->bias, .ld = 1,
                                        .rows = wide, .cols = 1};
    }
}

/* o: R1^T w diag(weights of the heads' norm) R2 for the columns of each output head, R1^T
 * bias. */
static void add_heads(List *l, const LayerMatrix *o, const float *head_norm,
                      const ValueMap *map)
{
    int64_t wide = map->head_dim * map->n_parts;
    CHECK(o->n == l->r1->n && o->k == map->n_heads * wide);
    for (int64_t h = 0; h < map->n_heads; h++)
        l->at[l->n++] = (RotationBlock){.left = l->r1, .right = l->r2, .scale = head_norm,
                                        .w = o->w + h * wide, .ld = o->k, .rows = o->n,
                                        .cols = wide};
    add_bias(l, o);
}

/* Blocks at most: each matrix by rows or columns or heads, each bias by heads. */
static int64_t most_blocks(const LayerWeights *w, const ValueMap *map)
{
    int64_t n = 2 * map->n_heads + map->n_wide + 2;
    for (int i = 0; i < N_WEIGHTS; i++)
        n += rotation_n_blocks(w->at[i].n) + rotation_n_blocks(w->at[i].k);
    return n;
}

static void list_layer(List *l, const LayerWeights *w, const ValueMap *map, int64_t *rows)
{
    add_input(l, &w->at[W_Q], w->norm[0]);
    add_input(l, &w->at[W_K], w->norm[0]);
    add_input(l, &w->at[W_LAMBDA], w->norm[0]);
    if (l->r2) {
        add_values(l, &w->at[W_V], w->norm[0], map, rows);
        add_heads(l, &w->at[W_O], w->head_norm, map);
    } else {
        add_input(l, &w->at[W_V], w->norm[0]);
        add_output(l, &w->at[W_O]);
    }
    add_input(l, &w->at[W_GATE], w->norm[1]);
    add_input(l, &w->at[W_UP], w->norm[1]);
    add_output(l, &w->at[W_DOWN]);
}

Status rotate_layer(LayerWeights *w, const ValueMap *map, const Rotation *r1,
                    const Rotation *r2, Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    int64_t  *rows;
    List      l = {.r1 = r1, .r2 = r2};
    CHECK(!r2 || map->paired);
    ARENA_NEW(l.at, scratch, most_blocks(w, map));
    ARENA_NEW(rows, scratch, w->at[W_V].n);
    list_layer(&l, w, map, rows);
    TRY(rotation_blocks(l.at, l.n, scratch));
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < r1->n; k++)
            w->norm[i][k] = 1;
    for (int64_t k = 0; r2 && w->head_norm && k < r2->n; k++)
        w->head_norm[k] = 1;
    arena_rewind(scratch, mark);
    return OK;
}

Status rotate_embed(float *rows, int64_t n, const Rotation *r1, Arena *scratch)
{
    return rotation_rows(r1, rows, n, NULL, scratch);
}

Status rotate_head(float *rows, int64_t n, const float *norm, const Rotation *r1,
                   Arena *scratch)
{
    return rotation_rows(r1, rows, n, norm, scratch);
}
