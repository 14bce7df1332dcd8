/* diffllama.c - moves heads, rows and columns, a piece at a time. */
#include "quant/formats/diffllama.h"

#include <string.h>

#include "kernels/size.h"
#include "quant/formats/narrow.h"

enum { PIECE = 1 << 20 };  // numbers read at once, about

#define ATTN ".self_attn."
#define SUBLN ATTN "subln.weight"

/* --- what becomes of a tensor --- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static const ModelTensor *find_tensor(const ModelInfo *info, const char *name)
{
    for (int64_t i = 0; i < info->n_tensors; i++)
        if (strcmp(info->tensors[i].name, name) == 0)
            return &info->tensors[i];
    return NULL;
}

static const struct {
    const char *end, *new_end;
    Move        move;
} RULES[] = {
    {ATTN "q_proj.weight", ATTN "q_proj.weight", MOVE_HEADS_AND_ROWS},
    {ATTN "k_proj.weight", ATTN "k_proj.weight", MOVE_HEADS_AND_ROWS},
    {ATTN "v_proj.weight", ATTN "v_proj.weight", MOVE_HEADS},
    {ATTN "out_proj.weight", ATTN "o_proj.weight", MOVE_SCALED},
};

static Status list_tensor(Moved *out, Arena *a, const ModelInfo *info, const ModelTensor *t)
{
    *out = (Moved){.from = t, .name = t->name};
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        if (!ends_with(t->name, RULES[i].end))
            continue;
        int         n = (int)(strlen(t->name) - strlen(RULES[i].end));
        const char *scale = arena_printf(a, "%.*s" SUBLN, n, t->name);
        out->move = RULES[i].move;
        out->name = arena_printf(a, "%.*s%s", n, t->name, RULES[i].new_end);
        if (!out->name || !scale)
            FAIL(ERR_MEMORY, "out of memory: a tensor's name");
        out->scale = out->move == MOVE_SCALED ? find_tensor(info, scale) : NULL;
        CHECK(out->move != MOVE_SCALED || out->scale);
    }
    return OK;
}

Status diffllama_list(Moved *out, int64_t *n, Arena *a, const Layers *l)
{
    const ModelInfo *info = &l->info;
    *n = 0;
    for (int64_t i = 0; i < info->n_tensors; i++)
        if (!ends_with(info->tensors[i].name, SUBLN))
            TRY(list_tensor(&out[(*n)++], a, info, &info->tensors[i]));
    return OK;
}

/* All of a small tensor. */
static Status read_vector(float **out, Arena *a, Layers *l, const ModelTensor *t)
{
    ARENA_NEW(*out, a, tensor_count(&t->view));
    return layers_read_tensor(*out, l, t);
}

Status diffllama_unscaled(bool *out, Arena *scratch, Layers *l)
{
    *out = true;
    for (int64_t i = 0; i < l->info.n_tensors; i++) {
        const ModelTensor *t = &l->info.tensors[i];
        float             *w;
        if (!ends_with(t->name, SUBLN))
            continue;
        TRY(read_vector(&w, scratch, l, t));
        for (int64_t j = 0; j < tensor_count(&t->view); j++)
            *out &= w[j] == 1;
    }
    return OK;
}

/* --- writing --- */

typedef struct {
    Shards      *shards;
    Layers      *layers;
    const Moved *moved;
    OutTensor   *to;
    int64_t      cols;     // numbers in a row
    float       *x, *y;    // [rows of a piece, cols] as read, as moved
    float       *narrow;   // the same in the dtype of the file
    float       *scale;    // MOVE_SCALED: [value_dim]
} Writer;

static Status does_not_fit(const Writer *w, int64_t i, float x)
{
    Dtype d = w->to->view.dtype;
    FAIL(ERR_RANGE, "%s: tensor %s[%lld,%lld] is %g, which %s does not hold%s",
         w->layers->info.path, w->to->name, (long long)(i / w->cols), (long long)(i % w->cols),
         (double)x, dtype_name(d), d == DTYPE_F16 ? " (up to 65504): store BF16 or F32" : "");
}

/* Rows first .. first + n. */
static Status put_rows(const Writer *w, const float *x, int64_t first, int64_t n)
{
    Dtype   d = w->to->view.dtype;
    int64_t count = n * w->cols, bad = narrow_f32(w->narrow, d, x, count);
    if (bad < count)
        return does_not_fit(w, first * w->cols + bad, x[bad]);
    return shards_put(w->shards, w->to, (size_t)(first * w->cols) * dtype_size(d), w->narrow,
                      (size_t)count * dtype_size(d));
}

/* Even places first, then the odd ones: where place i of n comes from. */
static int64_t even_then_odd(int64_t i, int64_t n)
{
    return i < n / 2 ? 2 * i : 2 * (i - n / 2) + 1;
}

static Status write_head(const Writer *w, int64_t head, int64_t n_heads, int64_t d)
{
    TRY(layers_read_rows(w->x, w->layers, w->moved->from, even_then_odd(head, n_heads) * d, d));
    if (w->moved->move == MOVE_HEADS)
        return put_rows(w, w->x, head * d, d);
    for (int64_t i = 0; i < d; i++)
        memcpy(w->y + i * w->cols, w->x + even_then_odd(i, d) * w->cols,
               (size_t)w->cols * sizeof *w->y);
    return put_rows(w, w->y, head * d, d);
}

static Status write_heads(const Writer *w)
{
    int64_t d = w->layers->info.config.head_dim, n = w->to->view.shape[0] / d;
    for (int64_t head = 0; head < n; head++)
        TRY(write_head(w, head, n, d));
    return OK;
}

/* Columns are those of one head after another, and all heads share subln's weights. */
static void scale_columns(const Writer *w, int64_t n_rows)
{
    int64_t width = w->layers->info.config.value_dim;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < w->cols; c++)
            w->x[r * w->cols + c] *= w->scale[c % width];
}

static Status write_rows(const Writer *w, int64_t in_piece)
{
    int64_t rows = w->to->view.shape[0], n;
    for (int64_t first = 0; first < rows; first += n) {
        n = i64_min(rows - first, in_piece);
        TRY(layers_read_rows(w->x, w->layers, w->moved->from, first, n));
        if (w->moved->move == MOVE_SCALED)
            scale_columns(w, n);
        TRY(put_rows(w, w->x, first, n));
    }
    return OK;
}

static Status write_vector(const Writer *w)
{
    TRY(layers_read_tensor(w->x, w->layers, w->moved->from));
    return put_rows(w, w->x, 0, 1);
}

Status diffllama_write(Shards *s, Arena *scratch, Layers *l, const Moved *m)
{
    Writer w = {.shards = s, .layers = l, .moved = m, .to = shards_find(s, m->name)};
    bool   vector = m->from->view.n_dims == 1;
    CHECK(w.to);
    w.cols = m->from->view.shape[vector ? 0 : 1];
    int64_t in_piece = vector ? 1 : i64_max(PIECE / w.cols, l->info.config.head_dim);
    ARENA_NEW(w.x, scratch, in_piece * w.cols);
    ARENA_NEW(w.y, scratch, in_piece * w.cols);
    ARENA_NEW(w.narrow, scratch, in_piece * w.cols);
    if (m->scale)
        TRY(read_vector(&w.scale, scratch, l, m->scale));
    if (vector)
        return write_vector(&w);
    return m->move == MOVE_HEADS || m->move == MOVE_HEADS_AND_ROWS ? write_heads(&w)
                                                                   : write_rows(&w, in_piece);
}
