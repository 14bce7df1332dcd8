/* test_score.c - log_softmax of the last layer against double; V on both sides
 * of panels (64), blocks (256) and spans (4096). */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

typedef struct {
    Arena    arena;
    Backend  be;
    Tensor   x, w, bias;
    Linear   head;
    int32_t *targets, *best;
    float   *logprob;
    double  *logits;  // [T,V]
    double   loss;
} Case;

static Status case_open(Case *c, int64_t T, int64_t V, int64_t K, Dtype dtype, int n_threads)
{
    *c = (Case){0};
    c->x = ref_normal(&c->arena, T, K, 1);
    c->w = ref_normal(&c->arena, V, K, 2);
    c->bias = ref_normal(&c->arena, 1, V, 3);
    c->targets = arena_alloc(&c->arena, T, sizeof *c->targets);
    c->best = arena_alloc(&c->arena, T, sizeof *c->best);
    c->logprob = ref_guarded(&c->arena, T);
    c->logits = arena_alloc(&c->arena, T * V, sizeof *c->logits);
    c->loss = ref_linear(c->logits, c->x.data, c->w.data, c->bias.data, T, V, K, dtype);
    for (int64_t t = 0; t < T; t++)
        c->targets[t] = t % 3 == 1 ? -1 : (int32_t)((t * 7919) % V);
    TRY(backend_open(&c->be, "cpu", n_threads));
    return op_linear_pack(&c->be, &c->head, c->w.data, c->bias.data, V, K, dtype);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

static void check_size(int64_t T, int64_t V, int64_t K, Dtype dtype)
{
    Case c;
    T_STATUS_OK(case_open(&c, T, V, K, dtype, 2));
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    for (int64_t t = 0; t < T; t++) {
        const double *row = c.logits + t * V;
        double        want = c.targets[t] < 0 ? 0 : ref_logprob(row, V, c.targets[t]);
        /* The logits' own loss twice over, exp and its sum (2^-22). */
        T_NEAR(c.logprob[t], want, 4 * c.loss + 1e-6 + fabs(want) * 2.4e-7);
        /* Near ties may go either way. */
        T_NEAR(row[c.best[t]], row[ref_best(row, V)], 4 * c.loss);
    }
    T_OK(ref_guards_hold(c.logprob, T));
    float *again = ref_guarded(&c.arena, T);
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, again, NULL));
    T_OK(memcmp(again, c.logprob, (size_t)T * sizeof *again) == 0);
    case_close(&c);
}

TEST(score_agrees_with_double)
{
    REF_EACH_ISA(isa)
    for (int bf16 = 0; bf16 < 2; bf16++) {
        Dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
        check_size(1, 5, 3, dtype);
        check_size(1, 300, 33, dtype);
        check_size(2, 64, 16, dtype);
        check_size(35, 65, 20, dtype);
        check_size(33, 4096, 8, dtype);
        check_size(40, 9001, 9, dtype);
    }
}

TEST(score_bits_depend_neither_on_threads_nor_on_other_rows)
{
    enum { T = 80, V = 5000, K = 24 };
    REF_EACH_ISA(isa)
    for (int bf16 = 0; bf16 < 2; bf16++) {
        Case one, two;
        T_STATUS_OK(case_open(&one, T, V, K, bf16 ? DTYPE_BF16 : DTYPE_F32, 1));
        T_STATUS_OK(case_open(&two, T, V, K, bf16 ? DTYPE_BF16 : DTYPE_F32, 2));
        T_STATUS_OK(op_score(&one.be, &one.x, &one.head, one.targets, one.logprob, one.best));
        /* Rows 41 .. 80 alone; without best, fewer rows are computed. */
        Tensor part = tensor_2d(DTYPE_F32, (float *)two.x.data + 41 * K, T - 41, K);
        T_STATUS_OK(op_score(&two.be, &part, &two.head, one.targets + 41, two.logprob, NULL));
        T_OK(memcmp(two.logprob, one.logprob + 41, (T - 41) * sizeof(float)) == 0);
        case_close(&one);
        case_close(&two);
    }
}

/* Logits by hand: K = 1 and x = 1, so the weights are the logits. */
static Status by_hand(Case *c, int64_t V, const float *logits)
{
    TRY(case_open(c, 2, V, 1, DTYPE_F32, 1));
    ((float *)c->x.data)[0] = ((float *)c->x.data)[1] = 1;
    c->targets[0] = c->targets[1] = 0;
    return op_linear_pack(&c->be, &c->head, logits, NULL, V, 1, DTYPE_F32);
}

TEST(score_takes_the_first_of_equal_logits)
{
    enum { V = 9000 };
    static float logits[V];
    const int    PLACES[][2] = {{3, 4}, {63, 64}, {255, 256}, {100, 4096}, {4095, 8999}};
    REF_EACH_ISA(isa)
    for (int i = 0; i < 5; i++) {
        Case c;
        memset(logits, 0, sizeof logits);
        logits[PLACES[i][0]] = logits[PLACES[i][1]] = 2;
        T_STATUS_OK(by_hand(&c, V, logits));
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        T_OK(c.best[0] == PLACES[i][0] && c.best[1] == PLACES[i][0]);
        T_NEAR(c.logprob[0], -log(V - 2 + 2 * exp(2)), 1e-6);
        case_close(&c);
    }
}

TEST(score_of_nan_and_infinite_logits)
{
    enum { V = 5000 };
    static float logits[V];
    REF_EACH_ISA(isa)
    {
        Case c;
        for (int i = 0; i < V; i++)
            logits[i] = i == 4800 ? NAN : i == 4900 ? 3 : 0;
        T_STATUS_OK(by_hand(&c, V, logits));
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        T_OK(isnan(c.logprob[0]) && c.best[0] == 4900);
        case_close(&c);

        logits[4800] = INFINITY;
        T_STATUS_OK(by_hand(&c, V, logits));
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        T_OK(isnan(c.logprob[0]) && c.best[0] == 4800);
        case_close(&c);

        /* -inf is a word that cannot come; whole blocks of them too. */
        for (int i = 0; i < V; i++)
            logits[i] = i < 4500 ? -INFINITY : 1;
        T_STATUS_OK(by_hand(&c, V, logits));
        c.targets[1] = 4600;
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        T_OK(c.logprob[0] == -INFINITY && c.best[0] == 4500);
        T_NEAR(c.logprob[1], -log(500), 1e-6);
        case_close(&c);
    }
}

/* Logits of hundreds must not overflow, nor small ones vanish beside them. */
TEST(score_of_large_logits)
{
    float logits[3] = {-500, 1000, 999};
    Case  c;
    T_STATUS_OK(by_hand(&c, 3, logits));
    c.targets[1] = 2;
    T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
    T_NEAR(c.logprob[0], -1500 - log1p(exp(-1)), 1e-4);
    T_NEAR(c.logprob[1], -1 - log1p(exp(-1)), 1e-6);
    case_close(&c);
}

TEST(score_checks_targets)
{
    Case c;
    T_STATUS_OK(case_open(&c, 2, 10, 4, DTYPE_F32, 1));
    c.targets[1] = 10;
    T_FAILS(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL), ERR_RANGE,
            "score: target 1 is 10");
    c.x.shape[1] = 5;
    T_FAILS(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL), ERR_SHAPE,
            "score: x is F32 [2,5], expected F32 [any,4]");
    case_close(&c);
}

TEST(score_survives_every_failed_allocation)
{
    for (int k = 1; k < 20; k++) {
        Case c;
        T_STATUS_OK(case_open(&c, 40, 300, 20, DTYPE_F32, 2));
        arena_fail_at(k);
        Status s = op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, NULL);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && strstr(status_text(), "out of memory")));
        T_STATUS_OK(op_score(&c.be, &c.x, &c.head, c.targets, c.logprob, c.best));
        case_close(&c);
        if (s == OK) {
            T_OK(k > 2);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}
