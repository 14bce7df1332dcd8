/* int8_format.c - compressed-tensors "int-quantized": 8-bit weights, and inputs that the
 * loader rounds to 8 bits token by token, W8A8 (formats.md 2.2, 2.6).
 *   weight        I8 [N,K]
 *   weight_scale  dtype [N,1] */
#include <string.h>

#include "quant/formats/listing.h"

enum { WEIGHT, SCALE, N_PARTS };

static Status check(const Coded *m, const ExportOptions *o)
{
    const Scheme *s = &m->scheme;
    char          text[SCHEME_TEXT];
    (void)o;
    if (s->bits != 8 || s->group || s->asym)
        FAIL(ERR_UNSUPPORTED, "%s: int8 holds w8 symmetric with one scale a channel, got %s: "
             "use w8, or compressed-tensors pack-quantized", m->name, scheme_text(s, text));
    return OK;
}

/* Inputs are rounded for all that read them, here at the taps: lambda_proj, which reads
 * what q, k and v do, would have to see them as they were, and Mamba's inner matrices have
 * no tap. */
static Status check_all(Listing *l, Arena *a, const ExportOptions *o)
{
    const ModelConfig *c = &o->source->info.config;
    (void)a;
    (void)l;
    if (c->lambda_rows || c->inner)
        FAIL(ERR_UNSUPPORTED, "%s: int8 rounds the inputs of all matrices, and %s: use "
             "compressed-tensors pack-quantized", o->source->info.path,
             c->inner ? "those inside of Mamba layers are not rounded here"
                      : "lambda_proj, which is not quantized, shares those of q, k and v");
    return OK;
}

static int parts(Part *p, const Coded *m, const ExportOptions *o)
{
    p[WEIGHT] = (Part){".weight", tensor_2d(DTYPE_I8, NULL, m->n, m->k)};
    p[SCALE] = (Part){".weight_scale", tensor_2d(o->dtype, NULL, m->n, 1)};
    return N_PARTS;
}

static Status fill(void *out, Arena *scratch, int part, const Coded *m, const RtnCodes *c,
                   const ExportOptions *o)
{
    (void)scratch;
    if (part == WEIGHT)
        memcpy(out, c->codes, (size_t)(m->n * m->k));
    else
        listing_scales(out, o->dtype, c->scales, m->n);
    return OK;
}

static void config(TextBuf *b, const Listing *l, const ExportOptions *o)
{
    (void)o;
    textbuf_add(b, "{\n    \"quant_method\": \"compressed-tensors\",\n"
                "    \"format\": \"int-quantized\",\n"
                "    \"quantization_status\": \"compressed\",\n"
                "    \"config_groups\": {\n"
                "      \"group_0\": {\n"
                "        \"targets\": [\n          \"Linear\"\n        ],\n"
                "        \"weights\": {\n"
                "          \"num_bits\": 8,\n"
                "          \"type\": \"int\",\n"
                "          \"symmetric\": true,\n"
                "          \"strategy\": \"channel\",\n"
                "          \"group_size\": null,\n"
                "          \"dynamic\": false,\n"
                "          \"actorder\": null,\n"
                "          \"block_structure\": null,\n"
                "          \"observer\": \"minmax\",\n"
                "          \"observer_kwargs\": {}\n"
                "        },\n");
    /* No observer: what is dynamic has none, and what null means changed over versions. */
    textbuf_add(b, "        \"input_activations\": {\n"
                "          \"num_bits\": 8,\n"
                "          \"type\": \"int\",\n"
                "          \"symmetric\": true,\n"
                "          \"strategy\": \"token\",\n"
                "          \"group_size\": null,\n"
                "          \"dynamic\": true,\n"
                "          \"actorder\": null,\n"
                "          \"block_structure\": null\n"
                "        },\n"
                "        \"output_activations\": null\n"
                "      }\n    },\n    \"ignore\": ");
    listing_names(b, l->ignored, l->n_ignored, 4);
    textbuf_add(b, ",\n    \"kv_cache_scheme\": null,\n"
                "    \"global_compression_ratio\": null\n  }");
}

const Packing PACKING_INT8 = {
    .name = "compressed-tensors int8",
    .check = check,
    .check_all = check_all,
    .parts = parts,
    .fill = fill,
    .config = config,
};
