/* cuda_rope.cu - rotary positions, in place.
 * (a, b) = (x[i], x[i + half]) of each head turns to (a c - b s, b c + a s),
 * c and s from row positions[t] of cs and sn; dims from 2 half on pass
 * shapes  x [T, heads*d], cs, sn [P, half], 2 half <= d
 * cost    8T heads 2 half bytes: memory bound; angles come from L1 after the first head
 * launch  one block of 256 a row, a pair a thread at a time
 * sums    none; each product is rounded, as on the CPU: its bits
 * NaN     makes its pair NaN
 * test    tests/cuda/test_cuda_rows.c */
#include "kernels/cuda/cuda_launch.cuh"

struct RopeCall {
    float         *x;
    const float   *cs, *sn;
    const int32_t *positions;  // [T], or NULL: first, first + 1, ...
    int32_t        first;
    int64_t        T, heads, d, half;
};

static __device__ void turn(float *a, float *b, float c, float s)
{
    float x = *a, y = *b;
    *a = __fsub_rn(__fmul_rn(x, c), __fmul_rn(y, s));
    *b = __fadd_rn(__fmul_rn(y, c), __fmul_rn(x, s));
}

/* A thread's next pair is BLOCK on: h and i follow it without a division. */
static __global__ void rope_kernel(RopeCall r)
{
    const int64_t heads_on = BLOCK / r.half, dims_on = BLOCK % r.half;
    const int64_t first_head = threadIdx.x / r.half, first_dim = threadIdx.x % r.half;
    for (int64_t t = blockIdx.x; t < r.T; t += gridDim.x) {
        int64_t      angle = (r.positions ? r.positions[t] : r.first + t) * r.half;
        const float *cs = r.cs + angle, *sn = r.sn + angle;
        int64_t      h = first_head, i = first_dim;
        while (h < r.heads) {
            float *x = r.x + (t * r.heads + h) * r.d + i;
            turn(x, x + r.half, cs[i], sn[i]);
            h += heads_on;
            i += dims_on;
            if (i >= r.half) {
                i -= r.half;
                h++;
            }
        }
    }
}

/* Those of one sequence need not be sent: a copy less in each layer. */
static bool in_order(const int32_t *positions, int64_t T)
{
    int64_t t = 1;
    while (t < T && positions[t] == positions[t - 1] + 1)
        t++;
    return t == T;
}

Status cuda_rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
                 const int32_t *positions)
{
    int64_t T = x->shape[0], half = cs->shape[1];
    void   *sent = NULL;
    TRY(cuda_begin(be, x));
    if (T == 0 || half == 0)
        return OK;
    if (!in_order(positions, T))
        TRY(cuda_sent(be, &sent, positions, (size_t)T * sizeof *positions));
    RopeCall r = {(float *)x->data, (const float *)cs->data, (const float *)sn->data,
                  (const int32_t *)sent, positions[0], T, heads, x->shape[1] / heads, half};
    rope_kernel<<<grid_for(T * BLOCK), BLOCK, 0, cuda_state(be)->stream>>>(r);
    return cuda_launched("rope");
}
