/* config_write.c - finds the values of the outermost object in a JSON text that was
 * checked, and writes the text again with some of them exchanged. */
#include "quant/formats/config_write.h"

#include <string.h>

#include "analysis/json.h"

static const char *skip_spaces(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* Past the text that opens at p. */
static const char *skip_text(const char *p)
{
    for (p++; *p != '"'; p++)
        p += *p == '\\';
    return p + 1;
}

/* Past the value at p; the text is known to be JSON. */
static const char *skip_value(const char *p)
{
    int depth = 0;
    do {
        if (*p == '"') {
            p = skip_text(p);
            continue;
        }
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        p++;
    } while (depth > 0 || (*p && !strchr(",]} \t\r\n", *p)));
    return p;
}

static const ConfigEdit *find_edit(const ConfigEdit *edits, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(edits[i].key, key) == 0)
            return &edits[i];
    return NULL;
}

static void add_span(TextBuf *out, const char *from, const char *to)
{
    textbuf_bytes(out, from, (size_t)(to - from));
}

/* A member of the outermost object; all between begin and next belongs to it. */
typedef struct {
    const char *begin;  // behind the brace or comma before it
    const char *value, *end;
    const char *next;   // the comma or brace behind it
} Member;

static Member member_at(const char *p)
{
    const char *colon = skip_spaces(skip_text(skip_spaces(p)));
    Member      m = {.begin = p, .value = skip_spaces(colon + 1)};
    m.end = skip_value(m.value);
    m.next = skip_spaces(m.end);
    return m;
}

/* Members that stay, with the values they have or get. Returns where the last of the
 * text, staying or not, ends. */
static const char *edit_members(TextBuf *out, bool *any, const Json *root, const char *p,
                                const ConfigEdit *edits, int n)
{
    Member m = {.end = p}, before = {0};
    for (int64_t i = 0; i < root->n; i++, p = m.next + 1) {
        const ConfigEdit *e = find_edit(edits, n, root->at[i].key);
        m = member_at(p);
        if (e && !e->value)
            continue;
        if (*any) {
            add_span(out, before.end, before.next);
            textbuf_add(out, ",");
        }
        add_span(out, m.begin, m.value);
        add_span(out, e ? e->value : m.value, e ? e->value + strlen(e->value) : m.end);
        before = m;
        *any = true;
    }
    return m.end;
}

/* New members behind the last, spaced as the first one was. */
static void add_missing(TextBuf *out, bool any, const Json *root, const ConfigEdit *edits,
                        int n, const char *spaces)
{
    int n_spaces = (int)(skip_spaces(spaces) - spaces);
    for (int i = 0; i < n; i++) {
        if (!edits[i].value || !edits[i].add || json_member(root, edits[i].key))
            continue;
        textbuf_printf(out, "%s%.*s", any ? "," : "", n_spaces ? n_spaces : 1,
                       n_spaces ? spaces : " ");
        textbuf_json(out, edits[i].key);
        textbuf_printf(out, ": %s", edits[i].value);
        any = true;
    }
}

const char *config_dtype(Dtype d)
{
    CHECK(d <= DTYPE_BF16);
    return d == DTYPE_F32 ? "\"float32\"" : d == DTYPE_F16 ? "\"float16\"" : "\"bfloat16\"";
}

Status config_write(TextBuf *out, Arena *scratch, const char *name, const char *text,
                    const ConfigEdit *edits, int n_edits)
{
    const Json *root;
    TRY(json_parse(&root, scratch, name, text, strlen(text)));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s is %s, expected an object", name, json_kind_name(root->kind));
    const char *first = strchr(text, '{') + 1;
    bool        any = false;
    add_span(out, text, first);
    const char *end = edit_members(out, &any, root, first, edits, n_edits);
    add_missing(out, any, root, edits, n_edits, first);
    textbuf_add(out, end);
    return textbuf_status(out);
}
