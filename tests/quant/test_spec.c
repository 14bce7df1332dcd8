/* test_spec.c - specifications of studies: what they say, their spelling, mistakes. */
#include <stdio.h>
#include <string.h>

#include "quant/spec.h"
#include "tests/check.h"

TEST(widths)
{
    static const struct {
        const char *text, *canonical;
        int w, a, kv;
    } ROWS[] = {
        {"fp", "fp", 0, 0, 0},             {"w16", "fp", 0, 0, 0},
        {"w16a16kv16", "fp", 0, 0, 0},     {"w4", "w4", 4, 0, 0},
        {"w4a16", "w4", 4, 0, 0},          {"w6a6", "w6a6", 6, 6, 0},
        {"w8a8", "w8a8", 8, 8, 0},         {"w4a8kv4", "w4a8kv4", 4, 8, 4},
        {"w4kv8", "w4kv8", 4, 0, 8},       {"w4a16kv4", "w4kv4", 4, 0, 4},
        {"w16a4", "w16a4", 0, 4, 0},       {"w16kv8", "w16kv8", 0, 0, 8},
        {"w16a8kv16", "w16a8", 0, 8, 0},
    };
    Arena a = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Spec s, again;
        T_STATUS_OK(spec_parse(&s, &a, ROWS[i].text));
        T_TEXT(s.text, ROWS[i].canonical);
        T_OK(s.scheme.bits == ROWS[i].w && s.run.acts == ROWS[i].a && s.run.kv == ROWS[i].kv);
        T_OK(s.run.bits == 16 && s.scheme.scale == DTYPE_F16 && !s.scheme.group);
        T_OK(!s.awq && !s.smooth && !s.rotate && !s.needs_text && s.in_memory);
        T_STATUS_OK(spec_parse(&again, &a, s.text));
        T_TEXT(again.text, s.text);
    }
    arena_close(&a);
}

TEST(options)
{
    static const struct {
        const char *text, *canonical;
        Spec want;
    } ROWS[] = {
        {"w4a8kv4:g64:gptq:awq:atensor", "w4a8kv4:g64:gptq:awq:atensor",
         {.scheme = {4, 64, false, DTYPE_F16, METHOD_GPTQ},
          .run = {.acts = 8, .act_scale = ACTS_TENSOR, .kv = 4}, .awq = true,
          .needs_text = true}},
        {"w4a8:atensor:smooth:bf16:asym:g128:clip", "w4a8:g128:asym:bf16:clip:smooth:atensor",
         {.scheme = {4, 128, true, DTYPE_BF16, METHOD_CLIP},
          .run = {.acts = 8, .act_scale = ACTS_TENSOR}, .smooth = true, .needs_text = true}},
        {"w4:clip", "w4:clip",
         {.scheme = {4, 0, false, DTYPE_F16, METHOD_CLIP}, .in_memory = true}},
        {"w4:gptq", "w4:gptq",
         {.scheme = {4, 0, false, DTYPE_F16, METHOD_GPTQ}, .needs_text = true}},
        {"w8a8:atoken:channel:rtn", "w8a8",
         {.scheme = {8, 0, false, DTYPE_F16, METHOD_RTN}, .run = {.acts = 8},
          .in_memory = true}},
        {"w4:rotate:awq:smooth", "w4:awq:smooth:rotate",
         {.scheme = {4, 0, false, DTYPE_F16, METHOD_RTN}, .awq = true, .smooth = true,
          .rotate = true, .needs_text = true}},
        {"w16a4:rotate", "w16a4:rotate",
         {.scheme = {0, 0, false, DTYPE_F16, METHOD_RTN}, .run = {.acts = 4}, .rotate = true}},
        {"w16a16:smooth", "w16:smooth",
         {.scheme = {0, 0, false, DTYPE_F16, METHOD_RTN}, .smooth = true, .needs_text = true}},
    };
    Arena a = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Spec s, again;
        const Spec *want = &ROWS[i].want;
        T_STATUS_OK(spec_parse(&s, &a, ROWS[i].text));
        T_TEXT(s.text, ROWS[i].canonical);
        T_OK(s.scheme.bits == want->scheme.bits && s.scheme.group == want->scheme.group &&
             s.scheme.asym == want->scheme.asym && s.scheme.scale == want->scheme.scale &&
             s.scheme.method == want->scheme.method);
        T_OK(s.run.bits == 16 && s.run.acts == want->run.acts && s.run.kv == want->run.kv &&
             s.run.act_scale == want->run.act_scale);
        T_OK(s.awq == want->awq && s.smooth == want->smooth && s.rotate == want->rotate);
        T_OK(s.needs_text == want->needs_text && s.in_memory == want->in_memory);
        T_STATUS_OK(spec_parse(&again, &a, s.text));
        T_TEXT(again.text, s.text);
    }
    arena_close(&a);
}

TEST(mistakes)
{
    static const char *const ROWS[][2] = {
        {"", "\"\": begins with \"\", expected fp or w<bits>"},
        {"w", "\"w\" is not one of w4, w6, w8 or w16"},
        {"w5", "\"w5\" is not one of w4"},
        {"w04", "\"w04\" is not one of w4"},
        {"w166", "\"w166\" is not one of w4"},
        {"w1", "\"w1\" is not one of w4"},
        {"W4", "begins with \"W4\""},
        {"a8", "begins with \"a8\""},
        {"fp:g32", "begins with \"fp\""},
        {"w4a5", "\"w4a5\": \"a5\" is not one of a4, a6, a8 or a16"},
        {"w4a", "\"a\" is not one of a4"},
        {"w4kv6", "\"kv6\" is not one of kv4, kv8 or kv16"},
        {"w4kv", "\"kv\" is not one of kv4"},
        {"w4k4", "\"k4\" does not belong after \"w4\""},
        {"w4kv4a8", "\"a8\" does not belong after \"w4kv4\""},
        {"w4a8 ", "\" \" does not belong after \"w4a8\""},
        {"w4a8a8", "\"a8\" does not belong after \"w4a8\""},
        {"w4a8:", "\"\" is not one of channel, g32"},
        {"w4::g32", "\"\" is not one of"},
        {"w4:g33", "\"g33\" is not one of"},
        {"w4:gpt", "\"gpt\" is not one of"},
        {"w4:awqs", "\"awqs\" is not one of"},
        {"w4:g32:channel", "\"channel\" says a second time"},
        {"w4:awq:awq", "\"awq\" says a second time"},
        {"w4a8:atoken:atensor", "\"atensor\" says a second time"},
        {"w16a8:g64", "\"g64\" says how weights are rounded, and none are"},
        {"w16a8:gptq", "\"gptq\" says how weights are rounded, and none are"},
        {"w16a8:awq", "\"awq\" says how weights are rounded, and none are"},
        {"w4:atensor", "\"atensor\" says how inputs are rounded, and none are"},
        {"w4a16kv4:atoken", "\"atoken\" says how inputs are rounded, and none are"},
    };
    Arena a = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Spec s = {.scheme = {.bits = 7}};
        T_FAILS(spec_parse(&s, &a, ROWS[i][0]), ERR_USAGE, ROWS[i][1]);
        T_OK(s.scheme.bits == 7 && !s.text);  // untouched
    }
    arena_close(&a);
}

/* Long ones are cut in the message, not in memory. */
TEST(long_texts)
{
    Arena a = {0};
    char  text[5000];
    Spec  s;
    memset(text, '4', sizeof text - 1);
    text[0] = 'w';
    text[sizeof text - 1] = 0;
    T_FAILS(spec_parse(&s, &a, text), ERR_USAGE, "w4444");
    text[2] = ':';
    T_FAILS(spec_parse(&s, &a, text), ERR_USAGE, "is not one of channel");
    arena_fail_at(1);
    Status none = spec_parse(&s, &a, "w4");
    arena_fail_at(0);
    T_OK(none == ERR_MEMORY);
    arena_close(&a);
}
