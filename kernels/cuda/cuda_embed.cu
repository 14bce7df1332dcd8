/* cuda_embed.cu - rows of the embedding table.
 * y[t] = table[ids[t]]
 * shapes  table [V,C], y [T,C] f32; ids [T] host memory, checked by op_embed
 * cost    8TC bytes: memory bound
 * launch  one block of 256 a row, four values a thread at a time
 * sums    none
 * NaN     stays
 * test    tests/cuda/test_cuda_rows.c */
#include "kernels/cuda/cuda_launch.cuh"

static __global__ void embed_kernel(float *y, const float *table, const int32_t *ids,
                                    int64_t T, int64_t C)
{
    for (int64_t t = blockIdx.x; t < T; t += gridDim.x) {
        const float *row = table + ids[t] * C;
        for (int64_t i = 4 * threadIdx.x; i < C; i += 4 * BLOCK)
            store_four(y + t * C, i, C, load_four(row, i, C));
    }
}

Status cuda_embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids)
{
    int64_t T = y->shape[0], C = y->shape[1];
    void   *sent;
    TRY(cuda_begin(be, y));
    if (T == 0 || C == 0)
        return OK;
    TRY(cuda_sent(be, &sent, ids, (size_t)T * sizeof *ids));
    embed_kernel<<<grid_for(T * BLOCK), BLOCK, 0, cuda_state(be)->stream>>>(
        (float *)y->data, (const float *)table->data, (const int32_t *)sent, T, C);
    return cuda_launched("embed");
}
