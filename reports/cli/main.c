/* main.c - the program diffquant: reads the command line, runs a verb, and turns
 * a Status into a sentence and an exit code. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "reports/cli/verbs.h"

/* Where a caller closed one of the three streams, the next file that is opened
 * would get its number, and what is printed would go into that file. The null
 * device takes the place, open the wrong way round: using it is an error, as
 * using the closed stream was. */
static void fill_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* One line, whatever a file's names have in them: control characters, those of
 * two bytes in UTF-8 too, would break it or steer the terminal. */
static void print_failure(const char *text)
{
    fputs("diffquant: ", stderr);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool two = *c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        fputc(*c < 0x20 || *c == 0x7f || two ? '?' : *c, stderr);
        c += two;
    }
    fputc('\n', stderr);
}

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
    case VERB_EVAL:
        return verb_eval(se);
    case VERB_QUANTIZE:
        return verb_quantize(se);
    case VERB_CONVERT:
        return verb_convert(se);
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
    fill_streams();
    filemap_guard();
    Status s = run(&se, argc, argv);
    bar_clear(&se.bar);
    if (s == OK && (fflush(stdout) != 0 || ferror(stdout)))
        s = STATUS(ERR_IO, "cannot write to standard output");
    if (s != OK)
        print_failure(status_text());
    session_close(&se);
    return exit_code(s);
}
