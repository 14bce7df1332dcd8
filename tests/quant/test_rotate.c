/* test_rotate.c - rotations are orthogonal, and a layer in turned coordinates computes
 * the same: in double to rounding, in f32 to the rounding of its weights. */
#include "quant/methods/rotate.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "quant/methods/hadamard.h"
#include "tests/check.h"
#include "tests/quant/ref_layer.h"

enum { T = 7 };

TEST(hadamard_of_four)
{
    double x[4] = {1, 2, 3, 5}, want[4] = {5.5, -1.5, -2.5, 0.5};
    hadamard_transform(x, 4, 1);
    for (int i = 0; i < 4; i++)
        T_NEAR(x[i], want[i], 0);
    double y[6] = {1, 10, 100, 2, 20, 200}, r = sqrt(0.5);
    hadamard_transform(y, 2, 3);
    T_NEAR(y[0], 3 * r, 1e-15);
    T_NEAR(y[2], 300 * r, 1e-13);
    T_NEAR(y[4], -10 * r, 1e-14);
}

/* R [n,n] as a plain matrix. */
static double *dense(Arena *a, const Rotation *r)
{
    int64_t n = r->n;
    double *x, *t, *temp;
    x = arena_alloc(a, n * n, sizeof *x);
    t = arena_alloc(a, n * n, sizeof *t);
    temp = arena_alloc(a, r->m * n, sizeof *temp);
    CHECK(x && t && temp);
    for (int64_t i = 0; i < n; i++)
        x[i * n + i] = 1;
    rotation_apply(r, x, n, temp);  // R^T
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            t[j * n + i] = x[i * n + j];
    return t;
}

TEST(rotations_are_orthogonal_and_spread)
{
    static const int64_t SIZES[] = {1, 2, 3, 7, 8, 12, 24, 40, 45, 96, 128};
    Arena a = {0};
    for (int i = 0; i < 11; i++) {
        Rotation r;
        int64_t  n = SIZES[i];
        double   most = 0;
        T_STATUS_OK(rotation_init(&r, &a, n, 77));
        const double *R = dense(&a, &r);
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++) {
                double dot = 0;
                for (int64_t l = 0; l < n; l++)
                    dot += R[j * n + l] * R[k * n + l];
                T_NEAR(dot, j == k, 1e-14 * (double)(n + 9));
                most = fmax(most, fabs(R[j * n + k]));
            }
        /* Hadamard part: no entry above its root; all equal where there is no rest. */
        T_OK(most <= sqrt((double)r.m / (double)n) * (1 + 1e-12));
        T_OK(r.m > 1 || most >= 1 / sqrt((double)n) * (1 - 1e-12));
    }
    arena_close(&a);
}

TEST(seeds_give_the_generators_own_bits)
{
    /* splitmix64 from 1234567: 6457827717110365317, 3203168211198807973,
     * 9817491932198370423, 4593380528125082431, 16408922859458223821 */
    static const double SIGN[5] = {1, 1, -1, 1, -1};
    Arena    a = {0};
    Rotation r, other;
    T_STATUS_OK(rotation_init(&r, &a, 8, 1234567));
    for (int i = 0; i < 5; i++)
        T_NEAR(r.sign[i], SIGN[i], 0);
    T_STATUS_OK(rotation_init(&r, &a, 96, 5));
    T_STATUS_OK(rotation_init(&other, &a, 96, 5));
    T_OK(!memcmp(r.q, other.q, 9 * sizeof *r.q) && !memcmp(r.sign, other.sign, 96 * 8));
    T_STATUS_OK(rotation_init(&other, &a, 96, 6));
    T_OK(memcmp(r.q, other.q, 9 * sizeof *r.q) && memcmp(r.sign, other.sign, 96 * 8));
    T_OK(rotate_seed(5, 0) != rotate_seed(5, 1) && rotate_seed(5, 0) != 5);
    arena_close(&a);
}

TEST(rows_and_columns_are_products_rounded_once)
{
    enum { N = 40, R = 70 };
    static float x[R * N], y[N * R], norm[N];
    Arena    a = {0};
    Rotation r;
    uint64_t seed = 3;
    T_STATUS_OK(rotation_init(&r, &a, N, 9));
    const double *m = dense(&a, &r);
    for (int i = 0; i < R * N; i++)
        x[i] = y[i] = check_normal(&seed);
    for (int i = 0; i < N; i++)
        norm[i] = check_uniform(&seed);
    float x0[R * N], y0[R * N];
    memcpy(x0, x, sizeof x0);
    memcpy(y0, y, sizeof y0);
    size_t used = a.used;
    T_STATUS_OK(rotation_rows(&r, x, R, norm, &a));
    T_STATUS_OK(rotation_left(&r, y, R, &a));
    T_OK(a.used == used);
    for (int i = 0; i < R; i++)
        for (int j = 0; j < N; j++) {
            double right = 0, left = 0;
            for (int k = 0; k < N; k++) {
                right += (double)x0[i * N + k] * (double)norm[k] * m[k * N + j];
                left += m[k * N + j] * (double)y0[k * R + i];
            }
            /* half a unit of f32, and the order of the sums in double */
            T_NEAR(x[i * N + j], right, fabs(right) * 0x1p-24 + 1e-13);
            T_NEAR(y[j * R + i], left, fabs(left) * 0x1p-24 + 1e-13);
        }
    arena_close(&a);
}

/* --- layers --- */

static const RefShape SHAPES[] = {
    {24, 37, 4, 1, 6, 4, false, false},   // plain
    {24, 40, 6, 1, 6, 2, true, false},    // grouped, biases
    {40, 24, 3, 2, 6, 6, true, true},     // differential
    {24, 33, 4, 2, 5, 4, false, true},    // differential, grouped, odd width
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

/* out [N,K] = left^T (w diag(scale)) right, the parts that are given. */
static double *turned(Arena *a, const double *w, int64_t N, int64_t K, const double *left,
                      const double *right, const double *scale)
{
    double *mid = arena_alloc(a, N * K, sizeof *mid), *out = arena_alloc(a, N * K, sizeof *out);
    CHECK(mid && out);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < K; j++)
            for (int64_t k = right ? 0 : j; k < (right ? K : j + 1); k++)
                mid[i * K + j] += w[i * K + k] * (scale ? scale[k] : 1) *
                                  (right ? right[k * K + j] : 1);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < K; j++)
            for (int64_t k = left ? 0 : i; k < (left ? N : i + 1); k++)
                out[i * K + j] += (left ? left[k * N + i] : 1) * mid[k * K + j];
    return out;
}

/* The matrix of all of v's rows that turns each wide head by r2 [d * M]. */
static double *values_matrix(Arena *a, const ValueMap *map, const double *r2)
{
    int64_t d = map->head_dim, W = d * map->n_parts, V = map->n_values * d;
    double *out = arena_alloc(a, V * V, sizeof *out);
    CHECK(out);
    for (int64_t i = 0; i < map->n_wide; i++)
        for (int64_t j = 0; j < W; j++)
            for (int64_t k = 0; k < W; k++) {
                int64_t row = map->wide[i * map->n_parts + j / d] * d + j % d;
                int64_t col = map->wide[i * map->n_parts + k / d] * d + k % d;
                out[row * V + col] = r2[j * W + k];
            }
    return out;
}

static double *heads_matrix(Arena *a, const ValueMap *map, const double *r2)
{
    int64_t W = map->head_dim * map->n_parts, Q = map->n_heads * W;
    double *out = arena_alloc(a, Q * Q, sizeof *out);
    CHECK(out);
    for (int64_t h = 0; h < map->n_heads; h++)
        for (int64_t j = 0; j < W; j++)
            for (int64_t k = 0; k < W; k++)
                out[(h * W + j) * Q + h * W + k] = r2[j * W + k];
    return out;
}

/* The definition of a turned layer, in double. r2 NULL: none. */
static void turn_layer(RefLayer *out, Arena *a, const RefShape *s, const RefLayer *w,
                       const double *r1, const double *v2, const double *o2)
{
    int64_t C = s->C, F = s->F, Q = s->H * s->M * s->d, V = s->K * s->d;
    out->w[W_Q] = turned(a, w->w[W_Q], Q, C, NULL, r1, w->norm[0]);
    out->w[W_K] = turned(a, w->w[W_K], V, C, NULL, r1, w->norm[0]);
    out->w[W_V] = turned(a, w->w[W_V], V, C, v2, r1, w->norm[0]);
    out->w[W_O] = turned(a, w->w[W_O], C, Q, r1, o2, NULL);
    out->w[W_GATE] = turned(a, w->w[W_GATE], F, C, NULL, r1, w->norm[1]);
    out->w[W_UP] = turned(a, w->w[W_UP], F, C, NULL, r1, w->norm[1]);
    out->w[W_DOWN] = turned(a, w->w[W_DOWN], C, F, r1, NULL, NULL);
    memcpy(out->bias, w->bias, sizeof out->bias);
    out->bias[W_V] = turned(a, w->bias[W_V], V, 1, v2, NULL, NULL);
    out->bias[W_O] = turned(a, w->bias[W_O], C, 1, r1, NULL, NULL);
    out->bias[W_DOWN] = turned(a, w->bias[W_DOWN], C, 1, r1, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        out->norm[i] = arena_alloc(a, C, sizeof(double));
        for (int64_t k = 0; k < C; k++)
            out->norm[i][k] = 1;
    }
}

typedef struct {
    Arena         a;
    RefShape      s;
    LayerWeights  w;
    RefLayer      plain;
    ValueMap      map;
    Rotation      r1, r2;
    const double *d1, *d2;  // the same, dense
    double       *x, *y;    // [T,C] turned input; output, turned
    double       *got;      // [T,C]
} Case;

static void case_open(Case *c, RefShape s, uint64_t seed)
{
    *c = (Case){.s = s};
    ref_layer_random(&c->w, &c->a, &s, seed);
    ref_layer_widen(&c->plain, &c->a, &c->w);
    ref_layer_map(&c->map, &c->a, &s);
    CHECK(rotation_init(&c->r1, &c->a, s.C, seed) == OK);
    CHECK(rotation_init(&c->r2, &c->a, s.d * s.M, rotate_seed(seed, 3)) == OK);
    c->d1 = dense(&c->a, &c->r1);
    c->d2 = dense(&c->a, &c->r2);
    double *x = arena_alloc(&c->a, T * s.C, sizeof *x), *y = arena_alloc(&c->a, T * s.C, 8);
    c->got = arena_alloc(&c->a, T * s.C, sizeof *x);
    CHECK(x && y && c->got);
    for (int64_t i = 0; i < T * s.C; i++)
        x[i] = 3 * (double)check_normal(&seed);
    ref_layer_run(y, NULL, &c->a, &s, &c->plain, x, T);
    c->x = turned(&c->a, x, T, s.C, NULL, c->d1, NULL);
    c->y = turned(&c->a, y, T, s.C, NULL, c->d1, NULL);
}

static double case_error(Case *c, const RefLayer *w)
{
    ref_layer_run(c->got, NULL, &c->a, &c->s, w, c->x, T);
    return ref_layer_error(c->got, c->y, T * c->s.C);
}

TEST(a_turned_layer_is_the_same_in_double)
{
    for (int i = 0; i < N_SHAPES; i++) {
        Case     c;
        RefLayer t;
        case_open(&c, SHAPES[i], (uint64_t)i + 1);
        T_OK(c.map.paired);
        turn_layer(&t, &c.a, &c.s, &c.plain, c.d1, values_matrix(&c.a, &c.map, c.d2),
                   heads_matrix(&c.a, &c.map, c.d2));
        T_OK(case_error(&c, &t) <= 1e-12);
        arena_close(&c.a);
    }
}

/* Weights of the rotated layer are those of turn_layer, rounded once. */
static bool is_rounded(const LayerWeights *w, const RefLayer *t)
{
    for (int i = 0; i < N_WEIGHTS; i++) {
        for (int64_t k = 0; k < w->at[i].n * w->at[i].k; k++)
            if (!(fabs((double)w->at[i].w[k] - t->w[i][k]) <=
                  fabs(t->w[i][k]) * 0x1p-24 + 1e-13))
                return false;
        for (int64_t k = 0; w->at[i].bias && k < w->at[i].n; k++)
            if (!(fabs((double)w->at[i].bias[k] - t->bias[i][k]) <=
                  fabs(t->bias[i][k]) * 0x1p-24 + 1e-13))
                return false;
    }
    return true;
}

TEST(rotate_layer_is_that_layer_rounded_once)
{
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        Case     c;
        RefLayer t;
        bool     wide = i < N_SHAPES;
        case_open(&c, SHAPES[i % N_SHAPES], (uint64_t)i + 1);
        turn_layer(&t, &c.a, &c.s, &c.plain, c.d1,
                   wide ? values_matrix(&c.a, &c.map, c.d2) : NULL,
                   wide ? heads_matrix(&c.a, &c.map, c.d2) : NULL);
        size_t used = c.a.used;
        T_STATUS_OK(rotate_layer(&c.w, &c.map, &c.r1, wide ? &c.r2 : NULL, &c.a));
        T_OK(c.a.used == used);
        T_OK(is_rounded(&c.w, &t));
        for (int64_t k = 0; k < c.s.C; k++)
            T_OK(c.w.norm[0][k] == 1 && c.w.norm[1][k] == 1);
        ref_layer_widen(&t, &c.a, &c.w);
        /* weights off by 2^-24, in sums of up to 48, through three products */
        T_OK(case_error(&c, &t) <= 2e-6);
        arena_close(&c.a);
    }
}

/* What a tool does that takes v heads as they come: head j of v and the j-th d columns
 * of o turn together. In plain attention without groups these are the same head. */
TEST(turning_v_heads_in_their_own_order_breaks_a_pair)
{
    for (int i = 0; i < N_SHAPES; i++) {
        Case c;
        case_open(&c, SHAPES[i], 5);
        int64_t d = c.s.d, V = c.s.K * d;
        if (c.s.K != c.s.H * c.s.M) {
            arena_close(&c.a);
            continue;
        }
        double *each = arena_alloc(&c.a, V * V, sizeof *each);
        for (int64_t j = 0; j < c.s.K; j++) {
            Rotation r;
            T_STATUS_OK(rotation_init(&r, &c.a, d, (uint64_t)j));
            const double *m = dense(&c.a, &r);
            for (int64_t k = 0; k < d * d; k++)
                each[(j * d + k / d) * V + j * d + k % d] = m[k];
        }
        RefLayer t;
        turn_layer(&t, &c.a, &c.s, &c.plain, c.d1, each, each);
        double error = case_error(&c, &t);
        T_OK(c.s.M == 1 ? error <= 1e-12 : error > 0.01);
        arena_close(&c.a);
    }
}

TEST(odd_key_value_heads_do_not_pair)
{
    /* three v heads for three wide ones: (0,1), (0,2), (1,2); one: (0,0) */
    static const RefShape ODD[] = {{24, 24, 3, 2, 4, 3, true, true},
                                   {24, 24, 2, 2, 4, 1, true, true}};
    for (int i = 0; i < 2; i++) {
        Case     c;
        RefLayer t;
        case_open(&c, ODD[i], 8);
        T_OK(!c.map.paired);
        T_STATUS_OK(rotate_layer(&c.w, &c.map, &c.r1, NULL, &c.a));
        ref_layer_widen(&t, &c.a, &c.w);
        T_OK(case_error(&c, &t) <= 2e-6);
        arena_close(&c.a);
    }
}

TEST(embedding_and_head_keep_the_logits)
{
    enum { C = 24, V = 37 };
    float    embed[C] = {0}, head[V * C], norm[C];
    double   want[V];
    Arena    a = {0};
    Rotation r;
    uint64_t seed = 4;
    T_STATUS_OK(rotation_init(&r, &a, C, 1));
    for (int i = 0; i < V * C; i++)
        head[i] = check_normal(&seed);
    for (int i = 0; i < C; i++) {
        embed[i] = check_normal(&seed);
        norm[i] = 1 + check_uniform(&seed);
    }
    /* the root mean square of the embedding is left out: a rotation keeps it */
    for (int v = 0; v < V; v++) {
        want[v] = 0;
        for (int i = 0; i < C; i++)
            want[v] += (double)embed[i] * (double)norm[i] * (double)head[v * C + i];
    }
    T_STATUS_OK(rotate_embed(embed, 1, &r, &a));
    T_STATUS_OK(rotate_head(head, V, norm, &r, &a));
    for (int v = 0; v < V; v++) {
        double got = 0;
        for (int i = 0; i < C; i++)
            got += (double)embed[i] * (double)head[v * C + i];
        T_NEAR(got, want[v], 24 * 4 * 0x1p-23);
    }
    arena_close(&a);
}

TEST(threads_change_nothing)
{
    Case one, many;
    int  before = omp_get_max_threads();
    case_open(&one, SHAPES[2], 6);
    case_open(&many, SHAPES[2], 6);
    omp_set_num_threads(1);
    T_STATUS_OK(rotate_layer(&one.w, &one.map, &one.r1, &one.r2, &one.a));
    omp_set_num_threads(5);
    T_STATUS_OK(rotate_layer(&many.w, &many.map, &many.r1, &many.r2, &many.a));
    omp_set_num_threads(before);
    for (int i = 0; i < N_WEIGHTS; i++)
        T_OK(!one.w.at[i].w || !memcmp(one.w.at[i].w, many.w.at[i].w,
                     (size_t)(one.w.at[i].n * one.w.at[i].k) * sizeof(float)));
    arena_close(&one.a);
    arena_close(&many.a);
}

TEST(no_memory_leaves_the_layer_as_it_was)
{
    Case c;
    case_open(&c, SHAPES[3], 6);
    Status s = ERR_MEMORY;
    for (int64_t k = 1; s != OK; k++) {
        RefLayer t;
        Arena    none = {0};
        T_OK(k < 9);
        arena_fail_at(k);
        s = rotate_layer(&c.w, &c.map, &c.r1, &c.r2, &none);
        arena_fail_at(0);
        arena_close(&none);
        ref_layer_widen(&t, &c.a, &c.w);
        T_OK(s == OK || !memcmp(t.w[W_V], c.plain.w[W_V], (size_t)c.w.at[W_V].n * 24 * 8));
        T_OK(s == OK || !memcmp(t.norm[1], c.plain.norm[1], 24 * 8));
    }
    arena_close(&c.a);
}
