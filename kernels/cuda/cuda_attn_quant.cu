/* cuda_attn_quant.cu - scales of fake-quantized attention logits.
 * scale     max |x| / (2^(bits-1) - 1) over the allowed entries of a layer of one sequence
 *           (tensor), of each of its maps (head), or of each row; a noise map that heads share
 *           is one map
 * cost      the tiles leave each row's maximum; 12 bytes a row of logits
 * launch    a block of 256 takes ROWS queries of a sequence, a thread every 256th of their maps
 * sums      none: a maximum has no order
 * NaN       NaN or infinity makes its whole scope NaN, never zeros: the scale of a NaN is NaN,
 *           and of an infinity 0 * inf
 * test      tests/cuda/test_cuda_attention.c */
#include "kernels/cuda/cuda_attn.cuh"

enum { ROWS = 64, MOST_Y = 65535 };

/* Rows of q that the block takes of a sequence. */
typedef struct {
    int32_t from, end;
} Rows;

static __device__ Rows rows_of(const AttnCall &c, int32_t sequence)
{
    int64_t from = c.start[sequence] + (int64_t)blockIdx.x * ROWS;
    Rows    r = {(int32_t)min(from, (int64_t)c.start[sequence + 1]), 0};
    r.end = min(r.from + ROWS, c.start[sequence + 1]);
    return r;
}

/* The bits of magnitudes are in order, with NaN above infinity. max [n_sequences,maps], or
 * [n_sequences] where maps share. */
static __global__ __launch_bounds__(BLOCK) void max_kernel(AttnCall c, uint32_t *max,
                                                           bool share)
{
    int64_t maps = (int64_t)c.n_blocks * c.n_rows;
    for (int32_t b = blockIdx.y; b < c.n_sequences; b += gridDim.y) {
        Rows     rows = rows_of(c, b);
        uint32_t all = 0;
        for (int64_t m = threadIdx.x; m < maps; m += BLOCK) {
            uint32_t own = 0;
            for (int32_t t = rows.from; t < rows.end; t++) {
                uint32_t u = __float_as_uint(c.row_scale[t * maps + m]);
                own = u > own ? u : own;
            }
            if (!share && own)
                atomicMax(&max[b * maps + m], own);
            all = own > all ? own : all;
        }
        all = warp_max(all);
        if (share && all && threadIdx.x % WARP == 0)
            atomicMax(&max[b], all);
    }
}

/* max NULL: each row has its own. */
static __global__ __launch_bounds__(BLOCK) void scale_kernel(AttnCall c, const uint32_t *max,
                                                             bool share)
{
    int64_t maps = (int64_t)c.n_blocks * c.n_rows;
    for (int32_t b = blockIdx.y; b < c.n_sequences; b += gridDim.y) {
        Rows rows = rows_of(c, b);
        for (int64_t m = threadIdx.x; m < maps; m += BLOCK)
            for (int32_t t = rows.from; t < rows.end; t++) {
                float *x = &c.row_scale[t * maps + m];
                float  top = max ? __uint_as_float(max[share ? b : b * maps + m]) : *x;
                *x = __fdiv_rn(top, c.code_limit);
            }
    }
}

Status cuda_attn_scales(Backend *be, const Attention *a, const AttnCall *c)
{
    cudaStream_t stream = cuda_state(be)->stream;
    bool      share = a->logit_scale == SCALE_TENSOR;
    int64_t   most = i64_min(c->longest, c->n_queries);  // queries of a sequence
    uint32_t *max = NULL;
    dim3 grid((unsigned)ceil_div(most, ROWS), (unsigned)i64_min(c->n_sequences, MOST_Y));
    if (a->logit_scale != SCALE_ROW) {
        size_t scopes = (size_t)c->n_sequences;
        if (!share)
            scopes *= (size_t)c->n_blocks * (size_t)c->n_rows;
        TRY(cuda_scratch(be, (void **)&max, scopes * sizeof *max));
        TRY(cuda_zero(be, max, scopes * sizeof *max));
        max_kernel<<<grid, BLOCK, 0, stream>>>(*c, max, share);
        TRY(cuda_launched("attention maxima"));
    }
    scale_kernel<<<grid, BLOCK, 0, stream>>>(*c, max, share);
    return cuda_launched("attention scales");
}
