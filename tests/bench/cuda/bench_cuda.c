/* bench_cuda.c - times the CUDA backend against the card's peaks and against cuBLAS. README.md
 * beside this says how it is run and read. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/size.h"
#include "tests/bench/cuda/bench_cuda.h"

enum { WARM_UP = 3, RUNS = 20, EXIT_SKIP = 77 };

/* --- the card --- */

/* Multiply-adds a clock and multiprocessor, without sparsity: f32 of the plain units, bf16 with
 * f32 sums and int8 of the tensor units. At their boost clocks these give what NVIDIA states:
 * A100 312, H100 SXM 989, RTX 3090 71, RTX 4090 165, B200 2250 Tflop/s in bf16. */
static const struct {
    int    capability;
    bool   geforce;     // half the rate with sums in f32
    double f32, bf16, int8;
} RATES[] = {
    {80, false, 64, 1024, 2048},   {86, true, 128, 256, 1024},  {86, false, 128, 512, 1024},
    {89, true, 128, 256, 1024},    {89, false, 128, 512, 1024}, {90, false, 128, 2048, 4096},
    {100, false, 128, 4096, 8192}, {120, true, 128, 256, 1024}, {120, false, 128, 512, 1024},
};

static void find_peaks(Bench *b)
{
    CudaState *st = cuda_state(&b->be);
    bool       geforce = strstr(st->name, "GeForce");
    int        khz = 0;
    (void)cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, st->device);
    b->clock = 1e3 * khz;
    for (size_t i = 0; i < sizeof RATES / sizeof *RATES; i++)
        if (RATES[i].capability == st->capability && RATES[i].geforce == geforce) {
            double all = 2 * b->clock * st->n_multiprocessors;
            b->f32_peak = all * RATES[i].f32;
            b->bf16_peak = all * RATES[i].bf16;
            b->int8_peak = all * RATES[i].int8;
        }
}

/* --- timing --- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static Status time_once(Bench *b, double *ms, Work *work, void *context, int calls)
{
    cudaStream_t stream = cuda_state(&b->be)->stream;
    float        took;
    CUDA_TRY(cudaEventRecord(b->began, stream));
    for (int i = 0; i < calls; i++)
        TRY(work(context));
    CUDA_TRY(cudaEventRecord(b->ended, stream));
    CUDA_TRY(cudaEventSynchronize(b->ended));
    CUDA_TRY(cudaEventElapsedTime(&took, b->began, b->ended));
    *ms = (double)took / calls;
    return OK;
}

Status bench_time(Bench *b, double *ms, Work *work, void *context, bool once)
{
    double times[RUNS];
    int    calls = 1;
    for (int i = 0; i < (b->tiny ? 1 : WARM_UP); i++)
        TRY(time_once(b, ms, work, context, 1));
    if (!once && !b->tiny && *ms < 1)
        calls = *ms > 0.01 ? (int)ceil(1 / *ms) : 100;
    for (int i = 0; i < b->n_runs; i++)
        TRY(time_once(b, &times[i], work, context, calls));
    qsort(times, (size_t)b->n_runs, sizeof *times, by_size);
    *ms = times[b->n_runs / 2];
    return OK;
}

/* --- numbers --- */

/* Twelve uniform numbers add up to a normal one, near enough. */
static void make_numbers(float *x)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < N_NUMBERS; i++) {
        x[i] = -6;
        for (int j = 0; j < 12; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x[i] += (float)(state >> 40) * 0x1p-24f;
        }
    }
}

float *bench_numbers(Bench *b, Arena *a, int64_t n, float scale)
{
    float *p = arena_raw(a, n, sizeof *p);
    for (int64_t i = 0; p && i < n; i++)
        p[i] = scale * b->numbers[(i + n) % N_NUMBERS];
    return p;
}

Status bench_tensor(Bench *b, Tensor *t, int64_t rows, int64_t cols)
{
    ArenaMark mark = arena_mark(&b->arena);
    float    *p = bench_numbers(b, &b->arena, rows * cols, 1);
    if (!p)
        FAIL(ERR_MEMORY, "out of memory: [%lld,%lld]", (long long)rows, (long long)cols);
    Status s = backend_tensor(&b->be, t, 2, (int64_t[]){rows, cols});
    if (s == OK)
        s = backend_upload(&b->be, t, p);
    arena_rewind(&b->arena, mark);
    return s;
}

double bench_sdpa(const Bench *b, const char *name, int64_t n_tokens)
{
    const Json *list = json_member(b->sdpa, "rows");
    for (int64_t i = 0; list && i < list->n; i++) {
        const Json *row = &list->at[i], *T = json_member(row, "T");
        const Json *its = json_member(row, "name"), *ms = json_member(row, "ms");
        if (T && its && ms && T->integer == n_tokens && strcmp(its->text, name) == 0)
            return ms->number;
    }
    return 0;
}

/* --- the table --- */

Row *bench_row(Bench *b, const char *part, int64_t n_tokens, double ms)
{
    CHECK(b->n_rows < MOST_ROWS);
    Row *r = &b->rows[b->n_rows++];
    r->part = part;
    r->n_tokens = n_tokens;
    r->ms = ms;
    return r;
}

static void print_cell(double value, const char *format)
{
    if (value > 0)
        printf(format, value);
    else
        printf("%9s", "-");
}

static double per_second(const Row *r, double amount)
{
    return amount / (1e-3 * r->ms);
}

void bench_say(const Row *r)
{
    printf("%-10s %-26s %6lld", r->part, r->name, (long long)r->n_tokens);
    print_cell(r->ms, "%9.3f");
    print_cell(1e-12 * per_second(r, r->flops), "%9.1f");
    print_cell(r->peak > 0 ? 100 * per_second(r, r->flops) / r->peak : 0, "%8.1f%%");
    print_cell(1e-9 * per_second(r, r->bytes), "%9.0f");
    print_cell(per_second(r, r->tokens), "%9.0f");
    if (r->ratio > 0)
        printf("  %.2f %s", r->ratio, r->against);
    printf("\n");
    fflush(stdout);
}

static void say_head(const Bench *b)
{
    const CudaState *st = cuda_state((Backend *)&b->be);
    printf("%s, %d multiprocessors at up to %.0f MHz", st->name, st->n_multiprocessors,
           1e-6 * b->clock);
    if (b->bf16_peak > 0)
        printf("; peaks: f32 %.1f, bf16 %.0f Tflop/s", 1e-12 * b->f32_peak,
               1e-12 * b->bf16_peak);
    printf("\nMedian of %d runs.%s\n\n", b->n_runs,
           b->tiny ? " --tiny: sizes of no meaning, to see that it runs." : "");
    printf("%-10s %-26s %6s%9s%9s%9s%9s%9s  %s\n", "part", "what", "T", "ms", "Tflop/s",
           "of peak", "GB/s", "tokens/s", "ratio");
}

static void write_row(FILE *f, const Row *r)
{
    fprintf(f, "{\"part\": \"%s\", \"name\": \"%s\", \"T\": %lld, \"ms\": %.6g", r->part,
            r->name, (long long)r->n_tokens, r->ms);
    if (r->flops > 0)
        fprintf(f, ", \"tflops\": %.6g", 1e-12 * per_second(r, r->flops));
    if (r->flops > 0 && r->peak > 0)
        fprintf(f, ", \"of_peak\": %.6g", per_second(r, r->flops) / r->peak);
    if (r->bytes > 0)
        fprintf(f, ", \"gb_per_s\": %.6g", 1e-9 * per_second(r, r->bytes));
    if (r->tokens > 0)
        fprintf(f, ", \"tokens_per_s\": %.6g", per_second(r, r->tokens));
    if (r->ratio > 0)
        fprintf(f, ", \"ratio\": %.6g, \"against\": \"%s\"", r->ratio, r->against);
    fprintf(f, "}");
}

static Status write_json(const Bench *b, const char *path)
{
    const CudaState *st = cuda_state((Backend *)&b->be);
    int   driver = 0, runtime = 0;
    FILE *f = fopen(path, "w");
    if (!f)
        FAIL(ERR_IO, "%s: cannot be written", path);
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    fprintf(f, "{\"device\": \"%s\", \"multiprocessors\": %d, \"mhz\": %.0f, \"driver\": %d, "
               "\"runtime\": %d, \"runs\": %d, \"rows\": [", st->name, st->n_multiprocessors,
            1e-6 * b->clock, driver, runtime, b->n_runs);
    for (int i = 0; i < b->n_rows; i++) {
        fprintf(f, "%s\n ", i ? "," : "");
        write_row(f, &b->rows[i]);
    }
    fprintf(f, "\n]}\n");
    return fclose(f) == 0 ? OK : STATUS(ERR_IO, "%s: cannot be written", path);
}

/* --- the program --- */

static const struct {
    const char *name;
    Status    (*run)(Bench *b);
} PARTS[] = {
    {"attention", bench_attention}, {"products", bench_products}, {"models", bench_models},
};

static Status run(Bench *b, const char *only, const char *json, const char *sdpa)
{
    if (sdpa)
        TRY(json_read(&b->sdpa, &b->arena, sdpa));
    ARENA_NEW(b->rows, &b->arena, MOST_ROWS);
    ARENA_NEW(b->numbers, &b->arena, N_NUMBERS);
    make_numbers(b->numbers);
    CUDA_TRY(cudaEventCreate(&b->began));
    CUDA_TRY(cudaEventCreate(&b->ended));
    find_peaks(b);
    say_head(b);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (!only || strcmp(only, PARTS[i].name) == 0) {
            ArenaMark mark = backend_mark(&b->be), own = arena_mark(&b->arena);
            TRY(PARTS[i].run(b));
            backend_rewind(&b->be, mark);
            arena_rewind(&b->arena, own);
        }
    (void)cudaEventDestroy(b->began);
    (void)cudaEventDestroy(b->ended);
    return json ? write_json(b, json) : OK;
}

static int usage(void)
{
    fprintf(stderr, "bench_cuda [--device cuda:N] [--only attention|products|models] "
                    "[--sdpa FILE] [--json FILE] [--tiny]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"device", required_argument, NULL, 'd'}, {"only", required_argument, NULL, 'o'},
        {"sdpa", required_argument, NULL, 's'},   {"json", required_argument, NULL, 'j'},
        {"tiny", no_argument, NULL, 't'},         {0},
    };
    const char *device = "cuda", *only = NULL, *sdpa = NULL, *json = NULL;
    Bench       b = {.n_runs = RUNS};
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        switch (c) {
        case 'd': device = optarg; break;
        case 'o': only = optarg; break;
        case 's': sdpa = optarg; break;
        case 'j': json = optarg; break;
        case 't': b.tiny = true; b.n_runs = 1; break;
        default: return usage();
        }
    if (optind < argc)
        return usage();
    Status s = backend_open(&b.be, device, 0);
    if (s == ERR_DEVICE && strncmp(status_text(), "no CUDA device", 14) == 0) {
        printf("SKIP: %s\n", status_text());
        return EXIT_SKIP;
    }
    if (s == OK)
        s = run(&b, only, json, sdpa);
    if (s != OK)
        fprintf(stderr, "bench_cuda: %s\n", status_text());
    backend_close(&b.be);
    arena_close(&b.arena);
    return s != OK;
}
