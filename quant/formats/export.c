/* export.c - fills OUT.partial tensor by tensor, notes layers, makes it OUT. */
#include "quant/formats/export.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/codes.h"
#include "kernels/filemap.h"
#include "kernels/half.h"
#include "kernels/halves.h"
#include "kernels/outfile.h"
#include "kernels/size.h"
#include "quant/formats/carry.h"
#include "quant/formats/config_write.h"
#include "quant/formats/journal.h"
#include "quant/formats/listing.h"
#include "quant/formats/narrow.h"
#include "quant/formats/outfolder.h"
#include "quant/formats/shards.h"

enum { PIECE = 1 << 20, CHUNK = 8192 };  // numbers that are copied at once, and by a thread
#define SHARD_BYTES ((size_t)5000000000)

struct Export {
    ExportOptions  o;
    const Packing *packing;
    Listing        listing;
    OutFolder      folder;
    Shards         shards;
    Journal        journal;
    bool           begun;    // OUT.partial holds nothing but this run's
    Arena          scratch;  // empty between calls
};

/* --- opening --- */

/* FNV-1a, 64 bits. */
static uint64_t add_print(uint64_t print, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        print = (print ^ p[i]) * 0x100000001b3u;
    return print;
}

/* Changes when a file of the source does: config's text, and of the files that hold
 * tensors size and time. */
static uint64_t source_print(const ModelInfo *info)
{
    uint64_t print = add_print(0xcbf29ce484222325u, info->config_text,
                               strlen(info->config_text));
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        char               path[4096];
        struct stat        st = {0};
        snprintf(path, sizeof path, "%s/%s", info->path, t->file);
        if (stat(path, &st) != 0)
            st.st_size = -1;
        print = add_print(print, t->name, strlen(t->name));
        print = add_print(print, &st.st_size, sizeof st.st_size);
        print = add_print(print, &st.st_mtim.tv_sec, sizeof st.st_mtim.tv_sec);
        print = add_print(print, &st.st_mtim.tv_nsec, sizeof st.st_mtim.tv_nsec);
    }
    return print;
}

static Status check_options(const ExportOptions *o)
{
    struct stat st;
    const char *path = o->source->info.path;
    CHECK(o->dtype == DTYPE_F32 || o->dtype == DTYPE_F16 || o->dtype == DTYPE_BF16);
    CHECK(o->plan && (unsigned)o->format < N_FORMATS);
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        FAIL(ERR_UNSUPPORTED, "%s: is no folder with a config.json and a tokenizer, which the "
             "new checkpoint needs: use the folder it was made from", path);
    return OK;
}

/* Tensors that were whole when the last layer was done are there; others come anew. */
static void take_over(Export *e)
{
    for (int64_t i = 0; i < e->shards.n; i++)
        e->shards.at[i].came = e->journal.whole[i] ? tensor_bytes(&e->shards.at[i].view) : 0;
}

/* Goes on with what OUT.partial holds. */
static Status reopen(Export *e)
{
    /* What a killed run was writing; config.json, so that what is here loads nowhere. */
    TRY(outfolder_clear(&e->folder, ".part"));
    TRY(outfolder_clear(&e->folder, ".json"));
    TRY(shards_reopen(&e->shards));
    take_over(e);
    return OK;
}

static Status open_partial(Export *e)
{
    const ExportOptions *o = &e->o;
    TRY(outfolder_open(&e->folder, &e->scratch));
    bool there = access(e->journal.path, F_OK) == 0;
    if (there && o->resume) {
        TRY(journal_read(&e->journal));
        return reopen(e);
    }
    if (there && !o->overwrite)
        FAIL(ERR_USAGE, "%s: holds layers of a run that was stopped: go on with --resume, or "
             "begin anew with --force", e->folder.partial);
    TRY(outfolder_clear(&e->folder, ""));
    e->begun = true;
    return shards_create(&e->shards);
}

static Status open_all(Export *e, Arena *a)
{
    const ExportOptions *o = &e->o;
    Journal             *j = &e->journal;
    CHECK(o->settings);
    TRY(check_options(o));
    TRY(outfolder_check(&e->folder, a, o->path, o->source->info.path, o->overwrite));
    TRY(listing_make(&e->listing, a, o));
    TRY(shards_layout(&e->shards, a, e->folder.partial, e->listing.tensors, e->listing.n,
                      o->shard_bytes ? o->shard_bytes : SHARD_BYTES));
    *j = (Journal){.settings = o->settings, .source = source_print(&o->source->info),
                   .n_tensors = e->shards.n};
    j->path = arena_printf(a, "%s/" JOURNAL_NAME, e->folder.partial);
    if (!j->path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    ARENA_NEW(j->whole, a, j->n_tensors);
    return open_partial(e);
}

Status export_check(Arena *a, const ExportOptions *o)
{
    OutFolder folder;
    Listing   listing;
    TRY(check_options(o));
    TRY(outfolder_check(&folder, a, o->path, o->source->info.path, o->overwrite));
    return listing_make(&listing, a, o);
}

Status export_open(Export **out, Arena *a, const ExportOptions *o)
{
    Export *e;
    *out = NULL;
    ARENA_NEW(e, a, 1);
    e->o = *o;
    e->packing = packing_of(o->format);
    Status s = open_all(e, a);
    if (s == OK)
        *out = e;
    else
        export_close(e);
    return s;
}

Dtype export_float_dtype(const ExportOptions *o, const ModelTensor *t)
{
    bool table = strcmp(t->name, layers_embed(o->source)->name) == 0;
    return o->own_dtypes && !t->linear && !table && t->view.dtype == DTYPE_F32 ? DTYPE_F32
                                                                              : o->dtype;
}

size_t export_matrix_bytes(const ExportOptions *o, const Scheme *s, int64_t n, int64_t k)
{
    Part   parts[PACKING_PARTS];
    Coded  m = {.name = "", .module = "", .scheme = *s, .n = n, .k = k};
    int    n_parts = packing_of(o->format)->parts(parts, &m, o);
    size_t bytes = 0;
    for (int i = 0; i < n_parts; i++)
        bytes += tensor_bytes(&parts[i].view);
    return bytes;
}

const char *export_note(const Export *e)
{
    return e->listing.note;
}

int64_t export_layers_done(const Export *e)
{
    return e->journal.layers;
}

Status export_kept(Export *e, void *rows, size_t row_bytes, float *state, size_t n)
{
    return journal_kept(&e->journal, rows, row_bytes, state, n);
}

/* --- tensors --- */

/* The tensor of that name, which must be one of the checkpoint's. */
static OutTensor *tensor_named(const Export *e, const char *name)
{
    OutTensor *t = shards_find(&e->shards, name);
    CHECK(t);
    return t;
}

static OutTensor *part_of(const Export *e, const Coded *m, const Part *part)
{
    char name[512];
    CHECK(snprintf(name, sizeof name, "%s%s", m->module, part->suffix) < (int)sizeof name);
    return tensor_named(e, name);
}

bool export_has(const Export *e, const char *name)
{
    Part         parts[PACKING_PARTS];
    const Coded *m = listing_find(&e->listing, name);
    if (!m)
        return tensorfile_is_whole(tensor_named(e, name));
    int n = e->packing->parts(parts, m, &e->o);
    for (int i = 0; i < n; i++)
        if (!tensorfile_is_whole(part_of(e, m, &parts[i])))
            return false;
    return true;
}

static Status put_part(Export *e, const Coded *m, int part, const Part *p, const RtnCodes *c)
{
    size_t n = tensor_bytes(&p->view);
    void  *data = arena_raw(&e->scratch, (int64_t)n, 1);
    if (!data)
        FAIL(ERR_MEMORY, "out of memory: %zu bytes for %s%s", n, m->module, p->suffix);
    TRY(e->packing->fill(data, &e->scratch, part, m, c, &e->o));
    return shards_put(&e->shards, part_of(e, m, p), 0, data, n);
}

/* What readers refuse is not written. */
static Status check_scales(const Coded *m, const RtnCodes *c)
{
    int64_t in_row = listing_groups(m);
    for (int64_t i = 0; i < m->n * in_row; i++)
        if (!(c->scales[i] <= CODES_MOST_SCALE))
            FAIL(ERR_RANGE, "%s: row %lld needs a scale of %g, at most %g can be decoded: leave "
                 "the matrix as it is (fp)", m->name, (long long)(i / in_row),
                 (double)c->scales[i], (double)CODES_MOST_SCALE);
    return OK;
}

Status export_codes(Export *e, const char *name, const RtnCodes *c)
{
    Part         parts[PACKING_PARTS];
    const Coded *m = listing_find(&e->listing, name);
    CHECK(m);
    TRY(check_scales(m, c));
    int n = e->packing->parts(parts, m, &e->o);
    for (int i = 0; i < n; i++) {
        ArenaMark mark = arena_mark(&e->scratch);
        Status    s = put_part(e, m, i, &parts[i], c);
        arena_rewind(&e->scratch, mark);
        TRY(s);
    }
    return OK;
}

static Status not_stored(const Export *e, const OutTensor *t, int64_t i, float x)
{
    int64_t cols = t->view.n_dims > 1 ? tensor_count(&t->view) / t->view.shape[0] : 1;
    bool    finite = (f32_bits(x) & 0x7f800000u) != 0x7f800000u;
    char    place[64];
    if (t->view.n_dims > 1)
        snprintf(place, sizeof place, "[%lld,%lld]", (long long)(i / cols),
                 (long long)(i % cols));
    else
        snprintf(place, sizeof place, "[%lld]", (long long)i);
    FAIL(ERR_RANGE, "%s: tensor %s%s is %g, expected a %s", e->o.source->info.path, t->name,
         place, (double)x, !finite ? "finite number" : t->view.dtype == DTYPE_F16
         ? "number that F16 holds (up to 65504): store floats as BF16 or F32"
         : "number that BF16 holds");
}

/* Numbers first .. first + n of t. buffer: room for a piece. */
static Status put_floats(Export *e, OutTensor *t, const float *x, int64_t first, int64_t n,
                         void *buffer)
{
    Dtype   d = t->view.dtype;
    int64_t bad = narrow_f32(buffer, d, x, n);
    if (bad < n)
        return not_stored(e, t, first + bad, x[bad]);
    return shards_put(&e->shards, t, (size_t)first * dtype_size(d), buffer,
                      (size_t)n * dtype_size(d));
}

Status export_floats(Export *e, const char *name, const float *x, int64_t first,
                     int64_t n_rows)
{
    OutTensor *t = tensor_named(e, name);
    ArenaMark  mark = arena_mark(&e->scratch);
    int64_t    cols = tensor_count(&t->view) / i64_max(t->view.shape[0], 1), done = 0;
    float     *buffer;
    Status     s = OK;
    CHECK(first >= 0 && n_rows >= 0 && n_rows <= t->view.shape[0] - first);
    ARENA_NEW(buffer, &e->scratch, i64_min(n_rows * cols, PIECE));
    for (int64_t n; done < n_rows * cols; done += n) {
        n = i64_min(n_rows * cols - done, PIECE);
        GUARD(put_floats(e, t, x + done, first * cols + done, n, buffer));
    }
out:
    arena_rewind(&e->scratch, mark);
    return s;
}

static const ModelTensor *source_named(const Export *e, const char *name)
{
    const ModelInfo *info = &e->o.source->info;
    for (int64_t i = 0; i < info->n_tensors; i++)
        if (strcmp(info->tensors[i].name, name) == 0)
            return &info->tensors[i];
    return NULL;
}

/* Index of the first number of a piece that is not finite as it is, or as it will be stored;
 * n where all are. out: the piece of dtype d, or NULL where that is `from`'s. */
static int64_t convert_piece(void *out, Dtype d, Dtype from, const char *data, int64_t n)
{
    int64_t bad = n;
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (int64_t at = 0; at < n; at += CHUNK) {
        float   x[CHUNK];
        int64_t some = i64_min(CHUNK, n - at);
        bool    good = halves_to_f32(x, from, data + (size_t)at * dtype_size(from), some);
        if (out)
            good &= halves_from_f32((char *)out + (size_t)at * dtype_size(d), d, x, some);
        if (!good)
            bad = i64_min(bad, at);
    }
    return bad;
}

/* The chunk is known: look for the number in it. */
static Status say_bad(Export *e, const OutTensor *t, const Tensor *from, int64_t i)
{
    float    x;
    uint32_t stored;
    for (;; i++) {
        const char *at = (const char *)from->data + (size_t)i * dtype_size(from->dtype);
        if (!halves_to_f32(&x, from->dtype, at, 1) ||
            !halves_from_f32(&stored, t->view.dtype, &x, 1))
            return not_stored(e, t, i, x);
    }
}

/* Numbers first .. first + n: from where the file is mapped to where they go where the dtype
 * stays. */
static Status copy_piece(Export *e, OutTensor *t, const Tensor *from, int64_t first, int64_t n,
                         void *buffer)
{
    Dtype       d = t->view.dtype;
    size_t      size = dtype_size(from->dtype);
    const char *data = (const char *)from->data + (size_t)first * size;
    bool        same = from->dtype == d;
    filemap_expect(data, (size_t)n * size);
    int64_t bad = convert_piece(same ? NULL : buffer, d, from->dtype, data, n);
    if (bad < n)
        return say_bad(e, t, from, first + bad);
    Status s = shards_put(&e->shards, t, (size_t)first * dtype_size(d), same ? data : buffer,
                          (size_t)n * dtype_size(d));
    filemap_release(data, (size_t)n * size);
    return s;
}

Status export_copy(Export *e, const char *name)
{
    OutTensor         *t = tensor_named(e, name);
    const ModelTensor *from = source_named(e, name);
    ArenaMark          mark = arena_mark(&e->scratch);
    int64_t            count = tensor_count(&t->view), n;
    float             *buffer;
    Status             s = OK;
    CHECK(from && !from->packed);
    ARENA_NEW(buffer, &e->scratch, i64_min(count, PIECE));
    for (int64_t first = 0; first < count; first += n) {
        n = i64_min(count - first, PIECE);
        GUARD(copy_piece(e, t, &from->view, first, n, buffer));
    }
out:
    arena_rewind(&e->scratch, mark);
    return s;
}

/* --- layers done, and all done --- */

Status export_layer_done(Export *e, int64_t layer, const void *rows, size_t row_bytes,
                         const float *state, size_t n)
{
    Journal *j = &e->journal;
    CHECK(layer >= j->layers);
    TRY(shards_sync(&e->shards));
    for (int64_t i = 0; i < j->n_tensors; i++)
        j->whole[i] = tensorfile_is_whole(&e->shards.at[i]);
    int64_t before = j->layers;
    j->layers = layer + 1;
    Status s = journal_write(j, &e->scratch, rows, row_bytes, state, n);
    if (s != OK)
        j->layers = before;  // what the file on disk still says
    return s;
}

/* Both spellings of the dtype: transformers 4 and vLLM read the old one, 5 the new one. */
static Status write_config(Export *e)
{
    const ExportOptions *o = &e->o;
    TextBuf              quantized, text;
    textbuf_init(&quantized, &e->scratch);
    textbuf_init(&text, &e->scratch);
    bool coded = e->listing.n_coded > 0;  // else a checkpoint of floats like any other
    if (coded)
        e->packing->config(&quantized, &e->listing, o);
    TRY(textbuf_status(&quantized));
    ConfigEdit edits[] = {
        {"dtype", config_dtype(o->dtype), true},
        {"torch_dtype", config_dtype(o->dtype), true},
        {"quantization_config", coded ? quantized.at : NULL, true},
        {"tie_word_embeddings", "false", true},
    };
    int         n = sizeof edits / sizeof *edits - !o->untie;
    const char *name = arena_printf(&e->scratch, "%s/config.json", o->source->info.path);
    const char *path = arena_printf(&e->scratch, "%s/config.json", e->folder.partial);
    if (!name || !path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    TRY(config_write(&text, &e->scratch, name, o->source->info.config_text, edits, n));
    return outfile_save(&e->scratch, path, text.at, text.n);
}

static Status write_config_file(Export *e)
{
    TextBuf text;
    if (!e->packing->config_file)
        return OK;
    textbuf_init(&text, &e->scratch);
    e->packing->config_file_text(&text, &e->listing, &e->o);
    TRY(textbuf_status(&text));
    const char *path = arena_printf(&e->scratch, "%s/%s", e->folder.partial,
                                    e->packing->config_file);
    if (!path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    return outfile_save(&e->scratch, path, text.at, text.n);
}

static Status finish(Export *e)
{
    const char *partial = e->folder.partial;
    TRY(shards_sync(&e->shards));
    TRY(shards_write_index(&e->shards, &e->scratch, partial));
    TRY(carry_files(&e->scratch, e->o.source->info.path, partial));
    TRY(write_config_file(e));
    TRY(write_config(e));
    return outfolder_commit(&e->folder);
}

Status export_commit(Export *e, size_t *bytes)
{
    CHECK(e->folder.open && !shards_missing(&e->shards));
    ArenaMark mark = arena_mark(&e->scratch);
    Status    s = finish(e);
    if (s == OK) {
        /* The journal goes last: a run killed before this line has lost nothing. */
        char path[4096];
        snprintf(path, sizeof path, "%s/" JOURNAL_NAME, e->folder.target);
        unlink(path);
        *bytes = shards_bytes(&e->shards);
    }
    arena_rewind(&e->scratch, mark);
    return s;
}

void export_close(Export *e)
{
    if (!e)
        return;
    shards_close(&e->shards);
    outfolder_close(&e->folder, !e->begun || e->journal.layers > 0);
    arena_close(&e->scratch);
}
