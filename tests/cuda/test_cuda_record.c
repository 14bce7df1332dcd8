/* test_cuda_record.c - statistics of hidden states: each figure of the GPU against the CPU's,
 * equal to the bit. */
#include <math.h>
#include <string.h>

#include "tests/cuda/ref_cuda.h"
#include "tests/kernels/ref_ops.h"

/* T rows as three sequences, the second empty, their numbers not in order. */
typedef struct {
    int64_t  T, C;
    float   *x;          // [T,C]
    int32_t  start[4];
    int32_t *positions;  // [T]
} Rows;

static const int64_t NUMBER[3] = {7, 5, 2};

static Rows make_rows(Arena *arena, int64_t T, int64_t C, uint64_t seed)
{
    Rows r = {T, C, ref_normal(arena, T, C, seed).data, {0}, NULL};
    r.start[1] = r.start[2] = (int32_t)(T / 3);
    r.start[3] = (int32_t)T;
    r.positions = arena_alloc(arena, T, sizeof *r.positions);
    for (int64_t t = 0; t < T; t++)
        r.positions[t] = (int32_t)(t < T / 3 ? t : t - T / 3);
    return r;
}

static Status record(ValueRecord *out, Arena *arena, const char *device, const Rows *r,
                     int n_times)
{
    Status  s = OK;
    Tensor  x;
    Backend be = {0};
    Batch   batch = {3, r->start, NUMBER};
    GUARD(value_record_init(out, arena, 3, r->C, r->T));
    GUARD(backend_open(&be, device, 1));
    GUARD(r->T % 2 ? ref_cuda_tensor(&be, &x, r->x, r->T, r->C, r->T % 4)
                   : ref_cuda_exact(&be, &x, r->x, r->T, r->C));
    for (int i = 0; i < n_times && s == OK; i++)
        s = op_record(&be, &x, &batch, r->positions, out);
out:
    if (be.ops)
        backend_close(&be);
    return s;
}

static bool same_moments(const Moments *a, const Moments *b)
{
    return a->count == b->count && a->n_nan == b->n_nan && a->n_pos_inf == b->n_pos_inf &&
           a->n_neg_inf == b->n_neg_inf && a->min == b->min && a->max == b->max &&
           memcmp(&a->mean, &b->mean, 4 * sizeof a->mean) == 0;
}

static bool same_peaks(const Peaks *a, const Peaks *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++) {
        const Peak *p = &a->at[i], *q = &b->at[i];
        same = p->value == q->value && p->sequence == q->sequence && p->layer == q->layer &&
               p->position == q->position && p->channel == q->channel && p->head == q->head &&
               p->map == q->map && p->key == q->key;
    }
    return same;
}

/* The same rows n_times into one record. */
static void check(const Rows *rows, int n_times)
{
    Arena       arena = {0};
    ValueRecord got, want;
    T_STATUS_OK(record(&want, &arena, "cpu", rows, n_times));
    T_STATUS_OK(record(&got, &arena, "cuda", rows, n_times));
    T_OK(same_moments(&got.moments, &want.moments));
    T_OK(hist_equal(&got.hist, &want.hist));
    T_OK(memcmp(got.channel_absmax, want.channel_absmax, (size_t)rows->C * sizeof(float)) == 0);
    T_OK(memcmp(got.channel_over_6, want.channel_over_6,
                (size_t)rows->C * sizeof(uint64_t)) == 0);
    T_OK(memcmp(got.position_absmax, want.position_absmax,
                (size_t)rows->T * sizeof(float)) == 0);
    T_OK(same_peaks(&got.peaks, &want.peaks));
    arena_close(&arena);
}

#define T_RECORDER()                        \
    do {                                    \
        if (!ref_cuda_there())              \
            T_SKIP(status_text());          \
    } while (0)

TEST(ragged_shapes)
{
    static const int64_t SHAPES[][2] = {{1, 1}, {1, 130}, {15, 15}, {16, 16}, {17, 17},
                                        {33, 127}, {40, 129}, {70, 257}, {31, 300}, {130, 1},
                                        {2, 31}};
    T_RECORDER();
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        Arena arena = {0};
        Rows  r = make_rows(&arena, SHAPES[i][0], SHAPES[i][1], i + 1);
        check(&r, 1);
        check(&r, 2);
        arena_close(&arena);
    }
}

TEST(magnitudes_in_and_out_of_the_window_of_bins)
{
    static const float SCALES[] = {1e-40f, 1e-12f, 9.5367432e-7f, 4, 2048, 1e30f};
    T_RECORDER();
    for (size_t i = 0; i < sizeof SCALES / sizeof *SCALES; i++) {
        Arena arena = {0};
        Rows  r = make_rows(&arena, 20, 40, 9);
        for (int64_t j = 0; j < 20 * 40; j++)
            r.x[j] *= SCALES[i];
        r.x[7] = 0, r.x[300] = -0.0f;
        r.x[50] = 4096, r.x[51] = 4095.9f, r.x[52] = 0x1p-20f, r.x[53] = 0x1.fffp-21f;
        check(&r, 1);
        arena_close(&arena);
    }
}

TEST(rectified_rows_are_half_zeros)
{
    Arena arena = {0};
    T_RECORDER();
    Rows r = make_rows(&arena, 36, 70, 10);
    for (int64_t j = 0; j < 36 * 70; j++)
        r.x[j] = r.x[j] > 0 ? r.x[j] : 0;
    memset(r.x + 5 * 70, 0, 70 * sizeof *r.x);
    check(&r, 1);
    arena_close(&arena);
}

TEST(nan_and_infinities_are_counted_apart)
{
    enum { T = 38, C = 77 };
    Arena arena = {0};
    T_RECORDER();
    Rows r = make_rows(&arena, T, C, 11);
    r.x[0] = NAN;                            // a row's shift is its second value
    r.x[3 * C + 50] = INFINITY;
    for (int c = 0; c < C; c++)
        r.x[4 * C + c] = c == 40 ? 3 : c % 2 ? NAN : -INFINITY;  // one finite value, far in
    for (int c = 0; c < C; c++)
        r.x[7 * C + c] = NAN;                // none
    r.x[9 * C + 76] = -INFINITY;
    for (int t = 20; t < T; t++)
        r.x[t * C + 30] = t % 2 ? INFINITY : NAN;
    check(&r, 2);
    arena_close(&arena);
}

TEST(all_values_alike_and_nothing_finite)
{
    Arena arena = {0};
    T_RECORDER();
    Rows r = make_rows(&arena, 18, 33, 12);
    for (int i = 0; i < 18 * 33; i++)
        r.x[i] = -6;                         // counted: 6 is an outlier
    check(&r, 1);
    for (int i = 0; i < 18 * 33; i++)
        r.x[i] = NAN;
    check(&r, 1);
    arena_close(&arena);
}

/* More rows than there are peaks, with few different values: almost all of them are ties, in
 * the order of number and position, also of rows at one place. */
TEST(peaks_of_equal_magnitude)
{
    enum { T = 230, C = 6 };
    Arena arena = {0};
    T_RECORDER();
    Rows r = make_rows(&arena, T, C, 13);
    for (int i = 0; i < T * C; i++)
        r.x[i] = rintf(2 * r.x[i]);
    check(&r, 1);
    for (int i = 0; i < T * C; i++)
        r.x[i] = i % 2 ? 1 : -1;
    check(&r, 1);
    for (int t = 0; t < T; t++)              // a magnitude a row
        for (int c = 0; c < C; c++)
            r.x[t * C + c] = (float)(C - c) * (float)(t * 89 % T);
    check(&r, 2);
    for (int t = 0; t < T; t++) {            // all at one place: the channel decides
        r.positions[t] = 4;
        for (int c = 0; c < C; c++)
            r.x[t * C + c] = c == t % C ? 2 : -1;
    }
    check(&r, 1);
    arena_close(&arena);
}

/* A second window with little of its own, and one that is larger throughout. */
TEST(peaks_of_windows_one_after_another)
{
    enum { T = 24, C = 40 };
    Arena       arena = {0};
    ValueRecord got[2];
    const char *devices[] = {"cpu", "cuda"};
    T_RECORDER();
    Rows r = make_rows(&arena, T, C, 14);
    for (int d = 0; d < 2; d++) {
        Backend be;
        Tensor  x;
        Batch   batch = {3, r.start, NUMBER};
        T_STATUS_OK(value_record_init(&got[d], &arena, 3, C, T));
        T_STATUS_OK(backend_open(&be, devices[d], 1));
        for (int w = 0; w < 3; w++) {
            const float scale[] = {1, 0.9f, 1.3f};
            float *y = arena_alloc(&arena, T * C, sizeof *y);
            for (int i = 0; i < T * C; i++)
                y[i] = r.x[(i + w * 11) % (T * C)] * scale[w];
            T_STATUS_OK(ref_cuda_exact(&be, &x, y, T, C));
            T_STATUS_OK(op_record(&be, &x, &batch, r.positions, &got[d]));
        }
        backend_close(&be);
    }
    T_OK(same_peaks(&got[1].peaks, &got[0].peaks));
    T_OK(same_moments(&got[1].moments, &got[0].moments));
    arena_close(&arena);
}

TEST(nothing_to_record)
{
    Arena       arena = {0};
    ValueRecord r;
    Backend     be;
    Tensor      x;
    int32_t     none[2] = {0, 0};
    T_GPU(&be);
    T_STATUS_OK(value_record_init(&r, &arena, 0, 8, 4));
    T_STATUS_OK(ref_cuda_exact(&be, &x, NULL, 0, 8));
    T_STATUS_OK(op_record(&be, &x, &(Batch){1, none, NUMBER}, none, &r));
    T_OK(r.moments.count == 0 && r.peaks.n == 0);
    backend_close(&be);
    arena_close(&arena);
}

TEST(missing_memory_is_told)
{
    Arena       arena = {0};
    ValueRecord r;
    Backend     be;
    Tensor      x;
    int32_t     start[2] = {0, 20}, positions[20] = {0};
    Tensor      host = ref_normal(&arena, 20, 50, 3);
    T_GPU(&be);
    T_STATUS_OK(ref_cuda_exact(&be, &x, host.data, 20, 50));
    be.arena.keep = false;
    for (int k = 1; k <= 4; k++) {
        T_STATUS_OK(value_record_init(&r, &arena, 0, 50, 4));
        arena_fail_at(k);
        Status s = op_record(&be, &x, &(Batch){1, start, NUMBER}, positions, &r);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(s == ERR_MEMORY || r.moments.count == 1000);
    }
    backend_close(&be);
    arena_close(&arena);
}
