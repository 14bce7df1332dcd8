/* rest.c - see rest.h. */
#include "analysis/model/rest.h"

#include <math.h>

#include "analysis/model/place.h"

/* All of t in scratch; NULL where there is no t. */
static Status read_whole(float **out, Arena *scratch, const Source *s, const ModelTensor *t)
{
    *out = NULL;
    if (!t)
        return OK;
    *out = arena_raw(scratch, tensor_count(&t->view), sizeof **out);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: tensor %s", t->name);
    return source_read(*out, s, t);
}

/* --- norms --- */

static Status place_vector(Backend *be, Tensor *out, const float *x, int64_t n)
{
    Tensor shape = tensor_1d(DTYPE_F32, NULL, n);
    *out = shape;
    return x ? place_tensor(be, out, &shape, x) : OK;
}

Status rest_norm(Norm *out, Backend *be, const Config *c, NormValues values)
{
    const ModelConfig *m = &c->model;
    *out = (Norm){.eps = (float)m->norm_eps, .centred = m->centred};
    TRY(place_vector(be, &out->w, values.w, m->hidden));
    return place_vector(be, &out->b, values.b, m->hidden);
}

static Status load_norm(Norm *out, Backend *be, Arena *scratch, const Source *s, int64_t layer,
                        TensorRole role, TensorRole bias)
{
    ArenaMark mark = arena_mark(scratch);
    float    *w, *b;
    TRY(read_whole(&w, scratch, s, source_tensor(s, layer, role)));
    TRY(read_whole(&b, scratch, s, source_tensor(s, layer, bias)));
    TRY(rest_norm(out, be, &s->config, (NormValues){w, b}));
    arena_rewind(scratch, mark);
    return OK;
}

/* Do both halves read the same norm? Norms without weights are each their own. */
static bool shares_norm(const Source *s, int64_t layer)
{
    return s->config.keys.norm_weight && !source_tensor(s, layer, ROLE_NORM_MLP);
}

Status rest_norms(Layer *out, Backend *be, Arena *scratch, const Source *s, int64_t layer)
{
    TRY(load_norm(&out->norm_attn, be, scratch, s, layer, ROLE_NORM_ATTN,
                  ROLE_NORM_ATTN_BIAS));
    out->norm_mlp = out->norm_attn;
    if (shares_norm(s, layer))
        return OK;
    return load_norm(&out->norm_mlp, be, scratch, s, layer, ROLE_NORM_MLP, ROLE_NORM_MLP_BIAS);
}

Status rest_last_norm(Norm *out, bool *has_norm, Backend *be, Arena *scratch, const Source *s)
{
    *has_norm = s->config.keys.final_norm;
    *out = (Norm){0};
    return *has_norm ? load_norm(out, be, scratch, s, 0, ROLE_NORM, ROLE_NORM_BIAS) : OK;
}

/* One for all heads, or each its own, in order. */
static Status load_head_norms(Norm *out, Backend *be, Arena *scratch, const Source *s,
                              int64_t layer, TensorRole role)
{
    const ModelConfig *m = &s->config.model;
    int64_t            d = m->head_dim, n = 0;
    ArenaMark          mark = arena_mark(scratch);
    float             *w;
    *out = (Norm){.eps = (float)m->norm_eps, .centred = m->centred};
    while (source_head_tensor(s, layer, role, n))
        n++;
    w = arena_raw(scratch, n * d, sizeof *w);
    if (!w)
        FAIL(ERR_MEMORY, "out of memory: norms of %lld heads", (long long)n);
    for (int64_t h = 0; h < n; h++)
        TRY(source_read(w + h * d, s, source_head_tensor(s, layer, role, h)));
    TRY(place_vector(be, &out->w, w, n * d));
    arena_rewind(scratch, mark);
    return OK;
}

/* --- what some have --- */

static Status load_poly(float poly[4], Arena *scratch, const Source *s, int64_t layer)
{
    ArenaMark mark = arena_mark(scratch);
    float    *w, *b;
    TRY(read_whole(&w, scratch, s, source_tensor(s, layer, ROLE_POLY)));
    TRY(read_whole(&b, scratch, s, source_tensor(s, layer, ROLE_POLY_BIAS)));
    for (int i = 0; i < 3; i++)
        poly[i] = w[i];
    poly[3] = b[0];
    arena_rewind(scratch, mark);
    return OK;
}

/* A tensor as rows of its first dim. */
static Status load_rows(Tensor *out, Backend *be, Arena *scratch, const Source *s,
                        int64_t layer, TensorRole role)
{
    const ModelTensor *t = source_tensor(s, layer, role);
    ArenaMark          mark = arena_mark(scratch);
    float             *x;
    TRY(read_whole(&x, scratch, s, t));
    int64_t rows = t->view.shape[0];
    Tensor  shape = t->view.n_dims == 1
                        ? tensor_1d(DTYPE_F32, NULL, rows)
                        : tensor_2d(DTYPE_F32, NULL, rows, tensor_count(&t->view) / rows);
    TRY(place_tensor(be, out, &shape, x));
    arena_rewind(scratch, mark);
    return OK;
}

/* A = -exp(A_log), which f32 must hold. */
static Status load_decay(Tensor *out, Backend *be, Arena *scratch, const Source *s,
                         int64_t layer)
{
    const ModelTensor *t = source_tensor(s, layer, ROLE_A_LOG);
    ArenaMark          mark = arena_mark(scratch);
    int64_t            n = tensor_count(&t->view);
    float             *x;
    TRY(read_whole(&x, scratch, s, t));
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)-exp((double)x[i]);
        if (!isfinite(x[i]))
            FAIL(ERR_RANGE, "%s/%s: tensor %s: exp of number %lld is not finite", s->folder,
                 t->file, t->name, (long long)i);
    }
    TRY(place_tensor(be, out, &t->view, x));
    arena_rewind(scratch, mark);
    return OK;
}

static Status load_mamba(Layer *out, Backend *be, Arena *scratch, const Source *s,
                         int64_t layer)
{
    out->scan.n_states = s->config.model.n_states;
    TRY(load_rows(&out->conv, be, scratch, s, layer, ROLE_CONV));
    TRY(load_rows(&out->conv_bias, be, scratch, s, layer, ROLE_CONV_BIAS));
    TRY(load_decay(&out->scan.a, be, scratch, s, layer));
    return load_rows(&out->scan.d, be, scratch, s, layer, ROLE_SSM_D);
}

Status rest_load(Layer *out, Backend *be, Arena *scratch, const Source *s, int64_t layer)
{
    const ModelConfig *m = &s->config.model;
    if (m->poly)
        TRY(load_poly(out->poly, scratch, s, layer));
    if (m->layers[layer].mixer == MIX_MAMBA)
        return load_mamba(out, be, scratch, s, layer);
    if (!model_attends(m, layer))
        return OK;
    if (m->qk_norm) {
        TRY(load_head_norms(&out->q_norm, be, scratch, s, layer, ROLE_Q_NORM));
        TRY(load_head_norms(&out->k_norm, be, scratch, s, layer, ROLE_K_NORM));
    }
    if (source_tensor(s, layer, ROLE_HEAD_NORM))
        TRY(load_rows(&out->head_norm, be, scratch, s, layer, ROLE_HEAD_NORM));
    return OK;
}
