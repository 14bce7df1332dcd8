/* backend.c - opening a device, its memory, and the checks before each
 * operation. Attention's are in backend_attention.c, those of operations on rows
 * in backend_rows.c, those along sequences in backend_ssm.c. */
#include "kernels/backend.h"

#include <ctype.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend_check.h"
#include "kernels/size.h"

/* --- devices and memory --- */

/* N of "cuda:N", 0 of "cuda", -1 of other names. */
static int cuda_device(const char *name)
{
    enum { MOST = 1000 };
    if (strncmp(name, "cuda", 4) != 0)
        return -1;
    if (!name[4])
        return 0;
    char *end = NULL;
    long  n = name[4] == ':' && isdigit((unsigned char)name[5]) ? strtol(name + 5, &end, 10) : -1;
    return end && !*end && n < MOST ? (int)n : -1;
}

/* The GPU, or the CPU and why. */
static Status open_best(Backend *be)
{
    if (!cuda_built)
        return cpu_open(be);
    Status s = cuda_open(be, 0);
    if (s != ERR_DEVICE)
        return s;
    int n_threads = be->n_threads;
    backend_close(be);
    be->n_threads = n_threads;
    be->no_gpu = arena_printf(&be->arena, "%s", status_text());
    return be->no_gpu ? cpu_open(be) : STATUS(ERR_MEMORY, "out of memory");
}

static Status open_device(Backend *be, const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return cpu_open(be);
    int device = cuda_device(name);
    if (device >= 0)
        return cuda_open(be, device);
    if (strcmp(name, "auto") != 0)
        FAIL(ERR_USAGE, "unknown device \"%.40s\", expected cpu, cuda, cuda:N or auto", name);
    return open_best(be);
}

Status backend_open(Backend *be, const char *name, int n_threads)
{
    *be = (Backend){0};
    if (n_threads < 0)
        FAIL(ERR_RANGE, "%d threads, expected 0 (all) or more", n_threads);
    be->n_threads = n_threads ? n_threads : omp_get_max_threads();
    Status s = open_device(be, name);
    be->arena.keep = true;  // every pass takes what the one before it took
    if (s != OK)
        backend_close(be);
    else if (!be->device)
        be->device = be->ops->name;
    return s;
}

void backend_close(Backend *be)
{
    if (be->ops)
        be->ops->close(be);
    arena_close(&be->arena);
    *be = (Backend){0};
}

void backend_limit(Backend *be, size_t bytes)
{
    if (be->ops->limit)
        be->ops->limit(be, bytes);
}

Status backend_tensor(Backend *be, Tensor *t, int n_dims, const int64_t *shape)
{
    size_t n = 1;
    CHECK(n_dims >= 0 && n_dims <= TENSOR_MAX_DIMS);
    *t = (Tensor){.dtype = DTYPE_F32, .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++) {
        t->shape[i] = shape[i];
        if (shape[i] < 0 || !size_mul(n, (size_t)shape[i], &n) || n > INT64_MAX / 8)
            FAIL(ERR_RANGE, "a tensor whose dim %d is %lld does not fit in memory", i,
                 (long long)shape[i]);
    }
    return be->ops->alloc(be, t);
}

ArenaMark backend_mark(const Backend *be)
{
    return arena_mark(&be->arena);
}

void backend_rewind(Backend *be, ArenaMark mark)
{
    if (be->ops->rewind)
        be->ops->rewind(be, mark);
    arena_rewind(&be->arena, mark);
}

void backend_trim(Backend *be)
{
    arena_trim(&be->arena);
}

bool backend_on_host(const Backend *be)
{
    return !be->ops->limit;
}

Status backend_upload(Backend *be, Tensor *dst, const void *host)
{
    return be->ops->upload(be, dst, host);
}

Status backend_download(Backend *be, void *host, const Tensor *src)
{
    return be->ops->download(be, host, src);
}

Status backend_lend(Backend *be, Tensor *t, float *host)
{
    CHECK(t->dtype == DTYPE_F32);
    if (!be->ops->on_host)
        return be->ops->upload(be, t, host);
    backend_lend_room(be, t, host);
    return OK;
}

void backend_lend_room(Backend *be, Tensor *t, float *host)
{
    CHECK(t->dtype == DTYPE_F32);
    if (be->ops->on_host)
        t->data = host;
}

Status backend_return(Backend *be, float *host, const Tensor *t)
{
    CHECK(t->dtype == DTYPE_F32);
    return t->data == host ? OK : be->ops->download(be, host, t);
}

const void *backend_host(const Backend *be, const Tensor *t)
{
    return be->ops->on_host ? t->data : NULL;
}

/* --- operations --- */

static Status begin_pack(Linear *out, int64_t n, int64_t k, Dtype dtype)
{
    if (n < 1 || k < 1 || n > INT32_MAX || k > INT32_MAX)
        FAIL(ERR_SHAPE, "linear_pack: weights [%lld,%lld], expected 1 to %d each",
             (long long)n, (long long)k, INT32_MAX);
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "linear_pack: products in %s, expected F32 or BF16",
             dtype_name(dtype));
    *out = (Linear){.n = n, .k = k, .dtype = dtype};
    return OK;
}

Status op_linear_pack(Backend *be, Linear *out, const float *w, const float *bias, int64_t n,
                      int64_t k, Dtype dtype)
{
    TRY(begin_pack(out, n, k, dtype));
    return be->ops->linear_pack(be, out, w, bias);
}

static Status pack_whole(Backend *be, Arena *scratch, Linear *out, const RowReader *rows,
                         const float *bias)
{
    size_t items;
    float *w = NULL;
    if (size_mul((size_t)out->n, (size_t)out->k, &items))
        w = arena_raw(scratch, (int64_t)items, sizeof *w);
    if (!w)
        FAIL(ERR_MEMORY, "out of memory: weights [%lld,%lld] on their way", (long long)out->n,
             (long long)out->k);
    TRY(rows->read(rows->context, w, 0, out->n));
    return be->ops->linear_pack(be, out, w, bias);
}

Status op_linear_pack_rows(Backend *be, Linear *out, const RowReader *rows, const float *bias,
                           int64_t n, int64_t k, Dtype dtype)
{
    TRY(begin_pack(out, n, k, dtype));
    if (be->ops->linear_rows)
        return be->ops->linear_rows(be, out, rows, bias);
    Arena  scratch = {0};
    Status s = pack_whole(be, &scratch, out, rows, bias);
    arena_close(&scratch);
    return s;
}

/* --- codes --- */

static Status check_codes_shape(const Codes *c, Dtype dtype)
{
    if (c->n < 1 || c->k < 1 || c->n > INT32_MAX || c->k > INT32_MAX)
        FAIL(ERR_SHAPE, "linear_codes: weights [%lld,%lld], expected 1 to %d each",
             (long long)c->n, (long long)c->k, INT32_MAX);
    if (c->bits != 4 && c->bits != 6 && c->bits != 8)
        FAIL(ERR_UNSUPPORTED, "linear_codes: codes of %d bits, expected 4, 6 or 8", c->bits);
    if (c->group != c->k && (c->group < 1 || c->group % 16 || c->k % c->group))
        FAIL(ERR_UNSUPPORTED,
             "linear_codes: groups of %lld in rows of %lld, expected a multiple of 16 that "
             "divides the row, or whole rows",
             (long long)c->group, (long long)c->k);
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "linear_codes: products in %s, expected F32 or BF16",
             dtype_name(dtype));
    return OK;
}

/* Largest and smallest of a row first: that runs at the speed of memory. */
static Status check_codes(const Codes *c)
{
    const int low = -(1 << (c->bits - 1)), high = -low - 1;
    for (int64_t n = 0; n < c->n; n++) {
        const int8_t *row = c->codes + n * c->k;
        int8_t        min = 0, max = 0;
        int64_t       k = 0;
        for (int64_t i = 0; i < c->k; i++) {
            min = row[i] < min ? row[i] : min;
            max = row[i] > max ? row[i] : max;
        }
        if (min >= low && max <= high)
            continue;
        while (row[k] >= low && row[k] <= high)
            k++;
        FAIL(ERR_RANGE, "linear_codes: code [%lld,%lld] is %d, expected %d to %d",
             (long long)n, (long long)k, row[k], low, high);
    }
    return OK;
}

/* name: of values [N, K/group]. */
static Status check_finite(const Codes *c, const char *name, const float *values)
{
    int64_t n_groups = c->k / c->group;
    for (int64_t i = 0; i < c->n * n_groups; i++)
        if (!isfinite(values[i]))
            FAIL(ERR_RANGE, "linear_codes: %s [%lld,%lld] is %g, expected a finite number",
                 name, (long long)(i / n_groups), (long long)(i % n_groups),
                 (double)values[i]);
    return OK;
}

/* Each input once. */
static Status check_order(Backend *be, const Codes *c)
{
    ArenaMark mark = backend_mark(be);
    Status    s = OK;
    bool     *seen;
    ARENA_NEW(seen, &be->arena, c->k);
    for (int64_t i = 0; i < c->k && s == OK; i++) {
        int32_t k = c->order[i];
        if (k < 0 || k >= c->k)
            s = STATUS(ERR_RANGE,
                       "linear_codes: input of column %lld is %d, expected 0 to %lld",
                       (long long)i, (int)k, (long long)c->k - 1);
        else if (seen[k])
            s = STATUS(ERR_RANGE, "linear_codes: input %d has two columns, the second is %lld",
                       (int)k, (long long)i);
        else
            seen[k] = true;
    }
    backend_rewind(be, mark);
    return s;
}

Status op_linear_codes(Backend *be, Linear *out, const Codes *c, const float *bias,
                       Dtype dtype)
{
    TRY(check_codes_shape(c, dtype));
    TRY(check_codes(c));
    TRY(check_finite(c, "scale", c->scales));
    if (c->offsets)
        TRY(check_finite(c, "offset", c->offsets));
    if (c->order)
        TRY(check_order(be, c));
    *out = (Linear){.n = c->n, .k = c->k, .dtype = dtype, .bits = c->bits};
    return be->ops->linear_codes(be, out, c, bias);
}

static Status check_linear(const Tensor *y, const Tensor *x, const Linear *w)
{
    TRY(backend_check_2d("linear", "x", x, -1, w->k));
    TRY(backend_check_2d("linear", "y", y, x->shape[0], w->n));
    return backend_check_rows("linear", x);
}

Status op_linear(Backend *be, Tensor *y, const Tensor *x, const Linear *w)
{
    TRY(check_linear(y, x, w));
    return be->ops->linear(be, y, x, w);
}

Status op_linears(Backend *be, const LinearOut *outs, int n, const Tensor *x)
{
    for (int i = 0; i < n; i++)
        TRY(check_linear(outs[i].y, x, outs[i].w));
    if (be->ops->linears)
        return be->ops->linears(be, outs, n, x);
    for (int i = 0; i < n; i++)
        TRY(be->ops->linear(be, outs[i].y, x, outs[i].w));
    return OK;
}

/* A matrix of rows x cols, rows ld apart. */
static Status check_matrix(const char *name, int64_t rows, int64_t cols, int64_t ld)
{
    size_t items;
    if (rows < 0 || cols < 0 || ld < cols)
        FAIL(ERR_SHAPE, "product: %s is [%lld,%lld] with rows %lld apart", name,
             (long long)rows, (long long)cols, (long long)ld);
    if (!size_mul((size_t)rows, (size_t)ld, &items) || items > INT64_MAX / sizeof(float))
        FAIL(ERR_RANGE, "product: %s [%lld,%lld] does not fit in memory", name,
             (long long)rows, (long long)ld);
    return OK;
}

Status op_product(Backend *be, const MatrixProduct *p)
{
    TRY(check_matrix("a", p->a_t ? p->k : p->m, p->a_t ? p->m : p->k, p->lda));
    TRY(check_matrix("b", p->b_t ? p->n : p->k, p->b_t ? p->k : p->n, p->ldb));
    TRY(check_matrix("c", p->m, p->n, p->ldc));
    return p->m && p->n ? be->ops->product(be, p) : OK;
}

Status op_gram(Backend *be, double *gram, const Tensor *x, Dtype dtype)
{
    TRY(backend_check_2d("gram", "x", x, -1, -1));
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "gram: products in %s, expected F32 or BF16", dtype_name(dtype));
    return x->shape[0] && x->shape[1] ? be->ops->gram(be, gram, x, dtype) : OK;
}

Status op_embed(Backend *be, Tensor *y, const Tensor *table, const int32_t *ids)
{
    TRY(backend_check_2d("embed", "table", table, -1, -1));
    TRY(backend_check_2d("embed", "y", y, -1, table->shape[1]));
    TRY(backend_check_values("embed", "token id", ids, y->shape[0], 0, table->shape[0]));
    return be->ops->embed(be, y, table, ids);
}

Status op_record(Backend *be, const Tensor *x, const Batch *batch, const int32_t *positions,
                 ValueRecord *r)
{
    TRY(backend_check_2d("record", "x", x, -1, r->n_channels));
    TRY(backend_check_batch("record", batch, x->shape[0]));
    TRY(backend_check_values("record", "position", positions, x->shape[0], 0, r->n_positions));
    return be->ops->record(be, x, batch, positions, r);
}

Status op_fakequant_rows(Backend *be, Tensor *x, const Batch *batch, const RowRounding *r)
{
    TRY(backend_check_2d("fakequant_rows", "x", x, -1, -1));
    TRY(backend_check_rows("fakequant_rows", x));
    TRY(backend_check_batch("fakequant_rows", batch, x->shape[0]));
    if (r->bits != 8 && r->bits != 6 && r->bits != 4)
        FAIL(ERR_UNSUPPORTED, "fakequant_rows: %d bits, expected 8, 6 or 4", r->bits);
    return be->ops->fakequant_rows(be, x, batch, r);
}

Status op_fakequant_kv(Backend *be, Tensor *k, Tensor *v, const Batch *batch, int64_t head_dim,
                       int bits)
{
    TRY(backend_check_2d("fakequant_kv", "k", k, -1, -1));
    TRY(backend_check_rows("fakequant_kv", k));
    TRY(backend_check_2d("fakequant_kv", "v", v, k->shape[0], k->shape[1]));
    TRY(backend_check_batch("fakequant_kv", batch, k->shape[0]));
    if (head_dim < 1 || k->shape[1] % head_dim)
        FAIL(ERR_SHAPE, "fakequant_kv: heads of %lld in rows of %lld, expected a divisor",
             (long long)head_dim, (long long)k->shape[1]);
    if (bits != 8 && bits != 4)
        FAIL(ERR_UNSUPPORTED, "fakequant_kv: %d bits, expected 8 or 4", bits);
    return be->ops->fakequant_kv(be, k, v, batch, head_dim, bits);
}

Status op_score(Backend *be, const Tensor *x, const Linear *head, const int32_t *targets,
                float *logprob, int32_t *best)
{
    TRY(backend_check_2d("score", "x", x, -1, head->k));
    TRY(backend_check_rows("score", x));
    TRY(backend_check_values("score", "target", targets, x->shape[0], INT32_MIN, head->n));
    return be->ops->score(be, x, head, targets, logprob, best);
}

Status op_divergence(Backend *be, const HeadPair *p)
{
    int64_t T = p->x[0]->shape[0], V = p->head[0]->n;
    TRY(backend_check_2d("divergence", "x", p->x[0], -1, p->head[0]->k));
    TRY(backend_check_2d("divergence", "x of the reference", p->x[1], T, p->head[1]->k));
    TRY(backend_check_rows("divergence", p->x[0]));
    if (p->head[1]->n != V)
        FAIL(ERR_SHAPE, "divergence: vocabularies of %lld and %lld words, expected one",
             (long long)V, (long long)p->head[1]->n);
    TRY(backend_check_values("divergence", "target", p->targets, T, INT32_MIN, V));
    return T ? be->ops->divergence(be, p) : OK;
}

/* --- names --- */

const char *activation_name(Activation act)
{
    static const char *const NAMES[N_ACTS] = {
        [ACT_SILU] = "silu", [ACT_GELU] = "gelu", [ACT_GELU_TANH] = "gelu_tanh",
        [ACT_RELU] = "relu"};
    CHECK((unsigned)act < N_ACTS);
    return NAMES[act];
}

const char *logit_scale_name(LogitScale s)
{
    static const char *const NAMES[N_SCALES] = {
        [SCALE_TENSOR] = "tensor", [SCALE_HEAD] = "head", [SCALE_ROW] = "row"};
    CHECK((unsigned)s < N_SCALES);
    return NAMES[s];
}
