/* ref_cuda_scan.h - a selective scan on the GPU, and what it is made of on the host. */
#ifndef DQ_REF_CUDA_SCAN_H
#define DQ_REF_CUDA_SCAN_H

#include "tests/cuda/ref_both.h"

typedef struct {
    Arena    arena;   // close it; the GPU's memory goes with be
    Backend *be;
    Both     u, dt, bc, y, a, d, dt_bias;
    int64_t  T, E, N;
} ScanCase;

/* As Mamba-1 starts: A = -(1 .. N), delta log-uniform in [1e-3, 0.1] through dt_bias. On both
 * sides. */
Status scan_case_open(ScanCase *c, Backend *be, int64_t T, int64_t E, int64_t N);
/* What the host has changed of it. */
Status scan_case_send(ScanCase *c);
/* A, D and dt_bias of one side. */
Scan   scan_of(ScanCase *c, bool gpu);
/* Rows first .. end as a sequence of their own, or those of a batch, into `to`. */
Status scan_to(ScanCase *c, Both *to, int64_t first, int64_t end, const Batch *batch,
               Tensor *state);
/* The same of one sequence, into y. */
Status scan(ScanCase *c, int64_t first, int64_t end, Tensor *state);

#endif
