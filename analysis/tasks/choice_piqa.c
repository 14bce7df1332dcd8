/* choice_piqa.c - PIQA: {"goal", "sol1", "sol2", "label": 0 or 1}. The labels that are
 * published as a list of their own have to be joined first. */
#include "analysis/tasks/choice_item.h"

Status choice_piqa(ChoiceItem *it, const ChoiceLine *l)
{
    const char *goal, *context, **choices;
    ARENA_NEW(choices, l->arena, 2);
    TRY(line_text(&goal, l, "goal"));
    TRY(line_text(&choices[0], l, "sol1"));
    TRY(line_text(&choices[1], l, "sol2"));
    TRY(line_whole(&it->gold, l, "label"));
    TRY(line_answer(l, "label", it->gold, 0, 2));
    TRY(line_printf(&context, l, "Question: %s\nAnswer:", goal));
    return line_item(it, l, context, choices, 2);
}
