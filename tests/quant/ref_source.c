/* ref_source.c - small checkpoints, and the shortest driver of an export. The writer of
 * the analysis tests is compiled into this floor's tests too. */
#include "tests/quant/ref_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/analysis/ref_checkpoint.c"

const char *ref_source(const char *name, bool diff, bool tied, const char *dtype)
{
    const char *path = ref_path("%s", name);
    char        file[600];
    RefModel    m = {.diff = diff, .hidden = 64, .inter = 96, .vocab = 40, .layers = 2,
                     .heads = 4, .kv_heads = 4, .head_dim = 16, .tied = tied};
    ref_model_fill(&m, dtype);
    memset(ref_model_find(&m, "model.layers.1.mlp.up_proj.weight")->data, 0, 2 * 64 * 4);
    ref_model_write(&m, path, 2);
    ref_model_free(&m);
    snprintf(file, sizeof file, "%s/tokenizer.json", path);
    ref_write_text(file, "{\"version\": \"1.0\"}");
    snprintf(file, sizeof file, "%s/LICENSE.md", path);
    ref_write_text(file, "do as you like");
    snprintf(file, sizeof file, "%s/notes.txt", path);
    ref_write_text(file, "not carried over");
    snprintf(file, sizeof file, "%s/README", path);
    mkdir(file, 0777);
    return path;
}

float *ref_source_read(const ModelTensor *t)
{
    int64_t n = tensor_count(&t->view);
    size_t  bytes = tensor_bytes(&t->view);
    void   *aligned = malloc(bytes);
    float  *x = malloc((size_t)n * sizeof *x);
    Tensor  view = t->view;
    view.data = memcpy(aligned, t->view.data, bytes);
    CHECK(tensor_to_f32(x, &view, 0, n) == OK);
    free(aligned);
    return x;
}

static Status export_matrix(Export *e, const char *name, const ModelTensor *t,
                            const Scheme *s)
{
    int64_t  n = t->view.shape[0], k = t->view.shape[1];
    float   *w = ref_source_read(t);
    RtnCodes c = {malloc((size_t)(n * k)), malloc((size_t)(n * k) * sizeof(float)),
                  malloc((size_t)(n * k))};
    Status   status = rtn_encode(&c, name, w, n, k, s);
    if (status == OK)
        status = export_codes(e, name, &c);
    free(w);
    free(c.codes);
    free(c.scales);
    free(c.zeros);
    return status;
}

/* The head is the embedding: coded where the plan says so, else in two parts. */
static Status export_head(Export *e, const ExportOptions *o)
{
    static const char HEAD[] = "lm_head.weight";
    const ModelTensor *embed = o->source->info.tensors;
    const PlanEntry   *entry = plan_find(o->plan, HEAD);
    while (strcmp(embed->name, "model.embed_tokens.weight") != 0)
        embed++;
    if (entry && entry->scheme.bits)
        return export_matrix(e, HEAD, embed, &entry->scheme);
    float  *w = ref_source_read(embed);
    int64_t V = embed->view.shape[0], half = V / 2;
    Status  s = export_floats(e, HEAD, w, 0, half);
    if (s == OK)
        s = export_floats(e, HEAD, w + half * embed->view.shape[1], half, V - half);
    free(w);
    return s;
}

Status ref_export_layer(Export *e, const ExportOptions *o, int64_t layer)
{
    const ModelInfo *info = &o->source->info;
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        const PlanEntry   *entry = plan_find(o->plan, t->name);
        long long          number = -1;
        sscanf(t->name, "model.layers.%lld.", &number);
        if (number != layer)
            continue;
        Scheme s = entry ? entry->scheme : t->quantizable ? o->plan->scheme : (Scheme){0};
        TRY(s.bits ? export_matrix(e, t->name, t, &s) : export_copy(e, t->name));
    }
    return OK;
}

Status ref_export(Arena *a, const ExportOptions *o)
{
    Export *e = NULL;
    Status  s = OK;
    size_t  bytes;
    GUARD(export_open(&e, a, o));
    for (int64_t l = export_layers_done(e); l < o->source->info.config.n_layers; l++) {
        GUARD(ref_export_layer(e, o, l));
        GUARD(export_layer_done(e, l, "row", 3, NULL, 0));
    }
    GUARD(ref_export_layer(e, o, -1));
    if (o->untie)
        GUARD(export_head(e, o));
    s = export_commit(e, &bytes);
out:
    export_close(e);
    return s;
}
