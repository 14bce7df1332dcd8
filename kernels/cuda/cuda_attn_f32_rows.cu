/* cuda_attn_f32_rows.cu - chosen rows of logits in f32, written out.
 * x[i,s]    = scale q k, as the tiles have it bit for bit; what row i does not see is -inf
 * shapes    any. Rows that lie n_blocks * n_rows apart in the list, up to eight, are taken
 *           together: those of one row of a block, whose keys they share. Others in there with
 *           other keys come one after another
 * cost      2 d flops a key; 4 d + 4 bytes a key and eighth of a row: bound by shared memory,
 *           four reads of eight in which are broadcasts
 * launch    128 threads for 128 keys of up to eight rows
 * sums      f32, a chain over d
 * NaN       stays in its row or key
 * test      tests/cuda/test_cuda_attention.c */
#include "kernels/cuda/cuda_attn.cuh"

enum {
    TOGETHER = 8,     // rows
    KEYS = 128,       // a thread each
    DIMS = 16,        // at a time
    LD = DIMS + 4     // 8 keys side by side lie in 32 different banks
};

typedef struct {
    const float *q, *k;   // k: of the sequence's first key
    AttnSeen     seen;
    int64_t      at;      // row of x; < 0: none
} Row;

typedef struct {
    Row    row[TOGETHER];
    float4 k[KEYS * LD / 4];
    float4 q[TOGETHER * DIMS / 4];
} Shared;

static __device__ inline Row row_at(const AttnCall &c, const AttnRow *rows, int64_t n,
                                    int64_t i)
{
    AttnRow a = rows[i < n ? i : n - 1];
    Row     r;
    r.q = c.q + attn_row(c, a.row, a.block, a.r) * c.d;
    r.k = attn_k(c, a.sequence, attn_group(c, a.block), attn_map(c, a.r));
    r.seen = attn_seen(c, a.position);
    r.at = i < n ? i : -1;
    return r;
}

/* Four numbers, those of dims from c.d on 0. */
static __device__ inline float4 quad_at(const float *p, int32_t n, bool wide)
{
    if (wide)
        return n > 0 ? *(const float4 *)p : make_float4(0, 0, 0, 0);
    return make_float4(n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0);
}

/* DIMS dims from `dim` on of all rows, and of keys `key` .. of k that lie within `seen`. */
static __device__ inline void fill(Shared *s, const AttnCall &c, const float *k, AttnSeen seen,
                                   int32_t key, int32_t dim, bool wide)
{
    int32_t quad = threadIdx.x % (DIMS / 4), at = dim + 4 * quad;
    for (int32_t i = threadIdx.x / (DIMS / 4); i < KEYS; i += KEYS / (DIMS / 4)) {
        bool in = key + i >= seen.from && key + i < seen.end;
        s->k[i * LD / 4 + quad] = quad_at(k + (key + i) * attn_k_step(c) + at,
                                          in ? c.d - at : 0, wide);
    }
    if (threadIdx.x < TOGETHER * DIMS / 4)
        s->q[threadIdx.x] = quad_at(s->row[threadIdx.x / (DIMS / 4)].q + at, c.d - at, wide);
}

static __device__ inline void add_products(float (&x)[TOGETHER], const Shared *s)
{
#pragma unroll
    for (int g = 0; g < DIMS / 4; g++) {
        float4 right = s->k[threadIdx.x * LD / 4 + g];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            float4 left = s->q[i * DIMS / 4 + g];
            x[i] = __fmaf_rn(left.x, right.x, x[i]);
            x[i] = __fmaf_rn(left.y, right.y, x[i]);
            x[i] = __fmaf_rn(left.z, right.z, x[i]);
            x[i] = __fmaf_rn(left.w, right.w, x[i]);
        }
    }
}

/* Keys that one of the rows with these keys sees, and whether row `first` is the first of
 * them. */
static __device__ inline AttnSeen seen_together(const Shared *s, int32_t first, bool *is_first)
{
    AttnSeen seen = s->row[first].seen;
    *is_first = s->row[first].at >= 0;
    for (int32_t i = 0; i < TOGETHER; i++) {
        if (s->row[i].k != s->row[first].k)
            continue;
        *is_first = *is_first && i >= first;
        seen.from = min(seen.from, s->row[i].seen.from);
        seen.end = max(seen.end, s->row[i].seen.end);
    }
    return seen;
}

/* each: rows of [B,R]. */
static __global__ __launch_bounds__(KEYS) void rows_kernel(AttnCall c, const AttnRow *rows,
                                                           int64_t n, float *x, int64_t ld,
                                                           int64_t each, bool wide)
{
    __shared__ Shared s;
    int32_t key = (int32_t)blockIdx.y * KEYS, own = key + threadIdx.x;
    int64_t first_row = blockIdx.x / each * each * TOGETHER + blockIdx.x % each;
    if (threadIdx.x < TOGETHER)
        s.row[threadIdx.x] = row_at(c, rows, n, first_row + threadIdx.x * each);
    __syncthreads();
    for (int32_t first = 0; first < TOGETHER; first++) {
        float    sum[TOGETHER] = {0};
        bool     is_first;
        AttnSeen seen = seen_together(&s, first, &is_first);
        if (!is_first)
            continue;
        for (int32_t dim = 0; dim < c.d && key < seen.end && key + KEYS > seen.from;
             dim += DIMS) {
            fill(&s, c, s.row[first].k, seen, key, dim, wide);
            __syncthreads();
            add_products(sum, &s);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const Row *r = &s.row[i];
            bool       in = own >= r->seen.from && own < r->seen.end;
            if (r->at >= 0 && r->k == s.row[first].k && own < ld)
                x[r->at * ld + own] = in ? __fmul_rn(sum[i], c.scale) : -CUDART_INF_F;
        }
    }
}

Status cuda_attn_rows_f32(Backend *be, const Attention *a, const AttnCall *c,
                          const AttnRow *rows, int64_t n, float *x, int64_t ld)
{
    int64_t each = (int64_t)c->n_blocks * c->n_rows;
    int64_t blocks = ceil_div(n, each * TOGETHER) * each;
    (void)a;
    if (n == 0)
        return OK;
    if (blocks > INT32_MAX || ceil_div(ld, KEYS) > 65535)
        FAIL(ERR_UNSUPPORTED, "cuda: %lld rows of %lld logits", (long long)n, (long long)ld);
    dim3 grid((unsigned)blocks, (unsigned)ceil_div(ld, KEYS));
    rows_kernel<<<grid, KEYS, 0, cuda_state(be)->stream>>>(
        *c, rows, n, x, ld, each, attn_is_wide(c->q, c->d, 4) && attn_is_wide(c->k, c->d, 4));
    return cuda_launched("rows of logits");
}
