/* gptq_format.c - GPTQ v1, symmetric (formats.md 3.1). Unsigned codes u = code + 2^(b-1),
 * packed along the inputs; one column for each output.
 *   qweight  I32 [K*b/32, N]
 *   qzeros   I32 [groups, N*b/32]   2^(b-1) - 1: v1 stores zero - 1
 *   scales   F16 [groups, N]
 *   g_idx    I32 [K] group of each input */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/packbits.h"
#include "kernels/size.h"
#include "quant/formats/listing.h"

enum { QWEIGHT, QZEROS, SCALES, G_IDX, N_PARTS };

/* --- what it can hold --- */

static Status check(const Coded *m, const ExportOptions *o)
{
    const Scheme *s = &m->scheme;
    char          text[SCHEME_TEXT];
    if (strcmp(m->name, layers_head_name(o->source)) == 0)
        FAIL(ERR_UNSUPPORTED, "%s: GPTQ holds the matrices of the blocks only: leave it as it "
             "is (fp), or use compressed-tensors", m->name);
    if (s->bits == 6 || s->asym)
        FAIL(ERR_UNSUPPORTED, "%s: GPTQ holds w4 or w8 symmetric, got %s: use "
             "compressed-tensors", m->name, scheme_text(s, text));
    if (o->dtype != DTYPE_F16)
        FAIL(ERR_UNSUPPORTED, "%s: GPTQ stores scales as F16, got %s: store floats as F16 "
             "(--floats f16), or use compressed-tensors", m->name, dtype_name(o->dtype));
    if (m->n % 32 || m->k % 32)
        FAIL(ERR_UNSUPPORTED, "%s: [%lld,%lld], GPTQ needs multiples of 32: use "
             "compressed-tensors", m->name, (long long)m->n, (long long)m->k);
    return OK;
}

/* "self_attn.q_proj" of "model.layers.12.self_attn.q_proj", *layer 12, whatever the names of
 * what the layers are in. */
static const char *in_block(const char *module, long *layer)
{
    char *end;
    for (const char *at = module; (at = strchr(at, '.')); ) {
        at++;
        *layer = strtol(at, &end, 10);
        if (end > at && *end == '.')
            return end + 1;
    }
    CHECK(!"no number of a layer");
    return module;
}

/* What m is in its layer, in another. */
static const Coded *find_module(const Listing *l, const Coded *m, long layer)
{
    char        name[256];
    long        own;
    const char *inner = in_block(m->module, &own), *number = inner - 1;
    while (number[-1] != '.')
        number--;
    snprintf(name, sizeof name, "%.*s%ld.%s.weight", (int)(number - m->module), m->module,
             layer, inner);
    return listing_find(l, name);
}

/* One scheme, and the same matrices in every block: config.json can say no more. */
static Status check_all(Listing *l, Arena *a, const ExportOptions *o)
{
    char one[SCHEME_TEXT], two[SCHEME_TEXT];
    long n_layers = (long)o->source->info.config.n_layers;
    (void)a;
    for (int64_t i = 0; i < l->n_coded; i++) {
        const Coded *m = &l->coded[i], *first = &l->coded[0];
        if (m->scheme.bits != first->scheme.bits || m->scheme.group != first->scheme.group)
            FAIL(ERR_UNSUPPORTED, "%s is %s and %s %s: GPTQ holds one scheme for all, use "
                 "compressed-tensors", first->name, scheme_text(&first->scheme, one), m->name,
                 scheme_text(&m->scheme, two));
        long        layer;
        const char *inner = in_block(m->module, &layer);
        for (long j = 0; j < n_layers; j++)
            if (!find_module(l, m, j))
                FAIL(ERR_UNSUPPORTED, "%s is coded, but %s of layer %ld is not: GPTQ holds the "
                     "same matrices in all layers, use compressed-tensors", m->name, inner, j);
    }
    return OK;
}

/* --- bytes --- */

static int parts(Part *p, const Coded *m, const ExportOptions *o)
{
    int64_t a_word = 32 / m->scheme.bits, groups = listing_groups(m);
    p[QWEIGHT] = (Part){".qweight", tensor_2d(DTYPE_I32, NULL, m->k / a_word, m->n)};
    p[QZEROS] = (Part){".qzeros", tensor_2d(DTYPE_I32, NULL, groups, m->n / a_word)};
    p[SCALES] = (Part){".scales", tensor_2d(o->dtype, NULL, groups, m->n)};
    p[G_IDX] = (Part){".g_idx", tensor_1d(DTYPE_I32, NULL, m->k)};
    return N_PARTS;
}

/* out [cols,rows] = x [rows,cols], in squares that stay in the cache. */
static void transpose_words(uint32_t *out, const uint32_t *x, int64_t rows, int64_t cols)
{
    enum { SIDE = 32 };
#pragma omp parallel for schedule(static)
    for (int64_t r0 = 0; r0 < rows; r0 += SIDE)
        for (int64_t c0 = 0; c0 < cols; c0 += SIDE)
            for (int64_t c = c0; c < i64_min(c0 + SIDE, cols); c++)
                for (int64_t r = r0; r < i64_min(r0 + SIDE, rows); r++)
                    out[c * rows + r] = x[r * cols + c];
}

/* Words along the inputs of each output, then turned: as K is a multiple of a word's
 * codes, that is packing down the columns of the turned codes, without turning those. */
static Status fill_qweight(void *out, Arena *scratch, const Coded *m, const RtnCodes *c)
{
    uint32_t *words;
    int64_t   n_words = m->k * m->scheme.bits / 32;
    ARENA_NEW(words, scratch, m->n * n_words);
    listing_rows(words, c->codes, m->n, m->k, m->scheme.bits);
    transpose_words(out, words, m->n, n_words);
    return OK;
}

static Status fill_scales(void *out, Arena *scratch, const Coded *m, const RtnCodes *c,
                          Dtype d)
{
    float  *turned;
    int64_t groups = listing_groups(m);
    ARENA_NEW(turned, scratch, m->n * groups);
    for (int64_t n = 0; n < m->n; n++)
        for (int64_t g = 0; g < groups; g++)
            turned[g * m->n + n] = c->scales[n * groups + g];
    listing_scales(out, d, turned, m->n * groups);
    return OK;
}

static Status fill(void *out, Arena *scratch, int part, const Coded *m, const RtnCodes *c,
                   const ExportOptions *o)
{
    int64_t groups = listing_groups(m);
    int32_t *index = out;
    switch (part) {
    case QWEIGHT:
        return fill_qweight(out, scratch, m, c);
    case QZEROS:
        memset(out, m->scheme.bits == 4 ? 0x77 : 0x7f,
               (size_t)(groups * m->n * m->scheme.bits / 8));
        return OK;
    case SCALES:
        return fill_scales(out, scratch, m, c, o->dtype);
    default:
        CHECK(part == G_IDX);
        for (int64_t k = 0; k < m->k; k++)
            index[k] = (int32_t)(k * groups / m->k);
        return OK;
    }
}

/* --- config.json and quantize_config.json --- */

/* The names in a block that are coded, where that is not all of them. */
static void add_modules(TextBuf *b, const Listing *l)
{
    long layer;
    bool any = false;
    if (l->n_coded == l->n_linear)
        return;
    textbuf_add(b, ",\n    \"modules_in_block_to_quantize\": [");
    for (int64_t i = 0; i < l->n_coded; i++) {
        const char *inner = in_block(l->coded[i].module, &layer);
        if (layer)
            continue;
        textbuf_add(b, any ? ",\n      [\n        " : "\n      [\n        ");
        textbuf_json(b, inner);
        textbuf_add(b, "\n      ]");
        any = true;
    }
    textbuf_add(b, "\n    ]");
}

/* The keys that both files have. */
static void add_keys(TextBuf *b, const Listing *l, const ExportOptions *o, const char *indent)
{
    const Scheme *s = &l->coded[0].scheme;
    textbuf_printf(b, "{\n%s\"quant_method\": \"gptq\",\n%s\"bits\": %d,\n"
                   "%s\"group_size\": %d,\n%s\"damp_percent\": ", indent, indent, s->bits,
                   indent, s->group ? s->group : -1, indent);
    textbuf_json_real(b, o->damp > 0 && o->damp < 1 ? o->damp : 0.01);
    textbuf_printf(b, ",\n%s\"desc_act\": false,\n%s\"static_groups\": true,\n"
                   "%s\"sym\": true,\n%s\"true_sequential\": true,\n"
                   "%s\"checkpoint_format\": \"gptq\"", indent, indent, indent, indent, indent);
}

static void config(TextBuf *b, const Listing *l, const ExportOptions *o)
{
    add_keys(b, l, o, "    ");
    add_modules(b, l);
    textbuf_add(b, "\n  }");
}

static void config_file_text(TextBuf *b, const Listing *l, const ExportOptions *o)
{
    add_keys(b, l, o, "  ");
    textbuf_add(b, ",\n  \"model_name_or_path\": null,\n  \"model_file_base_name\": null\n}\n");
}

const Packing PACKING_GPTQ = {
    .name = "GPTQ",
    .check = check,
    .check_all = check_all,
    .parts = parts,
    .fill = fill,
    .config = config,
    .config_file = "quantize_config.json",
    .config_file_text = config_file_text,
};
