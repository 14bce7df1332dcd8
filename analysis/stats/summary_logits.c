/* summary_logits.c - series of the attention logits and of the attention weights. */
#include "analysis/stats/summary.h"

#include <math.h>
#include <string.h>

static const Moments *moments_at(const void *context, int64_t i)
{
    const LogitRecord *r = context;
    int64_t            per_layer = r->n_heads * r->n_maps;
    return &r[i / per_layer].moments[i % per_layer];
}

static Status shared_figures(SeriesSet *set, const LogitRecord *r, int64_t n)
{
    int64_t       H = r->n_heads, M = r->n_maps;
    const Hist  **hist;
    const Peaks **peaks;
    ARENA_NEW(hist, set->arena, n * M);
    ARENA_NEW(peaks, set->arena, n);
    for (int64_t l = 0; l < n; l++) {
        peaks[l] = &r[l].peaks;
        for (int64_t m = 0; m < M; m++)
            hist[l * M + m] = &r[l].hist[m];
    }
    TRY(summary_moments(set, "logits", "", moments_at, r, 3,
                        (const char *const[]){"layer", "head", "map"},
                        (int64_t[]){n, H, M}));
    TRY(summary_histogram(set, "logits", "", hist, 2, (const char *const[]){"layer", "map"},
                          (int64_t[]){n, M}));
    return summary_peaks(set, "logits", "", peaks, n, true);
}

static Status position_figures(SeriesSet *set, const LogitRecord *r, int64_t n)
{
    static const char *const DIMS[] = {"layer", "map", "position"};
    const int64_t            shape[] = {n, r->n_maps, r->n_positions};
    int64_t                  per_layer = r->n_maps * r->n_positions;
    float *query = NULL, *key = NULL;
    TRY(summary_add(set, &query, SERIES_F32, "logits", "query_absmax", "",
                    "Largest magnitude at each query position.", 3, DIMS, shape));
    TRY(summary_add(set, &key, SERIES_F32, "logits", "key_absmax", "",
                    "Largest magnitude at each key position.", 3, DIMS, shape));
    for (int64_t l = 0; l < n; l++) {
        memcpy(query + l * per_layer, r[l].query_absmax, (size_t)per_layer * sizeof(float));
        memcpy(key + l * per_layer, r[l].key_absmax, (size_t)per_layer * sizeof(float));
    }
    return OK;
}

Status summary_logits(SeriesSet *set, const LogitRecord *r, int64_t n_layers)
{
    TRY(shared_figures(set, r, n_layers));
    return position_figures(set, r, n_layers);
}

/* --- attention weights --- */

static double entropy(const ShareRecord *s, int m) { return s->entropy[m] / (double)s->rows; }
static double first(const ShareRecord *s, int m) { return s->first[m] / (double)s->rows; }
static double span(const ShareRecord *s, int m) { return s->span[m] / (double)s->span_rows; }

static const struct {
    const char *what, *unit, *about;
    double    (*get)(const ShareRecord *, int map);
} BY_MAP[] = {
    {"entropy", "nat", "Mean entropy of a row of the map.", entropy},
    {"first", "", "Mean weight on the first position.", first},
    {"span", "", "Mean weight on the marked span; NaN where none was marked.", span},
};

static double diff_first(const ShareRecord *s) { return s->diff_first / (double)s->rows; }
static double diff_span(const ShareRecord *s) { return s->diff_span / (double)s->span_rows; }
static double diff_abs(const ShareRecord *s) { return s->diff_abs / (double)s->rows; }
static double cancelled(const ShareRecord *s) { return s->cancelled / (double)s->rows; }
static double row_sum_error(const ShareRecord *s) { return s->row_sum_error; }
static double negative(const ShareRecord *s)
{
    return (double)s->negative / (double)s->weights;
}

static const struct {
    const char *what, *about;
    double    (*get)(const ShareRecord *);
} BY_HEAD[] = {
    {"diff_first", "Mean weight of the head (map 1 - lambda map 2) on the first position.",
     diff_first},
    {"diff_span", "Mean weight of the head on the marked span; NaN where none was marked.",
     diff_span},
    {"diff_abs", "Mean sum of the magnitudes of a row of the head.", diff_abs},
    {"negative", "Share of weights below zero.", negative},
    {"cancelled", "Mean mass that map 2 takes off map 1: sum of min(A1, lambda A2).",
     cancelled},
    {"row_sum_error", "Largest |row sum - (1 - lambda)|.", row_sum_error},
};

static Status map_shares(SeriesSet *set, const ShareRecord *r, const ModelConfig *c)
{
    int64_t M = c->n_maps, n = c->n_layers * c->n_heads;
    for (size_t f = 0; f < sizeof BY_MAP / sizeof BY_MAP[0]; f++) {
        double *out = NULL;
        TRY(summary_add(set, &out, SERIES_F64, "attention", BY_MAP[f].what, BY_MAP[f].unit,
                        BY_MAP[f].about, 3, (const char *const[]){"layer", "head", "map"},
                        (int64_t[]){c->n_layers, c->n_heads, M}));
        for (int64_t i = 0; i < n * M; i++)
            out[i] = BY_MAP[f].get(&r[i / M], (int)(i % M));
    }
    return OK;
}

static Status lambda_figures(SeriesSet *set, const Model *m)
{
    int64_t n = m->config.n_layers;
    double *lambda = NULL, *init = NULL;
    TRY(summary_add(set, &lambda, SERIES_F64, "attention", "lambda", "",
                    "Lambda of each layer.", 1, (const char *const[]){"layer"}, &n));
    TRY(summary_add(set, &init, SERIES_F64, "attention", "lambda_init", "",
                    "Its value before training, 0.8 - 0.6 exp(-0.3 depth).", 1,
                    (const char *const[]){"layer"}, &n));
    for (int64_t l = 0; l < n; l++) {
        lambda[l] = m->layers[l].lambda;
        init[l] = m->layers[l].lambda_init;
    }
    return OK;
}

Status summary_shares(SeriesSet *set, const ShareRecord *r, const Model *m)
{
    const ModelConfig *c = &m->config;
    int64_t            n = c->n_layers * c->n_heads;
    TRY(map_shares(set, r, c));
    for (size_t f = 0; f < sizeof BY_HEAD / sizeof BY_HEAD[0]; f++) {
        double *out = NULL;
        TRY(summary_add(set, &out, SERIES_F64, "attention", BY_HEAD[f].what, "",
                        BY_HEAD[f].about, 2, (const char *const[]){"layer", "head"},
                        (int64_t[]){c->n_layers, c->n_heads}));
        for (int64_t i = 0; i < n; i++)
            out[i] = BY_HEAD[f].get(&r[i]);
    }
    return c->n_maps == 2 ? lambda_figures(set, m) : OK;
}

Status probe_series(const Probe *p, const Model *m, SeriesSet *set)
{
    int64_t n = m->config.n_layers;
    TRY(summary_coordinates(set));
    if (p->logits)
        TRY(summary_logits(set, p->logits, n));
    if (p->shares)
        TRY(summary_shares(set, p->shares, m));
    for (int t = 0; t < N_TAPS; t++)
        if (p->values[t])
            TRY(summary_values(set, p->values[t], n, (Tap)t));
    return OK;
}
