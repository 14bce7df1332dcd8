/* series.h - named dense arrays: what analysis measures and reports draw.
 * A SeriesSet owns nothing: names, numbers and attributes live in the arena
 * that was passed in. */
#ifndef DQ_SERIES_H
#define DQ_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"

typedef enum { SERIES_F64, SERIES_F32, SERIES_I64, SERIES_U64, SERIES_I32 } SeriesType;

enum { SERIES_MAX_DIMS = 4 };

typedef struct {
    const char *key;
    enum { ATTR_TEXT, ATTR_INT, ATTR_REAL } kind;
    const char *text;
    int64_t     integer;
    double      real;
} Attr;

/* name: letters, digits, '_', and '/' between groups ("logits/absmax").
 * dims: "layer", "head", "map", "channel", "rank", "bin", "position", "key". */
typedef struct {
    const char *name;
    const char *unit;                   // "" where there is none
    const char *about;                  // one sentence
    SeriesType  type;
    int         n_dims;
    const char *dims[SERIES_MAX_DIMS];
    int64_t     shape[SERIES_MAX_DIMS];
    void       *data;                   // row-major
} Series;

/* All results of one model in one run. */
typedef struct {
    const char *model;                  // name of the model, a group name in files
    Arena      *arena;
    int64_t     n, capacity;
    Series     *at;
    int64_t     n_attrs, attr_capacity;
    Attr       *attrs;
} SeriesSet;

size_t series_type_size(SeriesType t);
int64_t series_count(const Series *s);

void series_set_init(SeriesSet *set, Arena *a, const char *model);
/* Adds a zeroed array and returns it in *out (valid until the next add: take
 * out->data). Strings are kept, not copied. A name is used once (CHECK).
 * ERR_SHAPE where the bytes do not fit a size_t, ERR_MEMORY. */
MUST_USE Status series_add(SeriesSet *set, Series **out, SeriesType type, const char *name,
                           const char *unit, const char *about, int n_dims,
                           const char *const *dims, const int64_t *shape);
/* NULL where there is none of that name. */
const Series *series_find(const SeriesSet *set, const char *name);
/* As series_find, but only where its dimensions are exactly those of the list
 * ("layer,head,map"; "" for a scalar): a set may come from a file. */
const Series *series_find_dims(const SeriesSet *set, const char *name, const char *dims);
/* Item i as a double, whatever the type. */
double series_at(const Series *s, int64_t i);
/* Item [i,j,k] of a series of at most three dimensions (missing ones are 0).
 * NaN where s is NULL or the place is outside. */
double series_get(const Series *s, int64_t i, int64_t j, int64_t k);

/* A key set again takes the new value. The key is kept, text is copied into the
 * set's arena: it often belongs to a model that goes before its results do.
 * ERR_MEMORY. */
MUST_USE Status series_attr_text(SeriesSet *set, const char *key, const char *text);
MUST_USE Status series_attr_int(SeriesSet *set, const char *key, int64_t value);
MUST_USE Status series_attr_real(SeriesSet *set, const char *key, double value);
const Attr     *series_attr(const SeriesSet *set, const char *key);

#endif
