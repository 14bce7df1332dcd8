/* cuda_norm.cu - norms of the heads of each row.
 * RMS        y = w x / sqrt(mean x^2 + eps)
 * LayerNorm  y = w (x - m) / sqrt(mean (x - m)^2 + eps) + b, m = mean x
 * shapes  x, y [T, heads * width] f32, y may be x; w, b [width] or one value for each of a
 *         row, or none: 1 and 0
 * cost    8TC bytes: memory bound; a head is read twice (LayerNorm: three times), after the
 *         first time from L1. 2 and 7 operations in double a value
 * launch  a warp a head up to 512 wide, else a block of 256
 * sums    double, four values of a thread at a time, a tree a warp, warps in order: a head's
 *         bits depend on its values alone. RMS multiplies in float, LayerNorm stays in double
 *         and rounds once
 * NaN     any makes its whole head NaN. An infinity: LayerNorm the same; RMS: its own place,
 *         the others are 0
 * test    tests/cuda/test_cuda_norm.c */
#include "kernels/cuda/cuda_launch.cuh"

enum { WARP_WIDTH = 512 };  // widest head of a warp: 16 values a lane

struct NormCall {
    float       *y;
    const float *x, *w, *b;        // w, b may be NULL
    int64_t      n, heads, width;  // n heads in all rows
    int64_t      w_step, b_step;   // from the values of a head to those of the next, or 0
    float        eps;
};

/* A head of a call. */
struct NormHead {
    float       *y;
    const float *x, *w, *b;
    int64_t      width;
};

template <int THREADS> static __device__ double total(double x, double *shared)
{
    return THREADS == WARP ? warp_sum(x) : block_sum(x, shared);
}

template <int THREADS> static __device__ double sum_of(const NormHead &h, int thread)
{
    double sum = 0;
    for (int64_t i = 4 * thread; i < h.width; i += 4 * THREADS) {
        Four f = load_four(h.x, i, h.width);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum += (double)f.v[j];
    }
    return sum;
}

template <int THREADS>
static __device__ double squares_about(double mean, const NormHead &h, int thread)
{
    double sum = 0;
    for (int64_t i = 4 * thread; i < h.width; i += 4 * THREADS) {
        Four f = load_four(h.x, i, h.width);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            double v = i + j < h.width ? (double)f.v[j] - mean : 0;
            sum = fma(v, v, sum);
        }
    }
    return sum;
}

static __device__ Four factors(const float *w, int64_t i, int64_t n, float without)
{
    Four f = {{without, without, without, without}};
    return w ? load_four(w, i, n) : f;
}

template <int THREADS, bool CENTRED>
static __device__ void write_head(const NormHead &h, int thread, double mean, double scale)
{
    const float factor = (float)scale;
    for (int64_t i = 4 * thread; i < h.width; i += 4 * THREADS) {
        Four x = load_four(h.x, i, h.width), w = factors(h.w, i, h.width, 1), b;
        if (CENTRED)
            b = factors(h.b, i, h.width, 0);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x.v[j] = CENTRED ? (float)fma(((double)x.v[j] - mean) * scale, (double)w.v[j],
                                          (double)b.v[j])
                             : x.v[j] * factor * w.v[j];
        store_four(h.y, i, h.width, x);
    }
}

template <int THREADS, bool CENTRED> static __global__ void norm_kernel(NormCall c)
{
    __shared__ double shared[BLOCK_WARPS];
    const int     HEADS = BLOCK / THREADS, thread = threadIdx.x % THREADS;
    const int64_t step = (int64_t)gridDim.x * HEADS;
    for (int64_t i = (int64_t)blockIdx.x * HEADS + threadIdx.x / THREADS; i < c.n; i += step) {
        int64_t  head = i % c.heads, at = i * c.width;
        NormHead h = {c.y + at, c.x + at, c.w ? c.w + head * c.w_step : NULL,
                      c.b ? c.b + head * c.b_step : NULL, c.width};
        double   n = (double)c.width, mean = 0;
        if (CENTRED)
            mean = total<THREADS>(sum_of<THREADS>(h, thread), shared) / n;
        double squares = total<THREADS>(squares_about<THREADS>(mean, h, thread), shared);
        write_head<THREADS, CENTRED>(h, thread, mean, 1 / sqrt(squares / n + (double)c.eps));
    }
}

/* From the values of a head to those of the next. */
static int64_t head_step(const Tensor *t, int64_t width)
{
    return t->data && t->shape[0] != width ? width : 0;
}

Status cuda_norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n)
{
    static void (*const OF[2][2])(NormCall) = {
        {norm_kernel<WARP, false>, norm_kernel<WARP, true>},
        {norm_kernel<BLOCK, false>, norm_kernel<BLOCK, true>}};
    int64_t  T = x->shape[0], width = x->shape[1] / heads;
    bool     wide = width > WARP_WIDTH;
    NormCall c = {(float *)y->data, (const float *)x->data, (const float *)n->w.data,
                  (const float *)n->b.data, T * heads, heads, width, head_step(&n->w, width),
                  head_step(&n->b, width), n->eps};
    TRY(cuda_begin(be, y));
    if (T == 0)
        return OK;
    OF[wide][n->centred]<<<grid_for(c.n * (wide ? BLOCK : WARP)), BLOCK, 0,
                           cuda_state(be)->stream>>>(c);
    return cuda_launched("norm");
}
