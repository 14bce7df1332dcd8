/* quant_config.h - config.json's quantization_config: which weights have few bits and
 * how they were written. Texts stay in the JSON, which lives in the arena. */
#ifndef DQ_QUANT_CONFIG_H
#define DQ_QUANT_CONFIG_H

#include "analysis/json.h"
#include "analysis/model.h"

typedef enum { QUANT_NONE, QUANT_COMPRESSED, QUANT_GPTQ } QuantMethod;

/* What a config group says of values that pass through its layers. */
typedef struct {
    int64_t  bits;      // 0: nothing
    ActScale scale;
    bool     fits;      // RunQuant can say the same: dynamic, symmetric, by token or tensor
} QuantValues;

/* A config group of compressed-tensors. */
typedef struct {
    const char *name;       // "group_0"
    const Json *targets;    // texts: names, "re:" and a pattern, or classes ("Linear")
    int64_t     bits;       // 0: weights of this group are not quantized
    int64_t     group;      // inputs that share a scale; GROUP_ROW, GROUP_MATRIX
    bool        symmetric;
    bool        bytes;      // int-quantized or naive-quantized; else pack-quantized
    bool        indexed;    // actorder "group": an index says which group an input is in
    QuantValues inputs, outputs;
} QuantGroup;

enum { GROUP_ROW = 0, GROUP_MATRIX = -1 };

typedef struct {
    QuantMethod method;
    const char *summary;      // for people: "compressed-tensors, pack-quantized"; NULL: none
    int64_t     n_groups;     // QUANT_COMPRESSED
    QuantGroup *groups;       // [n_groups]
    const Json *ignore;       // texts like targets, or NULL
    RunQuant    run;          // inputs, where all groups say the same of theirs
    /* QUANT_GPTQ */
    int64_t     bits;         // 2, 3, 4, 8; with exceptions: of most
    int64_t     group;        // GROUP_ROW or more
    bool        symmetric;
    bool        indexed;      // desc_act: g_idx must be there
    bool        zeros_less;   // "gptq", not "gptq_v2": zero points are stored less one
    bool        exceptions;   // "dynamic": bits and groups of a matrix follow from its shapes
} QuantConfig;

/* v: the value of quantization_config, or NULL; path: of the file. ERR_UNSUPPORTED for a
 * method, format, strategy or key that is not known, and for what would change the
 * meaning of the weights; ERR_FORMAT, ERR_RANGE like keys_read. */
MUST_USE Status quant_config_read(QuantConfig *q, Arena *a, const Json *v, const char *path);
/* The file quantize_config.json of GPTQ: the same keys, on their own. */
MUST_USE Status quant_config_file(QuantConfig *q, Arena *a, const char *path);

/* --- which module is meant (quant_match.c) --- */

typedef struct QuantPattern QuantPattern;

/* Compiled targets and exceptions. */
typedef struct {
    int64_t       n;
    QuantPattern *patterns;  // [n]
} QuantMatcher;

/* ERR_FORMAT for a pattern that does not compile. path is for messages. */
MUST_USE Status quant_match_open(QuantMatcher *m, Arena *a, const QuantConfig *q,
                                 const char *path);
/* Zeroed or closed twice is fine. Close it before the arena. */
void quant_match_close(QuantMatcher *m);
/* The group of a module, NULL where none is for it or it is ignored. kind is its class,
 * "Linear" or "Embedding". A name goes before a pattern, and that before a class. */
MUST_USE Status quant_match(const QuantGroup **out, const QuantMatcher *m, const char *module,
                            const char *kind);

#endif
