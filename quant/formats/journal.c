/* journal.c - head, settings, which tensors are whole, rows of the report, hidden states. */
#include "quant/formats/journal.h"

#include <string.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "kernels/outfile.h"
#include "kernels/size.h"

static const char MAGIC[8] = {'D', 'Q', 'R', 'E', 'S', 'U', 'M', '1'};

/* In the order of the file; the numbers are the machine's own. */
typedef struct {
    char     magic[8];
    uint64_t n_settings, source, n_tensors, layers, row_bytes, n_state;
} Head;
_Static_assert(sizeof(Head) == 56, "Head is a file format");

static size_t rows_place(const Journal *j)
{
    return sizeof(Head) + strlen(j->settings) + (size_t)j->n_tensors;
}

/* Size the file should have; false where the numbers of a broken one overflow. */
static bool whole_size(size_t *size, const Head *h)
{
    size_t state;
    *size = sizeof *h;
    return size_add(*size, h->n_settings, size) && size_add(*size, h->n_tensors, size) &&
           size_add(*size, h->row_bytes, size) && size_mul(h->n_state, sizeof(float), &state) &&
           size_add(*size, state, size);
}

static Status check_head(Head *h, const FileMap *map, const char *path)
{
    size_t size;
    if (map->size < sizeof *h || memcmp(map->data, MAGIC, sizeof MAGIC) != 0)
        FAIL(ERR_FORMAT, "%s: is no journal of this program", path);
    memcpy(h, map->data, sizeof *h);
    if (!whole_size(&size, h) || size != map->size || h->layers < 1 || h->layers > INT32_MAX)
        FAIL(ERR_FORMAT, "%s: %zu bytes, which its own numbers deny", path, map->size);
    return OK;
}

static Status parse(Journal *j, const FileMap *map)
{
    Head h;
    TRY(check_head(&h, map, j->path));
    const char *settings = (const char *)map->data + sizeof h;
    if (h.n_settings != strlen(j->settings) ||
        memcmp(settings, j->settings, h.n_settings) != 0)
        FAIL(ERR_USAGE, "%s: was begun with \"%.*s\", now it is \"%s\": use the same settings, "
             "or begin anew", j->path, (int)(h.n_settings < 300 ? h.n_settings : 300), settings,
             j->settings);
    if (h.source != j->source)
        FAIL(ERR_USAGE, "%s: the source's files are not those it was begun with: begin anew",
             j->path);
    if (h.n_tensors != (uint64_t)j->n_tensors)
        FAIL(ERR_USAGE, "%s: was begun with %llu tensors, now there are %lld: begin anew",
             j->path, (unsigned long long)h.n_tensors, (long long)j->n_tensors);
    memcpy(j->whole, settings + h.n_settings, h.n_tensors);
    j->layers = (int64_t)h.layers;
    j->row_bytes = h.row_bytes;
    j->n_state = h.n_state;
    return OK;
}

Status journal_read(Journal *j)
{
    FileMap map;
    j->layers = 0;
    if (access(j->path, F_OK) != 0)
        return OK;
    TRY(filemap_open(&map, j->path));
    Status s = parse(j, &map);
    filemap_close(&map);
    return s;
}

Status journal_write(Journal *j, Arena *scratch, const void *rows, size_t row_bytes,
                     const float *state, size_t n_state)
{
    OutFile   f = {0};
    Status    s = OK;
    ArenaMark mark = arena_mark(scratch);
    Head      h = {.n_settings = strlen(j->settings), .source = j->source,
                   .n_tensors = (uint64_t)j->n_tensors, .layers = (uint64_t)j->layers,
                   .row_bytes = row_bytes, .n_state = n_state};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    GUARD(outfile_open(&f, scratch, j->path));
    GUARD(outfile_write(&f, &h, sizeof h));
    GUARD(outfile_write(&f, j->settings, h.n_settings));
    GUARD(outfile_write(&f, j->whole, h.n_tensors));
    GUARD(outfile_write(&f, rows, row_bytes));
    GUARD(outfile_write(&f, state, n_state * sizeof *state));
    GUARD(outfile_commit(&f));
    j->row_bytes = row_bytes;
    j->n_state = n_state;
out:
    outfile_close(&f);
    arena_rewind(scratch, mark);
    return s;
}

/* Hidden states of a long text are large: what was copied takes no memory twice. */
static void take(void *out, const unsigned char *from, size_t n)
{
    enum { PIECE = 4 << 20 };
    for (size_t i = 0; i < n; i += PIECE) {
        size_t part = n - i < PIECE ? n - i : PIECE;
        memcpy((unsigned char *)out + i, from + i, part);
        filemap_release(from + i, part);
    }
}

Status journal_kept(const Journal *j, void *rows, size_t row_bytes, float *state,
                    size_t n_state)
{
    FileMap map;
    CHECK(j->layers > 0);
    if (row_bytes != j->row_bytes || n_state != j->n_state)
        FAIL(ERR_FORMAT, "%s: holds %llu bytes of rows and %llu numbers of state, expected %zu "
             "and %zu", j->path, (unsigned long long)j->row_bytes,
             (unsigned long long)j->n_state, row_bytes, n_state);
    TRY(filemap_open(&map, j->path));
    size_t size = rows_place(j) + row_bytes + n_state * sizeof *state;
    bool   same = map.size == size;
    if (same) {
        take(rows, map.data + rows_place(j), row_bytes);
        take(state, map.data + rows_place(j) + row_bytes, n_state * sizeof *state);
    }
    size_t got = map.size;
    filemap_close(&map);
    if (!same)
        FAIL(ERR_FORMAT, "%s: %zu bytes, expected %zu", j->path, got, size);
    return OK;
}
