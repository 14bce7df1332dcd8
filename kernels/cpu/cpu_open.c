/* cpu_open.c - the table of the CPU backend, its memory, its choice of kernels. */
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/size.h"

void cpu_close(Backend *be)
{
    CpuState *st = cpu_state(be);
    gemm_engine_close(st);
    arena_close(&st->scratch.arena);
    arena_close(&st->spare.arena);
    arena_close(&st->arena);
}

void *cpu_take(Backend *be, int64_t n, size_t size)
{
    size_t bytes;
    if (!cpu_state(be)->measure)
        return arena_raw(&be->arena, n, size);
    return size_mul((size_t)n, size, &bytes) ? cpu_measure_take(be, bytes) : NULL;
}

Status cpu_alloc(Backend *be, Tensor *t)
{
    char text[128];
    t->data = cpu_take(be, tensor_count(t), sizeof(float));
    if (!t->data)
        FAIL(ERR_MEMORY, "out of memory: a tensor %s of F32", tensor_shape_text(t, text));
    return OK;
}

static Status cpu_upload(Backend *be, Tensor *dst, const void *host)
{
    (void)be;
    memcpy(dst->data, host, tensor_bytes(dst));
    return OK;
}

static Status cpu_download(Backend *be, void *host, const Tensor *src)
{
    (void)be;
    memcpy(host, src->data, tensor_bytes(src));
    return OK;
}

Status cpu_scratch(Backend *be, void **out, size_t bytes)
{
    CpuScratch *s = &cpu_state(be)->scratch;
    if (cpu_state(be)->measure)
        return cpu_measure_scratch(be, bytes);
    if (bytes > s->bytes) {
        arena_close(&s->arena);
        s->bytes = 0;
        s->at = arena_raw(&s->arena, 1, bytes);
        if (!s->at)
            FAIL(ERR_MEMORY, "out of memory: %zu bytes for one operation", bytes);
        s->bytes = bytes;
    }
    *out = s->at;
    return OK;
}

void cpu_scratch_swap(Backend *be)
{
    CpuState  *st = cpu_state(be);
    CpuScratch s = st->scratch;
    st->scratch = st->spare;
    st->spare = s;
}

#define CHOICE(type, function, table)                                              \
    const type *function(void)                                                     \
    {                                                                              \
        static const type *const OF[N_CPU_ISAS] = {&table##_plain, &table##_avx2,  \
                                                   &table##_avx512};               \
        return OF[cpu_isa()];                                                      \
    }

CHOICE(RowsIsa, cpu_rows, rows)
CHOICE(NormIsa, cpu_norm_isa, norm)
CHOICE(PanelIsa, cpu_panel, panel)
CHOICE(CodesIsa, cpu_codes, codes)
CHOICE(ScoreIsa, cpu_score_isa, score)
CHOICE(FakequantIsa, cpu_fakequant_isa, fakequant)
CHOICE(DivergenceIsa, cpu_divergence_isa, divergence)

static const BackendOps CPU_OPS = {
    .name = "cpu",
    .on_host = true,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .upload = cpu_upload,
    .download = cpu_download,
    .linear_pack = cpu_linear_pack,
    .linear_rows = cpu_linear_rows,
    .linear_codes = cpu_linear_codes,
    .linear = cpu_linear,
    .linears = cpu_linears,
    .product = cpu_product,
    .gram = cpu_gram,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .rope = cpu_rope,
    .attention = cpu_attention,
    .glu = cpu_glu,
    .poly_glu = cpu_poly_glu,
    .convolve = cpu_convolve,
    .scan = cpu_scan,
    .add = cpu_add,
    .copy = cpu_copy,
    .sigmoid = cpu_sigmoid,
    .fakequant_rows = cpu_fakequant_rows,
    .fakequant_kv = cpu_fakequant_kv,
    .record = cpu_record,
    .score = cpu_score,
    .divergence = cpu_divergence,
};

Status cpu_open(Backend *be)
{
    CpuState *st;
    ARENA_NEW(st, &be->arena, 1);
    be->state = st;
    be->ops = &CPU_OPS;
    return gemm_engine_open(st);
}
