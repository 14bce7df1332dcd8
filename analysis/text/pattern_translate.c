/* pattern_translate.c - from Oniguruma (Unicode 16) to PCRE2 10.4x (Unicode 14).
 * \s, \w and \p{L}, \p{Lu}, ... become classes that hold exactly the library's
 * characters, those newer than PCRE2's tables written out. */
#include "analysis/text/pattern_translate.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    uint32_t    first, last;
    const char *category;
} NewerRange;

#include "analysis/text/newer_table.h"

enum { N_NEWER = sizeof NEWER / sizeof *NEWER };

/* Insides of classes. PCRE2's own \s has U+180E, its \w lacks marks. */
static const char SPACES[] = "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
                             "\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char CIRCLED[] = "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
                              "\\x{1f170}-\\x{1f189}";  // alphabetic symbols

typedef struct {
    const char *in, *name, *regex;
    char       *out;       // NULL while only counting
    int64_t     n;
    bool        in_class;
    bool        braces;    // the last thing was {n,m}
} Translate;

static void put(Translate *t, const char *text, size_t n)
{
    if (t->out)
        memcpy(t->out + t->n, text, n);
    t->n += (int64_t)n;
}

static void put_text(Translate *t, const char *text)
{
    put(t, text, strlen(text));
}

static Status refuse(const Translate *t, const char *what)
{
    FAIL(ERR_UNSUPPORTED, "%s: %s in regular expression \"%.200s\"", t->name, what, t->regex);
}

/* The newer characters whose category begins with prefix. */
static void put_newer(Translate *t, const char *prefix, size_t n)
{
    for (int i = 0; i < N_NEWER; i++) {
        char text[48];
        if (strncmp(NEWER[i].category, prefix, n) != 0)
            continue;
        snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", (unsigned)NEWER[i].first,
                 (unsigned)NEWER[i].last);
        put_text(t, text);
    }
}

static void put_category(Translate *t, const char *name, size_t n)
{
    put_text(t, "\\p{");
    put(t, name, n);
    put_text(t, "}");
    put_newer(t, name, n);
}

static void put_word(Translate *t)
{
    put_category(t, "L", 1);
    put_category(t, "M", 1);
    put_category(t, "N", 1);
    put_category(t, "Pc", 2);
    put_text(t, CIRCLED);
}

/* A class of its own outside brackets, its inside within them. */
static Status open_set(Translate *t, bool negated)
{
    if (t->in_class && negated)
        return refuse(t, "a negated set inside [...]");
    if (!t->in_class)
        put_text(t, negated ? "[^" : "[");
    return OK;
}

static void close_set(Translate *t)
{
    if (!t->in_class)
        put_text(t, "]");
}

/* \p{Lu} and the like: one or two letters, a general category. Scripts and long
 * names go to PCRE2 as they are. */
static Status put_property(Translate *t)
{
    bool        negated = t->in[1] == 'P';
    const char *name = t->in + 3, *end = strchr(t->in, '}');
    if (t->in[2] != '{' || !end)
        return refuse(t, "\\p without {name}");
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    size_t n = (size_t)(end - name);
    if (n == 1 || n == 2) {
        TRY(open_set(t, negated));
        put_category(t, name, n);
        close_set(t);
    } else {
        put_text(t, negated ? "\\P{" : "\\p{");
        put(t, name, n + 1);
    }
    t->in = end + 1;
    return OK;
}

static Status put_unicode_escape(Translate *t)
{
    size_t n = strspn(t->in + 2, "0123456789abcdefABCDEF");
    if (n < 4)
        return refuse(t, "\\u without four digits");
    put_text(t, "\\x{");
    put(t, t->in + 2, 4);
    put_text(t, "}");
    t->in += 6;
    return OK;
}

static Status put_escape(Translate *t)
{
    char c = t->in[1];
    if (c == 'p' || c == 'P')
        return put_property(t);
    if (c == 'u')
        return put_unicode_escape(t);
    if (c == 's' || c == 'S' || c == 'w' || c == 'W' || c == 'd' || c == 'D') {
        TRY(open_set(t, c < 'a'));
        if ((c | 32) == 's')
            put_text(t, SPACES);
        else if ((c | 32) == 'd')
            put_category(t, "Nd", 2);
        else
            put_word(t);
        close_set(t);
    } else if (c == 'v') {
        put_text(t, "\\x{0b}");
    } else if (c == 'x' && t->in[2] != '{' && !(t->in[2] >= '0' && t->in[2] <= '7')) {
        return refuse(t, "\\x of a single byte past 7f");
    } else if (c && strchr("nrtfxAz", c)) {
        put(t, t->in, 2);
    } else if (c && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z')) {
        put(t, t->in, 2);
    } else {
        char what[32];
        snprintf(what, sizeof what, c ? "\\%c" : "a \\ at the end", c);
        return refuse(t, what);
    }
    t->in += 2;
    return OK;
}

/* Inside [...]: Oniguruma has nested classes and intersections. */
static Status put_in_class(Translate *t)
{
    if (t->in[0] == '[')
        return refuse(t, "[ inside [...]");
    if (t->in[0] == '&' && t->in[1] == '&')
        return refuse(t, "&& inside [...]");
    t->in_class = t->in[0] != ']';
    put(t, t->in++, 1);
    return OK;
}

/* After "(?": the same letters are other options in the two languages. */
static Status check_group(const Translate *t)
{
    const char *p = t->in + 2;
    if (*p && strchr(":=!><", *p))
        return OK;
    p += strspn(p, "i-");
    return *p == ':' || *p == ')'
               ? OK
               : refuse(t, "a group other than (?:, (?=, (?!, (?<, (?>, (?i");
}

/* {n,m}+ repeats the repetition in Oniguruma and is possessive in PCRE2; {,m}
 * counts from 0 there and is plain text here. */
static Status put_outside(Translate *t)
{
    char c = t->in[0];
    if (c == '+' && t->braces)
        return refuse(t, "{n,m}+");
    if (c == '{' && t->in[1] == ',')
        return refuse(t, "{,m}");
    if (c == '(' && t->in[1] == '?')
        TRY(check_group(t));
    t->braces = c == '}';
    put(t, t->in++, 1);
    if (c == '[') {
        t->in_class = true;
        if (t->in[0] == '^')
            put(t, t->in++, 1);
        if (t->in[0] == ']')
            return refuse(t, "[] or [^]");
    }
    return OK;
}

static Status translate(Translate *t)
{
    t->in = t->regex;
    t->n = 0;
    t->in_class = t->braces = false;
    while (*t->in) {
        if (t->in[0] == '\\') {
            t->braces = false;
            TRY(put_escape(t));
        } else {
            TRY(t->in_class ? put_in_class(t) : put_outside(t));
        }
    }
    return OK;
}

Status pattern_translate(char **out, Arena *a, const char *name, const char *regex)
{
    Translate t = {.name = name, .regex = regex};
    TRY(translate(&t));
    ARENA_NEW(*out, a, t.n + 1);
    t.out = *out;
    return translate(&t);
}
