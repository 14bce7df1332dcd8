/* config_write.h - config.json of a checkpoint that was changed: the source's text with
 * some of its values replaced or left out. All else stays byte for byte: order of keys,
 * spelling of numbers, spaces. */
#ifndef DQ_CONFIG_WRITE_H
#define DQ_CONFIG_WRITE_H

#include "analysis/textbuf.h"
#include "kernels/tensor.h"

typedef struct {
    const char *key;    // of the outermost object
    const char *value;  // JSON; NULL: the member goes
    bool        add;    // where the key is missing, else that is left so
} ConfigEdit;

/* The value of "dtype": "\"bfloat16\"". F32, F16, BF16. */
const char *config_dtype(Dtype d);

/* Appends the edited text to out. name is the file's, for errors: ERR_FORMAT where text
 * is no JSON object; ERR_MEMORY. */
MUST_USE Status config_write(TextBuf *out, Arena *scratch, const char *name, const char *text,
                             const ConfigEdit *edits, int n_edits);

#endif
