/* layout.h - weights that come without a config.json: a path may be LAYOUT@PATH, where
 * LAYOUT says how the tensors in folder PATH lie, and what no tensor tells.
 *
 *   unilm@PATH                          microsoft/unilm's differential attention, whose
 *   unilm:theta=500000,eps=1e-5@PATH    code has no config; first or second form
 *
 * Settings: theta (RoPE's base, 10000), eps (of the blocks' norms, 1e-5), context (2048),
 * bos, eos (ids; none). A file or folder that has the whole text as its name is just that. */
#ifndef DQ_LAYOUT_H
#define DQ_LAYOUT_H

#include "analysis/model/checkpoint.h"

typedef struct {
    const char *name;       // "unilm"; NULL: path is all that was given
    const char *path;       // of the folder, without LAYOUT@
    double      theta, eps;
    int64_t     context, bos, eos;   // ids: -1 none
    unsigned    given;      // settings that were: bit i of layout_words' order
} Layout;

/* ERR_USAGE for a layout or setting that is not known, a value that is none of its, a
 * setting or layout that comes twice. Looks at no file but to see if `given` is one. */
MUST_USE Status layout_split(Layout *out, Arena *a, const char *given);

/* Name and settings, for people: "unilm, theta 500000 as given; in no file, so assumed: eps
 * 1e-05, context 2048, no BOS, no EOS". NULL without memory. */
const char *layout_words(Arena *a, const Layout *l);

/* The text of a config.json that says what names and shapes of c's tensors and the settings
 * say (layout_config.c). ERR_UNSUPPORTED where they are not of the layout; ERR_FORMAT names
 * a missing tensor, ERR_SHAPE one of a shape that tells no size. All else is for
 * config_parse, which every folder goes through, and for the tensors' own check. */
MUST_USE Status layout_config_text(const char **text, Arena *a, const Layout *l,
                                   const Checkpoint *c);

#endif
