/* test_convert.c - microsoft/unilm's layout as DiffLlama: the golden conversions bit for bit,
 * the same logits before and after, and what is refused. */
#include "quant/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/json.h"
#include "analysis/model/checkpoint.h"
#include "analysis/probe.h"
#include "tests/analysis/ref_unilm.c"
#include "tests/check.h"
#include "tests/quant/ref_source.h"

#define VARIANTS "golden/variants/"

enum { TOKENS = 48 };

/* "unilm@" and the path. */
static const char *unilm(const char *path)
{
    static char text[4][1200];
    static int  turn;
    char       *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "unilm@%s", path);
    return p;
}

/* convert_run to the test's own folder `name`, as stored; o may add to that. */
static Status convert_to(ConvertResult *r, Arena *a, const char *model, const char *name,
                         ConvertOptions o)
{
    o.model = model;
    o.out = ref_path("%s", name);
    return convert_run(r, a, &o);
}

#define AS_STORED ((ConvertOptions){.dtype = N_DTYPES})

/* --- logits --- */

static Status run_model(float *out, const char *path)
{
    static Backend be;
    Arena          a = {0};
    Model          m;
    Tensor         hidden, logits;
    ModelOptions   o = {.dtype = DTYPE_F32};
    int32_t        ids[TOKENS], start[2] = {0, TOKENS};
    int64_t        number = 0;
    Batch          batch = {1, start, &number};
    TRY(backend_open(&be, "cpu", 1));
    TRY(model_load(&m, &a, &be, path, &o));
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)((7 * i * i + 3) % m.config.vocab);
    TRY(backend_tensor(&be, &hidden, 2, (int64_t[]){TOKENS, m.config.hidden}));
    TRY(backend_tensor(&be, &logits, 2, (int64_t[]){TOKENS, m.config.vocab}));
    TRY(model_forward(&m, &hidden, ids, &batch, m.run, NULL, NULL));
    TRY(op_linear(&be, &logits, &hidden, &m.head));
    memcpy(out, logits.data, tensor_bytes(&logits));
    backend_close(&be);
    arena_close(&a);
    return OK;
}

/* Largest difference of the logits of two models, as a share of the largest of the first;
 * infinite where one does not run or is not finite. */
static double difference(const char *one, const char *other)
{
    enum { MOST = TOKENS * 128 };
    static float a[MOST], b[MOST];
    double       most = 0, worst = 0;
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    if (run_model(a, one) != OK || run_model(b, other) != OK) {
        fprintf(stderr, "%s\n", status_text());
        return INFINITY;
    }
    for (int i = 0; i < MOST; i++) {
        double e = fabs((double)a[i] - (double)b[i]);
        if (!(e <= 1e30))
            return INFINITY;
        worst = fmax(worst, e);
        most = fmax(most, fabs((double)a[i]));
    }
    return most > 0 ? worst / most : INFINITY;
}

/* --- what is written --- */

/* The same tensors, dtypes, shapes and bytes? */
static bool same_tensors(const char *one, const char *other)
{
    Arena      a = {0};
    Checkpoint x = {0}, y = {0};
    bool       same = checkpoint_open(&x, &a, one) == OK && checkpoint_open(&y, &a, other) == OK &&
                x.n == y.n && x.n > 0;
    for (int64_t i = 0; same && i < x.n; i++) {
        const Tensor *p = &x.tensors[i].view, *q = &y.tensors[i].view;
        char          shape[2][128];
        same = strcmp(x.tensors[i].name, y.tensors[i].name) == 0 && p->dtype == q->dtype &&
               strcmp(tensor_shape_text(p, shape[0]), tensor_shape_text(q, shape[1])) == 0 &&
               memcmp(p->data, q->data, tensor_bytes(p)) == 0;
        if (!same)
            fprintf(stderr, "%s is not %s\n", x.tensors[i].name, y.tensors[i].name);
    }
    checkpoint_close(&x);
    checkpoint_close(&y);
    arena_close(&a);
    return same;
}

TEST(golden_conversions_bit_for_bit)
{
    static const char *const NAMES[] = {"unilm_v1_mha", "unilm_v1_gqa"};
    for (int i = 0; i < 2; i++) {
        Arena         a = {0};
        ConvertResult r;
        char          source[64], wanted[64];
        snprintf(source, sizeof source, VARIANTS "%s", NAMES[i]);
        snprintf(wanted, sizeof wanted, VARIANTS "%s_hf", NAMES[i]);
        T_STATUS_OK(convert_to(&r, &a, unilm(check_path(source)), NAMES[i], AS_STORED));
        T_TEXT(r.to, "DiffLlamaForCausalLM");
        T_OK(r.dtype == DTYPE_F32 && r.n_tensors == 29 && r.n_files == 1);
        T_OK(strstr(r.notes, "assumed: theta 10000") && strstr(r.notes, "--floats bf16"));
        T_OK(same_tensors(ref_path("%s", NAMES[i]), check_path(wanted)));
        /* Rows in another order, sums in another order: rounding of f32, no more. */
        T_OK(difference(unilm(check_path(source)), ref_path("%s", NAMES[i])) <= 1e-6);
        arena_close(&a);
    }
}

/* Three heads to a value; heads wider in all than hidden; the head tied or not; shards. */
TEST(logits_stay)
{
    static const char *const DTYPES[] = {"BF16", "F16", "F32"};
    for (int i = 0; i < 3; i++) {
        Arena          a = {0};
        ConvertResult  r;
        ConvertOptions o = {.dtype = N_DTYPES, .shard_bytes = i ? 0 : 40000};
        const char    *source = ref_unilm("from", 1, i > 0, DTYPES[i], 1 + i);
        T_STATUS_OK(convert_to(&r, &a, unilm(source), "to", o));
        T_OK(i ? r.n_files == 1 : r.n_files > 2);
        T_OK(difference(unilm(source), ref_path("to")) <= 1e-6);
        T_OK(access(ref_path("to.partial"), F_OK) != 0);
        char command[700];
        snprintf(command, sizeof command, "rm -r '%s' '%s'", ref_path("to"), source);
        T_OK(system(command) == 0);
        arena_close(&a);
    }
}

/* A model whose layers have subln of ones, or what change makes of it. */
static const char *changed(const char *name, const char *dtype, void (*change)(RefModel *))
{
    RefModel m = {.hidden = 40, .inter = 56, .vocab = 61, .layers = 2, .heads = 8,
                  .kv_heads = 4, .head_dim = 6};
    ref_unilm_fill(&m, 1, dtype);
    if (change)
        change(&m);
    ref_unilm_write(&m, ref_path("%s", name), 1);
    ref_model_free(&m);
    return ref_path("%s", name);
}

static void all_ones(RefModel *m)
{
    for (int i = 0; i < m->n; i++)
        for (int64_t j = 0; strstr(m->at[i].name, "subln") && j < m->at[i].rows; j++)
            m->at[i].data[j] = 1;
}

static void but_one(RefModel *m)
{
    all_ones(m);
    ref_model_find(m, "model.layers.1.self_attn.subln.weight")->data[11] = 1.5f;
}

static Dtype dtype_of(const char *folder, const char *name)
{
    Arena      a = {0};
    Checkpoint c;
    Dtype      d = N_DTYPES;
    if (checkpoint_open(&c, &a, folder) == OK) {
        const ModelTensor *t = checkpoint_find(&c, name);
        d = t ? t->view.dtype : N_DTYPES;
    }
    checkpoint_close(&c);
    arena_close(&a);
    return d;
}

TEST(dtypes)
{
    Arena         a = {0};
    ConvertResult r;
    const char   *out = ref_path("dtypes"), *source = changed("ones", "BF16", all_ones);
    T_STATUS_OK(convert_to(&r, &a, unilm(source), "dtypes", AS_STORED));
    T_OK(r.dtype == DTYPE_BF16 && !strstr(r.notes, "subln"));
    T_OK(dtype_of(out, "model.layers.0.self_attn.o_proj.weight") == DTYPE_BF16);
    T_OK(dtype_of(out, "model.layers.0.self_attn.lambda_k2") == DTYPE_F32);
    T_OK(dtype_of(out, "model.layers.0.self_attn.subln.weight") == N_DTYPES);
    T_OK(difference(unilm(source), out) <= 1e-6);
    /* One weight of one layer is enough. */
    ConvertOptions o = {.dtype = N_DTYPES, .overwrite = true};
    source = changed("one", "BF16", but_one);
    T_STATUS_OK(convert_to(&r, &a, unilm(source), "dtypes", o));
    T_OK(r.dtype == DTYPE_F32 && strstr(r.notes, "all is stored as F32"));
    T_OK(dtype_of(out, "model.norm.weight") == DTYPE_F32);
    T_OK(difference(unilm(source), out) <= 1e-6);
    o.dtype = DTYPE_BF16;
    T_STATUS_OK(convert_to(&r, &a, unilm(source), "dtypes", o));
    T_OK(r.dtype == DTYPE_BF16 && strstr(r.notes, "rounded to BF16"));
    T_OK(dtype_of(out, "model.layers.0.self_attn.lambda_k2") == DTYPE_BF16);
    T_OK(difference(unilm(source), out) <= 2e-2);
    arena_close(&a);
}

/* --- config.json --- */

static const Json *member(const Json *root, const char *key)
{
    static const Json none;
    const Json       *v = json_member(root, key);
    return v ? v : &none;
}

/* Keys that are there stay as they are; what DiffLlama's class assumes otherwise is said. */
TEST(a_config_of_its_own)
{
    Arena         a = {0};
    ConvertResult r;
    const Json   *root;
    const char   *source = changed("own", "F32", NULL);
    char          path[700];
    snprintf(path, sizeof path, "%s/config.json", source);
    ref_write_text(path, "{\"model_type\": \"unilm_diff\", \"vocab_size\": 61,"
                   "\"hidden_size\": 40, \"intermediate_size\": 56, \"num_hidden_layers\": 2,"
                   "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 6,"
                   "\"hidden_act\": null, \"eos_token_id\": [2, 7], \"note\": 1.50,"
                   "\"auto_map\": {\"AutoModel\": \"x.X\"}, \"attention_bias\": true,"
                   "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}}");
    snprintf(path, sizeof path, "%s/tokenizer.json", source);
    ref_write_text(path, "{}");
    T_STATUS_OK(convert_to(&r, &a, source, "own-hf", AS_STORED));
    T_TEXT(r.notes, "");
    T_OK(difference(source, ref_path("own-hf")) <= 1e-6);
    T_OK(access(ref_path("own-hf/tokenizer.json"), F_OK) == 0);
    T_STATUS_OK(json_read(&root, &a, ref_path("own-hf/config.json")));
    T_TEXT(member(root, "architectures")->at[0].text, "DiffLlamaForCausalLM");
    T_TEXT(member(root, "model_type")->text, "diffllama");
    T_TEXT(member(root, "hidden_act")->text, "silu");
    T_TEXT(member(root, "dtype")->text, "float32");
    T_OK(member(root, "eos_token_id")->n == 2 && member(root, "eos_token_id")->at[1].integer == 7);
    T_OK(json_member(root, "bos_token_id") && member(root, "bos_token_id")->kind == JSON_NULL);
    T_OK(!json_member(root, "auto_map"));
    T_OK(member(root, "attention_bias")->kind == JSON_BOOL &&
         !member(root, "attention_bias")->truth);
    T_NEAR(member(member(root, "rope_scaling"), "factor")->number, 2, 0);
    T_NEAR(member(root, "rope_theta")->number, 10000, 0);
    T_NEAR(member(root, "rms_norm_eps")->number, 1e-5, 0);
    T_NEAR(member(root, "note")->number, 1.5, 0);
    T_OK(member(root, "num_key_value_heads")->integer == 4);
    T_OK(member(root, "max_position_embeddings")->integer == 2048);
    arena_close(&a);
}

/* --- what is refused --- */

static Status refuse(const char *model)
{
    Arena         a = {0};
    ConvertResult r;
    Status        s = convert_to(&r, &a, model, "refused", AS_STORED);
    arena_close(&a);
    return access(ref_path("refused"), F_OK) == 0 ? OK : s;
}

TEST(other_layouts)
{
    T_FAILS(refuse(check_path(VARIANTS "unilm_v1_mha_hf")), ERR_UNSUPPORTED, "already in the");
    T_FAILS(refuse(check_path("golden/models/llama_gqa")), ERR_UNSUPPORTED, "already in the");
    T_FAILS(refuse(check_path("golden/baselines/qwen2_tied")), ERR_UNSUPPORTED, "already in the");
    T_FAILS(refuse(check_path("golden/baselines/stablelm_alpha")), ERR_UNSUPPORTED, "only");
    T_FAILS(refuse(check_path("golden/gguf/f32.gguf")), ERR_UNSUPPORTED, "GGUF");
    T_FAILS(refuse(unilm(check_path(VARIANTS "unilm_v2_mha"))), ERR_UNSUPPORTED, "each token");
    T_FAILS(refuse(check_path(VARIANTS "motif_mha")), ERR_UNSUPPORTED, "no class");
    T_FAILS(refuse(check_path(VARIANTS "phi4flash")), ERR_UNSUPPORTED, "no class");
    T_FAILS(refuse(check_path(VARIANTS "unilm_v1_mha")), ERR_IO, "--layout unilm");
    char eps[600];
    snprintf(eps, sizeof eps, "unilm:eps=1e-6@%s", check_path(VARIANTS "unilm_v1_mha"));
    T_FAILS(refuse(eps), ERR_UNSUPPORTED, "rms_norm_eps is 1e-06, expected 1e-05");
}

static void a_nan(RefModel *m)
{
    ref_model_find(m, "model.layers.1.self_attn.q_proj.weight")->data[40 * 7 + 3] = NAN;
}

static void large(RefModel *m)
{
    all_ones(m);
    ref_model_find(m, "model.layers.1.self_attn.subln.weight")->data[2] = 1e38f;
    ref_model_find(m, "model.layers.1.self_attn.out_proj.weight")->data[48 + 12 + 2] = 1e3f;
}

static void too_large(RefModel *m)
{
    ref_model_find(m, "model.layers.0.self_attn.v_proj.weight")->data[40 * 9 + 1] = 65536;
}

/* Nothing is left of a run that fails, and OUT stays as it was. */
TEST(numbers_that_do_not_fit)
{
    Arena          a = {0};
    ConvertResult  r;
    ConvertOptions o = {.dtype = N_DTYPES};
    T_FAILS(convert_to(&r, &a, unilm(changed("nan", "F32", a_nan)), "fails", o), ERR_RANGE,
            "q_proj.weight[7,3] is NaN");
    T_FAILS(convert_to(&r, &a, unilm(changed("inf", "F32", large)), "fails", o), ERR_RANGE,
            "o_proj.weight[1,14] is inf");
    T_OK(access(ref_path("fails"), F_OK) != 0 && access(ref_path("fails.partial"), F_OK) != 0);
    o.dtype = DTYPE_F16;
    T_FAILS(convert_to(&r, &a, unilm(changed("big", "F32", too_large)), "fails", o), ERR_RANGE,
            "v_proj.weight[15,1] is 65536, which F16 does not hold (up to 65504)");
    arena_close(&a);
}

TEST(folders_that_are_there)
{
    Arena          a = {0};
    ConvertResult  r;
    ConvertOptions o = {.dtype = N_DTYPES};
    char           source[600];
    snprintf(source, sizeof source, "%s", changed("fine", "F32", NULL));
    T_STATUS_OK(convert_to(&r, &a, unilm(source), "there", o));
    T_FAILS(convert_to(&r, &a, unilm(source), "there", o), ERR_USAGE, "--force");
    T_FAILS(convert_to(&r, &a, unilm(source), "fine", o), ERR_USAGE, "model that is read");
    o.overwrite = true;
    T_STATUS_OK(convert_to(&r, &a, unilm(source), "there", o));
    /* A quantize run that was stopped has work in OUT.partial. */
    o.overwrite = false;
    T_OK(system(arena_printf(&a, "mkdir '%s'", ref_path("new.partial"))) == 0);
    ref_write_text(ref_path("new.partial/diffquant.resume"), "work");
    T_FAILS(convert_to(&r, &a, unilm(source), "new", o), ERR_USAGE, "quantize run");
    T_OK(access(ref_path("new.partial/diffquant.resume"), F_OK) == 0);
    o.overwrite = true;
    T_STATUS_OK(convert_to(&r, &a, unilm(source), "new", o));
    arena_close(&a);
}

TEST(memory_that_runs_out)
{
    const char *source = unilm(changed("memory", "BF16", NULL));   // no other path needs one
    int64_t     k = 1;
    for (Status s = ERR_MEMORY; s != OK; k += 1 + k / 16) {
        Arena         a = {0};
        ConvertResult r;
        arena_fail_at(k);
        s = convert_to(&r, &a, source, "scarce", AS_STORED);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && access(ref_path("scarce"), F_OK) != 0));
        T_OK(access(ref_path("scarce.partial"), F_OK) != 0);
        arena_close(&a);
    }
    T_OK(k > 100);
}
