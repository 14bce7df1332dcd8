/* cpu_gemm.h - products of up to 64 rows with panels of a weight matrix.
 *
 * The kernels are ours (cpu_panel_isa.c), but for bf16 on processors that
 * multiply tiles (AMX): there oneDNN computes blocks of one shape, each called
 * from one thread. What is summed in which order depends neither on the number
 * of threads, which are ours, nor on the batch: oneDNN's last chunk of rows is
 * of another shape, the next of 4, 8, 16, 32, 48, 64, but these kernels too sum
 * over K in one chain, which test_linear.c proves on the machine it runs on.
 *
 * Weights W [N,K] lie in panels of 64 outputs, padded with zeros:
 *   f32   [panels, k_pad, 64]        k_pad = K up to 16
 *   bf16  [panels, k_pad/2, 64, 2]   k_pad = K up to 32
 * which oneDNN calls BA16a64b and BA16a64b2a and prefers from AVX-512 on, and
 * which a matrix-vector product reads in order as well. Weights that are codes
 * lie in panels of their own, by blocks of 16 inputs:
 *   8 bits  [panels, blocks, 16, 64]  bytes
 *   4 bits  [panels, blocks, 2, 64]   words of eight codes of one output
 *   6 bits  [panels, blocks, 3, 64]   words of five codes; the last two bits of
 *                                     the three words are the sixteenth's
 * the first code in the lowest bits. One row is multiplied by them as they are;
 * for more each thread decodes its panels to one of the layouts above. */
#ifndef DQ_CPU_GEMM_H
#define DQ_CPU_GEMM_H

#include "kernels/cpu/cpu_backend.h"

enum { GEMM_ROWS = 64, PANEL = 64, GROUP_PANELS = 4, GROUP_COLS = PANEL * GROUP_PANELS };

enum { CODE_BLOCK = 16 };  // inputs whose codes lie together

/* What comes to the words of codes. */
typedef struct {
    int      bits;
    int64_t  k, group, n_groups;
    int64_t  panel_words;
    float   *scales, *offsets;  // [panels, n_groups, 64], offsets may be NULL
    int32_t *order, *column;    // [k] input of each column and back, NULL: k itself
} CpuCodes;

/* Linear.packed of this backend. */
struct CpuWeights {
    int64_t         n_panels, k_pad;
    void           *data;   // numbers of the Linear's dtype, or words
    const CpuCodes *codes;  // NULL: numbers
};

/* Where panel i starts, of numbers and of codes. */
const void *cpu_weights_panel(const CpuWeights *w, Dtype dtype, int64_t i);

static inline const uint32_t *cpu_codes_panel(const CpuWeights *w, int64_t i)
{
    return (const uint32_t *)w->data + i * w->codes->panel_words;
}

/* Words of a block: 16 codes an output are bits / 2 words. */
static inline int64_t cpu_codes_block(int bits)
{
    return bits / 2 * PANEL;
}

/* --- oneDNN (cpu_gemm_onednn.c) --- */

MUST_USE Status gemm_engine_open(CpuState *st);
void            gemm_engine_close(CpuState *st);

/* The product in bf16 of so many rows with so many panels; made once. */
MUST_USE Status gemm_get(const Gemm **out, CpuState *st, int64_t n_rows, int64_t k_pad,
                         int64_t n_panels);
/* Has oneDNN a kernel for it that keeps our promise? */
bool   gemm_is_there(const Gemm *g);
size_t gemm_scratchpad(const Gemm *g);  // bytes

/* One thread's: c = x panels, x given call by call. Returns an error of oneDNN, or 0; is to be
 * closed in either case. */
typedef struct {
    const Gemm *gemm;
    void       *stream, *memory[4];
} GemmCall;

int  gemm_call_open(GemmCall *call, const Gemm *g, void *c, const void *panels, void *pad);
int  gemm_call(const GemmCall *call, const void *x);
void gemm_call_close(GemmCall *call);

/* ERR_DEVICE from a status of oneDNN. */
MUST_USE Status gemm_error(int error, const char *what);

/* --- blocks --- */

/* One linear layer with rows waiting for it. Set up by gemm_run_open, then
 * read-only while threads compute blocks of it. */
typedef struct {
    const Linear     *linear;
    const CpuWeights *weights;
    const PanelIsa   *panel;
    const CodesIsa   *codes;
    bool              one_row;       // x of the operation has T == 1
    bool              ours;          // by cpu_panel_isa.c, not by oneDNN
    bool              bf16;          // rows and panels of the product, else f32
    bool              unpack;        // threads make these panels: bf16 to f32, codes
    int64_t           n_rows, n_chunks;   // chunks of GEMM_ROWS
    int64_t           last_rows;     // of the last chunk with padding, oneDNN
    int64_t           group_panels, n_groups;
    const Gemm       *gemm[2][2];    // [last chunk of rows][last group], oneDNN
    const float      *x;
    bool              in_place;      // its rows are used where they lie
    char             *staged;        // else: converted and padded
    size_t            staged_at;     //   behind those of runs before it
    bool              shares_rows;   //   the first run's
    size_t            row_bytes;
    const float      *group_sums;    // one row of codes: sums of x in each group
    const uint32_t   *pairs;         // and x in bf16 for CodesIsa.dots, or NULL
    char             *thread_memory;
    size_t            thread_bytes;
} GemmRun;

/* rows: which of x [T,K] to use, [n_rows] in order, or NULL for all. extra:
 * bytes of scratch for the caller, at *extra_at (may be NULL with 0). Takes the
 * backend's scratch. The rule for one row: T == 1 goes through the
 * matrix-vector kernel, whatever `rows` says, as oneDNN is slow at it; its
 * last bit may then differ from the same row in a batch. */
MUST_USE Status gemm_run_open(GemmRun *run, Backend *be, const Linear *w, const Tensor *x,
                              const int32_t *rows, int64_t n_rows, size_t extra,
                              void **extra_at);

/* Layers whose input is one x, at most GEMM_RUNS: all rows of it, which they share where they
 * want the same of them. */
enum { GEMM_RUNS = 4 };
MUST_USE Status gemm_runs_open(GemmRun *runs, Backend *be, const LinearOut *outs, int n,
                               const Tensor *x);

/* One thread's work on one group of columns. */
typedef struct {
    const GemmRun *run;
    int            last_group;
    float         *c;        // result of gemm_block: rows ldc apart
    int64_t        ldc;
    int64_t        cols;     // PANEL * panels, with padding past N
    int64_t        n_panels, first;  // number of the first column
    const void    *panels;
    float         *memory;   // [GEMM_ROWS, cols] of the thread
    GemmCall       call[2];  // [last chunk of rows], oneDNN
    int            error;    // of oneDNN, 0 none
} GemmBlock;

void gemm_block_open(GemmBlock *b, const GemmRun *run, int64_t group, int thread);
/* Rows chunk * GEMM_ROWS ... to b->c: in y [n_rows,N] where they can be made there, else in the
 * thread's memory, as where y is NULL. The bias is not added. */
void gemm_block(GemmBlock *b, int64_t chunk, float *y);
/* Returns b->error. */
int  gemm_block_close(GemmBlock *b);

/* Rows in a chunk, columns below N in a block. */
static inline int64_t gemm_chunk_rows(const GemmRun *run, int64_t chunk)
{
    int64_t left = run->n_rows - chunk * GEMM_ROWS;
    return left < GEMM_ROWS ? left : GEMM_ROWS;
}

static inline int64_t gemm_block_cols(const GemmBlock *b)
{
    int64_t left = b->run->linear->n - b->first;
    return left < b->cols ? left : b->cols;
}

#endif
