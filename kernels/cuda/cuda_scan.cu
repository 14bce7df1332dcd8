/* cuda_scan.cu - Mamba-1's selective scan along each sequence.
 *   delta = softplus(dt + dt_bias)
 *   h_n = exp(delta A_n) h_n + delta B_n u,   y = D u + sum_n C_n h_n
 * shapes  u, dt, y [T,E] f32, y may be u; bc [T,2N], A [E,N], D, dt_bias [E], state [2N,E];
 *         any T, E, N >= 1
 * cost    12TE bytes, TEN (exp and 35 instructions): bound by these for N = 16
 * launch  a thread a channel and state, blocks of 8 channels x 16 states of one sequence, 16
 *         rows at a time: what rows share (softplus, the products with u) is worked out once
 *         by one thread and goes through shared memory; what the next rows need is on its way
 *         meanwhile. More states: the next 16 add to y
 * h       two floats, its value and what that lost to rounding, for the reason and in the way
 *         of cpu_scan_isa.c. exp(x), x = delta A unrounded, is 2^n (1 + m); where n = 0, m h is
 *         added to the pair without cancellation, else h is multiplied. Above exp(88.3):
 *         infinity. The bits of h are those of CPUs with fused multiply-adds
 * sums    over n as a tree of 16, the same for each row: one call and pieces give the same
 *         bits, the batch changes nothing
 * NaN     in u, dt or B: the channel's h and y from there on; in C: the row of y. An infinite
 *         h becomes NaN a step later
 * test    tests/cuda/test_cuda_scan.c, test_cuda_scan_step.c */
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/cuda_math.cuh"

enum { CHANNELS = 8, STATES = 16, ROWS = 16, THREADS = CHANNELS * STATES };

static_assert(CHANNELS * ROWS == THREADS, "a thread works out one step");
static_assert(ROWS == STATES, "transposed in registers");

struct ScanCall {
    float         *y, *state;       // state may be NULL
    const float   *u, *dt, *bc, *a, *d, *dt_bias;
    const int32_t *start;           // [n_sequences + 1], or NULL: 0 and T
    int64_t        n_sequences, T, E, N;
    int64_t        first_state;     // of the STATES of this launch
};

/* --- arithmetic --- */

struct TwoFloats {
    float sum, lost;  // a + b, and what rounding took from it: sum + lost is exact
};

static __device__ TwoFloats two_sum(float a, float b)
{
    float     sum = __fadd_rn(a, b), of_b = __fsub_rn(sum, a);
    TwoFloats t = {sum, __fadd_rn(__fsub_rn(a, __fsub_rn(sum, of_b)), __fsub_rn(b, of_b))};
    return t;
}

/* log(1 + exp(v)), v = a + b with the bits that the sum loses: for v = -10 they are 2^-20 of
 * the result. max(v, 0) + log1p(z), z = exp(-|v|); log1p(z) = 2 atanh(z / (2 + z)), in
 * t = 2 z / (2 + z), minimax to 2^-27. */
static __device__ float softplus_of_sum(float a, float b)
{
    TwoFloats v = two_sum(a, b);
    float     lost = fabsf(v.lost) < 1 ? v.lost : 0;  // it is NaN beside an infinity
    float     toward = copysignf(1, v.sum) * lost;    // what |v| is short of
    float     z = math_exp(-fabsf(v.sum));
    z = fmaf(-toward, z, z);
    float t = (z + z) / (z + 2), w = t * t;
    float q = 0x1.1ef870p-11f;
    q = fmaf(q, w, 0x1.1eb612p-9f);
    q = fmaf(q, w, 0x1.99d27cp-7f);
    q = fmaf(q, w, 0x1.555500p-4f);
    return fmaxf(0, v.sum) + fmaf(t * w, q, t);
}

/* exp(delta a) h + input. Below exp(-87) nothing of h stays. */
static __device__ TwoFloats next_state(TwoFloats h, float delta, float a, float input)
{
    const float shifter = 0x1.8p23f;  // adding it rounds to an integer
    float       x = __fmul_rn(delta, a);
    float       shifted = fmaf(fminf(x, 89), 0x1.715476p+0f, shifter), n = shifted - shifter;
    float       r = fmaf(delta, a, __fmul_rn(n, -0x1.63p-1f));  // ln2, 9 bits: exact
    r = fmaf(n, 0x1.bd0106p-13f, r);                            // and the rest
    float less_one = math_exp_less_one(r);
    float two_to_n = __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
    bool  small = n == 0;
    float factor = small ? less_one : (less_one + 1) * two_to_n;
    factor = x < -87 ? 0 : factor;
    return two_sum(small ? h.sum : 0,
                   __fadd_rn(fmaf(factor, h.sum, input), small ? h.lost : 0));
}

/* Lane n of 16 gets the sum over the lanes' part[n]. */
static __device__ float transposed_sum(float part[ROWS], int n)
{
#pragma unroll
    for (int half = ROWS / 2; half > 0; half /= 2) {
        bool upper = n & half;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float give = upper ? part[i] : part[i + half];
            float keep = upper ? part[i + half] : part[i];
            part[i] = keep + __shfl_xor_sync((unsigned)ALL_LANES, give, half);
        }
    }
    return part[0];
}

/* --- rows --- */

/* What a thread fetches for ROWS rows: u and dt of one row and channel, B and C of two rows
 * and one state. */
struct Fetched {
    float u, dt, b[2], c[2];
};

/* Where a thread fetches and writes; its part in stepping is another. */
struct Place {
    int64_t row, channel;    // of u, dt and y
    bool    there;           // the channel is
    int64_t bc_row, n;       // of b and c; the second row is half of ROWS on
    bool    has_n;           // the state is there
};

struct Shared {
    float2 step[ROWS][CHANNELS];   // delta, delta u
    float2 bc[ROWS][STATES];
    float  y[ROWS][CHANNELS + 1];  // written along a column
};

static __device__ Fetched fetch(const ScanCall &s, const Place &p, int64_t row, int64_t end)
{
    Fetched f = {0, 0, {0, 0}, {0, 0}};
    if (p.there && row + p.row < end) {
        f.u = s.u[(row + p.row) * s.E + p.channel];
        f.dt = s.dt[(row + p.row) * s.E + p.channel];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t t = row + p.bc_row + i * (ROWS / 2);
        if (p.has_n && t < end) {
            f.b[i] = s.bc[t * 2 * s.N + p.n];
            f.c[i] = s.bc[t * 2 * s.N + s.N + p.n];
        }
    }
    return f;
}

static __device__ void stage(Shared *m, const Fetched &f, float dt_bias)
{
    const int tid = threadIdx.x, bc_row = tid / STATES, n = tid % STATES;
    float     delta = softplus_of_sum(f.dt, dt_bias);
    m->step[tid / CHANNELS][tid % CHANNELS] = make_float2(delta, delta * f.u);
#pragma unroll
    for (int i = 0; i < 2; i++)
        m->bc[bc_row + i * (ROWS / 2)][n] = make_float2(f.b[i], f.c[i]);
}

/* The first n_rows of what is staged; the sum over states of row threadIdx.x % STATES. */
static __device__ float advance(TwoFloats *h, const Shared *m, float a, bool there, int n_rows)
{
    const int channel = threadIdx.x / STATES, n = threadIdx.x % STATES;
    float     part[ROWS];
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        part[t] = 0;
        if (t < n_rows) {
            float2 step = m->step[t][channel], bc = m->bc[t][n];
            *h = next_state(*h, step.x, a, __fmul_rn(step.y, bc.x));
            /* 0, not NaN, of a state that is not there; rounded: ptxas may fuse what is not */
            part[t] = there ? __fmul_rn(bc.y, h->sum) : 0;
        }
    }
    return transposed_sum(part, n);
}

static __device__ int64_t start_of(const ScanCall &s, int64_t q)
{
    return s.start ? s.start[q] : q * s.T;
}

static __device__ void scan_sequence(Shared *m, const ScanCall &s, int64_t q)
{
    const int     tid = threadIdx.x;
    const int64_t first_channel = (int64_t)blockIdx.x * CHANNELS;
    /* stepping */
    const int64_t e = first_channel + tid / STATES, n = s.first_state + tid % STATES;
    const bool    there = e < s.E && n < s.N;
    const float   a = there ? s.a[e * s.N + n] : 0;
    TwoFloats     h = {0, 0};
    if (there && s.state) {
        h.sum = s.state[n * s.E + e];
        h.lost = s.state[(s.N + n) * s.E + e];
    }
    /* fetching and writing */
    const int64_t channel = first_channel + tid % CHANNELS;
    const Place   p = {tid / CHANNELS, channel, channel < s.E, tid / STATES, n, n < s.N};
    const float   d = p.there ? s.d[channel] : 0, dt_bias = p.there ? s.dt_bias[channel] : 0;
    const int64_t first = start_of(s, q), end = start_of(s, q + 1);
    Fetched       f = fetch(s, p, first, end);
    for (int64_t row = first; row < end; row += ROWS) {
        const int n_rows = end - row < ROWS ? (int)(end - row) : ROWS;
        float     u = f.u;
        stage(m, f, dt_bias);
        __syncthreads();
        f = fetch(s, p, row + ROWS, end);
        m->y[tid % STATES][tid / STATES] = advance(&h, m, a, there, n_rows);
        __syncthreads();
        if (p.there && p.row < n_rows) {
            float *y = s.y + (row + p.row) * s.E + channel;
            float  sum = m->y[p.row][tid % CHANNELS];
            *y = s.first_state ? *y + sum : fmaf(d, u, sum);
        }
    }
    if (there && s.state) {
        s.state[n * s.E + e] = h.sum;
        s.state[(s.N + n) * s.E + e] = h.lost;
    }
}

/* The barriers of a sequence keep its memory apart from that of the next: the last reads of
 * m->y come before the next first barrier, its next writes after. */
static __global__ void __launch_bounds__(THREADS) scan_kernel(ScanCall s)
{
    __shared__ Shared m;
    for (int64_t q = blockIdx.y; q < s.n_sequences; q += gridDim.y)
        scan_sequence(&m, s, q);
}

/* --- one call --- */

/* Of more states than a launch takes: u again after y was written in its place. */
static Status keep_u(Backend *be, ScanCall *s, const Tensor *u)
{
    void  *copy;
    size_t bytes = tensor_bytes(u);
    TRY(cuda_scratch(be, &copy, bytes));
    CUDA_TRY(cudaMemcpyAsync(copy, u->data, bytes, cudaMemcpyDeviceToDevice,
                             cuda_state(be)->stream));
    s->u = (const float *)copy;
    return OK;
}

Status cuda_scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
                 const Scan *s, const Batch *batch, Tensor *state)
{
    enum { MOST_Y = 65535 };
    int64_t T = u->shape[0], E = u->shape[1], n = batch->n_sequences;
    void   *start = NULL;
    TRY(cuda_begin(be, y));
    if (T == 0 || E == 0)
        return OK;
    if (n > 1)
        TRY(cuda_sent(be, &start, batch->start, (size_t)(n + 1) * sizeof *batch->start));
    ScanCall c = {(float *)y->data, state ? (float *)state->data : NULL,
                  (const float *)u->data, (const float *)dt->data, (const float *)bc->data,
                  (const float *)s->a.data, (const float *)s->d.data,
                  (const float *)s->dt_bias.data, (const int32_t *)start, n, T, E, s->n_states,
                  0};
    if (s->n_states > STATES && y->data == u->data)
        TRY(keep_u(be, &c, u));
    dim3 grid((unsigned)ceil_div(E, CHANNELS), (unsigned)i64_min(n, MOST_Y));
    for (; c.first_state < c.N; c.first_state += STATES) {
        scan_kernel<<<grid, THREADS, 0, cuda_state(be)->stream>>>(c);
        TRY(cuda_launched("scan"));
    }
    return OK;
}
