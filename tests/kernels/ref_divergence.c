/* ref_divergence.c - two heads side by side, in double. V on both sides of panels (64), blocks
 * (256) and spans (4096). */
#include "tests/kernels/ref_divergence.h"

#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

static Status outputs(RefPair *c, int64_t T)
{
    ARENA_NEW(c->pair.kl, &c->arena, T + 1);
    for (int64_t t = 0; t <= T; t++)
        c->pair.kl[t] = NAN;  // the last one is nobody's
    for (int i = 0; i < 2; i++) {
        ARENA_NEW(c->pair.logprob[i], &c->arena, T);
        ARENA_NEW(c->pair.best[i], &c->arena, T);
    }
    return OK;
}

Status ref_pair_open(RefPair *c, const char *backend, int n_threads, int64_t T, int64_t V,
                     const int64_t K[2], const Dtype dtype[2])
{
    *c = (RefPair){0};
    TRY(backend_open(&c->be, backend, n_threads));
    c->targets = arena_alloc(&c->arena, T, sizeof *c->targets);
    for (int64_t t = 0; t < T; t++)
        c->targets[t] = t % 3 == 1 ? -1 : (int32_t)((t * 7919) % V);
    c->pair.targets = c->targets;
    for (int i = 0; i < 2; i++) {
        c->host_x[i] = ref_normal(&c->arena, T, K[i], 1 + 10 * i).data;
        c->w[i] = ref_normal(&c->arena, V, K[i], 2 + 10 * i).data;
        c->bias[i] = ref_normal(&c->arena, 1, V, 3 + 10 * i).data;
        c->logits[i] = arena_alloc(&c->arena, T * V, sizeof(double));
        c->loss[i] = ref_linear(c->logits[i], c->host_x[i], c->w[i], c->bias[i], T, V, K[i],
                                dtype[i]);
        TRY(backend_tensor(&c->be, &c->x[i], 2, (int64_t[]){T, K[i]}));
        TRY(backend_upload(&c->be, &c->x[i], c->host_x[i]));
        TRY(op_linear_pack(&c->be, &c->head[i], c->w[i], c->bias[i], V, K[i], dtype[i]));
        c->pair.x[i] = &c->x[i];
        c->pair.head[i] = &c->head[i];
    }
    return outputs(c, T);
}

void ref_pair_close(RefPair *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

/* Of rows of logits, as torch has it: words of probability 0 add nothing. */
static double ref_kl(const double *a, const double *b, int64_t V)
{
    long double sum = 0;
    for (int64_t v = 0; v < V; v++) {
        long double lb = (long double)ref_logprob(b, V, v);
        if (expl(lb) > 0)
            sum += expl(lb) * (lb - (long double)ref_logprob(a, V, v));
    }
    return (double)sum;
}

/* ref_kl takes V^2; this is the same with log sum exp once. */
static double ref_kl_wide(const double *a, const double *b, int64_t V)
{
    const double *x[2] = {a, b};
    long double   sum[2] = {0, 0}, cross = 0, top[2];
    for (int i = 0; i < 2; i++) {
        top[i] = (long double)x[i][ref_best(x[i], V)];
        for (int64_t v = 0; v < V; v++)
            sum[i] += expl((long double)x[i][v] - top[i]);
    }
    for (int64_t v = 0; v < V; v++) {
        long double p = expl((long double)b[v] - top[1]) / sum[1];
        if (p > 0)
            cross += p * (((long double)b[v] - top[1]) - ((long double)a[v] - top[0]));
    }
    return (double)(cross + logl(sum[0]) - logl(sum[1]));
}

void ref_pair_size(const char *backend, int64_t T, int64_t V, const int64_t K[2],
                   const Dtype dtype[2])
{
    RefPair c;
    T_STATUS_OK(ref_pair_open(&c, backend, 2, T, V, K, dtype));
    T_STATUS_OK(op_divergence(&c.be, &c.pair));
    for (int64_t t = 0; t < T; t++) {
        const double *a = c.logits[0] + t * V, *b = c.logits[1] + t * V;
        double        want = V < 100 ? ref_kl(a, b, V) : ref_kl_wide(a, b, V);
        /* KL moves by at most twice what any logit does, first order; here by sum(p_b
         * |lb - la| delta) too, and those differences stay below 60. */
        T_NEAR(c.pair.kl[t], want, 4 * (c.loss[0] + c.loss[1]) + 64 * c.loss[1] + 1e-12);
        for (int i = 0; i < 2; i++) {
            const double *row = c.logits[i] + t * V;
            double at = c.targets[t] < 0 ? 0 : ref_logprob(row, V, c.targets[t]);
            T_NEAR(c.pair.logprob[i][t], at, 4 * c.loss[i] + 1e-12);
            T_NEAR(row[c.pair.best[i][t]], row[ref_best(row, V)], 4 * c.loss[i]);
        }
    }
    T_OK(isnan(c.pair.kl[T]));
    ref_pair_close(&c);
}

/* --- logits by hand: K = 1 and x = 1, so the weights are the logits --- */

Status ref_pair_by_hand(RefPair *c, const char *backend, int64_t V, const float *a,
                        const float *b)
{
    static const int64_t K[2] = {1, 1};
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    const float         *logits[2] = {a, b};
    TRY(ref_pair_open(c, backend, 1, 2, V, K, F32));
    c->targets[0] = 0;
    c->targets[1] = (int32_t)V - 1;
    for (int i = 0; i < 2; i++) {
        TRY(backend_upload(&c->be, &c->x[i], (const float[]){1, 1}));
        TRY(op_linear_pack(&c->be, &c->head[i], logits[i], NULL, V, 1, DTYPE_F32));
    }
    TRY(op_divergence(&c->be, &c->pair));
    return OK;
}

enum { WIDE = 9000 };
static float  near[2][WIDE];
static double exact[2][WIDE];

static void widen(int64_t V)
{
    for (int i = 0; i < 2; i++)
        for (int64_t v = 0; v < V; v++)
            exact[i][v] = (double)near[i][v];
}

/* A KL of 1e-9 from logits of 20: in f32 nothing would be left of it. */
void ref_pair_small(const char *backend)
{
    static const float APART[] = {1e-4f, 1e-2f, 1};
    for (int k = 0; k < 3; k++) {
        uint64_t seed = 5;
        RefPair  c;
        for (int i = 0; i < WIDE; i++) {
            near[1][i] = 4 * check_normal(&seed);
            near[0][i] = near[1][i] + APART[k] * check_normal(&seed) + 3;
        }
        widen(WIDE);
        double want = ref_kl_wide(exact[0], exact[1], WIDE);
        T_OK(want > 1e-10 && want < 2);
        T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
        /* exp is good to 2^-47, the logits are of the order of 20 */
        T_NEAR(c.pair.kl[0], want, 1e-9 * want + 20 * 0x1p-47);
        T_OK(c.pair.kl[0] == c.pair.kl[1]);
        ref_pair_close(&c);
    }
}

void ref_pair_equal(const char *backend)
{
    uint64_t seed = 6;
    RefPair  c;
    for (int i = 0; i < WIDE; i++)
        near[0][i] = 9 * check_normal(&seed);
    T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[0]));
    T_OK(c.pair.kl[0] == 0 && c.pair.best[0][0] == c.pair.best[1][0]);
    T_OK(c.pair.logprob[0][1] == c.pair.logprob[1][1]);
    ref_pair_close(&c);
}

/* The same but for a constant that leaves every digit: 0 up to rounding, which must not
 * take it below. Before it is stopped it goes there with some of these constants. */
void ref_pair_not_negative(const char *backend, int V, int shifts)
{
    for (int shift = 1; shift <= shifts; shift++) {
        uint64_t seed = 7;
        RefPair  c;
        for (int i = 0; i < V; i++) {
            near[0][i] = roundf(256 * check_normal(&seed)) / 64;
            near[1][i] = near[0][i] + (float)shift;
        }
        T_STATUS_OK(ref_pair_by_hand(&c, backend, V, near[0], near[1]));
        T_OK(c.pair.kl[0] >= 0);
        T_NEAR(c.pair.kl[0], 0, 1e-13);
        ref_pair_close(&c);
    }
}

/* The maximum moves with every piece, by more than exp can hold, in one model up and in
 * the other down. */
void ref_pair_moving_maximum(const char *backend)
{
    for (int steep = 0; steep < 2; steep++) {
        RefPair c;
        for (int i = 0; i < WIDE; i++) {
            float at = (steep ? 0.25f : 0.002f) * (float)(i - WIDE / 2);
            near[1][i] = at;
            near[0][i] = 0.5f * (steep ? -at : at);
        }
        widen(WIDE);
        double want = ref_kl_wide(exact[0], exact[1], WIDE);
        T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
        T_NEAR(c.pair.kl[0], want, 1e-12 * want + 1e-10);
        T_OK(c.pair.best[1][0] == WIDE - 1 && c.pair.best[0][0] == (steep ? 0 : WIDE - 1));
        T_NEAR(c.pair.logprob[1][1], ref_logprob(exact[1], WIDE, WIDE - 1), 1e-12);
        T_NEAR(c.pair.logprob[0][0], ref_logprob(exact[0], WIDE, 0), 1e-12);
        ref_pair_close(&c);
    }
}

void ref_pair_first_of_equal(const char *backend)
{
    static const int PLACES[][2] = {{3, 4}, {63, 64}, {255, 256}, {100, 4096}, {4095, 8999}};
    for (int k = 0; k < 5; k++) {
        RefPair c;
        memset(near, 0, sizeof near);
        near[0][PLACES[k][0]] = near[0][PLACES[k][1]] = 2;
        near[1][PLACES[k][1]] = 1;
        T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
        T_OK(c.pair.best[0][0] == PLACES[k][0] && c.pair.best[1][0] == PLACES[k][1]);
        ref_pair_close(&c);
    }
}

/* Rows of nothing but -inf up to `from`. */
static void impossible(float *row, int from)
{
    for (int i = 0; i < WIDE; i++)
        row[i] = i < from ? -INFINITY : 1 + (float)(i % 3);
}

void ref_pair_impossible_words(const char *backend)
{
    RefPair c;
    impossible(near[0], 4500);
    impossible(near[1], 4500);
    near[0][4600] = 3.5f;
    widen(WIDE);
    T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
    T_NEAR(c.pair.kl[0], ref_kl_wide(exact[0], exact[1], WIDE), 1e-12);
    T_OK(c.pair.kl[0] > 0 && c.pair.logprob[0][0] == -INFINITY);
    ref_pair_close(&c);

    impossible(near[1], 5000);  // only the model can say 4500 .. 4999
    widen(WIDE);
    T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
    T_NEAR(c.pair.kl[0], ref_kl_wide(exact[0], exact[1], WIDE), 1e-12);
    ref_pair_close(&c);

    /* Only the reference can. */
    T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[1], near[0]));
    T_OK(c.pair.kl[0] == INFINITY && isfinite(c.pair.logprob[0][1]));
    ref_pair_close(&c);

    /* One of e^-800 that the model cannot say: as nothing. It stands first, when it
     * is still the likeliest. */
    for (int i = 0; i < WIDE; i++)
        near[0][i] = near[1][i] = i < 4500 ? 0 : 800;
    near[0][0] = -INFINITY;
    T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
    T_OK(c.pair.kl[0] == 0);
    ref_pair_close(&c);
}

void ref_pair_nan_and_infinity(const char *backend)
{
    static const float BAD[] = {NAN, INFINITY};
    static const int   PLACES[] = {0, 4800, WIDE - 1};
    for (int k = 0; k < 12; k++) {
        RefPair  c;
        int      in = k % 2, at = PLACES[k / 4];
        float    bad = BAD[k / 2 % 2];
        for (int i = 0; i < WIDE; i++)
            near[0][i] = near[1][i] = i == 4900 ? 3 : i < 4500 ? -INFINITY : 0;
        near[in][at] = bad;
        T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
        T_OK(isnan(c.pair.kl[0]) && isnan(c.pair.logprob[in][0]));
        T_OK(!isnan(c.pair.logprob[!in][0]));
        T_OK(c.pair.best[in][0] == (isnan(bad) ? 4900 : at) && c.pair.best[!in][0] == 4900);
        ref_pair_close(&c);
    }
    RefPair c;
    impossible(near[0], WIDE);  // no word at all
    impossible(near[1], 0);
    T_STATUS_OK(ref_pair_by_hand(&c, backend, WIDE, near[0], near[1]));
    T_OK(isnan(c.pair.kl[0]));
    ref_pair_close(&c);
}

void ref_pair_no_rows(const char *backend)
{
    static const int64_t K[2] = {4, 4};
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    RefPair c;
    T_STATUS_OK(ref_pair_open(&c, backend, 1, 1, 10, K, F32));
    c.x[0].shape[0] = c.x[1].shape[0] = 0;
    T_STATUS_OK(op_divergence(&c.be, &c.pair));
    T_OK(isnan(c.pair.kl[0]));
    ref_pair_close(&c);
}

void ref_pair_survives(const char *backend, int n_threads, int least)
{
    static const int64_t K[2] = {20, 30};
    static const Dtype   F32[2] = {DTYPE_F32, DTYPE_F32};
    for (int k = 1; k < 20; k++) {
        RefPair c;
        T_STATUS_OK(ref_pair_open(&c, backend, n_threads, 40, 300, K, F32));
        arena_fail_at(k);
        Status s = op_divergence(&c.be, &c.pair);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(op_divergence(&c.be, &c.pair));
        T_OK(c.pair.kl[39] > 0);
        ref_pair_close(&c);
        if (s == OK) {
            T_OK(k > least);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
