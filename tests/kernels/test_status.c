/* test_status.c - codes travel, sentences stay. */
#include <string.h>

#include "kernels/status.h"
#include "tests/check.h"

static int n_closed;

static Status fails(int depth)
{
    if (depth == 0)
        FAIL(ERR_RANGE, "%s is %d, expected %d", "x", 3, 4);
    TRY(fails(depth - 1));
    return OK;
}

static Status cleans_up(Status code)
{
    Status s = OK;
    GUARD(code == OK ? OK : STATUS(code, "inner"));
    n_closed += 10;
out:
    n_closed++;
    return s;
}

TEST(status_keeps_the_sentence_on_its_way_up)
{
    T_FAILS(fails(3), ERR_RANGE, "x is 3, expected 4");
    T_TEXT(status_text(), "x is 3, expected 4");
}

TEST(status_guard_cleans_up)
{
    n_closed = 0;
    T_OK(cleans_up(ERR_IO) == ERR_IO && n_closed == 1);
    T_TEXT(status_text(), "inner");
    T_OK(cleans_up(OK) == OK && n_closed == 12);
}

TEST(status_may_quote_the_old_sentence)
{
    Status s = STATUS(ERR_IO, "disk full");
    s = STATUS(s, "a.bin: %s", status_text());
    T_OK(s == ERR_IO);
    T_TEXT(status_text(), "a.bin: disk full");
}

TEST(status_cuts_long_sentences)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    T_OK(STATUS(ERR_FORMAT, "%s", text) == ERR_FORMAT);
    T_OK(strlen(status_text()) == 1023);
}

TEST(status_texts_of_threads_are_apart)
{
    Status s = STATUS(ERR_IO, "mine");
    bool   empty = false;
    (void)s;
#pragma omp parallel num_threads(2)
#pragma omp critical
    if (strcmp(status_text(), "mine") != 0) {
        empty = status_text()[0] == 0 || strcmp(status_text(), "theirs") == 0;
        s = STATUS(ERR_IO, "theirs");
    }
    T_TEXT(status_text(), "mine");
    T_OK(empty);
}
