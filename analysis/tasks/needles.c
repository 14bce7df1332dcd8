/* needles.c - a set of episodes: as sequences for the model, and as JSON lines. */
#include "analysis/needles.h"

#include <string.h>

#include "analysis/tasks/needles_parts.h"
#include "analysis/textbuf.h"

const int32_t NEEDLES_DEPTH[NEEDLES_DEPTHS] = {0, 25, 50, 75, 100};

enum { MAX_SAMPLES = 1000000 };

static Status check_range(const char *what, int64_t x, int64_t low, int64_t high)
{
    if (x < low || x > high)
        FAIL(ERR_RANGE, "%lld %s: %lld to %lld are possible", (long long)x, what,
             (long long)low, (long long)high);
    return OK;
}

static Status check(const NeedleOptions *o)
{
    TRY(check_range("needles", o->needles, 1, NEEDLES_CITIES));
    TRY(check_range("needles asked for", o->asked, 1, o->needles));
    TRY(check_range("samples a depth", o->samples, 1, MAX_SAMPLES));
    TRY(check_range("tokens of context", o->context, 2, INT32_MAX));
    CHECK((unsigned)o->form < N_NEEDLE_FORMS);
    return OK;
}

/* --- JSON lines --- */

static long long code_points(const char *text, size_t n)
{
    long long count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static void write_given(TextBuf *b, const Episode *e)
{
    const char *answer = e->text + e->n_context;
    textbuf_add(b, ", \"given\": [");
    for (int64_t g = 0; g < e->n_given; g++)
        textbuf_printf(b, "%s[%lld, %lld]", g ? ", " : "",
                       code_points(answer, e->given[g].first - e->n_context),
                       code_points(answer, e->given[g].end - e->n_context));
    textbuf_add(b, "]");
}

static Status write_line(TextBuf *b, Arena *a, const Episode *e, const NeedleOptions *o,
                         int32_t depth)
{
    const char *context = arena_text(a, e->text, e->n_context);
    if (!context)
        FAIL(ERR_MEMORY, "out of memory for an episode");
    textbuf_printf(b, "{\"id\": \"%s\", \"n\": %lld, \"asked\": %lld, \"depth\": %d, ", e->id,
                   (long long)e->needles, (long long)o->asked, depth);
    textbuf_add(b, "\"context\": ");
    textbuf_json(b, context);
    textbuf_add(b, ", \"answer\": ");
    textbuf_json(b, e->text + e->n_context);
    textbuf_printf(b, ", \"span\": [%lld, %lld]", code_points(e->text, e->span.first),
                   code_points(e->text, e->span.end));
    if (e->n_given)
        write_given(b, e);
    textbuf_add(b, "}\n");
    return textbuf_status(b);
}

static Status write_lines(Needles *nd, Arena *a, Arena *tmp, const Episode *e)
{
    TextBuf b;
    textbuf_init(&b, tmp);
    for (int64_t i = 0; i < nd->n; i++)
        TRY(write_line(&b, tmp, &e[i], &nd->o, NEEDLES_DEPTH[nd->depth[i]]));
    nd->jsonl = arena_text(a, b.at, b.n);
    return nd->jsonl ? OK : STATUS(ERR_MEMORY, "out of memory for %zu bytes of episodes", b.n);
}

/* --- sequences --- */

/* Rows that predict the first answer: from the first target to the first row without. */
static Status mark_rows(Needles *nd, Arena *a)
{
    Sequences *s = &nd->episodes.seq;
    uint8_t   *rows;
    ARENA_NEW(rows, a, s->start[s->n]);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t t = s->start[i];
        while (s->targets[t] < 0)
            t++;
        for (; t < s->start[i + 1] && s->targets[t] >= 0; t++)
            rows[t] = 1;
    }
    s->share_rows = rows;
    return OK;
}

/* One task, since all have as many needles. */
static Status ask(Needles *nd, Arena *a, Tokenizer *t, const Episode *e)
{
    nd->name = arena_printf(a, "needles-n%lldr%lld", (long long)nd->o.needles,
                            (long long)nd->o.asked);
    if (!nd->name)
        FAIL(ERR_MEMORY, "out of memory for a name");
    TRY(episodes_ask(&nd->episodes, a, t, nd->name, e, nd->n, nd->o.context, nd->o.no_bos));
    nd->episodes.tasks[0].name = nd->name;
    return OK;
}

static Status make(Needles *nd, Arena *a, Arena *tmp, Tokenizer *t)
{
    Filler   f;
    Episode *e;
    uint8_t *depth;
    ARENA_NEW(depth, a, nd->n);
    ARENA_NEW(e, tmp, nd->n);
    nd->depth = depth;
    TRY(filler_cut(&f, tmp, t, &nd->o));
    for (int64_t i = 0; i < nd->n; i++) {
        depth[i] = (uint8_t)(i / nd->o.samples);
        TRY(needles_episode(&e[i], tmp, t, &f, &nd->o, i));
    }
    TRY(ask(nd, a, t, e));
    TRY(mark_rows(nd, a));
    return write_lines(nd, a, tmp, e);
}

Status needles_make(Needles *nd, Arena *a, Tokenizer *t, const NeedleOptions *o)
{
    Arena tmp = {0};
    *nd = (Needles){.o = *o};
    TRY(check(o));
    nd->n = NEEDLES_DEPTHS * o->samples;
    Status s = make(nd, a, &tmp, t);
    arena_close(&tmp);
    return s;
}
