/* test_narrow.c - f32 rounded to what a file stores. */
#include "quant/formats/narrow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/check.h"

TEST(numbers_are_rounded_wherever_they_lie)
{
    enum { N = 16384 * 17 + 5 };  // several threads, the last chunk ragged
    uint64_t       seed = 3;
    float         *x = malloc(N * sizeof *x);
    unsigned char *out = malloc(4 * N + 2);
    for (int i = 0; i < N; i++)
        x[i] = check_normal(&seed);
    for (int d = DTYPE_F32; d <= DTYPE_BF16; d++) {
        size_t size = dtype_size((Dtype)d);
        memset(out, 0xab, 4 * N + 2);
        T_OK(narrow_f32(out + 1, (Dtype)d, x, N) == N);
        T_OK(out[0] == 0xab && out[1 + N * size] == 0xab);
        for (int i = 0; i < N; i++) {
            uint32_t got = 0, want = f32_bits(x[i]);
            memcpy(&got, out + 1 + (size_t)i * size, size);
            want = d == DTYPE_F16 ? f16_from_f32(x[i]) : d == DTYPE_BF16 ? bf16_from_f32(x[i])
                                                                        : want;
            T_OK(got == want);
        }
    }
    free(x);
    free(out);
}

TEST(the_first_that_does_not_fit_is_found)
{
    enum { N = 16384 * 17 + 5 };
    static const struct {
        Dtype d;
        float x;
        bool  fits;
    } ROWS[] = {
        {DTYPE_F16, 65519.996f, true}, {DTYPE_F16, 65520, false}, {DTYPE_F16, -1e6f, false},
        {DTYPE_F16, NAN, false},        {DTYPE_BF16, 3.38e38f, true},
        {DTYPE_BF16, 3.4e38f, false},
        {DTYPE_BF16, -INFINITY, false}, {DTYPE_F32, 3.4e38f, true}, {DTYPE_F32, NAN, false},
        {DTYPE_F32, INFINITY, false},
    };
    static const int AT[] = {0, 1, 16383, 16384, 16384 * 9 + 7, N - 1};
    float *x = calloc(N, sizeof *x), *out = malloc(N * sizeof *out);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        for (size_t j = 0; j < sizeof AT / sizeof *AT; j++) {
            x[AT[j]] = x[N - 1] = ROWS[i].x;
            T_OK(narrow_f32(out, ROWS[i].d, x, N) == (ROWS[i].fits ? N : AT[j]));
            x[AT[j]] = x[N - 1] = 0;
        }
    T_OK(narrow_f32(out, DTYPE_F16, x, 0) == 0);
    free(x);
    free(out);
}
