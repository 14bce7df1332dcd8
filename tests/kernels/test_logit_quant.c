/* test_logit_quant.c - fake-quantized attention logits, against plain float32
 * loops and against NumPy (golden/make_logit_quant_golden.py). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpufeat.h"
#include "tests/check.h"
#include "tests/kernels/ref_attention.h"
#include "tests/kernels/ref_logit_quant.h"
#include "tests/kernels/ref_numbers.h"
#include "tests/kernels/ref_ops.h"

static const int BITS[] = {4, 6, 8};

/* Exact logits, so that kernel and reference quantize the same numbers. */
static void check_quantized(const CaseShape *shape, int bits, LogitScale scale)
{
    Case c;
    T_STATUS_OK(case_init(&c, shape, 1));
    case_make_exact(&c, 2);
    c.a.logit_bits = bits;
    c.a.logit_scale = scale;
    T_STATUS_OK(case_run(&c, 2));
    T_OK(case_guard_intact(&c));
    T_NEAR(ref_case_error(&c), 0, 2e-6);
    arena_close(&c.arena);
}

TEST(quantized_logits_equal_plain_loops)
{
    CaseShape diff = {4, 2, 2, 8, 3, {130, 1, 49}, {130, 60, 131}};
    CaseShape plain = {4, 2, 1, 24, 3, {130, 1, 49}, {130, 60, 131}};
    for (int isa = 0; isa < N_CPU_ISAS; isa++)
        for (int i = 0; cpu_isa_force((CpuIsa)isa) && i < 3; i++)
            for (int scale = 0; scale < N_SCALES; scale++) {
                check_quantized(&diff, BITS[i], (LogitScale)scale);
                check_quantized(&plain, BITS[i], (LogitScale)scale);
            }
    cpu_isa_force(N_CPU_ISAS);
}

TEST(quantized_logits_equal_numpy)
{
    enum { H = 2, M = 2, D = 4, T = 12 };
    static const char *const NAMES[N_SCALES] = {"tensor", "head", "row"};
    const char *file = "golden/logit_quant.json";
    CaseShape shape = {H, H, M, D, 1, {T}, {T}};
    double out[T * H * M * D], before[T * H * M * D] = {0};
    Case c;
    T_STATUS_OK(case_init(&c, &shape, 1));
    T_STATUS_OK(ref_floats(c.q.data, T * H * M * D, file, "q"));
    T_STATUS_OK(ref_floats(c.k.data, T * H * M * D, file, "k"));
    T_STATUS_OK(ref_floats(c.v.data, T * H * M * D, file, "v"));
    c.a.scale = 0.25f;
    c.a.norm_eps = -1;
    for (int i = 0; i < 3; i++)
        for (int scale = 0; scale < N_SCALES; scale++) {
            char key[32];
            snprintf(key, sizeof key, "out_%d_%s", BITS[i], NAMES[scale]);
            T_STATUS_OK(ref_numbers(out, T * H * M * D, file, key));
            c.a.logit_bits = BITS[i];
            c.a.logit_scale = (LogitScale)scale;
            T_STATUS_OK(case_run(&c, 2));
            double change = 0;
            for (int j = 0; j < T * H * M * D; j++) {
                T_NEAR(((float *)c.out.data)[j], out[j], 1e-5);
                change = fmax(change, fabs(out[j] - before[j]));
                before[j] = out[j];
            }
            T_OK(change > 1e-3);  // the nine cases are not one and the same
        }
    arena_close(&c.arena);
}

/* The plain definition on one row with one scale. */
static float one_code(float x, float scale, float limit)
{
    float code = scale == 0 ? x : rintf(x / scale);
    code = code > limit ? limit : code < -limit ? -limit : code;
    return code * scale;
}

TEST(codes_round_half_to_even_on_every_instruction_set)
{
    enum { N = 1024 };
    for (int isa = 0; isa < N_CPU_ISAS; isa++)
        for (int i = 0; cpu_isa_force((CpuIsa)isa) && i < 3; i++) {
            float x[N], y[N], limit = attn_code_limit(BITS[i]);
            uint64_t state = 7;
            for (int j = 0; j < N; j++)  // half of them half way between codes
                x[j] = j % 2 ? limit * check_uniform(&state)
                             : rintf(2 * limit * check_uniform(&state)) / 2;
            x[0] = limit, x[1] = -limit, x[2] = 0.5f, x[3] = 1.5f, x[4] = -2.5f;
            float scales[] = {1, 0.25f, 0.7f / limit, 3e-38f, 0, NAN, INFINITY};
            for (int s = 0; s < 7; s++) {
                for (int j = 0; j < N; j++)
                    y[j] = scales[s] > 0 && isfinite(scales[s]) ? x[j] * scales[s] : x[j];
                float first = y[3];
                attn_isa()->quantize(y, N, scales[s], limit);
                for (int j = 0; j < N && isfinite(scales[s]) && scales[s] != 0; j++) {
                    float want = one_code(x[j] * scales[s], scales[s], limit);
                    T_NEAR(y[j], want, 0);
                }
                T_OK(isfinite(scales[s]) || isnan(y[3]));
                T_OK(scales[s] != 0 || (y[3] == 0 && first != 0));
            }
            T_OK(attn_isa()->absmax(x, N) == 0x40e00000 || i > 0);  // 7
        }
    cpu_isa_force(N_CPU_ISAS);
}

static Status on_cpu(Backend *be, Case *c)
{
    (void)be;
    return case_run(c, 2);
}

TEST(quantized_zeros_stay_zero)
{
    ref_quantized_zeros(NULL, on_cpu);
}

TEST(quantized_nan_and_infinity_stay_visible)
{
    REF_EACH_ISA(isa) ref_quantized_nan(NULL, on_cpu);
}

TEST(quantized_scale_ignores_masked_entries)
{
    ref_quantized_masked(NULL, on_cpu);
}

TEST(quantized_logits_do_not_depend_on_threads_or_batch)
{
    CaseShape shape = {2, 1, 2, 24, 3, {130, 1, 49}, {130, 60, 131}};
    for (int scale = 0; scale < N_SCALES; scale++) {
        Case c, ref, one;
        T_STATUS_OK(case_init(&ref, &shape, 6));
        T_STATUS_OK(case_init(&c, &shape, 6));
        c.a.logit_bits = ref.a.logit_bits = 4;
        c.a.logit_scale = ref.a.logit_scale = (LogitScale)scale;
        T_STATUS_OK(case_run(&ref, 1));
        T_STATUS_OK(case_run(&c, 3));
        T_OK(memcmp(c.out.data, ref.out.data, tensor_bytes(&c.out)) == 0);
        for (int64_t b = 0; b < 3; b++) {
            T_STATUS_OK(case_one_sequence(&one, &c, b));
            T_STATUS_OK(case_run(&one, 2));
            T_OK(memcmp(one.out.data, (float *)ref.out.data + c.start[b] * 2 * 48,
                        tensor_bytes(&one.out)) == 0);
            arena_close(&one.arena);
        }
        arena_close(&c.arena);
        arena_close(&ref.arena);
    }
}

/* The records keep the logits as they were. */
TEST(quantization_leaves_the_record_alone)
{
    CaseShape shape = {2, 1, 2, 24, 1, {70}, {70}};
    Case c;
    LogitRecord plain, r;
    T_STATUS_OK(case_init(&c, &shape, 8));
    T_STATUS_OK(logit_record_init(&plain, &c.arena, 0, 2, 2, 70));
    T_STATUS_OK(logit_record_init(&r, &c.arena, 0, 2, 2, 70));
    c.a.record = &plain;
    T_STATUS_OK(case_run(&c, 2));
    c.a.record = &r;
    c.a.logit_bits = 4;
    T_STATUS_OK(case_run(&c, 2));
    T_OK(memcmp(plain.moments, r.moments, 4 * sizeof(Moments)) == 0);
    T_OK(hist_equal(&plain.hist[0], &r.hist[0]) && hist_equal(&plain.hist[1], &r.hist[1]));
    arena_close(&c.arena);
}
