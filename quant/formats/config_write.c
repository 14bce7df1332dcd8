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

/* New members behind the last, spaced as the first one is. */
static void add_missing(TextBuf *out, const Json *root, const ConfigEdit *edits, int n,
                        const char *space, int n_space)
{
    bool any = root->n > 0;
    for (int i = 0; i < n; i++) {
        if (!edits[i].add || json_member(root, edits[i].key))
            continue;
        textbuf_printf(out, "%s%.*s", any ? "," : "", n_space, space);
        textbuf_json(out, edits[i].key);
        textbuf_printf(out, ": %s", edits[i].value);
        any = true;
    }
}

static void edit_members(TextBuf *out, const Json *root, const char *text,
                         const ConfigEdit *edits, int n)
{
    const char *from = text, *p = strchr(text, '{') + 1, *space = p;
    p = skip_spaces(p);
    int n_space = (int)(p - space);
    const char *end = root->n ? p : space;  // of the last member
    for (int64_t i = 0; i < root->n; i++) {
        const char       *value = skip_spaces(skip_spaces(skip_text(p)) + 1);
        const ConfigEdit *e = find_edit(edits, n, root->at[i].key);
        end = skip_value(value);
        if (e) {
            textbuf_bytes(out, from, (size_t)(value - from));
            textbuf_add(out, e->value);
            from = end;
        }
        p = skip_spaces(skip_spaces(end) + 1);
    }
    textbuf_bytes(out, from, (size_t)(end - from));
    add_missing(out, root, edits, n, n_space ? space : " ", n_space ? n_space : 1);
    textbuf_add(out, end);
}

Status config_write(TextBuf *out, Arena *scratch, const char *name, const char *text,
                    const ConfigEdit *edits, int n_edits)
{
    const Json *root;
    TRY(json_parse(&root, scratch, name, text, strlen(text)));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s is %s, expected an object", name, json_kind_name(root->kind));
    edit_members(out, root, text, edits, n_edits);
    return textbuf_status(out);
}
