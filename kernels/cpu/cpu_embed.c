/* cpu_embed.c - rows of the embedding table.
 * y[t] = table[ids[t]]
 * shapes  table [V,C], y [T,C] f32, ids[T] checked by op_embed
 * cost    8TC bytes: memory bound
 * test    tests/kernels/test_embed.c */
#include <string.h>

#include "kernels/cpu/cpu_backend.h"

Status cpu_embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids)
{
    int64_t      T = y->shape[0], C = y->shape[1];
    const float *from = table->data;
    float       *to = y->data;
#pragma omp parallel for num_threads(cpu_threads(be, T * C))
    for (int64_t t = 0; t < T; t++)
        memcpy(to + t * C, from + ids[t] * C, (size_t)C * sizeof *to);
    return OK;
}
