/* summary_values.c - series of hidden states and of the inputs of linear layers. */
#include "analysis/stats/summary.h"

#include <math.h>
#include <string.h>

#include "kernels/size.h"

static const char *const LAYER[] = {"layer"};

static const Moments *moments_at(const void *context, int64_t i)
{
    return &((const ValueRecord *)context)[i].moments;
}

static Status shared_figures(SeriesSet *set, const ValueRecord *r, int64_t n, Tap tap)
{
    const Hist  **hist;
    const Peaks **peaks;
    const char   *name = tap_name(tap);
    ARENA_NEW(hist, set->arena, n);
    ARENA_NEW(peaks, set->arena, n);
    for (int64_t l = 0; l < n; l++) {
        hist[l] = &r[l].hist;
        peaks[l] = &r[l].peaks;
    }
    TRY(summary_moments(set, name, "", moments_at, r, 1, LAYER, &n));
    TRY(summary_histogram(set, name, "", hist, 1, LAYER, &n));
    return summary_peaks(set, name, "", peaks, n, false);
}

/* Layers of a hybrid differ; the places that one does not have stay 0. */
static int64_t widest(const ValueRecord *r, int64_t n)
{
    int64_t C = 0;
    for (int64_t l = 0; l < n; l++)
        C = i64_max(C, r[l].n_channels);
    return C;
}

static Status channel_figures(SeriesSet *set, const ValueRecord *r, int64_t n, Tap tap)
{
    const char *name = tap_name(tap), *channel;
    int64_t     C = widest(r, n), P = r[0].n_positions;
    float *by_channel = NULL, *by_position = NULL;
    uint64_t   *over_6 = NULL;
    if (!(channel = arena_printf(set->arena, "%s_channel", name)))
        FAIL(ERR_MEMORY, "out of memory for the channels of %s", name);
    const char *dims[] = {"layer", channel};
    TRY(summary_add(set, &by_channel, SERIES_F32, name, "channel_absmax", "",
                    "Largest magnitude of each channel.", 2, dims, (int64_t[]){n, C}));
    TRY(summary_add(set, &over_6, SERIES_U64, name, "channel_over_6", "",
                    "Tokens whose magnitude in the channel is 6 or more.", 2, dims,
                    (int64_t[]){n, C}));
    TRY(summary_add(set, &by_position, SERIES_F32, name, "position_absmax", "",
                    "Largest magnitude at each position of a window.", 2,
                    (const char *const[]){"layer", "position"}, (int64_t[]){n, P}));
    for (int64_t l = 0; l < n; l++) {
        size_t own = (size_t)r[l].n_channels;
        memcpy(by_channel + l * C, r[l].channel_absmax, own * sizeof(float));
        memcpy(over_6 + l * C, r[l].channel_over_6, own * sizeof(uint64_t));
        memcpy(by_position + l * P, r[l].position_absmax, (size_t)P * sizeof(float));
    }
    return OK;
}

static int64_t tokens_of(const ValueRecord *r)
{
    const Moments *m = &r->moments;
    return (m->count + m->n_nan + m->n_pos_inf + m->n_neg_inf) / r->n_channels;
}

/* Dettmers et al. 2022 (LLM.int8), section 3: a feature is an outlier where its
 * magnitude is >= 6 in >= 25 % of the layers and, over those, in >= 6 % of the
 * sequence positions. */
static Status outlier_channels(SeriesSet *set, const ValueRecord *r, int64_t n)
{
    int64_t  C = r[0].n_channels, tokens = tokens_of(&r[0]);
    int32_t *out = NULL;
    TRY(summary_add(set, &out, SERIES_I32, "hidden", "outlier_channels", "",
                    "1 where the channel is an outlier by the definition of LLM.int8.", 1,
                    (const char *const[]){"hidden_channel"}, &C));
    for (int64_t c = 0; c < C; c++) {
        int64_t  layers = 0;
        uint64_t hits = 0;
        for (int64_t l = 0; l < n; l++) {
            layers += r[l].channel_over_6[c] > 0;
            hits += r[l].channel_over_6[c];
        }
        bool many_layers = layers > 0 && 4 * layers >= n;
        out[c] = many_layers && 100.0 * (double)hits >= 6.0 * (double)tokens * (double)layers;
    }
    return OK;
}

/* Sun et al. 2024 (massive activations): above 100 and at least 1000 times the
 * layer's median magnitude. Counted by bins, so the limit is exact to 0.4 %. */
static Status massive_activations(SeriesSet *set, const ValueRecord *r, int64_t n)
{
    int64_t *out = NULL;
    TRY(summary_add(set, &out, SERIES_I64, "hidden", "massive", "",
                    "Values above 100 and at least 1000 times the layer's median.", 1, LAYER,
                    &n));
    for (int64_t l = 0; l < n; l++) {
        double limit = fmax(100.0, 1000.0 * hist_quantile(&r[l].hist, 0.5));
        const Hist *h = &r[l].hist;
        for (int64_t b = hist_next(h, 0); b < HIST_BINS; b = hist_next(h, b + 1))
            if (hist_value(b) > limit)
                out[l] += (int64_t)h->bins[b];
    }
    return OK;
}

Status summary_values(SeriesSet *set, const ValueRecord *r, int64_t n_layers, Tap tap)
{
    TRY(shared_figures(set, r, n_layers, tap));
    TRY(channel_figures(set, r, n_layers, tap));
    if (tap != TAP_HIDDEN)
        return OK;
    TRY(outlier_channels(set, r, n_layers));
    return massive_activations(set, r, n_layers);
}
