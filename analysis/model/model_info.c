/* model_info.c - sums over a source's tensors, lambdas, memory estimates. */
#include "analysis/model/model_info.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/model/packed.h"

/* --- what it is --- */

/* Last part of a path and its length, without slashes at its end. */
static const char *last_part(const char *path, size_t *n)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    *n = end - begin;
    return path + begin;
}

/* The folder's name; "." and ".." have one too. The root's is "model". Of a GGUF file
 * its own without the ending. */
static const char *model_name(Arena *a, const char *path)
{
    static const char END[] = ".gguf";
    const size_t      end = sizeof END - 1;
    char              whole[PATH_MAX];
    size_t            n;
    const char       *name = last_part(path, &n);
    if (strspn(name, ".") >= n && n <= 2 && realpath(path, whole))
        name = last_part(whole, &n);
    if (n > end && strncasecmp(name + n - end, END, end) == 0)
        n -= end;
    return n ? arena_text(a, name, n) : arena_text(a, "model", 5);
}

static const char *pairing_text(Arena *a, const Config *c)
{
    long long half = c->keys.num_attention_heads / 2, K = c->keys.num_key_value_heads;
    switch (c->arch->pairing) {
    case PAIR_NONE:
        return arena_printf(a, "none, softmax attention");
    case PAIR_NEXT:
        if (c->model.n_signals > 1)
            return arena_printf(a, "%lld signal query heads, then the noise head they share; "
                                "key-value heads 2j and 2j+1", (long long)c->model.n_signals);
        return arena_printf(a, "query heads 2i and 2i+1, key-value heads 2j and 2j+1");
    case PAIR_SHARED:
        return arena_printf(a, "query heads 2i and 2i+1, on the same keys and values");
    case PAIR_HALVES:
        break;
    }
    if (K % 2)
        return arena_printf(a, "query heads i and i+%lld, each with its own key-value pair",
                            half);
    return arena_printf(a, "query heads i and i+%lld, key-value heads j and j+%lld", half,
                        K / 2);
}

static Status fill_lambda(ModelInfo *info, Arena *a, const Source *s)
{
    double *lambda, *init;
    int64_t n = info->config.n_layers;
    if (info->config.n_maps == 1 || info->config.lambda_rows)
        return OK;
    ARENA_NEW(lambda, a, n);
    ARENA_NEW(init, a, n);
    for (int64_t i = 0; i < n; i++) {
        lambda[i] = init[i] = NAN;
        if (!model_attends(&info->config, i))
            continue;
        TRY(source_lambda(&lambda[i], a, s, i));
        init[i] = source_lambda_init(s, i);
    }
    info->lambda = lambda;
    info->lambda_init = init;
    return OK;
}

static void sum_tensors(ModelInfo *info)
{
    int64_t of_dtype[N_DTYPES] = {0};
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        int64_t            n = tensor_count(&t->view);
        info->n_params += n;
        info->n_quantizable += t->quantizable ? n : 0;
        info->n_bytes += model_tensor_bytes(t);
        of_dtype[t->view.dtype] += n;
        if (of_dtype[t->view.dtype] > of_dtype[info->stored])
            info->stored = t->view.dtype;
    }
}

/* A RunQuant rounds the inputs of all matrices of all blocks, and those alone. */
static bool all_packed(const ModelInfo *info)
{
    for (int64_t i = 0; i < info->n_tensors; i++)
        if ((info->tensors[i].packed != NULL) != info->tensors[i].quantizable)
            return false;
    return true;
}

static Status fill_run(ModelInfo *info, Arena *a, const RunQuant *asked)
{
    info->run = *asked;
    info->run.bits = 16;
    if (!asked->acts || all_packed(info))
        return OK;
    info->run.acts = 0;
    info->quantization = arena_printf(a, "%s, which is not applied: some layers take others",
                                      info->quantization);
    if (!info->quantization)
        FAIL(ERR_MEMORY, "out of memory: a model's quantization");
    return OK;
}

Status model_info_fill(ModelInfo *info, Arena *a, const Source *s)
{
    *info = (ModelInfo){
        .path = s->path,
        .name = model_name(a, s->path),
        .arch = s->config.arch->architecture,
        .config_text = s->config.text,
        .layout = s->layout,
        .quantization = s->config.quant.summary,
        .pairing = pairing_text(a, &s->config),
        .config = s->config.model,
        .n_tensors = s->n_used,
        .tensors = s->used,
        .n_files = s->checkpoint->n_files,
        .checkpoint = s->checkpoint,
    };
    if (!info->name || !info->pairing)
        FAIL(ERR_MEMORY, "out of memory: a model's name");
    sum_tensors(info);
    TRY(fill_run(info, a, &s->config.quant.run));
    return fill_lambda(info, a, s);
}

Status model_info_open(ModelInfo *info, Arena *a, const char *path)
{
    Source source;
    *info = (ModelInfo){0};
    TRY(source_open(&source, a, path));
    Status s = model_info_fill(info, a, &source);
    if (s != OK) {
        source_close(&source);
        *info = (ModelInfo){0};
    }
    return s;
}

void model_info_close(ModelInfo *info)
{
    if (info->checkpoint)
        checkpoint_close(info->checkpoint);
    *info = (ModelInfo){0};
}

/* --- tensors --- */

size_t model_tensor_bytes(const ModelTensor *t)
{
    return t->packed ? t->packed->bytes : tensor_bytes(&t->view);
}

const char *model_tensor_format(const ModelTensor *t, char *text)
{
    const Packed *p = t->packed;
    char          share[24];
    if (!p || p->kind == PACKED_NUMBERS) {
        snprintf(text, MODEL_FORMAT, "%s", dtype_name(p ? p->dtype : t->view.dtype));
    } else if (p->kind == PACKED_BLOCKS) {
        snprintf(text, MODEL_FORMAT, "%s", block_info(p->block)->name);
    } else {
        snprintf(share, sizeof share, "g%d", (int)p->group);
        snprintf(text, MODEL_FORMAT, "%d-bit %.10s%s", p->bits,
                 p->one_scale ? "tensor" : p->n_groups == 1 ? "channel" : share,
                 p->symmetric ? "" : " asym");
    }
    return text;
}
