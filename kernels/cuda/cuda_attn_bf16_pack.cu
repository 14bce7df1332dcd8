/* cuda_attn_bf16_pack.cu - keys and values as the tiles of tensor cores read them.
 * k         [S,G*K,d] f32 -> [G*K,S,D] bf16, rows of one head side by side, 0 up to D
 * v         [S,G,dv] likewise; what is not finite becomes 0, and is flagged
 * cost      6 bytes a number, once a call; every tile reads them again. Keys out of every
 *           query's reach are left out: a step of generation with a window does not pay for its
 *           whole cache
 * launch    a thread writes 16 bytes
 * test      tests/cuda/test_cuda_attn_bf16.c */
#include "kernels/cuda/cuda_attn_mma.cuh"

enum { PIECE = 8 };  // numbers of 16 bytes

/* x [n_keys, heads, width] f32 to y [heads, n_keys, padded] bf16. odd [1 + heads * n_odd] or
 * NULL: values that are not finite become 0 there, and their flags 1. */
typedef struct {
    uint16_t    *y;
    const float *x;
    uint32_t    *odd;
    int64_t      n_odd;
    int32_t      heads, width, padded;
} Packing;

/* Does some query look at row `row` of the keys, or could a tile that it looks at hold it? */
static __device__ bool is_wanted(const AttnCall &c, int64_t row)
{
    int32_t from = 0, end = c.n_sequences;  // its sequence is from .. end
    if (row < c.key_start[0])
        return false;
    while (end - from > 1) {
        int32_t middle = (from + end) / 2;
        if (c.key_start[middle] <= row)
            from = middle;
        else
            end = middle;
    }
    int32_t n_keys = c.key_start[from + 1] - c.key_start[from];
    int32_t n_queries = c.start[from + 1] - c.start[from];
    int32_t first = attn_seen(c, n_keys - n_queries).from / MMA_ODD_KEYS * MMA_ODD_KEYS;
    return n_queries > 0 && row - c.key_start[from] >= first;
}

static __device__ void pack_piece(const Packing &p, int64_t row, int64_t n_keys, int32_t head,
                                  int32_t column)
{
    const float *x = p.x + (row * p.heads + head) * p.width;
    Four         four[2] = {load_four(x, column, p.width), load_four(x, column + 4, p.width)};
    uint32_t     u[PIECE];
    bool         odd = false;
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        u[i] = bf16_pair(four[i / 4].v[i % 4], 0);
        if (p.odd && !is_finite_bf16(u[i])) {
            odd = true;
            u[i] = 0;
        }
    }
    uint4 v = make_uint4(u[0] | u[1] << 16, u[2] | u[3] << 16, u[4] | u[5] << 16,
                         u[6] | u[7] << 16);
    *(uint4 *)(p.y + (head * n_keys + row) * p.padded + column) = v;
    if (odd) {
        atomicOr(&p.odd[0], 1u);
        atomicOr(&p.odd[1 + head * p.n_odd + row / MMA_ODD_KEYS], 1u);
    }
}

static __global__ void pack_kernel(Packing p, AttnCall c)
{
    int32_t pieces = p.padded / PIECE;
    int64_t n = c.n_keys * p.heads * pieces;
    for (int64_t i = grid_index(); i < n; i += grid_size()) {
        int64_t row = i / pieces / p.heads;
        int32_t head = (int32_t)(i / pieces % p.heads), column = (int32_t)(i % pieces) * PIECE;
        if (is_wanted(c, row))
            pack_piece(p, row, c.n_keys, head, column);
    }
}

static Status pack(Backend *be, const AttnCall *c, Packing p)
{
    int64_t n = c->n_keys * p.heads * (p.padded / PIECE);
    pack_kernel<<<grid_for(n), BLOCK, 0, cuda_state(be)->stream>>>(p, *c);
    return cuda_launched("attention: packing");
}

Status cuda_attn_pack_keys(Backend *be, const AttnCall *c, MmaPlan *p)
{
    Packing pk = {};
    int64_t heads = (int64_t)c->n_groups * c->n_key_maps;
    TRY(cuda_scratch(be, (void **)&pk.y,
                     (size_t)(heads * c->n_keys * p->width_k) * sizeof *pk.y));
    pk.x = c->k;
    pk.heads = (int32_t)heads;
    pk.width = c->d;
    pk.padded = p->width_k;
    p->k = pk.y;
    return pack(be, c, pk);
}

Status cuda_attn_pack_values(Backend *be, const AttnCall *c, MmaPlan *p)
{
    Packing pk = {};
    p->n_odd = ceil_div(c->n_keys, MMA_ODD_KEYS);
    size_t flags = (size_t)(1 + c->n_groups * p->n_odd) * sizeof *pk.odd;
    TRY(cuda_scratch(be, (void **)&pk.odd, flags));
    TRY(cuda_zero(be, pk.odd, flags));
    TRY(cuda_scratch(be, (void **)&pk.y,
                     (size_t)(c->n_groups * c->n_keys * p->width_v) * sizeof *pk.y));
    pk.x = c->v;
    pk.n_odd = p->n_odd;
    pk.heads = c->n_groups;
    pk.width = c->dv;
    pk.padded = p->width_v;
    p->v = pk.y;
    p->odd = pk.odd;
    return pack(be, c, pk);
}
