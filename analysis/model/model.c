/* model.c - from a checkpoint folder to a Model in canonical order. */
#include "analysis/model.h"

#include "analysis/model/load.h"
#include "analysis/model/model_info.h"

RunQuant model_run(const Model *m, RunQuant asked)
{
    if (asked.acts)
        return asked;
    asked.acts = m->run.acts;
    asked.act_scale = m->run.act_scale;
    asked.act_wide = m->run.act_wide;
    return asked;
}

/* A table of layers, and, where nothing is streamed, all of them. The head comes first: the
 * scratch that large tables take is gone before the layers are there. */
static Status load(Model *m, Arena *a)
{
    TRY(load_once(m, a));
    if (m->streamed)
        return OK;
    TRY(load_head(m));
    TRY(load_check_embed(m));
    for (int64_t i = 0; i < m->config.n_layers; i++)
        TRY(load_layer(m, i));
    return OK;
}

void model_of_info(Model *m, const ModelInfo *info, Backend *be, Dtype dtype)
{
    *m = (Model){.path = info->path, .name = info->name, .arch = info->arch,
                 .config_text = info->config_text, .n_params = info->n_params,
                 .n_bytes = info->n_bytes, .stored = info->stored, .dtype = dtype,
                 .config = info->config, .run = info->run, .backend = be};
}

Status model_load(Model *m, Arena *a, Backend *be, const char *path,
                  const ModelOptions *options)
{
    ArenaMark mark = backend_mark(be);
    Loader   *l;
    *m = (Model){0};
    ARENA_NEW(l, a, 1);
    TRY(source_open(&l->own, a, path));
    l->source = &l->own;
    l->options = *options;
    Status s = model_info_fill(&l->info, a, l->source);
    if (s == OK) {
        model_of_info(m, &l->info, be, options->dtype);
        m->loader = l;
        m->streamed = options->stream;
        s = load(m, a);
    }
    if (s == OK)
        return OK;
    backend_rewind(be, mark);
    source_close(&l->own);
    *m = (Model){0};
    return s;
}

Status model_head(Model *m)
{
    return m->streamed ? load_head(m) : OK;
}

void model_close(Model *m)
{
    if (m->loader)
        source_close(&m->loader->own);
    *m = (Model){0};
}
