/* carry.h - files of a checkpoint folder that go with it whatever its weights became:
 * tokenizer, generation config, chat template, licence. */
#ifndef DQ_CARRY_H
#define DQ_CARRY_H

#include "kernels/arena.h"

/* Copies what there is of them from one folder to another, followed through symlinks,
 * synced. ERR_IO. */
MUST_USE Status carry_files(Arena *scratch, const char *from, const char *to);

#endif
