/* keys.h - reads the members of a JSON object into a struct, by a table.
 * A row says what a member is called, what it must be and where it goes. */
#ifndef DQ_KEYS_H
#define DQ_KEYS_H

#include "analysis/json.h"

typedef enum { KEY_INT, KEY_REAL, KEY_BOOL, KEY_TEXT } KeyKind;

typedef struct {
    const char *name;
    KeyKind     kind;      // field is int64_t, double, bool, const char *
    bool        required;  // else absent or null leaves the field as it is: the default
    size_t      offset;    // of the field in the struct
    double      min, max;  // KEY_INT, KEY_REAL: allowed values, ends included
} Key;

enum { KEYS_WHERE = 1024 };  // room for `where`; longer paths are cut in messages

/* where begins every message, up to the name of the member: "a/config.json: "
 * or "a/config.json: rope_scaling.". object may be NULL: all absent.
 * ERR_FORMAT for a missing or mistyped member, ERR_RANGE for its value. */
MUST_USE Status keys_read(void *out, const Key *keys, int n, const Json *object,
                          const char *where);

#endif
