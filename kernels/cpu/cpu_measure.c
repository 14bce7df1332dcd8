/* cpu_measure.c - a CPU that computes nothing, for asking what a run will take.
 * Tensors and weights are counted and have no memory. An operation runs as far as cpu_scratch,
 * which notes what it asks for and ends it there; one that takes none is not run. So what is
 * measured is what the operations themselves work out.
 * test    tests/kernels/test_measure.c */
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/size.h"

typedef struct Held Held;
struct Held {
    Held  *below;
    size_t bytes;
    size_t used_at;   // bytes of the backend's arena below this
};

struct CpuMeasure {
    Held  *top;
    size_t held, scratch, peak;   // peak: of held and the arena together
    size_t given;                 // in all: no two tensors are in one place
    bool   ended;                 // an operation has come to its scratch
};

void *cpu_measure_take(Backend *be, size_t bytes)
{
    CpuMeasure *m = cpu_state(be)->measure;
    size_t      used = be->arena.used;
    Held       *h = arena_alloc(&be->arena, 1, sizeof *h);
    if (!h)
        return NULL;
    *h = (Held){m->top, bytes, used};
    m->top = h;
    m->held += bytes;
    m->given += bytes + 64;
    if (m->held + be->arena.used > m->peak)
        m->peak = m->held + be->arena.used;
    return (void *)(uintptr_t)(m->given - bytes);   // to be told apart, never to be read
}

Status cpu_measure_scratch(Backend *be, size_t bytes)
{
    CpuMeasure *m = cpu_state(be)->measure;
    m->scratch = bytes > m->scratch ? bytes : m->scratch;
    m->ended = true;
    return ERR_UNSUPPORTED;   // told to no one
}

static void measure_rewind(Backend *be, ArenaMark mark)
{
    CpuMeasure *m = cpu_state(be)->measure;
    for (; m->top && m->top->used_at >= mark.used; m->top = m->top->below)
        m->held -= m->top->bytes;
}

/* What an operation returned is no failure where its scratch ended it. */
static Status after(Backend *be, Status s)
{
    CpuMeasure *m = cpu_state(be)->measure;
    bool        ended = m->ended;
    m->ended = false;
    return ended ? OK : s;
}

/* --- operations that take scratch --- */

static Status pack_rows(Backend *be, Linear *out, const RowReader *rows, const float *bias)
{
    return after(be, cpu_linear_rows(be, out, rows, bias));
}

static Status pack(Backend *be, Linear *out, const float *w, const float *bias)
{
    (void)w;
    return after(be, cpu_linear_rows(be, out, NULL, bias));
}

static Status linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w)
{
    return after(be, cpu_linear(be, y, x, w));
}

static Status attention(Backend *be, Tensor *out, const Tensor *q, const Tensor *k,
                        const Tensor *v, const Attention *a)
{
    return after(be, cpu_attention(be, out, q, k, v, a));
}

static Status convolve(Backend *be, Tensor *y, const Tensor *x, const Tensor *w,
                       const Tensor *b, const Batch *batch, Tensor *state)
{
    return after(be, cpu_convolve(be, y, x, w, b, batch, state));
}

static Status scan(Backend *be, Tensor *y, const Tensor *u, const Tensor *dt, const Tensor *bc,
                   const Scan *s, const Batch *batch, Tensor *state)
{
    return after(be, cpu_scan(be, y, u, dt, bc, s, batch, state));
}

static Status record(Backend *be, const Tensor *x, const Batch *batch, const int32_t *positions,
                     ValueRecord *r)
{
    return after(be, cpu_record(be, x, batch, positions, r));
}

static Status score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                    float *logprob, int32_t *best)
{
    return after(be, cpu_score(be, x, head, targets, logprob, best));
}

/* --- and those that take none --- */

static Status upload(Backend *be, Tensor *dst, const void *host)
{
    (void)be, (void)dst, (void)host;
    return OK;
}

static Status product(Backend *be, const MatrixProduct *p)
{
    (void)be, (void)p;
    return OK;
}

static Status embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids)
{
    (void)be, (void)y, (void)table, (void)ids;
    return OK;
}

static Status rope(Backend *be, Tensor *x, int64_t heads, const Tensor *cs, const Tensor *sn,
                   const int32_t *positions)
{
    (void)be, (void)x, (void)heads, (void)cs, (void)sn, (void)positions;
    return OK;
}

static Status norm(Backend *be, Tensor *y, const Tensor *x, int64_t heads, const Norm *n)
{
    (void)be, (void)y, (void)x, (void)heads, (void)n;
    return OK;
}

static Status glu(Backend *be, Tensor *gate, const Tensor *up, Activation act)
{
    (void)be, (void)gate, (void)up, (void)act;
    return OK;
}

static Status poly_glu(Backend *be, Tensor *gate, const Tensor *up, const float poly[4])
{
    (void)be, (void)gate, (void)up, (void)poly;
    return OK;
}

static Status pair(Backend *be, Tensor *y, const Tensor *x)
{
    (void)be, (void)y, (void)x;
    return OK;
}

static Status one(Backend *be, Tensor *x)
{
    (void)be, (void)x;
    return OK;
}

static Status fakequant_rows(Backend *be, Tensor *x, const Batch *batch, const RowRounding *r)
{
    (void)be, (void)x, (void)batch, (void)r;
    return OK;
}

static const BackendOps MEASURE_OPS = {
    .name = "measure", .close = cpu_close, .alloc = cpu_alloc, .rewind = measure_rewind,
    .upload = upload, .linear_pack = pack, .linear_rows = pack_rows, .product = product,
    .linear = linear, .embed = embed, .rope = rope, .attention = attention, .norm = norm,
    .glu = glu, .poly_glu = poly_glu, .convolve = convolve, .scan = scan, .add = pair,
    .copy = pair, .sigmoid = one, .fakequant_rows = fakequant_rows, .record = record,
    .score = score,
};

/* --- what it was asked for --- */

Status backend_open_measure(Backend *be, int n_threads)
{
    TRY(backend_open(be, "cpu", n_threads));
    CpuMeasure *m = arena_alloc(&be->arena, 1, sizeof *m);
    if (!m) {
        backend_close(be);
        FAIL(ERR_MEMORY, "out of memory: a backend that measures");
    }
    cpu_state(be)->measure = m;
    be->ops = &MEASURE_OPS;
    be->device = be->ops->name;
    return OK;
}

bool backend_measures(const Backend *be)
{
    return be->ops == &MEASURE_OPS;
}

BackendMeasure backend_measured(const Backend *be)
{
    CHECK(backend_measures(be));
    const CpuMeasure *m = ((const CpuState *)be->state)->measure;
    return (BackendMeasure){m->held + be->arena.used, m->peak, m->scratch};
}

Status backend_measure_linear(Backend *be, Linear *out, int64_t n, int64_t k, Dtype dtype,
                              size_t bytes)
{
    int64_t     step = dtype == DTYPE_BF16 ? 32 : 16;
    CpuWeights *p;
    CHECK(backend_measures(be));
    ARENA_NEW(p, &be->arena, 1);
    p->n_panels = ceil_div(n, PANEL);
    p->k_pad = ceil_div(k, step) * step;
    p->data = cpu_measure_take(be, bytes);
    if (!p->data)
        FAIL(ERR_MEMORY, "out of memory: weights that are measured");
    *out = (Linear){.n = n, .k = k, .dtype = dtype, .packed = p};
    return OK;
}
