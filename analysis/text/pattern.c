/* pattern.c - matching with PCRE2; the translation is pattern_translate.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "analysis/text/pattern.h"

#include <string.h>

#include "analysis/text/pattern_translate.h"

enum { STACK_START = 64 << 10, STACK_MAX = 16 << 20 };

struct Pattern {
    Pattern             *below;    // in its list
    pcre2_code          *code;     // NULL: literal
    pcre2_match_data    *match;
    pcre2_match_context *context;
    pcre2_jit_stack     *stack;    // patterns that nest need more than the default
    const char          *literal;
    int64_t              n;
};

void pattern_close(PatternList *list)
{
    for (Pattern *p = list->last; p; p = p->below) {
        pcre2_match_data_free(p->match);
        pcre2_match_context_free(p->context);
        pcre2_jit_stack_free(p->stack);
        pcre2_code_free(p->code);
    }
    list->last = NULL;
}

static Status compile_code(Pattern *p, const char *name, const char *regex, const char *text)
{
    int        error;
    PCRE2_SIZE place;
    /* Oniguruma's ^ and $ stand at every line. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                       PCRE2_NO_AUTO_CAPTURE;
    p->code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &error, &place, NULL);
    if (!p->code) {
        char why[256];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        FAIL(ERR_FORMAT, "%s: regular expression \"%.200s\": %s", name, regex, why);
    }
    /* Without a compiler for this machine, PCRE2 interprets. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    p->match = pcre2_match_data_create(1, NULL);
    p->context = pcre2_match_context_create(NULL);
    p->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
    if (!p->match || !p->context || !p->stack)
        FAIL(ERR_MEMORY, "out of memory: regular expression of %zu bytes", strlen(text));
    pcre2_jit_stack_assign(p->context, NULL, p->stack);
    return OK;
}

Status pattern_compile(Pattern **out, PatternList *list, Arena *a, const char *name,
                       const char *regex)
{
    char *text;
    TRY(pattern_translate(&text, a, name, regex));
    ARENA_NEW(*out, a, 1);
    (*out)->below = list->last;
    list->last = *out;
    return compile_code(*out, name, regex, text);
}

Status pattern_literal(Pattern **out, Arena *a, const char *text, int64_t n)
{
    ARENA_NEW(*out, a, 1);
    **out = (Pattern){.literal = text, .n = n};
    return OK;
}

PatternWalk pattern_walk(const Pattern *p, const char *text, int64_t n)
{
    return (PatternWalk){p, text, n, 0, -1};
}

static Status find_literal(PatternWalk *w, int64_t *from, int64_t *to)
{
    const Pattern *p = w->pattern;
    const char *at = memmem(w->text + w->at, (size_t)(w->n - w->at), p->literal, (size_t)p->n);
    *from = at ? at - w->text : -1;
    *to = *from + p->n;
    return OK;
}

static Status find_regex(PatternWalk *w, int64_t *from, int64_t *to)
{
    const Pattern *p = w->pattern;
    int found = pcre2_match(p->code, (PCRE2_SPTR)w->text, (size_t)w->n, (size_t)w->at,
                            PCRE2_NO_UTF_CHECK, p->match, p->context);
    if (found == PCRE2_ERROR_NOMATCH) {
        *from = *to = -1;
        return OK;
    }
    if (found < 0) {
        char why[256];
        pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
        FAIL(ERR_RANGE, "tokenizer: regular expression failed at byte %lld of %lld: %s",
             (long long)w->at, (long long)w->n, why);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(p->match);
    *from = (int64_t)ends[0];
    *to = (int64_t)ends[1];
    return OK;
}

Status pattern_next(PatternWalk *w, int64_t *from, int64_t *to)
{
    for (;;) {
        *from = *to = -1;
        if (w->at > w->n)
            return OK;
        TRY(w->pattern->code ? find_regex(w, from, to) : find_literal(w, from, to));
        if (*from < 0)
            return OK;
        if (*from < *to || *to != w->last_end)
            break;
        /* An empty match right after another: one character on, try again. */
        int step = 1;
        if (w->at < w->n)
            utf8_get(w->text + w->at, &step);
        w->at += step;
    }
    w->at = w->last_end = *to;
    return OK;
}
