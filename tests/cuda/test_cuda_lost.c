/* test_cuda_lost.c - a GPU that fails in the middle: told by the next call that waits for it and
 * by all after that, and closing is safe. Nothing runs in this process afterwards, so that it
 * is a program of one test. */
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

/* The simulator's: what it found so far, and forgets. NULL on a GPU. */
extern int cusim_findings(int reset) __attribute__((weak));

TEST(a_lost_gpu_is_told_and_closed)
{
    enum { T = 4, C = 32 };
    Arena       arena = {0};
    Backend     be;
    ValueRecord r;
    Tensor      x, y, bad, host = ref_normal(&arena, T, C, 1);
    int32_t     start[2] = {0, T}, positions[T] = {0, 1, 2, 3};
    int64_t     number = 0;
    float       back[T * C];
    T_GPU(&be);
    T_STATUS_OK(value_record_init(&r, &arena, 0, C, T));
    T_STATUS_OK(ref_cuda_exact(&be, &x, host.data, T, C));
    T_STATUS_OK(ref_cuda_exact(&be, &y, host.data, T, C));
    bad = tensor_2d(DTYPE_F32, (void *)0x40, T, C);   // no memory of anyone's
    T_STATUS_OK(op_add(&be, &y, &bad));               // its kernel has yet to run
    T_FAILS(backend_download(&be, back, &y), ERR_DEVICE, "cuda: ");
    T_OK(!strstr(status_text(), "use --device cpu"));
    T_FAILS(op_record(&be, &x, &(Batch){1, start, &number}, positions, &r), ERR_DEVICE,
            "cuda: ");
    T_OK(r.moments.count == 0 && r.peaks.n == 0);
    Status s = op_add(&be, &y, &x);
    T_OK(s == OK || s == ERR_DEVICE);
    T_FAILS(backend_upload(&be, &y, host.data) == OK ? backend_download(&be, back, &y)
                                                     : ERR_DEVICE, ERR_DEVICE, "cuda: ");
    backend_close(&be);
    arena_close(&arena);
    T_OK(!cusim_findings || cusim_findings(1) > 0);
}
