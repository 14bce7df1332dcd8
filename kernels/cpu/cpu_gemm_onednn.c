/* cpu_gemm_onednn.c - blocks of products in bf16 through oneDNN, versions 2 and 3.
 * C [R, 64 p] f32 = X [R, k_pad] W, W p panels of cpu_gemm.h, R <= 64
 * threads ours; each runs oneDNN alone on its block with its own scratchpad
 * sums    one chain over K an output, whatever the rows, which test_linear.c proves on the
 *         machine it runs on
 * test    tests/kernels/test_linear.c */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "kernels/cpu/cpu_gemm.h"

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t Layout;
#define LAYOUT_ARG(l) (l)
#define layout_make dnnl_memory_desc_create_with_tag
#define layout_free(l) dnnl_memory_desc_destroy(l)
#else
typedef dnnl_memory_desc_t Layout;
#define LAYOUT_ARG(l) (&(l))
#define layout_make dnnl_memory_desc_init_by_tag
#define layout_free(l) ((void)(l))
#endif

struct Gemm {
    Gemm            *next;
    int64_t          n_rows, k_pad, n_panels;
    dnnl_engine_t    engine;
    dnnl_primitive_t primitive;   // NULL: oneDNN has no good kernel for this
    Layout           layout[4];   // of x, w, c, scratchpad
    int              n_layouts;
    size_t           scratchpad_bytes;
};

struct GemmEngine {
    dnnl_engine_t engine;
    Gemm         *first;
};

Status gemm_error(int error, const char *what)
{
    if (error == dnnl_out_of_memory)
        FAIL(ERR_MEMORY, "%s: oneDNN is out of memory", what);
    FAIL(ERR_DEVICE, "%s: oneDNN failed with status %d", what, error);
}

Status gemm_engine_open(CpuState *st)
{
    ARENA_NEW(st->gemms, &st->arena, 1);
    int error = dnnl_engine_create(&st->gemms->engine, dnnl_cpu, 0);
    if (error != dnnl_success) {
        st->gemms = NULL;
        return gemm_error(error, "opening the CPU");
    }
    return OK;
}

void gemm_engine_close(CpuState *st)
{
    if (!st->gemms)
        return;
    for (Gemm *g = st->gemms->first; g; g = g->next) {
        if (g->primitive)
            dnnl_primitive_destroy(g->primitive);
        for (int i = 0; i < g->n_layouts; i++)
            layout_free(g->layout[i]);
    }
    dnnl_engine_destroy(st->gemms->engine);
    st->gemms = NULL;
}

/* --- one primitive --- */

static int make_layouts(Gemm *g)
{
    const int64_t N = g->n_panels * PANEL, K = g->k_pad;
    dnnl_dims_t x = {g->n_rows, K}, w = {K, N}, c = {g->n_rows, N};
    int error = layout_make(&g->layout[0], 2, x, dnnl_bf16, dnnl_ab);
    g->n_layouts += error == dnnl_success;
    if (error == dnnl_success)
        error = layout_make(&g->layout[1], 2, w, dnnl_bf16, dnnl_BA16a64b2a);
    g->n_layouts += error == dnnl_success;
    if (error == dnnl_success)
        error = layout_make(&g->layout[2], 2, c, dnnl_f32, dnnl_ab);
    g->n_layouts += error == dnnl_success;
    return error;
}

static int describe(dnnl_primitive_desc_t *pd, const Gemm *g, dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(pd, g->engine, g->layout[0], g->layout[1],
                                             NULL, g->layout[2], attr);
#else
    dnnl_matmul_desc_t desc;
    int error = dnnl_matmul_desc_init(&desc, &g->layout[0], &g->layout[1], NULL,
                                      &g->layout[2]);
    if (error == dnnl_success)
        error = dnnl_primitive_desc_create(pd, &desc, attr, g->engine, NULL);
    return error;
#endif
}

/* The kernels that sum in one chain. A reference kernel would take these layouts
 * too, a thousand times slower. */
static bool is_good(const dnnl_primitive_desc_t pd)
{
    const char *name = "";
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name))
        return false;
    return strncmp(name, "brg", 3) == 0;
}

static int finish(Gemm *g, dnnl_primitive_desc_t pd)
{
    g->scratchpad_bytes = dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    dnnl_dims_t bytes = {(dnnl_dim_t)(g->scratchpad_bytes ? g->scratchpad_bytes : 1)};
    int error = layout_make(&g->layout[3], 1, bytes, dnnl_u8, dnnl_a);
    g->n_layouts += error == dnnl_success;
    if (!error)
        error = dnnl_primitive_create(&g->primitive, pd);
    return error;
}

static int make_primitive(Gemm *g)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int error = make_layouts(g);
    if (!error)
        error = dnnl_primitive_attr_create(&attr);
    if (!error)
        error = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!error)
        error = describe(&pd, g, attr);
    if (error == dnnl_unimplemented)
        error = dnnl_success;
    else if (!error && is_good(pd))
        error = finish(g, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return error;
}

Status gemm_get(const Gemm **out, CpuState *st, int64_t n_rows, int64_t k_pad, int64_t n_panels)
{
    GemmEngine *e = st->gemms;
    for (Gemm *g = e->first; g; g = g->next)
        if (g->n_rows == n_rows && g->k_pad == k_pad && g->n_panels == n_panels) {
            *out = g;
            return OK;
        }
    Gemm *g;
    ARENA_NEW(g, &st->arena, 1);
    *g = (Gemm){.next = e->first, .n_rows = n_rows, .k_pad = k_pad, .n_panels = n_panels,
                .engine = e->engine};
    e->first = g;
    /* oneDNN plans for the threads it could have: it shall have one. */
    int n_threads = omp_get_max_threads();
    omp_set_num_threads(1);
    int error = make_primitive(g);
    omp_set_num_threads(n_threads);
    if (error) {
        e->first = g->next;
        return gemm_error(error, "preparing a matrix product");
    }
    *out = g;
    return OK;
}

bool gemm_is_there(const Gemm *g)
{
    return g->primitive != NULL;
}

size_t gemm_scratchpad(const Gemm *g)
{
    return g->scratchpad_bytes;
}

/* --- one thread's calls --- */

int gemm_call_open(GemmCall *call, const Gemm *g, void *c, const void *panels, void *pad)
{
    void *const at[4] = {c, (void *)panels, c, pad};
    *call = (GemmCall){.gemm = g};
    int error = dnnl_stream_create((dnnl_stream_t *)&call->stream, g->engine,
                                   dnnl_stream_default_flags);
    for (int i = 0; i < 4 && !error; i++)
        error = dnnl_memory_create((dnnl_memory_t *)&call->memory[i], LAYOUT_ARG(g->layout[i]),
                                   g->engine, at[i]);
    return error;
}

int gemm_call(const GemmCall *call, const void *x)
{
    void *const    *memory = call->memory;
    dnnl_exec_arg_t args[4] = {{DNNL_ARG_SRC, memory[0]},
                               {DNNL_ARG_WEIGHTS, memory[1]},
                               {DNNL_ARG_DST, memory[2]},
                               {DNNL_ARG_SCRATCHPAD, memory[3]}};
    int error = dnnl_memory_set_data_handle(memory[0], (void *)x);
    if (!error)
        error = dnnl_primitive_execute(call->gemm->primitive, call->stream, 4, args);
    if (!error)
        error = dnnl_stream_wait(call->stream);
    return error;
}

void gemm_call_close(GemmCall *call)
{
    for (int i = 0; i < 4; i++)
        if (call->memory[i])
            dnnl_memory_destroy(call->memory[i]);
    if (call->stream)
        dnnl_stream_destroy(call->stream);
}
