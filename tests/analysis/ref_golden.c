/* ref_golden.c - loads, runs and compares for the golden tests. */
#include "tests/analysis/ref_golden.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/model/safetensors.h"
#include "kernels/cpufeat.h"
#include "tests/check.h"

/* --- the file ----------------------------------------------------------------- */

typedef struct {
    const SafeTensors *file;
    const char        *path;
    Arena             *arena;
} Source;

static const Tensor *find(const Source *src, const char *name)
{
    for (int64_t i = 0; i < src->file->n; i++)
        if (strcmp(src->file->tensors[i].name, name) == 0)
            return &src->file->tensors[i].view;
    return NULL;
}

/* Copies tensor `name`, which must have this dtype and shape. */
static Status take(const void **out, const Source *src, const char *name, Dtype dtype,
                   int n_dims, const int64_t *shape)
{
    const Tensor *t = find(src, name);
    if (!t)
        FAIL(ERR_FORMAT, "%s: no tensor %s", src->path, name);
    bool fits = t->dtype == dtype && t->n_dims == n_dims;
    for (int i = 0; fits && i < n_dims; i++)
        fits = shape[i] == t->shape[i];
    char text[128];
    if (!fits)
        FAIL(ERR_SHAPE, "%s: %s is %s %s", src->path, name, dtype_name(t->dtype),
             tensor_shape_text(t, text));
    void *copy = arena_raw(src->arena, tensor_count(t), dtype_size(dtype));
    if (!copy)
        FAIL(ERR_MEMORY, "%s: no memory for %s", src->path, name);
    memcpy(copy, t->data, tensor_bytes(t));
    *out = copy;
    return OK;
}

#define TAKE(field, src, name, dtype, ...)                                           \
    do {                                                                             \
        const void   *taken_;                                                        \
        const int64_t shape_[] = {__VA_ARGS__};                                      \
        int           dims_ = sizeof shape_ / sizeof *shape_;                        \
        TRY(take(&taken_, (src), (name), (dtype), dims_, shape_));                   \
        (field) = taken_;                                                            \
    } while (0)

static int64_t size_of(const Source *src, const char *name, int dim)
{
    const Tensor *t = find(src, name);
    return t && t->n_dims > dim ? t->shape[dim] : 0;
}

static Status read_all(Golden *g, const Source *src)
{
    *g = (Golden){.T = size_of(src, "ids", 0), .R = size_of(src, "rows", 0),
                  .L = size_of(src, "hidden", 0), .C = size_of(src, "hidden", 2),
                  .V = size_of(src, "logits", 1), .N = size_of(src, "logit_absmax", 1)};
    g->batch.n_sequences = size_of(src, "start", 0) - 1;
    TAKE(g->ids, src, "ids", DTYPE_I32, g->T);
    TAKE(g->rows, src, "rows", DTYPE_I32, g->R);
    TAKE(g->batch.start, src, "start", DTYPE_I32, g->batch.n_sequences + 1);
    TAKE(g->hidden, src, "hidden", DTYPE_F32, g->L, g->R, g->C);
    TAKE(g->logits, src, "logits", DTYPE_F32, g->R, g->V);
    TAKE(g->logit_absmax, src, "logit_absmax", DTYPE_F32, g->L, g->N);
    TAKE(g->bf16_loss, src, "bf16_loss", DTYPE_F32, 2);
    int64_t *number;
    ARENA_NEW(number, src->arena, g->batch.n_sequences);
    for (int64_t i = 0; i < g->batch.n_sequences; i++)
        number[i] = i;
    g->batch.number = number;
    g->S = g->batch.start[1];
    if (find(src, "lambda"))
        TAKE(g->lambda, src, "lambda", DTYPE_F32, g->L);
    if (find(src, "maps"))
        TAKE(g->maps, src, "maps", DTYPE_F32, g->L, g->N, g->S, g->S);
    return OK;
}

Status golden_read(Golden *g, Arena *a, const char *path)
{
    SafeTensors file = {0};
    Status      s = OK;
    GUARD(safetensors_open(&file, a, path));
    s = read_all(g, &(Source){&file, path, a});
out:
    safetensors_close(&file);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds FOLDER/NAME for each folder in golden/FOLDER. */
static Status add_names(const char **list, int64_t *count, int64_t most, Arena *a,
                        const char *folder)
{
    char text[64];
    snprintf(text, sizeof text, "golden/%s", folder);
    const char    *path = check_path(text);
    DIR           *dir = opendir(path);
    struct dirent *entry;
    if (!dir)
        FAIL(ERR_IO, "%s: cannot be opened", path);
    while (*count < most && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            list[(*count)++] = arena_printf(a, "%s/%s", folder, entry->d_name);
    closedir(dir);
    return OK;
}

Status golden_names(const char ***names, int64_t *n, Arena *a)
{
    static const char *const FOLDERS[] = {"models", "baselines", "variants"};
    enum { MOST = 256 };
    const char **list;
    int64_t      count = 0;
    ARENA_NEW(list, a, MOST);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++)
        TRY(add_names(list, &count, MOST, a, FOLDERS[i]));
    if (count == 0 || count == MOST)
        FAIL(ERR_RANGE, "%lld golden folders", (long long)count);
    qsort(list, (size_t)count, sizeof *list, by_name);
    *names = list;
    *n = count;
    return OK;
}

/* Some have no config: what their files are called tells the layout. */
const char *golden_folder(const char *name)
{
    static char text[4][512];
    static int  turn;
    char       *p = text[turn++ % 4], file[256];
    snprintf(file, sizeof file, "golden/%s/config.json", name);
    bool has_config = access(check_path(file), F_OK) == 0;
    snprintf(file, sizeof file, "golden/%s", name);
    snprintf(p, sizeof text[0], "%s%s", has_config ? "" : "unilm@", check_path(file));
    return p;
}

const char *golden_file(const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "golden/%s/expected.safetensors", name);
    return check_path(file);
}

int64_t golden_query_head(const Model *m, int64_t head, int64_t map)
{
    int64_t r = m->config.n_signals, block = head / r * (r + 1);
    if (strcmp(m->arch, "DiffLlamaForCausalLM") == 0)
        return head + map * m->config.n_heads;
    if (m->config.n_maps == 1)
        return head;
    return map ? block + r : block + head % r;
}

/* --- the run ------------------------------------------------------------------ */

Status subject_open(Subject *s, const char *path, const ModelOptions *options, int n_threads)
{
    return subject_open_on(s, "cpu", path, options, n_threads);
}

Status subject_open_on(Subject *s, const char *device, const char *path,
                       const ModelOptions *options, int n_threads)
{
    *s = (Subject){0};
    TRY(backend_open(&s->be, device, n_threads));
    return model_load(&s->m, &s->arena, &s->be, path, options);
}

void subject_close(Subject *s)
{
    model_close(&s->m);
    backend_close(&s->be);
    arena_close(&s->arena);
}

typedef struct {
    Backend *be;
    float   *hidden;
} HiddenSink;

static Status keep_hidden(void *context, int64_t layer, const Tensor *x)
{
    HiddenSink *sink = context;
    return backend_download(sink->be, sink->hidden + layer * tensor_count(x), x);
}

static Status run_in_backend(Run *r, Subject *s, const int32_t *ids, const Batch *batch,
                             RunQuant quant, Probe *probe, Cache *cache)
{
    const ModelConfig *c = &s->m.config;
    int64_t T = batch->start[batch->n_sequences];
    Tensor  final, logits;
    TRY(backend_tensor(&s->be, &final, 2, (int64_t[]){T, c->hidden}));
    TRY(backend_tensor(&s->be, &logits, 2, (int64_t[]){T, c->vocab}));
    TRY(model_forward(&s->m, &final, ids, batch, quant, probe, cache));
    TRY(op_linear(&s->be, &logits, &final, &s->m.head));
    TRY(backend_download(&s->be, r->final, &final));
    return backend_download(&s->be, r->logits, &logits);
}

Status subject_run(Run *r, Subject *s, const int32_t *ids, const Batch *batch, Probe *probe,
                   Cache *cache)
{
    return subject_run_rounded(r, s, ids, batch, (RunQuant){.bits = 16}, probe, cache);
}

Status subject_run_rounded(Run *r, Subject *s, const int32_t *ids, const Batch *batch,
                           RunQuant quant, Probe *probe, Cache *cache)
{
    const ModelConfig *c = &s->m.config;
    int64_t T = batch->start[batch->n_sequences];
    ARENA_NEW(r->hidden, &s->arena, c->n_layers * T * c->hidden);
    ARENA_NEW(r->final, &s->arena, T * c->hidden);
    ARENA_NEW(r->logits, &s->arena, T * c->vocab);
    HiddenSink sink = {.be = &s->be, .hidden = r->hidden};
    Probe      hidden_only = {0};
    if (!probe)
        probe = &hidden_only;
    probe->on_hidden = keep_hidden;
    probe->on_hidden_context = &sink;
    ArenaMark mark = backend_mark(&s->be);
    Status    status = run_in_backend(r, s, ids, batch, quant, probe, cache);
    backend_rewind(&s->be, mark);
    probe->on_hidden = NULL;
    probe->on_hidden_context = NULL;
    return status;
}

/* --- the comparison ----------------------------------------------------------- */

typedef struct {
    double difference, largest;
} Extent;

static void extend(Extent *e, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - (double)want[i]);
        /* fmax would lose a NaN */
        if (!(difference <= e->difference))
            e->difference = isfinite(difference) ? difference : INFINITY;
        e->largest = fmax(e->largest, fabs((double)want[i]));
    }
}

/* Infinity, which no bound allows, where there is nothing to compare with. */
static double share(const Extent *e)
{
    bool usable = e->largest > 0.0 && isfinite(e->largest);
    return usable ? e->difference / e->largest : INFINITY;
}

double ref_worst_gap(const float *got, const float *want, int64_t n)
{
    Extent e = {0};
    extend(&e, got, want, n);
    return share(&e);
}

double golden_worst(const Golden *g, const float *got, const float *want, int64_t width)
{
    Extent e = {0};
    for (int64_t i = 0; i < g->R; i++)
        extend(&e, got + g->rows[i] * width, want + i * width, width);
    return share(&e);
}

double golden_worst_hidden(const Golden *g, const Run *r)
{
    double worst = 0.0;
    for (int64_t l = 0; l < g->L; l++) {
        const float *got = r->hidden + l * g->T * g->C, *want = g->hidden + l * g->R * g->C;
        worst = fmax(worst, golden_worst(g, got, want, g->C));
    }
    return worst;
}

/* --- a whole trial ------------------------------------------------------------ */

/* transformers' own bf16 run rounds everywhere, ours only the inputs of products:
 * ours should lose less. Rounding errors are a draw, so allow half as much again. */
static const double BF16_SLACK = 1.5;

static Status check_sizes(const Golden *g, const ModelConfig *c, const char *path)
{
    if (g->L != c->n_layers || g->C != c->hidden || g->V != c->vocab ||
        g->N != model_query_heads(c))
        FAIL(ERR_SHAPE, "%s is of another model", path);
    return OK;
}

Status trial_run(Trial *t, const char *folder, const char *expected, Dtype dtype,
                 Probe *probe)
{
    ModelOptions options = {.dtype = dtype};
    TRY(subject_open(&t->subject, folder, &options, 0));
    TRY(golden_read(&t->golden, &t->subject.arena, expected));
    TRY(check_sizes(&t->golden, &t->subject.m.config, expected));
    TRY(subject_run(&t->run, &t->subject, t->golden.ids, &t->golden.batch, probe, NULL));
    t->logits = golden_worst(&t->golden, t->run.logits, t->golden.logits, t->golden.V);
    t->hidden = golden_worst_hidden(&t->golden, &t->run);
    return OK;
}

void golden_compare(const char *name, const char *folder, const char *expected, Dtype dtype,
                    bool loud)
{
    Trial  t = {0};
    Status s = trial_run(&t, folder, expected, dtype, NULL);
    if (s != OK) {
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    } else {
        double allow_logits = GOLDEN_F32, allow_hidden = GOLDEN_F32;
        if (dtype == DTYPE_BF16) {
            allow_logits = BF16_SLACK * (double)t.golden.bf16_loss[0];
            allow_hidden = BF16_SLACK * (double)t.golden.bf16_loss[1];
        }
        if (loud)
            printf("golden %s%s: logits %.1e, hidden %.1e\n", name,
                   dtype == DTYPE_BF16 ? " in bf16" : "", t.logits, t.hidden);
        if (!(t.logits <= allow_logits) || !(t.hidden <= allow_hidden))
            check_fail(__FILE__, __LINE__, "%s on %s: logits %.1e of %.1e, hidden %.1e of "
                       "%.1e", name, cpu_isa_name(cpu_isa()), t.logits, allow_logits,
                       t.hidden, allow_hidden);
    }
    subject_close(&t.subject);
}
