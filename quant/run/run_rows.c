/* run_rows.c - a layer whose weights are coded as they are, without a text: each matrix goes
 * from the mapped file to codes a few rows at a time, in the caches of the threads that share
 * them out. What is not coded, run_rest copies. */
#include <omp.h>
#include <string.h>

#include "kernels/size.h"
#include "quant/run/run.h"

enum { BLOCK = 16 << 10 };  // weights that a thread reads at once: f32 in its L2

/* Shared by the threads of a matrix. */
typedef struct {
    Run               *run;
    const LayerMatrix *m;
    const ModelTensor *source;
    const Scheme      *scheme;
    int64_t            rows, n_blocks;  // of a block; of them
    RtnCodes           codes;
    float             *w;        // [threads, rows, K]
    RoundError        *errors;   // [n_blocks]
    bool               failed;
} Rows;

static const ModelTensor *source_of(const Run *r, const LayerMatrix *m)
{
    const ModelInfo *info = &r->layers.info;
    int64_t          i = 0;
    while (strcmp(info->tensors[i].name, m->name) != 0)
        i++;
    return &info->tensors[i];
}

/* Are the matrices of a layer that are coded coded as they are? */
bool run_layer_is_plain(const Run *r, int64_t layer)
{
    LayerWeights w;
    if (r->calibrated || r->o->rotate)
        return false;
    layers_describe(&w, &r->layers, layer);
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        const LayerMatrix *m = &w.at[kind];
        const Scheme      *s = run_scheme(r, m->name);
        if (s->bits && (s->method == METHOD_GPTQ || m->transposed || source_of(r, m)->packed))
            return false;
    }
    return true;
}

static bool encode_block(const Rows *j, int64_t block, float *w)
{
    int64_t first = block * j->rows, n = i64_min(j->rows, j->m->n - first), K = j->m->k;
    int64_t group = first * rtn_groups(j->scheme, K);
    RtnCodes out = {j->codes.codes + first * K, j->codes.scales + group,
                    j->codes.zeros + group};
    Matrix   part = {.name = j->m->name, .n = n, .k = K, .w = w, .scheme = *j->scheme};
    if (layers_take_rows(w, &j->run->layers, j->source, first, n) != OK)
        return false;
    bool good = method_encode_rows(&out, &part);
    j->errors[block] = part.error;
    return good;
}

static void encode_all(Rows *j)
{
    bool failed = false;
#pragma omp parallel for schedule(dynamic, 1) reduction(|| : failed)
    for (int64_t i = 0; i < j->n_blocks; i++) {
        float *w = j->w + omp_get_thread_num() * j->rows * j->m->k;
        failed = failed || !encode_block(j, i, w);
    }
    j->failed = failed;
}

/* Fails with the sentence that the whole matrix gets. */
static Status explain(const Rows *j)
{
    Run          *r = j->run;
    LayerMatrix   whole = *j->m;
    MatrixFigures f;
    whole.w = arena_raw(&r->scratch, whole.n * whole.k, sizeof *whole.w);
    if (!whole.w)
        FAIL(ERR_MEMORY, "out of memory: %s", whole.name);
    TRY(layers_read_tensor(whole.w, &r->layers, j->source));
    return run_encode(&j->codes, &f, r, &whole, j->scheme, NULL);
}

static Status code_rows(Rows *j, RoundError *e)
{
    Run    *r = j->run;
    int64_t N = j->m->n, K = j->m->k;
    j->rows = i64_max(BLOCK / K, 1);
    j->n_blocks = ceil_div(N, j->rows);
    TRY(run_codes(&j->codes, &r->scratch, j->scheme, N, K));
    ARENA_NEW(j->errors, &r->scratch, j->n_blocks);
    j->w = arena_raw(&r->scratch, omp_get_max_threads() * j->rows * K, sizeof *j->w);
    if (!j->w)
        FAIL(ERR_MEMORY, "out of memory: rows of %s", j->m->name);
    layers_expect_rows(j->source, 0, N);
    encode_all(j);
    layers_release_rows(j->source, 0, N);
    if (j->failed)
        TRY(explain(j));
    *e = (RoundError){0};
    for (int64_t i = 0; i < j->n_blocks; i++) {
        e->error2 += j->errors[i].error2;
        e->sum2 += j->errors[i].sum2;
    }
    return export_codes(r->export, j->m->name, &j->codes);
}

Status run_layer_rows(Run *r, int64_t layer)
{
    LayerWeights w;
    layers_describe(&w, &r->layers, layer);
    for (int kind = 0; kind < N_WEIGHTS; kind++) {
        const LayerMatrix *m = &w.at[kind];
        ArenaMark          mark = arena_mark(&r->scratch);
        Rows               j = {.run = r, .m = m, .scheme = run_scheme(r, m->name)};
        if (!j.scheme->bits)
            continue;
        j.source = source_of(r, m);
        TRY(code_rows(&j, &r->figures[layer * N_WEIGHTS + kind].weight));
        arena_rewind(&r->scratch, mark);
    }
    return OK;
}
