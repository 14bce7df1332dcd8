/* test_quant_config.c - quantization_config: what is read, what is refused and how, and
 * which modules targets and exceptions mean. */
#include "analysis/model/quant_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/analysis/ref_checkpoint.h"
#include "tests/check.h"

static Arena arena;

static Status parse(QuantConfig *q, const char *text)
{
    const Json *v;
    arena_close(&arena);
    TRY(json_parse(&v, &arena, "m/config.json", text, strlen(text)));
    return quant_config_read(q, &arena, v, "m/config.json");
}

#define ARGS                                                                              \
    "\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"group\","          \
    "\"group_size\":128,\"dynamic\":false,\"actorder\":null,\"block_structure\":null,"    \
    "\"observer\":\"minmax\",\"observer_kwargs\":{}"
#define GROUP                                                                             \
    "\"targets\":[\"Linear\"],\"weights\":{" ARGS "},\"input_activations\":null,"         \
    "\"output_activations\":null"
#define CT                                                                                \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","             \
    "\"quantization_status\":\"compressed\",\"config_groups\":{\"group_0\":{" GROUP "}}," \
    "\"ignore\":[\"lm_head\"],\"kv_cache_scheme\":null,\"global_compression_ratio\":null}"
#define GPTQ                                                                              \
    "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"desc_act\":true,"         \
    "\"sym\":false,\"checkpoint_format\":\"gptq_v2\",\"damp_percent\":0.01}"

/* --- what is read --- */

TEST(quant_config_compressed_tensors)
{
    QuantConfig q;
    T_STATUS_OK(parse(&q, CT));
    T_OK(q.method == QUANT_COMPRESSED && q.n_groups == 1 && q.ignore->n == 1);
    const QuantGroup *g = &q.groups[0];
    T_TEXT(g->name, "group_0");
    T_TEXT(g->targets->at[0].text, "Linear");
    T_OK(g->bits == 4 && g->group == 128 && g->symmetric && !g->bytes && !g->indexed);
    T_TEXT(q.summary, "compressed-tensors, pack-quantized");
}

static const struct {
    const char *from, *to;  // of CT
    int64_t     bits, group;
    bool        symmetric, bytes, indexed;
} GROUPS[] = {
    {"\"num_bits\":4", "\"num_bits\":6", 6, 128, true, false, false},
    {"\"num_bits\":4,", "", 8, 128, true, false, false},
    {"\"symmetric\":true", "\"symmetric\":false", 4, 128, false, false, false},
    {"\"symmetric\":true,", "", 4, 128, true, false, false},
    {"\"group\",\"group_size\":128", "\"channel\",\"group_size\":null", 4, GROUP_ROW, true,
     false, false},
    {"\"group\",\"group_size\":128", "\"channel\",\"group_size\":-1", 4, GROUP_ROW, true,
     false, false},
    {"\"group\",\"group_size\":128", "\"tensor\"", 4, GROUP_MATRIX, true, false, false},
    {"\"strategy\":\"group\",\"group_size\":128,", "", 4, GROUP_MATRIX, true, false, false},
    {"\"strategy\":\"group\",\"group_size\":128", "\"group_size\":-1", 4, GROUP_ROW, true,
     false, false},
    {"\"strategy\":\"group\",", "", 4, 128, true, false, false},
    {"pack-quantized", "int-quantized", 4, 128, true, true, false},
    {"pack-quantized", "naive-quantized", 4, 128, true, true, false},
    {"\"targets\"", "\"format\":\"naive-quantized\",\"targets\"", 4, 128, true, true, false},
    {"\"actorder\":null", "\"actorder\":\"group\"", 4, 128, true, false, true},
    {"\"actorder\":null", "\"actorder\":\"dynamic\"", 4, 128, true, false, true},
    {"\"actorder\":null", "\"actorder\":true", 4, 128, true, false, true},
    {"\"actorder\":null", "\"actorder\":false", 4, 128, true, false, false},
    {"\"actorder\":null", "\"actorder\":\"weight\"", 4, 128, true, false, false},
    {"\"actorder\":null", "\"actorder\":\"static\"", 4, 128, true, false, false},
    {"\"observer_kwargs\":{}", "\"scale_dtype\":null,\"zp_dtype\":\"torch.int8\"", 4, 128, true,
     false, false},
    {"\"kv_cache_scheme\":null", "\"kv_cache_scheme\":{\"num_bits\":8},\"new_key\":[1]", 4, 128,
     true, false, false},
    {"\"ignore\":[\"lm_head\"]", "\"sparsity_config\":{},\"transform_config\":{}", 4, 128, true,
     false, false},
    {"\"ignore\":[\"lm_head\"]", "\"ignore\":null,\"sparsity_config\":{\"format\":\"dense\"}", 4,
     128, true, false, false},
};

TEST(quant_config_groups)
{
    for (size_t i = 0; i < sizeof GROUPS / sizeof *GROUPS; i++) {
        QuantConfig q;
        T_STATUS_OK(parse(&q, ref_replace(CT, GROUPS[i].from, GROUPS[i].to)));
        const QuantGroup *g = &q.groups[0];
        T_OK(g->bits == GROUPS[i].bits && g->group == GROUPS[i].group);
        T_OK(g->symmetric == GROUPS[i].symmetric && g->bytes == GROUPS[i].bytes);
        T_OK(g->indexed == GROUPS[i].indexed);
    }
}

/* What a pass can round is told apart from what it cannot. */
TEST(quant_config_activations)
{
#define NOT(bits) "its quantization of activations, " bits " bits, is not applied"
    static const struct {
        const char *inputs, *summary;
        int         acts;
        ActScale    scale;
    } ROWS[] = {
        {"\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":true",
         "inputs of 8 bits by token", 8, ACTS_TOKEN},
        {"\"num_bits\":4,\"strategy\":\"token\",\"dynamic\":true",
         "inputs of 4 bits by token", 4, ACTS_TOKEN},
        {"\"strategy\":\"tensor\",\"dynamic\":true", "inputs of 8 bits by sequence", 8,
         ACTS_TENSOR},
        {"\"num_bits\":6,\"dynamic\":true", "inputs of 6 bits by sequence", 6, ACTS_TENSOR},
        {"\"strategy\":\"token\"", NOT("8"), 0, 0},
        {"\"strategy\":\"tensor\",\"dynamic\":false", NOT("8"), 0, 0},
        {"\"strategy\":\"tensor\",\"dynamic\":\"local\"", NOT("8"), 0, 0},
        {"\"strategy\":\"token\",\"dynamic\":true,\"symmetric\":false", NOT("8"), 0, 0},
        {"\"strategy\":\"token\",\"dynamic\":true,\"type\":\"float\"", NOT("8"), 0, 0},
        {"\"num_bits\":5,\"strategy\":\"token\",\"dynamic\":true", NOT("5"), 0, 0},
        {"\"group_size\":64,\"strategy\":\"group\",\"dynamic\":true", NOT("8"), 0, 0},
    };
    QuantConfig q;
    char        to[256], summary[256];
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        snprintf(to, sizeof to, "\"input_activations\":{%s}", ROWS[i].inputs);
        snprintf(summary, sizeof summary, "compressed-tensors, pack-quantized; %s",
                 ROWS[i].summary);
        T_STATUS_OK(parse(&q, ref_replace(CT, "\"input_activations\":null", to)));
        T_TEXT(q.summary, summary);
        T_OK(q.run.acts == ROWS[i].acts && q.run.act_scale == ROWS[i].scale);
        T_OK(q.run.act_wide == (ROWS[i].acts != 0));
    }
    T_STATUS_OK(parse(&q, ref_replace(CT, "\"output_activations\":null",
                                      "\"output_activations\":{\"dynamic\":true}")));
    T_OK(q.run.acts == 0 && strstr(q.summary, NOT("8")));
    /* another group without */
    T_STATUS_OK(parse(&q, ref_replace(CT, "{\"group_0\":{",
                                      "{\"a\":{\"targets\":[\"x\"],\"weights\":{\"num_bits\":4},"
                                      "\"input_activations\":{\"strategy\":\"token\","
                                      "\"dynamic\":true}},\"group_0\":{")));
    T_OK(q.n_groups == 2 && q.run.acts == 0 && strstr(q.summary, NOT("8")));
    T_STATUS_OK(parse(&q, ref_replace(CT, "{" ARGS "}", "null")));
    T_OK(q.groups[0].bits == 0);
}

TEST(quant_config_gptq)
{
    QuantConfig q;
    T_STATUS_OK(parse(&q, GPTQ));
    T_OK(q.method == QUANT_GPTQ && q.bits == 4 && q.group == 128 && !q.symmetric && q.indexed);
    T_OK(!q.zeros_less && !q.exceptions);
    T_TEXT(q.summary, "GPTQ, gptq_v2");
    T_STATUS_OK(parse(&q, ref_replace(GPTQ, "\"checkpoint_format\":\"gptq_v2\",", "")));
    T_OK(q.zeros_less);
    T_STATUS_OK(parse(&q, ref_replace(GPTQ, "\"checkpoint_format\"", "\"format\"")));
    T_OK(!q.zeros_less);
    T_STATUS_OK(parse(&q, ref_replace(GPTQ, "128", "-1")));
    T_OK(q.group == GROUP_ROW);
    T_STATUS_OK(parse(&q, ref_replace(GPTQ, "\"sym\":false",
                                      "\"dynamic\":{\"+:.*down\":{\"bits\":8}}")));
    T_OK(q.exceptions && q.symmetric);
    T_STATUS_OK(parse(&q, ref_replace(GPTQ, "\"sym\":false", "\"dynamic\":{},\"meta\":{}")));
    T_OK(!q.exceptions);
}

TEST(quant_config_file_of_gptq)
{
    QuantConfig q;
    const char *path = ref_path("quantize_config.json");
    arena_close(&arena);
    ref_write_text(path, "{\"bits\":8,\"group_size\":64,\"desc_act\":false}");
    T_STATUS_OK(quant_config_file(&q, &arena, path));
    T_OK(q.method == QUANT_GPTQ && q.bits == 8 && q.group == 64 && q.zeros_less);
    ref_write_text(path, "{\"bits\":8}");
    T_FAILS(quant_config_file(&q, &arena, path), ERR_FORMAT,
            "quantize_config.json: group_size is missing");
    ref_write_text(path, "{\"quant_method\":\"awq\",\"bits\":4}");
    T_FAILS(quant_config_file(&q, &arena, path), ERR_UNSUPPORTED, "quant_method is \"awq\"");
    ref_write_text(path, "[]");
    T_FAILS(quant_config_file(&q, &arena, path), ERR_FORMAT, "expected an object");
    T_FAILS(quant_config_file(&q, &arena, ref_path("none.json")), ERR_IO, "none.json");
}

/* --- what is refused --- */

static const struct {
    const char *text, *from, *to;
    Status      code;
    const char *sentence;
} BAD[] = {
    {CT, "\"compressed-tensors\"", "\"bitsandbytes\"", ERR_UNSUPPORTED,
     "m/config.json: quantization_config.quant_method is \"bitsandbytes\", expected "
     "compressed-tensors or gptq"},
    {CT, "\"quant_method\":\"compressed-tensors\",", "", ERR_FORMAT, "quant_method is missing"},
    {CT, "\"compressed-tensors\"", "4", ERR_FORMAT, "quant_method is 4, expected a text"},
    {CT, "\"format\":\"pack-quantized\",", "", ERR_FORMAT, "format is missing"},
    {CT, "pack-quantized", "nvfp4-pack-quantized", ERR_UNSUPPORTED,
     "config_groups.group_0.format is \"nvfp4-pack-quantized\", expected pack-quantized, "
     "int-quantized or naive-quantized"},
    {CT, "pack-quantized", "mixed-precision", ERR_UNSUPPORTED, "format is \"mixed-precision\""},
    {CT, "pack-quantized", "dense", ERR_UNSUPPORTED, "format is \"dense\""},
    {CT, "\"config_groups\"", "\"groups\"", ERR_FORMAT, "config_groups is missing"},
    {CT, "{\"group_0\":{" GROUP "}}", "[]", ERR_FORMAT, "config_groups is a list"},
    {CT, "\"group_0\":{" GROUP "}", "\"W4A16\":[\"Linear\"]", ERR_UNSUPPORTED,
     "config_groups.W4A16 is a list, expected an object with targets and weights"},
    {CT, "\"targets\":[\"Linear\"],", "", ERR_FORMAT,
     "config_groups.group_0.targets is missing, expected a list of names"},
    {CT, "[\"Linear\"]", "\"Linear\"", ERR_FORMAT, "targets is a text, expected a list"},
    {CT, "[\"Linear\"]", "[\"Linear\",3]", ERR_FORMAT, "targets[1] is a number, expected a name"},
    {CT, "[\"lm_head\"]", "\"lm_head\"", ERR_FORMAT, "ignore is a text"},
    {CT, "\"targets\"", "\"smooth\":1,\"targets\"", ERR_UNSUPPORTED,
     "config_groups.group_0.smooth is not a key of compressed-tensors that is known"},
    {CT, "\"num_bits\"", "\"rotation\":1,\"num_bits\"", ERR_UNSUPPORTED,
     "config_groups.group_0.weights.rotation is not a key"},
    {CT, "\"input_activations\":null", "\"input_activations\":{\"bits\":8}", ERR_UNSUPPORTED,
     "input_activations.bits is not a key"},
    {CT, "\"input_activations\":null", "\"input_activations\":8", ERR_FORMAT,
     "input_activations is a number, expected an object"},
    {CT, "{" ARGS "}", "[]", ERR_FORMAT, "weights is a list, expected an object"},
    {CT, "\"num_bits\":4", "\"num_bits\":9", ERR_RANGE, "num_bits is 9, expected 1 to 8"},
    {CT, "\"num_bits\":4", "\"num_bits\":0", ERR_RANGE, "num_bits is 0"},
    {CT, "\"num_bits\":4", "\"num_bits\":\"4\"", ERR_FORMAT, "num_bits is a text"},
    {CT, "\"int\"", "\"float\"", ERR_UNSUPPORTED, "weights.type is \"float\", expected int"},
    {CT, "\"symmetric\":true", "\"symmetric\":1", ERR_FORMAT, "symmetric is 1"},
    {CT, "\"group\",", "\"block\",", ERR_RANGE,
     "group_size is 128, expected null with strategy block"},
    {CT, "\"group\",\"group_size\":128", "\"block\"", ERR_UNSUPPORTED,
     "strategy is \"block\", expected group, channel or tensor"},
    {CT, "\"group_size\":128", "\"group_size\":-1", ERR_RANGE,
     "group_size is -1, expected 1 or more with strategy group"},
    {CT, "\"group_size\":128", "\"group_size\":-2", ERR_RANGE, "group_size is -2"},
    {CT, "\"dynamic\":false", "\"dynamic\":true", ERR_UNSUPPORTED, "dynamic is set"},
    {CT, "\"dynamic\":false", "\"dynamic\":\"local\"", ERR_UNSUPPORTED, "dynamic is set"},
    {CT, "\"block_structure\":null", "\"block_structure\":[8,8]", ERR_UNSUPPORTED,
     "block_structure is set"},
    {CT, "\"actorder\":null", "\"actorder\":\"random\"", ERR_UNSUPPORTED,
     "actorder is random, expected null, weight or group"},
    {CT, "\"actorder\":null", "\"actorder\":7", ERR_UNSUPPORTED, "actorder is a number"},
    {CT, "\"group\",\"group_size\":128,\"dynamic\":false,\"actorder\":null",
     "\"channel\",\"actorder\":\"group\"", ERR_UNSUPPORTED, "with strategy group only"},
    {CT, "\"ignore\"", "\"transform_config\":{\"config_groups\":{}},\"ignore\"",
     ERR_UNSUPPORTED, "transform_config is set, expected none"},
    {CT, "\"ignore\"", "\"sparsity_config\":{\"format\":\"marlin-24\"},\"ignore\"",
     ERR_UNSUPPORTED, "sparsity_config is set, expected none"},
    {GPTQ, "\"bits\":4", "\"bits\":6", ERR_UNSUPPORTED, "bits is 6, expected 2, 3, 4 or 8"},
    {GPTQ, "\"bits\":4,", "", ERR_FORMAT, "quantization_config.bits is missing"},
    {GPTQ, "\"bits\":4", "\"bits\":4.5", ERR_FORMAT, "bits is 4.5, expected a whole number"},
    {GPTQ, "128", "0", ERR_RANGE, "group_size is 0, expected -1 or 1 and more"},
    {GPTQ, "128", "-7", ERR_RANGE, "group_size is -7"},
    {GPTQ, "gptq_v2", "marlin", ERR_UNSUPPORTED,
     "checkpoint_format is \"marlin\", expected gptq or gptq_v2"},
    {GPTQ, "\"sym\"", "\"format\":\"gptq\",\"sym\"", ERR_FORMAT,
     "format is \"gptq\", but checkpoint_format is \"gptq_v2\""},
    {GPTQ, "\"sym\"", "\"is_marlin_format\":true,\"sym\"", ERR_UNSUPPORTED, "is_marlin_format"},
    {GPTQ, "\"sym\"", "\"pack_dtype\":\"int16\",\"sym\"", ERR_UNSUPPORTED,
     "pack_dtype is \"int16\", expected int32"},
    {GPTQ, "\"sym\":false", "\"sym\":\"no\"", ERR_FORMAT, "sym is a text"},
};

TEST(quant_config_that_is_refused)
{
    QuantConfig q;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        T_FAILS(parse(&q, ref_replace(BAD[i].text, BAD[i].from, BAD[i].to)), BAD[i].code,
                BAD[i].sentence);
    T_FAILS(parse(&q, "7"), ERR_FORMAT, "quantization_config is a number, expected an object");
    T_STATUS_OK(parse(&q, "null"));
    T_OK(q.method == QUANT_NONE && !q.summary);
}

TEST(quant_config_without_memory)
{
    static const char *const TEXTS[] = {CT, GPTQ};
    for (int i = 0; i < 2; i++)
        for (int64_t k = 1;; k++) {
            QuantConfig  q;
            QuantMatcher m = {0};
            arena_fail_at(k);
            Status s = parse(&q, TEXTS[i]);
            if (s == OK)
                s = quant_match_open(&m, &arena, &q, "m/config.json");
            arena_fail_at(0);
            quant_match_close(&m);
            if (s == OK)
                break;
            T_OK(s == ERR_MEMORY && k < 1000);
        }
}

/* --- which modules --- */

#define Q "model.layers.0.self_attn.q_proj"
#define DOWN "model.layers.11.mlp.down_proj"

static const struct {
    const char *targets[3], *ignore;  // of groups a, b, c
    const char *module, *kind, *group;
} MATCHES[] = {
    {{"[\"Linear\"]", 0, 0}, "[\"lm_head\"]", Q, "Linear", "a"},
    {{"[\"Linear\"]", 0, 0}, "[\"lm_head\"]", "lm_head", "Linear", NULL},
    {{"[\"Linear\"]", 0, 0}, "null", "lm_head", "Linear", "a"},
    {{"[\"Linear\"]", 0, 0}, "null", "model.embed_tokens", "Embedding", NULL},
    {{"[\"Embedding\"]", 0, 0}, "null", "model.embed_tokens", "Embedding", "a"},
    {{"[\"Linear\"]", 0, 0}, "[\"Linear\"]", Q, "Linear", NULL},
    {{"[\"" Q "\"]", 0, 0}, "[]", Q, "Linear", "a"},
    {{"[\"" Q "\"]", 0, 0}, "[]", Q "2", "Linear", NULL},
    /* a pattern begins with the name and may end before it does */
    {{"[\"re:.*down_proj\"]", 0, 0}, "[]", DOWN, "Linear", "a"},
    {{"[\"re:down_proj\"]", 0, 0}, "[]", DOWN, "Linear", NULL},
    {{"[\"re:model\"]", 0, 0}, "[]", DOWN, "Linear", "a"},
    {{"[\"re:.*down\"]", 0, 0}, "[]", DOWN, "Linear", "a"},
    {{"[\"re:.*down$\"]", 0, 0}, "[]", DOWN, "Linear", NULL},
    {{"[\"re:.*layers\\\\.1\\\\..*\"]", 0, 0}, "[]", DOWN, "Linear", NULL},
    {{"[\"re:.*layers\\\\.(11|7)\\\\..*\"]", 0, 0}, "[]", DOWN, "Linear", "a"},
    {{"[\"Linear\"]", 0, 0}, "[\"re:.*mlp.*\"]", DOWN, "Linear", NULL},
    {{"[\"Linear\"]", 0, 0}, "[\"re:.*mlp.*\"]", Q, "Linear", "a"},
    /* a name before a pattern before a class, wherever they stand */
    {{"[\"Linear\"]", "[\"re:.*q_proj\"]", "[\"" Q "\"]"}, "[]", Q, "Linear", "c"},
    {{"[\"Linear\"]", "[\"re:.*_proj\"]", "[\"" Q "\"]"}, "[]", DOWN, "Linear", "b"},
    {{"[\"Linear\"]", "[\"re:.*q_proj\"]", "[\"" Q "\"]"}, "[]", DOWN, "Linear", "a"},
    /* of patterns the first by its text; of equal ones the later */
    {{"[\"re:.*q_proj\"]", "[\"re:.*[q]_proj\"]", 0}, "[]", Q, "Linear", "b"},
    {{"[\"Linear\"]", "[\"Linear\"]", 0}, "[]", Q, "Linear", "b"},
};

TEST(quant_match_modules)
{
    for (size_t i = 0; i < sizeof MATCHES / sizeof *MATCHES; i++) {
        char         text[2048];
        const char  *names = "abc";
        int          n = snprintf(text, sizeof text,
                                  "{\"quant_method\":\"compressed-tensors\",\"format\":"
                                  "\"pack-quantized\",\"ignore\":%s,\"config_groups\":{",
                                  MATCHES[i].ignore);
        for (int g = 0; g < 3 && MATCHES[i].targets[g]; g++)
            n += snprintf(text + n, sizeof text - (size_t)n,
                          "%s\"%c\":{\"targets\":%s,\"weights\":{" ARGS "}}", g ? "," : "",
                          names[g], MATCHES[i].targets[g]);
        snprintf(text + n, sizeof text - (size_t)n, "}}");
        QuantConfig       q;
        QuantMatcher      m;
        const QuantGroup *group;
        T_STATUS_OK(parse(&q, text));
        T_STATUS_OK(quant_match_open(&m, &arena, &q, "m/config.json"));
        T_STATUS_OK(quant_match(&group, &m, MATCHES[i].module, MATCHES[i].kind));
        quant_match_close(&m);
        if (!group != !MATCHES[i].group ||
            (group && strcmp(group->name, MATCHES[i].group) != 0)) {
            check_fail(__FILE__, __LINE__, "row %zu: %s is in %s", i, MATCHES[i].module,
                       group ? group->name : "none");
            return;
        }
    }
}

TEST(quant_match_bad_patterns)
{
    QuantConfig  q;
    QuantMatcher m;
    T_STATUS_OK(parse(&q, ref_replace(CT, "[\"lm_head\"]", "[\"x\",\"re:.*(q|k\"]")));
    T_FAILS(quant_match_open(&m, &arena, &q, "m/config.json"), ERR_FORMAT,
            "m/config.json: quantization_config: pattern \"re:.*(q|k\": missing closing "
            "parenthesis");
    T_OK(!m.patterns);
    /* one that PCRE2 gives up on */
    const QuantGroup *group;
    T_STATUS_OK(parse(&q, ref_replace(CT, "[\"Linear\"]", "[\"re:(?:a|a?)+[bd]\"]")));
    T_STATUS_OK(quant_match_open(&m, &arena, &q, "m/config.json"));
    T_FAILS(quant_match(&group, &m, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac",
                        "Linear"), ERR_RANGE, "pattern \"re:(?:a|a?)+[bd]\" failed on aaa");
    quant_match_close(&m);
}
