/* test_cuda_ptx.cu - the instructions of cuda_ptx.cuh, each against plain loops.
 * Whole numbers: results are exact whatever the order of the sums. */
#include "kernels/cuda/cuda_ptx.cuh"

#include <cuda_runtime.h>
#include <math.h>

extern "C" {
#include "kernels/half.h"
#include "tests/cuda/ref_cuda.h"
}

enum { LANES = 32 };

/* Runs on one block of 64 threads: in [n_in] bytes, out [n_out] bytes, each of its own. */
typedef void Kernel(void *out, const void *in);

static cudaError_t run(Kernel *kernel, void *out, size_t n_out, const void *in, size_t n_in)
{
    void       *from = NULL, *to = NULL;
    cudaError_t e = cudaMalloc(&from, n_in);
    if (e == cudaSuccess)
        e = cudaMalloc(&to, n_out);
    if (e == cudaSuccess)
        e = cudaMemcpy(from, in, n_in, cudaMemcpyHostToDevice);
    if (e == cudaSuccess) {
        kernel<<<1, 2 * LANES>>>(to, from);
        e = cudaGetLastError();
    }
    if (e == cudaSuccess)
        e = cudaMemcpy(out, to, n_out, cudaMemcpyDeviceToHost);
    (void)cudaFree(from);
    (void)cudaFree(to);
    return e;
}

#define T_RUN(kernel, out, in)                                                          \
    do {                                                                                \
        if (!ref_cuda_there())                                                          \
            T_SKIP(status_text());                                                      \
        cudaError_t e_ = run(kernel, out, sizeof out, in, sizeof in);                   \
        T_TEXT(cudaGetErrorString(e_), "no error");                                     \
    } while (0)

/* --- bits --- */

static __global__ void and_or_kernel(void *out, const void *in)
{
    const uint32_t *from = (const uint32_t *)in;
    int             t = threadIdx.x;
    ((uint32_t *)out)[2 * t] = ptx_and_or(from[t], 0x000f000f, 0x43004300);
    ((uint32_t *)out)[2 * t + 1] = ptx_and_or(from[t], from[(t + 1) % 64], from[(t + 2) % 64]);
}

TEST(and_or_has_all_bits)
{
    static uint32_t in[64], out[128];
    for (uint32_t i = 0; i < 64; i++)
        in[i] = (i + 1) * 2654435761u;
    T_RUN(and_or_kernel, out, in);
    for (int t = 0; t < 64; t++) {
        T_OK(out[2 * t] == ((in[t] & 0x000f000f) | 0x43004300));
        T_OK(out[2 * t + 1] == ((in[t] & in[(t + 1) % 64]) | in[(t + 2) % 64]));
    }
}

/* --- tensor cores: A [16,K], B^T [8,K] and C [16,8], one after another, 4 bytes a number --- */

static __device__ uint32_t pair_bf16(const float *x)
{
    return (__float_as_uint(x[0]) >> 16) | (__float_as_uint(x[1]) & 0xffff0000u);
}

static __device__ uint32_t four_s8(const int32_t *x)
{
    uint32_t u = 0;
    for (int i = 0; i < 4; i++)
        u |= ((uint32_t)x[i] & 0xff) << 8 * i;
    return u;
}

static __global__ void mma_bf16_kernel(void *out, const void *in)
{
    const float *a = (const float *)in, *b = a + 16 * 16, *c = b + 8 * 16;
    int g = threadIdx.x % LANES / 4, q = threadIdx.x % 4;
    uint32_t fa[4], fb[2];
    float fc[4];
    for (int i = 0; i < 4; i++) {
        fa[i] = pair_bf16(a + (g + 8 * (i % 2)) * 16 + 2 * q + 8 * (i / 2));
        fc[i] = c[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2];
    }
    for (int i = 0; i < 2; i++)
        fb[i] = pair_bf16(b + g * 16 + 2 * q + 8 * i);
    ptx_mma_bf16(fc, fa, fb[0], fb[1]);
    for (int i = 0; i < 4 && threadIdx.x < LANES; i++)
        ((float *)out)[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2] = fc[i];
}

static __global__ void mma_s8_kernel(void *out, const void *in)
{
    const int32_t *a = (const int32_t *)in, *b = a + 16 * 32, *c = b + 8 * 32;
    int g = threadIdx.x % LANES / 4, q = threadIdx.x % 4;
    uint32_t fa[4], fb[2];
    int32_t fc[4];
    for (int i = 0; i < 4; i++) {
        fa[i] = four_s8(a + (g + 8 * (i % 2)) * 32 + 4 * q + 16 * (i / 2));
        fc[i] = c[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2];
    }
    for (int i = 0; i < 2; i++)
        fb[i] = four_s8(b + g * 32 + 4 * q + 16 * i);
    ptx_mma_s8(fc, fa, fb[0], fb[1]);
    for (int i = 0; i < 4 && threadIdx.x < LANES; i++)
        ((int32_t *)out)[(g + 8 * (i / 2)) * 8 + 2 * q + i % 2] = fc[i];
}

/* Whole numbers in [-most, most]. */
static int whole(uint64_t *state, int most)
{
    return (int)(((float)most + 0.9f) * check_uniform(state));
}

TEST(mma_bf16_equals_loops)
{
    static float in[16 * 16 + 8 * 16 + 16 * 8], out[16 * 8];
    const float *a = in, *b = a + 16 * 16, *c = b + 8 * 16;
    uint64_t     state = 1;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        in[i] = (float)whole(&state, i < 16 * 24 ? 120 : 10000);
    T_RUN(mma_bf16_kernel, out, in);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = c[i * 8 + j];
            for (int k = 0; k < 16; k++)
                sum += a[i * 16 + k] * b[j * 16 + k];
            T_OK(out[i * 8 + j] == sum);
        }
}

/* NaN and infinity of a row of A, a column of B or a number of C spoil what they meet alone. */
TEST(mma_bf16_keeps_nan_in_its_place)
{
    static float in[16 * 16 + 8 * 16 + 16 * 8], out[16 * 8];
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        in[i] = 1;
    in[3 * 16 + 9] = NAN;
    in[16 * 16 + 5 * 16 + 2] = INFINITY;
    in[16 * 24 + 7 * 8 + 1] = NAN;
    T_RUN(mma_bf16_kernel, out, in);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float x = out[i * 8 + j];
            bool  nan = i == 3 || (i == 7 && j == 1);
            T_OK(nan ? isnan(x) : j == 5 ? x == INFINITY : x == 17);
        }
}

TEST(mma_s8_equals_loops)
{
    static int32_t in[16 * 32 + 8 * 32 + 16 * 8], out[16 * 8];
    const int32_t *a = in, *b = a + 16 * 32, *c = b + 8 * 32;
    uint64_t       state = 2;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        in[i] = whole(&state, i < 32 * 24 ? 127 : 1000000);
    in[0] = in[16 * 32] = -128;
    T_RUN(mma_s8_kernel, out, in);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int32_t sum = c[i * 8 + j];
            for (int k = 0; k < 32; k++)
                sum += a[i * 32 + k] * b[j * 32 + k];
            T_OK(out[i * 8 + j] == sum);
        }
}

/* --- ldmatrix: 4 matrices [8,8] of 16 bits, rows 24 numbers apart; out [4][32] registers --- */

enum { LD = 24, MATRICES = 4 };
enum Form { X4, X4_TRANS };

template <Form form> static __global__ void ldmatrix_kernel(void *out, const void *in)
{
    __shared__ __align__(16) uint16_t m[MATRICES * 8 * LD];
    int lane = threadIdx.x % LANES;
    for (int i = threadIdx.x; i < MATRICES * 8 * LD; i += blockDim.x)
        m[i] = ((const uint16_t *)in)[i];
    __syncthreads();
    uint32_t r[4];
    uint32_t row = ptx_shared(m + (lane / 8 * 8 + lane % 8) * LD);
    if (form == X4)
        ptx_ldmatrix_x4(r, row);
    if (form == X4_TRANS)
        ptx_ldmatrix_x4_trans(r, row);
    for (int i = 0; i < 4 && threadIdx.x < LANES; i++)
        ((uint32_t *)out)[i * LANES + lane] = r[i];
}

static void check_ldmatrix(Kernel *kernel, bool trans)
{
    static uint16_t in[MATRICES * 8 * LD];
    static uint32_t out[MATRICES * LANES];
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        in[i] = (uint16_t)(i * 77 + 5);
    T_RUN(kernel, out, in);
    for (int i = 0; i < MATRICES; i++)
        for (int l = 0; l < LANES; l++) {
            const uint16_t *m = in + i * 8 * LD;
            int             g = l / 4, q = l % 4;
            uint32_t        low = trans ? m[2 * q * LD + g] : m[g * LD + 2 * q];
            uint32_t        high = trans ? m[(2 * q + 1) * LD + g] : m[g * LD + 2 * q + 1];
            T_OK(out[i * LANES + l] == (low | high << 16));
        }
}

TEST(ldmatrix_x4_gives_rows)
{
    check_ldmatrix(ldmatrix_kernel<X4>, false);
}

TEST(ldmatrix_x4_trans_gives_columns)
{
    check_ldmatrix(ldmatrix_kernel<X4_TRANS>, true);
}

/* --- copies: thread t's 16 bytes, of them t % 17; the second group waits longer --- */

static __global__ void copy_kernel(void *out, const void *in)
{
    __shared__ __align__(16) uint8_t a[64 * 16], b[64 * 16];
    int t = threadIdx.x, other = (t + 33) % 64;
    ptx_cp_async(ptx_shared(a + t * 16), (const uint8_t *)in + t * 16);
    ptx_cp_commit();
    ptx_cp_async_some(ptx_shared(b + t * 16), (const uint8_t *)in + t * 16, t % 17);
    ptx_cp_commit();
    ptx_cp_wait<1>();
    __syncthreads();
    uint8_t *to = (uint8_t *)out;
    for (int i = 0; i < 16; i++)
        to[t * 16 + i] = a[other * 16 + i];
    ptx_cp_wait<0>();
    __syncthreads();
    for (int i = 0; i < 16; i++)
        to[64 * 16 + t * 16 + i] = b[other * 16 + i];
}

TEST(copies_arrive_and_fill_up_with_zeros)
{
    static uint8_t in[64 * 16], out[2 * 64 * 16];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i % 251 + 1);
    T_RUN(copy_kernel, out, in);
    for (int t = 0; t < 64; t++)
        for (int i = 0; i < 16; i++) {
            int other = (t + 33) % 64, from = other * 16 + i;
            T_OK(out[t * 16 + i] == in[from]);
            T_OK(out[64 * 16 + t * 16 + i] == (i < other % 17 ? in[from] : 0));
        }
}
