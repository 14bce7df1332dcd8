/* summary.c - series that logits and values share: moments, histogram, peaks. */
#include "analysis/stats/summary.h"

#include <math.h>
#include <string.h>

#include "kernels/size.h"

const double QUANTILES[N_QUANTILES] = {0.5, 0.9, 0.99, 0.999, 0.9999};

const char *tap_name(Tap tap)
{
    static const char *const NAMES[N_TAPS] = {"hidden", "qkv_in", "o_in", "mlp_in",
                                              "down_in"};
    return NAMES[tap];
}

Status summary_add(SeriesSet *set, void *data_out, SeriesType type, const char *tap,
                   const char *what, const char *unit, const char *about, int n_dims,
                   const char *const *dims, const int64_t *shape)
{
    const char *name = arena_printf(set->arena, "%s/%s", tap, what);
    if (!name)
        FAIL(ERR_MEMORY, "out of memory for the name of %s", what);
    Series *s;
    TRY(series_add(set, &s, type, name, unit, about, n_dims, dims, shape));
    memcpy(data_out, &s->data, sizeof s->data);
    return OK;
}

Status summary_coordinates(SeriesSet *set)
{
    if (series_find(set, "quantile"))
        return OK;
    Series *s;
    TRY(series_add(set, &s, SERIES_F64, "quantile", "", "Share of values at or below.", 1,
                   (const char *const[]){"quantile"}, (int64_t[]){N_QUANTILES}));
    memcpy(s->data, QUANTILES, sizeof QUANTILES);
    return OK;
}

/* --- moments --- */

static int64_t get_count(const Moments *m) { return m->count; }
static int64_t get_nan(const Moments *m) { return m->n_nan; }
static int64_t get_pos_inf(const Moments *m) { return m->n_pos_inf; }
static int64_t get_neg_inf(const Moments *m) { return m->n_neg_inf; }
static double get_min(const Moments *m) { return m->count ? m->min : NAN; }
static double get_absmax(const Moments *m) { return m->count ? moments_absmax(m) : NAN; }
static double get_max(const Moments *m) { return m->count ? m->max : NAN; }
static double get_mean(const Moments *m) { return m->count ? m->mean : NAN; }

static const struct {
    const char *what, *about;
    int64_t   (*get)(const Moments *);
} COUNTS[] = {
    {"count", "Finite values.", get_count},
    {"nan", "Values that are NaN; in no other figure.", get_nan},
    {"pos_inf", "Values that are +infinity; in no other figure.", get_pos_inf},
    {"neg_inf", "Values that are -infinity; in no other figure.", get_neg_inf},
};

static const struct {
    const char *what, *about;
    bool        has_unit;
    double    (*get)(const Moments *);
} REALS[] = {
    {"min", "Smallest value.", true, get_min},
    {"max", "Largest value.", true, get_max},
    {"absmax", "Largest magnitude.", true, get_absmax},
    {"mean", "Mean.", true, get_mean},
    {"variance", "Mean of (x - mean)^2.", false, moments_variance},
    {"kurtosis", "Mean of (x - mean)^4 over the squared variance; 3 for a normal "
                 "distribution.", false, moments_kurtosis},
};

Status summary_moments(SeriesSet *set, const char *tap, const char *unit, MomentsAt at,
                       const void *context, int n_dims, const char *const *dims,
                       const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++)
        n *= shape[i];
    for (size_t c = 0; c < sizeof COUNTS / sizeof COUNTS[0]; c++) {
        int64_t *out = NULL;
        TRY(summary_add(set, &out, SERIES_I64, tap, COUNTS[c].what, "", COUNTS[c].about,
                        n_dims, dims, shape));
        for (int64_t i = 0; i < n; i++)
            out[i] = COUNTS[c].get(at(context, i));
    }
    for (size_t r = 0; r < sizeof REALS / sizeof REALS[0]; r++) {
        double *out = NULL;
        TRY(summary_add(set, &out, SERIES_F64, tap, REALS[r].what,
                        REALS[r].has_unit ? unit : "", REALS[r].about, n_dims, dims, shape));
        for (int64_t i = 0; i < n; i++)
            out[i] = REALS[r].get(at(context, i));
    }
    return OK;
}

/* --- histogram --- */

/* First and last bin that is not 0; 0 and 0 where all are. */
static void used_bins(const Hist *total, int64_t *first, int64_t *last)
{
    *first = hist_next(total, 0) % HIST_BINS;
    *last = *first;
    for (int64_t b = *first; b < HIST_BINS; b = hist_next(total, b + 1))
        *last = b;
}

static Status quantile_figures(SeriesSet *set, const char *tap, const char *unit,
                               const Hist *total)
{
    double *median = NULL, *quantiles = NULL;
    TRY(summary_add(set, &median, SERIES_F64, tap, "median", unit,
                    "Median magnitude over all layers, within 0.2 %.", 0, NULL, NULL));
    *median = hist_quantile(total, 0.5);
    TRY(summary_add(set, &quantiles, SERIES_F64, tap, "quantiles", unit,
                    "Quantiles of the magnitude over all layers, within 0.2 %.", 1,
                    (const char *const[]){"quantile"}, (int64_t[]){N_QUANTILES}));
    for (int q = 0; q < N_QUANTILES; q++)
        quantiles[q] = hist_quantile(total, QUANTILES[q]);
    return OK;
}

static Status bin_figures(SeriesSet *set, const char *tap, const char *unit,
                          const Hist *const *hist, int64_t n, const Hist *total,
                          int n_dims, const char *const *dims, const int64_t *shape)
{
    int64_t first, last;
    used_bins(total, &first, &last);
    const char *bin = arena_printf(set->arena, "%s_bin", tap);
    if (!bin)
        FAIL(ERR_MEMORY, "out of memory for the bins of %s", tap);
    const char *all_dims[SERIES_MAX_DIMS];
    int64_t     all_shape[SERIES_MAX_DIMS], n_bins = last - first + 1;
    for (int i = 0; i < n_dims; i++) {
        all_dims[i] = dims[i];
        all_shape[i] = shape[i];
    }
    all_dims[n_dims] = bin;
    all_shape[n_dims] = n_bins;
    uint64_t *counts = NULL;
    double   *value = NULL;
    TRY(summary_add(set, &counts, SERIES_U64, tap, "histogram", "",
                    "Values by magnitude, 256 bins an octave.", n_dims + 1, all_dims,
                    all_shape));
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = hist_next(hist[i], 0); b < HIST_BINS; b = hist_next(hist[i], b + 1))
            counts[i * n_bins + b - first] = hist[i]->bins[b];
    TRY(summary_add(set, &value, SERIES_F64, tap, "bin_value", unit,
                    "Geometric middle of each bin.", 1, &bin, &n_bins));
    for (int64_t b = 0; b < n_bins; b++)
        value[b] = hist_value(first + b);
    return OK;
}

Status summary_histogram(SeriesSet *set, const char *tap, const char *unit,
                         const Hist *const *hist, int n_dims, const char *const *dims,
                         const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++)
        n *= shape[i];
    Hist    total;
    double *median = NULL;
    TRY(hist_init(&total, set->arena));
    TRY(summary_add(set, &median, SERIES_F64, tap, "layer_median", unit,
                    "Median magnitude of each layer, within 0.2 %.", n_dims, dims, shape));
    for (int64_t i = 0; i < n; i++) {
        median[i] = hist_quantile(hist[i], 0.5);
        hist_merge(&total, hist[i]);
    }
    TRY(quantile_figures(set, tap, unit, &total));
    return bin_figures(set, tap, unit, hist, n, &total, n_dims, dims, shape);
}

/* --- peaks --- */

typedef int32_t (*PlaceOf)(const Peak *);

static int32_t place_layer(const Peak *p) { return p->layer; }
static int32_t place_head(const Peak *p) { return p->head; }
static int32_t place_map(const Peak *p) { return p->map; }
static int32_t place_channel(const Peak *p) { return p->channel; }
static int32_t place_position(const Peak *p) { return p->position; }
static int32_t place_key(const Peak *p) { return p->key; }

static const struct {
    const char *what, *about;
    bool        of_logits, of_values;
    PlaceOf     get;
} PLACES[] = {
    {"top/layer", "Layer of each.", true, true, place_layer},
    {"top/head", "Head of each.", true, false, place_head},
    {"top/map", "Map of each: 0 signal, 1 noise.", true, false, place_map},
    {"top/channel", "Channel of each.", false, true, place_channel},
    {"top/position", "Position of the query (of the token) in its window.", true, true,
     place_position},
    {"top/key", "Position of the key in its window.", true, false, place_key},
};

static Status place_figures(SeriesSet *set, const char *tap, const Peaks *top, bool logits)
{
    static const char *const DIMS[] = {"rank"};
    const int64_t            shape[] = {N_PEAKS};
    int64_t                 *sequence = NULL;
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        int32_t *out = NULL;
        if (!(logits ? PLACES[i].of_logits : PLACES[i].of_values))
            continue;
        TRY(summary_add(set, &out, SERIES_I32, tap, PLACES[i].what, "", PLACES[i].about, 1,
                        DIMS, shape));
        for (int r = 0; r < N_PEAKS; r++)
            out[r] = r < top->n ? PLACES[i].get(&top->at[r]) : -1;
    }
    TRY(summary_add(set, &sequence, SERIES_I64, tap, "top/sequence", "",
                    "Window of the text, from 0.", 1, DIMS, shape));
    for (int r = 0; r < N_PEAKS; r++)
        sequence[r] = r < top->n ? top->at[r].sequence : -1;
    return OK;
}

Status summary_peaks(SeriesSet *set, const char *tap, const char *unit,
                     const Peaks *const *peaks, int64_t n_layers, bool logits)
{
    Peaks *top;
    float *value = NULL, *layer_top = NULL;
    ARENA_NEW(top, set->arena, 1);
    TRY(summary_add(set, &layer_top, SERIES_F32, tap, "layer_top", unit,
                    "The 100 largest magnitudes of each layer, with sign; NaN where there "
                    "are fewer.", 2, (const char *const[]){"layer", "rank"},
                    (int64_t[]){n_layers, N_PEAKS}));
    for (int64_t l = 0; l < n_layers; l++) {
        peaks_merge(top, peaks[l]);
        for (int r = 0; r < N_PEAKS; r++)
            layer_top[l * N_PEAKS + r] = r < peaks[l]->n ? peaks[l]->at[r].value : NAN;
    }
    TRY(summary_add(set, &value, SERIES_F32, tap, "top/value", unit,
                    "The 100 largest magnitudes of all layers, with sign; NaN where there "
                    "are fewer.", 1, (const char *const[]){"rank"}, (int64_t[]){N_PEAKS}));
    for (int r = 0; r < N_PEAKS; r++)
        value[r] = r < top->n ? top->at[r].value : NAN;
    return place_figures(set, tap, top, logits);
}
