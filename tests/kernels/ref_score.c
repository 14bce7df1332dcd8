/* ref_score.c - a last layer in double, and what op_score makes of it. */
#include "tests/kernels/ref_score.h"

#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

Status ref_score_open(RefScore *c, const char *backend, int n_threads, int64_t T, int64_t V,
                      int64_t K, Dtype dtype)
{
    *c = (RefScore){.T = T, .V = V};
    TRY(backend_open(&c->be, backend, n_threads));
    c->host_x = ref_normal(&c->arena, T, K, 1).data;
    c->w = ref_normal(&c->arena, V, K, 2).data;
    c->bias = ref_normal(&c->arena, 1, V, 3).data;
    c->targets = arena_alloc(&c->arena, T, sizeof *c->targets);
    c->best = arena_alloc(&c->arena, T, sizeof *c->best);
    c->logprob = ref_guarded(&c->arena, T);
    c->logits = arena_alloc(&c->arena, T * V, sizeof *c->logits);
    c->loss = ref_linear(c->logits, c->host_x, c->w, c->bias, T, V, K, dtype);
    for (int64_t t = 0; t < T; t++)
        c->targets[t] = t % 3 == 1 ? -1 : (int32_t)((t * 7919) % V);
    TRY(backend_tensor(&c->be, &c->x, 2, (int64_t[]){T, K}));
    TRY(backend_upload(&c->be, &c->x, c->host_x));
    return op_linear_pack(&c->be, &c->head, c->w, c->bias, V, K, dtype);
}

void ref_score_close(RefScore *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

void ref_score_check(const RefScore *c)
{
    for (int64_t t = 0; t < c->T; t++) {
        const double *row = c->logits + t * c->V;
        double        want = c->targets[t] < 0 ? 0 : ref_logprob(row, c->V, c->targets[t]);
        /* The logits' own loss twice over, exp and its sum (2^-22). */
        T_NEAR(c->logprob[t], want, 4 * c->loss + 1e-6 + fabs(want) * 2.4e-7);
        /* Near ties may go either way. */
        T_NEAR(row[c->best[t]], row[ref_best(row, c->V)], 4 * c->loss);
    }
}

Status ref_score_by_hand(RefScore *c, const char *backend, int64_t V, const float *logits)
{
    TRY(ref_score_open(c, backend, 1, 2, V, 1, DTYPE_F32));
    c->targets[0] = c->targets[1] = 0;
    TRY(backend_upload(&c->be, &c->x, (const float[]){1, 1}));
    return op_linear_pack(&c->be, &c->head, logits, NULL, V, 1, DTYPE_F32);
}

void ref_score_first_of_equal(const char *backend)
{
    enum { V = 9000 };
    static float logits[V];
    const int    PLACES[][2] = {{3, 4}, {63, 64}, {255, 256}, {100, 4096}, {4095, 8999}};
    for (int i = 0; i < 5; i++) {
        RefScore c;
        memset(logits, 0, sizeof logits);
        logits[PLACES[i][0]] = logits[PLACES[i][1]] = 2;
        T_STATUS_OK(ref_score_by_hand(&c, backend, V, logits));
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        T_OK(c.best[0] == PLACES[i][0] && c.best[1] == PLACES[i][0]);
        T_NEAR(c.logprob[0], -log(V - 2 + 2 * exp(2)), 1e-6);
        ref_score_close(&c);
    }
}

void ref_score_nan_and_infinity(const char *backend)
{
    enum { V = 5000 };
    static float logits[V];
    RefScore c;
    for (int i = 0; i < V; i++)
        logits[i] = i == 4800 ? NAN : i == 4900 ? 3 : 0;
    T_STATUS_OK(ref_score_by_hand(&c, backend, V, logits));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_OK(isnan(c.logprob[0]) && c.best[0] == 4900);
    ref_score_close(&c);

    logits[4800] = INFINITY;
    T_STATUS_OK(ref_score_by_hand(&c, backend, V, logits));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_OK(isnan(c.logprob[0]) && c.best[0] == 4800);
    ref_score_close(&c);

    /* -inf is a word that cannot come; whole spans of them too. */
    for (int i = 0; i < V; i++)
        logits[i] = i < 4500 ? -INFINITY : 1;
    T_STATUS_OK(ref_score_by_hand(&c, backend, V, logits));
    c.targets[1] = 4600;
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_OK(c.logprob[0] == -INFINITY && c.best[0] == 4500);
    T_NEAR(c.logprob[1], -log(500), 1e-6);
    ref_score_close(&c);

    for (int i = 0; i < V; i++)
        logits[i] = i % 2 ? -INFINITY : NAN;
    T_STATUS_OK(ref_score_by_hand(&c, backend, V, logits));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_OK(isnan(c.logprob[0]) && c.best[0] == 0);
    ref_score_close(&c);
}

/* Logits of hundreds must not overflow, nor small ones vanish beside them. */
void ref_score_large(const char *backend)
{
    float    logits[3] = {-500, 1000, 999};
    RefScore c;
    T_STATUS_OK(ref_score_by_hand(&c, backend, 3, logits));
    c.targets[1] = 2;
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_NEAR(c.logprob[0], -1500 - log1p(exp(-1)), 1e-4);
    T_NEAR(c.logprob[1], -1 - log1p(exp(-1)), 1e-6);
    ref_score_close(&c);
}

void ref_score_survives(const char *backend, int n_threads, Dtype dtype)
{
    for (int k = 1; k < 40; k++) {
        RefScore c;
        T_STATUS_OK(ref_score_open(&c, backend, n_threads, 40, 300, 20, dtype));
        arena_fail_at(k);
        Status s = op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        ref_score_close(&c);
        if (s == OK) {
            T_OK(k > 2);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
