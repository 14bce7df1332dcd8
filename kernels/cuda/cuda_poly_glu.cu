/* cuda_poly_glu.cu - PolyNorm as the gate of a feed-forward layer.
 * gate = (p0 N(g^3) + p1 N(g^2) + p2 N(g) + p3) up, N(z) = z / sqrt(mean z^2 + 1e-6)
 * shapes  gate, up [T,F] f32, F >= 1
 * cost    12TF bytes; a row is read twice, the second time from L1. 15 operations in double a
 *         value: memory bound where a GPU has doubles, bound by them where it has few
 * launch  one block of 256 a row
 * sums    double, four values of a thread at a time, a tree a warp, warps in order. g^6 of any
 *         float fits a double; rounds once
 * NaN     makes its row NaN; an infinity its own place, the others what is left when the
 *         powers' factors are 0
 * test    tests/cuda/test_cuda_norm.c */
#include "kernels/cuda/cuda_launch.cuh"

struct Poly {
    float p[4];
};

/* Sums of g^2, g^4, g^6 over what this thread takes. */
static __device__ void even_powers(double sum[3], const float *g, int64_t n)
{
    for (int64_t i = 4 * threadIdx.x; i < n; i += 4 * BLOCK) {
        Four f = load_four(g, i, n);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            double x = (double)f.v[j], square = x * x, fourth = square * square;
            sum[0] = fma(x, x, sum[0]);
            sum[1] = fma(square, square, sum[1]);
            sum[2] = fma(fourth, square, sum[2]);
        }
    }
}

static __global__ void poly_glu_kernel(float *gate, const float *up, Poly poly, int64_t T,
                                       int64_t F)
{
    __shared__ double shared[3][BLOCK_WARPS];
    for (int64_t t = blockIdx.x; t < T; t += gridDim.x) {
        float       *g = gate + t * F;
        const float *u = up + t * F;
        double       sum[3] = {0, 0, 0}, c[4] = {(double)poly.p[3]};  // of g^0 .. g^3
        even_powers(sum, g, F);
#pragma unroll
        for (int k = 1; k <= 3; k++) {
            double mean = block_sum(sum[k - 1], shared[k - 1]) / (double)F;
            c[k] = (double)poly.p[3 - k] / sqrt(mean + 1e-6);
        }
        for (int64_t i = 4 * threadIdx.x; i < F; i += 4 * BLOCK) {
            Four x = load_four(g, i, F), by = load_four(u, i, F);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                double v = (double)x.v[j];
                v = fma(fma(fma(c[3], v, c[2]), v, c[1]), v, c[0]);
                x.v[j] = (float)(v * (double)by.v[j]);
            }
            store_four(g, i, F, x);
        }
    }
}

Status cuda_poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4])
{
    int64_t T = gate->shape[0], F = gate->shape[1];
    TRY(cuda_begin(be, gate));
    if (T == 0)
        return OK;
    Poly p = {{poly[0], poly[1], poly[2], poly[3]}};
    poly_glu_kernel<<<grid_for(T * BLOCK), BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)gate->data, (const float *)up->data, p, T, F);
    return cuda_launched("poly_glu");
}
