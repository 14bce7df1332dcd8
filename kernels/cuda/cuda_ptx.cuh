/* cuda_ptx.cuh - instructions that C++ has no word for: tensor cores, and copies that arrive
 * later. One wrapper an instruction; nothing else in here, and inline PTX nowhere else.
 *
 * Fragments. Lane l of a warp is g = l / 4, q = l % 4; a register of A or B holds 2 bf16 (or 4
 * int8) side by side along K, the first in the low bits; p is how many.
 *   A [16,K]   a[i] = A[g + 8 (i % 2)][p q + 4p (i / 2) ...]        row major
 *   B [K,8]    b[i] = B[p q + 4p i ...][g]                          as rows of B^T [8,K]
 *   C [16,8]   c[i] = C[g + 8 (i / 2)][2 q + i % 2]
 * All lanes of a warp call together. None of these orders memory between lanes: what one lane
 * wrote to shared memory, another reads after __syncwarp() or __syncthreads().
 * test: tests/cuda/test_cuda_ptx.cu, each against plain loops */
#ifndef DQ_CUDA_PTX_CUH
#define DQ_CUDA_PTX_CUH

#include <stdint.h>

/* Where p lies in the block's shared memory. */
__device__ inline uint32_t ptx_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* (a & mask) | bits: of two numbers that it knows the compiler makes two instructions. */
__device__ inline uint32_t ptx_and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(mask), "r"(bits));
    return r;
}

/* c += A B, bf16, K = 16; sums in f32. */
__device__ inline void ptx_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c += A B, int8, K = 32; sums in int32, exact until they wrap. */
__device__ inline void ptx_mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                  uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 8x8 matrices of 16 bits from shared memory. Lane l names (ptx_shared) row l % 8 of matrix
 * l / 8: 16 bytes, aligned. r[i] = matrix i at [g][2 q ...]: what A and B want of a matrix
 * whose rows run along K. (int8: a row is 16 of them, r[i] = matrix i at [g][4 q ...].) */
__device__ inline void ptx_ldmatrix_x4(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* Transposed on the way: the low half of r[i] is matrix i at [2 q][g], the high half at
 * [2 q + 1][g]: what B wants of a matrix whose rows run along N. */
__device__ inline void ptx_ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

/* 16 bytes of global memory to shared (ptx_shared), both aligned to 16, not through
 * registers nor L1. They are there for this thread after ptx_cp_wait, for others after a
 * barrier behind that. */
__device__ inline void ptx_cp_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The first n of 16 bytes, 0 <= n <= 16; zeros fill up the rest. `from` is aligned to 16 and a
 * good address even where nothing is read. */
__device__ inline void ptx_cp_async_some(uint32_t to, const void *from, uint32_t n)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n)
                 : "memory");
}

/* This thread's copies since the last commit are one group; it may be empty. */
__device__ inline void ptx_cp_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `open` of this thread's newest groups are under way. */
template <int open> __device__ inline void ptx_cp_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

#endif
