/* packed_gptq.c - a matrix of GPTQ (formats.md 3.1).
 *   qweight  I32 [words,N]  codes down the inputs, unsigned
 *   scales   [G,N]
 *   qzeros   I32 [G,words]  along the outputs; v1 stores them less one
 *   g_idx    I32 [K]: group of each input */
#include "analysis/model/packed_join.h"

#include "kernels/size.h"

enum { WORD = 32 };

/* K and bits. Words are filled up, so that g_idx alone tells K to the last input; and
 * it tells the bits where some matrices have others than the config's. */
static Status read_size(Packed *p, const Join *j, const ModelTensor *t,
                        const ModelTensor *index)
{
    int64_t words = t->view.shape[0];
    int64_t bits = j->q->bits;
    if (words < 1 || words > INT32_MAX || (index && index->view.n_dims != 1))
        return join_shape(j, words < 1 || words > INT32_MAX ? t : index,
                          tensor_1d(DTYPE_I32, NULL, words * WORD / bits));
    p->k = index ? index->view.shape[0] : words * WORD / bits;
    if (j->q->exceptions && index && p->k > 0 && p->k <= INT32_MAX)
        bits = words * WORD / p->k;
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        FAIL(ERR_SHAPE, "%s/%s: tensor %s has %lld words for %lld inputs, expected 2, 3, 4 or "
             "8 bits for each", j->folder, t->file, t->name, (long long)words, (long long)p->k);
    p->n = t->view.shape[1];
    p->bits = (int)bits;
    if (p->k < 1 || p->k > INT32_MAX)
        FAIL(ERR_SHAPE, "%s/%s: tensor %s has %lld inputs, expected 1 to %d", j->folder,
             index->file, index->name, (long long)p->k, INT32_MAX);
    return join_shape(j, t, tensor_2d(DTYPE_I32, NULL,
                                      packbits_words(PACK_DENSE, p->bits, p->k), p->n));
}

static Status set_group(Packed *p, const Join *j)
{
    const Tensor *scales = &p->scales->view;
    p->group = j->q->group == GROUP_ROW ? p->k : i64_min(j->q->group, p->k);
    if (j->q->exceptions && scales->n_dims == 2 && scales->shape[0] > 0)
        p->group = ceil_div(p->k, scales->shape[0]);
    p->n_groups = ceil_div(p->k, p->group);
    return join_shape(j, p->scales, tensor_2d(scales->dtype, NULL, p->n_groups, p->n));
}

Status packed_gptq(Packed *p, Join *j, const ModelTensor *t, const char *module)
{
    const ModelTensor *index;
    TRY(join_dtype(j, t, DTYPE_I32));
    if (t->view.n_dims != 2)
        return join_shape(j, t, tensor_2d(DTYPE_I32, NULL, 0, 0));
    TRY(join_part(&index, j, module, ".g_idx"));
    if (!index && (j->q->indexed || j->q->exceptions))
        return join_needed(&index, j, module, ".g_idx", t);
    TRY(read_size(p, j, t, index));
    TRY(join_needed(&p->scales, j, module, ".scales", t));
    TRY(join_float(j, p->scales));
    TRY(set_group(p, j));
    TRY(join_needed(&p->zeros, j, module, ".qzeros", t));
    TRY(join_dtype(j, p->zeros, DTYPE_I32));
    TRY(join_shape(j, p->zeros,
                   tensor_2d(DTYPE_I32, NULL, p->n_groups,
                             packbits_words(PACK_DENSE, p->bits, p->n))));
    p->kind = PACKED_COLUMNS;
    p->layout = PACK_DENSE;
    p->zeros_as = ZEROS_ALONG;
    p->zeros_less = j->q->zeros_less;
    p->symmetric = j->q->symmetric;
    return index ? join_index(p, j, index, INT32_MIN) : OK;
}
