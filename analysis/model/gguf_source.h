/* gguf_source.h - a GGUF file of the llama architecture as the checkpoint of a
 * LlamaForCausalLM: a config.json, and tensors by the names that architecture has. */
#ifndef DQ_GGUF_SOURCE_H
#define DQ_GGUF_SOURCE_H

#include "analysis/model/checkpoint.h"
#include "analysis/model/config.h"
#include "analysis/model/gguf_file.h"

/* The text of a config.json that says what the file's keys say (gguf_config.c).
 * ERR_UNSUPPORTED for another architecture, experts, rotary dims other than whole
 * heads, key and value heads of different width; ERR_FORMAT for a missing key. */
MUST_USE Status gguf_config_text(const char **text, Arena *a, const GgufFile *f);

/* Fills c and ck, as config_read and checkpoint_open do for a folder. Names become
 * those of LlamaForCausalLM, shapes are turned round, blocks are Packed; q and k, whose
 * rows GGUF keeps in another order, are Packed too and come out in the usual one. */
MUST_USE Status gguf_source_open(Config *c, Checkpoint *ck, Arena *a, const char *path);

#endif
