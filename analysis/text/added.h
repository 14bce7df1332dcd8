/* added.h - tokens found in the text before the model sees it: <s>, <|user|>.
 * Leftmost match, the longest of those; then the token's own conditions. */
#ifndef DQ_TEXT_ADDED_H
#define DQ_TEXT_ADDED_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/text/pattern.h"

typedef struct {
    int32_t     id;
    const char *content;     // as the file has it
    const char *form;        // after the normalizer, where normalized
    bool        single_word; // no letters or digits beside it
    bool        lstrip, rstrip;  // takes the white space before, after it
    bool        normalized;  // looked for after the normalizer
    bool        special;     // left out when decoding
} AddedToken;

typedef struct {
    int32_t child, next;     // nodes: first child, next sibling; 0: none
    int32_t token;           // that ends here, -1
    unsigned char byte;
} AddedNode;

/* Finder of some of the tokens; {0} finds none. */
typedef struct {
    const AddedToken *tokens;
    AddedNode        *node;   // [0] is the root
    int32_t           n_nodes;
    bool              first[256];  // bytes that begin a token
    const Pattern    *word;        // one letter, digit, mark or _; where it is needed
} AddedFinder;

/* For the tokens whose normalized is as given. ERR_FORMAT (after name) where
 * two have the same form. Keeps tokens; patterns owns what it compiles. */
MUST_USE Status added_finder(AddedFinder *f, Arena *a, const char *name,
                             const AddedToken *tokens, int32_t n, bool normalized,
                             PatternList *patterns);

/* A walk over text[0..n), valid UTF-8. */
typedef struct {
    const AddedFinder *finder;
    const char        *text;
    int64_t            n, at, done;
} AddedWalk;

AddedWalk added_walk(const AddedFinder *f, const char *text, int64_t n);
/* The next token and its place [*from, *to), with the space it takes; NULL
 * where there is none. *before: where the plain text before it begins (it ends
 * at *from; none where *before >= *from). After NULL, plain text from *before
 * to the end is left. */
const AddedToken *added_next(AddedWalk *w, int64_t *before, int64_t *from, int64_t *to);

#endif
