/* packed_join.c - finds few-bit matrices in a table of tensors and joins their parts.
 * Which matrices they are follows from the tensors; the config must agree. */
#include "analysis/model/packed_join.h"

#include <stdlib.h>
#include <string.h>

/* --- parts --- */

static bool ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), end = strlen(suffix);
    return n > end && strcmp(name + n - end, suffix) == 0;
}

static Status join_text(char **out, Arena *a, const char *module, const char *suffix)
{
    *out = arena_printf(a, "%s%s", module, suffix);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: the name of a tensor");
    return OK;
}

Status join_part(const ModelTensor **out, Join *j, const char *module, const char *suffix)
{
    char *name;
    TRY(join_text(&name, j->arena, module, suffix));
    *out = checkpoint_find(j->checkpoint, name);
    if (*out)
        j->used[*out - j->checkpoint->tensors] = true;
    return OK;
}

Status join_needed(const ModelTensor **out, Join *j, const char *module, const char *suffix,
                   const ModelTensor *of)
{
    TRY(join_part(out, j, module, suffix));
    if (!*out)
        FAIL(ERR_FORMAT, "%s/%s: tensor %s needs %s%s, which is missing", j->folder, of->file,
             of->name, module, suffix);
    return OK;
}

Status join_dtype(const Join *j, const ModelTensor *t, Dtype dtype)
{
    if (t->view.dtype != dtype)
        FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s is %s, expected %s", j->folder, t->file,
             t->name, dtype_name(t->view.dtype), dtype_name(dtype));
    return OK;
}

Status join_float(const Join *j, const ModelTensor *t)
{
    Dtype d = t->view.dtype;
    if (d != DTYPE_F32 && d != DTYPE_F16 && d != DTYPE_BF16)
        FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s is %s, expected F32, F16 or BF16", j->folder,
             t->file, t->name, dtype_name(d));
    return OK;
}

Status join_shape(const Join *j, const ModelTensor *t, Tensor shape)
{
    char got[128], wanted[128];
    if (t->view.n_dims != shape.n_dims || t->view.shape[0] != shape.shape[0] ||
        (shape.n_dims == 2 && t->view.shape[1] != shape.shape[1]))
        FAIL(ERR_SHAPE, "%s/%s: tensor %s has shape %s, expected %s", j->folder, t->file,
             t->name, tensor_shape_text(&t->view, got), tensor_shape_text(&shape, wanted));
    return OK;
}

Status join_index(Packed *p, const Join *j, const ModelTensor *t, int32_t unused)
{
    bool    in_order = true;
    int64_t bad = -1;
    int32_t g, wrong = 0;
    TRY(join_dtype(j, t, DTYPE_I32));
    TRY(join_shape(j, t, tensor_1d(DTYPE_I32, NULL, p->k)));
    p->bytes += tensor_bytes(&t->view);
    for (int64_t k = 0; k < p->k; k++) {
        memcpy(&g, (const unsigned char *)t->view.data + 4 * k, sizeof g);
        if (g == unused)
            return OK;
        in_order = in_order && g == k / p->group;
        if (bad < 0 && (g < 0 || g >= p->n_groups)) {
            bad = k;
            wrong = g;
        }
    }
    if (bad >= 0)
        FAIL(ERR_RANGE, "%s/%s: tensor %s[%lld] is %d, expected a group from 0 to %lld",
             j->folder, t->file, t->name, (long long)bad, wrong, (long long)p->n_groups - 1);
    p->index = in_order ? NULL : t;
    return OK;
}

/* --- whole matrices --- */

/* What a tensor's name must end with to hold codes, NULL where it holds none. */
static const char *codes_suffix(const Join *j, const ModelTensor *t)
{
    if (j->q->method == QUANT_GPTQ)
        return ends(t->name, ".qweight") ? ".qweight" : NULL;
    if (ends(t->name, ".weight_packed"))
        return ".weight_packed";
    return ends(t->name, ".weight") && t->view.dtype == DTYPE_I8 ? ".weight" : NULL;
}

static size_t part_bytes(const ModelTensor *t)
{
    return t ? tensor_bytes(&t->view) : 0;
}

static Status join_matrix(ModelTensor *out, Join *j, const ModelTensor *t, const char *suffix)
{
    char   *module = arena_text(j->arena, t->name, strlen(t->name) - strlen(suffix));
    char   *name;
    Packed *p;
    if (!module)
        FAIL(ERR_MEMORY, "out of memory: the name of a tensor");
    TRY(join_text(&name, j->arena, module, ".weight"));
    ARENA_NEW(p, j->arena, 1);
    j->used[t - j->checkpoint->tensors] = true;
    if (j->q->method == QUANT_GPTQ)
        TRY(packed_gptq(p, j, t, module));
    else
        TRY(packed_compressed(p, j, t, module));
    p->codes = t;
    p->data = t->view.data;
    p->bytes += part_bytes(t) + part_bytes(p->scales) + part_bytes(p->zeros);
    *out = (ModelTensor){.name = name, .file = t->file, .packed = p,
                         .view = tensor_2d(p->scales->view.dtype, NULL, p->n, p->k)};
    return OK;
}

/* --- what is left --- */

/* Scales of activations and of the cache of keys and values: of no use here. */
static bool of_activations(const char *name)
{
    static const char *const ENDS[] = {
        ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale",
        ".output_zero_point", ".output_global_scale", ".q_scale", ".k_scale", ".v_scale",
        ".q_zero_point", ".k_zero_point", ".v_zero_point"};
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++)
        if (ends(name, ENDS[i]))
            return true;
    return false;
}

/* A part whose matrix is not there. */
static Status check_part(const Join *j, const ModelTensor *t)
{
    static const struct {
        const char *end, *needed;
        QuantMethod method;
    } PARTS[] = {
        {".weight_scale", "weight_packed or an I8 weight", QUANT_COMPRESSED},
        {".weight_zero_point", "weight_packed or an I8 weight", QUANT_COMPRESSED},
        {".weight_shape", "weight_packed", QUANT_COMPRESSED},
        {".weight_g_idx", "weight_packed", QUANT_COMPRESSED},
        {".scales", "qweight", QUANT_GPTQ},
        {".qzeros", "qweight", QUANT_GPTQ},
        {".g_idx", "qweight", QUANT_GPTQ},
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (PARTS[i].method == j->q->method && ends(t->name, PARTS[i].end))
            FAIL(ERR_FORMAT, "%s/%s: tensor %s belongs to no matrix: %s is missing beside it",
                 j->folder, t->file, t->name, PARTS[i].needed);
    return OK;
}

/* Look-up tables of all architectures; what is no such table is linear. */
static bool is_embedding(const char *module)
{
    static const char *const NAMES[] = {"embed_tokens", "embed_positions", "embed_in", "embed",
                                        "wte", "wpe"};
    const char *dot = strrchr(module, '.'), *last = dot ? dot + 1 : module;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(last, NAMES[i]) == 0)
            return true;
    return false;
}

/* A matrix of plain numbers that the config has quantized. */
static Status check_plain(const Join *j, const ModelTensor *t)
{
    const QuantGroup *group = NULL;
    if (!ends(t->name, ".weight") || t->view.n_dims != 2)
        return OK;
    char *module = arena_text(j->arena, t->name, strlen(t->name) - strlen(".weight"));
    if (!module)
        FAIL(ERR_MEMORY, "out of memory: the name of a tensor");
    const char *kind = is_embedding(module) ? "Embedding" : "Linear";
    TRY(quant_match(&group, &j->matcher, module, kind));
    if (group && group->bits)
        FAIL(ERR_FORMAT, "%s/%s: tensor %s is %s, but %s of %s has it at %lld bits", j->folder,
             t->file, t->name, dtype_name(t->view.dtype), group->name, j->config,
             (long long)group->bits);
    return OK;
}

/* --- the new table --- */

static int by_name(const void *x, const void *y)
{
    return strcmp(((const ModelTensor *)x)->name, ((const ModelTensor *)y)->name);
}

static Status fill_table(ModelTensor *out, int64_t *n, Join *j)
{
    const Checkpoint *c = j->checkpoint;
    for (int64_t i = 0; i < c->n; i++) {
        const char *suffix = codes_suffix(j, &c->tensors[i]);
        if (suffix)
            TRY(join_matrix(&out[(*n)++], j, &c->tensors[i], suffix));
    }
    for (int64_t i = 0; i < c->n; i++) {
        if (j->used[i] || of_activations(c->tensors[i].name))
            continue;
        TRY(check_part(j, &c->tensors[i]));
        TRY(check_plain(j, &c->tensors[i]));
        out[(*n)++] = c->tensors[i];
    }
    return OK;
}

static Status check_twice(const Join *j, const ModelTensor *tensors, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (strcmp(tensors[i].name, tensors[i - 1].name) == 0)
            FAIL(ERR_FORMAT, "%s/%s: tensor %s is there twice, as %s too", j->folder,
                 tensors[i].file, tensors[i].name,
                 (tensors[i].packed ? tensors[i] : tensors[i - 1]).packed->codes->name);
    return OK;
}

/* Without a config, no one says what packed tensors mean. */
static Status check_unpacked(const Checkpoint *c, const char *folder, const char *config)
{
    for (int64_t i = 0; i < c->n; i++)
        if (ends(c->tensors[i].name, ".qweight") || ends(c->tensors[i].name, ".weight_packed"))
            FAIL(ERR_FORMAT, "%s/%s: tensor %s, but %s has no quantization_config", folder,
                 c->tensors[i].file, c->tensors[i].name, config);
    return OK;
}

Status packed_join(Checkpoint *c, Arena *a, const QuantConfig *q, const char *folder,
                   const char *config)
{
    Status       s = OK;
    ModelTensor *tensors;
    int64_t      n = 0;
    Join         j = {.checkpoint = c, .q = q, .folder = folder, .config = config, .arena = a};
    if (q->method == QUANT_NONE)
        return check_unpacked(c, folder, config);
    ARENA_NEW(tensors, a, c->n);
    ARENA_NEW(j.used, a, c->n);
    TRY(quant_match_open(&j.matcher, a, q, config));
    GUARD(fill_table(tensors, &n, &j));
    qsort(tensors, (size_t)n, sizeof *tensors, by_name);
    GUARD(check_twice(&j, tensors, n));
    c->tensors = tensors;
    c->n = n;
out:
    quant_match_close(&j.matcher);
    return s;
}
