/* test_factor.c - the factor of an inverse against its definition and a plain loop; sizes
 * on both sides of panels (16), strips (48) and blocks (96). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpufeat.h"
#include "kernels/size.h"
#include "quant/methods/factor.h"
#include "tests/check.h"

static const int64_t SIZES[] = {1, 2, 15, 16, 17, 48, 95, 96, 97, 111, 193, 300};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

/* H = X^T X / rows + damp, of columns that resemble one another and differ in size. What
 * factor_inverse may not read is NaN. */
static double *make_h(Arena *a, int64_t K, int64_t rows, double damp, uint64_t seed)
{
    int64_t stride = factor_stride(K);
    double *h = arena_alloc(a, K, (size_t)stride * sizeof *h);
    float  *x = arena_alloc(a, K, sizeof *x);
    for (int64_t t = 0; t < rows; t++) {
        float common = 2 * check_normal(&seed);
        for (int64_t i = 0; i < K; i++)
            x[i] = (check_normal(&seed) + common) * (i % 7 == 3 ? 30.0f : 1.0f);
        for (int64_t i = 0; i < K; i++)
            for (int64_t j = i; j < K; j++)
                h[i * stride + j] += (double)x[i] * x[j] / (double)rows;
    }
    for (int64_t i = 0; i < K; i++) {
        h[i * stride + i] += damp;
        for (int64_t j = 0; j < stride; j++)
            if (j < i || j >= K)
                h[i * stride + j] = NAN;
    }
    return h;
}

static double *copy_of(Arena *a, const double *h, int64_t K)
{
    size_t  bytes = (size_t)(K * factor_stride(K)) * sizeof *h;
    double *c = arena_alloc(a, 1, bytes);
    memcpy(c, h, bytes);
    return c;
}

/* max |U H U^T - 1|: H^-1 = U^T U the other way round. */
static double defect(Arena *a, const double *u, const double *h, int64_t K)
{
    int64_t stride = factor_stride(K);
    double *uh = arena_alloc(a, K * K, sizeof *uh), worst = 0;
    for (int64_t i = 0; i < K; i++)
        for (int64_t k = i; k < K; k++)
            for (int64_t j = 0; j < K; j++)
                uh[i * K + j] += u[i * stride + k] * h[i64_min(j, k) * stride + i64_max(j, k)];
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < K; j++) {
            double sum = 0;
            for (int64_t k = j; k < K; k++)
                sum += uh[i * K + k] * u[j * stride + k];
            worst = fmax(worst, fabs(sum - (i == j)));
            if (isnan(sum))
                return NAN;
        }
    return worst;
}

TEST(factor_is_what_it_says)
{
    for (int isa = CPU_PLAIN; isa < N_CPU_ISAS; isa++) {
        if (!cpu_isa_force((CpuIsa)isa))
            continue;
        for (int i = 0; i < N_SIZES; i++) {
            Arena   a = {0};
            int64_t K = SIZES[i];
            double *h = make_h(&a, K, 2 * K + 10, 0.01, 7 + (uint64_t)i);
            double *u = copy_of(&a, h, K);
            T_STATUS_OK(factor_inverse(u, K, &a, 2));
            for (int64_t k = 0; k < K; k++)
                T_OK(u[k * factor_stride(K) + k] > 0);
            /* H's condition: 5 K * 900 over 0.3 or so */
            T_NEAR(defect(&a, u, h, K), 0, 1e5 * (double)K * DBL_EPSILON);
            arena_close(&a);
        }
    }
    cpu_isa_force(N_CPU_ISAS);
}

TEST(factor_worked_by_hand)
{
    /* R = [2 1; 0 3], H = R R^T = [5 3; 3 9], U = R^-1 = [1/2 -1/6; 0 1/3] */
    Arena   a = {0};
    int64_t stride = factor_stride(2);
    double  h[64] = {5, 3};
    h[stride] = NAN;
    h[stride + 1] = 9;
    T_STATUS_OK(factor_inverse(h, 2, &a, 1));
    T_NEAR(h[0], 0.5, 1e-15);
    T_NEAR(h[1], -1.0 / 6, 1e-15);
    T_NEAR(h[stride + 1], 1.0 / 3, 1e-15);
    arena_close(&a);
}

/* The condition that a damped gram with one direction of all energy has. */
TEST(factor_keeps_its_digits)
{
    enum { K = 200 };
    Arena   a = {0};
    int64_t stride = factor_stride(K);
    double *h = arena_alloc(&a, K, (size_t)stride * sizeof *h);
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = i; j < K; j++)
            h[i * stride + j] = 5000 + (i == j ? 1 : 0);
    double *u = copy_of(&a, h, K);
    T_STATUS_OK(factor_inverse(u, K, &a, 2));
    T_NEAR(defect(&a, u, h, K), 0, 1e6 * K * DBL_EPSILON);
    /* Row i of U: inverse of c 11^T + 1 with n = K - i columns left, in closed form:
     * U_ij / U_ii = -c / (1 + c (n - 1)) */
    for (int64_t i = 0; i < K - 1; i++) {
        double want = -5000 / (1 + 5000.0 * (double)(K - i - 1));
        T_NEAR(u[i * stride + K - 1] / u[i * stride + i], want, 1e-9 * fabs(want));
    }
    arena_close(&a);
}

TEST(factor_refuses_what_has_none)
{
    Arena   a = {0};
    int64_t K = 150, stride = factor_stride(K);
    double *h = make_h(&a, K, 40, 0, 3);  // 40 rows of 150 columns: rank 40
    T_FAILS(factor_inverse(h, K, &a, 2), ERR_RANGE, "150 columns is not positive definite");
    h = make_h(&a, K, 400, 0, 3);
    for (int64_t i = 0; i < K; i++) {  // column 20 is column 100
        double *from = i <= 100 ? h + i * stride + 100 : h + 100 * stride + i;
        *(i <= 20 ? h + i * stride + 20 : h + 20 * stride + i) = *from;
    }
    h[20 * stride + 20] = h[20 * stride + 100] = h[100 * stride + 100];
    T_FAILS(factor_inverse(h, K, &a, 2), ERR_RANGE, "definite: 20 is, within rounding, a sum");
    h = make_h(&a, K, 400, 0, 3);
    h[60 * stride + 149] = NAN;
    T_FAILS(factor_inverse(h, K, &a, 2), ERR_RANGE, "not positive definite: 60");
    h = make_h(&a, K, 400, 0, 3);
    h[149 * stride + 149] = INFINITY;
    T_FAILS(factor_inverse(h, K, &a, 2), ERR_RANGE, "not positive definite: 149");
    h = make_h(&a, K, 400, 0, 3);
    h[0] = -1;
    T_FAILS(factor_inverse(h, K, &a, 2), ERR_RANGE, "not positive definite: 0");
    arena_close(&a);
}

/* Column 0 less what column K - 1 says of it is `left` of its diagonal; all others are
 * units. */
static double *nearly_a_sum(Arena *a, int64_t K, double left)
{
    int64_t stride = factor_stride(K);
    double *h = arena_alloc(a, K, (size_t)stride * sizeof *h);
    for (int64_t i = 0; i < K; i++)
        h[i * stride + i] = 1;
    h[K - 1] = 1;
    h[(K - 1) * stride + K - 1] = 1 + left;
    return h;
}

/* Lost is what K roundings may be, not less and not a million times more. */
TEST(factor_refuses_where_rounding_begins)
{
    static const int64_t ROWS[] = {2, 16, 200};
    for (int i = 0; i < 3; i++) {
        Arena   a = {0};
        int64_t K = ROWS[i];
        double *h = nearly_a_sum(&a, K, 0.5 * (double)K * DBL_EPSILON);
        T_FAILS(factor_inverse(h, K, &a, 1), ERR_RANGE, "definite: 0 is, within rounding");
        h = nearly_a_sum(&a, K, 4 * (double)K * DBL_EPSILON);
        T_STATUS_OK(factor_inverse(h, K, &a, 1));
        h = nearly_a_sum(&a, K, 1e-8);
        T_STATUS_OK(factor_inverse(h, K, &a, 1));
        /* 1 - 1 / (1 + 1e-8) is off by DBL_EPSILON: 2e-8 of it, half of that in its root */
        T_NEAR(h[0], 1 / sqrt(1e-8 / (1 + 1e-8)), 2e4 * 1e-8);
        arena_close(&a);
    }
}

/* A pivot is judged by its own diagonal, in every block. */
TEST(factor_takes_columns_of_all_sizes)
{
    enum { K = 200 };
    Arena   a = {0};
    int64_t stride = factor_stride(K);
    double *h = arena_alloc(&a, K, (size_t)stride * sizeof *h);
    for (int64_t i = 0; i < K; i++)
        h[i * stride + i] = i < 96 ? 1 : i < 192 ? 1e-20 : 1e20;
    T_STATUS_OK(factor_inverse(h, K, &a, 2));
    for (int64_t i = 0; i < K; i++) {
        double want = i < 96 ? 1 : i < 192 ? 1e10 : 1e-10;
        T_NEAR(h[i * stride + i], want, 1e-15 * want);
    }
    arena_close(&a);
}

TEST(factor_strides_spread_over_the_cache)
{
    for (int64_t K = 1; K < 700; K++) {
        int64_t stride = factor_stride(K);
        T_OK(stride >= K && stride < K + 32 && stride % 16 == 0 && stride % 128 != 0);
    }
}

TEST(factor_bits_do_not_depend_on_threads)
{
    Arena   a = {0};
    int64_t K = 331, stride = factor_stride(K);
    double *h = make_h(&a, K, 400, 0.01, 5), *one = copy_of(&a, h, K);
    T_STATUS_OK(factor_inverse(one, K, &a, 1));
    for (int threads = 2; threads < 5; threads++) {
        double *many = copy_of(&a, h, K);
        T_STATUS_OK(factor_inverse(many, K, &a, threads));
        for (int64_t i = 0; i < K; i++)
            T_OK(memcmp(one + i * stride + i, many + i * stride + i,
                        (size_t)(K - i) * sizeof *one) == 0);
    }
    arena_close(&a);
}

TEST(factor_survives_every_failed_allocation)
{
    Arena a = {0}, scratch = {0};
    for (int k = 1; k < 10; k++) {
        double *h = make_h(&a, 100, 200, 0.01, 5);
        arena_fail_at(k);
        Status s = factor_inverse(h, 100, &scratch, 2);
        arena_fail_at(0);
        arena_close(&scratch);
        if (s == OK) {
            T_OK(k > 3);
            arena_close(&a);
            return;
        }
        T_OK(s == ERR_MEMORY && strstr(status_text(), "out of memory"));
    }
    T_OK(!"the loop should end by success");
}
