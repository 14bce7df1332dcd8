/* test_layout.c - weights without a config.json: what a path with a layout says, what the
 * tensors say, and what is refused. That the logits are right: test_golden.c. */
#include "analysis/model/layout.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/analysis/ref_unilm.h"
#include "tests/check.h"

static const char *with(const char *layout, const char *path)
{
    static char text[4][1200];
    static int  turn;
    char       *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "%s@%s", layout, path);
    return p;
}

/* Opens and closes. */
static Status open_path(Arena *a, const char *path)
{
    ModelInfo info;
    TRY(model_info_open(&info, a, path));
    model_info_close(&info);
    return OK;
}

/* --- LAYOUT@PATH --- */

TEST(a_layout_and_its_settings)
{
    Arena  a = {0};
    Layout l;
    T_STATUS_OK(layout_split(&l, &a, "some/folder"));
    T_OK(!l.name);
    T_TEXT(l.path, "some/folder");
    T_STATUS_OK(layout_split(&l, &a, "some/folder@v2"));
    T_OK(!l.name);
    T_TEXT(l.path, "some/folder@v2");
    T_STATUS_OK(layout_split(&l, &a, "unilm@some/folder@v2"));
    T_TEXT(l.name, "unilm");
    T_TEXT(l.path, "some/folder@v2");
    T_OK(l.context == 2048 && l.bos == -1 && l.eos == -1 && !l.given);
    T_NEAR(l.theta, 10000, 0);
    T_NEAR(l.eps, 1e-5, 0);
    T_TEXT(layout_words(&a, &l), "unilm; in no file, so assumed: theta 10000, eps 1e-05, "
           "context 2048, no bos, no eos");
    T_STATUS_OK(layout_split(&l, &a, "unilm:eos=2,theta=5e5,eps=1e-6,context=4096,bos=1@x"));
    T_TEXT(l.path, "x");
    T_OK(l.context == 4096 && l.bos == 1 && l.eos == 2);
    T_NEAR(l.theta, 500000, 0);
    T_NEAR(l.eps, 1e-6, 0);
    T_TEXT(layout_words(&a, &l),
           "unilm, as given: theta 500000, eps 1e-06, context 4096, bos 1, eos 2");
    arena_close(&a);
}

TEST(what_is_no_layout)
{
    static const struct {
        const char *given, *word;
    } WRONG[] = {
        {"unilm@", "a folder behind"},
        {"foo@bar", "\"foo\" is no layout"},
        {"Unilm@bar", "\"Unilm\" is no layout"},
        {"@bar", "\"\" is no layout"},
        {"unilm@unilm@x", "two layouts"},
        {"unilm:theta=2@unilm:theta=3@x", "two layouts"},
        {"unilm:@x", "\"\" is no setting"},
        {"unilm:theta@x", "\"theta\" is no setting"},
        {"unilm:theta=1e4,@x", "\"\" is no setting"},
        {"unilm:base=1e4@x", "\"base\" is no setting"},
        {"unilm:theta=1e4,theta=1e4@x", "theta is given twice"},
        {"unilm:theta=@x", "theta is \"\""},
        {"unilm:theta=abc@x", "theta is \"abc\""},
        {"unilm:theta=1e4x@x", "theta is \"1e4x\""},
        {"unilm:theta=nan@x", "theta is \"nan\""},
        {"unilm:theta=inf@x", "theta is \"inf\""},
        {"unilm:theta=0x10@x", "theta is \"0x10\""},
        {"unilm:theta=1@x", "from 2 to"},
        {"unilm:eps=-1e-5@x", "from 0 to 1"},
        {"unilm:context=1.5@x", "a whole number from 1"},
        {"unilm:context=0@x", "a whole number from 1"},
        {"unilm:bos=-2@x", "from -1"},
        {"unilm:eos=1e10@x", "from -1"},
    };
    Arena  a = {0};
    Layout l;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        T_FAILS(layout_split(&l, &a, WRONG[i].given), ERR_USAGE, WRONG[i].word);
    arena_close(&a);
}

/* Names of folders may have an '@' in them. */
TEST(a_folder_of_the_whole_name_comes_first)
{
    Arena     a = {0};
    Layout    l;
    ModelInfo info;
    RefModel  m = {.hidden = 32, .inter = 24, .vocab = 40, .layers = 1, .heads = 2,
                   .kv_heads = 2, .head_dim = 16};
    ref_model_fill(&m, "F32");
    ref_model_write(&m, ref_path("unilm@x"), 1);
    ref_model_write(&m, ref_path("unilm@unilm@y"), 1);
    T_OK(chdir(check_tmp()) == 0);
    T_STATUS_OK(layout_split(&l, &a, "unilm@x"));
    T_OK(!l.name);
    T_STATUS_OK(model_info_open(&info, &a, "unilm@x"));
    T_TEXT(info.path, "unilm@x");
    T_TEXT(info.name, "unilm@x");
    T_TEXT(info.arch, "LlamaForCausalLM");
    T_OK(!info.layout);
    model_info_close(&info);
    /* Behind a layout as well. */
    T_STATUS_OK(layout_split(&l, &a, "unilm@unilm@x"));
    T_TEXT(l.path, "unilm@x");
    T_STATUS_OK(layout_split(&l, &a, "unilm@unilm@y"));
    T_OK(!l.name);
    ref_model_free(&m);
    arena_close(&a);
}

/* --- what tensors tell --- */

TEST(sizes_of_the_first_form)
{
    Arena       a = {0};
    ModelInfo   info;
    const char *path = ref_unilm("first", 1, false, "BF16", 2);
    T_STATUS_OK(model_info_open(&info, &a, with("unilm:bos=3,theta=20000", path)));
    const ModelConfig *c = &info.config;
    T_TEXT(info.path, path);
    T_TEXT(info.name, "first");
    T_TEXT(info.arch, "UnilmDiffForCausalLM");
    T_TEXT(info.layout, "unilm, as given: theta 20000, bos 3; in no file, so assumed: eps "
           "1e-05, context 2048, no eos");
    T_OK(c->n_layers == 3 && c->hidden == 40 && c->inter == 56 && c->vocab == 61);
    T_OK(c->n_heads == 6 && c->n_maps == 2 && c->n_groups == 3 && c->head_dim == 6);
    T_OK(c->value_dim == 12 && !c->shared_keys && !c->lambda_rows && !c->tied);
    T_OK(c->max_positions == 2048 && c->bos == 3 && c->eos == -1 && c->n_stops == 0);
    T_NEAR(c->rope.theta, 20000, 0);
    T_NEAR(c->norm_eps, 1e-5, 0);
    T_NEAR(c->head_norm_eps, 1e-5, 0);
    T_OK(info.n_files == 2 && info.stored == DTYPE_BF16 && info.lambda);
    T_OK(strstr(info.config_text, "\"rope_theta\": 20000.0,\n"));
    T_OK(strstr(info.config_text, "\"eos_token_id\": null,\n"));
    model_info_close(&info);
    arena_close(&a);
}

TEST(sizes_of_the_second_form)
{
    Arena     a = {0};
    ModelInfo info;
    T_STATUS_OK(model_info_open(&info, &a, with("unilm", ref_unilm("second", 2, true, "F16", 1))));
    const ModelConfig *c = &info.config;
    T_TEXT(info.arch, "UnilmDiff2ForCausalLM");
    T_OK(c->n_layers == 3 && c->hidden == 40 && c->inter == 56 && c->vocab == 61);
    T_OK(c->n_heads == 6 && c->n_maps == 2 && c->n_groups == 3 && c->head_dim == 6);
    T_OK(c->value_dim == 6 && c->shared_keys && c->lambda_rows && c->tied);
    T_OK(c->head_norm_eps < 0 && !info.lambda);
    T_OK(strstr(info.config_text, "\"tie_word_embeddings\": true\n"));
    model_info_close(&info);
    arena_close(&a);
}

/* --- what is refused --- */

/* A model of the first or second form with one thing changed, and opened. */
typedef void (*Change)(RefModel *m);

static Status open_changed(int form, Change change, const char *layout)
{
    Arena    a = {0};
    RefModel m = {.hidden = 40, .inter = 56, .vocab = 61, .layers = 2, .heads = 4,
                  .kv_heads = 2, .head_dim = 6};
    ref_unilm_fill(&m, form, "F32");
    if (change)
        change(&m);
    ref_unilm_write(&m, ref_path("changed"), 1);
    ref_model_free(&m);
    Status s = open_path(&a, with(layout, ref_path("changed")));
    arena_close(&a);
    return s;
}

static void drop_lambda(RefModel *m) { ref_model_drop(m, UNILM_ATTN "lambda_q1"); }
static void drop_subln(RefModel *m) { ref_model_drop(m, UNILM_ATTN "subln.weight"); }
static void drop_q(RefModel *m) { ref_model_drop(m, UNILM_ATTN "q_proj.weight"); }
static void drop_embed(RefModel *m) { ref_model_drop(m, "model.embed_tokens.weight"); }
static void drop_gate(RefModel *m) { ref_model_drop(m, "model.layers.0.mlp.gate_proj.weight"); }
static void drop_later(RefModel *m) { ref_model_drop(m, "model.layers.1.mlp.up_proj.weight"); }
static void drop_projection(RefModel *m) { ref_model_drop(m, UNILM_ATTN "lambda_proj.weight"); }
static void add_projection(RefModel *m)
{
    ref_model_add(m, UNILM_ATTN "lambda_proj.weight", 2, 40);
}
static void add_subln(RefModel *m) { ref_model_add(m, UNILM_ATTN "subln.weight", 12, 0); }
static void add_bias(RefModel *m) { ref_model_add(m, UNILM_ATTN "q_proj.bias", 24, 0); }
static void skip_a_layer(RefModel *m)
{
    ref_model_add(m, "model.layers.3.mlp.up_proj.weight", 56, 40);
}
static void far_layer(RefModel *m)
{
    ref_model_add(m, "model.layers.99999999999999999999.mlp.up_proj.weight", 56, 40);
}

static void resize(RefModel *m, const char *name, int64_t rows, int64_t cols)
{
    ref_model_drop(m, name);
    ref_model_add(m, name, rows, cols);
}

static void wide_lambda(RefModel *m) { resize(m, UNILM_ATTN "lambda_q1", 2, 3); }
static void long_lambda(RefModel *m) { resize(m, UNILM_ATTN "lambda_q1", 7, 0); }
static void odd_lambda(RefModel *m) { resize(m, UNILM_ATTN "lambda_q1", 3, 0); }
static void ragged_q(RefModel *m) { resize(m, UNILM_ATTN "q_proj.weight", 25, 40); }
static void ragged_k(RefModel *m) { resize(m, UNILM_ATTN "k_proj.weight", 13, 40); }
static void flat_q(RefModel *m) { resize(m, UNILM_ATTN "q_proj.weight", 960, 0); }
static void short_subln(RefModel *m) { resize(m, UNILM_ATTN "subln.weight", 6, 0); }
static void three_projections(RefModel *m)
{
    resize(m, UNILM_ATTN "lambda_proj.weight", 5, 40);
}
static void no_rows(RefModel *m)
{
    ref_model_find(m, UNILM_ATTN "lambda_proj.weight")->rows = 0;
}

TEST(tensors_of_no_form)
{
    T_STATUS_OK(open_changed(1, NULL, "unilm"));
    T_STATUS_OK(open_changed(2, NULL, "unilm"));
    T_FAILS(open_changed(1, drop_lambda, "unilm"), ERR_UNSUPPORTED, "has neither");
    T_FAILS(open_changed(2, drop_projection, "unilm"), ERR_UNSUPPORTED, "has neither");
    T_FAILS(open_changed(1, drop_subln, "unilm"), ERR_UNSUPPORTED, "DiffLlama");
    T_FAILS(open_changed(1, add_projection, "unilm"), ERR_UNSUPPORTED, "and lambda_q1");
    T_FAILS(open_changed(2, add_subln, "unilm"), ERR_UNSUPPORTED, "and subln.weight");
}

TEST(tensors_that_are_missing)
{
    T_FAILS(open_changed(1, drop_q, "unilm"), ERR_FORMAT, "q_proj.weight is missing");
    T_FAILS(open_changed(2, drop_q, "unilm"), ERR_FORMAT, "q_proj.weight is missing");
    T_FAILS(open_changed(1, drop_embed, "unilm"), ERR_FORMAT, "embed_tokens.weight is missing");
    T_FAILS(open_changed(1, drop_gate, "unilm"), ERR_FORMAT, "gate_proj.weight is missing");
    T_FAILS(open_changed(1, drop_later, "unilm"), ERR_FORMAT, "layers.1.mlp.up_proj.weight is "
            "missing");
    T_FAILS(open_changed(1, skip_a_layer, "unilm"), ERR_FORMAT, "layers.2");
    T_FAILS(open_changed(1, far_layer, "unilm"), ERR_RANGE, "num_hidden_layers");
    T_FAILS(open_changed(1, add_bias, "unilm"), ERR_UNSUPPORTED, "q_proj.bias");
}

TEST(shapes_that_tell_no_sizes)
{
    T_FAILS(open_changed(1, wide_lambda, "unilm"), ERR_SHAPE, "expected a vector");
    T_FAILS(open_changed(1, long_lambda, "unilm"), ERR_SHAPE, "a multiple of the width");
    T_FAILS(open_changed(1, odd_lambda, "unilm"), ERR_SHAPE, "an even number");
    T_FAILS(open_changed(1, ragged_q, "unilm"), ERR_SHAPE, "has 25 rows");
    T_FAILS(open_changed(1, ragged_k, "unilm"), ERR_SHAPE, "has 13 rows");
    T_FAILS(open_changed(1, flat_q, "unilm"), ERR_SHAPE, "expected a matrix");
    T_FAILS(open_changed(1, short_subln, "unilm"), ERR_SHAPE, "from layout unilm");
    T_FAILS(open_changed(2, ragged_q, "unilm"), ERR_SHAPE, "twice the rows of lambda_proj");
    T_FAILS(open_changed(2, three_projections, "unilm"), ERR_SHAPE, "twice the rows");
    T_FAILS(open_changed(2, no_rows, "unilm"), ERR_SHAPE, "[0,40], expected a matrix that");
    T_FAILS(open_changed(1, NULL, "unilm:eos=61"), ERR_USAGE, "has 61 tokens");
    T_STATUS_OK(open_changed(1, NULL, "unilm:eos=60"));
}

TEST(folders_and_their_configs)
{
    Arena       a = {0};
    const char *path = ref_unilm("bare", 1, false, "F32", 1);
    char        config[600];
    T_FAILS(open_path(&a, path), ERR_IO, "give --layout unilm");
    T_FAILS(open_path(&a, with("unilm", ref_path("nowhere"))), ERR_IO, "is no folder");
    T_FAILS(open_path(&a, ref_path("nowhere")), ERR_IO, "config.json: No such file");
    snprintf(config, sizeof config, "%s/model.safetensors", path);
    T_FAILS(open_path(&a, with("unilm", config)), ERR_IO, "is no folder");
    snprintf(config, sizeof config, "%s/config.json", path);
    ref_write_text(config, "{}");
    T_FAILS(open_path(&a, with("unilm", path)), ERR_USAGE, "has a config.json");
    mkdir(ref_path("empty"), 0777);
    T_FAILS(open_path(&a, with("unilm", ref_path("empty"))), ERR_IO, "neither");
    arena_close(&a);
}

/* --- --layout --- */

TEST(a_layout_for_those_that_need_one)
{
    Arena       a = {0};
    const char *out, *bare = ref_unilm("needy", 1, false, "F32", 1);
    const char *other = check_path("golden/models/diff_gqa");
    T_STATUS_OK(model_with_layout(&out, &a, bare, "unilm:eps=1e-6"));
    T_TEXT(out, with("unilm:eps=1e-6", bare));
    T_STATUS_OK(model_with_layout(&out, &a, other, "unilm"));
    T_OK(out == other);
    T_STATUS_OK(model_with_layout(&out, &a, with("unilm:bos=1", bare), "unilm"));
    T_TEXT(out, with("unilm:bos=1", bare));
    T_STATUS_OK(model_with_layout(&out, &a, "no/such/folder", "unilm"));
    T_TEXT(out, "no/such/folder");
    mkdir(ref_path("of_gguf"), 0777);
    ref_write_text(ref_path("of_gguf/x.gguf"), "GGUF");
    T_STATUS_OK(model_with_layout(&out, &a, ref_path("of_gguf"), "unilm"));
    T_TEXT(out, ref_path("of_gguf"));
    T_STATUS_OK(model_with_layout(&out, &a, ref_path("of_gguf/x.gguf"), "unilm"));
    T_TEXT(out, ref_path("of_gguf/x.gguf"));
    T_FAILS(model_with_layout(&out, &a, other, "foo"), ERR_USAGE, "\"foo\" is no layout");
    T_FAILS(model_with_layout(&out, &a, other, "unilm:x"), ERR_USAGE, "no setting");
    T_FAILS(model_with_layout(&out, &a, "foo@bar", "unilm"), ERR_USAGE, "\"foo\" is no layout");
    arena_close(&a);
}

TEST(memory_that_runs_out)
{
    Arena       a = {0};
    const char *path = with("unilm:theta=5e5,eos=2", ref_unilm("memory", 1, false, "F32", 2));
    int64_t     k = 1;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        arena_fail_at(k);
        s = open_path(&a, path);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        arena_close(&a);
    }
    T_OK(k > 30);
}
