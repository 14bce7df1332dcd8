/* ref_logit_quant.c - checks of quantized logits. */
#include "tests/kernels/ref_logit_quant.h"

#include <math.h>
#include <string.h>

#include "tests/check.h"

/* d = 1 and q = 1: the logits are the keys. */
static Status run_keys(Backend *be, CaseRun run, Case *c, const float *keys, LogitScale scale)
{
    CaseShape shape = {1, 1, 1, 1, 1, {20}, {20}};
    TRY(case_init(c, &shape, 3));
    for (int64_t i = 0; i < 20; i++)
        ((float *)c->q.data)[i] = 1;
    memcpy(c->k.data, keys, 20 * sizeof *keys);
    c->a.logit_bits = 4;
    c->a.logit_scale = scale;
    return run(be, c);
}

void ref_quantized_zeros(Backend *be, CaseRun run)
{
    float keys[20] = {0};
    Case  c;
    keys[3] = 1e-45f;  // its scale would be below the smallest float: 0
    for (int scale = 0; scale < N_SCALES; scale++) {
        T_STATUS_OK(run_keys(be, run, &c, keys, (LogitScale)scale));
        T_NEAR(ref_case_error(&c), 0, 2e-6);  // the mean of the values so far
        arena_close(&c.arena);
    }
}

/* NaN or infinity at key 12 of 20: rows from there on are NaN, never zeros; the rows before
 * share their scale where it is one of the whole map. */
void ref_quantized_nan(Backend *be, CaseRun run)
{
    float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int scale = 0; scale < N_SCALES; scale++) {
            float keys[20];
            Case  c;
            for (int j = 0; j < 20; j++)
                keys[j] = (float)(j % 5) - 2;
            keys[12] = bad[i];
            T_STATUS_OK(run_keys(be, run, &c, keys, (LogitScale)scale));
            for (int t = 0; t < 20; t++) {
                bool nan = isnan(((float *)c.out.data)[t]);
                T_OK(nan == (scale != SCALE_ROW || t >= 12));
            }
            arena_close(&c.arena);
        }
}

/* A key that no query may see yet would ruin the scale if it counted. */
void ref_quantized_masked(Backend *be, CaseRun run)
{
    CaseShape shape = {1, 1, 1, 8, 1, {20}, {20}};
    for (int scale = 0; scale < N_SCALES; scale++) {
        Case c, without;
        T_STATUS_OK(case_init(&c, &shape, 5));
        T_STATUS_OK(case_init(&without, &shape, 5));
        for (int i = 0; i < 8; i++) {
            ((float *)c.k.data)[19 * 8 + i] = 1e6f;  // seen by the last query only
            ((float *)c.q.data)[19 * 8 + i] = 0;     // which makes zeros of it
            ((float *)without.q.data)[19 * 8 + i] = 0;
        }
        c.a.logit_bits = without.a.logit_bits = 6;
        c.a.logit_scale = without.a.logit_scale = (LogitScale)scale;
        T_STATUS_OK(run(be, &c));
        T_STATUS_OK(run(be, &without));
        T_OK(memcmp(c.out.data, without.out.data, tensor_bytes(&c.out)) == 0);
        arena_close(&c.arena);
        arena_close(&without.arena);
    }
}
