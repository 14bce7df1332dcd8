/* ref_ssm.h - LayerNorm, PolyNorm, the convolution and the scan of backend.h in double, as
 * plainly as they can be written. */
#ifndef DQ_REF_SSM_H
#define DQ_REF_SSM_H

#include "kernels/backend.h"

/* One head [n]; w, b may be NULL. */
void ref_layernorm(double *y, const float *x, const float *w, const float *b, int64_t n,
                   float eps);
/* One row [n]. */
void ref_poly_glu(double *y, const float *gate, const float *up, const float poly[4],
                  int64_t n);
/* One sequence: x [T,E], w [E,J], b [E] or NULL, zeros before the first row. */
void ref_convolve(double *y, const float *x, const float *w, const float *b, int64_t T,
                  int64_t E, int64_t J);
/* One sequence from h = 0; at most 128 states. */
void ref_scan(double *y, const float *u, const float *dt, const float *bc, const Scan *s,
              int64_t T, int64_t E);

#endif
