/* tokenizer_parts.h - what a Tokenizer is made of, and who reads which part of
 * tokenizer.json. */
#ifndef DQ_TEXT_TOKENIZER_PARTS_H
#define DQ_TEXT_TOKENIZER_PARTS_H

#include "analysis/json.h"
#include "analysis/text/added.h"
#include "analysis/text/bpe.h"
#include "analysis/text/decoder.h"
#include "analysis/text/normalizer.h"
#include "analysis/text/pretoken.h"
#include "analysis/tokenizer.h"

enum { TOKENIZER_MAX_SPECIAL = 16 };  // ids that a post-processor puts at one end

struct Tokenizer {
    const char  *path;        // of tokenizer.json
    Vocab        vocab;       // of the model
    Bpe          bpe;
    Normalizer   normalizer;
    Pretokenizer pretokenizer;
    Decoder      decoder;
    AddedToken  *added;       // [n_added]
    int32_t      n_added;
    AddedFinder  raw, normalized;
    int32_t      size;        // largest id + 1, added tokens too
    const char **piece;       // [size] spelling as stored, NULL for unused ids
    const char **form;        // [size] what the decoder gets
    bool        *skip;        // [size] special: not decoded
    int32_t      prefix[TOKENIZER_MAX_SPECIAL], suffix[TOKENIZER_MAX_SPECIAL];
    int          n_prefix, n_suffix;
    int32_t      bos, eos;    // -1: none
    PatternList  patterns;
    /* Rewound after each call; a first block stays, so that short texts cost no
     * system calls. Two, as texts come and go while lists grow. */
    Arena        pieces, lists;
};

/* While reading: the arena the tokenizer lives in, and the JSON tree, which is
 * gone afterwards (so texts are copied). */
typedef struct {
    Tokenizer  *t;
    Arena      *arena;
    const Json *root;
} Reader;

/* Each reads its part of r->root into r->t; model before added tokens, those
 * before the post-processor. */
MUST_USE Status tokread_model(Reader *r);
MUST_USE Status tokread_normalizer(Reader *r);
MUST_USE Status tokread_pretokenizer(Reader *r);
MUST_USE Status tokread_decoder(Reader *r);
MUST_USE Status tokread_added(Reader *r);
MUST_USE Status tokread_special(Reader *r);
/* BOS, EOS and their rule from tokenizer_config.json and
 * special_tokens_map.json in folder, where they are. */
MUST_USE Status tokread_config(Tokenizer *t, const char *folder);
/* The same from the files' trees; NULL where there is none. */
MUST_USE Status tokread_named(Tokenizer *t, const Json *config, const Json *map);

/* --- members of objects; where names the object in messages --- */

/* The member's value, or the default where it is absent or null. ERR_FORMAT
 * where it is of another kind. */
MUST_USE Status tokread_flag(const Reader *r, const Json *v, const char *where, const char *key,
                             bool fallback, bool *out);
MUST_USE Status tokread_count(const Reader *r, const Json *v, const char *where,
                              const char *key, int64_t *out);
/* Must be there; copied. */
MUST_USE Status tokread_text(const Reader *r, const Json *v, const char *where, const char *key,
                             const char **out);
/* "pattern": {"String": ...} or {"Regex": ...}. */
MUST_USE Status tokread_pattern(Reader *r, const Json *v, const char *where,
                                const Pattern **out);
/* Calls one for v, or for each item of its list where its type is Sequence
 * (key: the list's name); null is an empty list. */
typedef Status (*ReadStep)(Reader *r, const Json *v, const char *type);
MUST_USE Status tokread_steps(Reader *r, const Json *v, const char *where, const char *key,
                              ReadStep one);

#endif
