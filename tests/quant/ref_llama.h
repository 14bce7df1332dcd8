/* ref_llama.h - writes small Llama checkpoints (F32) whose every weight is known. */
#ifndef DQ_REF_LLAMA_H
#define DQ_REF_LLAMA_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t     hidden, inter, vocab, layers, heads, kv_heads, head_dim;
    bool        tied, bias;   // of attention and MLP
    const char *config;       // more members of config.json: "\"x\": 1, ", or NULL
    const char *tokenizer;    // folder in tests/golden/tokenizers to take files from, or NULL
    const char *spoiled;      // tensor whose last number is `spoil`, or NULL
    float       spoil;
} RefLlama;

/* Writes check_tmp()/name and returns its path (four buffers in turn), NULL if it failed. */
const char *ref_llama_write(const RefLlama *m, const char *name);
/* Item i of a tensor: in (-0.1, 0.1), norms 1 more. No two rows of heads are alike. */
float ref_llama_weight(const char *tensor, int64_t i);

#endif
