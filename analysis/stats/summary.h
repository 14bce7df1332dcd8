/* summary.h - the records of a probe, turned into series (private to analysis).
 * Names, units and dims of what is stored are those that README documents. */
#ifndef DQ_SUMMARY_H
#define DQ_SUMMARY_H

#include "analysis/probe.h"

enum { N_QUANTILES = 5 };
extern const double QUANTILES[N_QUANTILES];

/* One column of Moments: count, nan ... kurtosis. n records, record i at
 * at(context, i). */
typedef const Moments *(*MomentsAt)(const void *context, int64_t i);

/* T/count ... T/kurtosis over `dims`. Names go to set->arena. */
MUST_USE Status summary_moments(SeriesSet *set, const char *tap, const char *unit,
                                MomentsAt at, const void *context, int n_dims,
                                const char *const *dims, const int64_t *shape);

/* T/histogram [dims..., T_bin] trimmed to the bins in use, T/bin_value, T/median,
 * T/quantiles over all, T/layer_median [dims...]. */
MUST_USE Status summary_histogram(SeriesSet *set, const char *tap, const char *unit,
                                  const Hist *const *hist, int n_dims,
                                  const char *const *dims, const int64_t *shape);

/* T/top/value, T/layer_top and the places of T/top. */
MUST_USE Status summary_peaks(SeriesSet *set, const char *tap, const char *unit,
                              const Peaks *const *peaks, int64_t n_layers, bool logits);

MUST_USE Status summary_logits(SeriesSet *set, const LogitRecord *r, int64_t n_layers);
MUST_USE Status summary_values(SeriesSet *set, const ValueRecord *r, int64_t n_layers,
                               Tap tap);
MUST_USE Status summary_shares(SeriesSet *set, const ShareRecord *r, const Model *m);

/* The coordinate "quantile"; added once a set. */
MUST_USE Status summary_coordinates(SeriesSet *set);

/* Adds a series whose name is tap/what. */
MUST_USE Status summary_add(SeriesSet *set, void *data_out, SeriesType type, const char *tap,
                            const char *what, const char *unit, const char *about,
                            int n_dims, const char *const *dims, const int64_t *shape);

const char *tap_name(Tap tap);   // "hidden", "qkv_in", ...
int64_t     tap_channels(const ModelConfig *c, Tap tap, int64_t layer);  // values a row

#endif
