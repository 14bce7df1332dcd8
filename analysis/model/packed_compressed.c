/* packed_compressed.c - a matrix of compressed-tensors (formats.md 2.2, 2.3).
 *   weight_packed      I32 [N,words]  codes + 2^(b-1); or weight I8 [N,K]
 *   weight_scale       [N,G], [N,1] or [1]
 *   weight_shape       I64 [2]: N, K, as words do not tell K
 *   weight_zero_point  I32 [words,G], down the outputs; I8 like the scales
 *   weight_g_idx       I32 [K]: group of each input; -1 anywhere: not in use */
#include "analysis/model/packed_join.h"

#include <string.h>

#include "kernels/size.h"

/* The config's group of the module, which must be written like this. */
static Status find_group(const QuantGroup **out, const Join *j, const ModelTensor *t,
                         const char *module, bool bytes)
{
    const char *end = strrchr(module, '.');
    bool        embedding = strcmp(end ? end + 1 : module, "embed_tokens") == 0;
    TRY(quant_match(out, &j->matcher, module, embedding ? "Embedding" : "Linear"));
    if (!*out || !(*out)->bits)
        FAIL(ERR_FORMAT, "%s/%s: tensor %s, but %s does not quantize %s", j->folder, t->file,
             t->name, j->config, module);
    if ((*out)->bytes != bytes)
        FAIL(ERR_FORMAT, "%s/%s: tensor %s, but %s of %s is %s", j->folder, t->file, t->name,
             (*out)->name, j->config,
             bytes ? "pack-quantized" : "int-quantized or naive-quantized");
    return OK;
}

static Status read_shape(Packed *p, Join *j, const ModelTensor *t, const char *module)
{
    const ModelTensor *s;
    int64_t            shape[2];
    TRY(join_needed(&s, j, module, ".weight_shape", t));
    TRY(join_dtype(j, s, DTYPE_I64));
    TRY(join_shape(j, s, tensor_1d(DTYPE_I64, NULL, 2)));
    memcpy(shape, s->view.data, sizeof shape);
    if (shape[0] != t->view.shape[0] || shape[1] < 1 || shape[1] > INT32_MAX)
        FAIL(ERR_SHAPE, "%s/%s: tensor %s is %lld, %lld, expected %lld rows as %s has, and 1 "
             "to %d columns", j->folder, s->file, s->name, (long long)shape[0],
             (long long)shape[1], (long long)t->view.shape[0], t->name, INT32_MAX);
    p->n = shape[0];
    p->k = shape[1];
    p->bytes += tensor_bytes(&s->view);
    return OK;
}

/* No key tells dense from padded words, only how many there are of them. Where both
 * come to the same number the newer, dense, is meant. */
static Status read_words(Packed *p, Join *j, const ModelTensor *t, const char *module)
{
    TRY(join_dtype(j, t, DTYPE_I32));
    if (t->view.n_dims != 2)
        return join_shape(j, t, tensor_2d(DTYPE_I32, NULL, 0, 0));
    TRY(read_shape(p, j, t, module));
    int64_t dense = packbits_words(PACK_DENSE, p->bits, p->k);
    int64_t padded = packbits_words(PACK_PADDED, p->bits, p->k);
    p->kind = PACKED_ROWS;
    p->layout = t->view.shape[1] == padded && padded != dense ? PACK_PADDED : PACK_DENSE;
    if (p->layout == PACK_PADDED)
        return OK;
    return join_shape(j, t, tensor_2d(DTYPE_I32, NULL, p->n, dense));
}

static Status read_bytes(Packed *p, const Join *j, const ModelTensor *t)
{
    if (t->view.n_dims != 2)
        return join_shape(j, t, tensor_2d(DTYPE_I8, NULL, 0, 0));
    p->kind = PACKED_BYTES;
    p->n = t->view.shape[0];
    p->k = t->view.shape[1];
    return OK;
}

static Status set_group(Packed *p, const Join *j, const ModelTensor *t, const QuantGroup *g)
{
    p->one_scale = g->group == GROUP_MATRIX;
    p->group = g->group > 0 ? g->group : p->k;
    if (p->k == 0 || p->k % p->group != 0)
        FAIL(ERR_SHAPE, "%s/%s: tensor %s has rows of %lld weights, expected a multiple of "
             "group_size, %lld", j->folder, t->file, t->name, (long long)p->k,
             (long long)p->group);
    p->n_groups = p->k / p->group;
    return OK;
}

/* [N,G]; of a whole matrix a single number, of any number of dims. */
static Status check_like_scales(const Packed *p, const Join *j, const ModelTensor *t)
{
    if (p->one_scale && tensor_count(&t->view) == 1 && t->view.n_dims <= 2)
        return OK;
    if (p->one_scale)
        return join_shape(j, t, tensor_1d(t->view.dtype, NULL, 1));
    return join_shape(j, t, tensor_2d(t->view.dtype, NULL, p->n, p->n_groups));
}

static Status read_zeros(Packed *p, Join *j, const ModelTensor *t, const char *module)
{
    if (p->symmetric)
        TRY(join_part(&p->zeros, j, module, ".weight_zero_point"));
    else
        TRY(join_needed(&p->zeros, j, module, ".weight_zero_point", t));
    if (!p->zeros)
        return OK;
    /* One for the whole matrix is never packed, nor are those beside bytes. */
    if (p->zeros->view.dtype == DTYPE_I8 || p->kind == PACKED_BYTES || p->one_scale) {
        p->zeros_as = ZEROS_BYTES;
        TRY(join_dtype(j, p->zeros, DTYPE_I8));
        return check_like_scales(p, j, p->zeros);
    }
    p->zeros_as = ZEROS_DOWN;
    TRY(join_dtype(j, p->zeros, DTYPE_I32));
    return join_shape(j, p->zeros,
                      tensor_2d(DTYPE_I32, NULL, packbits_words(p->layout, p->bits, p->n),
                                p->n_groups));
}

static Status read_index(Packed *p, Join *j, const ModelTensor *t, const char *module,
                         const QuantGroup *g)
{
    const ModelTensor *index;
    TRY(join_part(&index, j, module, ".weight_g_idx"));
    if (!index && g->indexed)
        return join_needed(&index, j, module, ".weight_g_idx", t);
    if (!index)
        return OK;
    if (!g->indexed)
        FAIL(ERR_FORMAT, "%s/%s: tensor %s, but %s of %s has no actorder \"group\"", j->folder,
             index->file, index->name, g->name, j->config);
    return join_index(p, j, index, -1);
}

Status packed_compressed(Packed *p, Join *j, const ModelTensor *t, const char *module)
{
    const QuantGroup *g;
    bool              bytes = t->view.dtype == DTYPE_I8;
    TRY(find_group(&g, j, t, module, bytes));
    p->bits = (int)g->bits;
    p->symmetric = g->symmetric;
    TRY(bytes ? read_bytes(p, j, t) : read_words(p, j, t, module));
    TRY(set_group(p, j, t, g));
    TRY(join_needed(&p->scales, j, module, ".weight_scale", t));
    TRY(join_float(j, p->scales));
    TRY(check_like_scales(p, j, p->scales));
    TRY(read_zeros(p, j, t, module));
    return read_index(p, j, t, module, g);
}
