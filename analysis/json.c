/* json.c - checks a text, lets cJSON read it, copies the tree into an arena. */
#include "analysis/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/filemap.h"

/* Where we are in the text. scan_next() steps from token to token. */
typedef struct {
    const unsigned char *text;
    size_t               n, at;
    size_t               begin;  // of the token just stepped over
    bool                 whole;  // that number has neither fraction nor exponent
    const char          *name;   // for messages
    const char          *wrong;  // why scan_next() stopped at `at`
} Scan;

static Status fail_at(const Scan *s, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < s->n; i++) {
        column++;
        if (s->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    /* The name of a line of JSON lines has its number. */
    if (!s->n || !memchr(s->text, '\n', s->n))
        FAIL(ERR_FORMAT, "%s: column %zu: %s", s->name, column, what);
    FAIL(ERR_FORMAT, "%s: line %zu, column %zu: %s", s->name, line, column, what);
}

/* --- UTF-8 --- */

/* Length of the character at p, 0 where it is malformed (RFC 3629, table 3-7
 * of the Unicode standard: the second byte's range depends on the first). */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    unsigned c = p[0], low = 0x80, high = 0xbf;
    if (c < 0x80)
        return 1;
    size_t need = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (!need || need > n)
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    if (c == 0xed)
        high = 0x9f;
    if (c == 0xf0)
        low = 0x90;
    if (c == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return need;
}

size_t json_utf8_prefix(const unsigned char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t step = utf8_length(text + i, n - i);
        if (!step)
            return i;
        i += step;
    }
    return n;
}

/* --- tokens --- */

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* End of the digits from `at` on. */
static size_t digits(const Scan *s, size_t at)
{
    while (at < s->n && is_digit(s->text[at]))
        at++;
    return at;
}

/* Steps over the number at s->at by the grammar of RFC 8259; false with
 * s->wrong set. */
static bool skip_number(Scan *s)
{
    size_t begin = s->at + (s->text[s->at] == '-'), end = digits(s, begin);
    bool   valid = end > begin && (s->text[begin] != '0' || end == begin + 1);
    s->whole = true;
    if (valid && end < s->n && s->text[end] == '.') {
        s->whole = false;
        begin = end + 1;
        end = digits(s, begin);
        valid = end > begin;
    }
    if (valid && end < s->n && (s->text[end] | 32) == 'e') {
        s->whole = false;
        begin = end + 1;
        begin += begin < s->n && (s->text[begin] == '+' || s->text[begin] == '-');
        end = digits(s, begin);
        valid = end > begin;
    }
    if (valid)
        s->at = end;
    else
        s->wrong = "malformed number";
    return valid;
}

/* Steps over the text that opens at s->at; false with s->wrong set. */
static bool skip_text(Scan *s)
{
    for (s->at++; s->at < s->n; s->at++) {
        unsigned char c = s->text[s->at];
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20) {
            s->wrong = "control character inside a text";
            return false;
        }
        if (c == '\\' && s->n - s->at > 5 && !memcmp(s->text + s->at + 1, "u0000", 5)) {
            s->wrong = "\\u0000 inside a text";
            return false;
        }
        s->at += c == '\\';
    }
    s->wrong = "text without an end";
    return false;
}

typedef enum { SCAN_END, SCAN_OTHER, SCAN_OPEN, SCAN_CLOSE, SCAN_NUMBER, SCAN_WRONG } ScanKind;

/* Steps over one token. */
static ScanKind scan_next(Scan *s)
{
    static const char ODD[] = " \t\r\n,:truefalsn";  // spaces, and letters of the literals
    for (; s->at < s->n; s->at++) {
        unsigned char c = s->text[s->at];
        s->begin = s->at;
        if (c == '"')
            return skip_text(s) ? SCAN_OTHER : SCAN_WRONG;
        if (c == '-' || is_digit(c))
            return skip_number(s) ? SCAN_NUMBER : SCAN_WRONG;
        if (c == '{' || c == '[' || c == '}' || c == ']') {
            s->at++;
            return c == '{' || c == '[' ? SCAN_OPEN : SCAN_CLOSE;
        }
        if (!c || !strchr(ODD, c)) {
            s->wrong = "unexpected character";
            return SCAN_WRONG;
        }
    }
    return SCAN_END;
}

static Status check_text(Scan *s)
{
    size_t valid = json_utf8_prefix(s->text, s->n);
    if (valid < s->n)
        return fail_at(s, valid, "not UTF-8");
    if (s->n >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0)
        return fail_at(s, 0, "a byte order mark before the JSON: save the file without it");
    int depth = 0;
    for (ScanKind k; (k = scan_next(s)) != SCAN_END;) {
        depth += (k == SCAN_OPEN) - (k == SCAN_CLOSE);
        if (k == SCAN_WRONG)
            return fail_at(s, s->at, s->wrong);
        if (depth > JSON_MAX_DEPTH)
            return fail_at(s, s->at, "nested too deeply");
    }
    s->at = 0;
    return OK;
}

/* --- from cJSON's tree to ours --- */

typedef struct {
    Json        *nodes;
    const Json **sorted;
    char        *texts;
    int64_t      n_nodes, n_sorted;
    size_t       n_texts;
    Scan         scan;  // follows the tree, for the exact numbers
} Build;

static void count(Build *b, const cJSON *c)
{
    for (; c; c = c->next) {
        b->n_nodes++;
        b->n_sorted += c->string != NULL;
        b->n_texts += c->string ? strlen(c->string) + 1 : 0;
        b->n_texts += cJSON_IsString(c) ? strlen(c->valuestring) + 1 : 0;
        count(b, c->child);
    }
}

static const char *copy_text(Build *b, const char *text)
{
    size_t n = strlen(text) + 1;
    char  *p = memcpy(b->texts, text, n);
    b->texts += n;
    return p;
}

/* Exact value of the digits in text[0..n); false where int64 has no room. Counts
 * below zero, where there is room for one more. */
static bool parse_integer(int64_t *out, const unsigned char *text, size_t n)
{
    bool    minus = *text == '-';
    int64_t v = 0;
    for (size_t i = minus; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, text[i] - '0', &v))
            return false;
    if (!minus && v == INT64_MIN)
        return false;
    *out = minus ? v : -v;
    return true;
}

/* The next number of the text is this node's: both go in order. */
static void build_number(Build *b, Json *v, const cJSON *c)
{
    Scan *s = &b->scan;
    while (scan_next(s) != SCAN_NUMBER)
        ;
    v->number = c->valuedouble;
    v->whole = s->whole && parse_integer(&v->integer, s->text + s->begin, s->at - s->begin);
}

static int by_key(const void *x, const void *y)
{
    const Json *const *a = x, *const *b = y;
    return strcmp((*a)->key, (*b)->key);
}

static Status build(Build *b, Json *v, const cJSON *c);

static Status build_items(Build *b, Json *v, const cJSON *c)
{
    Json *items = b->nodes;
    for (const cJSON *i = c->child; i; i = i->next)
        v->n++;
    b->nodes += v->n;
    v->at = items;
    for (const cJSON *i = c->child; i; i = i->next)
        TRY(build(b, items++, i));
    if (v->kind == JSON_LIST)
        return OK;
    v->sorted = b->sorted;
    b->sorted += v->n;
    for (int64_t i = 0; i < v->n; i++)
        v->sorted[i] = v->at + i;
    qsort(v->sorted, (size_t)v->n, sizeof *v->sorted, by_key);
    for (int64_t i = 1; i < v->n; i++)
        if (strcmp(v->sorted[i]->key, v->sorted[i - 1]->key) == 0)
            FAIL(ERR_FORMAT, "%s: key \"%.200s\" appears twice in one object", b->scan.name,
                 v->sorted[i]->key);
    return OK;
}

static Status build(Build *b, Json *v, const cJSON *c)
{
    v->text = "";
    if (c->string)
        v->key = copy_text(b, c->string);
    switch (c->type & 0xff) {
    case cJSON_NULL:
        v->kind = JSON_NULL;
        return OK;
    case cJSON_False:
    case cJSON_True:
        v->kind = JSON_BOOL;
        v->truth = cJSON_IsTrue(c);
        return OK;
    case cJSON_Number:
        v->kind = JSON_NUMBER;
        build_number(b, v, c);
        return OK;
    case cJSON_String:
        v->kind = JSON_TEXT;
        v->text = copy_text(b, c->valuestring);
        return OK;
    case cJSON_Array:
    case cJSON_Object:
        v->kind = cJSON_IsArray(c) ? JSON_LIST : JSON_OBJECT;
        return build_items(b, v, c);
    default:
        FAIL(ERR_FORMAT, "%s: unknown kind of value", b->scan.name);
    }
}

static Status build_tree(const Json **out, Arena *a, Scan scan, const cJSON *root)
{
    Build b = {.scan = scan};
    count(&b, root);
    ARENA_NEW(b.nodes, a, b.n_nodes);
    ARENA_NEW(b.sorted, a, b.n_sorted);
    ARENA_NEW(b.texts, a, (int64_t)b.n_texts);
    *out = b.nodes++;
    return build(&b, (Json *)*out, root);
}

Status json_parse(const Json **out, Arena *a, const char *name, const void *text, size_t n)
{
    Scan scan = {.text = text, .n = n, .name = name};
    TRY(check_text(&scan));
    const char *end = text;
    cJSON      *root = n ? cJSON_ParseWithLengthOpts(text, n, &end, false) : NULL;
    Status      s = OK;
    size_t      rest = n ? (size_t)(end - (const char *)text) : 0;
    if (!root) {
        s = fail_at(&scan, rest, n ? "not JSON" : "empty, not JSON");
        goto out;
    }
    while (rest < n && strchr(" \t\r\n", scan.text[rest]))
        rest++;
    if (rest < n) {
        s = fail_at(&scan, rest, "something follows the JSON value");
        goto out;
    }
    GUARD(build_tree(out, a, scan, root));
out:
    cJSON_Delete(root);
    return s;
}

Status json_read(const Json **out, Arena *a, const char *path)
{
    FileMap map;
    TRY(filemap_open(&map, path));
    Status s = json_parse(out, a, path, map.data, map.size);
    filemap_close(&map);
    return s;
}

const Json *json_member(const Json *v, const char *name)
{
    if (!v || v->kind != JSON_OBJECT)
        return NULL;
    int64_t low = 0, high = v->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int     order = strcmp(name, v->sorted[middle]->key);
        if (order == 0)
            return v->sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *json_kind_name(JsonKind kind)
{
    static const char *const NAMES[] = {"null", "true or false", "a number",
                                        "a text", "a list", "an object"};
    return NAMES[kind];
}

const char *json_not_whole(const Json *v)
{
    if (v->kind != JSON_NUMBER)
        return json_kind_name(v->kind);
    return fabs(v->number) < 0x1p63 ? "a fraction" : "too large a number";
}
