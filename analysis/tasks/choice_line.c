/* choice_line.c - what the layouts of tasks read from a line. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analysis/tasks/choice_item.h"
#include "analysis/text/utf8.h"

Status line_member(const Json **out, const ChoiceLine *l, const Json *object, const char *key)
{
    *out = json_member(object, key);
    if (!*out)
        FAIL_LINE(l, ERR_FORMAT, "key \"%s\" is missing", key);
    return OK;
}

static Status copy(const char **out, const ChoiceLine *l, const char *text)
{
    *out = arena_text(l->arena, text, strlen(text));
    if (!*out)
        FAIL_LINE(l, ERR_MEMORY, "out of memory for a text");
    return OK;
}

Status line_text(const char **out, const ChoiceLine *l, const char *key)
{
    const Json *v;
    TRY(line_member(&v, l, l->object, key));
    if (v->kind != JSON_TEXT)
        FAIL_LINE(l, ERR_FORMAT, "\"%s\" is %s, expected a text", key, json_kind_name(v->kind));
    return copy(out, l, v->text);
}

Status line_texts(const char ***out, int64_t *n, const ChoiceLine *l, const Json *list,
                  const char *key)
{
    if (list->kind != JSON_LIST)
        FAIL_LINE(l, ERR_FORMAT, "\"%s\" is %s, expected a list of texts", key,
                  json_kind_name(list->kind));
    if (list->n == 0)
        FAIL_LINE(l, ERR_RANGE, "\"%s\" is an empty list", key);
    ARENA_NEW(*out, l->arena, list->n);
    for (int64_t i = 0; i < list->n; i++) {
        if (list->at[i].kind != JSON_TEXT)
            FAIL_LINE(l, ERR_FORMAT, "\"%s\" has %s among its items, expected texts only", key,
                      json_kind_name(list->at[i].kind));
        TRY(copy(&(*out)[i], l, list->at[i].text));
    }
    *n = list->n;
    return OK;
}

/* The number that text is, of at most 18 digits; false for any other text. */
static bool digits(int64_t *out, const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n > 18 || strspn(text, "0123456789") != n)
        return false;
    *out = 0;
    for (; *text; text++)
        *out = *out * 10 + (*text - '0');
    return true;
}

Status line_whole(int64_t *out, const ChoiceLine *l, const char *key)
{
    const Json *v;
    TRY(line_member(&v, l, l->object, key));
    if (v->kind == JSON_NUMBER && v->whole)
        *out = v->integer;
    else if (v->kind == JSON_TEXT && !digits(out, v->text))
        FAIL_LINE(l, ERR_FORMAT, "\"%s\" is the text \"%.40s\", expected a whole number", key,
                  v->text);
    else if (v->kind != JSON_TEXT)
        FAIL_LINE(l, ERR_FORMAT, "\"%s\" is %s, expected a whole number", key,
                  json_not_whole(v));
    return OK;
}

Status line_answer(const ChoiceLine *l, const char *key, int64_t answer, int64_t first,
                   int64_t end)
{
    if (answer < first || answer >= end)
        FAIL_LINE(l, ERR_RANGE, "\"%s\" is %lld, expected %lld to %lld", key,
                  (long long)answer, (long long)first, (long long)end - 1);
    return OK;
}

Status line_printf(const char **out, const ChoiceLine *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_raw(l->arena, (int64_t)n + 1, 1);
    if (!text)
        FAIL_LINE(l, ERR_MEMORY, "out of memory for a text");
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    *out = text;
    return OK;
}

Status line_item(ChoiceItem *it, const ChoiceLine *l, const char *context,
                 const char **choices, int64_t n)
{
    it->n = n;
    it->choice = choices;
    it->continuation = choices;
    ARENA_NEW(it->context, l->arena, n);
    for (int64_t i = 0; i < n; i++)
        it->context[i] = context;
    return OK;
}

static Status find_label(int64_t *out, const ChoiceLine *l, const char **labels, int64_t n,
                         bool trim)
{
    const char *key;
    TRY(line_text(&key, l, "answerKey"));
    const char *begin = key, *end = key + strlen(key);
    if (trim)
        choice_strip(&begin, &end);   // its beginning only: str.lstrip
    int64_t found = 0;
    for (int64_t i = n; i-- > 0;)
        if (strcmp(labels[i], begin) == 0) {
            *out = i;
            found++;
        }
    if (found == 1)
        return OK;
    if (found)
        FAIL_LINE(l, ERR_FORMAT, "\"answerKey\" is \"%.40s\", which %lld labels are", key,
                  (long long)found);
    FAIL_LINE(l, ERR_RANGE, "\"answerKey\" is \"%.40s\", which is none of the %lld labels", key,
              (long long)n);
}

Status line_labelled(ChoiceItem *it, const ChoiceLine *l, const char *context, bool trim)
{
    const Json  *choices, *text, *label;
    const char **texts, **labels;
    int64_t      n, n_labels;
    TRY(line_member(&choices, l, l->object, "choices"));
    if (choices->kind != JSON_OBJECT)
        FAIL_LINE(l, ERR_FORMAT, "\"choices\" is %s, expected an object with the lists "
                  "\"text\" and \"label\"", json_kind_name(choices->kind));
    TRY(line_member(&text, l, choices, "text"));
    TRY(line_member(&label, l, choices, "label"));
    TRY(line_texts(&texts, &n, l, text, "text"));
    TRY(line_texts(&labels, &n_labels, l, label, "label"));
    if (n != n_labels)
        FAIL_LINE(l, ERR_FORMAT, "\"choices\" has %lld texts and %lld labels", (long long)n,
                  (long long)n_labels);
    TRY(find_label(&it->gold, l, labels, n, trim));
    return line_item(it, l, context, texts, n);
}

/* str.isspace: the white space of Unicode and four separators of ASCII. */
static bool is_space(uint32_t c)
{
    return utf8_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

void choice_rstrip(const char *begin, const char **end)
{
    while (begin < *end) {
        const char *last = *end - 1;
        int         n;
        while (((unsigned char)*last & 0xc0) == 0x80)
            last--;
        if (!is_space(utf8_get(last, &n)))
            return;
        *end = last;
    }
}

void choice_strip(const char **begin, const char **end)
{
    int n;
    while (*begin < *end && is_space(utf8_get(*begin, &n)))
        *begin += n;
    choice_rstrip(*begin, end);
}
