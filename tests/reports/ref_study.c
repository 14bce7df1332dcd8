/* ref_study.c - plausible figures from a fixed stream of random numbers. */
#include "tests/reports/ref_study.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/record.h"
#include "tests/check.h"

enum { HIST_FIRST = 28000, HIST_N = 8000 };

typedef struct {
    SeriesSet *set;
    Arena     *a;
    uint64_t   seed;
    int64_t    heads, maps;
    double     size;      // how large outliers get
} Maker;

static double positive(Maker *m)
{
    return check_uniform(&m->seed) * 0.5 + 0.5;
}

/* A series with n_dims pairs of dimension and length after it. */
static Status add(Maker *m, Series **s, SeriesType type, const char *name, int n_dims,
                  const char *d0, int64_t n0, const char *d1, int64_t n1, const char *d2,
                  int64_t n2)
{
    const char *dims[] = {d0, d1, d2};
    int64_t shape[] = {n0, n1, n2};
    return series_add(m->set, s, type, name, "", "Made up.", n_dims, dims, shape);
}

#define NONE NULL, 0

static Status scalar(Maker *m, const char *name, double value)
{
    Series *s;
    TRY(add(m, &s, SERIES_F64, name, 0, NONE, NONE, NONE));
    *(double *)s->data = value;
    return OK;
}

static Status logit_figures(Maker *m)
{
    Series *s;
    double *d;
    TRY(add(m, &s, SERIES_F64, "logits/absmax", 3, "layer", REF_LAYERS, "head", m->heads, "map",
            m->maps));
    d = s->data;
    for (int64_t i = 0; i < series_count(s); i++)
        d[i] = m->size * (0.15 + 0.4 * positive(m) * positive(m));
    d[series_count(s) / 2] = m->size;
    TRY(add(m, &s, SERIES_I64, "logits/nan", 3, "layer", REF_LAYERS, "head", m->heads, "map",
            m->maps));
    TRY(scalar(m, "logits/median", m->size * 0.017));
    TRY(add(m, &s, SERIES_F64, "logits/layer_median", 2, "layer", REF_LAYERS, "map", m->maps,
            NONE));
    d = s->data;
    for (int64_t i = 0; i < series_count(s); i++)
        d[i] = m->size * 0.017 * (0.8 + 0.4 * positive(m));
    TRY(add(m, &s, SERIES_F32, "logits/query_absmax", 3, "layer", REF_LAYERS, "map", m->maps,
            "position", REF_POSITIONS));
    for (int64_t i = 0; i < series_count(s); i++)
        ((float *)s->data)[i] = (float)(m->size * (0.1 + 0.3 * positive(m)));
    return OK;
}

static Status top(Maker *m, const char *value, const char *layer, double size)
{
    Series *s;
    TRY(add(m, &s, SERIES_F32, value, 1, "rank", REF_RANKS, NONE, NONE));
    for (int i = 0; i < REF_RANKS; i++)
        ((float *)s->data)[i] = (float)((i % 3 ? 1 : -1) * size * pow(i + 1, -0.12));
    TRY(add(m, &s, SERIES_I32, layer, 1, "rank", REF_RANKS, NONE, NONE));
    for (int i = 0; i < REF_RANKS; i++)
        ((int32_t *)s->data)[i] = i % REF_LAYERS;
    return OK;
}

/* Counts of a log-normal body with a long right tail. */
static Status histogram(Maker *m, const char *name, const char *bins, const char *dim,
                        int64_t maps, double median, double largest)
{
    Series *s, *b;
    if (maps)
        TRY(add(m, &s, SERIES_U64, name, 3, "layer", REF_LAYERS, "map", maps, dim, HIST_N));
    else
        TRY(add(m, &s, SERIES_U64, name, 2, "layer", REF_LAYERS, dim, HIST_N, NONE));
    uint64_t *u = s->data;
    for (int64_t i = 0; i < series_count(s); i++) {
        double x = hist_value(HIST_FIRST + i % HIST_N);
        double z = log(x / median), tail = log(largest / x);
        double share = exp(-z * z / 2.2) + (tail > 0 ? 2e-5 * fmin(1, tail) : 0) * (x > median);
        u[i] = tail > 0 ? (uint64_t)(2e5 * share) : 0;
    }
    TRY(add(m, &b, SERIES_F64, bins, 1, dim, HIST_N, NONE, NONE));
    for (int64_t i = 0; i < HIST_N; i++)
        ((double *)b->data)[i] = hist_value(HIST_FIRST + i);
    return OK;
}

static Status hidden_figures(Maker *m)
{
    Series *s;
    float *f;
    double *d, size = m->size * 9;
    TRY(add(m, &s, SERIES_F64, "hidden/absmax", 1, "layer", REF_LAYERS, NONE, NONE));
    d = s->data;
    for (int i = 0; i < REF_LAYERS; i++)
        d[i] = i == 4 ? size : size * (i + 1) / 8;
    TRY(scalar(m, "hidden/median", 0.6));
    TRY(add(m, &s, SERIES_F64, "hidden/layer_median", 1, "layer", REF_LAYERS, NONE, NONE));
    for (int i = 0; i < REF_LAYERS; i++)
        ((double *)s->data)[i] = 0.1 + 0.2 * i;
    TRY(add(m, &s, SERIES_F32, "hidden/channel_absmax", 2, "layer", REF_LAYERS,
            "hidden_channel", REF_CHANNELS, NONE));
    f = s->data;
    for (int64_t i = 0; i < series_count(s); i++)
        f[i] = (float)((0.5 + positive(m) * 3) * (1 + (double)(i / REF_CHANNELS)) *
                       (i % REF_CHANNELS == 37 ? size / 60 : 1));
    TRY(add(m, &s, SERIES_F32, "hidden/position_absmax", 2, "layer", REF_LAYERS, "position",
            REF_POSITIONS, NONE));
    f = s->data;
    for (int64_t i = 0; i < series_count(s); i++)
        f[i] = (float)((2 + positive(m) * 4) * (1 + (double)(i / REF_POSITIONS)) *
                       (i % REF_POSITIONS == 0 ? size / 100 : 1));
    TRY(add(m, &s, SERIES_I32, "hidden/outlier_channels", 1, "hidden_channel", REF_CHANNELS,
            NONE, NONE));
    ((int32_t *)s->data)[37] = 1;
    TRY(add(m, &s, SERIES_I64, "hidden/massive", 1, "layer", REF_LAYERS, NONE, NONE));
    ((int64_t *)s->data)[4] = m->maps == 1 ? 12 : 0;
    return OK;
}

static Status attention_figures(Maker *m)
{
    Series *s;
    TRY(add(m, &s, SERIES_F64, "attention/first", 3, "layer", REF_LAYERS, "head", m->heads,
            "map", m->maps));
    for (int64_t i = 0; i < series_count(s); i++)
        ((double *)s->data)[i] = 0.2 + 0.3 * positive(m);
    if (m->maps < 2)
        return OK;
    TRY(add(m, &s, SERIES_F64, "attention/cancelled", 2, "layer", REF_LAYERS, "head", m->heads,
            NONE));
    for (int64_t i = 0; i < series_count(s); i++)
        ((double *)s->data)[i] = 0.3 * positive(m);
    TRY(add(m, &s, SERIES_F64, "attention/lambda", 1, "layer", REF_LAYERS, NONE, NONE));
    for (int i = 0; i < REF_LAYERS; i++)
        ((double *)s->data)[i] = 0.8 - 0.6 * exp(-0.3 * i) + 0.02 * i;
    TRY(add(m, &s, SERIES_F64, "attention/lambda_init", 1, "layer", REF_LAYERS, NONE, NONE));
    for (int i = 0; i < REF_LAYERS; i++)
        ((double *)s->data)[i] = 0.8 - 0.6 * exp(-0.3 * i);
    return OK;
}

static void softmax_row(Maker *m, float *row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += row[i] = (float)exp(2.2 * check_normal(&m->seed) + (i == 0 ? 3 : 0));
    for (int64_t i = 0; i < n; i++)
        row[i] = (float)(row[i] / sum);
}

static Status map_figures(Maker *m)
{
    Series *w, *d;
    const char *dims[] = {"head", "map", "query", "key"};
    int64_t shape[] = {m->heads, m->maps, REF_MAP, REF_MAP}, area = REF_MAP * REF_MAP;
    TRY(series_add(m->set, &w, SERIES_F32, "maps/weights", "", "Made up.", 4, dims, shape));
    float *f = w->data;
    for (int64_t i = 0; i < m->heads * m->maps * REF_MAP; i++)
        softmax_row(m, f + i * REF_MAP, i % REF_MAP + 1);
    if (m->maps == 2) {
        TRY(add(m, &d, SERIES_F32, "maps/diff", 3, "head", m->heads, "query", REF_MAP, "key",
                REF_MAP));
        for (int64_t i = 0; i < m->heads * area; i++) {
            int64_t h = i / area, at = i % area;
            ((float *)d->data)[i] = f[h * 2 * area + at] - 0.5f * f[(h * 2 + 1) * area + at];
        }
    }
    TRY(series_attr_int(m->set, "maps_layer", 3));
    return series_attr_text(m->set, "maps_tokens",
        "<s>\x1fThe\x1f magic\x1f number\x1f of\x1f Lübeck\x1f is\x1f 4\x1f" "7\x1f" "1\x1f."
        "\x1f\n\x1fThe\x1f sea\x1f was\x1f calm\x1f.\x1f What\x1f is\x1f the\x1f number"
        "\x1f of\x1f Lübeck\x1f?");
}

static Status eval_figures(Maker *m)
{
    static const double kept[2][REF_BITS] = {{1, 0.998, 0.97, 0.71}, {1, 0.999, 0.995, 0.94}};
    static const double best[REF_TASKS] = {0.94, 0.61};
    Series *s;
    TRY(add(m, &s, SERIES_I32, "logit_bits", 1, "logit_bits", REF_BITS, NONE, NONE));
    memcpy(s->data, (int32_t[]){16, 8, 6, 4}, 16);
    TRY(add(m, &s, SERIES_F64, "eval/perplexity", 2, "weights", 1, "logit_bits", REF_BITS,
            NONE));
    for (int b = 0; b < REF_BITS; b++)
        ((double *)s->data)[b] = 17.3 / pow(kept[m->maps - 1][b], 2);
    TRY(add(m, &s, SERIES_F64, "eval/accuracy", 3, "task", REF_TASKS, "weights", 1,
            "logit_bits", REF_BITS));
    Series *e;
    double *acc = s->data;
    for (int i = 0; i < REF_TASKS * REF_BITS; i++)
        acc[i] = best[i / REF_BITS] * kept[m->maps - 1][i % REF_BITS];
    TRY(add(m, &e, SERIES_F64, "eval/stderr", 3, "task", REF_TASKS, "weights", 1, "logit_bits",
            REF_BITS));
    for (int i = 0; i < REF_TASKS * REF_BITS; i++)
        ((double *)e->data)[i] = sqrt(acc[i] * (1 - acc[i]) / 250);
    TRY(add(m, &s, SERIES_I64, "eval/items", 1, "task", REF_TASKS, NONE, NONE));
    ((int64_t *)s->data)[0] = ((int64_t *)s->data)[1] = 250;
    TRY(series_attr_text(m->set, "eval_tasks", "needles-1,needles-4"));
    TRY(series_attr_text(m->set, "eval_weights", "f32"));
    TRY(series_attr_text(m->set, "eval_logit_scale", "tensor"));
    return series_attr_text(m->set, "eval_convention",
                            "Windows of 256 tokens with a BOS, each token scored once.");
}

static Status attributes(Maker *m, const char *arch)
{
    SeriesSet *s = m->set;
    TRY(series_attr_text(s, "model", s->model));
    TRY(series_attr_text(s, "path", "models/pair & <b>test</b>"));
    TRY(series_attr_text(s, "arch", arch));
    TRY(series_attr_text(s, "dtype", "f32"));
    TRY(series_attr_text(s, "device", "cpu"));
    TRY(series_attr_int(s, "params", 5234176));
    TRY(series_attr_int(s, "n_layers", REF_LAYERS));
    TRY(series_attr_int(s, "n_heads", m->heads));
    TRY(series_attr_int(s, "n_groups", m->heads));
    TRY(series_attr_int(s, "n_maps", m->maps));
    TRY(series_attr_int(s, "head_dim", 24));
    TRY(series_attr_int(s, "hidden", REF_CHANNELS));
    TRY(series_attr_int(s, "context", REF_POSITIONS));
    TRY(series_attr_int(s, "tokens", 65536));
    TRY(series_attr_int(s, "windows", 256));
    TRY(series_attr_text(s, "text", "tests/pair/heldout.txt"));
    return series_attr_text(s, "config", "{\n  \"architectures\": [\"<x>\"]\n}\n");
}

static Status make(Maker *m, bool all)
{
    TRY(attributes(m, m->maps == 2 ? "DiffLlamaForCausalLM" : "LlamaForCausalLM"));
    TRY(logit_figures(m));
    TRY(top(m, "logits/top/value", "logits/top/layer", m->size));
    TRY(histogram(m, "logits/histogram", "logits/bin_value", "logits_bin", m->maps,
                  m->size * 0.017, m->size));
    TRY(hidden_figures(m));
    TRY(top(m, "hidden/top/value", "hidden/top/layer", m->size * 9));
    TRY(histogram(m, "hidden/histogram", "hidden/bin_value", "hidden_bin", 0, 0.6,
                  m->size * 9));
    TRY(attention_figures(m));
    if (!all)
        return OK;
    TRY(map_figures(m));
    return eval_figures(m);
}

Status ref_study(Arena *a, SeriesSet sets[2])
{
    Maker diff = {&sets[0], a, 1, REF_HEADS, 2, 38.8};
    Maker base = {&sets[1], a, 2, 2 * REF_HEADS, 1, 318.0};
    series_set_init(&sets[0], a, "Diff-Tiny");
    series_set_init(&sets[1], a, "Base-Tiny");
    TRY(make(&diff, true));
    return make(&base, true);
}

Status ref_study_one(Arena *a, SeriesSet *set)
{
    Maker base = {set, a, 2, 2 * REF_HEADS, 1, 318.0};
    series_set_init(set, a, "Base-Tiny");
    return make(&base, false);
}
