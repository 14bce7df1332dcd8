/* lambda.c - the weight of the second map (arXiv 2410.05258, equation 2). */
#include <math.h>

#include "analysis/model.h"

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * y[i];
    return sum;
}

double diff_lambda(const float *q1, const float *k1, const float *q2, const float *k2,
                   int64_t d, double lambda_init)
{
    return exp(dot(q1, k1, d)) - exp(dot(q2, k2, d)) + lambda_init;
}

double diff_lambda_init(int64_t depth)
{
    return 0.8 - 0.6 * exp(-0.3 * (double)depth);
}
