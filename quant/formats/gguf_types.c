/* gguf_types.c - which type each tensor gets: the rules of llama-quantize
 * (formats.md 4.6). */
#include <string.h>
#include <strings.h>

#include "quant/formats/gguf_parts.h"

#define NUMBERS(d) {false, 0, d}
#define BLOCKS(b) {true, b, 0}

static const struct {
    const char *name;
    int         number;  // label of the file
    GgufStore   base;    // of most matrices
} TYPES[N_GGUF_TYPES] = {
    [GGUF_F32] = {"F32", 0, NUMBERS(DTYPE_F32)},
    [GGUF_F16] = {"F16", 1, NUMBERS(DTYPE_F16)},
    [GGUF_BF16] = {"BF16", 32, NUMBERS(DTYPE_BF16)},
    [GGUF_Q4_0] = {"Q4_0", 2, BLOCKS(BLOCK_Q4_0)},
    [GGUF_Q4_1] = {"Q4_1", 3, BLOCKS(BLOCK_Q4_1)},
    [GGUF_Q5_0] = {"Q5_0", 8, BLOCKS(BLOCK_Q5_0)},
    [GGUF_Q5_1] = {"Q5_1", 9, BLOCKS(BLOCK_Q5_1)},
    [GGUF_Q8_0] = {"Q8_0", 7, BLOCKS(BLOCK_Q8_0)},
    [GGUF_Q4_K_S] = {"Q4_K_S", 14, BLOCKS(BLOCK_Q4_K)},
    [GGUF_Q4_K_M] = {"Q4_K_M", 15, BLOCKS(BLOCK_Q4_K)},
    [GGUF_Q5_K_S] = {"Q5_K_S", 16, BLOCKS(BLOCK_Q5_K)},
    [GGUF_Q5_K_M] = {"Q5_K_M", 17, BLOCKS(BLOCK_Q5_K)},
    [GGUF_Q6_K] = {"Q6_K", 18, BLOCKS(BLOCK_Q6_K)},
};

Status gguf_type_parse(GgufType *out, const char *name)
{
    for (int t = 0; t < N_GGUF_TYPES; t++)
        if (strcasecmp(name, TYPES[t].name) == 0) {
            *out = (GgufType)t;
            return OK;
        }
    FAIL(ERR_USAGE, "GGUF type \"%.40s\": expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
         "Q8_0, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M or Q6_K", name);
}

const char *gguf_type_name(GgufType t)
{
    return TYPES[t].name;
}

int gguf_type_number(GgufType t)
{
    return TYPES[t].number;
}

/* --- stores --- */

const char *gguf_store_name(const GgufStore *s)
{
    return s->is_block ? block_info(s->block)->name : dtype_name(s->dtype);
}

int gguf_store_number(const GgufStore *s)
{
    if (s->is_block)
        return block_info(s->block)->id;
    return s->dtype == DTYPE_F32 ? 0 : s->dtype == DTYPE_F16 ? 1 : 30;
}

size_t gguf_store_bytes(const GgufStore *s, int64_t n)
{
    if (!s->is_block)
        return (size_t)n * dtype_size(s->dtype);
    const BlockInfo *info = block_info(s->block);
    return (size_t)(n / info->items) * (size_t)info->bytes;
}

/* --- the choice --- */

/* The first and last eighth of the layers, and every third between. */
static bool more_bits(int64_t layer, int64_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static BlockType value_type(const GgufChoice *c, int64_t layer, BlockType base)
{
    bool mixed = c->type == GGUF_Q4_K_M || c->type == GGUF_Q5_K_M;
    if (mixed && more_bits(layer, c->n_layers))
        return BLOCK_Q6_K;
    if (c->type == GGUF_Q4_K_S && layer < 4)
        base = BLOCK_Q5_K;
    /* Llama of 70B: its values are an eighth of its queries */
    return base == BLOCK_Q4_K && c->n_layers == 80 && c->grouped ? BLOCK_Q5_K : base;
}

static BlockType down_type(const GgufChoice *c, int64_t layer, BlockType base)
{
    bool early = layer < c->n_layers / 8;
    switch (c->type) {
    case GGUF_Q4_K_M:
    case GGUF_Q5_K_M:
        return more_bits(layer, c->n_layers) ? BLOCK_Q6_K : base;
    case GGUF_Q4_K_S:
        return early ? BLOCK_Q5_K : base;
    case GGUF_Q4_0:
        return early && c->importance ? BLOCK_Q4_1 : base;
    case GGUF_Q5_0:
        return early && c->importance ? BLOCK_Q5_1 : base;
    default:
        return base;
    }
}

static bool fits(BlockType t, int64_t K)
{
    return K % block_info(t)->items == 0;
}

/* The next best where rows of K are no whole blocks. */
static GgufStore fall_back(BlockType t, int64_t K)
{
    static const struct {
        BlockType from, to;
    } SMALLER[] = {
        {BLOCK_Q4_K, BLOCK_Q5_0}, {BLOCK_Q5_K, BLOCK_Q5_1}, {BLOCK_Q6_K, BLOCK_Q8_0},
    };
    for (int i = 0; i < 3 && !fits(t, K); i++)
        if (t == SMALLER[i].from)
            t = SMALLER[i].to;
    return fits(t, K) ? (GgufStore)BLOCKS(t) : (GgufStore)NUMBERS(DTYPE_F16);
}

GgufStore gguf_choose(const GgufChoice *c, int role, int64_t layer, int64_t K)
{
    const GgufStore base = TYPES[c->type].base;
    BlockType       t = base.block;
    if (!base.is_block)
        return base;
    if (role == GGUF_ROLE_HEAD || (role == GGUF_ROLE_EMBED && c->tied))
        t = !fits(t, K) || t == BLOCK_Q8_0 ? BLOCK_Q8_0 : BLOCK_Q6_K;
    else if (role == W_V)
        t = value_type(c, layer, t);
    else if (role == W_DOWN)
        t = down_type(c, layer, t);
    return fall_back(t, K);
}
