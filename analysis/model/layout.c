/* layout.c - reads LAYOUT@PATH, and says when a folder needs one. */
#include "analysis/model/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model.h"
#include "analysis/textbuf.h"

static const char *const NAMES[] = {"unilm"};
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

/* --- settings --- */

static const struct {
    const char *name;
    bool        whole;   // an int64_t, else a double
    size_t      offset;
    double      min, max;
} SETTINGS[] = {
    {"theta", false, offsetof(Layout, theta), 2, 1e15},
    {"eps", false, offsetof(Layout, eps), 0, 1},
    {"context", true, offsetof(Layout, context), 1, 1 << 30},
    {"bos", true, offsetof(Layout, bos), -1, INT32_MAX},
    {"eos", true, offsetof(Layout, eos), -1, INT32_MAX},
};
enum { N_SETTINGS = sizeof SETTINGS / sizeof *SETTINGS };

static Status parse_value(Layout *l, int i, const char *text)
{
    char  *end;
    double x = strtod(text, &end);
    bool   plain = *text && text[strspn(text, "0123456789+-.eE")] == 0 && !*end;
    if (!plain || !(x >= SETTINGS[i].min && x <= SETTINGS[i].max) ||
        (SETTINGS[i].whole && x != floor(x)))
        FAIL(ERR_USAGE, "layout %s: %s is \"%.40s\", expected a %s from %.15g to %.15g",
             l->name, SETTINGS[i].name, text, SETTINGS[i].whole ? "whole number" : "number",
             SETTINGS[i].min, SETTINGS[i].max);
    if (SETTINGS[i].whole)
        *(int64_t *)((char *)l + SETTINGS[i].offset) = (int64_t)x;
    else
        *(double *)((char *)l + SETTINGS[i].offset) = x;
    return OK;
}

/* "theta=500000": text is changed. */
static Status parse_setting(Layout *l, char *text)
{
    char *equals = strchr(text, '=');
    int   i = 0;
    if (equals)
        *equals = 0;
    while (i < N_SETTINGS && strcmp(text, SETTINGS[i].name) != 0)
        i++;
    if (i == N_SETTINGS || !equals)
        FAIL(ERR_USAGE, "layout %s: \"%.40s\" is no setting; these are: theta=, eps=, context=, "
             "bos=, eos=", l->name, text);
    if (l->given >> i & 1)
        FAIL(ERR_USAGE, "layout %s: %s is given twice", l->name, text);
    l->given |= 1u << i;
    return parse_value(l, i, equals + 1);
}

/* --- layouts --- */

static const char *known_name(const char *text, size_t n)
{
    for (int i = 0; i < N_NAMES; i++)
        if (strlen(NAMES[i]) == n && memcmp(NAMES[i], text, n) == 0)
            return NAMES[i];
    return NULL;
}

/* "unilm" or "unilm:theta=500000,eos=2", text[0..n). */
static Status parse_layout(Layout *l, Arena *a, const char *text, size_t n)
{
    size_t n_name = strcspn(text, ":@");
    char  *next, *copy = arena_text(a, text, n);
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory: a layout's name");
    *l = (Layout){.theta = 10000, .eps = 1e-5, .context = 2048, .bos = -1, .eos = -1};
    l->name = known_name(text, n_name < n ? n_name : n);
    if (!l->name)
        FAIL(ERR_USAGE, "\"%.80s\" is no layout; this is one: unilm", copy);
    if (n_name >= n)
        return OK;
    for (char *at = copy + n_name + 1; at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        TRY(parse_setting(l, at));
    }
    return OK;
}

/* Where LAYOUT ends in `given`; NULL where it is a path: no '@', or one in a folder's name
 * further down. */
static const char *find_at(const char *given)
{
    const char *at = strchr(given, '@'), *slash = strchr(given, '/');
    return at && !(slash && slash < at) ? at : NULL;
}

static bool begins_with_layout(const char *path)
{
    const char *at = find_at(path);
    return at && known_name(path, strcspn(path, ":@"));
}

Status layout_split(Layout *out, Arena *a, const char *given)
{
    const char *at = find_at(given);
    *out = (Layout){.path = given};
    if (!at || access(given, F_OK) == 0)
        return OK;
    if (!known_name(given, strcspn(given, ":@")))
        FAIL(ERR_USAGE, "%s: no such folder, and \"%.*s\" is no layout; this is one: unilm",
             given, (int)(at - given), given);
    TRY(parse_layout(out, a, given, (size_t)(at - given)));
    if (!at[1])
        FAIL(ERR_USAGE, "%s: expected a folder behind the @", given);
    out->path = arena_text(a, at + 1, strlen(at + 1));
    if (!out->path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    if (access(out->path, F_OK) != 0 && begins_with_layout(out->path))
        FAIL(ERR_USAGE, "%s: names two layouts, expected one and a folder", given);
    return OK;
}

/* --- for people --- */

static void add_setting(TextBuf *b, const Layout *l, int i)
{
    const void *field = (const char *)l + SETTINGS[i].offset;
    if (!SETTINGS[i].whole)
        textbuf_printf(b, "%s %g", SETTINGS[i].name, *(const double *)field);
    else if (*(const int64_t *)field < 0)
        textbuf_printf(b, "no %s", SETTINGS[i].name);
    else
        textbuf_printf(b, "%s %lld", SETTINGS[i].name, (long long)*(const int64_t *)field);
}

static void add_settings(TextBuf *b, const Layout *l, bool given, const char *before)
{
    for (int i = 0; i < N_SETTINGS; i++)
        if ((l->given >> i & 1) == given) {
            textbuf_add(b, before);
            add_setting(b, l, i);
            before = ", ";
        }
}

const char *layout_words(Arena *a, const Layout *l)
{
    TextBuf b;
    textbuf_init(&b, a);
    textbuf_add(&b, l->name);
    add_settings(&b, l, true, ", as given: ");
    add_settings(&b, l, false, "; in no file, so assumed: ");
    return textbuf_status(&b) == OK ? b.at : NULL;
}

/* --- --layout --- */

/* Does the folder need a layout: is it one, with neither config.json nor a GGUF file? */
static Status lacks_config(bool *out, Arena *a, const char *path)
{
    struct stat st;
    const char *gguf, *config = arena_printf(a, "%s/config.json", path);
    if (!config)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    *out = false;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode) || access(config, F_OK) == 0)
        return OK;
    TRY(gguf_file_find(&gguf, a, path));
    *out = !gguf;
    return OK;
}

Status model_with_layout(const char **out, Arena *a, const char *path, const char *layout)
{
    Layout own, asked;
    bool   lacks;
    *out = path;
    TRY(parse_layout(&asked, a, layout, strlen(layout)));
    TRY(layout_split(&own, a, path));
    TRY(lacks_config(&lacks, a, path));   // no: one of its own makes it no folder's path
    if (!lacks)
        return OK;
    *out = arena_printf(a, "%s@%s", layout, path);
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory: a file name");
}
