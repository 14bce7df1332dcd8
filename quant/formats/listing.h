/* listing.h - all that a checkpoint of few bits will hold, known before the first
 * weight is read: tensors as they are, and what each coded matrix becomes. */
#ifndef DQ_LISTING_H
#define DQ_LISTING_H

#include "analysis/textbuf.h"
#include "quant/formats/export.h"
#include "quant/formats/tensorfile.h"

/* A matrix that is stored as codes. */
typedef struct {
    const char *name;    // "model.layers.0.mlp.up_proj.weight"
    const char *module;  // the same without ".weight"
    const char *also;    // what loaders call the module, where the file does not; or NULL
    Scheme      scheme;
    int64_t     n, k;
} Coded;

typedef struct {
    int64_t      n;
    OutTensor   *tensors;    // [n] in no order
    int64_t      n_coded;
    Coded       *coded;      // [n_coded] by name
    int64_t      n_linear;   // quantizable matrices, coded or not
    int64_t      n_ignored;
    const char **ignored;    // [n_ignored] linear modules that stay floats
    const char  *head;       // "lm_head.weight": the head's name
    const char  *note;       // for the user, a line each; or NULL
} Listing;

/* ERR_USAGE, ERR_UNSUPPORTED, ERR_SHAPE as export_open. */
MUST_USE Status listing_make(Listing *l, Arena *a, const ExportOptions *o);
const Coded    *listing_find(const Listing *l, const char *name);  // NULL: not coded

/* --- the formats, one file each: compressed.c, int8_format.c, gptq_format.c --- */

/* A tensor that a coded matrix is made of. */
typedef struct {
    const char *suffix;  // ".weight_packed", after the module's name
    Tensor      view;    // dtype and shape
} Part;

enum { PACKING_PARTS = 4 };

typedef struct {
    const char *name;  // for messages
    /* Can it hold this matrix? ERR_UNSUPPORTED says what to use. */
    Status (*check)(const Coded *m, const ExportOptions *o);
    /* And all together? Adds notes. */
    Status (*check_all)(Listing *l, Arena *a, const ExportOptions *o);
    /* Fills parts; how many there are. */
    int (*parts)(Part *parts, const Coded *m, const ExportOptions *o);
    /* Bytes of one part into out. ERR_MEMORY. */
    Status (*fill)(void *out, Arena *scratch, int part, const Coded *m, const RtnCodes *c,
                   const ExportOptions *o);
    /* Value of config.json's quantization_config: lines with two spaces before them. */
    void (*config)(TextBuf *b, const Listing *l, const ExportOptions *o);
    /* A file of its own that says the same; NULL: none. */
    const char *config_file;
    void (*config_file_text)(TextBuf *b, const Listing *l, const ExportOptions *o);
} Packing;

extern const Packing PACKING_COMPRESSED, PACKING_INT8, PACKING_GPTQ;
const Packing *packing_of(ExportFormat f);

/* Adds a line to l->note. ERR_MEMORY. */
MUST_USE Status listing_note(Listing *l, Arena *a, const char *line);
/* config.json's lists of names: "[\n      \"a\",\n ... ]" with `indent` spaces before
 * the closing bracket. */
void listing_names(TextBuf *b, const char *const *names, int64_t n, int indent);
/* Groups of a row, and scales [n, groups] as dtype d into out. */
int64_t listing_groups(const Coded *m);
void    listing_scales(void *out, Dtype d, const float *scales, int64_t n);
/* Codes [n,k] as words along the rows (packbits.h, dense), by all threads. */
void    listing_rows(void *out, const int8_t *codes, int64_t n, int64_t k, int bits);

#endif
