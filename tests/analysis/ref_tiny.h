/* ref_tiny.h - a tokenizer of single characters and a tiny model that fits it,
 * for tests of what is asked of a model. */
#ifndef DQ_REF_TINY_H
#define DQ_REF_TINY_H

#include "analysis/model.h"
#include "analysis/score.h"
#include "analysis/tokenizer.h"

/* Ids: 0 "<pad>", 1 "<s>", 2 "</s>", 3 .. 97 the characters ' ' .. '~', 98 and 99
 * the two bytes of U+00E9, 100 "42", which swallows its two digits. */
enum { TINY_BOS = 1, TINY_MERGED = 100 };
static inline int32_t tiny_id(char c)
{
    return c - ' ' + 3;
}

Status tiny_tokenizer(Tokenizer **t, Arena *a, bool adds_bos);

/* tests/golden/models/<name>, whose vocabulary has 101 tokens. */
typedef struct {
    Arena   arena;
    Backend backend;
    Model   model;
} TinyModel;

Status tiny_open(TinyModel *m, const char *name);
/* Takes its embedding into memory, m->model.embed, where a test may change it. */
Status tiny_embed(TinyModel *m);
void   tiny_close(TinyModel *m);

/* What score_run must give, in double and one sequence at a time: log p of each
 * target (0 without one) and the first choice of every row. */
Status tiny_score(Model *m, RunQuant quant, const Sequences *s, double *logprob,
                  int32_t *best);

/* Writes check_tmp()/name; returns its path (one of four buffers in turn). */
const char *tiny_file(const char *name, const char *text);

#endif
