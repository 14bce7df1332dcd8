/* tensorfile.c - lays out a safetensors file, then fills it in any order. */
#include "quant/formats/tensorfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/textbuf.h"
#include "kernels/fdwrite.h"
#include "kernels/filemap.h"

enum { MAX_HEADER = 100000000, LINE_ROOM = 192 };

/* --- the outline --- */

/* Place of a dtype in the order of the format's own list, narrow to wide. */
static int dtype_rank(Dtype d)
{
    static const int RANK[N_DTYPES] = {
        [DTYPE_BOOL] = 0, [DTYPE_U8] = 1,   [DTYPE_I8] = 2,  [DTYPE_I16] = 3,
        [DTYPE_U16] = 4,  [DTYPE_F16] = 5,  [DTYPE_BF16] = 6, [DTYPE_I32] = 7,
        [DTYPE_U32] = 8,  [DTYPE_F32] = 9,  [DTYPE_F64] = 10, [DTYPE_I64] = 11,
        [DTYPE_U64] = 12,
    };
    return RANK[d];
}

/* Wide ones first: every tensor is then aligned without padding. */
static int by_place(const void *x, const void *y)
{
    const OutTensor *a = x, *b = y;
    int              order = dtype_rank(b->view.dtype) - dtype_rank(a->view.dtype);
    return order ? order : strcmp(a->name, b->name);
}

size_t tensorfile_room(const OutTensor *t)
{
    /* A character of a name takes up to six bytes in JSON. */
    return tensor_bytes(&t->view) + 6 * strlen(t->name) + LINE_ROOM;
}

static void add_tensor(TextBuf *b, const OutTensor *t)
{
    char shape[128];
    textbuf_add(b, ",");
    textbuf_json(b, t->name);
    textbuf_printf(b, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                   dtype_name(t->view.dtype), tensor_shape_text(&t->view, shape), t->begin,
                   t->begin + tensor_bytes(&t->view));
}

/* Size (8 bytes, little-endian) and JSON, filled up with spaces to a multiple of 8. */
static Status build_header(TensorFile *f, Arena *a)
{
    TextBuf b;
    textbuf_init(&b, a);
    textbuf_add(&b, "        {\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < f->n; i++)
        add_tensor(&b, &f->at[i]);
    textbuf_add(&b, "}");
    textbuf_bytes(&b, "       ", (8 - b.n % 8) % 8);
    TRY(textbuf_status(&b));
    uint64_t n = b.n - 8;
    if (n > MAX_HEADER)
        FAIL(ERR_FORMAT, "%s: header of %llu bytes, expected at most %d: use smaller shards",
             f->path, (unsigned long long)n, MAX_HEADER);
    for (int i = 0; i < 8; i++)
        b.at[i] = (char)(n >> (8 * i));
    f->header = b.at;
    f->n_header = b.n;
    return OK;
}

Status tensorfile_layout(TensorFile *f, Arena *a, const char *path, OutTensor *at, int64_t n)
{
    *f = (TensorFile){.path = path, .fd = -1, .n = n, .at = at};
    qsort(at, (size_t)n, sizeof *at, by_place);
    for (int64_t i = 0; i < n; i++) {
        CHECK(i == 0 || strcmp(at[i].name, at[i - 1].name) != 0);
        at[i].begin = f->n_data;
        f->n_data += tensor_bytes(&at[i].view);
    }
    return build_header(f, a);
}

/* --- the file --- */

Status tensorfile_create(TensorFile *f)
{
    CHECK(f->fd < 0);
    f->fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0)
        FAIL(ERR_IO, "%s: cannot be written: %s", f->path, strerror(errno));
    TRY(fdwrite_room(f->fd, f->path, f->n_header + f->n_data));
    return fdwrite_at(f->fd, f->path, f->header, f->n_header, 0);
}

Status tensorfile_reopen(TensorFile *f)
{
    FileMap map;
    TRY(filemap_open(&map, f->path));
    bool same = map.size == f->n_header + f->n_data &&
                memcmp(map.data, f->header, f->n_header) == 0;
    filemap_close(&map);
    if (!same)
        FAIL(ERR_FORMAT, "%s: is not the file that this run would write, expected the same "
             "tensors", f->path);
    f->fd = open(f->path, O_RDWR | O_CLOEXEC);
    if (f->fd < 0)
        FAIL(ERR_IO, "%s: cannot be written: %s", f->path, strerror(errno));
    return OK;
}

Status tensorfile_put(TensorFile *f, OutTensor *t, size_t offset, const void *data, size_t n)
{
    CHECK(f->fd >= 0 && t >= f->at && t < f->at + f->n);
    CHECK(offset == 0 || offset == t->came);
    CHECK(n <= tensor_bytes(&t->view) && offset <= tensor_bytes(&t->view) - n);
    t->came = offset;
    size_t place = f->n_header + t->begin + offset;
    TRY(fdwrite_at(f->fd, f->path, data, n, place));
    fdwrite_flush(f->fd, n, place);
    t->came = offset + n;
    return OK;
}

bool tensorfile_is_whole(const OutTensor *t)
{
    return t->came == tensor_bytes(&t->view);
}

Status tensorfile_sync(TensorFile *f)
{
    CHECK(f->fd >= 0);
    if (fsync(f->fd) != 0)
        FAIL(ERR_IO, "%s: writing failed: %s", f->path, strerror(errno));
    return OK;
}

void tensorfile_close(TensorFile *f)
{
    if (f->header && f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
