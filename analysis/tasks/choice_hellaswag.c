/* choice_hellaswag.c - HellaSwag: {"ind", "activity_label", "ctx_a", "ctx_b", "endings",
 * "label"}. The context is
 *   tidy(activity_label + ": " + ctx_a + " " + capitalize(ctx_b))
 * and the choices are tidied too; what WikiHow left in them goes. */
#include <string.h>

#include "analysis/tasks/choice_item.h"
#include "analysis/text/case.h"

/* Every `from` in text becomes `to`, which is no longer: in place, one pass. */
static void replace(char *text, const char *from, const char *to)
{
    size_t n_from = strlen(from), n_to = strlen(to);
    char  *out = text;
    for (char *next; (next = strstr(text, from)); text = next + n_from) {
        memmove(out, text, (size_t)(next - text));
        out += next - text;
        memcpy(out, to, n_to);
        out += n_to;
    }
    memmove(out, text, strlen(text) + 1);
}

/* re.sub(r"\[.*?\]", "", text): the dot of Python matches no line's end. */
static void drop_brackets(char *text)
{
    char *out = text;
    while (*text) {
        size_t n = *text == '[' ? strcspn(text, "]\n") : 0;
        if (n && text[n] == ']')
            text += n + 1;
        else
            *out++ = *text++;
    }
    *out = 0;
}

static Status tidy(const char **out, const ChoiceLine *l, const char *text)
{
    const char *begin = text, *end = text + strlen(text);
    choice_strip(&begin, &end);
    char *t = arena_text(l->arena, begin, (size_t)(end - begin));
    if (!t)
        FAIL_LINE(l, ERR_MEMORY, "out of memory for a text");
    replace(t, " [title]", ". ");
    drop_brackets(t);
    replace(t, "  ", " ");
    *out = t;
    return OK;
}

static Status read_context(const char **out, const ChoiceLine *l)
{
    const char *activity, *a, *b, *text;
    TRY(line_text(&activity, l, "activity_label"));
    TRY(line_text(&a, l, "ctx_a"));
    TRY(line_text(&b, l, "ctx_b"));
    b = case_capitalize(l->arena, b, strlen(b));
    if (!b)
        FAIL_LINE(l, ERR_MEMORY, "out of memory for a text");
    TRY(line_printf(&text, l, "%s: %s %s", activity, a, b));
    return tidy(out, l, text);
}

Status choice_hellaswag(ChoiceItem *it, const ChoiceLine *l)
{
    const Json  *list;
    const char  *context, **choices;
    int64_t      n;
    TRY(read_context(&context, l));
    TRY(line_member(&list, l, l->object, "endings"));
    TRY(line_texts(&choices, &n, l, list, "endings"));
    for (int64_t i = 0; i < n; i++)
        TRY(tidy(&choices[i], l, choices[i]));
    TRY(line_whole(&it->gold, l, "label"));
    TRY(line_answer(l, "label", it->gold, 0, n));
    return line_item(it, l, context, choices, n);
}
