/* bench_products.c - linear layers: cuBLAS in f32 and bf16, and codes of 4, 6 and 8 bits that
 * are decoded next to the product, held against bf16. */
#include <stdio.h>

#include "kernels/size.h"
#include "tests/bench/cuda/bench_cuda.h"

static const int64_t BATCHES[] = {1, 16, 512, 4096};
enum { N_BATCHES = sizeof BATCHES / sizeof *BATCHES, SIDE = 4096, GROUP = 128 };

/* Weights in turn, more than a cache holds: a model does not find them there either. */
enum { MOST_COPIES = 16 };
#define TURN_BYTES (256 << 20)

static const struct {
    const char *name;
    Dtype       dtype;
    int         bits;       // 0: numbers
    bool        rounded;    // inputs of 8 bits, one scale a row of weights
} KINDS[] = {
    {"bf16 cuBLAS", DTYPE_BF16, 0, false}, {"f32 cuBLAS", DTYPE_F32, 0, false},
    {"4 bits", DTYPE_BF16, 4, false},      {"6 bits", DTYPE_BF16, 6, false},
    {"8 bits", DTYPE_BF16, 8, false},      {"8 bits x 8 bits", DTYPE_BF16, 8, true},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

typedef struct {
    Bench  *b;
    Linear  w[MOST_COPIES];
    int     n_copies, turn;
    Tensor  x, y;
} Call;

static Status multiply(void *context)
{
    Call *c = context;
    c->turn = (c->turn + 1) % c->n_copies;
    return op_linear(&c->b->be, &c->y, &c->x, &c->w[c->turn]);
}

static double weight_bytes(int kind, int64_t side)
{
    double bytes = KINDS[kind].bits ? KINDS[kind].bits / 8.0
                                    : (double)dtype_size(KINDS[kind].dtype);
    return bytes * (double)side * (double)side;
}

static Status pack(Call *c, int kind, int64_t side)
{
    Bench *b = c->b;
    int    bits = KINDS[kind].bits;
    float *w = bench_numbers(b, &b->arena, side * side, 0.02f);
    int8_t *codes;
    c->n_copies = b->tiny ? 2 : (int)i64_max(1, i64_min(MOST_COPIES, (int64_t)(TURN_BYTES /
                                                            weight_bytes(kind, side))));
    ARENA_NEW(codes, &b->arena, side * side);
    if (!w)
        FAIL(ERR_MEMORY, "out of memory: weights");
    for (int64_t i = 0; i < side * side && bits; i++)
        codes[i] = (int8_t)((int)(i * 7919 % (1 << bits)) - (1 << (bits - 1)));
    Codes k = {.n = side, .k = side, .bits = bits, .codes = codes, .scales = w,
               .group = KINDS[kind].rounded ? side : GROUP};
    for (int i = 0; i < c->n_copies; i++)
        TRY(bits ? op_linear_codes(&b->be, &c->w[i], &k, NULL, KINDS[kind].dtype)
                 : op_linear_pack(&b->be, &c->w[i], w, NULL, side, side, KINDS[kind].dtype));
    return OK;
}

static Status inputs(Call *c, int kind, int64_t T, int64_t side)
{
    int32_t start[] = {0, (int32_t)T};
    int64_t number = 0;
    TRY(bench_tensor(c->b, &c->x, T, side));
    TRY(backend_tensor(&c->b->be, &c->y, 2, (int64_t[]){T, side}));
    if (!KINDS[kind].rounded)
        return OK;
    return op_fakequant_rows(&c->b->be, &c->x, &(Batch){1, start, &number},
                             &(RowRounding){.bits = 8});
}

static void say(Bench *b, int kind, int64_t T, int64_t side, double ms, double half)
{
    Row *r = bench_row(b, "products", T, ms);
    snprintf(r->name, sizeof r->name, "%s", KINDS[kind].name);
    snprintf(r->against, sizeof r->against, "times as fast as bf16 cuBLAS");
    r->flops = 2.0 * (double)T * (double)side * (double)side;
    r->peak = KINDS[kind].rounded            ? b->int8_peak
              : KINDS[kind].dtype == DTYPE_F32 ? b->f32_peak
                                               : b->bf16_peak;
    r->bytes = T <= 16 ? weight_bytes(kind, side) : 0;
    r->ratio = kind ? half / ms : 0;
    bench_say(r);
}

Status bench_products(Bench *b)
{
    int64_t side = b->tiny ? 256 : SIDE;
    double  half[N_BATCHES], ms;
    for (int kind = 0; kind < N_KINDS; kind++) {
        Call      c = {.b = b};
        ArenaMark mark = backend_mark(&b->be), own = arena_mark(&b->arena);
        TRY(pack(&c, kind, side));
        for (int i = 0; i < N_BATCHES; i++) {
            int64_t T = b->tiny ? i64_min(BATCHES[i], 20) : BATCHES[i];
            TRY(inputs(&c, kind, T, side));
            TRY(bench_time(b, &ms, multiply, &c, false));
            half[i] = kind ? half[i] : ms;
            say(b, kind, T, side, ms, half[i]);
        }
        backend_rewind(&b->be, mark);
        arena_rewind(&b->arena, own);
    }
    return OK;
}
