/* bench_cuda.h - what the parts of bench_cuda share: the device and its peaks, timing, rows of
 * the table. */
#ifndef DQ_BENCH_CUDA_H
#define DQ_BENCH_CUDA_H

#include "analysis/json.h"
#include "kernels/cuda/cuda_backend.h"

/* One line of the table and of the JSON. What is 0 is not known. */
typedef struct {
    const char *part;        // "attention"
    char        name[64];    // "diff bf16"
    int64_t     n_tokens;    // T
    double      ms;          // median
    double      flops;       // of one call
    double      bytes;       // it has to read, where memory bounds it
    double      peak;        // flops a second of the card's units for it
    double      tokens;      // of one call, where they are what counts
    double      ratio;       // to the row it is held against
    char        against[64]; // "without recording: times as long"
} Row;

typedef struct {
    Backend     be;
    Arena       arena;
    bool        tiny;        // sizes for the simulator
    int         n_runs;      // timed, after as many as WARM_UP
    double      f32_peak, bf16_peak, int8_peak;  // flops a second
    double      clock;       // Hz
    cudaEvent_t began, ended;
    const Json *sdpa;        // what sdpa.py wrote, or NULL
    float      *numbers;     // [N_NUMBERS] normal
    Row        *rows;        // [MOST_ROWS]
    int         n_rows;
} Bench;

enum { N_NUMBERS = 1 << 20, MOST_ROWS = 400 };

typedef Status Work(void *context);

/* Median of n_runs, each of so many calls that a run takes a millisecond; once: of one. */
MUST_USE Status bench_time(Bench *b, double *ms, Work *work, void *context, bool once);
/* The row to fill in; printed by bench_say. */
Row *bench_row(Bench *b, const char *part, int64_t n_tokens, double ms);
void bench_say(const Row *r);
/* [n] normal numbers times scale on the host. */
float *bench_numbers(Bench *b, Arena *a, int64_t n, float scale);
/* Normal numbers [rows,cols] on the device. */
MUST_USE Status bench_tensor(Bench *b, Tensor *t, int64_t rows, int64_t cols);
/* What sdpa.py measured, 0 where it did not. */
double bench_sdpa(const Bench *b, const char *name, int64_t n_tokens);

/* The parts, one a file. */
Status bench_attention(Bench *b);
Status bench_products(Bench *b);
Status bench_models(Bench *b);

#endif
