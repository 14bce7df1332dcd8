/* config.h - config.json of a Hugging Face folder, in the spellings of
 * transformers v4 and v5, as a ModelConfig in canonical terms. */
#ifndef DQ_CONFIG_H
#define DQ_CONFIG_H

#include "analysis/json.h"
#include "analysis/model/arch.h"
#include "analysis/model/quant_config.h"

struct Config {
    const Arch  *arch;
    ConfigKeys   keys;    // counts are filled in: no 0 left
    ModelConfig  model;
    LayerConfig *layers;  // model.layers, to be filled in
    QuantConfig  quant;   // of few bits: how
    const char  *text;    // the file as it stands
};

/* path: of config.json. All text lives in the arena. ERR_UNSUPPORTED for an
 * architecture, activation, RoPE or way of quantizing that is not known; ERR_FORMAT
 * for a missing or mistyped key; ERR_RANGE for its value; ERR_SHAPE for sizes that
 * do not fit together. */
MUST_USE Status config_read(Config *c, Arena *a, const char *path);
/* The same from text[0..n); path is for messages. */
MUST_USE Status config_parse(Config *c, Arena *a, const char *path, const char *text, size_t n);

/* Fills r from the root of config.json; the rest of c is known. (config_rope.c) */
MUST_USE Status config_rope(Rope *r, Arena *a, const Config *c, const Json *root,
                            const char *path);

#endif
