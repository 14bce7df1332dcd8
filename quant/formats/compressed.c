/* compressed.c - compressed-tensors "pack-quantized": codes of 4, 6 or 8 bits in 32-bit
 * words along the rows (formats.md 2.1 to 2.3).
 *   weight_packed      I32 [N, words of K codes]
 *   weight_scale       dtype [N, groups]
 *   weight_shape       I64 [2] = N, K
 *   weight_zero_point  I32 [words of N zeros, groups], packed down the columns; asym only
 * Six bits lie densely, as compressed-tensors reads from 0.18 on, or (wide6) as 8-bit
 * codes, which any version reads. */
#include <string.h>

#include "kernels/packbits.h"
#include "quant/formats/listing.h"

enum { PACKED, SCALE, SHAPE, ZERO };

/* Bits a code takes in the file. */
static int stored_bits(const Coded *m, const ExportOptions *o)
{
    return m->scheme.bits == 6 && o->wide6 ? 8 : m->scheme.bits;
}

static Status check(const Coded *m, const ExportOptions *o)
{
    (void)m;
    (void)o;
    return OK;
}

/* What loaders were seen to do with files of other writers too. */
static Status check_all(Listing *l, Arena *a, const ExportOptions *o)
{
    bool six = false, asym = false;
    for (int64_t i = 0; i < l->n_coded; i++) {
        six |= stored_bits(&l->coded[i], o) == 6;
        asym |= l->coded[i].scheme.asym;
    }
    if (six)
        TRY(listing_note(l, a, "6-bit codes lie densely: compressed-tensors 0.18 and newer "
                         "read them, vLLM may not; all read them in 8-bit packing "
                         "(--wide6)"));
    if (asym)
        TRY(listing_note(l, a, "zero points are packed: vLLM reads them, transformers 5 with "
                         "compressed-tensors 0.20 expects them unpacked and refuses"));
    return OK;
}

static int parts(Part *p, const Coded *m, const ExportOptions *o)
{
    int     bits = stored_bits(m, o);
    int64_t groups = listing_groups(m);
    int64_t words = packbits_words(PACK_DENSE, bits, m->k);
    int64_t zero_words = packbits_words(PACK_DENSE, bits, m->n);
    p[PACKED] = (Part){".weight_packed", tensor_2d(DTYPE_I32, NULL, m->n, words)};
    p[SCALE] = (Part){".weight_scale", tensor_2d(o->dtype, NULL, m->n, groups)};
    p[SHAPE] = (Part){".weight_shape", tensor_1d(DTYPE_I64, NULL, 2)};
    if (!m->scheme.asym)
        return ZERO;
    p[ZERO] = (Part){".weight_zero_point", tensor_2d(DTYPE_I32, NULL, zero_words, groups)};
    return ZERO + 1;
}

static Status fill(void *out, Arena *scratch, int part, const Coded *m, const RtnCodes *c,
                   const ExportOptions *o)
{
    int     bits = stored_bits(m, o);
    int64_t groups = listing_groups(m), shape[2] = {m->n, m->k};
    (void)scratch;
    switch (part) {
    case PACKED:
        listing_rows(out, c->codes, m->n, m->k, bits);
        return OK;
    case SCALE:
        listing_scales(out, o->dtype, c->scales, m->n * groups);
        return OK;
    case SHAPE:
        memcpy(out, shape, sizeof shape);
        return OK;
    default:
        CHECK(part == ZERO && c->zeros);
        packbits_columns(out, c->zeros, m->n, groups, PACK_DENSE, bits);
        return OK;
    }
}

/* --- config.json --- */

/* Order of columns is a label; old versions allow it with groups only. */
static bool says_order(const Coded *m, const ExportOptions *o)
{
    return o->act_order && m->scheme.method == METHOD_GPTQ && m->scheme.group;
}

/* Do both get the same words in config.json? */
static bool is_alike(const Coded *a, const Coded *b, const ExportOptions *o)
{
    return stored_bits(a, o) == stored_bits(b, o) && a->scheme.group == b->scheme.group &&
           a->scheme.asym == b->scheme.asym && says_order(a, o) == says_order(b, o);
}

/* First of the matrices that are written like m. */
static bool is_first(const Listing *l, const Coded *m, const ExportOptions *o)
{
    const Coded *first = l->coded;
    while (!is_alike(first, m, o))
        first++;
    return first == m;
}

static void add_targets(TextBuf *b, const Listing *l, const Coded *m, const ExportOptions *o)
{
    bool first = true;
    for (int64_t i = 0; i < l->n_coded; i++) {
        if (!is_alike(&l->coded[i], m, o))
            continue;
        const char *names[2] = {l->coded[i].module, l->coded[i].also};
        for (int j = 0; j < 2 && names[j]; j++) {
            textbuf_add(b, first ? "[\n          " : ",\n          ");
            textbuf_json(b, names[j]);
            first = false;
        }
    }
    textbuf_add(b, "\n        ]");
}

/* Keys of the weights: these and no others are known to all versions. */
static void add_group(TextBuf *b, const Listing *l, const Coded *m, int number, bool alone,
                      const ExportOptions *o)
{
    textbuf_printf(b, "%s\n      \"group_%d\": {\n        \"targets\": ", number ? "," : "",
                   number);
    if (alone)
        textbuf_add(b, "[\n          \"Linear\"\n        ]");
    else
        add_targets(b, l, m, o);
    textbuf_printf(b, ",\n        \"weights\": {\n"
                   "          \"num_bits\": %d,\n"
                   "          \"type\": \"int\",\n"
                   "          \"symmetric\": %s,\n"
                   "          \"strategy\": \"%s\",\n", stored_bits(m, o),
                   m->scheme.asym ? "false" : "true", m->scheme.group ? "group" : "channel");
    if (m->scheme.group)
        textbuf_printf(b, "          \"group_size\": %d,\n", m->scheme.group);
    else
        textbuf_add(b, "          \"group_size\": null,\n");
    textbuf_printf(b, "          \"dynamic\": false,\n"
                   "          \"actorder\": %s,\n"
                   "          \"block_structure\": null,\n"
                   "          \"observer\": \"minmax\",\n"
                   "          \"observer_kwargs\": {}\n"
                   "        },\n"
                   "        \"input_activations\": null,\n"
                   "        \"output_activations\": null\n"
                   "      }", says_order(m, o) ? "\"weight\"" : "null");
}

static void config(TextBuf *b, const Listing *l, const ExportOptions *o)
{
    int n_groups = 0, number = 0;
    for (int64_t i = 0; i < l->n_coded; i++)
        n_groups += is_first(l, &l->coded[i], o);
    textbuf_add(b, "{\n    \"quant_method\": \"compressed-tensors\",\n"
                "    \"format\": \"pack-quantized\",\n"
                "    \"quantization_status\": \"compressed\",\n"
                "    \"config_groups\": {");
    for (int64_t i = 0; i < l->n_coded; i++)
        if (is_first(l, &l->coded[i], o))
            add_group(b, l, &l->coded[i], number++, n_groups == 1, o);
    textbuf_add(b, "\n    },\n    \"ignore\": ");
    listing_names(b, l->ignored, l->n_ignored, 4);
    textbuf_add(b, ",\n    \"kv_cache_scheme\": null,\n"
                "    \"global_compression_ratio\": null\n  }");
}

const Packing PACKING_COMPRESSED = {
    .name = "compressed-tensors",
    .check = check,
    .check_all = check_all,
    .parts = parts,
    .fill = fill,
    .config = config,
};
