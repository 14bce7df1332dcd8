/* cli_convert.c - diffquant convert: a checkpoint in the layout of transformers. */
#include <stdio.h>
#include <string.h>

#include "quant/convert.h"
#include "reports/cli/verbs.h"

static void draw_tensors(void *context, int64_t done, int64_t total, const char *what)
{
    bar_show(context, what, "tensors", done, total);
}

static void json_member(TextBuf *b, const char *key, const char *value)
{
    textbuf_printf(b, ", \"%s\": ", key);
    textbuf_json(b, value);
}

static Status print_json(Session *se, const ConvertResult *r)
{
    TextBuf b;
    textbuf_init(&b, &se->arena);
    textbuf_printf(&b, "{\"tensors\": %lld, \"bytes\": %zu, \"files\": %lld",
                   (long long)r->n_tensors, r->bytes, (long long)r->n_files);
    json_member(&b, "dtype", dtype_name(r->dtype));
    json_member(&b, "from", r->from);
    json_member(&b, "to", r->to);
    json_member(&b, "notes", r->notes);
    json_member(&b, "out", se->s.out);
    TRY(textbuf_status(&b));
    printf("%s}\n", b.at);
    return OK;
}

static void print_summary(Session *se, const ConvertResult *r)
{
    char bytes[32];
    printf("%s as %s: %lld tensors, %s bytes as %s in %lld file%s. Wrote %s\n", r->from, r->to,
           (long long)r->n_tensors, textbuf_count(bytes, (int64_t)r->bytes),
           dtype_name(r->dtype), (long long)r->n_files, r->n_files > 1 ? "s" : "", se->s.out);
}

Status verb_convert(Session *se)
{
    ConvertResult  r;
    Progress       tensors = {draw_tensors, &se->bar};
    ConvertOptions o = {.model = se->s.inputs.at[0], .out = se->s.out,
                        .dtype = session_floats(se), .overwrite = se->s.force,
                        .progress = &tensors};
    if (!o.out)
        FAIL(ERR_USAGE, "convert needs --out, where the checkpoint goes");
    TRY(convert_run(&r, &se->arena, &o));
    bar_clear(&se->bar);
    if (*r.notes)
        session_say(se, "%.*s", (int)strlen(r.notes) - 1, r.notes);
    if (se->s.json)
        return print_json(se, &r);
    print_summary(se, &r);
    return OK;
}
