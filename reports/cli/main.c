/* main.c - the program diffquant: reads the command line, runs a verb, and turns
 * a Status into a sentence and an exit code. */
#include <stdio.h>

#include "reports/cli/verbs.h"

static int exit_code(Status s)
{
    switch (s) {
    case OK:
        return 0;
    case ERR_USAGE:
        return 2;
    case ERR_DEVICE:
        return 3;
    default:
        return 1;
    }
}

static Status run(Session *se, int argc, char **argv)
{
    TRY(session_open(se, argc, argv));
    if (se->s.version) {
        puts("diffquant " DQ_VERSION);
        return OK;
    }
    if (se->s.help || se->s.verb == VERB_NONE) {
        settings_help(&se->s);
        return OK;
    }
    switch (se->s.verb) {
    case VERB_INSPECT:
        return verb_inspect(se);
    case VERB_ANALYZE:
        return verb_analyze(se);
    case VERB_COMPARE:
        return verb_compare(se);
    case VERB_REPORT:
        return verb_report(se);
    case VERB_GENERATE:
        return verb_generate(se);
    default:
        FAIL(ERR_USAGE, "this verb has no program");
    }
}

int main(int argc, char **argv)
{
    Session se;
    Status  s = run(&se, argc, argv);
    bar_clear(&se.bar);
    if (s == OK && (fflush(stdout) != 0 || ferror(stdout)))
        s = STATUS(ERR_IO, "cannot write to standard output");
    if (s != OK)
        fprintf(stderr, "diffquant: %s\n", status_text());
    session_close(&se);
    return exit_code(s);
}
