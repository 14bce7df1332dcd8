/* test_export.c - what a quantized checkpoint holds, byte for byte. */
#include "quant/formats/export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/json.h"
#include "analysis/model/checkpoint.h"
#include "kernels/codes.h"
#include "kernels/half.h"
#include "kernels/packbits.h"
#include "tests/check.h"
#include "tests/quant/ref_source.h"

#define UP "model.layers.0.mlp.up_proj"
#define DOWN "model.layers.0.mlp.down_proj"

/* An open source, a plan, options for them, and what came out. */
typedef struct {
    Arena         a;
    Layers        layers;
    Plan          plan;
    ExportOptions o;
    Checkpoint    out;
    const Json   *config;
} Run;

static Status run_begin(Run *r, const char *source, const char *spec, ExportFormat format)
{
    *r = (Run){0};
    TRY(layers_open(&r->layers, &r->a, source));
    TRY(plan_init(&r->plan, &r->a, spec));
    r->o = (ExportOptions){.path = ref_path("out"), .format = format, .source = &r->layers,
                           .plan = &r->plan, .dtype = r->plan.scheme.scale, .damp = 0.05,
                           .settings = "settings", .overwrite = true};
    return OK;
}

static Status run_set(Run *r, const char *name, const char *spec)
{
    Scheme s;
    TRY(scheme_parse(&s, spec));
    return plan_set(&r->plan, name, s);
}

static Status run_export(Run *r)
{
    char path[600];
    TRY(ref_export(&r->a, &r->o));
    snprintf(path, sizeof path, "%s/config.json", r->o.path);
    TRY(json_read(&r->config, &r->a, path));
    return checkpoint_open(&r->out, &r->a, r->o.path);
}

static void run_end(Run *r)
{
    checkpoint_close(&r->out);
    layers_close(&r->layers);
    arena_close(&r->a);
}

/* A tensor of the output; NULL unless of that dtype and shape (d1 0: a vector). */
static const void *data_of(const Run *r, const char *name, Dtype d, int64_t d0, int64_t d1)
{
    const ModelTensor *t = checkpoint_find(&r->out, name);
    if (!t || t->view.dtype != d || t->view.n_dims != 1 + (d1 > 0) || t->view.shape[0] != d0 ||
        (d1 && t->view.shape[1] != d1))
        return NULL;
    return t->view.data;
}

static float half_of(const void *data, int64_t i, Dtype d)
{
    uint16_t h;
    memcpy(&h, (const unsigned char *)data + 2 * i, 2);
    return d == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static int32_t word_of(const void *data, int64_t i)
{
    int32_t w;
    memcpy(&w, (const unsigned char *)data + 4 * i, 4);
    return w;
}

/* What plain rounding makes of a matrix of the source (malloc). */
static float *rounded(const Run *r, const char *name, const char *spec)
{
    const ModelInfo   *info = &r->layers.info;
    const ModelTensor *t = info->tensors;
    Scheme             s;
    while (strcmp(t->name, name) != 0)
        t++;
    float *w = ref_source_read(t);
    CHECK(scheme_parse(&s, spec) == OK);
    CHECK(rtn_fake(w, name, t->view.shape[0], t->view.shape[1], &s, NULL) == OK);
    return w;
}

static const char *text_at(const Json *v, const char *key)
{
    const Json *m = json_member(v, key);
    return m && m->kind == JSON_TEXT ? m->text : "none";
}

static const Json *quantization(const Run *r)
{
    return json_member(r->config, "quantization_config");
}

static const Json *group(const Run *r, int i)
{
    const Json *groups = json_member(quantization(r), "config_groups");
    return i < groups->n ? &groups->at[i] : NULL;
}

static int64_t number_at(const Json *v, const char *key)
{
    const Json *m = json_member(v, key);
    return m && m->kind == JSON_NUMBER ? m->integer : -999;
}

static bool has_name(const Json *list, const char *name)
{
    for (int64_t i = 0; list && i < list->n; i++)
        if (strcmp(list->at[i].text, name) == 0)
            return true;
    return false;
}

/* --- compressed-tensors --- */

TEST(codes_of_four_bits_in_groups)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "w4:g32:bf16",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(run_export(&r));
    const void *packed = data_of(&r, UP ".weight_packed", DTYPE_I32, 96, 8);
    const void *scale = data_of(&r, UP ".weight_scale", DTYPE_BF16, 96, 2);
    const void *shape = data_of(&r, UP ".weight_shape", DTYPE_I64, 2, 0);
    float      *want = rounded(&r, UP ".weight", "w4:g32:bf16");
    T_OK(packed && scale && shape && !checkpoint_find(&r.out, UP ".weight"));
    T_OK(!checkpoint_find(&r.out, UP ".weight_zero_point"));
    T_OK(memcmp(shape, (int64_t[]){96, 64}, 16) == 0);
    for (int i = 0; i < 96 * 64; i++) {
        int code = (word_of(packed, i / 8) >> 4 * (i % 8) & 15) - 8;
        T_OK((float)code * half_of(scale, i / 32, DTYPE_BF16) == want[i]);
    }
    /* all-zero rows: scale 1, codes 0 */
    packed = data_of(&r, "model.layers.1.mlp.up_proj.weight_packed", DTYPE_I32, 96, 8);
    T_OK((uint32_t)word_of(packed, 15) == 0x88888888u);
    free(want);
    run_end(&r);
}

TEST(floats_stay_and_the_rest_is_said_in_the_config)
{
    Run    r;
    size_t n;
    T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "w4:g32:bf16",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(run_export(&r));
    /* 7 matrices of 3 parts, 2 norms, 4 lambdas a layer; embedding and norm */
    T_OK(r.out.n == 2 * (7 * 3 + 6) + 2 && r.out.n_files == 1);
    for (int64_t i = 0; i < r.layers.info.n_tensors; i++) {
        const ModelTensor *t = &r.layers.info.tensors[i];
        const ModelTensor *back = checkpoint_find(&r.out, t->name);
        T_OK((back == NULL) == t->quantizable);
        T_OK(!back || memcmp(back->view.data, t->view.data, tensor_bytes(&t->view)) == 0);
    }
    T_TEXT(text_at(r.config, "dtype"), "bfloat16");
    T_TEXT(text_at(r.config, "torch_dtype"), "bfloat16");
    T_TEXT(text_at(quantization(&r), "quant_method"), "compressed-tensors");
    T_TEXT(text_at(quantization(&r), "format"), "pack-quantized");
    T_TEXT(text_at(quantization(&r), "quantization_status"), "compressed");
    const Json *weights = json_member(group(&r, 0), "weights");
    T_OK(group(&r, 0) && !group(&r, 1) && number_at(weights, "num_bits") == 4);
    T_OK(number_at(weights, "group_size") == 32 && json_member(weights, "symmetric")->truth);
    T_TEXT(text_at(weights, "strategy"), "group");
    T_OK(weights->n == 10);  // old versions refuse what they do not know
    T_OK(group(&r, 0)->n == 4 && has_name(json_member(group(&r, 0), "targets"), "Linear"));
    const Json *ignore = json_member(quantization(&r), "ignore");
    T_OK(ignore->n == 1 && has_name(ignore, "lm_head"));
    T_OK(json_member(r.config, "tie_word_embeddings")->truth);
    free(ref_read(ref_path("out/tokenizer.json"), &n));
    T_OK(n == 18);
    free(ref_read(ref_path("out/LICENSE.md"), &n));
    T_OK(access(ref_path("out/notes.txt"), F_OK) != 0);
    T_OK(access(ref_path("out/diffquant.resume"), F_OK) != 0);
    T_OK(access(ref_path("out.partial"), F_OK) != 0);
    run_end(&r);
}

TEST(zero_points_lie_down_the_columns)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", false, false, "F32"), "w4:asym:f32",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(run_export(&r));
    const void *packed = data_of(&r, UP ".weight_packed", DTYPE_I32, 96, 8);
    const void *scale = data_of(&r, UP ".weight_scale", DTYPE_F32, 96, 1);
    const void *zero = data_of(&r, UP ".weight_zero_point", DTYPE_I32, 12, 1);
    float      *want = rounded(&r, UP ".weight", "w4:asym:f32");
    T_OK(packed && scale && zero);
    bool any = false;
    for (int i = 0; i < 96 * 64; i++) {
        float s;
        int   code = word_of(packed, i / 8) >> 4 * (i % 8) & 15, row = i / 64;
        int   z = word_of(zero, row / 8) >> 4 * (row % 8) & 15;
        memcpy(&s, (const unsigned char *)scale + 4 * row, 4);
        any |= z != 8;
        T_OK((float)(code - z) * s == want[i]);
    }
    T_OK(any);
    T_OK(!json_member(json_member(group(&r, 0), "weights"), "symmetric")->truth);
    T_TEXT(text_at(json_member(group(&r, 0), "weights"), "strategy"), "channel");
    T_TEXT(text_at(r.config, "dtype"), "float32");
    free(want);
    run_end(&r);
}

TEST(six_bits_lie_densely_or_as_eight)
{
    Run     r;
    int8_t  codes[64];
    int64_t sum[2] = {0};
    for (int wide = 0; wide < 2; wide++) {
        T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "w6:g32:bf16",
                              FORMAT_COMPRESSED));
        r.o.wide6 = wide;
        T_STATUS_OK(run_export(&r));
        const void *packed = data_of(&r, UP ".weight_packed", DTYPE_I32, 96, wide ? 16 : 12);
        const void *scale = data_of(&r, UP ".weight_scale", DTYPE_BF16, 96, 2);
        float      *want = rounded(&r, UP ".weight", "w6:g32:bf16");
        T_OK(packed && scale);
        packbits_unpack_rows(codes, packed, 1, 64, PACK_DENSE, wide ? 8 : 6);
        for (int i = 0; i < 64; i++) {
            T_OK(codes[i] >= -31 && codes[i] <= 31);
            T_OK((float)codes[i] * half_of(scale, i / 32, DTYPE_BF16) == want[i]);
            sum[wide] += codes[i] * (i + 1);
        }
        T_OK(number_at(json_member(group(&r, 0), "weights"), "num_bits") == (wide ? 8 : 6));
        free(want);
        run_end(&r);
    }
    T_OK(sum[0] == sum[1]);
}

TEST(several_schemes_name_their_modules)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "w4:g32:bf16",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(run_set(&r, DOWN ".weight", "w8:bf16"));
    T_STATUS_OK(run_set(&r, "model.layers.1.mlp.down_proj.weight", "w8:bf16:clip"));
    T_STATUS_OK(run_set(&r, "model.layers.1.self_attn.o_proj.weight", "fp"));
    T_STATUS_OK(run_export(&r));
    T_OK(group(&r, 1) && !group(&r, 2));
    /* in order of the first name: down_proj of layer 0 */
    const Json *eight = json_member(group(&r, 0), "targets");
    const Json *four = json_member(group(&r, 1), "targets");
    T_OK(number_at(json_member(group(&r, 0), "weights"), "num_bits") == 8);
    T_OK(eight->n == 2 && has_name(eight, DOWN) && four->n == 14 - 3 && has_name(four, UP));
    const Json *ignore = json_member(quantization(&r), "ignore");
    T_OK(ignore->n == 2 && has_name(ignore, "model.layers.1.self_attn.o_proj"));
    T_OK(data_of(&r, "model.layers.1.self_attn.o_proj.weight", DTYPE_BF16, 64, 64));
    T_OK(data_of(&r, DOWN ".weight_packed", DTYPE_I32, 64, 24));
    run_end(&r);
}

TEST(order_of_columns_is_a_label_of_gptq_in_groups)
{
    static const struct {
        const char *spec;
        bool        said;
    } ROWS[] = {{"w4:g32:bf16:gptq", true}, {"w4:bf16:gptq", false}, {"w4:g32:bf16", false}};
    for (int i = 0; i < 3; i++) {
        Run r;
        T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), ROWS[i].spec,
                              FORMAT_COMPRESSED));
        r.o.act_order = true;
        T_STATUS_OK(run_export(&r));
        T_TEXT(text_at(json_member(group(&r, 0), "weights"), "actorder"),
               ROWS[i].said ? "weight" : "none");
        run_end(&r);
    }
}

TEST(an_untied_head_is_written)
{
    Run r;
    for (int coded = 0; coded < 2; coded++) {
        T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "w8:bf16",
                              FORMAT_COMPRESSED));
        r.o.untie = true;
        if (coded)
            T_OK(run_set(&r, "lm_head.weight", "w8:bf16") == OK);
        T_STATUS_OK(run_export(&r));
        T_OK(!json_member(r.config, "tie_word_embeddings")->truth);
        T_OK(has_name(json_member(quantization(&r), "ignore"), "lm_head") == !coded);
        const void *head = data_of(&r, "lm_head.weight", DTYPE_BF16, 40, 64);
        const void *embed = data_of(&r, "model.embed_tokens.weight", DTYPE_BF16, 40, 64);
        T_OK(embed && (head == NULL) == (coded == 1));
        T_OK(coded || memcmp(head, embed, 40 * 64 * 2) == 0);
        T_OK(!coded || data_of(&r, "lm_head.weight_packed", DTYPE_I32, 40, 16));
        run_end(&r);
    }
}

TEST(numbers_are_converted)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", true, false, "F32"), "w8:f16",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(run_export(&r));
    const void *head = data_of(&r, "lm_head.weight", DTYPE_F16, 40, 64);
    T_OK(head && has_name(json_member(quantization(&r), "ignore"), "lm_head"));
    const ModelTensor *t = r.layers.info.tensors;
    while (strcmp(t->name, "lm_head.weight") != 0)
        t++;
    float *want = ref_source_read(t);
    for (int i = 0; i < 40 * 64; i++)
        T_OK(half_of(head, i, DTYPE_F16) == want[i]);  // drawn so that both dtypes hold them
    free(want);
    run_end(&r);
}

/* --- the other formats --- */

TEST(int8_holds_codes_as_they_are)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", false, true, "BF16"), "w8:bf16",
                          FORMAT_INT8));
    T_STATUS_OK(run_export(&r));
    const int8_t *codes = data_of(&r, DOWN ".weight", DTYPE_I8, 64, 96);
    const void   *scale = data_of(&r, DOWN ".weight_scale", DTYPE_BF16, 64, 1);
    float        *want = rounded(&r, DOWN ".weight", "w8:bf16");
    T_OK(codes && scale && r.out.n == 2 * (7 * 2 + 2) + 2);
    for (int i = 0; i < 64 * 96; i++)
        T_OK((float)codes[i] * half_of(scale, i / 96, DTYPE_BF16) == want[i]);
    T_TEXT(text_at(quantization(&r), "format"), "int-quantized");
    const Json *inputs = json_member(group(&r, 0), "input_activations");
    T_TEXT(text_at(inputs, "strategy"), "token");
    T_OK(json_member(inputs, "dynamic")->truth && json_member(inputs, "symmetric")->truth);
    T_OK(number_at(inputs, "num_bits") == 8);
    free(want);
    run_end(&r);
}

TEST(gptq_packs_along_the_inputs)
{
    for (int bits = 4; bits <= 8; bits += 4) {
        Run         r;
        const char *spec = bits == 4 ? "w4:g32" : "w8";
        int         a_word = 32 / bits, groups = bits == 4 ? 3 : 1;
        T_STATUS_OK(run_begin(&r, ref_source("source", false, true, "F16"), spec, FORMAT_GPTQ));
        T_STATUS_OK(run_export(&r));
        const void *q = data_of(&r, DOWN ".qweight", DTYPE_I32, 96 / a_word, 64);
        const void *z = data_of(&r, DOWN ".qzeros", DTYPE_I32, groups, 64 / a_word);
        const void *s = data_of(&r, DOWN ".scales", DTYPE_F16, groups, 64);
        const void *g = data_of(&r, DOWN ".g_idx", DTYPE_I32, 96, 0);
        float      *want = rounded(&r, DOWN ".weight", spec);
        T_OK(q && z && s && g);
        for (int n = 0; n < 64; n++)
            for (int k = 0; k < 96; k++) {
                int code = word_of(q, k / a_word * 64 + n) >> bits * (k % a_word) &
                           ((1 << bits) - 1);
                int group_of = word_of(g, k), mid = 1 << (bits - 1);
                T_OK(group_of == k / (96 / groups));
                T_OK((float)(code - mid) * half_of(s, group_of * 64 + n, DTYPE_F16) ==
                     want[n * 96 + k]);
            }
        for (int i = 0; i < groups * 64 / a_word; i++)  // v1 stores the zero less one
            T_OK(word_of(z, i) == (bits == 4 ? 0x77777777 : 0x7f7f7f7f));
        const Json *c = quantization(&r);
        T_TEXT(text_at(c, "quant_method"), "gptq");
        T_TEXT(text_at(c, "checkpoint_format"), "gptq");
        T_OK(number_at(c, "bits") == bits);
        T_OK(number_at(c, "group_size") == (bits == 4 ? 32 : -1));
        T_OK(json_member(c, "sym")->truth && !json_member(c, "desc_act")->truth);
        T_NEAR(json_member(c, "damp_percent")->number, 0.05, 0);
        T_OK(!json_member(c, "modules_in_block_to_quantize"));
        const Json *own;
        T_STATUS_OK(json_read(&own, &r.a, ref_path("out/quantize_config.json")));
        T_OK(number_at(own, "bits") == bits);
        T_TEXT(text_at(own, "quant_method"), "gptq");
        T_TEXT(text_at(r.config, "dtype"), "float16");
        free(want);
        run_end(&r);
    }
}

TEST(gptq_names_what_is_coded_in_a_block)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", false, true, "F16"), "fp", FORMAT_GPTQ));
    T_STATUS_OK(run_set(&r, UP ".weight", "w4"));
    T_STATUS_OK(run_set(&r, "model.layers.1.mlp.up_proj.weight", "w4"));
    T_STATUS_OK(run_export(&r));
    const Json *names = json_member(quantization(&r), "modules_in_block_to_quantize");
    T_OK(names && names->n == 1 && names->at[0].n == 1);
    T_TEXT(names->at[0].at[0].text, "mlp.up_proj");
    T_OK(data_of(&r, DOWN ".weight", DTYPE_F16, 64, 96));
    run_end(&r);
}

TEST(a_plan_without_bits_makes_floats)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "fp",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(run_export(&r));
    T_OK(!quantization(&r) && r.out.n == r.layers.info.n_tensors && !r.plan.n);
    T_OK(data_of(&r, UP ".weight", DTYPE_F16, 96, 64));  // the plan's dtype of scales
    run_end(&r);
}

/* --- plans that a format cannot hold --- */

TEST(plans_that_cannot_be_held_are_refused)
{
    static const struct {
        const char  *dtype, *spec, *name, *other;
        ExportFormat format;
        Status       status;
        const char  *says;
    } ROWS[] = {
        {"F16", "w6", NULL, NULL, FORMAT_GPTQ, ERR_UNSUPPORTED, "use compressed-tensors"},
        {"F16", "w4:asym", NULL, NULL, FORMAT_GPTQ, ERR_UNSUPPORTED, "got w4:asym"},
        {"BF16", "w4:bf16", NULL, NULL, FORMAT_GPTQ, ERR_UNSUPPORTED, "stores scales as F16"},
        {"F16", "w4", UP ".weight", "w8", FORMAT_GPTQ, ERR_UNSUPPORTED, "one scheme for all"},
        {"F16", "w4", UP ".weight", "fp", FORMAT_GPTQ, ERR_UNSUPPORTED,
         "mlp.up_proj of layer 0 is not"},
        {"F16", "w4", "lm_head.weight", "w4", FORMAT_GPTQ, ERR_UNSUPPORTED, "blocks only"},
        {"F16", "w8:g32", NULL, NULL, FORMAT_INT8, ERR_UNSUPPORTED, "got w8:g32: use w8"},
        {"F16", "w8:asym", NULL, NULL, FORMAT_INT8, ERR_UNSUPPORTED, "got w8:asym"},
        {"F16", "w4", NULL, NULL, FORMAT_INT8, ERR_UNSUPPORTED, "got w4"},
        {"F16", "w4:g128", NULL, NULL, FORMAT_COMPRESSED, ERR_SHAPE,
         "rows of 96 weights cannot be cut into groups of 128"},
        {"F16", "w4:g64", NULL, NULL, FORMAT_COMPRESSED, ERR_SHAPE, "down_proj.weight: rows"},
        {"F16", "w4", UP ".weight", "w4:bf16", FORMAT_COMPRESSED, ERR_USAGE,
         "up_proj.weight: its scales are BF16, expected F16"},
        {"F16", "fp", NULL, NULL, FORMAT_GPTQ, ERR_USAGE, "leaves every matrix"},
        {"F16", "fp", NULL, NULL, FORMAT_INT8, ERR_USAGE, "leaves every matrix"},
        {"F16", "w4", "model.embed_tokens.weight", "w4", FORMAT_COMPRESSED, ERR_UNSUPPORTED,
         "embed_tokens.weight: is no weight of a linear layer"},
        {"F16", "w4", "model.norm.weight", "w4", FORMAT_COMPRESSED, ERR_UNSUPPORTED,
         "model.norm.weight: is no weight"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Run     r;
        Export *e;
        T_STATUS_OK(run_begin(&r, ref_source("source", false, false, ROWS[i].dtype),
                              ROWS[i].spec, ROWS[i].format));
        r.o.path = ref_path("refused");
        if (ROWS[i].name)
            T_STATUS_OK(run_set(&r, ROWS[i].name, ROWS[i].other));
        T_FAILS(export_open(&e, &r.a, &r.o), ROWS[i].status, ROWS[i].says);
        T_OK(!e && access(ref_path("refused"), F_OK) != 0);
        T_OK(access(ref_path("refused.partial"), F_OK) != 0);
        run_end(&r);
    }
}

TEST(what_other_tools_refuse_is_noted)
{
    static const struct {
        const char *name, *spec, *note;
    } ROWS[] = {
        {"model.layers.1.self_attn.k_proj.weight", "w8:bf16", "layers.1.self_attn.q_proj"},
        {"model.layers.0.self_attn.v_proj.weight", "fp", "than its v_proj"},
        {"model.layers.0.mlp.gate_proj.weight", "w4:g32:bf16:asym", "than its up_proj"},
        {"model.layers.0.mlp.gate_proj.weight", "w4:g32:bf16:clip", NULL},
        {"model.layers.0.mlp.down_proj.weight", "w4:g32:bf16:asym", "zero points are packed"},
        {"model.layers.0.mlp.down_proj.weight", "w6:bf16", "6-bit codes lie densely"},
        {"model.layers.0.mlp.down_proj.weight", "w8:bf16", NULL},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Run     r;
        Export *e;
        T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "BF16"), "w4:g32:bf16",
                              FORMAT_COMPRESSED));
        T_STATUS_OK(run_set(&r, ROWS[i].name, ROWS[i].spec));
        T_STATUS_OK(export_open(&e, &r.a, &r.o));
        const char *note = export_note(e);
        T_OK((note == NULL) == (ROWS[i].note == NULL));
        T_OK(!note || strstr(note, ROWS[i].note));
        export_close(e);
        run_end(&r);
    }
}

TEST(numbers_that_do_not_fit_are_named)
{
    Run         r;
    Export     *e;
    const char *name = "model.norm.weight";
    float       x[64] = {0};
    T_STATUS_OK(run_begin(&r, ref_source("source", true, true, "F32"), "w4",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    x[7] = 70000;
    T_FAILS(export_floats(e, name, x, 0, 64), ERR_RANGE, "model.norm.weight[7] is 70000");
    x[7] = 1.0f / 0.0f;
    T_FAILS(export_floats(e, name, x, 0, 64), ERR_RANGE, "[7] is inf, expected a finite");
    T_OK(!export_has(e, name));
    x[7] = 65504;
    T_STATUS_OK(export_floats(e, name, x, 0, 60));
    T_OK(!export_has(e, name));
    T_STATUS_OK(export_floats(e, name, x, 60, 4));
    T_OK(export_has(e, name) && !export_has(e, UP ".weight"));
    export_close(e);
    run_end(&r);
}

TEST(a_source_of_nan_is_not_copied)
{
    Run         r;
    const char *path = ref_path("nan");
    RefModel    m = {.hidden = 64, .inter = 96, .vocab = 40, .layers = 1, .heads = 4,
                     .kv_heads = 4, .head_dim = 16};
    ref_model_fill(&m, "BF16");
    ref_model_find(&m, "lm_head.weight")->data[64 * 3 + 5] = 0.0f / 0.0f;
    ref_model_write(&m, path, 1);
    ref_model_free(&m);
    T_STATUS_OK(run_begin(&r, path, "w4:bf16", FORMAT_COMPRESSED));
    r.o.path = ref_path("nan_out");
    T_FAILS(run_export(&r), ERR_RANGE, "lm_head.weight[3,5] is");
    T_OK(access(r.o.path, F_OK) != 0);
    run_end(&r);
}

/* Readers refuse scales whose products with codes are not finite: so does the writer. */
TEST(scales_that_cannot_be_decoded_are_refused)
{
    static const char MATRIX[] = "model.layers.0.self_attn.q_proj.weight";
    Run     r;
    Export *e;
    T_STATUS_OK(run_begin(&r, ref_source("source", false, false, "F32"), "w4:f32",
                          FORMAT_COMPRESSED));
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    const ModelTensor *t = r.layers.info.tensors;
    while (strcmp(t->name, MATRIX) != 0)
        t++;
    int64_t  n = t->view.shape[0], k = t->view.shape[1];
    RtnCodes c = {.codes = calloc((size_t)(n * k), 1),
                  .scales = calloc((size_t)n, sizeof(float))};
    c.scales[3] = CODES_MOST_SCALE;
    T_STATUS_OK(export_codes(e, MATRIX, &c));
    c.scales[3] *= 1.01f;
    T_FAILS(export_codes(e, MATRIX, &c), ERR_RANGE, "row 3 needs a scale of");
    c.scales[3] = NAN;
    T_FAILS(export_codes(e, MATRIX, &c), ERR_RANGE, "row 3 needs a scale of");
    free(c.codes);
    free(c.scales);
    export_close(e);
    run_end(&r);
}
