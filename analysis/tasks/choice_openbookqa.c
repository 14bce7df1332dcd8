/* choice_openbookqa.c - OpenBookQA: {"id", "question_stem", "choices": {"text",
 * "label"}, "answerKey"}. The stem alone is the context. */
#include "analysis/tasks/choice_item.h"

Status choice_openbookqa(ChoiceItem *it, const ChoiceLine *l)
{
    const char *stem;
    TRY(line_text(&stem, l, "question_stem"));
    return line_labelled(it, l, stem, true);
}
