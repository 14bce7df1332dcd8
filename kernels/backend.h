/* backend.h - the operations that a forward pass is written in.
 *
 * One table of functions a device. Callers use the op_ functions, which check
 * shapes once and then call the table; all tensors of an op live in the memory
 * of its backend. Activations are f32. A Linear made as bf16 rounds its input
 * to bf16 and sums in f32. Every op is deterministic: the result depends
 * neither on the number of threads nor on the other rows of a batch; but cuBLAS chooses
 * the order of its sums by the shape, so on a GPU a row of a linear layer may differ in
 * its last bits where T differs. */
#ifndef DQ_BACKEND_H
#define DQ_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"
#include "kernels/codes.h"
#include "kernels/record.h"
#include "kernels/tensor.h"

typedef struct Backend Backend;

/* A weight matrix [N,K] packed for its backend, y = x W^T + bias. */
typedef struct {
    int64_t n, k;           // outputs N, inputs K
    Dtype   dtype;          // DTYPE_F32 or DTYPE_BF16: of the product
    int     bits;           // 0: numbers of dtype; 4, 6, 8: codes, decoded as they are used
    void   *packed;         // the backend's own
    Tensor  bias;           // [N] f32, data NULL when there is none
} Linear;

typedef enum { ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_RELU, N_ACTS } Activation;

/* Sequences of a batch lie one after another in the rows of every tensor.
 * Row t of sequence b: start[b] <= t < start[b + 1]. */
typedef struct {
    int64_t        n_sequences;
    const int32_t *start;         // [n_sequences + 1], host memory
    const int64_t *number;        // [n_sequences] number of the window, host
} Batch;

typedef enum { SCALE_TENSOR, SCALE_HEAD, SCALE_ROW, N_SCALES } LogitScale;

/* Whole maps of one layer for one sequence of the batch, host memory, asked
 * for by name: small windows only. NULL members are not filled. */
typedef struct {
    int64_t sequence;       // index within the batch, -1 for none
    int64_t n_positions;    // S: rows and columns taken, from position 0
    float  *maps;           // [H,M,S,S] softmax weights, 0 above the diagonal
    float  *diff;           // [H,S,S] A1 - lambda A2
} MapWindow;

/* A marked span of key positions [first, end) a sequence; first == end: none. */
typedef struct {
    int32_t first, end;
} Span;

/* Causal attention with one or two maps a head, in canonical order. Heads go in blocks of
 * n_signals, which share one noise map; a block has n_signals + 1 rows of q, the noise last
 * (n_maps 1: no noise, a row a head). With b = h / n_signals:
 *   q [T, Q, d]     map 0 of head h: row b (n_signals + 1) + h mod n_signals
 *                   map 1:           row b (n_signals + 1) + n_signals
 *   k [S, G*K, d]   map m of group g is row g*K + m, or g where shared_keys (K = 1, else
 *                   K = n_maps); head h uses g = h / (H/G)
 *   v [S, G, dv]
 *   out [T, H, dv] = A1 v - lambda A2 v, A = softmax(q k^T * scale, causal)
 * then, where norm_eps >= 0, each head's dv values are divided by their RMS
 * (eps inside the root), times norm_weight[dv] if given, times out_scale.
 * Keys: sequence b has keys key_start[b] .. key_start[b+1] of k and v; its
 * T_b queries are the last T_b of its S_b keys (a cache gives S_b > T_b). A query looks
 * back on `reach` keys, itself among them. */
typedef struct {
    int64_t        n_heads, n_groups, n_maps, head_dim;
    int64_t        n_signals;        // 0 and 1: each head has its own noise map
    bool           shared_keys;      // both maps of a head look at the same keys
    int64_t        value_dim;        // dv; 0: d * n_maps
    int64_t        reach;            // 0: all keys before it
    float          scale;
    float          lambda;           // n_maps == 2 only
    const float   *lambda_rows;      // [T,H] in the backend's memory, in place of lambda; or NULL
    float          norm_eps;         // < 0: no norm
    const float   *norm_weight;      // [dv] in the backend's memory, or NULL
    float          out_scale;
    Dtype          dtype;            // F32, or BF16: rounds q, k, v, weights
    Batch          batch;
    const int32_t *key_start;        // [n_sequences + 1]; NULL: same as batch
    int            logit_bits;       // 16 none; 8, 6, 4: fake quantization
    LogitScale     logit_scale;
    LogitRecord   *record;           // NULL: no recording
    ShareRecord   *shares;           // [n_heads] or NULL
    const uint8_t *share_rows;       // [T] not 0: measured; NULL: every SHARE_STRIDE-th
    const Span    *spans;            // [n_sequences] or NULL
    MapWindow     *window;           // NULL: none
} Attention;

/* c [M,N] = alpha a b + beta c, f32, rows lda, ldb, ldc apart. a_t: a lies as
 * [K,M], b_t: b lies as [N,K]. c overlaps neither a nor b. beta 0: c need not be
 * set. All in the memory of the backend. */
typedef struct {
    int64_t      m, n, k;
    float        alpha, beta;
    const float *a, *b;
    int64_t      lda, ldb, ldc;
    bool         a_t, b_t;
    float       *c;
} MatrixProduct;

/* The last layers of two models on the same T rows: [0] the model, [1] its reference.
 * All but x is host memory. */
typedef struct {
    const Tensor  *x[2];        // [T,K], each with its own K
    const Linear  *head[2];     // [V,K]
    const int32_t *targets;     // [T], < 0: none
    double        *kl;          // [T] KL(p_reference || p) in nats
    double        *logprob[2];  // [T] log p(target), 0 without one
    int32_t       *best[2];     // [T] first argmax
} HeadPair;

/* Inputs of a linear layer as few bits would hold them: x' = s round(x / s), half to even,
 * s = max|x| / (2^(bits-1) - 1) of each row, or of all rows of a sequence. wide: codes
 * reach -2^(bits-1) and s = max|x| / (2^bits - 1) * 2, as compressed-tensors has it, where
 * the positive maximum itself is clamped. */
typedef struct {
    int  bits;          // 8, 6, 4
    bool by_sequence;
    bool wide;
} RowRounding;

/* A norm of rows, or of each head of a row by itself.
 *   RMS      y = w x / sqrt(mean x^2 + eps)
 *   centred  y = w (x - mean) / sqrt(mean (x - mean)^2 + eps) + b   (LayerNorm) */
typedef struct {
    Tensor w, b;      // [width], or [heads * width] where each head has its own; b data NULL: 0,
                      //   w data NULL: 1
    float  eps;
    bool   centred;
} Norm;

/* Mamba-1's selective scan (arXiv 2312.00752, 3.2 and algorithm 2), channel c, state n:
 *   delta_t = softplus(dt_t + dt_bias)
 *   h_t = exp(delta_t A) h_(t-1) + delta_t B_t u_t,   y_t = sum_n C_t h_t + D u_t
 * u, dt [T,E]; bc [T,2N]: B, then C; h starts at 0, or at state [2N,E], which then holds the
 * last one (one sequence). Rows n and N + n of state add up to h of state n: float alone loses
 * what a slow state gathers in a thousand steps. */
typedef struct {
    int64_t n_states;        // N
    Tensor  a, d, dt_bias;   // A = -exp(A_log) [E,N]; D [E]; [E]
} Scan;

/* Keys and values share scales in groups of so many. */
enum { KV_GROUP = 32 };

/* Rows of a matrix [N,K] as they are asked for: first .. first + n into w [n,K]. */
typedef struct {
    Status (*read)(void *context, float *w, int64_t first, int64_t n);
    void    *context;
} RowReader;

/* A layer and what it makes, op_linear's y. */
typedef struct {
    Tensor       *y;
    const Linear *w;
} LinearOut;

/* Table of a device. Shapes were checked by op_...; see there. */
typedef struct {
    const char *name;
    bool     on_host;                          // its memory is the host's
    void   (*close)(Backend *);
    Status (*alloc)(Backend *, Tensor *t);     // t->data for its shape; ERR_MEMORY
    void   (*rewind)(Backend *, ArenaMark);    // NULL where all memory lies in the arena
    void   (*limit)(Backend *, size_t);        // NULL where there is none
    Status (*upload)(Backend *, Tensor *dst, const void *host);
    Status (*download)(Backend *, void *host, const Tensor *src);
    Status (*linear_pack)(Backend *, Linear *, const float *w, const float *bias);
    Status (*linear_rows)(Backend *, Linear *, const RowReader *, const float *bias);
                                               // NULL: all rows are read, for linear_pack
    Status (*linear_codes)(Backend *, Linear *, const Codes *, const float *bias);
    Status (*product)(Backend *, const MatrixProduct *);
    Status (*gram)(Backend *, double *gram, const Tensor *x, Dtype);
    Status (*linear)(Backend *, Tensor *y, const Tensor *x, const Linear *w);
    Status (*linears)(Backend *, const LinearOut *outs, int n, const Tensor *x);
                                               // NULL: one after another
    Status (*embed)(Backend *, Tensor *y, const Tensor *table, const int32_t *ids);
    Status (*rope)(Backend *, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
                   const int32_t *positions);
    Status (*attention)(Backend *, Tensor *out, const Tensor *q, const Tensor *k,
                        const Tensor *v, const Attention *);
    Status (*norm)(Backend *, Tensor *y, const Tensor *x, int64_t heads, const Norm *);
    Status (*glu)(Backend *, Tensor *gate, const Tensor *up, Activation);
    Status (*poly_glu)(Backend *, Tensor *gate, const Tensor *up, const float poly[4]);
    Status (*convolve)(Backend *, Tensor *y, const Tensor *x, const Tensor *w, const Tensor *b,
                       const Batch *, Tensor *state);
    Status (*scan)(Backend *, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
                   const Scan *, const Batch *, Tensor *state);
    Status (*add)(Backend *, Tensor *y, const Tensor *x);
    Status (*copy)(Backend *, Tensor *y, const Tensor *x);
    Status (*sigmoid)(Backend *, Tensor *x);
    Status (*fakequant_rows)(Backend *, Tensor *x, const Batch *, const RowRounding *);
    Status (*fakequant_kv)(Backend *, Tensor *k, Tensor *v, const Batch *, int64_t head_dim,
                           int bits);
    Status (*record)(Backend *, const Tensor *x, const Batch *, const int32_t *positions,
                     ValueRecord *);
    Status (*score)(Backend *, const Tensor *x, const Linear *head, const int32_t *targets,
                    float *logprob, int32_t *best);
    Status (*divergence)(Backend *, const HeadPair *);
} BackendOps;

struct Backend {
    const BackendOps *ops;
    Arena             arena;      // host side memory of the backend
    int               n_threads;
    bool              tf32;       // set by the owner: a GPU may round the inputs of f32 linear
                                  //   layers to 11 bits (TF32)
    const char       *device;     // for people: "cpu", "cuda:0 NVIDIA H200"
    const char       *no_gpu;     // of "auto": why it took the CPU; NULL: it took a GPU, or this
                                  //   program was built without
    void             *state;      // the device's own
};

/* name: "cpu", "cuda" (the first of these), "cuda:1" or "auto" (the best that is there).
 * n_threads 0: all cores, or OMP_NUM_THREADS. ERR_DEVICE where that device is missing. */
MUST_USE Status backend_open(Backend *be, const char *name, int n_threads);
void            backend_close(Backend *be);
/* --- asking beforehand --- */

/* A CPU that computes nothing: its tensors and weights have no memory and must not be looked
 * at, its operations only note what they would take. Runs no divergence, no codes and no
 * groups of keys and values. */
MUST_USE Status backend_open_measure(Backend *be, int n_threads);
bool            backend_measures(const Backend *be);

typedef struct {
    size_t held;      // now
    size_t peak;      // most that was held at once, but for
    size_t scratch;   // what the operation that needs most takes beside it
} BackendMeasure;

/* Of a backend that measures (CHECK). */
BackendMeasure  backend_measured(const Backend *be);
/* A Linear of that shape, of weights that take so many bytes (codes). */
MUST_USE Status backend_measure_linear(Backend *be, Linear *out, int64_t n, int64_t k,
                                       Dtype dtype, size_t bytes);

/* Most bytes to take of the device's own memory. Nothing to the CPU, whose memory is the
 * host's. */
void            backend_limit(Backend *be, size_t bytes);

/* Tensor of f32 in the backend's memory, not zeroed, until backend_rewind. */
MUST_USE Status backend_tensor(Backend *be, Tensor *t, int n_dims, const int64_t *shape);
ArenaMark       backend_mark(const Backend *be);
void            backend_rewind(Backend *be, ArenaMark mark);
/* Gives back what waits on the host for the next pass: there is none for a while. */
void            backend_trim(Backend *be);
/* Is its memory the host's? Then nothing is gained by bringing it what the host has mapped. */
bool            backend_on_host(const Backend *be);
/* Host to backend and back, whole tensors, same dtype. */
MUST_USE Status backend_upload(Backend *be, Tensor *dst, const void *host);
MUST_USE Status backend_download(Backend *be, void *host, const Tensor *src);

/* Lets an f32 tensor have the numbers at `host`, for as long as they stay there: uploaded, or,
 * where the backend works in the host's memory, as they lie. What is written to the tensor
 * then may or may not be seen at `host` until backend_return, which puts the tensor's numbers
 * to `host` unless that is where it has them. */
MUST_USE Status backend_lend(Backend *be, Tensor *t, float *host);
/* The same for a tensor that is yet to be written: nothing is brought. */
void            backend_lend_room(Backend *be, Tensor *t, float *host);
MUST_USE Status backend_return(Backend *be, float *host, const Tensor *t);
/* The tensor's numbers where the host can read them; NULL where a device has them. */
const void     *backend_host(const Backend *be, const Tensor *t);

/* w [N,K] f32 on the host, bias [N] or NULL; dtype F32 or BF16. The packed
 * copy lives in the backend's memory; w is no longer needed. */
MUST_USE Status op_linear_pack(Backend *be, Linear *out, const float *w, const float *bias,
                               int64_t n, int64_t k, Dtype dtype);
/* The same, to the same bits, of a matrix that is read piece by piece as it is packed, each
 * row once and in order: there need not be room for all of it beside the packed copy. What a
 * reader fails with is passed up. */
MUST_USE Status op_linear_pack_rows(Backend *be, Linear *out, const RowReader *rows,
                                    const float *bias, int64_t n, int64_t k, Dtype dtype);
/* The same from codes, which stay codes: the packed copy takes bits / 8 bytes a
 * weight and 4 or 8 a group. dtype BF16 rounds decoded weights to bf16; T == 1
 * multiplies sums over codes by scales and rounds no weight. Groups of a multiple
 * of 16 weights, or of whole rows, else ERR_UNSUPPORTED; ERR_RANGE for a code that
 * does not fit its bits, scales and offsets that are not finite, and an order that
 * is no permutation. */
MUST_USE Status op_linear_codes(Backend *be, Linear *out, const Codes *c, const float *bias,
                                Dtype dtype);
/* A general product, for factorizations; sums in f32 in an order that depends on
 * the shape alone. */
MUST_USE Status op_product(Backend *be, const MatrixProduct *p);
/* On and right of the diagonal, gram [K,K] += x^T x for x [T,K]; gram is host memory, and
 * what is left of the diagonal ends up as anything. Sums over parts of at most GRAM_PART rows
 * are f32, parts are added in double. dtype BF16 allows to round x to bf16 first, as linear
 * layers of that dtype do: a CPU does so, a GPU need not. */
enum { GRAM_PART = 512 };
MUST_USE Status op_gram(Backend *be, double *gram, const Tensor *x, Dtype dtype);
/* y [T,N] = x [T,K] W^T + bias. T == 1 (a step of generation) goes another way
 * than a batch and may differ from it in the last bit; op_score alike. */
MUST_USE Status op_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w);
/* Layers of the same input, to the same bits: a step of generation has the threads meet once
 * for all of them. */
MUST_USE Status op_linears(Backend *be, const LinearOut *outs, int n, const Tensor *x);
/* y [T,C] = table [V,C] at ids[T] (host). ERR_RANGE names an id outside [0,V). */
MUST_USE Status op_embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids);
/* y [T,C] = x * w / sqrt(mean x^2 + eps); y may be x. op_norm of one head. */
MUST_USE Status op_rmsnorm(Backend *be, Tensor *y, const Tensor *x, const Tensor *w, float eps);
/* Norms each of the heads of every row of x [T, heads * width] by itself; y may be x.
 * ERR_UNSUPPORTED for b without centred. */
MUST_USE Status op_norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n);
/* x [T, heads*d] in place; cs, sn [P, rot/2], rot <= d: pairs (i, i + rot/2) of
 * each head turn by the angle of row positions[t] (host); the rest passes. */
MUST_USE Status op_rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs,
                        const Tensor *sn, const int32_t *positions);
MUST_USE Status op_attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                             const Tensor *v, const Attention *a);
/* gate [T,F] = act(gate) * up [T,F]; up NULL: act(gate) */
MUST_USE Status op_glu(Backend *be, Tensor *gate, const Tensor *up, Activation act);
/* gate [T,F] = PolyNorm(gate) * up [T,F] (architectures.md 5.1; arXiv 2411.03884):
 *   poly[0] N(g^3) + poly[1] N(g^2) + poly[2] N(g) + poly[3],  N(z) = z / sqrt(mean z^2 + 1e-6)
 * means over the row, sums in double: |g| up to 1e10 stays finite. poly: host. */
MUST_USE Status op_poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4]);
/* Causal convolution of each channel over the rows of its sequence, then SiLU:
 *   y[t,e] = silu(b[e] + sum_j w[e,j] x[t - (J - 1) + j, e])
 * x, y [T,E] apart; w [E,J]; b [E], data NULL: 0. Rows before a sequence's first are 0, or, of
 * one sequence, state [J - 1, E], which then holds the last J - 1 rows. state NULL: none. */
MUST_USE Status op_convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w,
                            const Tensor *b, const Batch *batch, Tensor *state);
/* y [T,E], may be u. state [2N,E] or NULL; 0 to begin with. In pieces, with a state, the
 * same bits as in one. Within 1e-6 of the largest of a row. */
MUST_USE Status op_scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt,
                        const Tensor *bc, const Scan *s, const Batch *batch, Tensor *state);
/* y += x, same shape */
MUST_USE Status op_add(Backend *be, Tensor *y, const Tensor *x);
/* y = x, same shape, apart */
MUST_USE Status op_copy(Backend *be, Tensor *y, const Tensor *x);
/* x = 1 / (1 + exp(-x)) */
MUST_USE Status op_sigmoid(Backend *be, Tensor *x);
/* Rounds x [T,K] in place. NaN or infinity makes all that share its scale NaN; zeros stay.
 * ERR_UNSUPPORTED for other bits. */
MUST_USE Status op_fakequant_rows(Backend *be, Tensor *x, const Batch *batch,
                                  const RowRounding *r);
/* Rounds k, v [S,C] in place to what a cache of 8 or 4 bits holds, KIVI's layout: with
 * m = min, s = (max - min) / (2^bits - 1), x' = s round((x - m) / s) + m. Keys: m and s
 * of each channel over KV_GROUP rows, counted from the first of a sequence. Values: of
 * each row over KV_GROUP channels of head_dim (C a multiple of it; what is left over of
 * head_dim is a smaller group). Rows after the last whole group of a sequence stay as
 * they are. NaN or infinity makes all that share its scale NaN. ERR_UNSUPPORTED for other
 * bits. */
MUST_USE Status op_fakequant_kv(Backend *be, Tensor *k, Tensor *v, const Batch *batch,
                                int64_t head_dim, int bits);
/* Adds x [T,C] to the record; positions[T] within the sequence (host). */
MUST_USE Status op_record(Backend *be, const Tensor *x, const Batch *batch,
                          const int32_t *positions, ValueRecord *r);
/* Last layer without its [T,V] matrix: for each row t, logits = head x_t;
 * logprob[t] = log_softmax(logits)[targets[t]], best[t] = first argmax.
 * targets[t] < 0: logprob[t] = 0. All host memory; best may be NULL. */
MUST_USE Status op_score(Backend *be, const Tensor *x, const Linear *head,
                         const int32_t *targets, float *logprob, int32_t *best);

/* How far two heads' predictions are apart, without a [T,V] matrix; sums in double.
 * ERR_SHAPE where the vocabularies differ. Logits of -inf are words that cannot come:
 * kl is +inf where only the reference can say one. NaN or +inf in a row of either model
 * makes its kl NaN. */
MUST_USE Status op_divergence(Backend *be, const HeadPair *p);

/* The devices (kernels/cpu, kernels/cuda). ERR_DEVICE says why it is not there. */
MUST_USE Status cpu_open(Backend *be);
MUST_USE Status cuda_open(Backend *be, int device);
extern const bool cuda_built;   // false: cuda_open always says that it was not

const char *activation_name(Activation act);   // "silu"
const char *logit_scale_name(LogitScale s);    // "tensor", "head", "row"

#endif
