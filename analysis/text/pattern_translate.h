/* pattern_translate.h - an Oniguruma pattern in PCRE2's words. */
#ifndef DQ_TEXT_PATTERN_TRANSLATE_H
#define DQ_TEXT_PATTERN_TRANSLATE_H

#include "kernels/arena.h"

/* Allocated in a. name is for messages. ERR_UNSUPPORTED names what the two
 * understand differently and is not translated. */
MUST_USE Status pattern_translate(char **out, Arena *a, const char *name, const char *regex);

#endif
