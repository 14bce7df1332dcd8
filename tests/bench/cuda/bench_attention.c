/* bench_attention.c - causal attention of one sequence, plain and differential, with and
 * without its logits and shares recorded. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/cuda/bench_cuda.h"

/* Outputs 3072 wide in all of them. */
static const struct {
    const char *name;
    int64_t     n_heads, n_maps, d, dv;
} SHAPES[] = {
    {"diff", 24, 2, 64, 128}, {"plain d64", 48, 1, 64, 64}, {"plain d128", 24, 1, 128, 128},
};

static const int64_t LENGTHS[] = {1024, 2048, 4096, 8192, 16384};
enum { N_LENGTHS = sizeof LENGTHS / sizeof *LENGTHS, MOST_F32 = 4096 };

typedef struct {
    Bench      *b;
    Attention   a;
    Tensor      q, k, v, out;
    int32_t     start[2];
    int64_t     number;
    LogitRecord record;
} Call;

static Status attend(void *context)
{
    Call *c = context;
    return op_attention(&c->b->be, &c->out, &c->q, &c->k, &c->v, &c->a);
}

/* Half of [T,T]: products with K and with V. */
static double flops(const Call *c, int64_t T)
{
    const Attention *a = &c->a;
    double pairs = 0.5 * (double)T * (double)(T + 1);
    return pairs * (double)(a->n_heads * a->n_maps) * 2 * (double)(a->head_dim + a->value_dim);
}

static Status fill(Call *c, int shape, int64_t T, Dtype dtype)
{
    int64_t H = SHAPES[shape].n_heads, M = SHAPES[shape].n_maps;
    c->start[1] = (int32_t)T;
    c->a = (Attention){.n_heads = H, .n_groups = H, .n_maps = M, .head_dim = SHAPES[shape].d,
                       .value_dim = SHAPES[shape].dv, .dtype = dtype, .logit_bits = 16,
                       .scale = 1 / sqrtf((float)SHAPES[shape].d), .lambda = 0.4f,
                       .norm_eps = M == 2 ? 1e-5f : -1, .out_scale = M == 2 ? 0.8f : 1,
                       .batch = {1, c->start, &c->number}};
    if (c->b->tiny)
        c->a.n_heads = c->a.n_groups = H = 2;
    int64_t width = H * M * c->a.head_dim, values = H * c->a.value_dim;
    TRY(bench_tensor(c->b, &c->q, T, width));
    TRY(bench_tensor(c->b, &c->k, T, width));
    TRY(bench_tensor(c->b, &c->v, T, values));
    return backend_tensor(&c->b->be, &c->out, 2, (int64_t[]){T, values});
}

static Status record(Call *c, int64_t T)
{
    TRY(logit_record_init(&c->record, &c->b->arena, 0, c->a.n_heads, c->a.n_maps, T));
    c->a.record = &c->record;
    ARENA_NEW(c->a.shares, &c->b->arena, c->a.n_heads);
    return OK;
}

static void say(const Call *c, const char *name, const char *what, int64_t T, double ms,
                double ratio, const char *against)
{
    Row *r = bench_row(c->b, "attention", T, ms);
    snprintf(r->name, sizeof r->name, "%s%s", name, what);
    snprintf(r->against, sizeof r->against, "%s", against);
    r->flops = flops(c, T);
    r->peak = c->a.dtype == DTYPE_BF16 ? c->b->bf16_peak : c->b->f32_peak;
    r->ratio = ratio;
    bench_say(r);
}

static Status one(Bench *b, int shape, int64_t T, Dtype dtype)
{
    Call   c = {.b = b};
    char   name[40];
    double plain, recorded, sdpa;
    TRY(fill(&c, shape, T, dtype));
    snprintf(name, sizeof name, "%s %s", SHAPES[shape].name,
             dtype == DTYPE_BF16 ? "bf16" : "f32");
    TRY(bench_time(b, &plain, attend, &c, false));
    sdpa = bench_sdpa(b, name, T);
    say(&c, name, "", T, plain, sdpa > 0 ? plain / sdpa : 0, "times torch's SDPA");
    TRY(record(&c, T));
    TRY(bench_time(b, &recorded, attend, &c, false));
    say(&c, name, ", recorded", T, recorded, recorded / plain, "times without recording");
    return OK;
}

static Status rewound(Bench *b, int shape, int64_t T, Dtype dtype)
{
    ArenaMark mark = backend_mark(&b->be), own = arena_mark(&b->arena);
    Status    s = one(b, shape, T, dtype);
    backend_rewind(&b->be, mark);
    arena_rewind(&b->arena, own);
    return s;
}

Status bench_attention(Bench *b)
{
    for (int shape = 0; shape < (int)(sizeof SHAPES / sizeof *SHAPES); shape++)
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < (b->tiny ? 1 : N_LENGTHS); i++) {
                int64_t T = b->tiny ? 70 : LENGTHS[i];
                if (half || T <= MOST_F32)
                    TRY(rewound(b, shape, T, half ? DTYPE_BF16 : DTYPE_F32));
            }
    return OK;
}
