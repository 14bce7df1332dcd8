/* ref_cuda_case.h - a case of attention (tests/kernels/ref_attention.h) on the GPU. */
#ifndef DQ_REF_CUDA_CASE_H
#define DQ_REF_CUDA_CASE_H

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_attention.h"

/* As case_run: host data in, c->out on the host; q, k, v and out begin `shift` floats past a
 * multiple of 256 bytes. ERR_RANGE where a guard of out is overwritten. */
Status ref_cuda_case_run(Backend *be, Case *c, int64_t shift);
/* q and k: whole numbers of 64ths, normal, so that logits are exact in f32 up to 64 dims, and
 * in bf16; scale 1/4. */
void ref_cuda_case_fill(Case *c, uint64_t seed);

/* The same bits; not asked where a simulator moves each exp by some ulp (CUSIM_FUZZ). */
bool ref_cuda_same_bits(const void *a, const void *b, size_t bytes);

#endif
