/* study_store.c - finished cells as files, so that a study that was broken off goes on
 * with the next. Written beside and renamed: a file that is there is whole. */
#include "analysis/study.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "kernels/hash.h"
#include "kernels/outfile.h"
#include "kernels/size.h"

static const char MAGIC[8] = {'D', 'Q', 'C', 'E', 'L', 'L', '0', '2'};

/* Then settings and the body. The numbers are the machine's own. */
typedef struct {
    char     magic[8];
    uint64_t n_settings, n_body;
    uint64_t sum;    // of the body: another program or a broken disk may have changed it
} Head;
_Static_assert(sizeof(Head) == 32, "Head is a file format");

/* "OUT/cells/diff-w4-g64-16.cell" */
static Status cell_path(const char **out, const Study *s, int64_t weights, int64_t bits)
{
    char *path = arena_printf(s->arena, "%s/%s-%s-%d.cell", s->o.folder, s->o.name,
                              s->o.weights[weights], s->o.bits[bits]);
    if (!path)
        FAIL(ERR_MEMORY, "out of memory for the name of a cell");
    for (char *c = path + strlen(s->o.folder) + 1; *c; c++)
        if (*c == '/' || *c == ':' || *c == ' ')
            *c = '-';
    *out = path;
    return OK;
}

/* --- the body: parts one after another, written or read --- */

typedef struct {
    unsigned char *to;           // writing, or
    const unsigned char *from;   // reading; both NULL: only counting
    size_t         n;
} Body;

static void part(Body *b, void *data, size_t n)
{
    if (b->to)
        memcpy(b->to + b->n, data, n);
    else if (b->from)
        memcpy(data, b->from + b->n, n);
    b->n += n;
}

static void all_parts(Body *b, const Study *s, StudyCell *c)
{
    double    *nll = c->text.window_nll;
    Perplexity text = c->text;
    text.window_nll = NULL;
    part(b, &text, sizeof text);
    c->text = text;
    c->text.window_nll = nll;
    part(b, &c->divergence, sizeof c->divergence);
    part(b, &c->n_nan, sizeof c->n_nan);
    if (s->o.text)
        part(b, nll, (size_t)s->o.text->seq.n * sizeof *nll);
    for (int64_t i = 0; i < s->n_sources; i++)
        part(b, c->correct[i], (size_t)s->source_items[i]);
}

static size_t body_size(const Study *s, StudyCell *c)
{
    Body b = {0};
    all_parts(&b, s, c);
    return b.n;
}

/* --- writing --- */

static Status write_cell(const Study *s, Arena *a, const char *path, StudyCell *c)
{
    OutFile f = {0};
    Status  status = OK;
    Body    b = {0};
    Head    h = {.n_settings = strlen(s->o.settings), .n_body = body_size(s, c)};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    ARENA_NEW(b.to, a, (int64_t)h.n_body);
    all_parts(&b, s, c);
    h.sum = hash_bytes(HASH_BEGIN, b.to, h.n_body);
    TRY(outfile_open(&f, a, path));
    status = outfile_write(&f, &h, sizeof h);
    if (status == OK)
        status = outfile_write(&f, s->o.settings, h.n_settings);
    if (status == OK)
        status = outfile_write(&f, b.to, h.n_body);
    if (status == OK)
        status = outfile_commit(&f);
    outfile_close(&f);
    return status;
}

Status study_save(Study *s, int64_t weights, int64_t bits)
{
    const char *path;
    Arena       a = {0};
    TRY(cell_path(&path, s, weights, bits));
    Status status = write_cell(s, &a, path, study_cell(s, weights, bits));
    arena_close(&a);
    return status;
}

/* --- reading --- */

static size_t line_length(const char *text, const char *end)
{
    const char *line = memchr(text, '\n', (size_t)(end - text));
    return (size_t)((line ? line : end) - text);
}

Status study_same(const char *name, const char *was, size_t n, const char *now)
{
    const char *end = was + n, *now_end = now + strlen(now);
    if (n == strlen(now) && memcmp(was, now, n) == 0)
        return OK;
    size_t a = line_length(was, end), b = line_length(now, now_end);
    while (a == b && memcmp(was, now, a) == 0 && was + a < end && now + b < now_end) {
        was += a + 1;
        now += b + 1;
        a = line_length(was, end);
        b = line_length(now, now_end);
    }
    FAIL(ERR_USAGE, "%s: was made with \"%.*s\", now it is \"%.*s\": use the same settings, "
         "or begin anew without --resume", name, (int)i64_min((int64_t)a, 200), was,
         (int)i64_min((int64_t)b, 200), now);
}

static Status parse_cell(const Study *s, const FileMap *map, const char *path, StudyCell *c)
{
    Head   h;
    size_t size = sizeof h;
    if (map->size < sizeof h || memcmp(map->data, MAGIC, sizeof MAGIC) != 0)
        FAIL(ERR_FORMAT, "%s: is no finished cell of a study", path);
    memcpy(&h, map->data, sizeof h);
    if (!size_add(size, h.n_settings, &size) || !size_add(size, h.n_body, &size) ||
        size != map->size)
        FAIL(ERR_FORMAT, "%s: %zu bytes, which its own numbers deny", path, map->size);
    const char *settings = (const char *)map->data + sizeof h;
    TRY(study_same(path, settings, h.n_settings, s->o.settings));
    Body b = {.from = map->data + sizeof h + h.n_settings};
    if (h.n_body != body_size(s, c) || h.sum != hash_bytes(HASH_BEGIN, b.from, h.n_body))
        FAIL(ERR_FORMAT, "%s: its figures are not whole: remove it, it is scored again", path);
    if (s->o.text)
        ARENA_NEW(c->text.window_nll, s->arena, s->o.text->seq.n);
    all_parts(&b, s, c);
    study_score(s, c);
    c->done = true;
    return OK;
}

static Status load_cell(const Study *s, const char *path, StudyCell *c)
{
    FileMap map;
    if (access(path, F_OK) != 0)
        return OK;
    TRY(filemap_open(&map, path));
    Status status = parse_cell(s, &map, path, c);
    filemap_close(&map);
    return status;
}

Status study_load(Study *s)
{
    for (int64_t w = 0; w < s->o.n_weights; w++)
        for (int64_t b = 0; b < s->o.n_bits; b++) {
            const char *path;
            TRY(cell_path(&path, s, w, b));
            TRY(load_cell(s, path, study_cell(s, w, b)));
        }
    return OK;
}

Status study_forget(Study *s)
{
    for (int64_t w = 0; w < s->o.n_weights; w++)
        for (int64_t b = 0; b < s->o.n_bits; b++) {
            const char *path;
            TRY(cell_path(&path, s, w, b));
            if (unlink(path) != 0 && errno != ENOENT)
                FAIL(ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
        }
    return OK;
}
