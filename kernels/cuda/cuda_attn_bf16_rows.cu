/* cuda_attn_bf16_rows.cu - chosen rows of logits in memory, the bits that tiles have: each is the
 * same chain of mma over d from 0, then one product with the scale.
 * shapes    any d; rows of any sequences and heads
 * cost      a warp works on 16 rows against 64 keys, on those at once that look at the same
 *           keys. Rows that lie n_blocks * n_rows apart in the list are taken together: those of
 *           a list of all rows of some queries. K is read as it is, 32 bytes at a time
 * launch    blocks of 4 warps: 16 rows, 256 keys
 * sums      cuda_attn_mma.cuh
 * NaN       stays
 * test      tests/cuda/test_cuda_attn_bf16.c */
#include "kernels/cuda/cuda_attn_mma.cuh"

enum { WARP_KEYS = 64, PIECE_KEYS = 256, BLOCK_ROWS = PIECE_KEYS / WARP_KEYS * WARP };

typedef struct {
    const AttnRow *rows;
    float         *x;       // [n,ld]
    int64_t        n, ld;
    int32_t        stride;  // of the rows that are taken together
    int32_t        pieces;  // of PIECE_KEYS keys
    bool           pairs;   // pairs of numbers of q and k are aligned
} RowsPlan;

/* The row of this lane: lanes 16 apart have the same. */
typedef struct {
    AttnRow row;
    bool    there;
    int64_t at;     // in the list
    int32_t keys;   // which of the matrices [n_keys,d]: the same number, the same keys
} LaneRow;

static __device__ LaneRow lane_row(const AttnCall &c, const RowsPlan &p)
{
    LaneRow l = {};
    int64_t group = blockIdx.x / (unsigned)p.pieces;
    l.at = (group / p.stride * GROUP + threadIdx.x % GROUP) * p.stride + group % p.stride;
    l.there = l.at < p.n;
    if (l.there) {
        l.row = p.rows[l.at];
        int32_t map = c.n_key_maps == 2 ? attn_map(c, l.row.r) : 0;
        l.keys = (l.row.sequence * c.n_groups + attn_group(c, l.row.block)) * c.n_key_maps + map;
    }
    return l;
}

/* Two dims of a row from x on, rounded; n: how many there are from x on. */
static __device__ uint32_t load_pair(const float *x, int32_t n, bool pairs)
{
    if (pairs && n > 1) {
        float2 v = *(const float2 *)x;
        return bf16_pair(v.x, v.y);
    }
    return row_pair(x, 0, n);
}

/* x = the sums over d of 16 rows and WARP_KEYS keys. q: of rows g and g + 8, NULL: none; k: the
 * lane's key of the first 8, `left` keys are there from it on. */
static __device__ void row_products(float (&x)[WARP_KEYS / 8][4], const float *const (&q)[2],
                                    const float *k, int32_t left, const AttnCall &c, bool pairs)
{
    int32_t column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < WARP_KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = 0;
#pragma unroll 1
    for (int32_t dim = column; dim < c.d + column; dim += 16) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t at = dim + i / 2 * 8;
            a[i] = q[i % 2] && at < c.d ? load_pair(q[i % 2] + at, c.d - at, pairs) : 0;
        }
#pragma unroll
        for (int n = 0; n < WARP_KEYS / 8; n++) {
            const float *key = k + 8 * n * attn_k_step(c);
            uint32_t     b[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int32_t at = dim + i * 8;
                b[i] = 8 * n < left && at < c.d ? load_pair(key + at, c.d - at, pairs) : 0;
            }
            ptx_mma_bf16(x[n], a, b[0], b[1]);
        }
    }
}

/* Rows `members` of the warp, which look at the same keys, of which `leader` is one. */
static __device__ void work_out(const AttnCall &c, const RowsPlan &p, const LaneRow &l,
                                int leader, unsigned members, int32_t key)
{
    unsigned all = (unsigned)ALL_LANES;
    int32_t  g = threadIdx.x % WARP / 4, sequence = __shfl_sync(all, l.row.sequence, leader);
    int32_t  keys = __shfl_sync(all, l.keys, leader) % (c.n_groups * c.n_key_maps);
    int32_t  n_keys = c.key_start[sequence + 1] - c.key_start[sequence];
    AttnSeen own = attn_seen(c, l.row.position);
    bool     in = members >> threadIdx.x % GROUP & 1;
    int32_t  end = warp_max(in ? own.end : 0), from = -warp_max(in ? -own.from : -n_keys);
    bool     any = key < end && key + WARP_KEYS > from;
    float    x[WARP_KEYS / 8][4];
    if (any) {
        const float *q[2], *mine = c.q + attn_row(c, l.row.row, l.row.block, l.row.r) * c.d;
        const float *k = c.k + ((int64_t)c.key_start[sequence] + key + g) * attn_k_step(c) +
                         (int64_t)keys * c.d;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            q[h] = (const float *)__shfl_sync(all, (unsigned long long)mine, g + 8 * h);
            q[h] = members >> (g + 8 * h) & 1 ? q[h] : NULL;
        }
        row_products(x, q, k, n_keys - key - g, c, p.pairs);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t at = __shfl_sync(all, l.at, g + 8 * h);
        int32_t row_from = __shfl_sync(all, own.from, g + 8 * h);
        int32_t row_end = __shfl_sync(all, own.end, g + 8 * h);
        if (!(members >> (g + 8 * h) & 1))
            continue;
#pragma unroll
        for (int n = 0; n < WARP_KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int32_t j = key + 8 * n + threadIdx.x % 4 * 2 + i;
                bool    seen = any && j >= row_from && j < row_end;
                if (j < p.ld)
                    p.x[at * p.ld + j] = seen ? __fmul_rn(x[n][2 * h + i], c.scale)
                                              : -CUDART_INF_F;
            }
    }
}

static __global__ void __launch_bounds__(BLOCK_ROWS, 4) rows_kernel(AttnCall c, RowsPlan p)
{
    LaneRow  l = lane_row(c, p);
    int32_t  key = (int32_t)(blockIdx.x % (unsigned)p.pieces) * PIECE_KEYS +
                   threadIdx.x / WARP * WARP_KEYS;
    unsigned left = __ballot_sync((unsigned)ALL_LANES, l.there) & ((1u << GROUP) - 1);
    while (left) {
        int      leader = __ffs((int)left) - 1;
        int32_t  keys = __shfl_sync((unsigned)ALL_LANES, l.keys, leader);
        unsigned members = __ballot_sync((unsigned)ALL_LANES, l.there && l.keys == keys) & left;
        work_out(c, p, l, leader, members, key);
        left &= ~members;
    }
}

Status cuda_attn_rows_bf16(Backend *be, const Attention *a, const AttnCall *c,
                           const AttnRow *rows, int64_t n, float *x, int64_t ld)
{
    (void)a;
    RowsPlan p = {};
    if (n == 0 || ld == 0)
        return OK;
    p.rows = rows;
    p.x = x;
    p.n = n;
    p.ld = ld;
    p.stride = c->n_blocks * c->n_rows;
    p.pieces = (int32_t)ceil_div(ld, PIECE_KEYS);
    p.pairs = c->d % 2 == 0 && (uintptr_t)c->q % sizeof(float2) == 0 &&
              (uintptr_t)c->k % sizeof(float2) == 0;
    int64_t groups = ceil_div(n, (int64_t)p.stride * GROUP) * p.stride;
    rows_kernel<<<(unsigned)(groups * p.pieces), BLOCK_ROWS, 0, cuda_state(be)->stream>>>(*c, p);
    return cuda_launched("attention: rows");
}
