/* forward_stream.c - the pass where weights are streamed: a layer is packed, all sequences of
 * the batch go through it, a few at a time, then it makes room for the next. Between layers
 * their hidden states wait in `out`.
 * Every sequence meets the same operations as in a whole batch, and records are of a layer: so
 * the bits are the same. */
#include "analysis/model/forward_mix.h"

#include <string.h>

#include "analysis/model/load.h"
#include "kernels/size.h"

enum { PART_BYTES = 32 << 20 };   // of a part's buffers: the weights at work take more

/* A pass over some sequences of a batch. */
typedef struct {
    Pass      pass;
    Batch     batch;
    Probe     probe;
    MapWindow window;
} Part;

/* Sequences first .. end, which p gets for its own. */
static Status part_init(Part *part, const Pass *whole, const Tensor *out, int64_t first,
                        int64_t end)
{
    const Batch *b = whole->batch;
    int64_t      n = end - first, row = b->start[first], T = b->start[end] - row;
    int32_t     *start;
    ARENA_NEW(start, &whole->m->backend->arena, n + 1);
    for (int64_t i = 0; i <= n; i++)
        start[i] = b->start[first + i] - b->start[first];
    part->batch = (Batch){.n_sequences = n, .start = start, .number = b->number + first};
    part->pass = (Pass){.m = whole->m, .quant = whole->quant, .batch = &part->batch};
    part->pass.x = tensor_2d(DTYPE_F32, (float *)out->data + row * out->shape[1], T,
                             out->shape[1]);
    part->pass.probe = whole->probe ? &part->probe : NULL;
    if (!whole->probe)
        return OK;
    part->probe = *whole->probe;
    if (part->probe.spans)
        part->probe.spans += first;
    if (part->probe.share_rows)
        part->probe.share_rows += row;
    if (part->probe.window) {
        part->window = *part->probe.window;
        part->window.sequence -= first;
        if (part->window.sequence < 0 || part->window.sequence >= n)
            part->probe.window = NULL;
        else
            part->probe.window = &part->window;
    }
    return OK;
}

/* Have both as many sequences, each as long? Then one's tables serve the other. */
static bool alike(const Batch *a, const Batch *b)
{
    return a->n_sequences == b->n_sequences &&
           memcmp(a->start, b->start, (size_t)(a->n_sequences + 1) * sizeof *a->start) == 0;
}

/* What is done to a part: layer -1 looks up embeddings. */
typedef struct {
    const Pass    *whole;
    Tensor        *out;
    const int32_t *ids;
    int64_t        layer;
    Pass           made;    // buffers and tables for a batch like made.batch
} Stream;

static Status run_part(Stream *s, int64_t first, int64_t end)
{
    Part          part;
    const Tensor *x;
    TRY(part_init(&part, s->whole, s->out, first, end));
    Pass *p = &part.pass;
    if (alike(&part.batch, s->made.batch)) {
        Pass own = part.pass;
        *p = s->made;
        p->batch = own.batch;
        p->probe = own.probe;
        p->x = own.x;
    } else {
        TRY(forward_open(p));
    }
    if (s->layer < 0)
        return forward_embed(p, s->ids + s->whole->batch->start[first]);
    return forward_layer(p, s->layer, TAP_HIDDEN, &x);
}

/* At least one sequence, and no row that is left alone: op_linear would go another way. */
static int64_t part_end(const Stream *s, int64_t first)
{
    const Batch *b = s->whole->batch;
    const Model *m = s->whole->m;
    int64_t      end = first + 1, n = b->n_sequences, most = m->loader->part_rows;
    if (!most)
        most = forward_rows(&m->config, PART_BYTES);
    while (end < n && (b->start[end + 1] - b->start[first] <= most ||
                       b->start[end] - b->start[first] == 1 || b->start[n] - b->start[end] == 1))
        end++;
    return end;
}

static Status run_parts(Stream *s)
{
    Backend *be = s->whole->m->backend;
    for (int64_t first = 0, end; first < s->whole->batch->n_sequences; first = end) {
        ArenaMark mark = backend_mark(be);
        end = part_end(s, first);
        Status status = run_part(s, first, end);
        backend_rewind(be, mark);
        TRY(status);
    }
    return OK;
}

/* The layer's weights go with the backend's memory. */
static Status run_layer(Stream *s)
{
    Model    *m = s->whole->m;
    ArenaMark mark = backend_mark(m->backend);
    Status    status = s->layer < 0 ? OK : load_layer(m, s->layer);
    if (status == OK)
        status = run_parts(s);
    backend_rewind(m->backend, mark);
    if (s->layer >= 0)
        load_forget(m, s->layer);
    return status;
}

Status forward_streamed(Pass *p, Tensor *out, const int32_t *ids)
{
    Stream s = {.whole = p, .out = out, .ids = ids};
    Part   first;
    s.made.batch = p->batch;
    TRY(part_init(&first, p, out, 0, part_end(&s, 0)));
    TRY(forward_open(&first.pass));
    s.made = first.pass;
    for (s.layer = -1; s.layer < p->m->config.n_layers; s.layer++) {
        TRY(run_layer(&s));
        if (s.layer >= 0 && p->probe && p->probe->on_hidden)
            TRY(p->probe->on_hidden(p->probe->on_hidden_context, s.layer, out));
    }
    return OK;
}
