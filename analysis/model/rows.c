/* rows.c - heads first, then the dims within a head, then what is beside them in a matrix. */
#include "analysis/model/rows.h"

int rows_kinds(WeightKind slot, WeightKind kinds[3])
{
    static const struct {
        int        n;
        WeightKind at[3];
    } HOLDS[N_WEIGHTS - N_LINEARS] = {
        [W_QKV - N_LINEARS] = {3, {W_Q, W_K, W_V}},
        [W_GATE_UP - N_LINEARS] = {2, {W_GATE, W_UP}},
        [W_SSM_IN - N_LINEARS] = {2, {W_SSM_U, W_SSM_Z}},
        [W_SSM_X - N_LINEARS] = {2, {W_SSM_RANK, W_SSM_BC}},
    };
    if (slot < N_LINEARS) {
        kinds[0] = slot;
        return 1;
    }
    for (int i = 0; i < HOLDS[slot - N_LINEARS].n; i++)
        kinds[i] = HOLDS[slot - N_LINEARS].at[i];
    return HOLDS[slot - N_LINEARS].n;
}

int64_t rows_count(const Config *c, WeightKind kind)
{
    const ModelConfig *m = &c->model;
    switch (kind) {
    case W_Q:
        return model_query_width(m);
    case W_K:
        return model_key_width(m);
    case W_V:
        return model_value_width(m);
    case W_GATE:
    case W_UP:
        return m->inter;
    case W_SSM_U:
    case W_SSM_Z:
    case W_SSM_DT:
        return m->inner;
    case W_SSM_RANK:
        return m->rank;
    case W_SSM_BC:
        return 2 * m->n_states;
    case W_LAMBDA:
        return m->n_heads;
    default:
        return m->hidden;
    }
}

int64_t rows_head(const Config *c, WeightKind kind, int64_t j)
{
    int64_t N = c->keys.num_attention_heads, K = c->keys.num_key_value_heads;
    if (c->arch->pairing != PAIR_HALVES)
        return j;
    /* Pairing by halves: map (of v: half) j % 2 of differential head or group
     * j / 2 lies half of all heads further on. */
    if (kind == W_Q)
        return j / 2 + j % 2 * (N / 2);
    if (K % 2 == 0)
        return j / 2 + j % 2 * (K / 2);
    /* One group a head: the key-value head that its query head uses. */
    return (j / 2 + j % 2 * (N / 2)) / (N / K);
}

/* Dims 2i and 2i + 1 that turn together become i and i + d/2. */
static int64_t dim_source(const Config *c, WeightKind kind, int64_t i)
{
    int64_t half = c->keys.head_dim / 2;
    if (!c->arch->turns_next || kind == W_V)
        return i;
    return i < half ? 2 * i : 2 * (i - half) + 1;
}

static int64_t row_of_heads(const Config *c, WeightKind kind, WeightKind slot, int64_t i)
{
    int64_t d = c->keys.head_dim, head = rows_head(c, kind, i / d);
    int64_t row = dim_source(c, kind, i % d), part = kind - W_Q;
    int64_t N = c->keys.num_attention_heads, K = c->keys.num_key_value_heads;
    int64_t before[] = {0, N, N + K};   // heads, where q, k and v are stacked
    if (slot == kind)
        return head * d + row;
    if (c->arch->qkv == QKV_BY_HEAD)
        return (head * 3 + part) * d + row;
    return (before[part] + head) * d + row;
}

int64_t rows_source(const Config *c, WeightKind kind, WeightKind slot, int64_t i)
{
    if (kind <= W_V)
        return row_of_heads(c, kind, slot, i);
    if (slot == W_GATE_UP && (kind == W_UP) != c->arch->up_first)
        return c->model.inter + i;
    if (slot == W_SSM_IN && kind == W_SSM_Z)
        return c->model.inner + i;
    if (slot == W_SSM_X && kind == W_SSM_BC)
        return c->model.rank + i;
    return i;
}

bool rows_in_order(const Config *c, WeightKind kind)
{
    const Arch *a = c->arch;
    return kind > W_V || (a->pairing != PAIR_HALVES && a->qkv != QKV_BY_HEAD &&
                          (!a->turns_next || kind == W_V));
}
