/* test_journal.c - how far a checkpoint has come, and what else the run needs. */
#include "quant/formats/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/quant/ref_source.h"

static Journal journal_of(unsigned char *whole)
{
    return (Journal){.path = ref_path("journal"), .settings = "w4 g32", .source = 77,
                     .n_tensors = 3, .whole = whole};
}

TEST(what_was_kept_comes_back)
{
    Arena         a = {0};
    unsigned char whole[3] = {1, 0, 1}, back[3] = {9, 9, 9};
    Journal       j = journal_of(whole), k = journal_of(back);
    float         state[5] = {1, -2, 3e-30f, 4, 5}, got[5];
    char          rows[4];
    unlink(j.path);
    T_STATUS_OK(journal_read(&k));
    T_OK(k.layers == 0);
    j.layers = 2;
    T_STATUS_OK(journal_write(&j, &a, "abcd", 4, state, 5));
    T_STATUS_OK(journal_read(&k));
    T_OK(k.layers == 2 && memcmp(back, whole, 3) == 0 && k.row_bytes == 4 && k.n_state == 5);
    T_STATUS_OK(journal_kept(&k, rows, 4, got, 5));
    T_OK(memcmp(rows, "abcd", 4) == 0 && memcmp(got, state, sizeof got) == 0);
    T_FAILS(journal_kept(&k, rows, 3, got, 5), ERR_FORMAT, "holds 4 bytes of rows");
    T_FAILS(journal_kept(&k, rows, 4, got, 4), ERR_FORMAT, "expected 4 and 4");
    j.layers = 3;
    T_STATUS_OK(journal_write(&j, &a, NULL, 0, NULL, 0));
    T_STATUS_OK(journal_read(&k));
    T_OK(k.layers == 3 && k.row_bytes == 0);
    T_STATUS_OK(journal_kept(&k, NULL, 0, NULL, 0));
    arena_close(&a);
}

TEST(another_run_is_refused)
{
    Arena         a = {0};
    unsigned char whole[4] = {1, 0, 1, 0};
    Journal       j = journal_of(whole), k = j;
    j.layers = 1;
    T_STATUS_OK(journal_write(&j, &a, "abcd", 4, NULL, 0));
    k.settings = "w4 g64";
    T_FAILS(journal_read(&k), ERR_USAGE, "begun with \"w4 g32\", now it is \"w4 g64\"");
    k = journal_of(whole);
    k.source = 78;
    T_FAILS(journal_read(&k), ERR_USAGE, "the source's files are not those");
    k = journal_of(whole);
    k.n_tensors = 4;
    T_FAILS(journal_read(&k), ERR_USAGE, "begun with 3 tensors, now there are 4");
    T_OK(k.layers == 0);
    arena_close(&a);
}

TEST(a_broken_one_is_refused)
{
    Arena         a = {0};
    unsigned char whole[3] = {1, 0, 1};
    Journal       j = journal_of(whole);
    size_t        n;
    j.layers = 1;
    T_STATUS_OK(journal_write(&j, &a, "abcd", 4, (float[]){1}, 1));
    unsigned char *file = ref_read(j.path, &n);
    for (size_t cut = 0; cut < n; cut++) {
        ref_write(j.path, file, cut);
        T_OK(journal_read(&j) == ERR_FORMAT && j.layers == 0);
    }
    /* any number of the head made huge: sums must not wrap around */
    for (size_t at = 8; at < 56; at += 8) {
        unsigned char other[256];
        if (at == 16)
            continue;  // the source's print: another run, not a broken file
        memcpy(other, file, n);
        memset(other + at, 0xff, 8);
        ref_write(j.path, other, n);
        T_OK(journal_read(&j) == ERR_FORMAT);
    }
    memset(file + 32, 0, 8);  // no layer done: such a file is never written
    ref_write(j.path, file, n);
    T_FAILS(journal_read(&j), ERR_FORMAT, "which its own numbers deny");
    free(file);
    arena_close(&a);
}
