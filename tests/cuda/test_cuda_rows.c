/* test_cuda_rows.c - operations on rows and on values, GPU against double. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

TEST(add_is_exact)
{
    static const int64_t SIZES[] = {1, 31, 255, 257, 1031};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        enum { T = 3 };
        int64_t C = SIZES[i];
        Backend be;
        Arena   arena = {0};
        Tensor  a = ref_normal(&arena, T, C, 1), b = ref_normal(&arena, T, C, 2), x, y;
        float  *pa = a.data, *pb = b.data, *got = ref_guarded(&arena, T * C);
        bool    whole;
        pb[T * C / 2] = NAN;
        T_GPU(&be);
        T_STATUS_OK(ref_cuda_tensor(&be, &y, pa, T, C, i % 3));
        T_STATUS_OK(ref_cuda_exact(&be, &x, pb, T, C));
        T_STATUS_OK(op_add(&be, &y, &x));
        T_STATUS_OK(ref_cuda_read(&be, got, &y, &whole));
        T_OK(whole);
        for (int64_t j = 0; j < T * C; j++)
            T_OK(j == T * C / 2 ? isnan(got[j]) : got[j] == pa[j] + pb[j]);
        backend_close(&be);
        arena_close(&arena);
    }
}
