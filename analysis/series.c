/* series.c - lists of named arrays and attributes that grow in an arena. */
#include "analysis/series.h"

#include <math.h>
#include <string.h>

#include "kernels/size.h"

size_t series_type_size(SeriesType t)
{
    switch (t) {
    case SERIES_F64:
    case SERIES_I64:
    case SERIES_U64:
        return 8;
    case SERIES_F32:
    case SERIES_I32:
        return 4;
    }
    CHECK(!"a known series type");
    return 0;
}

int64_t series_count(const Series *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n_dims; i++)
        n *= s->shape[i];
    return n;
}

double series_at(const Series *s, int64_t i)
{
    CHECK(i >= 0 && i < series_count(s));
    switch (s->type) {
    case SERIES_F64:
        return ((const double *)s->data)[i];
    case SERIES_F32:
        return (double)((const float *)s->data)[i];
    case SERIES_I64:
        return (double)((const int64_t *)s->data)[i];
    case SERIES_U64:
        return (double)((const uint64_t *)s->data)[i];
    case SERIES_I32:
        return (double)((const int32_t *)s->data)[i];
    }
    CHECK(!"a known series type");
    return 0;
}

void series_set_init(SeriesSet *set, Arena *a, const char *model)
{
    *set = (SeriesSet){.model = model, .arena = a};
}

/* Room for one more of n items; the old array stays in the arena, unused. */
static Status make_room(Arena *a, void *items, int64_t n, int64_t *capacity, size_t size)
{
    if (n < *capacity)
        return OK;
    int64_t wanted = *capacity ? 2 * *capacity : 32;
    char *p = arena_alloc(a, wanted, size);
    if (!p)
        FAIL(ERR_MEMORY, "out of memory: list of %lld series", (long long)wanted);
    void *old;
    memcpy(&old, items, sizeof old);
    if (n)
        memcpy(p, old, (size_t)n * size);
    memcpy(items, &p, sizeof p);
    *capacity = wanted;
    return OK;
}

/* Bytes of the array; a shape may come from a file, so its product may not fit. */
static Status shape_bytes(size_t *bytes, SeriesType type, const char *name, int n_dims,
                          const int64_t *shape)
{
    *bytes = series_type_size(type);
    for (int i = 0; i < n_dims; i++)
        if (shape[i] < 0 || !size_mul(*bytes, (size_t)shape[i], bytes) ||
            *bytes > INT64_MAX / 2)
            FAIL(ERR_SHAPE, "series %s: dimension %d is %lld, too large for memory", name, i,
                 (long long)shape[i]);
    return OK;
}

Status series_add(SeriesSet *set, Series **out, SeriesType type, const char *name,
                  const char *unit, const char *about, int n_dims, const char *const *dims,
                  const int64_t *shape)
{
    CHECK(n_dims >= 0 && n_dims <= SERIES_MAX_DIMS);
    CHECK(!series_find(set, name));
    size_t bytes;
    TRY(shape_bytes(&bytes, type, name, n_dims, shape));
    TRY(make_room(set->arena, &set->at, set->n, &set->capacity, sizeof *set->at));
    Series s = {.name = name, .unit = unit, .about = about, .type = type, .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++) {
        s.dims[i] = dims[i];
        s.shape[i] = shape[i];
    }
    s.data = arena_alloc(set->arena, (int64_t)bytes, 1);
    if (!s.data)
        FAIL(ERR_MEMORY, "out of memory: series %s of %zu bytes", name, bytes);
    set->at[set->n] = s;
    *out = &set->at[set->n++];
    return OK;
}

const Series *series_find(const SeriesSet *set, const char *name)
{
    for (int64_t i = 0; i < set->n; i++)
        if (strcmp(set->at[i].name, name) == 0)
            return &set->at[i];
    return NULL;
}

const Series *series_find_dims(const SeriesSet *set, const char *name, const char *dims)
{
    const Series *s = series_find(set, name);
    if (!s)
        return NULL;
    for (int i = 0; i < s->n_dims; i++) {
        size_t n = strlen(s->dims[i]);
        if (strncmp(dims, s->dims[i], n) != 0 || dims[n] != (i + 1 < s->n_dims ? ',' : 0))
            return NULL;
        dims += n + (i + 1 < s->n_dims);
    }
    return *dims ? NULL : s;
}

double series_get(const Series *s, int64_t i, int64_t j, int64_t k)
{
    if (!s || s->n_dims > 3)
        return NAN;
    int64_t place[3] = {i, j, k}, at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t length = d < s->n_dims ? s->shape[d] : 1;
        if (place[d] < 0 || place[d] >= length)
            return NAN;
        at = at * length + place[d];
    }
    return series_at(s, at);
}

const Attr *series_attr(const SeriesSet *set, const char *key)
{
    for (int64_t i = 0; i < set->n_attrs; i++)
        if (strcmp(set->attrs[i].key, key) == 0)
            return &set->attrs[i];
    return NULL;
}

/* An attribute set again takes the new value, in its old place. */
static Status attr_put(SeriesSet *set, Attr attr)
{
    for (int64_t i = 0; i < set->n_attrs; i++)
        if (strcmp(set->attrs[i].key, attr.key) == 0) {
            set->attrs[i] = attr;
            return OK;
        }
    TRY(make_room(set->arena, &set->attrs, set->n_attrs, &set->attr_capacity,
                  sizeof *set->attrs));
    set->attrs[set->n_attrs++] = attr;
    return OK;
}

Status series_attr_text(SeriesSet *set, const char *key, const char *text)
{
    const char *copy = arena_text(set->arena, text, strlen(text));
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory for attribute %s", key);
    return attr_put(set, (Attr){.key = key, .kind = ATTR_TEXT, .text = copy});
}

Status series_attr_int(SeriesSet *set, const char *key, int64_t value)
{
    return attr_put(set, (Attr){.key = key, .kind = ATTR_INT, .integer = value});
}

Status series_attr_real(SeriesSet *set, const char *key, double value)
{
    return attr_put(set, (Attr){.key = key, .kind = ATTR_REAL, .real = value});
}
