/* gguf_tokenizer.h - the tokenizer inside a GGUF file, as the text of an equivalent
 * tokenizer.json: what reads those then reads it.
 *   "gpt2"   byte-level BPE, cut into words as tokenizer.ggml.pre says
 *   "llama"  SentencePiece BPE with byte fallback; merges follow from the scores */
#ifndef DQ_GGUF_TOKENIZER_H
#define DQ_GGUF_TOKENIZER_H

#include "analysis/model/gguf_file.h"
#include "analysis/textbuf.h"

/* How words of a "gpt2" are cut: a pattern after the other, each isolated. */
enum { GGUF_MAX_SPLITS = 6 };
typedef struct {
    const char *names;   // of tokenizer.ggml.pre, a space around each
    const char *splits[GGUF_MAX_SPLITS];
    bool        ignore_merges;
    bool        adds_bos;  // unless the file says otherwise
} GgufPre;

/* ERR_UNSUPPORTED (it begins with where) for a name that is not known. (gguf_pre.c) */
MUST_USE Status gguf_pre_find(const GgufPre **out, const char *where, const char *name);

/* tokenizer: of tokenizer.json; config: of tokenizer_config.json, with BOS and EOS.
 * Both in a. ERR_FORMAT for a missing or misshapen key, an id outside the vocabulary;
 * ERR_UNSUPPORTED for another kind of tokenizer. */
MUST_USE Status gguf_tokenizer_text(TextBuf *tokenizer, TextBuf *config, Arena *a,
                                    const GgufFile *f);

#endif
