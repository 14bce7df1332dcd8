/* choice_boolq.c - BoolQ: {"passage", "question", "idx", "label"}, or "answer" in place
 * of "label"; true or 1 is yes. */
#include "analysis/tasks/choice_item.h"

static Status read_answer(int64_t *out, const ChoiceLine *l)
{
    bool        other = json_member(l->object, "answer") && !json_member(l->object, "label");
    const char *key = other ? "answer" : "label";
    const Json *v;
    TRY(line_member(&v, l, l->object, key));
    if (v->kind == JSON_BOOL) {
        *out = v->truth;
        return OK;
    }
    TRY(line_whole(out, l, key));
    return line_answer(l, key, *out, 0, 2);
}

Status choice_boolq(ChoiceItem *it, const ChoiceLine *l)
{
    const char *passage, *question, *context, **choices;
    ARENA_NEW(choices, l->arena, 2);
    choices[0] = "no";
    choices[1] = "yes";
    TRY(line_text(&passage, l, "passage"));
    TRY(line_text(&question, l, "question"));
    TRY(read_answer(&it->gold, l));
    TRY(line_printf(&context, l, "%s\nQuestion: %s?\nAnswer:", passage, question));
    return line_item(it, l, context, choices, 2);
}
