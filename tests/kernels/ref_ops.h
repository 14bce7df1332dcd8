/* ref_ops.h - the operations of backend.h in double, as plainly as they can be
 * written, and what their tests share: guarded buffers, filled tensors. */
#ifndef DQ_REF_OPS_H
#define DQ_REF_OPS_H

#include "kernels/backend.h"
#include "kernels/cpufeat.h"

/* y [T,N] of x [T,K], w [N,K]; bf16 rounds both first. Returns the largest
 * error of a plain float loop over the same numbers: the measure of `tol`. */
double ref_linear(double *y, const float *x, const float *w, const float *bias, int64_t T,
                  int64_t N, int64_t K, Dtype dtype);
/* One row each, [C] or [n]; both return the loss of plain float code. */
double ref_rmsnorm(double *y, const float *x, const float *w, int64_t C, float eps);
double ref_glu(double *y, const float *gate, const float *up, int64_t n, Activation act);
/* One head [d], rot = 2 * half dims of it. */
void ref_rope(double *y, const float *x, const float *cs, const float *sn, int64_t d,
              int64_t half);
/* logits [V] in double -> log_softmax at target. */
double  ref_logprob(const double *logits, int64_t V, int64_t target);
int32_t ref_best(const double *logits, int64_t V);

/* n floats that start as NaN between two guards. */
float *ref_guarded(Arena *a, int64_t n);
bool   ref_guards_hold(const float *p, int64_t n);

/* [T,C] of normal numbers between guards. */
Tensor ref_normal(Arena *a, int64_t T, int64_t C, uint64_t seed);
Tensor ref_empty(Arena *a, int64_t T, int64_t C);

/* Largest |a - b|; NaN if any is. */
double ref_worst(const float *a, const double *b, int64_t n);

/* REF_EACH_ISA(isa) { ... } runs for those this machine has, AVX-512 once for each way to multiply
 * bf16, and ends with the choice as it was. */
bool ref_next_isa(CpuIsa *isa);
#define REF_EACH_ISA(isa) for (CpuIsa isa = N_CPU_ISAS; ref_next_isa(&isa);)
/* The check in f32 and in bf16, on each of them. */
void ref_each_dtype(void (*check)(Dtype dtype));

/* Rows first .. end of t [T,E], where they lie. */
Tensor ref_part(const Tensor *t, int64_t first, int64_t end);

#endif
