/* cuda_attn_eight.cuh - a warp's arithmetic on its eight lines: logits, weights, outputs, and
 * what becomes of them at the end of a tile. x[i][j] is line i's logit or weight of key lane +
 * 32 j of the tile; o[i][..] are this lane's columns of its output. */
#ifndef DQ_CUDA_ATTN_EIGHT_CUH
#define DQ_CUDA_ATTN_EIGHT_CUH

#include "kernels/cuda/cuda_attn_lines.cuh"

/* --- logits --- */

/* x += q k over n dims of a chunk; k: this lane's first key. */
__device__ inline void add_products(float (&x)[LINES][SETS], const float *q, const float *k,
                                    int32_t n)
{
#pragma unroll
    for (int g = 0; g < DIMS; g += 4) {
        if (g >= n)
            break;
        float4 right[SETS];
#pragma unroll
        for (int j = 0; j < SETS; j++)
            right[j] = *(const float4 *)(k + j * WARP * LD_K + g);
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            float4 left = *(const float4 *)(q + i * DIMS + g);
#pragma unroll
            for (int j = 0; j < SETS; j++) {
                x[i][j] = __fmaf_rn(left.x, right[j].x, x[i][j]);
                x[i][j] = __fmaf_rn(left.y, right[j].y, x[i][j]);
                x[i][j] = __fmaf_rn(left.z, right[j].z, x[i][j]);
                x[i][j] = __fmaf_rn(left.w, right[j].w, x[i][j]);
            }
        }
    }
}

/* Which of its keys from `key` on the lane's line sees, a bit a set. */
__device__ inline uint32_t seen_sets(int32_t end, int32_t reach, int32_t key)
{
    uint32_t seen = 0;
#pragma unroll
    for (int j = 0; j < SETS; j++) {
        int32_t s = key + j * WARP;
        seen |= (s < end && s >= end - reach ? 1u : 0u) << j;
    }
    return seen;
}

/* Logits quantized, through shared memory: one division in the code, not 32. */
__device__ inline void quantize(float (&x)[LINES][SETS], const AttnCall &c, const Place &w)
{
    float *own = w.weights + w.lane;
#pragma unroll
    for (int j = 0; j < SETS; j++) {
#pragma unroll
        for (int i = 0; i < LINES; i++)
            own[i * WARP] = x[i][j];
#pragma unroll 1
        for (int i = 0; i < LINES; i++)
            own[i * WARP] = attn_quantized(own[i * WARP], c.row_scale[w.own[i].row],
                                           c.code_limit);
#pragma unroll
        for (int i = 0; i < LINES; i++)
            x[i][j] = own[i * WARP];
    }
}

/* --- softmax --- */

/* What of_line gives. */
typedef struct {
    float  top;
    double sum;
} Softmax;

/* Logits to weights; o is begun again from a multiple where a line's top rises. */
template <int N>
__device__ inline void weigh(float (&x)[LINES][SETS], float (&o)[LINES][N], Softmax *s)
{
    float v[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++)
        v[i] = fmaxf(fmaxf(x[i][0], x[i][1]), fmaxf(x[i][2], x[i][3]));
    float top = fmaxf(s->top, of_line<JOIN_MAX>(v)), keep = attn_keep(s->top, top);
    s->top = top;
    top = attn_safe_top(top);
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        float t = from_line(top, i);
#pragma unroll
        for (int j = 0; j < SETS; j++)
            x[i][j] = attn_exp(x[i][j] - t);
        v[i] = (x[i][0] + x[i][1]) + (x[i][2] + x[i][3]);
    }
    s->sum = s->sum * (double)keep + (double)of_line<JOIN_SUM>(v);
    if (__all_sync((unsigned)ALL_LANES, keep == 1))
        return;
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        float again = from_line(keep, i);
#pragma unroll
        for (int j = 0; j < N; j++)
            o[i][j] *= again;
    }
}

/* --- values --- */

template <int N> __device__ inline void load(float (&to)[N], const float *from)
{
    if constexpr (N == 4) {
        float4 v = *(const float4 *)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        float2 v = *(const float2 *)from;
        to[0] = v.x, to[1] = v.y;
    }
}

template <int N> __device__ inline void store(float *to, const float (&v)[N])
{
    if constexpr (N == 4)
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    else
        *(float2 *)to = make_float2(v[0], v[1]);
}

/* Of N columns of a lane, W lie side by side; the next W are GROUP_COLUMNS on. */
template <int N> __device__ constexpr int side_by_side()
{
    return N < 4 ? N : 4;
}

/* o += weights v over a chunk's keys from `key` on. p [LINES,WARP] weights; v: this lane's
 * first column. ALL: every line sees every one of these keys. */
template <bool ALL, int COLUMNS, int N>
__device__ inline void add_values(float (&o)[LINES][N], const float *p, const float *v,
                                  const Line *lines, int32_t key, int32_t reach)
{
    constexpr int W = side_by_side<N>(), ROWS = chunk_rows(COLUMNS);
#pragma unroll 1
    for (int k = 0; k < ROWS; k += 4) {
        float right[4][N / W][W];
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int g = 0; g < N / W; g++)
                load(right[e][g], v + (k + e) * COLUMNS + g * GROUP_COLUMNS);
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            float left[4];
            load(left, p + i * WARP + k);
            int32_t end = ALL ? 0 : lines[i].end;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (!ALL && (key + k + e >= end || key + k + e < end - reach))
                    continue;
#pragma unroll
                for (int j = 0; j < N; j++)
                    o[i][j] = fmaf(left[e], right[e][j / W][j % W], o[i][j]);
            }
        }
    }
}

/* --- the end of a tile --- */

/* o of signals: A1 v - lambda A2 v. side: memory for GROUP_COLUMNS columns of the noise. */
template <int COLUMNS, int N>
__device__ inline void subtract_noise(float (&o)[LINES][N], const AttnCall &c, const Tile &t,
                                      const Place &w, float *side)
{
    constexpr int W = side_by_side<N>();
    constexpr int LD = COLUMNS < GROUP_COLUMNS ? COLUMNS : GROUP_COLUMNS;
    const Line *own = w.own + my_line(), *noise = t.line + t.n_signal_warps * LINES;
    bool        is_noise = w.warp >= t.n_signal_warps, two = c.n_maps == 2;
    int32_t     query = (w.warp * LINES + my_line()) / t.signals;  // of the tile
    float       w0 = 0, w1 = 0, part[W];
    if (!is_noise && own->valid) {
        w0 = (float)(1 / own->sum);
        if (two)
            w1 = (float)(attn_lambda(c, own->query, attn_head(c, t.block, own->r)) /
                         noise[query].sum);
    }
#pragma unroll
    for (int g = 0; g < N; g += W) {
#pragma unroll
        for (int i = 0; i < LINES; i++) {
#pragma unroll
            for (int j = 0; j < W; j++)
                part[j] = o[i][g + j];
            if (is_noise)
                store(side + ((w.warp - t.n_signal_warps) * LINES + i) * LD + w.lane * W, part);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < LINES; i++) {
            float   a = from_line(w0, i), b = from_line(w1, i);
            int32_t at = from_line(query, i);
#pragma unroll
            for (int j = 0; j < W; j++)
                part[j] = 0;
            if (two && !is_noise)
                load(part, side + at * LD + w.lane * W);
#pragma unroll
            for (int j = 0; j < W; j++)
                o[i][g + j] = attn_difference(o[i][g + j], a, part[j], b);
        }
        __syncthreads();
    }
}

template <int N>
__device__ inline void norm_lines(float (&o)[LINES][N], const AttnCall &c, const Place &w)
{
    constexpr int W = side_by_side<N>();
    float square[LINES];
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        square[i] = 0;
#pragma unroll
        for (int j = 0; j < N; j++)
            square[i] += o[i][j] * o[i][j];
    }
    float per_rms = 1 / attn_rms(c, of_line<JOIN_SUM>(square));
#pragma unroll
    for (int j = 0; j < N; j++) {
        int32_t column = j / W * GROUP_COLUMNS + w.lane * W + j % W;
        float   weight = c.norm_weight && column < c.dv ? c.norm_weight[column] : 1;
#pragma unroll
        for (int i = 0; i < LINES; i++)
            o[i][j] = o[i][j] * from_line(per_rms, i) * weight * c.out_scale;
    }
}

template <int N>
__device__ inline void write_lines(const float (&o)[LINES][N], const AttnCall &c,
                                   const TilePlan &p, const Tile &t, const Place &w)
{
    constexpr int W = side_by_side<N>();
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        const Line &l = w.own[i];
        int64_t     head = (int64_t)l.query * c.n_heads + attn_head(c, t.block, l.r);
        float      *out = c.out + head * c.dv + p.column;
#pragma unroll
        for (int g = 0; g < N; g += W) {
            int32_t column = g / W * GROUP_COLUMNS + w.lane * W;
            float   part[W];
#pragma unroll
            for (int j = 0; j < W; j++)
                part[j] = o[i][g + j];
            if (p.wide_out && l.valid && column < t.columns)
                store(out + column, part);
#pragma unroll
            for (int j = 0; j < W; j++)
                if (!p.wide_out && l.valid && column + j < t.columns)
                    out[column + j] = part[j];
        }
    }
}

#endif
