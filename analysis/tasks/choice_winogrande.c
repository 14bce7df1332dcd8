/* choice_winogrande.c - WinoGrande: {"qID", "sentence", "option1", "option2", "answer":
 * "1" or "2"}. Contexts differ: the sentence up to "_" with an option in its place. What
 * is scored is the rest, the same for both. */
#include <string.h>

#include "analysis/tasks/choice_item.h"

Status choice_winogrande(ChoiceItem *it, const ChoiceLine *l)
{
    static const char *const KEYS[2] = {"option1", "option2"};
    const char *sentence, *rest;
    TRY(line_text(&sentence, l, "sentence"));
    TRY(line_whole(&it->gold, l, "answer"));
    TRY(line_answer(l, "answer", it->gold--, 1, 3));
    const char *gap = strchr(sentence, '_');
    if (!gap)
        FAIL_LINE(l, ERR_FORMAT, "\"sentence\" has no \"_\" for the options to fill");
    const char *begin = gap + 1, *end = begin + strlen(begin);
    choice_strip(&begin, &end);
    if (begin == end)
        FAIL_LINE(l, ERR_RANGE, "nothing follows \"_\" in \"sentence\", and that is what is "
                  "scored");
    TRY(line_printf(&rest, l, "%.*s", (int)(end - begin), begin));
    it->n = 2;
    ARENA_NEW(it->context, l->arena, 2);
    ARENA_NEW(it->continuation, l->arena, 2);
    ARENA_NEW(it->choice, l->arena, 2);
    for (int i = 0; i < 2; i++) {
        const char *option;
        TRY(line_text(&option, l, KEYS[i]));
        if (!*option)
            FAIL_LINE(l, ERR_RANGE, "\"%s\" is empty", KEYS[i]);
        TRY(line_printf(&it->context[i], l, "%.*s%s", (int)(gap - sentence), sentence, option));
        it->continuation[i] = rest;
        it->choice[i] = it->context[i];
    }
    return OK;
}
