/* ref_program.h - the program as a user meets it: runs it in the test's temporary folder and
 * looks at what it leaves. */
#ifndef DQ_REF_PROGRAM_H
#define DQ_REF_PROGRAM_H

#include <stdbool.h>

typedef struct {
    int  code;           // exit status, or 128 + signal
    char out[1 << 16];   // what came on stdout, cut
    char err[1 << 12];
} Outcome;

/* Runs "diffquant <arguments>" through the shell. before: a shell command in front, e.g. a
 * limit. One Outcome: the next run overwrites it. */
Outcome *run(const char *arguments);
Outcome *run_after(const char *before, const char *arguments);

/* Did it fail with that code, and one line that has both words? */
bool fails(const Outcome *o, int code, const char *word, const char *other);

/* Arguments with the path of a golden model in place of %s. */
const char *with_model(const char *format, const char *model);

/* --- files of the temporary folder, by their names in it --- */

void write_text(const char *name, const char *text);
bool exists(const char *name);
/* Are both there, with the same bytes; or with others? */
bool same(const char *one, const char *other);
bool differ(const char *one, const char *other);
/* Does a shell command in that folder succeed? */
bool system_in_tmp(const char *command);

#endif
