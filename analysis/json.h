/* json.h - JSON texts, parsed once into a table that lives in an arena.
 * cJSON reads the structure; what it is lax about is checked here: UTF-8,
 * spelling of numbers, control characters, \u0000 (which would cut a C string
 * short), duplicate keys, what follows the value, depth. */
#ifndef DQ_JSON_H
#define DQ_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/arena.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_OBJECT } JsonKind;

enum { JSON_MAX_DEPTH = 64 };

typedef struct Json Json;
struct Json {
    JsonKind     kind;
    bool         truth;    // JSON_BOOL
    bool         whole;    // JSON_NUMBER without fraction or exponent that fits integer
    double       number;   // JSON_NUMBER
    int64_t      integer;  // JSON_NUMBER, exact where whole
    const char  *key;      // member of an object: its name, else NULL
    const char  *text;     // JSON_TEXT: UTF-8 with a closing 0, "" for the other kinds
    int64_t      n;        // JSON_LIST, JSON_OBJECT: items
    const Json  *at;       // [n] in the order of the text
    const Json **sorted;   // [n] JSON_OBJECT: members by name, byte order
};

/* Parses text[0..n), which need not end in 0 and may be NULL if n is 0. name
 * (of the file) begins every message. ERR_FORMAT says column, and line where there
 * are several, or the duplicate key; ERR_MEMORY. Time and memory grow linearly with
 * n. */
MUST_USE Status json_parse(const Json **out, Arena *a, const char *name, const void *text,
                           size_t n);
/* Maps the file, parses it, closes it. */
MUST_USE Status json_read(const Json **out, Arena *a, const char *path);

/* The member of that name; NULL where there is none or v is not an object. */
const Json *json_member(const Json *v, const char *name);
const char *json_kind_name(JsonKind kind);  // "a number", "an object"
/* What v is where a whole number was expected and v->whole is false: "a fraction", "too
 * large a number", else its kind. */
const char *json_not_whole(const Json *v);

/* Offset of the first byte that is not UTF-8 (overlong forms, surrogates and
 * values past U+10FFFF are not); n where all of it is. */
size_t json_utf8_prefix(const unsigned char *text, size_t n);

#endif
