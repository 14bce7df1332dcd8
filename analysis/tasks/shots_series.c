/* shots_series.c - how far accuracy moves with the order of the demonstrations. */
#include <math.h>
#include <string.h>

#include "analysis/shots.h"

ShotScore shots_score(const Shots *s, const uint8_t *correct, double *accuracy)
{
    double    n = (double)s->n_permutations, sum = 0;
    ShotScore out = {0};
    for (int64_t p = 0; p < s->n_permutations; p++) {
        int64_t right = 0;
        for (int64_t i = 0; i < s->n_queries; i++)
            right += correct[p * s->n_queries + i];
        accuracy[p] = (double)right / (double)s->n_queries;
        out.mean += accuracy[p] / n;
        out.lowest = p ? fmin(out.lowest, accuracy[p]) : accuracy[p];
        out.highest = p ? fmax(out.highest, accuracy[p]) : accuracy[p];
    }
    for (int64_t p = 0; p < s->n_permutations; p++)
        sum += (accuracy[p] - out.mean) * (accuracy[p] - out.mean);
    out.stddev = s->n_permutations > 1 ? sqrt(sum / (n - 1)) : NAN;
    return out;
}

/* The figures of all cells. */
typedef struct {
    double *accuracy;   // [cells, n_permutations]
    double *mean, *lowest, *highest, *stddev;   // [cells]
} Figures;

static Status add_figures(Figures *f, const Shots *s, SeriesSet *set, const int64_t *cells)
{
    static const char *const DIMS[] = {"weights", "logit_bits", "permutation"};
    const struct {
        const char *name, *about;
        double    **to;
        int         n_dims;
    } ROWS[] = {
        {"order/accuracy", "Accuracy with the demonstrations in each order.", &f->accuracy, 3},
        {"order/mean", "Mean accuracy of the orders.", &f->mean, 2},
        {"order/lowest", "Lowest accuracy of an order.", &f->lowest, 2},
        {"order/highest", "Highest accuracy of an order.", &f->highest, 2},
        {"order/stddev", "Standard deviation of the accuracy over orders.", &f->stddev, 2},
    };
    const int64_t shape[] = {cells[0], cells[1], s->n_permutations};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Series *out;
        TRY(series_add(set, &out, SERIES_F64, ROWS[i].name, "", ROWS[i].about, ROWS[i].n_dims,
                       DIMS, shape));
        *ROWS[i].to = out->data;
    }
    return OK;
}

/* Which examples, as numbers of the file's examples. */
static Status add_examples(const Shots *s, SeriesSet *set)
{
    Series *out;
    TRY(series_add(set, &out, SERIES_I64, "order/demonstrations", "",
                   "Examples of the file, from 0, as they stand in each order.", 2,
                   (const char *const[]){"permutation", "shot"},
                   (int64_t[]){s->n_permutations, s->n_shots}));
    memcpy(out->data, s->demonstrations, (size_t)series_count(out) * sizeof(int64_t));
    TRY(series_add(set, &out, SERIES_I64, "order/queries", "",
                   "Examples of the file, from 0, that are asked.", 1,
                   (const char *const[]){"question"}, (int64_t[]){s->n_queries}));
    memcpy(out->data, s->queries, (size_t)series_count(out) * sizeof(int64_t));
    TRY(series_attr_text(set, "order_task", s->name));
    TRY(series_attr_text(set, "order_file", s->path));
    TRY(series_attr_int(set, "order_labels", s->n_labels));
    return series_attr_int(set, "order_seed", (int64_t)s->o.seed);
}

Status shots_series(const Shots *s, const uint8_t *const *correct, int64_t n_weights,
                    int64_t n_bits, SeriesSet *set)
{
    Figures f;
    TRY(add_figures(&f, s, set, (int64_t[]){n_weights, n_bits}));
    for (int64_t c = 0; c < n_weights * n_bits; c++) {
        double   *accuracy = f.accuracy + c * s->n_permutations;
        ShotScore score = {NAN, NAN, NAN, NAN};
        if (correct[c])
            score = shots_score(s, correct[c], accuracy);
        for (int64_t p = 0; p < s->n_permutations && !correct[c]; p++)
            accuracy[p] = NAN;
        f.mean[c] = score.mean;
        f.lowest[c] = score.lowest;
        f.highest[c] = score.highest;
        f.stddev[c] = score.stddev;
    }
    return add_examples(s, set);
}
