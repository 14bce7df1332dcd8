/* gguf_parts.h - what the files of the GGUF writer share. */
#ifndef DQ_GGUF_PARTS_H
#define DQ_GGUF_PARTS_H

#include "analysis/json.h"
#include "kernels/blocks.h"
#include "kernels/outfile.h"
#include "quant/formats/gguf.h"
#include "quant/formats/gguf_put.h"
#include "quant/plan.h"

enum { GGUF_ALIGN = 32 };  // of every tensor's data

/* --- gguf_types.c: how a tensor is stored --- */

typedef struct {
    bool      is_block;
    BlockType block;
    Dtype     dtype;  // F32, F16, BF16 where it is no block
} GgufStore;

const char *gguf_type_name(GgufType t);
int         gguf_type_number(GgufType t);        // general.file_type
const char *gguf_store_name(const GgufStore *s);
int         gguf_store_number(const GgufStore *s);  // ggml's number of the type
size_t      gguf_store_bytes(const GgufStore *s, int64_t n);  // of n whole blocks' numbers

/* What the choice looks at. */
typedef struct {
    GgufType type;
    int64_t  n_layers;
    bool     tied, grouped, importance;  // grouped: fewer key than query heads
} GgufChoice;

/* Beside the WeightKinds. */
enum { GGUF_ROLE_EMBED = N_WEIGHTS, GGUF_ROLE_HEAD };

/* role of rows of K weights; layer counts for WeightKinds. */
GgufStore gguf_choose(const GgufChoice *c, int role, int64_t layer, int64_t K);

/* --- gguf_meta.c: the model --- */

/* ERR_UNSUPPORTED for what the llama graph of llama.cpp cannot compute. */
MUST_USE Status gguf_check_graph(const ModelInfo *info);
MUST_USE Status gguf_meta(GgufPut *p, Arena *a, const ModelInfo *info, GgufType type);
/* Divisors of the frequencies, [dims/2], of the kinds that need them stored: long is
 * NULL but for longrope. Both NULL: none. */
typedef struct {
    const float *all;            // rope_freqs.weight
    const float *small, *large;  // rope_factors_short.weight, rope_factors_long.weight
} GgufDivisors;
MUST_USE Status gguf_divisors(GgufDivisors *out, Arena *a, const ModelConfig *c);

/* --- gguf_tokens.c, gguf_splits.c --- */

/* Keys of the folder's tokenizer. *warning as GgufOptions.warning. */
MUST_USE Status gguf_tokens(GgufPut *p, Arena *a, const ModelInfo *info,
                               const char **warning);
/* Does the part (or one inside a Sequence) have that type? */
bool gguf_has_part(const Json *part, const char *type);
/* llama.cpp's name of the pre-tokenizer of a byte-level BPE; NULL where none is known. */
MUST_USE Status gguf_split_name(const char **out, Arena *a, const Json *tokenizer);

/* --- gguf_item.c: the data --- */

/* A tensor to be. A vector of n is a matrix of n rows of one. */
typedef struct {
    const char        *name;       // in the file
    const ModelTensor *source;     // or NULL: numbers are given
    const float       *numbers;
    bool               is_vector;
    int64_t            n, k;
    GgufStore          store;
    int64_t            head_dim;   // > 0: rows go from halves of a head to pairs
    const double      *importance; // [k] or NULL
    size_t             place;      // of its data in the file
    RoundError         error;      // out: what the encoding did
} GgufItem;

size_t gguf_item_bytes(const GgufItem *item);  // of its data, without padding
/* Reads, encodes and writes the data of all, with padding; scratch from a, given back.
 * ERR_RANGE where a store cannot hold a weight; ERR_IO. */
MUST_USE Status gguf_items_write(OutFile *f, Arena *a, const GgufOptions *o, GgufItem *items,
                                 int64_t n);

#endif
