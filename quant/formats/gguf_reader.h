/* gguf_reader.h - a tokenizer.json while its keys are written: private to
 * gguf_tokens.c, gguf_vocab.c and gguf_special.c. */
#ifndef DQ_GGUF_READER_H
#define DQ_GGUF_READER_H

#include "quant/formats/gguf_parts.h"

#define TOKENIZER "tokenizer.ggml."

/* llama.cpp's kinds of tokens. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

typedef struct {
    GgufPut         *put;
    Arena           *arena;
    const ModelInfo *info;
    const char      *path;       // of tokenizer.json
    const Json      *root, *model, *vocab, *added, *merges;
    const Json      *config;     // tokenizer_config.json, or NULL
    const Json      *map;        // special_tokens_map.json, or NULL
    bool             bytes_fall_back;  // the kind: "llama", else "gpt2"
    int64_t          n;          // rows of the embedding
    const char     **pieces;     // [n]
    int32_t         *kinds;      // [n]
    const char     **warning;
} GgufReader;

/* --- gguf_tokens.c --- */

bool gguf_is_file(const char *path);
MUST_USE Status gguf_path_in(const char **out, GgufReader *r, const char *file);

/* --- gguf_vocab.c --- */

/* Fills pieces and kinds; ERR_SHAPE for more tokens than the embedding has rows. */
MUST_USE Status gguf_read_pieces(GgufReader *r);
void            gguf_put_pieces(GgufReader *r);
/* Id of a token by its text, -1 where there is none. */
int64_t         gguf_id_of(const GgufReader *r, const char *text);
MUST_USE Status gguf_put_merges(GgufReader *r);
MUST_USE Status gguf_put_scores(GgufReader *r);

/* --- gguf_special.c --- */

/* Ids of the special tokens, and whether they are put around a text. */
MUST_USE Status gguf_put_special(GgufReader *r);
MUST_USE Status gguf_put_chat(GgufReader *r);

#endif
