/* task_name.h - what a task is called: its file without folder and ending. Names stand in
 * lists with commas between them, and on terminals: a comma, a control character and what
 * is not UTF-8 become "_". */
#ifndef DQ_TASK_NAME_H
#define DQ_TASK_NAME_H

#include "kernels/arena.h"

/* "folder/retrieval.jsonl" -> "retrieval"; NULL where there is no memory. */
char *task_name(Arena *a, const char *path);

#endif
