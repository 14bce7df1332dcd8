/* test_arch_files.c - files of each architecture that say something else than their config, or
 * the same twice; and passes at the ends of what a model has learned. The files are the golden
 * ones with one thing changed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/analysis/ref_checkpoint.h"
#include "tests/analysis/ref_golden.h"
#include "tests/check.h"

static const ModelOptions IN_F32 = {.dtype = DTYPE_F32};

/* --- changed files --- */

/* One more tensor of F32 before the others in the header, its data after theirs; NULL: none. */
static void copy_weights(const char *to, const char *from, const char *extra, int64_t n_values)
{
    size_t         size;
    unsigned char *old = ref_read(from, &size);
    uint64_t       n = 0;
    memcpy(&n, old, sizeof n);
    size_t         data = size - 8 - n, more = extra ? (size_t)n_values * sizeof(float) : 0;
    unsigned char *new = calloc(1, size + 512 + more);
    char          *text = (char *)new + 8;
    int            at = 0;
    if (extra)
        at = snprintf(text, 512, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":"
                      "[%zu,%zu]},", extra, (long long)n_values, data, data + more);
    memcpy(text + at, old + 8 + (extra ? 1 : 0), n);
    uint64_t length = (uint64_t)at + n - (extra ? 1 : 0);
    memcpy(new, &length, sizeof length);
    memcpy(text + length, old + 8 + n, data);
    ref_write(to, new, 8 + length + data + more);
    free(old);
    free(new);
}

/* The golden folder with the first `from` of its config replaced (NULL: none), and a tensor
 * more (NULL: none). Static buffer. */
static const char *changed(const char *name, const char *from, const char *to,
                           const char *extra, int64_t n_values)
{
    static char    folder[512];
    static int     n_folders;
    char           path[600], of[600];
    size_t         n;
    unsigned char *config;
    /* a folder that exists is needed: a tiny model is written there and written over */
    RefModel r = {.hidden = 4, .inter = 4, .vocab = 4, .layers = 1, .heads = 1, .kv_heads = 1,
                  .head_dim = 4};
    snprintf(folder, sizeof folder, "%s", ref_path("changed%d", n_folders++));
    ref_model_fill(&r, "F32");
    ref_model_write(&r, folder, 1);
    ref_model_free(&r);
    snprintf(of, sizeof of, "%s/config.json", golden_folder(name));
    config = ref_read(of, &n);
    char *text = calloc(1, n + 1);
    memcpy(text, config, n);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (from && !strstr(text, from))
        check_fail(__FILE__, __LINE__, "%s: no %s", of, from);
    ref_write_text(path, from ? ref_replace(text, from, to) : text);
    snprintf(of, sizeof of, "%s/model.safetensors", golden_folder(name));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    copy_weights(path, of, extra, n_values);
    free(config);
    free(text);
    return folder;
}

TEST(files_that_contradict_their_config_are_refused)
{
    static const struct {
        const char *name, *from, *to, *extra;
        int64_t     n;
        Status      code;
        const char *words;
    } ROWS[] = {
        {"baselines/gpt2_prefix", NULL, NULL, "h.0.ln_1.weight", 32, ERR_FORMAT,
         "tensor h.0.ln_1.weight is there once more, as transformer.h.0.ln_1.weight"},
        {"baselines/gpt2_plain", NULL, NULL, "transformer.ln_f.bias", 32, ERR_FORMAT,
         "tensor ln_f.bias is there once more, as transformer.ln_f.bias"},
        {"baselines/opt_pre_norm", NULL, NULL, "decoder.layers.1.fc1.bias", 48, ERR_FORMAT,
         "is there once more, as model.decoder.layers.1.fc1.bias"},
        {"variants/phi4flash", NULL, NULL, "model.layers.1.attn.A_log", 64, ERR_UNSUPPORTED,
         "tensor model.layers.1.attn.A_log is not part of layer 1"},
        {"variants/phi4flash", NULL, NULL, "model.layers.7.attn.D", 64, ERR_UNSUPPORTED,
         "tensor model.layers.7.attn.D is not part of layer 7"},
        {"variants/phi4flash", NULL, NULL, "model.layers.8.attn.D", 64, ERR_SHAPE,
         "tensor model.layers.8.attn.D, but config.json has num_hidden_layers 8"},
        {"baselines/stablelm_qk_norm", NULL, NULL,
         "model.layers.0.self_attn.q_layernorm.norms.40.weight", 8, ERR_UNSUPPORTED,
         "is not part of layer 0"},
        {"baselines/stablelm_epoch", "\"use_qkv_bias\": true", "\"use_qkv_bias\": false", NULL,
         0, ERR_UNSUPPORTED, "proj.bias, but config.json has no bias of q, k and v"},
        {"baselines/stablelm_epoch_2023", "\"rope_pct\"",
         "\"use_qkv_bias\": true, \"rope_pct\"", NULL, 0, ERR_FORMAT,
         "tensor model.layers.0.self_attn.q_proj.bias is missing"},
        {"baselines/stablelm_epoch_2023", NULL, NULL, "model.layers.0.self_attn.q_proj.bias",
         48, ERR_FORMAT, "tensor model.layers.1.self_attn.q_proj.bias is missing"},
        /* a head of its own is as wide as the embedding */
        {"baselines/opt_post_norm", "{", "{ \"tie_word_embeddings\": false,", "lm_head.weight", 7,
         ERR_SHAPE, "tensor lm_head.weight has shape [7], expected [101,20] from config.json"},
        {"variants/motif_mha", "\"tie_word_embeddings\": true",
         "\"tie_word_embeddings\": false", NULL, 0, ERR_FORMAT,
         "tensor lm_head.weight is missing"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Subject     s = {0};
        const char *folder = changed(ROWS[i].name, ROWS[i].from, ROWS[i].to, ROWS[i].extra,
                                     ROWS[i].n);
        T_FAILS(subject_open(&s, folder, &IN_F32, 1), ROWS[i].code, ROWS[i].words);
        subject_close(&s);
    }
}

TEST(what_a_config_does_not_say_is_in_the_file)
{
    static const struct {
        const char *name, *from, *to;
        bool        tied, biased;
    } ROWS[] = {
        {"variants/motif_gda", "\"tie_word_embeddings\": false",
         "\"tie_word_embeddings\": null", false, false},
        {"variants/motif_gda", "\"tie_word_embeddings\": false",
         "\"tie_word_embeddings\": true", true, false},
        {"variants/motif_mha", "\"tie_word_embeddings\": true",
         "\"tie_word_embeddings\": null", true, false},
        {"baselines/stablelm_epoch", "\"use_qkv_bias\": true", "\"use_qkv_bias\": null", false,
         true},
        {"baselines/stablelm_epoch_2023", "\"rope_pct\"", "\"rope_pct\"", false, false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Subject s = {0};
        T_STATUS_OK(subject_open(&s, changed(ROWS[i].name, ROWS[i].from, ROWS[i].to, NULL, 0),
                                 &IN_F32, 1));
        T_OK(s.m.config.tied == ROWS[i].tied);
        T_OK((s.m.layers[1].w[W_K].bias.data != NULL) == ROWS[i].biased);
        subject_close(&s);
    }
}

/* Norms of single heads have the eps and the kind of the model's other norms. */
TEST(norms_of_heads_are_those_of_the_model)
{
    static const char *const NAMES[] = {"baselines/qwen3_tied", "baselines/stablelm_qk_norm"};
    for (int i = 0; i < 2; i++) {
        Subject s = {0};
        T_STATUS_OK(subject_open(&s, changed(NAMES[i], "_eps\": ", "_eps\": 0.0", NULL, 0),
                                 &IN_F32, 1));
        const ModelConfig *c = &s.m.config;
        for (int64_t l = 0; l < c->n_layers; l++) {
            const Norm *q = &s.m.layers[l].q_norm, *k = &s.m.layers[l].k_norm;
            T_OK(q->eps == (float)c->norm_eps && k->eps == (float)c->norm_eps);
            T_OK(q->centred == c->centred && k->centred == c->centred);
        }
        T_OK(c->norm_eps < 1e-6);
        subject_close(&s);
    }
}

/* --- at the ends --- */

static Status run_ids(Run *r, Subject *s, const int32_t *ids, int64_t n, Cache *cache)
{
    int32_t start[2] = {0, (int32_t)n};
    int64_t number = 0;
    Batch   batch = {.n_sequences = 1, .start = start, .number = &number};
    return subject_run(r, s, ids, &batch, NULL, cache);
}

TEST(positions_end_where_they_were_learned)
{
    static const char *const NAMES[] = {"baselines/gpt2_plain", "baselines/opt_pre_norm",
                                        "baselines/opt_post_norm"};
    static const int32_t ids[64] = {5, 4, 3};
    for (int i = 0; i < 3; i++) {
        Subject s = {0};
        Run     r;
        Cache  *cache;
        T_STATUS_OK(subject_open(&s, golden_folder(NAMES[i]), &IN_F32, 1));
        T_OK(s.m.config.max_positions == 40);
        T_STATUS_OK(run_ids(&r, &s, ids, 40, NULL));
        T_FAILS(run_ids(&r, &s, ids, 41, NULL), ERR_RANGE, "position 40: ");
        T_FAILS(run_ids(&r, &s, ids, 64, NULL), ERR_RANGE, "has learned 40");
        T_STATUS_OK(cache_init(&cache, &s.m, &s.arena, 64));
        T_STATUS_OK(run_ids(&r, &s, ids, 39, cache));
        T_STATUS_OK(run_ids(&r, &s, ids, 1, cache));
        T_FAILS(run_ids(&r, &s, ids, 1, cache), ERR_RANGE, "position 40: ");
        subject_close(&s);
    }
}

/* In a window of one key no token sees another: each is a text of its own. */
TEST(windows_of_one_key_keep_tokens_apart)
{
    static const int32_t ids[12] = {5, 44, 3, 17, 90, 3, 8, 61, 2, 7, 30, 99};
    Subject s = {0};
    Run     whole, one;
    T_STATUS_OK(subject_open(&s, changed("baselines/mistral_window", "\"sliding_window\": ",
                                         "\"sliding_window\": 1, \"was\": ", NULL, 0),
                             &IN_F32, 2));
    int64_t V = s.m.config.vocab;
    T_OK(s.m.config.layers[0].reach == 1);
    T_STATUS_OK(run_ids(&whole, &s, ids, 12, NULL));
    for (int t = 0; t < 12; t++) {
        T_STATUS_OK(run_ids(&one, &s, ids + t, 1, NULL));
        double e = ref_worst_gap(whole.logits + t * V, one.logits, V);
        T_OK(e <= 5e-6);   // products of one row are summed in another order
    }
    subject_close(&s);
}
