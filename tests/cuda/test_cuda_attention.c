/* test_cuda_attention.c - attention in f32 on the GPU, against double and against the CPU. */
#include <math.h>
#include <string.h>

#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "tests/cuda/ref_cuda_case.h"

/* Largest error of all sequences, relative to the largest output. */
static double case_error(Case *c)
{
    double worst = 0;
    for (int64_t b = 0; b < c->shape.n_sequences; b++) {
        RefMaps r;
        Arena arena = {0};
        if (ref_attention(&r, &arena, c, b) != OK)
            return NAN;
        double e = r.T ? ref_error(c, &r, b) : 0;
        arena_close(&arena);
        if (!(e <= worst))
            worst = e;
    }
    return worst;
}

/* tol: as in tests/kernels/test_attention.c. A norm of nearly cancelled rows would multiply
 * errors without end: eps is large. */
static void check_case(Backend *be, const CaseShape *shape, const CaseWide *wide, int64_t shift)
{
    Case c;
    T_STATUS_OK(case_init_wide(&c, shape, wide, 1));
    c.a.norm_eps = c.a.norm_eps >= 0 ? 0.1f : -1;
    T_STATUS_OK(ref_cuda_case_run(be, &c, shift));
    T_NEAR(case_error(&c), 0, 2e-6);
    arena_close(&c.arena);
}

/* Both sides of tiles of queries (64 lines) and keys (128, sets of 32), of chunks of dims (16)
 * and of columns (64, 128, 256 and several times), with and without a cache. */
static const CaseShape SHAPES[] = {
    {4, 2, 1, 8, 3, {1, 1, 3}, {1, 9, 3}},
    {4, 2, 2, 8, 3, {1, 1, 3}, {1, 9, 3}},
    {2, 1, 1, 24, 3, {63, 64, 65}, {63, 128, 129}},
    {1, 1, 2, 16, 3, {31, 32, 33}, {127, 128, 129}},
    {2, 2, 2, 33, 2, {40, 0}, {160, 7}},
    {2, 2, 1, 100, 1, {5}, {70}},
    {1, 1, 2, 36, 1, {9}, {33}},
    {1, 1, 2, 64, 1, {9}, {33}},
    {2, 1, 2, 128, 1, {3}, {140}},
    {1, 1, 1, 256, 1, {4}, {20}},
    {1, 1, 2, 256, 1, {4}, {20}},
    {2, 1, 2, 1, 1, {20}, {20}},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

TEST(attention_equals_whole_maps_in_double)
{
    Backend be;
    T_GPU(&be);
    for (int i = 0; i < N_SHAPES; i++)
        check_case(&be, &SHAPES[i], &(CaseWide){0}, i % 3 == 2 ? 1 : 0);
    backend_close(&be);
}
