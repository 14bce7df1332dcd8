/* ref_tiny.c - see ref_tiny.h. */
#include "tests/analysis/ref_tiny.h"

#include "analysis/model/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/probe.h"
#include "tests/check.h"

const char *tiny_file(const char *name, const char *text)
{
    static char path[4][256];
    static int  turn;
    char       *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", check_tmp(), name);
    FILE *f = fopen(p, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        abort();
    return p;
}

static void write_vocab(FILE *f)
{
    fprintf(f, "\"vocab\":{\"<pad>\":0,\"<s>\":1,\"</s>\":2,\"\\u0120\":3");
    for (char c = '!'; c <= '~'; c++)
        fprintf(f, ",\"%s%c\":%d", c == '"' || c == '\\' ? "\\" : "", c, tiny_id(c));
    fprintf(f, ",\"\\u00c3\":98,\"\\u00a9\":99,\"42\":%d}", TINY_MERGED);
}

static void write_added(FILE *f)
{
    static const char *const NAMES[] = {"<pad>", "<s>", "</s>"};
    fprintf(f, "\"added_tokens\":[");
    for (int i = 0; i < 3; i++)
        fprintf(f, "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                "\"rstrip\":false,\"normalized\":false,\"special\":true}", i ? "," : "", i,
                NAMES[i]);
    fprintf(f, "]");
}

static void write_tokenizer(FILE *f, bool adds_bos)
{
    fprintf(f, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
    write_added(f);
    fprintf(f, ",\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
            "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},");
    if (adds_bos)
        fprintf(f, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
                "[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
                "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
                "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":"
                "{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}},");
    else
        fprintf(f, "\"post_processor\":null,");
    fprintf(f, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
            "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\","
            "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
            "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
            "\"ignore_merges\":false,");
    write_vocab(f);
    fprintf(f, ",\"merges\":[[\"4\",\"2\"]]}}");
}

Status tiny_tokenizer(Tokenizer **t, Arena *a, bool adds_bos)
{
    char folder[128], path[192];
    snprintf(folder, sizeof folder, "%s/%s", check_tmp(), adds_bos ? "bos" : "plain");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    mkdir(folder, 0777);
    tiny_file(adds_bos ? "bos/tokenizer_config.json" : "plain/tokenizer_config.json",
              "{\"bos_token\":\"<s>\"}");
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    write_tokenizer(f, adds_bos);
    fclose(f);
    return tokenizer_open(t, a, folder);
}

Status tiny_open(TinyModel *m, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "golden/models/%s", name);
    *m = (TinyModel){0};
    TRY(backend_open(&m->backend, "cpu", 2));
    ModelOptions options = {.dtype = DTYPE_F32};
    Status s = model_load(&m->model, &m->arena, &m->backend, check_path(path), &options);
    if (s != OK)
        tiny_close(m);
    return s;
}

Status tiny_embed(TinyModel *m)
{
    int64_t  V = m->model.config.vocab;
    int32_t *ids;
    Tensor   table;
    ARENA_NEW(ids, &m->arena, V);
    for (int32_t i = 0; i < V; i++)
        ids[i] = i;
    TRY(backend_tensor(&m->backend, &table, 2, (int64_t[]){V, m->model.config.hidden}));
    TRY(load_rows(&m->model, &table, ids));
    m->model.embed = table;
    return OK;
}

void tiny_close(TinyModel *m)
{
    model_close(&m->model);
    backend_close(&m->backend);
    arena_close(&m->arena);
}

/* Logits [T,V] of one sequence, on the host. */
static Status logits_of(Model *m, float *host, RunQuant quant, const int32_t *ids, int64_t T)
{
    int32_t start[2] = {0, (int32_t)T};
    int64_t number = 0;
    Batch   batch = {1, start, &number};
    Tensor  x, y;
    TRY(backend_tensor(m->backend, &x, 2, (int64_t[]){T, m->config.hidden}));
    TRY(backend_tensor(m->backend, &y, 2, (int64_t[]){T, m->config.vocab}));
    TRY(model_forward(m, &x, ids, &batch, quant, NULL, NULL));
    TRY(op_linear(m->backend, &y, &x, &m->head));
    return backend_download(m->backend, host, &y);
}

static double log_softmax_at(const float *logits, int64_t V, int32_t target, int32_t *best)
{
    double sum = 0;
    *best = 0;
    for (int32_t v = 1; v < V; v++)
        if (logits[v] > logits[*best])
            *best = v;
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - logits[*best]);
    return target < 0 ? 0 : (double)logits[target] - logits[*best] - log(sum);
}

Status tiny_score(Model *m, RunQuant quant, const Sequences *s, double *logprob,
                  int32_t *best)
{
    int64_t V = m->config.vocab;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t   first = s->start[i], T = s->start[i + 1] - first;
        float    *host = malloc((size_t)(T * V) * sizeof *host);
        ArenaMark mark = backend_mark(m->backend);
        Status    status = logits_of(m, host, quant, s->ids + first, T);
        for (int64_t t = 0; status == OK && t < T; t++)
            logprob[first + t] = log_softmax_at(host + t * V, V, s->targets[first + t],
                                                &best[first + t]);
        backend_rewind(m->backend, mark);
        free(host);
        TRY(status);
    }
    return OK;
}
