/* test_task_name.c - names of tasks that no list and no terminal can mistake. */
#include "analysis/tasks/task_name.h"
#include "kernels/status.h"
#include "tests/check.h"

TEST(names_are_stems_without_what_parts_lists)
{
    static const char *const ROWS[][2] = {
        {"retrieval.jsonl", "retrieval"},
        {"a.b/c.d.jsonl", "c.d"},
        {"/x/.jsonl", ".jsonl"},
        {"x", "x"},
        {"x.", "x"},
        {"x/", ""},
        {"a,b,.jsonl", "a_b_"},
        {"a\n\x1b[31mb\x7f.jsonl", "a__[31mb_"},
        {"sch\xc3\xb6n \xe4\xb8\xad\xf0\x9f\x98\x80.jsonl",
         "sch\xc3\xb6n \xe4\xb8\xad\xf0\x9f\x98\x80"},
        {"a\xc2\x9b" "31m.jsonl", "a_31m"},           // CSI of C1
        {"a\xffz\xe4\xb8.jsonl", "a_z_"},             // what is not UTF-8, cut short by the dot
    };
    Arena a = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        T_TEXT(task_name(&a, ROWS[i][0]), ROWS[i][1]);
    arena_close(&a);
}

TEST(no_memory_is_no_name)
{
    Arena a = {0};
    arena_fail_at(1);
    T_OK(task_name(&a, "a,b") == NULL);
    arena_fail_at(0);
    arena_close(&a);
}
