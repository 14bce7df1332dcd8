/* cuda_convolve.cu - causal convolution of each channel along its sequence, then SiLU.
 * y[t,e] = silu(b[e] + sum_j w[e,j] x[t - (J - 1) + j, e])
 * shapes  x, y [T,E] f32, w [E,J], b [E], state [J - 1, E]; any T, E, J >= 1
 * cost    8TE bytes, TE (exp + division + 2J flops): memory bound. 4 taps: a row is read once,
 *         the next four are on their way; else J times, from L1 after the first
 * launch  a thread a channel and a run of 16 rows, blocks of 256 channels; the last rows of a
 *         state after it, a thread a channel
 * sums    one chain of fused multiply-adds a value, over taps in order; rows before the
 *         sequence are added like any other, so that zeros and a state of zeros, one call and
 *         pieces give the same bits
 * NaN     makes J rows of its channel NaN
 * test    tests/cuda/test_cuda_convolve.c */
#include "kernels/cuda/cuda_act.cuh"
#include "kernels/cuda/cuda_launch.cuh"

enum { RUN = 16, TAPS = 4 };  // rows of a thread; the usual taps

struct ConvolveCall {
    float         *y;
    const float   *x, *w, *b, *state;  // b, state may be NULL
    const int32_t *start;              // [n_sequences + 1], or NULL: 0 and T
    int64_t        n_sequences, T, E, J;
};

static __device__ int64_t start_of(const ConvolveCall &c, int64_t q)
{
    return c.start ? c.start[q] : q * c.T;
}

/* The sequence of row t: start[q] <= t < start[q + 1]. */
static __device__ int64_t sequence_of(const ConvolveCall &c, int64_t t)
{
    int64_t low = 0, high = c.n_sequences;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (start_of(c, middle) <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Row t of a sequence that begins at row 0 of x; before it lies the state, or nothing. */
static __device__ float value_at(const ConvolveCall &c, const float *x, int64_t t, int64_t e)
{
    if (t >= 0)
        return x[t * c.E + e];
    return c.state ? c.state[(t + c.J - 1) * c.E + e] : 0;
}

/* Rows first .. end of channel e, all of a sequence that begins at row `begin`. Any taps. */
static __device__ void run(const ConvolveCall &c, int64_t e, int64_t begin, int64_t first,
                           int64_t end)
{
    const float *w = c.w + e * c.J, *x = c.x + begin * c.E;
    const float  b = c.b ? c.b[e] : 0;
    for (int64_t t = first; t < end; t++) {
        float sum = b;
        for (int64_t j = 0; j < c.J; j++)
            sum = fmaf(w[j], value_at(c, x, t - begin - (c.J - 1) + j, e), sum);
        c.y[t * c.E + e] = act_silu(sum);
    }
}

/* J = TAPS: they and the rows they look at stay in registers, each row is read once. */
static __device__ void run_usual(const ConvolveCall &c, int64_t e, int64_t begin,
                                 int64_t first, int64_t end)
{
    const float b = c.b ? c.b[e] : 0;
    float       tap[TAPS], row[TAPS];
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        tap[j] = c.w[e * TAPS + j];
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++)
        row[j] = value_at(c, c.x + begin * c.E, first - begin - (TAPS - 1) + j, e);
#pragma unroll 4
    for (int64_t t = first; t < end; t++) {
        float sum = b;
        row[TAPS - 1] = __ldg(c.x + t * c.E + e);  // may go ahead of the writes to y
#pragma unroll
        for (int j = 0; j < TAPS; j++)
            sum = fmaf(tap[j], row[j], sum);
        c.y[t * c.E + e] = act_silu(sum);
#pragma unroll
        for (int j = 0; j < TAPS - 1; j++)
            row[j] = row[j + 1];
    }
}

template <bool USUAL> static __global__ void convolve_kernel(ConvolveCall c)
{
    const int64_t first = (int64_t)blockIdx.x * RUN;
    const int64_t end = first + RUN < c.T ? first + RUN : c.T;
    for (int64_t e = (int64_t)blockIdx.y * BLOCK + threadIdx.x; e < c.E;
         e += (int64_t)gridDim.y * BLOCK) {
        int64_t q = sequence_of(c, first);
        for (int64_t t = first, next; t < end; t = next, q++) {
            next = start_of(c, q + 1) < end ? start_of(c, q + 1) : end;
            if (USUAL)
                run_usual(c, e, start_of(c, q), t, next);
            else
                run(c, e, start_of(c, q), t, next);
        }
    }
}

/* state [n,E] becomes the last n rows of itself and x [T,E]. */
static __global__ void keep_last_kernel(float *state, int64_t n, const float *x, int64_t T,
                                        int64_t E)
{
    for (int64_t e = grid_index(); e < E; e += grid_size())
        for (int64_t i = 0; i < n; i++)
            state[i * E + e] = i + T < n ? state[(i + T) * E + e] : x[(i + T - n) * E + e];
}

Status cuda_convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, const Tensor *b,
                     const Batch *batch, Tensor *state)
{
    enum { MOST_Y = 65535 };
    int64_t      T = x->shape[0], E = x->shape[1], J = w->shape[1], n = batch->n_sequences;
    cudaStream_t stream = cuda_state(be)->stream;
    float       *kept = state ? (float *)state->data : NULL;
    void        *start = NULL;
    TRY(cuda_begin(be, y));
    if (T == 0 || E == 0)
        return OK;
    if (n > 1)
        TRY(cuda_sent(be, &start, batch->start, (size_t)(n + 1) * sizeof *batch->start));
    ConvolveCall c = {(float *)y->data, (const float *)x->data, (const float *)w->data,
                      (const float *)b->data, kept, (const int32_t *)start, n, T, E, J};
    dim3 grid((unsigned)ceil_div(T, RUN), (unsigned)i64_min(ceil_div(E, BLOCK), MOST_Y));
    (J == TAPS ? convolve_kernel<true> : convolve_kernel<false>)<<<grid, BLOCK, 0, stream>>>(c);
    TRY(cuda_launched("convolve"));
    if (!kept || J == 1)
        return OK;
    keep_last_kernel<<<grid_for(E), BLOCK, 0, stream>>>(kept, J - 1, c.x, T, E);
    return cuda_launched("keep_last");
}
