/* cuda_attn_softmax.cuh - what a warp does with a tile of logits in registers: quantization, mask,
 * softmax with a running maximum, product with V; and the end of its rows. Fragments:
 * cuda_attn_mma.cuh. */
#ifndef DQ_CUDA_ATTN_SOFTMAX_CUH
#define DQ_CUDA_ATTN_SOFTMAX_CUH

#include "kernels/cuda/cuda_attn_mma.cuh"

/* --- a tile --- */

/* Rows g and g + 8 of the warp on their way. */
typedef struct {
    float  top[2];
    double sum[2];  // of this lane's keys
} LaneRows;

__device__ inline LaneRows begin_rows()
{
    LaneRows r = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}};
    return r;
}

/* Rows g, g + 8 of the warp; those that are not there take the last one's. */
__device__ inline int32_t query_of(const WarpPlace &w, int h)
{
    int32_t row = w.queries + threadIdx.x % WARP / 4 + 8 * h;
    return w.tile.row + min(row, w.tile.n_rows - 1);
}

template <int KEYS>
__device__ inline void quantize_tile(float (&x)[KEYS / 8][4], const float (&scale)[2],
                                     float limit)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = attn_quantized(x[n][i], scale[i / 2], limit);
}

template <int KEYS>
__device__ inline void mask_tile(float (&x)[KEYS / 8][4], const AttnCall &c,
                                 const Positions &p, int32_t key)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!is_seen(c, p, key, n, i))
                x[n][i] = -CUDART_INF_F;
}

/* The largest of a row, over the four lanes that have it; NaN is passed over. */
template <int KEYS> __device__ inline float row_top(const float (&x)[KEYS / 8][4], int h)
{
    float top = -CUDART_INF_F;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        top = fmaxf(top, fmaxf(x[n][2 * h], x[n][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync((unsigned)ALL_LANES, top, 1));
    return fmaxf(top, __shfl_xor_sync((unsigned)ALL_LANES, top, 2));
}

/* Logits to weights exp(x - top); keep: what older sums must be multiplied by. */
template <int KEYS>
__device__ inline void weigh_tile(float (&x)[KEYS / 8][4], LaneRows *r, float (&keep)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float before = r->top[h], sum = 0;
        r->top[h] = fmaxf(before, row_top<KEYS>(x, h));
        keep[h] = attn_keep(before, r->top[h]);
        float top = attn_safe_top(r->top[h]);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                x[n][i] = expf(x[n][i] - top);
                sum += x[n][i];
            }
        r->sum[h] = r->sum[h] * (double)keep[h] + (double)sum;
    }
}

/* Weights as the left side of the product with V: 16 queries by 16 keys each. */
template <int KEYS>
__device__ inline void round_weights(uint32_t (&p)[KEYS / 16][4], const float (&x)[KEYS / 8][4])
{
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = bf16_pair(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}

template <int DV>
__device__ inline void keep_sums(float (&o)[DV / 8][4], const float (&keep)[2])
{
    if (__all_sync((unsigned)ALL_LANES, keep[0] == 1 && keep[1] == 1))
        return;
#pragma unroll
    for (int n = 0; n < DV / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[n][i] *= keep[i / 2];
}

/* Where this lane's row of an ldmatrix of 16 keys by 16 values begins. */
template <int DV> __device__ inline uint32_t value_lane()
{
    int32_t lane = threadIdx.x % WARP;
    return (uint32_t)(lane % 16 * (DV + ROW_PAD) + lane / 16 * 8) * 2;
}

template <int DV, int KEYS>
__device__ inline void add_values(float (&o)[DV / 8][4], const uint32_t (&p)[KEYS / 16][4],
                                  uint32_t values)
{
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int n = 0; n < DV / 16; n++) {
            uint32_t b[4];
            ptx_ldmatrix_x4_trans(b, values + (k * 16 * (DV + ROW_PAD) + n * 16) * 2);
            ptx_mma_bf16(o[2 * n], p[k], b[0], b[1]);
            ptx_mma_bf16(o[2 * n + 1], p[k], b[2], b[3]);
        }
}

/* Could the tile hold values that are not finite? */
__device__ inline bool has_odd(const AttnCall &c, const MmaPlan &p, const WarpPlace &w,
                               int32_t key, int32_t n)
{
    int64_t first = c.key_start[w.tile.sequence] + key;
    int64_t last = min(first + n, c.n_keys) - 1;
    const uint32_t *odd = p.odd + 1 + w.group * p.n_odd;
    return odd[first / MMA_ODD_KEYS] | odd[last / MMA_ODD_KEYS];
}

/* The weights of key j of the tile, of the lane's two rows: the product with a matrix whose row
 * j is 1 and all else 0. (Picking a register by number would put all of them in memory.) A row
 * with a NaN is NaN for all keys, as its output is. */
template <int KEYS>
__device__ inline void pick_weights(float (&weight)[2], const uint32_t (&p)[KEYS / 16][4],
                                    int32_t j)
{
    uint32_t one = j % 8 / 2 == threadIdx.x % 4 ? 0x3f80u << 16 * (j % 2) : 0;
    float    c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        ptx_mma_bf16(c, p[k], j / 8 == 2 * k ? one : 0, j / 8 == 2 * k + 1 ? one : 0);
    weight[0] = c[0];
    weight[1] = c[2];
}

/* What add_values left out: values that are not finite, for the rows that see them. */
template <int DV, int KEYS>
__device__ inline void add_odd_values(float (&o)[DV / 8][4], const uint32_t (&p)[KEYS / 16][4],
                                      const AttnCall &c, const WarpPlace &w,
                                      const Positions &at, int32_t key)
{
    int32_t end = min(KEYS, w.n_keys - key);
    const float *values = attn_v(c, w.tile.sequence, w.group) + key * attn_v_step(c);
#pragma unroll 1
    for (int32_t j = 0; j < end; j++, values += attn_v_step(c)) {
        float weight[2];
        bool  seen[2];
        pick_weights<KEYS>(weight, p, j);
#pragma unroll
        for (int h = 0; h < 2; h++)
            seen[h] = key + j <= at.own + 8 * h && key + j > at.own + 8 * h - c.reach;
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int32_t  column = 8 * n + threadIdx.x % 4 * 2 + i;
                uint32_t u = column < c.dv ? bf16_pair(values[column], 0) : 0;
                float    v = __uint_as_float(u << 16);
                if (!is_finite_bf16(u) && seen[0])
                    o[n][i] += weight[0] * v;
                if (!is_finite_bf16(u) && seen[1])
                    o[n][2 + i] += weight[1] * v;
            }
    }
}

/* --- the end of a row --- */

/* Four lanes' sum, in one order. */
template <class T> __device__ inline T quad_sum(T x)
{
    x += __shfl_xor_sync((unsigned)ALL_LANES, x, 1);
    return x + __shfl_xor_sync((unsigned)ALL_LANES, x, 2);
}

/* The noise's sums, for the warps of its signals. */
template <int DV> struct Noise {
    double sum[GROUP];
    float  o[GROUP][DV + ROW_PAD];
};

__device__ inline void close_softmax(const AttnCall &c, const WarpPlace &w, LaneRows *r)
{
    int32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        r->sum[h] = quad_sum(r->sum[h]);
        int32_t row = w.queries + lane / 4 + 8 * h;
        bool    tells = w.works && (!w.map || w.first == 0);  // pieces share a noise
        if (c.softmax && tells && lane % 4 == 0 && row < w.tile.n_rows) {
            AttnSoftmax s = {r->top[h], r->sum[h]};
            c.softmax[attn_row(c, w.tile.row + row, w.block, w.r)] = s;
        }
    }
}

template <int DV>
__device__ inline void give_noise(Noise<DV> *noise, const float (&o)[DV / 8][4],
                                  const LaneRows &r)
{
    int32_t g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (q == 0)
            noise->sum[g + 8 * h] = r.sum[h];
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
            *(float2 *)&noise->o[g + 8 * h][8 * n + 2 * q] =
                make_float2(o[n][2 * h], o[n][2 * h + 1]);
    }
}

/* o of the two rows to A1 v - lambda A2 v; squares: this lane's sum of theirs. */
template <int DV>
__device__ inline void subtract_noise(const AttnCall &c, const WarpPlace &w,
                                      float (&o)[DV / 8][4], const LaneRows &r,
                                      const Noise<DV> *noise, float (&squares)[2])
{
    int32_t g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float w0 = (float)(1 / r.sum[h]), w1 = 0;
        squares[h] = 0;
        if (c.n_maps == 2)
            w1 = (float)(attn_lambda(c, query_of(w, h), attn_head(c, w.block, w.r)) /
                         noise->sum[g + 8 * h]);
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *v = &o[n][2 * h + i];
                *v = c.n_maps == 2
                         ? attn_difference(*v, w0, noise->o[g + 8 * h][8 * n + 2 * q + i], w1)
                         : *v * w0;
                squares[h] += *v * *v;
            }
    }
}

template <int DV>
__device__ inline void put_rows(const AttnCall &c, const WarpPlace &w,
                                const float (&o)[DV / 8][4], const float (&squares)[2])
{
    int32_t g = threadIdx.x % WARP / 4, q = threadIdx.x % 4;
    bool    pairs = c.dv % 2 == 0 && (uintptr_t)c.out % sizeof(float2) == 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float  rms = attn_rms(c, quad_sum(squares[h]));
        float *out = c.out + ((int64_t)query_of(w, h) * c.n_heads +
                              attn_head(c, w.block, w.r)) * c.dv;
        if (w.queries + g + 8 * h >= w.tile.n_rows)
            continue;
#pragma unroll
        for (int n = 0; n < DV / 8; n++) {
            int32_t column = 8 * n + 2 * q;
            float   v[2] = {o[n][2 * h], o[n][2 * h + 1]};
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (c.norm_eps >= 0 && column + i < c.dv)
                    v[i] = attn_normed(c, v[i], rms, column + i);
            if (pairs && column < c.dv)
                *(float2 *)(out + column) = make_float2(v[0], v[1]);
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (!pairs && column + i < c.dv)
                    out[column + i] = v[i];
        }
    }
}

#endif
