/* test_plan.c - specifications of schemes, and the table of matrices. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/model.h"
#include "quant/plan.h"
#include "tests/check.h"

static const WeightEdit EDIT = plan_edit;  // the signature that model_load calls

TEST(specifications)
{
    static const struct {
        const char *spec;
        Scheme      want;
        const char *canonical;
    } ROWS[] = {
        {"fp", {0, 0, false, DTYPE_F16, METHOD_RTN}, "fp"},
        {"w8", {8, 0, false, DTYPE_F16, METHOD_RTN}, "w8"},
        {"w6", {6, 0, false, DTYPE_F16, METHOD_RTN}, "w6"},
        {"w4", {4, 0, false, DTYPE_F16, METHOD_RTN}, "w4"},
        {"w4:channel", {4, 0, false, DTYPE_F16, METHOD_RTN}, "w4"},
        {"w4:g32:sym", {4, 32, false, DTYPE_F16, METHOD_RTN}, "w4:g32"},
        {"w4:g64", {4, 64, false, DTYPE_F16, METHOD_RTN}, "w4:g64"},
        {"w4:g128:asym", {4, 128, true, DTYPE_F16, METHOD_RTN}, "w4:g128:asym"},
        {"w6:asym:g128", {6, 128, true, DTYPE_F16, METHOD_RTN}, "w6:g128:asym"},
        {"w8:bf16", {8, 0, false, DTYPE_BF16, METHOD_RTN}, "w8:bf16"},
        {"w8:g128:asym:f32", {8, 128, true, DTYPE_F32, METHOD_RTN}, "w8:g128:asym:f32"},
        {"w4:rtn", {4, 0, false, DTYPE_F16, METHOD_RTN}, "w4"},
        {"w4:clip", {4, 0, false, DTYPE_F16, METHOD_CLIP}, "w4:clip"},
        {"w4:gptq:g64:bf16:asym", {4, 64, true, DTYPE_BF16, METHOD_GPTQ},
         "w4:g64:asym:bf16:gptq"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Scheme s, again;
        char text[SCHEME_TEXT];
        T_STATUS_OK(scheme_parse(&s, ROWS[i].spec));
        T_OK(s.bits == ROWS[i].want.bits && s.group == ROWS[i].want.group);
        T_OK(s.asym == ROWS[i].want.asym && s.scale == ROWS[i].want.scale &&
             s.method == ROWS[i].want.method);
        T_TEXT(scheme_text(&s, text), ROWS[i].canonical);
        T_STATUS_OK(scheme_parse(&again, text));
        T_OK(again.bits == s.bits && again.group == s.group && again.asym == s.asym &&
             again.method == s.method);
    }
}

TEST(wrong_specifications)
{
    static const char *const ROWS[][2] = {
        {"", "begins with \"\""},          {"w5", "begins with \"w5\""},
        {"w", "begins with \"w\""},        {"w16", "begins with \"w16\""},
        {"W4", "begins with \"W4\""},      {"fp:g32", "begins with \"fp\""},
        {"w4:", "\"\" is not one of"},     {"w4::g32", "\"\" is not one of"},
        {"w4:g33", "\"g33\" is not one"},  {"w4:g32:", "\"\" is not one of"},
        {"w4:g32:g64", "\"g64\" says a second time"},
        {"w4:g32:channel", "\"channel\" says a second time"},
        {"w4:sym:asym", "\"asym\" says"},  {"w4 :g32", "begins with \"w4 \""},
        {"w4:g1", "\"g1\" is not one"},    {"w4:g1288", "\"g1288\" is not one"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Scheme s = {7, 7, true, DTYPE_I8, METHOD_RTN};
        T_FAILS(scheme_parse(&s, ROWS[i][0]), ERR_USAGE, ROWS[i][1]);
        T_OK(s.bits == 7 && s.group == 7);  // untouched
    }
}

TEST(bits_of_a_weight)
{
    Scheme s = {4, 128, false, DTYPE_F16, METHOD_RTN};
    T_NEAR(scheme_bits(&s, 4096), 4.125, 0);
    s.asym = true;
    T_NEAR(scheme_bits(&s, 4096), 4 + 20.0 / 128, 0);
    s.group = 0;
    s.scale = DTYPE_F32;
    T_NEAR(scheme_bits(&s, 256), 4 + 36.0 / 256, 0);
}

TEST(edit_rounds_and_remembers)
{
    Arena a = {0};
    Plan p;
    uint64_t seed = 1;
    float w[2][256], before[256];
    for (int i = 0; i < 256; i++) {
        w[0][i] = w[1][i] = before[i] = check_normal(&seed);
    }
    T_STATUS_OK(plan_init(&p, &a, "w4:g32"));
    T_TEXT(p.spec, "w4:g32");
    T_STATUS_OK(plan_set(&p, "b", (Scheme){8, 0, false, DTYPE_F16, METHOD_RTN}));
    char name[2] = "a";
    T_STATUS_OK(EDIT(&p, name, w[0], 4, 64));
    name[0] = 'b';  // names are copied: the caller's may change
    T_STATUS_OK(EDIT(&p, name, w[1], 2, 128));
    T_OK(p.n == 2);
    const PlanEntry *e4 = plan_find(&p, "a"), *e8 = plan_find(&p, "b");
    T_OK(e4 && e8 && !plan_find(&p, "c"));
    T_OK(e4->n == 4 && e4->k == 64 && e4->scheme.bits == 4 && e8->scheme.bits == 8);
    double error2 = 0, sum2 = 0;
    for (int i = 0; i < 256; i++) {
        error2 += pow((double)before[i] - w[0][i], 2);
        sum2 += pow(before[i], 2);
    }
    T_NEAR(round_error(&e4->error), sqrt(error2 / sum2), 1e-12);
    T_OK(round_error(&e4->error) > 0.05 && round_error(&e8->error) < 0.01);
    T_NEAR(plan_error(&p), sqrt((e4->error.error2 + e8->error.error2) / (2 * sum2)), 1e-12);
    T_NEAR(plan_bits(&p), (4.5 + 8.125) / 2, 1e-12);
    arena_close(&a);
}

TEST(fp_changes_nothing)
{
    Arena a = {0};
    Plan p;
    float w[4] = {0.1f, -0.2f, 0.3f, 1e30f};
    T_STATUS_OK(plan_init(&p, &a, "fp"));
    T_STATUS_OK(plan_edit(&p, "a", w, 1, 4));
    T_OK(w[0] == 0.1f && w[1] == -0.2f && w[2] == 0.3f && w[3] == 1e30f);
    T_NEAR(plan_error(&p), 0, 0);
    T_NEAR(plan_bits(&p), 0, 0);
    T_OK(plan_find(&p, "a")->n == 1);
    arena_close(&a);
}

TEST(a_matrix_that_does_not_fit_is_named)
{
    Arena a = {0};
    Plan p;
    float w[96] = {0};
    T_STATUS_OK(plan_init(&p, &a, "w4:g64"));
    T_FAILS(plan_edit(&p, "model.layers.0.mlp.up_proj.weight", w, 1, 96), ERR_SHAPE,
            "model.layers.0.mlp.up_proj.weight: rows of 96 weights");
    w[5] = NAN;
    T_FAILS(plan_edit(&p, "q", w, 1, 64), ERR_RANGE, "q: NaN at [0,5]");
    arena_close(&a);
}

static Status many_entries(Arena *a, Plan *p)
{
    char name[32];
    float w[32] = {1};
    TRY(plan_init(p, a, "w8"));
    for (int i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "layers.%d.q", i);
        TRY(plan_edit(p, name, w, 1, 32));
    }
    return OK;
}

TEST(every_allocation_may_fail)
{
    Plan p;
    Status s = ERR_MEMORY;
    int64_t k = 0;
    while (s != OK) {
        Arena a = {0};
        arena_fail_at(++k);
        s = many_entries(&a, &p);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        arena_close(&a);
    }
    T_OK(k > 100);
    Arena a = {0};
    T_STATUS_OK(many_entries(&a, &p));
    T_OK(p.n == 150 && strcmp(p.at[149].name, "layers.149.q") == 0);
    T_OK(plan_find(&p, "layers.70.q") == &p.at[70]);
    arena_close(&a);
}

/* The range of least error, not that of rtn; gptq is no matter of loading. */
TEST(edit_does_what_the_method_says)
{
    Arena a = {0};
    Plan p, q;
    uint64_t seed = 3;
    float clip[512], rtn[512], before[512];
    for (int i = 0; i < 512; i++)
        clip[i] = rtn[i] = before[i] = check_normal(&seed);
    T_STATUS_OK(plan_init(&p, &a, "w4:g64:clip"));
    T_STATUS_OK(plan_init(&q, &a, "w4:g64"));
    T_STATUS_OK(plan_edit(&p, "a", clip, 4, 128));
    T_STATUS_OK(plan_edit(&q, "a", rtn, 4, 128));
    T_OK(plan_error(&p) < 0.97 * plan_error(&q));
    double error2 = 0, sum2 = 0;
    for (int i = 0; i < 512; i++) {
        error2 += pow((double)before[i] - clip[i], 2);
        sum2 += pow(before[i], 2);
    }
    T_NEAR(plan_error(&p), sqrt(error2 / sum2), 1e-12);
    T_STATUS_OK(plan_init(&q, &a, "w4:gptq"));
    T_FAILS(plan_edit(&q, "b", before, 4, 128), ERR_UNSUPPORTED, "b: gptq cannot be done while");
    before[3] = NAN;
    T_FAILS(plan_edit(&p, "c", before, 4, 128), ERR_RANGE, "c");
    arena_close(&a);
}
