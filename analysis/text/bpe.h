/* bpe.h - the model: byte pair encoding of one word after another.
 * Merges go by rank, then from left to right, as in the library. A word is cut
 * where no merge of the vocabulary can cross, so a whole text without a
 * pre-tokenizer is as cheap as words; within a cut a heap keeps it O(n log n). */
#ifndef DQ_TEXT_BPE_H
#define DQ_TEXT_BPE_H

#include "analysis/text/ids.h"
#include "analysis/text/merges.h"
#include "analysis/text/piece.h"
#include "analysis/text/utf8.h"
#include "analysis/text/vocab.h"

enum { BPE_DIRECT = 0x180, BPE_CACHE_BYTES = 26, BPE_CACHE_IDS = 8, BPE_CACHE_SLOTS = 1 << 14 };

/* A word seen before: one cache line. */
typedef struct {
    uint32_t hash;
    uint8_t  n_bytes, n_ids;  // n_bytes 0: empty
    char     text[BPE_CACHE_BYTES];
    int32_t  ids[BPE_CACHE_IDS];
} BpeCached;

typedef struct {
    const char *name;                  // of the file, for messages
    const Vocab *vocab;                // of the model, without added tokens
    Merges     merges;
    bool       bytes;                  // words are bytes, spelled by bytemap
    bool       ignore_merges;          // a word that is a token stays whole
    bool       byte_fallback;          // unknown characters become <0xXX>
    bool       fuse_unk;
    int32_t    unk;                    // -1: none
    int32_t    char_id[BPE_DIRECT];    // token of the character, -1
    int32_t    fallback[256];          // token <0xXX>, -1
    BpeCached *cache;                  // [BPE_CACHE_SLOTS]
} Bpe;

/* Fills the tables from vocab, merges and options, which are set. */
MUST_USE Status bpe_init(Bpe *b, Arena *a);

typedef struct BpeSymbol BpeSymbol;
typedef struct BpeMerge BpeMerge;

/* Room that words share; {.arena} to begin with, closed with its arena. */
typedef struct {
    Arena     *arena;
    BpeSymbol *symbols;
    BpeMerge  *heap;
    int64_t    room;       // symbols; the heap has three times as many
    char      *spelling;   // of a word in bytemap's characters
    int64_t    spelling_room;
} BpeSpace;

/* Adds the tokens of a word, n >= 1. ERR_RANGE names a character that is not
 * in the vocabulary where there is neither fallback nor unk. */
MUST_USE Status bpe_word(Bpe *b, BpeSpace *space, const Piece *word, Ids *out);

#endif
