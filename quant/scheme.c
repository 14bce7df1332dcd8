/* scheme.c - specifications of number formats, read and written. */
#include <stdio.h>
#include <string.h>

#include "kernels/size.h"
#include "quant/plan.h"

/* What an option says: one of four things, each at most once. */
typedef enum { SETS_GROUP, SETS_ASYM, SETS_SCALE, SETS_METHOD } OptionSets;

static const struct {
    const char *text;
    OptionSets  sets;
    int         value;
} OPTIONS[] = {
    {"channel", SETS_GROUP, 0},         {"g32", SETS_GROUP, 32},
    {"g64", SETS_GROUP, 64},            {"g128", SETS_GROUP, 128},
    {"sym", SETS_ASYM, false},          {"asym", SETS_ASYM, true},
    {"f16", SETS_SCALE, DTYPE_F16},     {"bf16", SETS_SCALE, DTYPE_BF16},
    {"f32", SETS_SCALE, DTYPE_F32},     {"rtn", SETS_METHOD, METHOD_RTN},
    {"clip", SETS_METHOD, METHOD_CLIP}, {"gptq", SETS_METHOD, METHOD_GPTQ},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

/* Is text[0..n) that word? */
static bool is_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

OptionFit scheme_option(Scheme *s, unsigned *seen, const char *text, size_t n)
{
    int i = 0;
    while (i < N_OPTIONS && !is_word(text, n, OPTIONS[i].text))
        i++;
    if (i == N_OPTIONS)
        return OPTION_OTHER;
    if (*seen >> OPTIONS[i].sets & 1)
        return OPTION_AGAIN;
    *seen |= 1u << OPTIONS[i].sets;
    switch (OPTIONS[i].sets) {
    case SETS_GROUP:
        s->group = OPTIONS[i].value;
        break;
    case SETS_ASYM:
        s->asym = OPTIONS[i].value;
        break;
    case SETS_SCALE:
        s->scale = (Dtype)OPTIONS[i].value;
        break;
    default:
        s->method = (Method)OPTIONS[i].value;
    }
    return OPTION_TAKEN;
}

static Status parse_option(Scheme *s, unsigned *seen, const char *spec, const char *text,
                           size_t n)
{
    switch (scheme_option(s, seen, text, n)) {
    case OPTION_TAKEN:
        return OK;
    case OPTION_AGAIN:
        FAIL(ERR_USAGE, "weights \"%.60s\": \"%.*s\" says a second time what was said before",
             spec, (int)n, text);
    default:
        FAIL(ERR_USAGE, "weights \"%.60s\": \"%.*s\" is not one of " SCHEME_OPTIONS, spec,
             (int)i64_min((int64_t)n, 40), text);
    }
}

const char *method_name(Method m)
{
    static const char *const NAMES[N_METHODS] = {"rtn", "clip", "gptq"};
    CHECK((unsigned)m < N_METHODS);
    return NAMES[m];
}

Status scheme_parse(Scheme *out, const char *spec)
{
    Scheme s = {.scale = DTYPE_F16};
    unsigned seen = 0;
    size_t n = strcspn(spec, ":");
    if (strcmp(spec, "fp") == 0) {
        *out = s;
        return OK;
    }
    if (!is_word(spec, n, "w4") && !is_word(spec, n, "w6") && !is_word(spec, n, "w8"))
        FAIL(ERR_USAGE, "weights \"%.60s\": begins with \"%.*s\", expected fp, w4, w6 or w8",
             spec, (int)i64_min((int64_t)n, 40), spec);
    s.bits = spec[1] - '0';
    for (const char *at = spec + n; *at; at += n) {
        at++;  // the colon
        n = strcspn(at, ":");
        TRY(parse_option(&s, &seen, spec, at, n));
    }
    *out = s;
    return OK;
}

const char *scheme_text(const Scheme *s, char *text)
{
    if (!s->bits)
        return strcpy(text, "fp");
    int n = snprintf(text, SCHEME_TEXT, "w%d", s->bits);
    if (s->group)
        n += snprintf(text + n, (size_t)(SCHEME_TEXT - n), ":g%d", s->group);
    snprintf(text + n, (size_t)(SCHEME_TEXT - n), "%s%s%s%s", s->asym ? ":asym" : "",
             s->scale == DTYPE_BF16 ? ":bf16" : s->scale == DTYPE_F32 ? ":f32" : "",
             s->method ? ":" : "", s->method ? method_name(s->method) : "");
    return text;
}

double scheme_bits(const Scheme *s, int64_t K)
{
    if (!s->bits)
        return 0;
    size_t beside = 8 * dtype_size(s->scale) + (s->asym ? (size_t)s->bits : 0);
    return s->bits + (double)beside / (double)(s->group ? s->group : K);
}
