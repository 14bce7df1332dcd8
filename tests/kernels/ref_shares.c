/* ref_shares.c - one row of a head at a time, one loop a figure. */
#include "tests/kernels/ref_shares.h"

#include <math.h>
#include <string.h>

static double entropy_of(const double *w, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum -= w[i] > 0 ? w[i] * log(w[i]) : 0;
    return sum;
}

static double mass(const double *w, Span s)
{
    double sum = 0;
    for (int64_t i = s.first; i < s.end; i++)
        sum += w[i];
    return sum;
}

/* One sampled row of one head, its n weights in double, 0 out of reach. */
static void add_row(ShareRecord *sh, const double *const *w, const double *diff, int64_t n,
                    double lambda, Span span)
{
    bool seen = span.end > span.first && span.end <= n - 1;
    sh->rows++;
    sh->span_rows += seen;
    for (int m = 0; m < 2 && w[m]; m++) {
        sh->entropy[m] += entropy_of(w[m], n);
        sh->first[m] += w[m][0];
        sh->span[m] += seen ? mass(w[m], span) : 0;
    }
    sh->diff_first += diff[0];
    sh->diff_span += seen ? mass(diff, span) : 0;
    for (int64_t i = 0; i < n; i++) {
        sh->diff_abs += fabs(diff[i]);
        sh->diff_abs_first += i == 0 ? fabs(diff[i]) : 0;
        sh->diff_abs_span += seen && i >= span.first && i < span.end ? fabs(diff[i]) : 0;
        sh->negative += diff[i] < 0;
        sh->cancelled += w[1] ? fmin(w[0][i], lambda * w[1][i]) : 0;
    }
}

static void add_query(ShareRecord *sh, const Case *c, const RefMaps *r, int64_t b, int64_t t,
                      Span span)
{
    int64_t M = c->a.n_maps, n = r->S - r->T + t + 1;
    for (int64_t h = 0; h < c->a.n_heads; h++) {
        const double *first = r->weights + (h * M * r->T + t) * r->S;
        const double *w[2] = {first, M == 2 ? first + r->T * r->S : NULL};
        add_row(&sh[h], w, r->diff + (h * r->T + t) * r->S, n,
                ref_lambda(c, c->start[b] + t, h), span);
        for (int64_t s = 0; s < n; s++)
            sh[h].weights += ref_sees(c, r, t, s);
    }
}

Status ref_shares(ShareRecord *shares, const Case *c, const Span *spans)
{
    memset(shares, 0, (size_t)c->a.n_heads * sizeof *shares);
    for (int64_t b = 0; b < c->shape.n_sequences; b++) {
        RefMaps r;
        Arena   arena = {0};
        TRY(ref_attention(&r, &arena, c, b));
        for (int64_t t = 0; t < r.T; t++) {
            const uint8_t *rows = c->a.share_rows;
            bool every = (r.S - r.T + t) % SHARE_STRIDE == SHARE_STRIDE - 1;
            if (rows ? rows[c->start[b] + t] : every)
                add_query(shares, c, &r, b, t, spans ? spans[b] : (Span){0, 0});
        }
        arena_close(&arena);
    }
    return OK;
}

bool ref_shares_close(const ShareRecord *a, const ShareRecord *ref)
{
    double tol = 2e-6 * (double)ref->rows;
    bool close = a->rows == ref->rows && a->weights == ref->weights &&
                 a->span_rows == ref->span_rows && a->negative == ref->negative;
    for (int m = 0; m < 2; m++)
        close = close && fabs(a->entropy[m] - ref->entropy[m]) <= 5 * tol &&
                fabs(a->first[m] - ref->first[m]) <= tol &&
                fabs(a->span[m] - ref->span[m]) <= tol;
    return close && fabs(a->diff_first - ref->diff_first) <= tol &&
           fabs(a->diff_span - ref->diff_span) <= tol &&
           fabs(a->diff_abs - ref->diff_abs) <= tol &&
           fabs(a->diff_abs_first - ref->diff_abs_first) <= tol &&
           fabs(a->diff_abs_span - ref->diff_abs_span) <= tol &&
           fabs(a->cancelled - ref->cancelled) <= tol && a->row_sum_error <= 2e-6;
}
