/* score.c - batches of sequences through the model, then log-probabilities of
 * the tokens asked for. Only those rows meet the head: its matrix is the widest. */
#include "analysis/score.h"

#include "kernels/size.h"

int64_t sequences_longest(const Sequences *s)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < s->n; i++)
        longest = i64_max(longest, s->start[i + 1] - s->start[i]);
    return longest;
}

int64_t sequences_end(const Sequences *s, int64_t first, int64_t n_rows)
{
    int64_t end = first + 1;
    while (end < s->n && s->start[end + 1] - s->start[first] <= n_rows)
        end++;
    return end;
}

Status sequences_batch(Batch *out, Arena *a, const Sequences *s, int64_t first, int64_t end)
{
    int64_t  n = end - first, T = s->start[end] - s->start[first];
    int32_t *start;
    int64_t *number;
    if (T > INT32_MAX)
        FAIL(ERR_RANGE, "a window of %lld tokens: at most %d are possible", (long long)T,
             INT32_MAX);
    ARENA_NEW(start, a, n + 1);
    ARENA_NEW(number, a, n);
    for (int64_t i = 0; i <= n; i++)
        start[i] = (int32_t)(s->start[first + i] - s->start[first]);
    for (int64_t i = 0; i < n; i++)
        number[i] = first + i;
    *out = (Batch){.n_sequences = n, .start = start, .number = number};
    return OK;
}

/* One batch: sequences first .. end, rows row0 .. row0 + T. */
typedef struct {
    const Sequences *s;
    int64_t          first, end;
    int64_t          row0, T;
    Batch            batch;
    int64_t          n_rows;     // with a target
    int32_t         *rows;       // [n_rows] counted from row0
    int32_t         *targets;    // [n_rows]
    float           *logprob;    // [n_rows]
    int32_t         *best;       // [n_rows]
} Slice;

static Status slice_init(Slice *b, Arena *a, const Sequences *s, int64_t first, int64_t end)
{
    *b = (Slice){.s = s, .first = first, .end = end, .row0 = s->start[first]};
    b->T = s->start[end] - b->row0;
    TRY(sequences_batch(&b->batch, a, s, first, end));
    ARENA_NEW(b->rows, a, b->T);
    ARENA_NEW(b->targets, a, b->T);
    ARENA_NEW(b->logprob, a, b->T);
    ARENA_NEW(b->best, a, b->T);
    for (int64_t t = 0; t < b->T; t++)
        if (s->targets[b->row0 + t] >= 0) {
            b->rows[b->n_rows] = (int32_t)t;
            b->targets[b->n_rows++] = s->targets[b->row0 + t];
        }
    return OK;
}

static Status forward(Scorer *sc, Tensor *x, const Slice *b)
{
    Model *m = sc->model;
    TRY(backend_tensor(m->backend, x, 2, (int64_t[]){b->T, m->config.hidden}));
    if (sc->probe) {
        sc->probe->spans = b->s->spans ? b->s->spans + b->first : NULL;
        sc->probe->share_rows = b->s->share_rows ? b->s->share_rows + b->row0 : NULL;
    }
    return model_forward(m, x, b->s->ids + b->row0, &b->batch, sc->quant, sc->probe, NULL);
}

/* Gathers the rows (a look-up in the table x) and scores them. */
Status score_rows(Scorer *sc, const Tensor *x, int64_t n, const int32_t *rows,
                  const int32_t *targets, float *logprob, int32_t *best)
{
    Model *m = sc->model;
    Tensor picked;
    if (n == 0)
        return OK;
    TRY(backend_tensor(m->backend, &picked, 2, (int64_t[]){n, m->config.hidden}));
    TRY(op_embed(m->backend, &picked, x, rows));
    return op_score(m->backend, &picked, &m->head, targets, logprob, best);
}

static Status run_slice(Scorer *sc, Slice *b)
{
    Tensor    x;
    ArenaMark mark = backend_mark(sc->model->backend);
    Status    s = forward(sc, &x, b);
    if (s == OK)
        s = score_rows(sc, &x, b->n_rows, b->rows, b->targets, b->logprob, b->best);
    backend_rewind(sc->model->backend, mark);
    return s;
}

static void scatter(const Slice *b, float *logprob, int32_t *best)
{
    for (int64_t t = b->row0; t < b->row0 + b->T; t++) {
        logprob[t] = 0;
        best[t] = -1;
    }
    for (int64_t i = 0; i < b->n_rows; i++) {
        logprob[b->row0 + b->rows[i]] = b->logprob[i];
        best[b->row0 + b->rows[i]] = b->best[i];
    }
}

Status score_run(Scorer *sc, const Sequences *s, float *logprob, int32_t *best)
{
    Arena   a = {0};
    Status  status = OK;
    int64_t budget = sc->batch_tokens ? sc->batch_tokens : SCORE_BATCH_TOKENS;
    for (int64_t first = 0, end; status == OK && first < s->n; first = end) {
        Slice     b;
        ArenaMark mark = arena_mark(&a);
        end = sequences_end(s, first, budget);
        status = slice_init(&b, &a, s, first, end);
        if (status == OK)
            status = run_slice(sc, &b);
        if (status == OK) {
            scatter(&b, logprob, best);
            sc->done += b.T;
            progress_step(sc->progress, sc->done, sc->total, sc->what);
        }
        arena_rewind(&a, mark);
    }
    arena_close(&a);
    return status;
}
