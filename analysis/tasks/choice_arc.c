/* choice_arc.c - ARC-Easy and ARC-Challenge: {"id", "question", "choices": {"text",
 * "label"}, "answerKey"}; labels are letters or numbers. */
#include "analysis/tasks/choice_item.h"

Status choice_arc(ChoiceItem *it, const ChoiceLine *l)
{
    const char *question, *context;
    TRY(line_text(&question, l, "question"));
    TRY(line_printf(&context, l, "Question: %s\nAnswer:", question));
    return line_labelled(it, l, context, false);
}
