/* method.c - runs the method that a scheme names, and what codes decode to. */
#include "quant/methods/method.h"

void method_decode(Matrix *m, const RtnCodes *codes)
{
    int64_t n = rtn_group_size(&m->scheme, m->k), in_row = rtn_groups(&m->scheme, m->k);
#pragma omp parallel for
    for (int64_t i = 0; i < m->n * in_row; i++) {
        int     zero = m->scheme.asym ? codes->zeros[i] : 0;
        RtnGrid g = rtn_grid(codes->scales[i], zero, &m->scheme);
        for (int64_t k = i * n; k < (i + 1) * n; k++)
            m->w[k] = rtn_decode(codes->codes[k], g);
    }
}

static Status rtn(const RtnCodes *out, Matrix *m)
{
    TRY(rtn_encode(out, m->name, m->w, m->n, m->k, &m->scheme));
    method_decode(m, out);
    return OK;
}

Status method_encode(const RtnCodes *out, Matrix *m, Arena *scratch)
{
    switch (m->scheme.method) {
    case METHOD_RTN:
        return rtn(out, m);
    case METHOD_CLIP:
        return clip_encode(out, m, scratch);
    case METHOD_GPTQ:
        return gptq_encode(out, m, scratch);
    default:
        FAIL(ERR_UNSUPPORTED, "%s: unknown method %d", m->name, (int)m->scheme.method);
    }
}
