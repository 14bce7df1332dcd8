/* ref_models.c - runs one golden model on both devices and compares what it left. */
#include "tests/cuda/ref_models.h"

#include <math.h>
#include <stdio.h>

#include "tests/check.h"

/* --- both sides --- */

static const char *const DEVICES[N_SIDES] = {"cpu", "cuda"};

static Status open_folder(Sides *p, const char *folder, Dtype dtype)
{
    ModelOptions options = {.dtype = dtype};
    *p = (Sides){0};
    for (int i = 0; i < N_SIDES; i++)
        TRY(subject_open_on(&p->of[i], DEVICES[i], folder, &options, 1));
    return OK;
}

Status sides_open(Sides *p, const char *name, Dtype dtype)
{
    return open_folder(p, golden_folder(name), dtype);
}

Status sides_open_golden(Sides *p, const char *name, Dtype dtype)
{
    TRY(sides_open(p, name, dtype));
    return golden_read(&p->golden, &p->of[ON_CPU].arena, golden_file(name));
}

Status sides_open_pair(Sides *p, const char *name, Dtype dtype)
{
    char folder[64], file[64];
    snprintf(folder, sizeof folder, "pair/%s", name);
    snprintf(file, sizeof file, "golden/pair/%s.safetensors", name);
    TRY(open_folder(p, check_path(folder), dtype));
    return golden_read(&p->golden, &p->of[ON_CPU].arena, check_path(file));
}

void sides_close(Sides *p)
{
    for (int i = 0; i < N_SIDES; i++)
        subject_close(&p->of[i]);
}

Status sides_run(Sides *p, RunQuant quant, Probe *probes)
{
    const Golden *g = &p->golden;
    for (int i = 0; i < N_SIDES; i++)
        TRY(subject_run_rounded(&p->run[i], &p->of[i], g->ids, &g->batch, quant,
                                probes ? &probes[i] : NULL, NULL));
    return OK;
}

/* --- differences --- */

static double larger(double a, double b)
{
    return !(b <= a) ? b : a;   // NaN stays
}

Gaps sides_gaps(const Sides *p)
{
    const Run         *want = &p->run[ON_CPU], *got = &p->run[ON_GPU];
    const ModelConfig *c = &p->of[ON_CPU].m.config;
    int64_t            n = p->golden.T * c->hidden;
    Gaps               g = {0};
    for (int64_t l = 0; l < c->n_layers; l++)
        g.hidden = larger(g.hidden, ref_worst_gap(got->hidden + l * n, want->hidden + l * n, n));
    g.final = ref_worst_gap(got->final, want->final, n);
    g.logits = ref_worst_gap(got->logits, want->logits, p->golden.T * c->vocab);
    return g;
}

double gaps_worst(Gaps g)
{
    return larger(larger(g.hidden, g.final), g.logits);
}

double sides_rms(const Sides *p)
{
    int64_t n = p->golden.T * p->of[ON_CPU].m.config.vocab;
    double  gap = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        double want = (double)p->run[ON_CPU].logits[i], got = (double)p->run[ON_GPU].logits[i];
        gap += (got - want) * (got - want);
        all += want * want;
    }
    return sqrt(gap / all);
}

/* --- records --- */

static bool near(double a, double b, double size, double tol, const char *what)
{
    if (fabs(a - b) <= tol * size)
        return true;
    fprintf(stderr, "%s: %.9g against %.9g\n", what, a, b);
    return false;
}

static bool equal(int64_t a, int64_t b, const char *what)
{
    return near((double)a, (double)b, 0, 0, what);
}

/* m3 changes sign, so that it is measured against m2^1.5. */
static bool same_moments(const Moments *a, const Moments *b, double tol)
{
    double size = moments_absmax(a), n = (double)a->count, sigma = sqrt(moments_variance(a));
    if (!equal(a->count, b->count, "count") || !equal(a->n_nan, b->n_nan, "NaN"))
        return false;
    return a->count == 0 ||
           (near(a->min, b->min, size, tol, "minimum") &&
            near(a->max, b->max, size, tol, "maximum") &&
            near(a->mean, b->mean, size, tol, "mean") &&
            near(a->m2, b->m2, a->m2, 100 * tol, "m2") &&
            near(a->m3, b->m3, n * pow(sigma, 3), 1000 * tol, "m3") &&
            near(a->m4, b->m4, a->m4, 1000 * tol, "m4"));
}

/* Largest difference of two lists as a share of the largest value. */
static bool same_floats(const float *a, const float *b, int64_t n, double tol, const char *what)
{
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs((double)a[i]));
    for (int64_t i = 0; i < n; i++)
        if (!near((double)a[i], (double)b[i], size, tol, what))
            return false;
    return true;
}

/* As many in all; those that moved to another bin are few. */
static bool same_hist(const Hist *a, const Hist *b)
{
    double  all[2] = {0}, moved = 0;
    for (int64_t i = 0; i < HIST_BINS; i++) {
        all[0] += (double)a->bins[i];
        all[1] += (double)b->bins[i];
        moved += fabs((double)a->bins[i] - (double)b->bins[i]);
    }
    return near(all[0], all[1], 0, 0, "values in bins") &&
           near(moved, 0, fmax(all[0], 500), 0.02, "values in other bins");
}

/* Largest first: the value at each rank, whoever holds it. */
static bool same_peaks(const Peaks *a, const Peaks *b, double tol)
{
    bool same = equal(a->n, b->n, "peaks");
    for (int i = 0; i < a->n && same; i++)
        same = near(fabs((double)a->at[i].value), fabs((double)b->at[i].value),
                    fabs((double)a->at[0].value), tol, "peak");
    return same;
}

bool same_values(const ValueRecord *a, const ValueRecord *b, double tol)
{
    return same_moments(&a->moments, &b->moments, tol) && same_hist(&a->hist, &b->hist) &&
           same_floats(a->channel_absmax, b->channel_absmax, a->n_channels, tol, "channel") &&
           same_floats(a->position_absmax, b->position_absmax, a->n_positions, tol,
                       "position") &&
           same_peaks(&a->peaks, &b->peaks, tol);
}

bool same_logits(const LogitRecord *a, const LogitRecord *b, double tol)
{
    int64_t n = a->n_maps * a->n_positions;
    bool    same = true;
    for (int64_t i = 0; i < a->n_heads * a->n_maps && same; i++)
        same = same_moments(&a->moments[i], &b->moments[i], tol);
    for (int64_t m = 0; m < a->n_maps && same; m++)
        same = same_hist(&a->hist[m], &b->hist[m]);
    return same && same_floats(a->query_absmax, b->query_absmax, n, tol, "query") &&
           same_floats(a->key_absmax, b->key_absmax, n, tol, "key") &&
           same_peaks(&a->peaks, &b->peaks, tol);
}

bool same_shares(const ShareRecord *a, const ShareRecord *b, double tol)
{
    double rows = (double)a->rows;
    bool   same = equal(a->rows, b->rows, "rows") && equal(a->weights, b->weights, "weights") &&
                equal(a->span_rows, b->span_rows, "rows with a span") &&
                near((double)a->negative, (double)b->negative, (double)a->weights, 0.002,
                     "negative");
    for (int m = 0; m < 2 && same; m++)
        same = near(a->entropy[m], b->entropy[m], fmax(rows, a->entropy[m]), tol, "entropy") &&
               near(a->first[m], b->first[m], rows, tol, "first") &&
               near(a->span[m], b->span[m], rows, tol, "span");
    return same && near(a->diff_first, b->diff_first, rows, tol, "diff_first") &&
           near(a->diff_span, b->diff_span, rows, tol, "diff_span") &&
           near(a->diff_abs, b->diff_abs, rows, tol, "diff_abs") &&
           near(a->diff_abs_first, b->diff_abs_first, rows, tol, "diff_abs_first") &&
           near(a->diff_abs_span, b->diff_abs_span, rows, tol, "diff_abs_span") &&
           near(a->row_sum_error, b->row_sum_error, 1, tol, "row sums") &&
           near(a->cancelled, b->cancelled, rows, tol, "cancelled");
}
