/* test_record.c - moments, histograms, peaks and records of hidden states. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_record.h"
#include "kernels/half.h"
#include "kernels/record.h"
#include "tests/check.h"

enum { ROWS = 640, WIDTH = 333, VALUES = ROWS * WIDTH };
static float data[VALUES];  // enough that several threads share it

/* Two passes in long double over the finite values. */
static Moments two_passes(const float *x, int64_t n)
{
    long double mean = 0, m2 = 0, m3 = 0, m4 = 0;
    Moments m;
    moments_init(&m);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            continue;
        mean += (long double)x[i];
        m.count++;
        m.min = fmin(m.min, (double)x[i]);
        m.max = fmax(m.max, (double)x[i]);
    }
    mean /= m.count;
    for (int64_t i = 0; i < n; i++) {
        long double t = isfinite(x[i]) ? (long double)x[i] - mean : 0;
        m2 += t * t;
        m3 += t * t * t;
        m4 += t * t * t * t;
    }
    m.mean = (double)mean, m.m2 = (double)m2, m.m3 = (double)m3, m.m4 = (double)m4;
    return m;
}

/* m3 changes sign, so that its error is measured against m2^1.5. */
static bool moments_close(const Moments *a, const Moments *ref)
{
    double tol = 1e-9, n = (double)ref->count;
    double deviation = sqrt(ref->m2 / n);
    return a->count == ref->count && a->min == ref->min && a->max == ref->max &&
           fabs(a->mean - ref->mean) <= tol * fmax(fabs(ref->mean), deviation) &&
           fabs(a->m2 - ref->m2) <= tol * ref->m2 &&
           fabs(a->m3 - ref->m3) <= tol * n * pow(deviation, 3) &&
           fabs(a->m4 - ref->m4) <= tol * ref->m4;
}

static bool rows_close(void)
{
    Moments m, ref = two_passes(data, VALUES);
    moments_init(&m);
    for (int i = 0; i < ROWS; i++)
        moments_add(&m, data + i * WIDTH, WIDTH);
    return moments_close(&m, &ref);
}

static void fill(float mean, float deviation)
{
    uint64_t state = 7;
    for (int i = 0; i < VALUES; i++)
        data[i] = mean + deviation * check_normal(&state);
}

TEST(moments_of_ordinary_and_awkward_data)
{
    fill(0, 1);
    T_OK(rows_close());
    fill(10000, 0.01f);  // the mean is a million deviations
    T_OK(rows_close());
    fill(0, 1);
    data[777] = 1e30f;
    T_OK(rows_close());
    fill(0, 1);
    for (int i = 0; i < ROWS; i++)
        data[i * WIDTH] = 1e6f;  // every row begins with an outlier
    T_OK(rows_close());
    fill(0, 1e-40f);  // subnormal
    T_OK(rows_close());
    fill(0, 1);
    data[5] = 3.4e38f, data[4000] = -3.4e38f;
    T_OK(rows_close());
}

TEST(moments_count_nan_and_infinities_apart)
{
    fill(3, 2);
    data[0] = NAN, data[1] = INFINITY, data[2] = -INFINITY, data[WIDTH + 4] = NAN;
    Moments m;
    moments_init(&m);
    moments_add(&m, data, VALUES);
    T_OK(m.n_nan == 2 && m.n_pos_inf == 1 && m.n_neg_inf == 1 && m.count == VALUES - 4);
    T_OK(rows_close());
}

TEST(moments_of_nothing)
{
    float nan = NAN;
    Moments m, other;
    moments_init(&m);
    moments_add(&m, NULL, 0);
    moments_add(&m, &nan, 1);
    T_OK(m.count == 0 && m.n_nan == 1 && m.min == INFINITY && m.max == -INFINITY);
    T_NEAR(moments_absmax(&m), 0, 0);
    T_OK(isnan(moments_variance(&m)) && isnan(moments_kurtosis(&m)));
    moments_init(&other);
    moments_add(&other, &(float){-4}, 1);
    moments_merge(&other, &m);
    T_OK(other.count == 1 && other.mean == -4 && other.n_nan == 1);
    T_NEAR(moments_absmax(&other), 4, 0);
    T_NEAR(moments_variance(&other), 0, 0);
}

TEST(moments_kurtosis_of_two_values_is_one)
{
    float x[4] = {-1, 1, 1, -1};
    Moments m;
    moments_init(&m);
    moments_add(&m, x, 4);
    T_NEAR(moments_kurtosis(&m), 1, 1e-15);
    T_NEAR(moments_variance(&m), 1, 1e-15);
}

TEST(lanes_do_not_depend_on_cuts)
{
    fill(1, 5);
    MomentLanes whole = {0}, cut = {0};
    moment_lanes_add(&whole, data, WIDTH);
    for (int i = 0, n; i < WIDTH; i += n) {
        n = i % 7 + 1 < WIDTH - i ? i % 7 + 1 : WIDTH - i;
        moment_lanes_add(&cut, data + i, n);
    }
    T_OK(memcmp(&whole, &cut, sizeof cut) == 0);
}

/* A row of n in strips of `step`, by the kernel of an instruction set and value
 * by value. */
static bool strips_equal(const RecordIsa *isa, const float *x, int64_t n, int64_t step)
{
    static uint32_t hist[HIST_BINS], hist_ref[HIST_BINS];
    uint32_t column[WIDTH + 1] = {0}, column_ref[WIDTH + 1] = {0}, max = 0, max_ref = 0;
    MomentLanes row = {0}, ref = {0};
    memset(hist, 0, sizeof hist);
    memset(hist_ref, 0, sizeof hist_ref);
    column[n] = column_ref[n] = 77;  // must stay
    for (int64_t i = 0; i < n; i += step) {
        int64_t m = n - i < step ? n - i : step;
        uint32_t u = isa->strip(&row, x + i, m, hist, column + i);
        max = u > max ? u : max;
    }
    moment_lanes_add(&ref, x, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = f32_bits(x[i]) & 0x7fffffffu;
        if (u >= 0x7f800000u)
            continue;
        column_ref[i] = u;
        hist_ref[hist_bin(u)]++;
        max_ref = u > max_ref ? u : max_ref;
    }
    return memcmp(&row, &ref, sizeof row) == 0 && memcmp(hist, hist_ref, sizeof hist) == 0 &&
           memcmp(column, column_ref, sizeof column) == 0 && max == max_ref;
}

static bool isa_runs(int isa)
{
    static const RecordIsa *const OF[] = {&record_plain, &record_avx2, &record_avx512};
    return cpu_isa_force((CpuIsa)isa) && record_isa() == OF[isa];
}

TEST(strips_equal_the_plain_loop_on_every_instruction_set)
{
    int64_t sizes[] = {1, 15, 16, 17, 128, 130, WIDTH};
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!isa_runs(isa))
            continue;
        for (int special = 0; special < 2; special++)
            for (int i = 0; i < 7; i++) {
                fill(2, 3);
                if (special) {
                    data[0] = NAN, data[100] = -INFINITY, data[129] = INFINITY;
                    memset(data + 32, 0xff, 16 * sizeof *data);  // NaN: a strip of them
                }
                T_OK(strips_equal(record_isa(), data, sizes[i], 16));
                T_OK(strips_equal(record_isa(), data, sizes[i], 128));
                T_OK(strips_equal(record_isa(), data, sizes[i], sizes[i]));
            }
    }
    cpu_isa_force(N_CPU_ISAS);
}

TEST(hist_value_lies_within_0_2_percent_of_its_bin)
{
    for (int64_t b = 256; b < HIST_BINS; b++) {  // from 2^-126, the normal numbers
        double low = (double)f32_from_bits((uint32_t)b << 15);
        double high = (double)f32_from_bits(((uint32_t)b << 15) + 0x7fff);
        T_OK(hist_value(b) / low - 1 <= 0.002 && 1 - hist_value(b) / high <= 0.002);
    }
    T_NEAR(hist_value(0), 0, 0);
    T_NEAR(hist_value(1) / ldexp(1, -134), sqrt(2), 1e-12);
    T_OK(hist_bin(f32_bits(-3.4028234e38f)) == HIST_BINS - 1);
}

TEST(hist_quantile_is_the_value_at_its_rank)
{
    Arena arena = {0};
    Hist  h;
    T_STATUS_OK(hist_init(&h, &arena));
    T_OK(isnan(hist_quantile(&h, 0.5)));
    for (int i = 1; i <= 1000; i++)
        hist_add(&h, hist_bin(f32_bits((float)i)), 1);
    double q[] = {0, 0.001, 0.5, 0.9, 0.99, 0.999, 1};
    double want[] = {1, 1, 500, 900, 990, 999, 1000};
    for (int i = 0; i < 7; i++)
        T_NEAR(hist_quantile(&h, q[i]) / want[i], 1, 0.002);
    arena_close(&arena);
}

TEST(hist_next_and_merge_find_what_is_there)
{
    static const int64_t AT[] = {0, 255, 300, HIST_BINS - 1};
    Arena arena = {0};
    Hist  h, both;
    T_STATUS_OK(hist_init(&h, &arena));
    T_STATUS_OK(hist_init(&both, &arena));
    T_OK(hist_next(&h, 0) == HIST_BINS);
    for (int i = 0; i < 4; i++)
        hist_add(&h, AT[i], (uint64_t)i + 1);
    hist_add(&h, 700, 0);
    int64_t b = hist_next(&h, 0);
    for (int i = 0; i < 4; i++, b = hist_next(&h, b + 1))
        T_OK(b == AT[i] && h.bins[b] == (uint64_t)i + 1);
    T_OK(b == HIST_BINS && !h.used[2] && hist_next(&h, HIST_BINS) == HIST_BINS);
    hist_add(&both, 301, 5);
    hist_merge(&both, &h);
    hist_merge(&both, &h);
    T_OK(both.bins[0] == 2 && both.bins[300] == 6 && both.bins[301] == 5);
    T_OK(both.bins[HIST_BINS - 1] == 8 && !both.used[2] && !hist_equal(&both, &h));
    arena_close(&arena);
}

static Peak peak(float value, int64_t sequence, int32_t head, int32_t position, int32_t key)
{
    return (Peak){.value = value, .sequence = sequence, .head = head, .position = position,
                  .key = key};
}

TEST(peaks_keep_the_largest_in_order)
{
    Peaks p = {0};
    for (int i = 0; i < 1000; i++) {
        float v = (float)(i * 7919 % 1000);
        Peak at = peak(i % 2 ? -v : v, 0, 0, i, 0);
        peaks_add(&p, &at);
        T_OK(i >= N_PEAKS - 1 || peaks_threshold(&p) == 0);
    }
    T_OK(p.n == N_PEAKS && peaks_threshold(&p) == 900);
    for (int i = 0; i < N_PEAKS; i++)
        T_NEAR(fabsf(p.at[i].value), 999 - i, 0);
}

static bool same_peaks(const Peaks *a, const Peaks *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n; i++) {
        const Peak *p = &a->at[i], *q = &b->at[i];
        same = same && p->value == q->value && p->sequence == q->sequence &&
               p->layer == q->layer && p->head == q->head && p->map == q->map &&
               p->position == q->position && p->key == q->key && p->channel == q->channel;
    }
    return same;
}

/* The places of a peak as one number; each is below 64 here. */
static int64_t place_of(const Peak *p)
{
    int64_t at[] = {p->sequence, p->layer, p->head, p->map, p->position, p->key, p->channel};
    int64_t place = 0;
    for (int i = 0; i < 7; i++)
        place = place * 64 + at[i];
    return place;
}

TEST(peaks_of_equal_magnitude_stand_in_order_of_place)
{
    Peaks a = {0}, b = {0}, merged = {0}, back = {0};
    uint64_t state = 3;
    for (int i = 0; i < 3000; i++) {  // few values: almost all are ties
        Peak at = peak(rintf(2 * check_uniform(&state)), 0, 0, 0, 0);
        int32_t *part[] = {&at.layer, &at.head, &at.map, &at.position, &at.key, &at.channel};
        at.sequence = (int64_t)(20 + 20 * check_uniform(&state)) % 2;
        for (int j = 0; j < 6; j++)
            *part[j] = (int32_t)(20 + 20 * check_uniform(&state)) % 2;
        peaks_add(i < 1000 ? &a : &b, &at);
        peaks_add(&merged, &at);
    }
    for (int i = 1; i < N_PEAKS; i++) {
        const Peak *l = &merged.at[i - 1], *r = &merged.at[i];
        T_OK(fabsf(l->value) >= fabsf(r->value));
        T_OK(fabsf(l->value) > fabsf(r->value) || place_of(l) <= place_of(r));
    }
    peaks_merge(&back, &b);
    peaks_merge(&back, &a);
    peaks_merge(&a, &b);
    for (int i = 0; i < N_PEAKS; i++)  // equal places may have either sign here
        T_OK(place_of(&a.at[i]) == place_of(&merged.at[i]) &&
             place_of(&back.at[i]) == place_of(&merged.at[i]));
}

static const int32_t *positions(void)
{
    static int32_t p[ROWS];
    for (int i = 0; i < ROWS; i++)
        p[i] = i < 15 ? i : i - 15;
    return p;
}

/* The ROWS rows as two sequences, in one call or in one a sequence. */
static Status record_rows(ValueRecord *r, Arena *arena, int n_threads, bool cut)
{
    int32_t start[3] = {0, 15, ROWS}, first[2] = {0, 15}, second[2] = {0, ROWS - 15};
    int64_t number[2] = {4, 9};
    Batch both = {2, start, number}, one = {1, first, number}, two = {1, second, number + 1};
    CpuState state = {0};
    Backend be = {.n_threads = n_threads, .state = &state};
    Tensor x = tensor_2d(DTYPE_F32, data, ROWS, WIDTH);
    Tensor head = tensor_2d(DTYPE_F32, data, 15, WIDTH);
    Tensor tail = tensor_2d(DTYPE_F32, data + 15 * WIDTH, ROWS - 15, WIDTH);
    TRY(value_record_init(r, arena, 3, WIDTH, ROWS));
    if (cut) {
        TRY(cpu_record(&be, &head, &one, positions(), r));
        TRY(cpu_record(&be, &tail, &two, positions() + 15, r));
    } else {
        TRY(cpu_record(&be, &x, &both, positions(), r));
    }
    arena_close(&state.scratch.arena);
    arena_close(&be.arena);
    return OK;
}

static bool same_record(const ValueRecord *a, const ValueRecord *b)
{
    return memcmp(&a->moments, &b->moments, sizeof a->moments) == 0 &&
           hist_equal(&a->hist, &b->hist) &&
           memcmp(a->channel_absmax, b->channel_absmax, WIDTH * sizeof(float)) == 0 &&
           memcmp(a->channel_over_6, b->channel_over_6, WIDTH * sizeof(uint64_t)) == 0 &&
           memcmp(a->position_absmax, b->position_absmax, ROWS * sizeof(float)) == 0 &&
           same_peaks(&a->peaks, &b->peaks);
}

static void make_hidden(void)
{
    fill(0, 3);
    data[3 * WIDTH + 8] = NAN, data[20 * WIDTH] = INFINITY, data[39 * WIDTH + 332] = -500;
}

TEST(value_record_equals_plain_loops)
{
    Arena arena = {0};
    ValueRecord r;
    make_hidden();
    T_STATUS_OK(record_rows(&r, &arena, 2, false));
    Moments ref = two_passes(data, VALUES);
    T_OK(moments_close(&r.moments, &ref));
    T_OK(r.moments.n_nan == 1 && r.moments.n_pos_inf == 1 && r.moments.n_neg_inf == 0);
    uint64_t counted = 0;
    for (int64_t b = 0; b < HIST_BINS; b++)
        counted += r.hist.bins[b];
    T_OK(counted == VALUES - 2);
    for (int c = 0; c < WIDTH; c++) {
        float max = 0;
        uint64_t over = 0;
        for (int t = 0; t < ROWS; t++) {
            float v = fabsf(data[t * WIDTH + c]);
            if (!isfinite(v))
                continue;
            max = v > max ? v : max;
            over += v >= 6;
        }
        T_OK(r.channel_absmax[c] == max && r.channel_over_6[c] == over);
    }
    const Peak *top = &r.peaks.at[0];
    T_OK(top->value == -500 && top->layer == 3 && top->channel == 332 && top->position == 24 &&
         top->sequence == 9);
    T_OK(r.position_absmax[24] == 500 && r.position_absmax[ROWS - 1] == 0);
    arena_close(&arena);
}

TEST(value_record_is_the_same_for_any_threads_cut_and_instruction_set)
{
    Arena arena = {0};
    ValueRecord ref, r;
    make_hidden();
    T_STATUS_OK(record_rows(&ref, &arena, 1, false));
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        if (!isa_runs(isa))
            continue;
        for (int threads = 1; threads <= 5; threads += 2)
            for (int cut = 0; cut < 2; cut++) {
                T_STATUS_OK(record_rows(&r, &arena, threads, cut));
                T_OK(same_record(&r, &ref));
            }
    }
    cpu_isa_force(N_CPU_ISAS);
    arena_close(&arena);
}

TEST(value_records_merge)
{
    Arena arena = {0};
    ValueRecord whole, a, b;
    CpuState state = {0};
    Backend be = {.n_threads = 1, .state = &state};
    int32_t start[3] = {0, 15, ROWS}, later[2] = {0, ROWS - 15};
    int64_t number[2] = {4, 9};
    Tensor head = tensor_2d(DTYPE_F32, data, 15, WIDTH);
    Tensor tail = tensor_2d(DTYPE_F32, data + 15 * WIDTH, ROWS - 15, WIDTH);
    make_hidden();
    T_STATUS_OK(record_rows(&whole, &arena, 1, false));
    T_STATUS_OK(value_record_init(&a, &arena, 3, WIDTH, ROWS));
    T_STATUS_OK(value_record_init(&b, &arena, 3, WIDTH, ROWS));
    T_STATUS_OK(cpu_record(&be, &head, &(Batch){1, start, number}, positions(), &a));
    T_STATUS_OK(cpu_record(&be, &tail, &(Batch){1, later, number + 1}, positions() + 15, &b));
    value_record_merge(&a, &b);
    T_OK(moments_close(&a.moments, &whole.moments));
    a.moments = whole.moments;  // equal but for rounding: merged pairwise
    T_OK(same_record(&a, &whole));
    arena_close(&state.scratch.arena);
    arena_close(&be.arena);
    arena_close(&arena);
}

TEST(records_report_missing_memory)
{
    Arena arena = {0};
    ValueRecord r;
    LogitRecord l;
    for (int k = 1; k <= 4; k++) {
        arena_fail_at(k);
        T_FAILS(value_record_init(&r, &arena, 0, 8, 8), ERR_MEMORY, "out of memory");
        arena_fail_at(k);
        T_FAILS(logit_record_init(&l, &arena, 0, 2, 2, 8), ERR_MEMORY, "out of memory");
    }
    arena_fail_at(0);
    arena_close(&arena);
}
