/* ref_unilm.c - a DiffLlama's tensors, renamed and added to. */
#include "tests/analysis/ref_unilm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *in_layer(int64_t layer, const char *name)
{
    static char text[4][96];
    static int  turn;
    char       *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "model.layers.%d.self_attn.%s", (int)layer, name);
    return p;
}

static void first_form(RefModel *m, int64_t layer)
{
    RefTensor *o = ref_model_find(m, in_layer(layer, "o_proj.weight"));
    snprintf(o->name, sizeof o->name, "%s", in_layer(layer, "out_proj.weight"));
    ref_model_add(m, in_layer(layer, "subln.weight"), 2 * m->head_dim, 0);
}

static void second_form(RefModel *m, int64_t layer)
{
    static const char *const LAMBDAS[] = {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"};
    int64_t                  H = m->heads / 2;
    for (int i = 0; i < 4; i++)
        ref_model_drop(m, in_layer(layer, LAMBDAS[i]));
    ref_model_drop(m, in_layer(layer, "o_proj.weight"));
    ref_model_add(m, in_layer(layer, "o_proj.weight"), m->hidden, H * m->head_dim);
    ref_model_add(m, in_layer(layer, "lambda_proj.weight"), H, m->hidden);
}

void ref_unilm_fill(RefModel *m, int form, const char *dtype)
{
    m->diff = true;
    ref_model_fill(m, dtype);
    for (int64_t l = 0; l < m->layers; l++)
        (form == 1 ? first_form : second_form)(m, l);
    for (int i = 0; i < m->n; i++)
        snprintf(m->at[i].dtype, sizeof m->at[i].dtype, "%s",
                 strstr(m->at[i].name, ".lambda_q") || strstr(m->at[i].name, ".lambda_k")
                     ? "F32" : dtype);
}

void ref_unilm_write(const RefModel *m, const char *folder, int shards)
{
    char path[600];
    ref_model_write(m, folder, shards);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
}

const char *ref_unilm(const char *name, int form, bool tied, const char *dtype, int shards)
{
    const char *path = ref_path("%s", name);
    RefModel    m = {.hidden = 40, .inter = 56, .vocab = 61, .layers = 3, .heads = 12,
                     .kv_heads = form == 1 ? 6 : 3, .head_dim = 6, .tied = tied};
    ref_unilm_fill(&m, form, dtype);
    ref_unilm_write(&m, path, shards);
    ref_model_free(&m);
    return path;
}
