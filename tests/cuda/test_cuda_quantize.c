/* test_cuda_quantize.c - what quantizing asks of a GPU: products of inputs, the errors of
 * weights, and GPTQ's blocks of columns, which go there and back. */
#include <math.h>
#include <string.h>

#include "analysis/stats/input_stats.h"
#include "quant/methods/method.h"
#include "tests/cuda/ref_cuda.h"

/* More columns than two blocks of GPTQ, more rows than a part of a gram. */
enum { N = 70, K = 320, T = 530, GROUP = 64 };

typedef struct {
    Arena      arena;
    Backend    be;
    InputStats stats;
    Matrix     m;
    RtnCodes   out;
    double     error;    // ||x (w - w')^T||^2
} Side;

static Status open_side(Side *s, const char *device)
{
    Arena *a = &s->arena;
    *s = (Side){0};
    TRY(backend_open(&s->be, device, 1));
    s->m = (Matrix){.name = "w", .n = N, .k = K, .damp = 0.01, .backend = &s->be,
                    .inputs = &s->stats};
    TRY(scheme_parse(&s->m.scheme, "w4:g64:gptq"));
    ARENA_NEW(s->m.w, a, N * K);
    ARENA_NEW(s->out.codes, a, N * K);
    ARENA_NEW(s->out.scales, a, N * K / GROUP);
    ARENA_NEW(s->out.zeros, a, N * K / GROUP);
    return input_stats_init(&s->stats, a, K, true);
}

static void close_side(Side *s)
{
    backend_close(&s->be);
    arena_close(&s->arena);
}

/* Inputs that go together; one of them is always 0. */
static Status gather(Side *s)
{
    Tensor   x;
    uint64_t seed = 5;
    float   *host;
    ARENA_NEW(host, &s->arena, T * K);
    for (int t = 0; t < T; t++) {
        float a = 2 * check_normal(&seed), b = check_normal(&seed);
        for (int k = 0; k < K; k++)
            host[t * K + k] = k == 7 ? 0 : a * (float)(k % 3) + b * (float)(k % 5) +
                                           check_normal(&seed);
    }
    for (int i = 0; i < N * K; i++)
        s->m.w[i] = 0.03f * check_normal(&seed);
    TRY(ref_cuda_exact(&s->be, &x, host, T, K));
    TRY(input_stats_add(&s->stats, &s->arena, &s->be, &x, "here"));
    input_stats_close(&s->stats);
    return OK;
}

static Status encode(Side *s)
{
    float *before;
    ARENA_NEW(before, &s->arena, N * K);
    memcpy(before, s->m.w, N * K * sizeof *before);
    size_t used = s->be.arena.used;
    TRY(gptq_encode(&s->out, &s->m, &s->arena));
    if (s->be.arena.used != used)
        FAIL(ERR_RANGE, "GPTQ keeps memory of the backend");
    return input_error(&s->error, &s->arena, &s->be, &s->stats, before, s->m.w, N);
}

/* A weight half way between two codes may go either way; the outputs are as good. */
TEST(gptq_on_both)
{
    Side   cpu, gpu;
    double largest = 0;
    int    other = 0;
    if (!ref_cuda_there())
        T_SKIP(status_text());
    T_STATUS_OK(open_side(&cpu, "cpu"));
    T_STATUS_OK(open_side(&gpu, "cuda"));
    T_STATUS_OK(gather(&cpu));
    T_STATUS_OK(gather(&gpu));
    for (int i = 0; i < K * K; i++)
        largest = fmax(largest, fabs(cpu.stats.gram[i]));
    for (int i = 0; i < K * K; i++)
        T_NEAR(gpu.stats.gram[i], cpu.stats.gram[i], 1e-6 * largest);
    for (int k = 0; k < K; k++)
        T_OK(gpu.stats.sum2[k] == cpu.stats.sum2[k] && gpu.stats.absmax[k] == cpu.stats.absmax[k]);
    T_STATUS_OK(encode(&cpu));
    T_STATUS_OK(encode(&gpu));
    T_OK(gpu.m.n_dead == 1 && gpu.m.damp_used == cpu.m.damp_used);
    for (int i = 0; i < N * K; i++)
        other += gpu.out.codes[i] != cpu.out.codes[i];
    T_OK(other <= N * K / 200);
    T_OK(cpu.error > 0);
    T_NEAR(gpu.error, cpu.error, 0.01 * cpu.error);
    close_side(&cpu);
    close_side(&gpu);
}
