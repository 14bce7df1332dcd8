/* cpu_backend.h - what the files of the CPU backend share. */
#ifndef DQ_CPU_BACKEND_H
#define DQ_CPU_BACKEND_H

#include "kernels/backend.h"
#include "kernels/cpufeat.h"

typedef struct Gemm Gemm;          // cpu_gemm.h
typedef struct GemmEngine GemmEngine;
typedef struct CpuWeights CpuWeights;
typedef struct CpuMeasure CpuMeasure;

typedef struct {
    Arena  arena;                  // holds only this
    void  *at;
    size_t bytes;
} CpuScratch;

/* Backend.state of "cpu". */
typedef struct {
    Arena       arena;             // engine and its primitives, until close
    CpuScratch  scratch, spare;
    GemmEngine *gemms;
    CpuMeasure *measure;           // NULL: it computes. Else nothing has memory (cpu_measure.c)
} CpuState;

static inline CpuState *cpu_state(Backend *be)
{
    return be->state;
}

/* Memory for one operation, aligned to 64, not zeroed; valid until the next
 * call. It stays with the backend: fresh pages for every operation would cost
 * more than some of them. ERR_MEMORY. An operation takes it before it looks at what is in a
 * tensor: one that is measured ends here (cpu_measure.c). */
MUST_USE Status cpu_scratch(Backend *be, void **out, size_t bytes);
/* Memory of the backend for what a tensor or packed weights hold; NULL where there is none. */
void *cpu_take(Backend *be, int64_t n, size_t size);
/* For an operation of two products: what cpu_scratch gave stays valid over the next
 * call, which takes another piece. */
void cpu_scratch_swap(Backend *be);

/* Threads worth starting for `work` multiplications or moves. */
static inline int cpu_threads(const Backend *be, int64_t work)
{
    return work < 1 << 15 ? 1 : be->n_threads;
}

/* Row-wise work of the small operations (cpu_rows_isa.c), once an instruction set. */
typedef struct {
    void (*round_bf16)(uint16_t *y, const float *x, int64_t n);
    void (*round_to_bf16)(float *y, const float *x, int64_t n);  // kept as f32; y may be x
    /* low in the low halves of y, high in the high ones; y may be low. */
    void (*pair_bf16)(uint32_t *y, const float *low, const float *high, int64_t n);
    void (*rope)(float *x, int64_t half, const float *cs, const float *sn);
    void (*add)(float *y, const float *x, int64_t n);
    void (*glu[N_ACTS])(float *gate, const float *up, int64_t n);  // up NULL: none
} RowsIsa;

/* Norms of one row or head (cpu_norm_isa.c). Sums run in 16 fixed lanes. */
typedef struct {
    const float *w, *b;  // [n] or NULL
} NormVectors;

typedef struct {
    void (*rms)(float *y, const float *x, const NormVectors *v, int64_t n, float eps);
    void (*centred)(float *y, const float *x, const NormVectors *v, int64_t n, float eps);
    void (*poly_glu)(float *gate, const float *up, const float poly[4], int64_t n);
} NormIsa;

/* Panels of weights times one row or many (cpu_panel_isa.c): each of y [rows,64], rows ldy
 * apart, is one chain of sums over K, in order. Layouts: cpu_gemm.h; x [rows,K], K even. */
typedef struct {
    void (*row_f32)(float *c, const float *x, const float *panel, int64_t K);
    void (*row_bf16)(float *c, const float *x, const uint16_t *panel, int64_t K);
    void (*rows_f32)(float *y, int64_t ldy, const float *x, int64_t rows, const float *panel,
                     int64_t K);
    /* NULL where cpu_has_bf16_dot() is never true. */
    void (*rows_bf16)(float *y, int64_t ldy, const uint16_t *x, int64_t rows,
                      const uint16_t *panel, int64_t K);
    void (*expand)(float *out, const uint16_t *panel, int64_t K);  // to the f32 layout
} PanelIsa;

/* Panels of codes (cpu_codes_isa.c), by number; layouts: cpu_gemm.h. */
typedef struct {
    /* c [64] of x [k_pad]; sums [n_groups] of x, looked at where there are offsets. */
    void (*row)(float *c, const float *x, const float *sums, const CpuWeights *w,
                int64_t panel);
    /* Of codes of 4 and 6 bits and x in bf16, as `pairs` puts it from its floats; NULL where
     * cpu_has_bf16_dot() is never true. */
    void (*pairs)(uint32_t *to, const float *x, int64_t n_blocks, int bits);
    void (*dots)(float *c, const uint32_t *x, const float *sums, const CpuWeights *w,
                 int64_t panel);
    /* To the layouts of numbers; `bf16` rounds to those but keeps them as f32. */
    void (*decode)(float *out, const CpuWeights *w, int64_t panel, bool bf16);
    void (*decode_bf16)(uint16_t *out, const CpuWeights *w, int64_t panel);
} CodesIsa;

/* log sum exp of a row of logits that comes in pieces (cpu_score_isa.c). */
typedef struct {
    float   top;      // largest so far, NaN passed over
    int32_t best;     // where it first stood
    double  sum;      // of exp(x - top)
} ScoreRow;

typedef struct {
    /* The next n logits, n % 64 == 0, the first of them number `first`. */
    void (*fold)(ScoreRow *row, const float *x, int64_t n, int64_t first);
    /* Adds what follows. */
    void (*merge)(ScoreRow *row, const ScoreRow *next);
} ScoreIsa;

/* Two rows of logits that come in the same pieces (cpu_divergence_isa.c): the model's
 * and the reference's. */
typedef struct {
    float   top[2];   // largest so far, NaN passed over
    int32_t best[2];  // where it first stood
    double  sum[2];   // of exp(x - top)
    double  cross;    // of exp(reference - its top) (reference - model)
} DivergenceRow;

typedef struct {
    /* The next n logits of both, n % 64 == 0, the first of them number `first`. */
    void (*fold)(DivergenceRow *row, const float *model, const float *reference, int64_t n,
                 int64_t first);
    /* Adds what follows. */
    void (*merge)(DivergenceRow *row, const DivergenceRow *next);
} DivergenceIsa;

/* Fake quantization (cpu_fakequant_isa.c), all in place. */
typedef struct {
    uint32_t (*absmax)(const float *x, int64_t n);   // bits of the largest magnitude
    void (*symmetric)(float *x, int64_t n, float scale, float low, float high);
    void (*span)(float *x, int64_t n, float levels);
    void (*columns)(float *x, int64_t rows, int64_t n, float levels);  // x [rows,n]
} FakequantIsa;

extern const RowsIsa   rows_plain, rows_avx2, rows_avx512;
extern const NormIsa   norm_plain, norm_avx2, norm_avx512;
extern const PanelIsa  panel_plain, panel_avx2, panel_avx512;
extern const CodesIsa  codes_plain, codes_avx2, codes_avx512;
extern const ScoreIsa  score_plain, score_avx2, score_avx512;
extern const FakequantIsa fakequant_plain, fakequant_avx2, fakequant_avx512;
extern const DivergenceIsa divergence_plain, divergence_avx2, divergence_avx512;

const RowsIsa  *cpu_rows(void);
const NormIsa  *cpu_norm_isa(void);
const PanelIsa *cpu_panel(void);
const CodesIsa *cpu_codes(void);
const ScoreIsa *cpu_score_isa(void);
const FakequantIsa *cpu_fakequant_isa(void);
const DivergenceIsa *cpu_divergence_isa(void);

/* cpu_measure.c */
void *cpu_measure_take(Backend *be, size_t bytes);
MUST_USE Status cpu_measure_scratch(Backend *be, size_t bytes);

/* cpu_open.c */
void   cpu_close(Backend *be);
Status cpu_alloc(Backend *be, Tensor *t);

/* The operations, one a file; shapes were checked in backend.c. */
Status cpu_linear_pack(Backend *be, Linear *out, const float *w, const float *bias);
Status cpu_linear_rows(Backend *be, Linear *out, const RowReader *rows, const float *bias);
Status cpu_linear_codes(Backend *be, Linear *out, const Codes *c, const float *bias);
Status cpu_pack_bias(Backend *be, Linear *out, const float *bias);
Status cpu_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w);
Status cpu_linears(Backend *be, const LinearOut *outs, int n, const Tensor *x);
Status cpu_product(Backend *be, const MatrixProduct *p);
Status cpu_gram(Backend *be, double *gram, const Tensor *x, Dtype dtype);
Status cpu_embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids);
Status cpu_norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n);
Status cpu_rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
                const int32_t *positions);
Status cpu_attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                     const Tensor *v, const Attention *a);
Status cpu_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act);
Status cpu_poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4]);
Status cpu_convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, const Tensor *b,
                    const Batch *batch, Tensor *state);
Status cpu_scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
                const Scan *s, const Batch *batch, Tensor *state);
Status cpu_add(Backend *be, Tensor *y, const Tensor *x);
Status cpu_copy(Backend *be, Tensor *y, const Tensor *x);
Status cpu_sigmoid(Backend *be, Tensor *x);
Status cpu_fakequant_rows(Backend *be, Tensor *x, const Batch *batch, const RowRounding *r);
Status cpu_fakequant_kv(Backend *be, Tensor *k, Tensor *v, const Batch *batch, int64_t head_dim,
                        int bits);
Status cpu_record(Backend *be, const Tensor *x, const Batch *batch, const int32_t *positions,
                  ValueRecord *r);
Status cpu_score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                 float *logprob, int32_t *best);
Status cpu_divergence(Backend *be, const HeadPair *p);

#endif
