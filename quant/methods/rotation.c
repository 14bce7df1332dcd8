/* rotation.c - making R and multiplying by it.
 * Matrices are turned in blocks, in double, in memory of the thread's own. */
#include "quant/methods/rotation.h"

#include <omp.h>

#include "analysis/random.h"
#include "kernels/size.h"
#include "quant/methods/hadamard.h"

static double random_uniform(uint64_t *state)  // in [-1,1)
{
    return (double)(int64_t)random_bits(state) * 0x1p-63;
}

/* q [m,m] becomes q (I - 2 v v^T / v.v), the mirror image in a random plane. */
static void reflect(double *q, int64_t m, double *v, uint64_t *state)
{
    double norm2 = 0;
    for (int64_t i = 0; i < m; i++) {
        v[i] = random_uniform(state);
        norm2 += v[i] * v[i];
    }
    for (int64_t i = 0; i < m && norm2 > 0; i++) {
        double dot = 0;
        for (int64_t j = 0; j < m; j++)
            dot += q[i * m + j] * v[j];
        for (int64_t j = 0; j < m; j++)
            q[i * m + j] -= 2 * dot / norm2 * v[j];
    }
}

/* A product of m reflections: orthogonal to some m units of double. Numbers are
 * uniform, not normal, as log and cos differ from one C library to the next. */
static Status random_orthogonal(double **out, Arena *a, int64_t m, uint64_t *state)
{
    size_t  count;
    double *q, *v;
    if (!size_mul((size_t)m, (size_t)m, &count) || count > INT64_MAX)
        FAIL(ERR_MEMORY, "out of memory: a rotation of odd size %lld", (long long)m);
    ARENA_NEW(q, a, (int64_t)count);
    ARENA_NEW(v, a, m);
    for (int64_t i = 0; i < m; i++)
        q[i * m + i] = 1;
    for (int64_t i = 0; i < m && m > 1; i++)
        reflect(q, m, v, state);
    *out = q;
    return OK;
}

Status rotation_init(Rotation *r, Arena *a, int64_t n, uint64_t seed)
{
    uint64_t state = seed;
    double  *q = NULL, *sign;
    int64_t  m = n;
    CHECK(n > 0);
    while (m % 2 == 0)
        m /= 2;
    ARENA_NEW(sign, a, n);
    TRY(random_orthogonal(&q, a, m, &state));
    for (int64_t i = 0; i < n; i++)
        sign[i] = random_bits(&state) >> 63 ? -1 : 1;
    *r = (Rotation){n, m, q, sign};
    return OK;
}

/* x [m,c] becomes Q^T x. */
static void mix(const Rotation *r, double *x, int64_t c, double *temp)
{
    for (int64_t j = 0; j < r->m; j++) {
        double *to = temp + j * c;
        for (int64_t k = 0; k < c; k++)
            to[k] = 0;
        for (int64_t i = 0; i < r->m; i++) {
            double q = r->q[i * r->m + j];
            for (int64_t k = 0; k < c; k++)
                to[k] += q * x[i * c + k];
        }
    }
    for (int64_t i = 0; i < r->m * c; i++)
        x[i] = temp[i];
}

void rotation_apply(const Rotation *r, double *x, int64_t c, double *temp)
{
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t k = 0; k < c; k++)
            x[i * c + k] *= r->sign[i];
    hadamard_transform(x, r->n / r->m, r->m * c);
    for (int64_t i = 0; i < r->n && r->m > 1; i += r->m)
        mix(r, x + i * c, c, temp);
}

/* Doubles that a block takes, and beside it the larger of the mixes. */
static int64_t room(const RotationBlock *b)
{
    int64_t left = b->left ? b->left->m * b->cols : 0, right = b->right ? b->right->m : 0;
    return b->rows * b->cols + i64_max(left, right);
}

static void turn(const RotationBlock *b, double *x)
{
    int64_t R = b->rows, C = b->cols;
    for (int64_t i = 0; i < R; i++) {
        const float *from = b->w + (b->row ? b->row[i] : i) * b->ld;
        for (int64_t k = 0; k < C; k++)
            x[i * C + k] = (double)from[k] * (b->scale ? (double)b->scale[k] : 1);
    }
    for (int64_t i = 0; i < R && b->right; i++)
        rotation_apply(b->right, x + i * C, 1, x + R * C);
    if (b->left)
        rotation_apply(b->left, x, C, x + R * C);
    for (int64_t i = 0; i < R; i++) {
        float *to = b->w + (b->row ? b->row[i] : i) * b->ld;
        for (int64_t k = 0; k < C; k++)
            to[k] = (float)x[i * C + k];
    }
}

Status rotation_blocks(const RotationBlock *b, int64_t n, Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    int64_t   each = 1;
    double   *all;
    for (int64_t i = 0; i < n; i++) {
        CHECK(!b[i].left || b[i].left->n == b[i].rows);
        CHECK(!b[i].right || b[i].right->n == b[i].cols);
        each = i64_max(each, room(&b[i]));
    }
    all = arena_raw(scratch, omp_get_max_threads() * each, sizeof *all);
    if (!all)
        FAIL(ERR_MEMORY, "out of memory: %lld numbers to rotate", (long long)each);
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < n; i++)
        turn(&b[i], all + omp_get_thread_num() * each);
    arena_rewind(scratch, mark);
    return OK;
}

int64_t rotation_n_blocks(int64_t rows)
{
    return ceil_div(rows, ROTATION_BLOCK);
}

int64_t rotation_cut_rows(RotationBlock *out, const Rotation *right, float *x, int64_t rows,
                          const float *scale)
{
    int64_t C = right->n;
    for (int64_t i = 0; i < rows; i += ROTATION_BLOCK)
        *out++ = (RotationBlock){.right = right, .scale = scale, .w = x + i * C, .ld = C,
                                 .rows = i64_min(ROTATION_BLOCK, rows - i), .cols = C};
    return rotation_n_blocks(rows);
}

int64_t rotation_cut_cols(RotationBlock *out, const Rotation *left, float *w, int64_t cols)
{
    for (int64_t k = 0; k < cols; k += ROTATION_BLOCK)
        *out++ = (RotationBlock){.left = left, .w = w + k, .ld = cols, .rows = left->n,
                                 .cols = i64_min(ROTATION_BLOCK, cols - k)};
    return rotation_n_blocks(cols);
}

Status rotation_rows(const Rotation *r, float *x, int64_t rows, const float *scale,
                     Arena *scratch)
{
    ArenaMark      mark = arena_mark(scratch);
    RotationBlock *b;
    ARENA_NEW(b, scratch, rotation_n_blocks(rows));
    TRY(rotation_blocks(b, rotation_cut_rows(b, r, x, rows, scale), scratch));
    arena_rewind(scratch, mark);
    return OK;
}

Status rotation_left(const Rotation *r, float *w, int64_t cols, Arena *scratch)
{
    ArenaMark      mark = arena_mark(scratch);
    RotationBlock *b;
    ARENA_NEW(b, scratch, rotation_n_blocks(cols));
    TRY(rotation_blocks(b, rotation_cut_cols(b, r, w, cols), scratch));
    arena_rewind(scratch, mark);
    return OK;
}
