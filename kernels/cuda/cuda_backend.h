/* cuda_backend.h - what the files of the CUDA backend share.
 *
 * Files that hold kernels are C++ (.cu); those that only call the runtime are C. All work of a
 * backend runs on one stream, in order, so memory that an operation gives back may be handed
 * out again while its kernels still run: whoever takes it next comes after them. Only what
 * crosses to the host waits. */
#ifndef DQ_CUDA_BACKEND_H
#define DQ_CUDA_BACKEND_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/backend.h"

typedef struct CudaBlas CudaBlas;        // cuda_blas.h
typedef struct CudaBlock CudaBlock;      // cuda_memory.c
typedef struct CudaStream CudaStream;    // cuda_weights.h
typedef struct CudaTwin CudaTwin;        // cuda_twin.h

/* Pinned memory that small and large copies go through, one half at a time: a half is
 * filled again when what was sent from it has arrived. */
typedef struct {
    char       *half[2];
    cudaEvent_t arrived[2];
    int         at;          // half in use
    size_t      used;        // bytes of it
} CudaStage;

/* Backend.state of "cuda". */
typedef struct {
    int          device;
    char         name[256];        // "NVIDIA H200"
    int          capability;       // 80: compute capability 8.0
    int          n_multiprocessors;
    size_t       shared_most;      // bytes of shared memory a block may ask for
    cudaStream_t stream;           // all kernels and copies but the next one's
    cudaStream_t ahead;            // weights on their way
    Arena        arena;            // what describes memory, until close
    CudaStage    stage;
    CudaBlock   *live;             // tensors, newest first; given back by rewind
    CudaBlock   *scratch;          // of the operation at work
    CudaBlock   *spare;            // waiting for a use of about their size
    CudaBlock   *unused;           // descriptions without memory
    size_t       held;             // bytes of device memory in all of them
    size_t       limit;            // most of it, SIZE_MAX: what there is
    CudaBlas    *blas;             // NULL before its first use
    CudaStream  *weights;          // of linear layers; NULL: none yet
    CudaTwin    *twin;             // of the tensor rounded last; NULL: none is wanted
} CudaState;

static inline CudaState *cuda_state(Backend *be)
{
    return (CudaState *)be->state;
}

/* --- cuda_memory.c --- */

/* Every operation begins with it: gives back the scratch of the one before and says that it
 * will write to `written` (NULL: to nothing that has a tensor). */
MUST_USE Status cuda_begin(Backend *be, const Tensor *written);
/* Device memory of the operation at work, aligned to 256, not zeroed. ERR_MEMORY. */
MUST_USE Status cuda_scratch(Backend *be, void **out, size_t bytes);
/* Parts of an operation that come again and again give back what they took since the mark;
 * kernels that run still may read it. */
CudaBlock *cuda_scratch_mark(Backend *be);
void       cuda_scratch_rewind(Backend *be, CudaBlock *mark);
/* Device memory until backend_rewind. */
MUST_USE Status cuda_keep(Backend *be, void **out, size_t bytes);
/* In order on the stream, through pinned memory; the host's is free at once. */
MUST_USE Status cuda_send(Backend *be, void *device, const void *host, size_t bytes);
/* cuda_scratch and cuda_send. */
MUST_USE Status cuda_sent(Backend *be, void **device, const void *host, size_t bytes);
/* After all that was asked for so far; waits for it. */
MUST_USE Status cuda_fetch(Backend *be, void *host, const void *device, size_t bytes);
MUST_USE Status cuda_zero(Backend *be, void *device, size_t bytes);

/* Device memory that stays until cuda_give; *out NULL with an error. */
MUST_USE cudaError_t cuda_take(CudaState *st, void **out, size_t bytes);
void                 cuda_give(CudaState *st, void *memory, size_t bytes);
/* Back to the device what waits for its next use. */
void                 cuda_trim(CudaState *st);

Status cuda_alloc(Backend *be, Tensor *t);
void   cuda_rewind(Backend *be, ArenaMark mark);
void   cuda_memory_close(CudaState *st);
Status cuda_stage_open(CudaState *st);
Status cuda_upload(Backend *be, Tensor *dst, const void *host);
Status cuda_download(Backend *be, void *host, const Tensor *src);

/* --- cuda_error.c --- */

/* ERR_DEVICE, or ERR_MEMORY where that is it: "cuda: cudaMemcpyAsync: <its sentence>". call
 * may be the text of the whole call: what stands before '(' is taken. */
Status cuda_error(cudaError_t e, const char *call);
/* Of the kernel launched last: "cuda: kernel norm: <sentence>". */
MUST_USE Status cuda_launched(const char *kernel);

#define CUDA_TRY(call)                                \
    do {                                              \
        cudaError_t cuda_try_ = (call);               \
        if (cuda_try_ != cudaSuccess)                 \
            return cuda_error(cuda_try_, #call);      \
    } while (0)

/* --- the operations, one a file; shapes were checked in backend*.c --- */

Status cuda_linear_pack(Backend *be, Linear *out, const float *w, const float *bias);
Status cuda_linear_codes(Backend *be, Linear *out, const Codes *c, const float *bias);
Status cuda_product(Backend *be, const MatrixProduct *p);
Status cuda_gram(Backend *be, double *gram, const Tensor *x, Dtype dtype);
Status cuda_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w);
Status cuda_embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids);
Status cuda_rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
                 const int32_t *positions);
Status cuda_attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                      const Tensor *v, const Attention *a);
Status cuda_norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n);
Status cuda_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act);
Status cuda_poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4]);
Status cuda_convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, const Tensor *b,
                     const Batch *batch, Tensor *state);
Status cuda_scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
                 const Scan *s, const Batch *batch, Tensor *state);
Status cuda_add(Backend *be, Tensor *y, const Tensor *x);
Status cuda_copy(Backend *be, Tensor *y, const Tensor *x);
Status cuda_sigmoid(Backend *be, Tensor *x);
Status cuda_fakequant_rows(Backend *be, Tensor *x, const Batch *batch, const RowRounding *r);
Status cuda_fakequant_kv(Backend *be, Tensor *k, Tensor *v, const Batch *batch,
                         int64_t head_dim, int bits);
Status cuda_record(Backend *be, const Tensor *x, const Batch *batch, const int32_t *positions,
                   ValueRecord *r);
Status cuda_score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                  float *logprob, int32_t *best);
Status cuda_divergence(Backend *be, const HeadPair *p);

#ifdef __cplusplus
}
#endif
#endif
