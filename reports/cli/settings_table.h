/* settings_table.h - the rows that the command line is read by and help is printed from. */
#ifndef DQ_SETTINGS_TABLE_H
#define DQ_SETTINGS_TABLE_H

#include <stddef.h>

#include "reports/cli/settings.h"

typedef struct {
    Verb        verb;
    const char *name, *inputs;
    int         min_inputs, max_inputs;
    const char *about, *example;
} VerbRow;

typedef enum {
    OPT_FLAG, OPT_TEXT, OPT_INT, OPT_REAL, OPT_SIZE, OPT_CHOICE, OPT_LIST, OPT_SPLIT
} OptionKind;

typedef struct {
    const char *name;        // without the dashes
    char        letter;      // 0: none
    int         verbs;       // 0: everywhere
    OptionKind  kind;        // LIST repeats, SPLIT is one text cut at commas, SIZE is bytes
    size_t      offset;
    const char *argument;    // as help shows it; CHOICE: the choices, cut at '|'; an N at the
                             //   end of one is any whole number
    int64_t     min, max;    // INT: allowed; REAL: between them, ends excluded
    const char *about;
} OptionRow;

extern const VerbRow   settings_verbs[];
/* An option that says how another does its work, and goes unheard without it. */
typedef struct {
    const char *name, *needs;
} NeedRow;

extern const OptionRow settings_options[];
extern const NeedRow   settings_needs[];
extern const int       settings_n_verbs, settings_n_options, settings_n_needs;

#endif
