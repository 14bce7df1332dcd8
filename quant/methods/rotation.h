/* rotation.h - a random orthogonal matrix R [n,n] that multiplies fast.
 *
 *   R = diag(sign) (H kron Q),  n = 2^k m, m odd
 *
 * H the Hadamard matrix of 2^k over its root, Q [m,m] random orthogonal, signs random:
 * every entry of x spreads over all of x R, which leaves no outlier channel. All in
 * double; the same seed gives the same bits on every machine. */
#ifndef DQ_ROTATION_H
#define DQ_ROTATION_H

#include "kernels/arena.h"

typedef struct {
    int64_t       n, m;
    const double *q;      // [m,m]
    const double *sign;   // [n] +1 or -1
} Rotation;

/* Arrays from a. The work is of order m^3, the memory m^2: a prime n of many
 * thousands is slow. */
MUST_USE Status rotation_init(Rotation *r, Arena *a, int64_t n, uint64_t seed);

/* x [n,c] becomes R^T x: every column x R, read as a row. temp [m,c]. */
void rotation_apply(const Rotation *r, double *x, int64_t c, double *temp);

/* A part of a matrix that is turned in one go: w [rows,cols], its rows ld apart,
 * becomes  left^T (w diag(scale)) right, in double, rounded to f32 once. */
typedef struct {
    const Rotation *left;    // [rows,rows], or NULL: none
    const Rotation *right;   // [cols,cols], or NULL: none
    const float    *scale;   // [cols], or NULL: ones
    const int64_t  *row;     // [rows] where each lies, in rows of w; NULL: in order
    float          *w;
    int64_t         ld, rows, cols;
} RotationBlock;

/* Blocks that share no number, in parallel. Scratch is given back; ERR_MEMORY leaves
 * all as it was. */
MUST_USE Status rotation_blocks(const RotationBlock *b, int64_t n, Arena *scratch);

/* The same for whole matrices. x [rows,n] becomes (x diag(scale)) R. */
MUST_USE Status rotation_rows(const Rotation *r, float *x, int64_t rows, const float *scale,
                              Arena *scratch);
/* w [n,cols] becomes R^T w. */
MUST_USE Status rotation_left(const Rotation *r, float *w, int64_t cols, Arena *scratch);

/* Those of which they are made, for larger lists: out has room for
 * rotation_n_blocks of the rows (or columns) that are cut; returns that number. */
enum { ROTATION_BLOCK = 32 };
int64_t rotation_n_blocks(int64_t rows);
int64_t rotation_cut_rows(RotationBlock *out, const Rotation *right, float *x, int64_t rows,
                          const float *scale);
int64_t rotation_cut_cols(RotationBlock *out, const Rotation *left, float *w, int64_t cols);

#endif
