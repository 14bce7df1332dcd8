/* spec.c - reads specifications of studies: widths, then options of the weights' format,
 * of their preparation and of the scales of inputs. */
#include "quant/spec.h"

#include <stdio.h>
#include <string.h>

#include "kernels/size.h"

/* --- widths: w4a8kv4 --- */

enum { WIDTH_W, WIDTH_A, WIDTH_KV, N_WIDTHS, MOST_WIDTHS = 4 };

static const struct {
    const char *prefix;
    const char *texts[MOST_WIDTHS];  // bits that there are
    const char *list;
} WIDTHS[N_WIDTHS] = {
    [WIDTH_W] = {"w", {"4", "6", "8", "16"}, "w4, w6, w8 or w16"},
    [WIDTH_A] = {"a", {"4", "6", "8", "16"}, "a4, a6, a8 or a16"},
    [WIDTH_KV] = {"kv", {"4", "8", "16"}, "kv4, kv8 or kv16"},
};

/* For printing a part with %.*s. */
static int shown(size_t n)
{
    return (int)i64_min((int64_t)n, 40);
}

/* Bits of one kind at *at, which goes past them; 0 where that kind is not given. */
static Status read_width(int *bits, int kind, const char **at, const char *spec)
{
    const char *prefix = WIDTHS[kind].prefix, *part = *at;
    size_t      letters = strlen(prefix);
    *bits = 0;
    if (strncmp(part, prefix, letters) != 0)
        return OK;
    size_t digits = strspn(part + letters, "0123456789");
    for (int i = 0; i < MOST_WIDTHS && WIDTHS[kind].texts[i]; i++) {
        const char *text = WIDTHS[kind].texts[i];
        if (strlen(text) != digits || memcmp(part + letters, text, digits) != 0)
            continue;
        *bits = digits == 2 ? 16 : text[0] - '0';
        *at = part + letters + digits;
        return OK;
    }
    FAIL(ERR_USAGE, "specification \"%.60s\": \"%.*s\" is not one of %s", spec,
         shown(letters + digits), part, WIDTHS[kind].list);
}

static Status read_widths(int *bits, const char *spec, const char *end)
{
    const char *at = spec;
    for (int kind = 0; kind < N_WIDTHS; kind++)
        TRY(read_width(&bits[kind], kind, &at, spec));
    if (!bits[WIDTH_W])
        FAIL(ERR_USAGE, "specification \"%.60s\": begins with \"%.*s\", expected fp or "
             "w<bits>[a<bits>][kv<bits>]", spec, shown((size_t)(end - spec)), spec);
    if (at != end)
        FAIL(ERR_USAGE, "specification \"%.60s\": \"%.*s\" does not belong after \"%.*s\", "
             "expected w<bits>[a<bits>][kv<bits>]", spec, shown((size_t)(end - at)), at,
             shown((size_t)(at - spec)), spec);
    return OK;
}

/* --- options --- */

typedef enum { OF_AWQ, OF_SMOOTH, OF_ROTATE, OF_TOKEN, OF_TENSOR, N_OWN } OwnOption;
static const char *const OWN[N_OWN] = {"awq", "smooth", "rotate", "atoken", "atensor"};

typedef struct {
    Spec     s;
    unsigned of_scheme;    // what options said about the scheme
    bool     own[N_OWN];
} Reader;

static OptionFit own_option(Reader *r, const char *text, size_t n)
{
    int i = 0;
    while (i < N_OWN && (strlen(OWN[i]) != n || memcmp(text, OWN[i], n) != 0))
        i++;
    if (i == N_OWN)
        return OPTION_OTHER;
    bool of_acts = i == OF_TOKEN || i == OF_TENSOR;
    if (r->own[i] || (of_acts && (r->own[OF_TOKEN] || r->own[OF_TENSOR])))
        return OPTION_AGAIN;
    r->own[i] = true;
    return OPTION_TAKEN;
}

/* An option that says how something is rounded, where nothing is. */
static Status check_use(const Reader *r, bool of_scheme, const char *spec, const char *text,
                        size_t n)
{
    const Spec *s = &r->s;
    if ((of_scheme || r->own[OF_AWQ]) && !s->scheme.bits)
        FAIL(ERR_USAGE, "specification \"%.60s\": \"%.*s\" says how weights are rounded, and "
             "none are", spec, shown(n), text);
    if ((r->own[OF_TOKEN] || r->own[OF_TENSOR]) && !s->run.acts)
        FAIL(ERR_USAGE, "specification \"%.60s\": \"%.*s\" says how inputs are rounded, and "
             "none are: add a8, a6 or a4", spec, shown(n), text);
    return OK;
}

static Status read_option(Reader *r, const char *spec, const char *text, size_t n)
{
    OptionFit fit = scheme_option(&r->s.scheme, &r->of_scheme, text, n);
    bool      of_scheme = fit == OPTION_TAKEN;
    if (fit == OPTION_OTHER)
        fit = own_option(r, text, n);
    if (fit == OPTION_OTHER)
        FAIL(ERR_USAGE, "specification \"%.60s\": \"%.*s\" is not one of " SCHEME_OPTIONS
             ", awq, smooth, rotate, atoken, atensor", spec, shown(n), text);
    if (fit == OPTION_AGAIN)
        FAIL(ERR_USAGE, "specification \"%.60s\": \"%.*s\" says a second time what was said "
             "before", spec, shown(n), text);
    return check_use(r, of_scheme, spec, text, n);
}

/* --- the whole --- */

static Status read_spec(Reader *r, const char *spec)
{
    int         bits[N_WIDTHS];
    size_t      n = strcspn(spec, ":");
    const char *end = spec + n;
    r->s.scheme.scale = DTYPE_F16;
    r->s.run.bits = 16;
    if (strcmp(spec, "fp") == 0)
        return OK;
    TRY(read_widths(bits, spec, end));
    r->s.scheme.bits = bits[WIDTH_W] % 16;
    r->s.run.acts = bits[WIDTH_A] % 16;
    r->s.run.kv = bits[WIDTH_KV] % 16;
    for (const char *at = end; *at; at += n) {
        at++;  // the colon
        n = strcspn(at, ":");
        TRY(read_option(r, spec, at, n));
    }
    return OK;
}

/* What the options mean, once all are known. */
static void settle(Reader *r)
{
    Spec *s = &r->s;
    s->awq = r->own[OF_AWQ];
    s->smooth = r->own[OF_SMOOTH];
    s->rotate = r->own[OF_ROTATE];
    s->run.act_scale = r->own[OF_TENSOR] ? ACTS_TENSOR : ACTS_TOKEN;
    bool gptq = s->scheme.method == METHOD_GPTQ;
    s->needs_text = s->awq || s->smooth || gptq;
    s->in_memory = !s->needs_text && !s->rotate;
}

static const char *canonical(Arena *a, const Spec *s)
{
    char        scheme[SCHEME_TEXT], acts[8] = "", kv[8] = "";
    const char *options = strchr(scheme_text(&s->scheme, scheme), ':');
    bool        prepared = s->awq || s->smooth || s->rotate;
    if (!s->scheme.bits && !s->run.acts && !s->run.kv && !prepared)
        return arena_printf(a, "fp");
    if (s->run.acts)
        snprintf(acts, sizeof acts, "a%d", s->run.acts);
    if (s->run.kv)
        snprintf(kv, sizeof kv, "kv%d", s->run.kv);
    return arena_printf(a, "w%d%s%s%s%s%s%s%s", s->scheme.bits ? s->scheme.bits : 16, acts, kv,
                        options ? options : "", s->awq ? ":awq" : "",
                        s->smooth ? ":smooth" : "", s->rotate ? ":rotate" : "",
                        s->run.act_scale == ACTS_TENSOR ? ":atensor" : "");
}

Status spec_parse(Spec *out, Arena *a, const char *text)
{
    Reader r = {0};
    TRY(read_spec(&r, text));
    settle(&r);
    r.s.text = canonical(a, &r.s);
    if (!r.s.text)
        FAIL(ERR_MEMORY, "out of memory for a specification");
    *out = r.s;
    return OK;
}
