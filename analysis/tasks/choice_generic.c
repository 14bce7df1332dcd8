/* choice_generic.c - a user's own task: {"context": text, "choices": [text...],
 * "answer": index}, "id" if there is one. */
#include "analysis/tasks/choice_item.h"

Status choice_generic(ChoiceItem *it, const ChoiceLine *l)
{
    const Json  *list;
    const char  *context, **choices;
    int64_t      n;
    TRY(line_text(&context, l, "context"));
    TRY(line_member(&list, l, l->object, "choices"));
    TRY(line_texts(&choices, &n, l, list, "choices"));
    TRY(line_whole(&it->gold, l, "answer"));
    TRY(line_answer(l, "answer", it->gold, 0, n));
    return line_item(it, l, context, choices, n);
}
