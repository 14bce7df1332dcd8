/* ref_product.h - general products in double. */
#ifndef DQ_REF_PRODUCT_H
#define DQ_REF_PRODUCT_H

#include "kernels/backend.h"

typedef struct {
    int64_t m, n, k;
    float   alpha, beta;
} ProductSize;

typedef struct {
    Arena         arena;
    MatrixProduct p;       // on the host, c NULL
    int64_t       a_rows, b_rows;
    float        *start;   // c before: NaN where beta is 0
    double       *want;    // c after
    double        loss;    // of a plain float loop
} RefProduct;

/* The i-th of a test. Rows are apart by more than they hold; between them are numbers that
 * have to stay. Close the arena when done. */
void ref_product_open(RefProduct *c, const ProductSize *size, int i, bool a_t, bool b_t);
/* Is got what c shall be afterwards, and as before between its rows? */
bool ref_product_agrees(const RefProduct *c, const float *got);

/* a [m,50], b [50,40] and c [m,40] with a NaN each and one infinity, and whether c = ab + c
 * shows them where it must and only there. */
enum { HURT_N = 40, HURT_K = 50 };
void ref_product_hurt(Arena *arena, int64_t m, float **a, float **b, float **c);
bool ref_product_hurts(const float *c, const float *b, int64_t m);

#endif
