/* carry.h - files of a checkpoint folder that go with it whatever its weights became:
 * tokenizer, generation config, chat template, licence. */
#ifndef DQ_CARRY_H
#define DQ_CARRY_H

#include <stdbool.h>

#include "kernels/arena.h"

/* Is it the name of a file that a checkpoint folder of ours may have: weights, configs,
 * those that are carried? */
bool carry_is_known(const char *name);

/* Copies what there is of them from one folder to another, followed through symlinks,
 * synced. ERR_IO. */
MUST_USE Status carry_files(Arena *scratch, const char *from, const char *to);

#endif
