/* test_config.c - config.json in its spellings, and each way to get it wrong. */
#include "analysis/model/config.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/model/keys.h"
#include "tests/analysis/ref_checkpoint.h"
#include "tests/check.h"

#define SIZES "\"vocab_size\":101,\"hidden_size\":32,\"intermediate_size\":56," \
              "\"num_hidden_layers\":3,\"num_attention_heads\":8"
#define LLAMA "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," SIZES
#define DIFF "{\"architectures\":[\"DiffLlamaForCausalLM\"],\"model_type\":\"diffllama\"," SIZES

static Arena arena;

static Status parse(Config *c, const char *text)
{
    arena_close(&arena);
    return config_parse(c, &arena, "m/config.json", text, strlen(text));
}

/* --- what comes out --- */

TEST(config_defaults_of_llama)
{
    Config c;
    T_STATUS_OK(parse(&c, LLAMA "}"));
    const ModelConfig *m = &c.model;
    T_OK(m->n_layers == 3 && m->hidden == 32 && m->inter == 56 && m->vocab == 101);
    T_OK(m->n_heads == 8 && m->n_groups == 8 && m->n_maps == 1 && m->head_dim == 4);
    T_OK(m->max_positions == 2048 && m->norm_eps == 1e-6 && m->head_norm_eps < 0);
    T_OK(m->act == ACT_SILU && !m->tied && m->bos == 1 && m->eos == 2 && m->n_stops == 1);
    T_OK(m->rope.kind == ROPE_DEFAULT && m->rope.theta == 10000 && m->rope.dims == 4);
    T_OK(!c.keys.attention_bias && !c.keys.mlp_bias);
    T_TEXT(c.arch->architecture, "LlamaForCausalLM");
    T_TEXT(c.text, LLAMA "}");
}

TEST(config_defaults_of_diffllama)
{
    Config c;
    T_STATUS_OK(parse(&c, DIFF ",\"num_key_value_heads\":4,\"head_dim\":10}"));
    const ModelConfig *m = &c.model;
    T_OK(m->n_heads == 4 && m->n_groups == 2 && m->n_maps == 2 && m->head_dim == 10);
    T_OK(m->norm_eps == 1e-5 && m->head_norm_eps == 1e-5);
    /* odd: pairs of value heads straddle the groups */
    T_STATUS_OK(parse(&c, DIFF ",\"num_key_value_heads\":1}"));
    T_OK(c.model.n_heads == 4 && c.model.n_groups == 4);
    T_STATUS_OK(parse(&c, DIFF ",\"mlp_bias\":true,\"attention_bias\":true}"));
    T_OK(!c.keys.mlp_bias && c.keys.attention_bias);
}

TEST(config_all_keys)
{
    Config c;
    T_STATUS_OK(parse(&c, LLAMA ",\"num_key_value_heads\":2,\"head_dim\":6,\"hidden_act\":"
                                "\"gelu_pytorch_tanh\",\"max_position_embeddings\":99,"
                                "\"rms_norm_eps\":1e-3,\"tie_word_embeddings\":true,"
                                "\"attention_bias\":true,\"mlp_bias\":true,\"bos_token_id\":7,"
                                "\"eos_token_id\":[5,6],\"rope_theta\":5e5,"
                                "\"torch_dtype\":\"bfloat16\",\"pretraining_tp\":1}"));
    const ModelConfig *m = &c.model;
    T_OK(m->n_groups == 2 && m->head_dim == 6 && m->act == ACT_GELU_TANH);
    T_OK(m->max_positions == 99 && m->norm_eps == 1e-3 && m->tied && m->bos == 7);
    T_OK(m->eos == 5 && m->n_stops == 2 && m->stops[1] == 6);
    T_OK(c.keys.attention_bias && c.keys.mlp_bias && m->rope.theta == 5e5);
}

TEST(config_null_is_absent)
{
    Config c;
    T_STATUS_OK(parse(&c, LLAMA ",\"num_key_value_heads\":null,\"head_dim\":null,"
                                "\"rope_scaling\":null,\"rope_parameters\":null,"
                                "\"bos_token_id\":null,\"eos_token_id\":null,"
                                "\"quantization_config\":null}"));
    T_OK(c.model.n_groups == 8 && c.model.head_dim == 4 && c.model.eos == -1);
    T_OK(c.model.n_stops == 0 && c.model.rope.kind == ROPE_DEFAULT);
}

TEST(config_model_type_stands_in)
{
    Config c;
    T_STATUS_OK(parse(&c, "{\"model_type\":\"diffllama\"," SIZES "}"));
    T_TEXT(c.arch->architecture, "DiffLlamaForCausalLM");
    T_STATUS_OK(parse(&c, "{\"architectures\":null,\"model_type\":\"llama\"," SIZES "}"));
    T_STATUS_OK(parse(&c, "{\"architectures\":[],\"model_type\":\"llama\"," SIZES "}"));
    T_STATUS_OK(parse(&c, "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES "}"));
}

TEST(config_rope_spellings)
{
    static const char *const SAME[] = {
        "\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":512}",
        "\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
        "\"original_max_position_embeddings\":512}",
        "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":512}",
        "\"rope_theta\":7,\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"yarn\","
        "\"type\":\"linear\",\"factor\":4.0,\"original_max_position_embeddings\":512}",
        "\"rope_theta\":5e5,\"rope_parameters\":{},\"rope_scaling\":{\"type\":\"yarn\","
        "\"factor\":4.0,\"original_max_position_embeddings\":512}",
        /* beside the object the original length wins, as in transformers */
        "\"original_max_position_embeddings\":512,\"rope_parameters\":{\"rope_theta\":5e5,"
        "\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":9}",
    };
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        char   text[1024];
        Config c;
        strcpy(text, LLAMA ",");
        strcat(strcat(text, SAME[i]), "}");
        T_STATUS_OK(parse(&c, text));
        const Rope *r = &c.model.rope;
        T_OK(r->kind == ROPE_YARN && r->theta == 5e5 && r->factor == 4);
        T_OK(r->original_max_positions == 512 && r->beta_fast == 32 && r->beta_slow == 1);
        T_OK(r->truncate && r->attention_factor == 0 && r->mscale == 0);
    }
}

TEST(config_rope_kinds)
{
    Config c;
    T_STATUS_OK(parse(&c, LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}"));
    T_OK(c.model.rope.kind == ROPE_LINEAR && c.model.rope.factor == 2);
    T_STATUS_OK(parse(&c, LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}"));
    T_OK(c.model.rope.kind == ROPE_DYNAMIC);
    T_STATUS_OK(parse(&c, LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,"
                                "\"low_freq_factor\":1,\"high_freq_factor\":4}}"));
    T_OK(c.model.rope.kind == ROPE_LLAMA3 && c.model.rope.high_freq_factor == 4);
    T_STATUS_OK(parse(&c, LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\","
                                "\"short_factor\":[1,1.5],\"long_factor\":[2,8]}}"));
    T_OK(c.model.rope.kind == ROPE_LONGROPE && c.model.rope.long_factor[1] == 8);
    T_OK(c.model.rope.short_factor[1] == 1.5);
    T_STATUS_OK(parse(&c, LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"beta_fast\":16,"
                                "\"beta_slow\":2,\"truncate\":false,\"attention_factor\":1.5,"
                                "\"mscale\":0.7,\"mscale_all_dim\":0.5}}"));
    const Rope *r = &c.model.rope;
    T_OK(r->beta_fast == 16 && r->beta_slow == 2 && !r->truncate && r->mscale == 0.7);
    T_OK(r->attention_factor == 1.5 && r->mscale_all_dim == 0.5 && r->factor == 0);
}

/* --- what is refused --- */

/* A member of the whole config below replaced by another; "" drops it. */
#define WHOLE                                                                              \
    "{\"architectures\":[\"DiffLlamaForCausalLM\"],\"model_type\":\"diffllama\","          \
    "\"vocab_size\":101,\"hidden_size\":32,\"intermediate_size\":56,"                      \
    "\"num_hidden_layers\":3,\"num_attention_heads\":8,\"num_key_value_heads\":4,"         \
    "\"head_dim\":4,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"                 \
    "\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,\"attention_bias\":false,"      \
    "\"bos_token_id\":1,\"eos_token_id\":2,\"rope_theta\":10000,"                          \
    "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}}"

static const struct {
    const char *from, *to;
    Status      code;
    const char *words;
} BAD[] = {
    /* missing */
    {"\"vocab_size\":101,", "", ERR_FORMAT, "vocab_size is missing"},
    {"\"hidden_size\":32,", "", ERR_FORMAT, "hidden_size is missing"},
    {"\"intermediate_size\":56,", "", ERR_FORMAT, "intermediate_size is missing"},
    {"\"num_hidden_layers\":3,", "", ERR_FORMAT, "num_hidden_layers is missing"},
    {"\"num_attention_heads\":8,", "", ERR_FORMAT, "num_attention_heads is missing"},
    {"\"architectures\":[\"DiffLlamaForCausalLM\"],\"model_type\":\"diffllama\",", "",
     ERR_FORMAT, "architectures and model_type are missing"},
    /* mistyped */
    {"\"hidden_size\":32", "\"hidden_size\":\"32\"", ERR_FORMAT,
     "hidden_size is a text, expected a whole number"},
    {"\"hidden_size\":32", "\"hidden_size\":32.5", ERR_FORMAT,
     "hidden_size is 32.5, expected a whole number"},
    {"\"hidden_size\":32", "\"hidden_size\":[32]", ERR_FORMAT, "hidden_size is a list"},
    {"1e-5", "\"1e-5\"", ERR_FORMAT, "rms_norm_eps is a text, expected a number"},
    {"\"attention_bias\":false", "\"attention_bias\":0", ERR_FORMAT,
     "attention_bias is 0, expected true or false"},
    {"\"silu\"", "[\"silu\"]", ERR_FORMAT, "hidden_act is a list, expected a text"},
    {"[\"DiffLlamaForCausalLM\"]", "\"DiffLlamaForCausalLM\"", ERR_FORMAT,
     "architectures is a text, expected a list"},
    {"[\"DiffLlamaForCausalLM\"]", "[3]", ERR_FORMAT, "architectures is a number"},
    {"\"eos_token_id\":2", "\"eos_token_id\":\"2\"", ERR_FORMAT, "eos_token_id is a text"},
    {"\"eos_token_id\":2", "\"eos_token_id\":[2,2.5]", ERR_FORMAT,
     "eos_token_id is a fraction"},
    {"{\"rope_type\":\"linear\",\"factor\":2}", "[]", ERR_FORMAT,
     "rope_scaling is a list, expected an object"},
    {"\"factor\":2", "\"factor\":\"2\"", ERR_FORMAT, "rope_scaling.factor is a text"},
    /* absurd */
    {"\"hidden_size\":32", "\"hidden_size\":0", ERR_RANGE, "hidden_size is 0, expected 1 to"},
    {"\"hidden_size\":32", "\"hidden_size\":-32", ERR_RANGE, "hidden_size is -32"},
    {"\"hidden_size\":32", "\"hidden_size\":9223372036854775807", ERR_RANGE,
     "hidden_size is 9.2"},
    {"\"hidden_size\":32", "\"hidden_size\":99999999999999999999", ERR_FORMAT,
     "hidden_size is 1e+20, expected a whole number"},
    {"\"vocab_size\":101", "\"vocab_size\":4294967296", ERR_RANGE, "vocab_size is 4294967296"},
    {"\"intermediate_size\":56", "\"intermediate_size\":1000000000", ERR_RANGE,
     "intermediate_size is 1000000000"},
    {"\"num_hidden_layers\":3", "\"num_hidden_layers\":1000000", ERR_RANGE,
     "num_hidden_layers is 1000000"},
    {"\"num_attention_heads\":8", "\"num_attention_heads\":100000", ERR_RANGE,
     "num_attention_heads is 100000"},
    {"\"head_dim\":4", "\"head_dim\":1000000", ERR_RANGE, "head_dim is 1000000"},
    {"\"max_position_embeddings\":64", "\"max_position_embeddings\":0", ERR_RANGE,
     "max_position_embeddings is 0"},
    {"1e-5", "-1e-5", ERR_RANGE, "rms_norm_eps is -1e-05, expected 0 to 1"},
    {"1e-5", "1e999", ERR_RANGE, "rms_norm_eps is inf, expected 0 to 1"},
    {"\"bos_token_id\":1", "\"bos_token_id\":4294967297", ERR_RANGE,
     "bos_token_id is 4294967297"},
    {"\"eos_token_id\":2", "\"eos_token_id\":4294967297", ERR_RANGE,
     "eos_token_id is 4294967297"},
    {"\"rope_theta\":10000", "\"rope_theta\":0", ERR_RANGE, "rope_theta is 0"},
    {"\"factor\":2", "\"factor\":0", ERR_RANGE, "rope_scaling.factor is 0"},
    /* unknown */
    {"DiffLlamaForCausalLM", "DragonForCausalLM", ERR_UNSUPPORTED,
     "architecture \"DragonForCausalLM\" is not supported; these are: LlamaForCausalLM, "
     "DiffLlamaForCausalLM"},
    {"\"architectures\":[\"DiffLlamaForCausalLM\"],\"model_type\":\"diffllama\"",
     "\"model_type\":\"diff_llama\"", ERR_UNSUPPORTED, "model_type \"diff_llama\" is not"},
    {"\"diffllama\"", "\"diff_llama\"", ERR_UNSUPPORTED,
     "expected \"diffllama\" with DiffLlamaForCausalLM (two different codes have model_type "
     "diff_llama, and nothing in the file tells them apart)"},
    {"\"silu\"", "\"poly_norm\"", ERR_UNSUPPORTED, "hidden_act is \"poly_norm\""},
    {"\"linear\"", "\"su\"", ERR_UNSUPPORTED, "rope_scaling.rope_type is \"su\""},
    {"{\"rope_type\":\"linear\",\"factor\":2}", "{\"full_attention\":{\"factor\":2}}",
     ERR_UNSUPPORTED, "rope_scaling.full_attention is an object"},
    {"\"factor\":2", "\"factor\":2,\"partial_rotary_factor\":0.5", ERR_UNSUPPORTED,
     "partial_rotary_factor is 0.5, expected 1"},
    {"\"rope_theta\":10000", "\"quantization_config\":{\"quant_method\":\"awq\"}",
     ERR_UNSUPPORTED, "quantization_config.quant_method is \"awq\", expected "
     "compressed-tensors or gptq"},
    {"\"head_dim\":4", "\"head_dim\":2,\"rope_parameters\":{}", OK, ""},
    {"\"linear\"", "\"dynamic\"", OK, ""},
    {"\"head_dim\":4,", "\"head_dim\":2,", OK, ""},
    /* sizes that do not fit together */
    {"\"num_key_value_heads\":4", "\"num_key_value_heads\":3", ERR_SHAPE,
     "num_attention_heads is 8, expected a multiple of num_key_value_heads, 3"},
    {"\"num_attention_heads\":8,\"num_key_value_heads\":4",
     "\"num_attention_heads\":7,\"num_key_value_heads\":7", ERR_SHAPE,
     "num_attention_heads is 7, expected an even number"},
    {"\"head_dim\":4", "\"head_dim\":5", ERR_SHAPE, "head_dim is 5, expected an even number"},
    {"\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":4",
     "\"num_attention_heads\":6", ERR_SHAPE,
     "hidden_size is 32, expected a multiple of num_attention_heads, 6"},
    /* RoPE kinds without what they need */
    {",\"factor\":2", "", ERR_FORMAT, "rope_scaling.factor is missing"},
    {"\"linear\",\"factor\":2", "\"dynamic\"", ERR_FORMAT, "rope_scaling.factor is missing"},
    {"\"linear\"", "\"llama3\"", ERR_FORMAT, "rope_scaling.low_freq_factor is missing"},
    {"\"linear\"", "\"llama3\",\"low_freq_factor\":1", ERR_FORMAT,
     "high_freq_factor is missing"},
    {"\"linear\"", "\"llama3\",\"low_freq_factor\":4,\"high_freq_factor\":4", ERR_RANGE,
     "high_freq_factor is 4, expected more than low_freq_factor, 4"},
    {"\"linear\"", "\"longrope\"", ERR_FORMAT, "rope_scaling.short_factor is missing"},
    {"\"linear\"", "\"longrope\",\"short_factor\":[1,1]", ERR_FORMAT, "long_factor is missing"},
    {"\"linear\"", "\"longrope\",\"short_factor\":3", ERR_FORMAT,
     "short_factor is a number, expected a list"},
    {"\"linear\"", "\"longrope\",\"short_factor\":[1,1,1]", ERR_SHAPE,
     "short_factor has 3 numbers, expected 2"},
    {"\"linear\"", "\"longrope\",\"short_factor\":[1,0]", ERR_RANGE, "short_factor[1] is not"},
    {"\"linear\"", "\"longrope\",\"short_factor\":[1,\"x\"]", ERR_RANGE, "short_factor[1] is"},
    /* not an object, not JSON */
    {WHOLE, "[]", ERR_FORMAT, "a list, expected an object"},
    {WHOLE, "", ERR_FORMAT, "empty"},
    {"{\"arch", "{{\"arch", ERR_FORMAT, "not JSON"},
    {"\"vocab_size\":101", "\"vocab_size\":101,\"vocab_size\":102", ERR_FORMAT,
     "key \"vocab_size\" appears twice"},
};

TEST(config_refuses)
{
    Config c;
    T_STATUS_OK(parse(&c, WHOLE));
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        const char *text = ref_replace(WHOLE, BAD[i].from, BAD[i].to);
        if (BAD[i].code == OK) {
            T_STATUS_OK(parse(&c, text));
            continue;
        }
        T_FAILS(parse(&c, text), BAD[i].code, BAD[i].words);
        T_OK(strncmp(status_text(), "m/config.json: ", 15) == 0);
    }
}

TEST(config_dynamic_needs_four_dims)
{
    const char *text = ref_replace(WHOLE, "\"linear\"", "\"dynamic\"");
    Config      c;
    T_FAILS(parse(&c, ref_replace(text, "\"head_dim\":4", "\"head_dim\":2")), ERR_UNSUPPORTED,
            "rope_type dynamic with 2 rotary dims, expected at least 4");
}

TEST(config_read_names_the_file)
{
    Config      c;
    const char *path = ref_path("config.json");
    arena_close(&arena);
    T_FAILS(config_read(&c, &arena, path), ERR_IO, "config.json: No such file");
    ref_write_text(path, WHOLE);
    T_STATUS_OK(config_read(&c, &arena, path));
    T_TEXT(c.text, WHOLE);
}

TEST(config_every_allocation_may_fail)
{
    const char *text = ref_replace(WHOLE, "\"linear\"", "\"longrope\",\"short_factor\":[1,1],"
                                                        "\"long_factor\":[1,1]");
    Config  c;
    int64_t k = 1;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        arena_close(&arena);
        arena_fail_at(k);
        s = config_parse(&c, &arena, "m/config.json", text, strlen(text));
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
    }
    T_OK(k > 7);
    arena_close(&arena);
}

TEST(config_survives_changed_bytes)
{
    uint64_t seed = 3;
    size_t   n = strlen(WHOLE);
    char    *text = malloc(n);
    for (int round = 0; round < 10000; round++) {
        Config c;
        memcpy(text, WHOLE, n);
        for (int i = 0; i <= round % 3; i++) {
            size_t at = (size_t)((check_uniform(&seed) + 1) / 2 * (float)n);
            text[at < n ? at : 0] = (char)(32 + (check_uniform(&seed) + 1) * 47);
        }
        arena_close(&arena);
        if (config_parse(&c, &arena, "m/config.json", text, n) == OK &&
            (c.model.n_heads % c.model.n_groups || c.model.head_dim % 2))
            check_fail(__FILE__, __LINE__, "sizes that do not fit in round %d", round);
    }
    free(text);
    arena_close(&arena);
}
