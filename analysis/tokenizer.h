/* tokenizer.h - text to token ids and back, from a Hugging Face tokenizer.json or a
 * GGUF file.
 * Byte-level BPE (GPT-2, Llama-3, Qwen) and SentencePiece-style BPE with byte
 * fallback (Llama-2). Ids are those of the `tokenizers` library, whose truncation
 * and padding are not applied. Known parts: model BPE; normalizers NFC, Prepend,
 * Replace; pre-tokenizers ByteLevel, Split, Digits, Metaspace; decoders ByteLevel,
 * Replace, ByteFallback, Fuse, Strip, Metaspace; post-processors ByteLevel,
 * TemplateProcessing; Sequences of each. A Tokenizer is for one thread at a time:
 * encoding fills its cache. */
#ifndef DQ_TOKENIZER_H
#define DQ_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"

typedef struct Tokenizer Tokenizer;

/* Reads folder/tokenizer.json. BOS and EOS are those that tokenizer_config.json,
 * or else special_tokens_map.json, names; where neither does, the first and the
 * last id of the post-processor. An explicit add_bos_token or add_eos_token in
 * tokenizer_config.json overrules the post-processor. A GGUF file in the folder's place
 * says all of that by its keys. ERR_IO where it is missing;
 * ERR_UNSUPPORTED names the part (model type, pre-tokenizer, normalizer) that is not known;
 * ERR_FORMAT. Lives in the arena; close it before the arena (it holds PCRE2 patterns). */
MUST_USE Status tokenizer_open(Tokenizer **out, Arena *a, const char *folder);
void            tokenizer_close(Tokenizer *t);

int64_t tokenizer_size(const Tokenizer *t);  // largest id + 1
int32_t tokenizer_bos(const Tokenizer *t);   // -1 where there is none
int32_t tokenizer_eos(const Tokenizer *t);   // -1 where there is none
/* Does encoding with special tokens put BOS in front (post-processor)? */
bool    tokenizer_adds_bos(const Tokenizer *t);

/* Ids of text[0..n), allocated in a. Invalid UTF-8 is replaced by U+FFFD as
 * Python's bytes.decode(errors="replace") does. special: as the library's
 * add_special_tokens (the post-processor's BOS and EOS). ERR_RANGE for an
 * unknown character without an unk token. begin, where not NULL, gets the byte
 * offset in text (as given) at which each token begins: 0 for the
 * post-processor's tokens in front, n for those behind, the base character for
 * what NFC changed. */
MUST_USE Status tokenizer_encode(Tokenizer *t, Arena *a, const char *text, size_t n,
                                 bool special, int32_t **ids, int64_t *n_ids,
                                 int64_t **begin);
/* The same, but no further than it takes to have `enough` tokens, if there are as many: the
 * first of a long text cost what those take, not what the text takes. A few more may come,
 * and where the end was not reached the last of them, and the post-processor's tokens
 * behind, may differ from those of the whole text. 0: all. */
MUST_USE Status tokenizer_encode_first(Tokenizer *t, Arena *a, const char *text, size_t n,
                                       bool special, int64_t enough, int32_t **ids,
                                       int64_t *n_ids, int64_t **begin);
/* Text of ids, special tokens skipped, allocated in a, 0-terminated (and cut
 * short for a reader of C strings where a token is the zero byte). Ids outside
 * the vocabulary: ERR_RANGE. */
MUST_USE Status tokenizer_decode(Tokenizer *t, Arena *a, const int32_t *ids, int64_t n,
                                 char **text);
/* The stored spelling of one token ("" if none): for labels. */
const char *tokenizer_piece(const Tokenizer *t, int32_t id);

#endif
