/* test_gptq.c - GPTQ against golden/make_gptq_golden.py (the reference algorithm in
 * double), against plain rounding, and on inputs that break it if anything does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/methods/method.h"
#include "tests/check.h"

enum { N = 64, K = 256, T = 320 };

/* A matrix with everything that encoding it needs, and what it was. */
typedef struct {
    Arena      arena;
    Backend    be;
    InputStats stats;
    Matrix     m;
    RtnCodes   out;
    float     *before;  // [n,k]
    int64_t    groups;  // of all rows
} Case;

static Status case_open(Case *c, const char *scheme, int64_t n, int64_t k, int n_threads)
{
    *c = (Case){0};
    Arena *a = &c->arena;
    TRY(scheme_parse(&c->m.scheme, scheme));
    TRY(backend_open(&c->be, "cpu", n_threads));
    c->groups = n * rtn_groups(&c->m.scheme, k);
    c->stats = (InputStats){.k = k, .gram = arena_alloc(a, k * k, sizeof(double)),
                            .sum2 = arena_alloc(a, k, sizeof(double))};
    c->out = (RtnCodes){arena_alloc(a, n * k + 1, 1), arena_alloc(a, c->groups + 1, 4),
                        arena_alloc(a, c->groups + 1, 1)};
    c->before = arena_alloc(a, n * k, sizeof(float));
    c->m.name = "layers.0.w";
    c->m.n = n;
    c->m.k = k;
    c->m.w = arena_alloc(a, n * k, sizeof(float));
    c->m.inputs = &c->stats;
    c->m.damp = 0.01;
    c->m.backend = &c->be;
    c->out.codes[n * k] = c->out.zeros[c->groups] = 99;
    c->out.scales[c->groups] = 99;
    return OK;
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

static void add_rows(Case *c, const float *x, int64_t rows)
{
    int64_t k = c->m.k;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++)
                c->stats.gram[i * k + j] += (double)x[t * k + i] * x[t * k + j];
    for (int64_t i = 0; i < k; i++)
        c->stats.sum2[i] = c->stats.gram[i * k + i];
    c->stats.n_rows += rows;
}

/* Normal weights; inputs that go together. */
static void fill(Case *c, int64_t rows, uint64_t seed)
{
    int64_t k = c->m.k;
    float  *x = arena_alloc(&c->arena, rows * k + 1, sizeof *x);
    for (int64_t i = 0; i < c->m.n * k; i++)
        c->m.w[i] = c->before[i] = 0.03f * check_normal(&seed);
    for (int64_t t = 0; t < rows; t++) {
        float a = 2 * check_normal(&seed), b = check_normal(&seed);
        for (int64_t i = 0; i < k; i++)
            x[t * k + i] = a * (float)(i % 3) + b * (float)(i % 5) + check_normal(&seed);
    }
    add_rows(c, x, rows);
}

/* sum over rows of d G d^T, d = before - v */
static double output_error(const Case *c, const float *v)
{
    int64_t k = c->m.k;
    double  sum = 0, *d = malloc((size_t)k * sizeof *d);
    for (int64_t n = 0; n < c->m.n; n++) {
        for (int64_t i = 0; i < k; i++)
            d[i] = (double)c->before[n * k + i] - v[n * k + i];
        for (int64_t i = 0; i < k; i++) {
            double part = 0;
            for (int64_t j = 0; j < k; j++)
                part += c->stats.gram[i * k + j] * d[j];
            sum += d[i] * part;
        }
    }
    free(d);
    return sum;
}

/* w is what codes, scales and zeros say; the guards stand. */
static bool is_decoded(const Case *c)
{
    int64_t k = c->m.k, size = rtn_group_size(&c->m.scheme, k), all = c->m.n * k;
    int     lo = -(1 << (c->m.scheme.bits - 1));
    for (int64_t i = 0; i < all; i++) {
        int code = c->out.codes[i], zero = c->out.zeros[i / size];
        if (!(c->m.w[i] == c->out.scales[i / size] * (float)(code - zero)) || code < lo ||
            code > -1 - lo || (!c->m.scheme.asym && zero != 0))
            return false;
    }
    return c->out.codes[all] == 99 && c->out.scales[c->groups] == 99 &&
           c->out.zeros[c->groups] == 99;
}

/* --- the reference --- */

static bool read_golden(void *out, size_t bytes, const char *name, long at)
{
    char path[64];
    snprintf(path, sizeof path, "golden/gptq/%s.bin", name);
    FILE *f = fopen(check_path(path), "rb");
    bool  read = f && fseek(f, at, SEEK_SET) == 0 && fread(out, 1, bytes, f) == bytes;
    if (f)
        fclose(f);
    return read;
}

static bool golden_inputs(Case *c)
{
    static int16_t w[N * K];
    static int8_t  x[T * K];
    static float   rows[T * K];
    if (!read_golden(w, sizeof w, "inputs", 0) || !read_golden(x, sizeof x, "inputs", sizeof w))
        return false;
    for (int i = 0; i < N * K; i++)
        c->m.w[i] = c->before[i] = (float)w[i] / 4096;
    for (int i = 0; i < T * K; i++)
        rows[i] = (float)x[i] / 16;
    add_rows(c, rows, T);
    return true;
}

/* gptq_encode on the scales of plain rounding against the file. */
static void check_golden(const char *scheme, const char *file)
{
    static int8_t codes[N * K], zeros[N * K];
    static float  scales[N * K], back[N * K];
    Case          c;
    double        error;
    T_STATUS_OK(case_open(&c, scheme, N, K, 2));
    T_OK(golden_inputs(&c));
    size_t g = (size_t)c.groups, size = N * K / g;
    T_OK(read_golden(codes, N * K, file, 0));
    T_OK(read_golden(scales, 4 * g, file, N * K));
    T_OK(read_golden(zeros, g, file, (long)(N * K + 4 * g)));
    T_OK(read_golden(&error, 8, file, (long)(N * K + 5 * g)));
    T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
    T_OK(is_decoded(&c));
    T_OK(c.m.n_dead == 2 && c.m.damp_used == 0.01);
    T_OK(memcmp(scales, c.out.scales, 4 * g) == 0 && memcmp(zeros, c.out.zeros, g) == 0);
    int same = 0;
    for (size_t i = 0; i < N * K; i++) {
        same += codes[i] == c.out.codes[i];
        back[i] = scales[i / size] * (float)(codes[i] - zeros[i / size]);
    }
    T_NEAR(output_error(&c, back), error, 1e-9 * error);
    double mine = output_error(&c, c.m.w);
    T_OK(mine <= error * (1 + 1e-5));
    T_OK(same >= 0.999 * N * K);
    case_close(&c);
}

TEST(gptq_is_the_reference)
{
    check_golden("w4:g32:f16", "w4_g32");
    check_golden("w4:g32:asym:f16", "w4_g32_asym");
    check_golden("w4:g64:f16", "w4_g64");
    check_golden("w4:g64:asym:f16", "w4_g64_asym");
    check_golden("w4:f16", "w4");
    check_golden("w4:asym:f16", "w4_asym");
    check_golden("w6:g64:f16", "w6_g64");
}

/* --- against plain rounding --- */

TEST(gptq_errs_less_in_the_output)
{
    static const char *const SCHEMES[] = {"w4:gptq", "w4:g64:asym:gptq", "w6:g32:gptq",
                                          "w8:g128:gptq"};
    for (int i = 0; i < 4; i++) {
        Case c;
        T_STATUS_OK(case_open(&c, SCHEMES[i], 70, 384, 2));
        fill(&c, 900, 3 + (uint64_t)i);
        c.m.scheme.method = METHOD_CLIP;
        T_STATUS_OK(method_encode(&c.out, &c.m, &c.arena));
        double clipped = output_error(&c, c.m.w);
        memcpy(c.m.w, c.before, 70 * 384 * sizeof(float));
        c.m.scheme.method = METHOD_GPTQ;
        T_STATUS_OK(method_encode(&c.out, &c.m, &c.arena));
        T_OK(is_decoded(&c));
        T_OK(output_error(&c, c.m.w) < 0.6 * clipped);
        case_close(&c);
    }
}

/* Nothing to hand on: each column is rounded to the scales of least error. */
TEST(gptq_of_independent_inputs_is_clip)
{
    for (int asym = 0; asym < 2; asym++) {
        Case      c;
        RtnCodes  clip;
        const char *scheme = asym ? "w4:g32:asym:gptq" : "w4:gptq";
        T_STATUS_OK(case_open(&c, scheme, 33, 160, 2));
        fill(&c, 0, 8);
        for (int64_t i = 0; i < 160; i++)
            c.stats.gram[i * 161] = c.stats.sum2[i] = 1 + (double)(i * 37 % 101);
        T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
        T_OK(is_decoded(&c));
        clip = c.out;
        c.out.codes = arena_alloc(&c.arena, 33 * 160, 1);
        c.out.scales = arena_alloc(&c.arena, c.groups, 4);
        memcpy(c.m.w, c.before, 33 * 160 * sizeof(float));
        T_STATUS_OK(clip_encode(&c.out, &c.m, &c.arena));
        T_OK(memcmp(clip.codes, c.out.codes, 33 * 160) == 0);
        T_OK(memcmp(clip.scales, c.out.scales, (size_t)c.groups * 4) == 0);
        case_close(&c);
    }
}

TEST(plain_methods_go_through_the_same_door)
{
    Case     c;
    T_STATUS_OK(case_open(&c, "w4:g32:asym", 5, 64, 1));
    fill(&c, 0, 8);
    c.m.inputs = NULL;
    T_STATUS_OK(method_encode(&c.out, &c.m, &c.arena));
    T_OK(is_decoded(&c));
    T_STATUS_OK(rtn_fake(c.before, "w", 5, 64, &c.m.scheme, NULL));
    T_OK(memcmp(c.before, c.m.w, 5 * 64 * sizeof(float)) == 0);
    c.m.scheme.method = N_METHODS;
    T_FAILS(method_encode(&c.out, &c.m, &c.arena), ERR_UNSUPPORTED, "layers.0.w: unknown");
    case_close(&c);
}

/* --- inputs of few rows, of none, of zeros --- */

TEST(gptq_of_fewer_rows_than_inputs)
{
    Case c;
    T_STATUS_OK(case_open(&c, "w4:g32:gptq", 40, 256, 2));
    fill(&c, 20, 5);
    T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
    T_OK(is_decoded(&c) && c.m.damp_used == 0.01);
    double with = output_error(&c, c.m.w);
    memcpy(c.m.w, c.before, 40 * 256 * sizeof(float));
    T_STATUS_OK(clip_encode(&c.out, &c.m, &c.arena));
    T_OK(with < 0.5 * output_error(&c, c.m.w));
    /* Without damping there is no factor: it is raised, and said so. */
    memcpy(c.m.w, c.before, 40 * 256 * sizeof(float));
    c.m.damp = 0;
    T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
    T_OK(is_decoded(&c) && c.m.damp_used == 1e-4);
    case_close(&c);
}

TEST(damping_grows_in_steps_up_to_one)
{
    Case c;
    T_STATUS_OK(case_open(&c, "w4:g32:gptq", 4, 64, 2));
    fill(&c, 200, 5);
    /* Two inputs more alike than numbers can be: an eigenvalue of -0.3 means. */
    double mean = 0;
    for (int64_t i = 0; i < 64; i++)
        mean += c.stats.gram[i * 65] / 64;
    for (int64_t i = 0; i < 64 * 64; i++)
        c.stats.gram[i] = i % 65 == 0 ? mean : 0;
    c.stats.gram[1] = c.stats.gram[64] = 1.3 * mean;
    T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
    T_OK(is_decoded(&c));
    T_NEAR(c.m.damp_used, 1, 0);
    memcpy(c.m.w, c.before, 4 * 64 * sizeof(float));
    c.stats.gram[1] = c.stats.gram[64] = 3 * mean;
    T_FAILS(gptq_encode(&c.out, &c.m, &c.arena), ERR_RANGE,
            "layers.0.w: products of its inputs are not those of any numbers");
    T_OK(memcmp(c.m.w, c.before, 4 * 64 * sizeof(float)) == 0);
    case_close(&c);
}

TEST(gptq_of_inputs_that_are_always_zero)
{
    Case c;
    T_STATUS_OK(case_open(&c, "w4:g32:asym:gptq", 9, 96, 2));
    fill(&c, 0, 5);
    c.m.damp = 0;
    T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
    T_OK(is_decoded(&c) && c.m.n_dead == 96 && c.m.damp_used == 0);
    for (int64_t i = 0; i < 9 * 96; i++)
        T_OK(c.m.w[i] == 0);
    case_close(&c);
}

TEST(gptq_of_odd_rows)
{
    static const char *const SCHEMES[] = {"w4:g64:gptq", "w4:g64:asym:gptq", "w4:f32:gptq"};
    for (int i = 0; i < 3; i++) {
        Case c;
        T_STATUS_OK(case_open(&c, SCHEMES[i], 5, 192, 2));
        fill(&c, 400, 5);
        for (int64_t k = 0; k < 192; k++) {
            c.before[k] = 0;
            c.before[192 + k] = 0.25f;
            c.before[2 * 192 + k] = -3;
        }
        c.before[3 * 192 + 70] = 3e4f;
        memcpy(c.m.w, c.before, 5 * 192 * sizeof(float));
        T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
        T_OK(is_decoded(&c));
        for (int64_t k = 0; k < 192; k++) {
            T_OK(c.m.w[k] == 0);
            T_NEAR(c.m.w[192 + k], 0.25, 0.25 / 14);
            T_NEAR(c.m.w[2 * 192 + k], -3, 3.0 / 14);
        }
        T_NEAR(c.m.w[3 * 192 + 70], 3e4, 3e4 / 14);
        case_close(&c);
    }
}

TEST(gptq_refuses_what_is_not_finite)
{
    Case c;
    T_STATUS_OK(case_open(&c, "w4:g32:gptq", 4, 64, 2));
    fill(&c, 200, 5);
    c.stats.gram[3 * 64 + 7] = NAN;
    c.stats.gram[50 * 64] = INFINITY;
    T_FAILS(gptq_encode(&c.out, &c.m, &c.arena), ERR_RANGE,
            "layers.0.w: products of its inputs 3 and 7 sum to");
    c.stats.gram[3 * 64 + 7] = c.stats.gram[50 * 64] = 0;
    c.stats.gram[65] = -1;
    T_FAILS(gptq_encode(&c.out, &c.m, &c.arena), ERR_RANGE, "1 and 1 sum to -1, expected no");
    c.stats.gram[65] = 1;
    c.m.w[2 * 64 + 5] = NAN;
    T_FAILS(gptq_encode(&c.out, &c.m, &c.arena), ERR_RANGE, "layers.0.w: NaN at [2,5]");
    c.m.w[2 * 64 + 5] = 1e9f;
    T_FAILS(gptq_encode(&c.out, &c.m, &c.arena), ERR_RANGE, "a scale beyond what F16");
    c.m.w[2 * 64 + 5] = 0;
    c.m.scheme.group = 48;
    T_FAILS(gptq_encode(&c.out, &c.m, &c.arena), ERR_SHAPE, "cannot be cut into groups of 48");
    case_close(&c);
}

/* --- threads and memory --- */

TEST(gptq_codes_do_not_depend_on_threads)
{
    Case one;
    T_STATUS_OK(case_open(&one, "w4:g32:asym:gptq", 300, 416, 1));
    fill(&one, 500, 6);
    T_STATUS_OK(gptq_encode(&one.out, &one.m, &one.arena));
    T_OK(is_decoded(&one));
    for (int threads = 2; threads < 4; threads++) {
        Case c;
        T_STATUS_OK(case_open(&c, "w4:g32:asym:gptq", 300, 416, threads));
        fill(&c, 500, 6);
        T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
        T_OK(memcmp(c.out.codes, one.out.codes, 300 * 416) == 0);
        T_OK(memcmp(c.out.scales, one.out.scales, (size_t)c.groups * 4) == 0);
        T_OK(memcmp(c.m.w, one.m.w, 300 * 416 * sizeof(float)) == 0);
        case_close(&c);
    }
    case_close(&one);
}

/* Another damping than the matrix says: what counts is the factor's. */
TEST(matrices_share_the_factor_of_their_inputs)
{
    for (int shared = 0; shared < 2; shared++) {
        static int8_t codes[2][13 * 96];
        Case          c;
        GptqFactor    f;
        T_STATUS_OK(case_open(&c, "w4:g32:gptq", 13, 96, 2));
        fill(&c, 300, 5);
        T_STATUS_OK(gptq_factor(&f, &c.arena, "inputs", &c.stats, 0.05, 2));
        c.m.damp = shared ? 0.01 : 0.05;
        c.m.factor = shared ? &f : NULL;
        T_STATUS_OK(gptq_encode(&c.out, &c.m, &c.arena));
        T_OK(c.m.damp_used == 0.05 && is_decoded(&c));
        memcpy(codes[shared], c.out.codes, sizeof codes[0]);
        T_OK(!shared || memcmp(codes[0], codes[1], sizeof codes[0]) == 0);
        case_close(&c);
    }
}

TEST(gptq_survives_every_failed_allocation)
{
    Case c;
    T_STATUS_OK(case_open(&c, "w4:g32:gptq", 20, 64, 2));
    fill(&c, 100, 6);
    for (int k = 1; k < 40; k++) {
        Arena scratch = {0};
        memcpy(c.m.w, c.before, 20 * 64 * sizeof(float));
        arena_fail_at(k);
        Status s = gptq_encode(&c.out, &c.m, &scratch);
        arena_fail_at(0);
        T_OK(scratch.used == 0);
        arena_close(&scratch);
        if (s == OK) {
            T_OK(k > 8 && is_decoded(&c));
            case_close(&c);
            return;
        }
        T_OK(s == ERR_MEMORY && strstr(status_text(), "out of memory"));
        T_OK(memcmp(c.m.w, c.before, 20 * 64 * sizeof(float)) == 0);
    }
    T_OK(!"the loop should end by success");
}
