/* score.c - batches of sequences through the model, then log-probabilities of
 * the tokens asked for. Only those rows meet the head: its matrix is the widest. */
#include "analysis/score.h"

#include <math.h>

#include "analysis/model/forward.h"
#include "kernels/size.h"

enum {
    PASS_BYTES = 128 << 20,     // of the buffers of a pass
    STREAM_BYTES = 64 << 20,    // of hidden states that wait for the next layer
    STREAM_TOKENS = 16384
};

int64_t score_tokens(const Scorer *sc, bool shared)
{
    const Model *m = sc->model;
    int64_t      row = m->config.hidden * (int64_t)sizeof(float);
    if (sc->batch_tokens)
        return sc->batch_tokens;
    if (m->streamed && !shared && !forward_carries(&m->config))
        return i64_min(STREAM_TOKENS, i64_max(STREAM_BYTES / row, 1));
    if (!backend_on_host(m->backend))
        return SCORE_BATCH_TOKENS;
    return i64_min(SCORE_BATCH_TOKENS, i64_max(forward_rows(&m->config, PASS_BYTES), 1));
}

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

/* What comes after the batch that b was; {0} before the first. */
static Status batch_next(ScoreBatch *b, Arena *a, const Sequences *s, int64_t n_rows)
{
    int64_t first = b->end, end = sequences_end(s, first, n_rows);
    *b = (ScoreBatch){.s = s, .first = first, .end = end, .row0 = s->start[first],
                      .T = s->start[end] - s->start[first], .before = b->before + b->n};
    TRY(sequences_batch(&b->batch, a, s, first, end));
    ARENA_NEW(b->rows, a, b->T);
    ARENA_NEW(b->targets, a, b->T);
    for (int64_t t = 0; t < b->T; t++)
        if (s->targets[b->row0 + t] >= 0) {
            b->rows[b->n] = (int32_t)t;
            b->targets[b->n++] = s->targets[b->row0 + t];
        }
    return OK;
}

static Status forward(Scorer *sc, Tensor *x, const ScoreBatch *b)
{
    Model *m = sc->model;
    TRY(backend_tensor(m->backend, x, 2, (int64_t[]){b->T, m->config.hidden}));
    if (sc->probe) {
        sc->probe->spans = b->s->spans ? b->s->spans + b->first : NULL;
        sc->probe->share_rows = b->s->share_rows ? b->s->share_rows + b->row0 : NULL;
    }
    return model_forward(m, x, b->s->ids + b->row0, &b->batch, sc->quant, sc->probe, NULL);
}

/* Gathers the rows: a look-up in the table x. */
Status score_read(Scorer *sc, Tensor *hidden, const ScoreBatch *b)
{
    Backend  *be = sc->model->backend;
    Tensor    x;
    ArenaMark mark = backend_mark(be);
    Status    s = forward(sc, &x, b);
    if (s == OK && b->n > 0)
        s = op_embed(be, hidden, &x, b->rows);
    backend_rewind(be, mark);
    return s;
}

/* Scores what was picked, n > 0 rows. */
static Status score_picked(Scorer *sc, const Tensor *picked, int64_t n, const int32_t *targets,
                           float *logprob, int32_t *best)
{
    TRY(model_head(sc->model));
    TRY(op_score(sc->model->backend, picked, &sc->model->head, targets, logprob, best));
    for (int64_t i = 0; i < n; i++)
        sc->n_nan += isnan(logprob[i]) != 0;
    return OK;
}

Status score_rows(Scorer *sc, const Tensor *x, int64_t n, const int32_t *rows,
                  const int32_t *targets, float *logprob, int32_t *best)
{
    Model *m = sc->model;
    Tensor picked;
    if (n == 0)
        return OK;
    TRY(backend_tensor(m->backend, &picked, 2, (int64_t[]){n, m->config.hidden}));
    TRY(op_embed(m->backend, &picked, x, rows));
    return score_picked(sc, &picked, n, targets, logprob, best);
}

/* What was found of a batch's n rows. */
typedef struct {
    float   *logprob;
    int32_t *best;
} Found;

static Status score_batch(Scorer *sc, Found *f, const ScoreBatch *b)
{
    Model *m = sc->model;
    Tensor hidden;
    TRY(backend_tensor(m->backend, &hidden, 2, (int64_t[]){b->n, m->config.hidden}));
    TRY(score_read(sc, &hidden, b));
    if (b->n == 0)
        return OK;
    TRY(score_picked(sc, &hidden, b->n, b->targets, f->logprob, f->best));
    return sc->see ? sc->see(sc->see_context, b, &hidden) : OK;
}

static void scatter(const ScoreBatch *b, const Found *f, float *logprob, int32_t *best)
{
    for (int64_t t = b->row0; t < b->row0 + b->T; t++) {
        logprob[t] = 0;
        best[t] = -1;
    }
    for (int64_t i = 0; i < b->n; i++) {
        logprob[b->row0 + b->rows[i]] = f->logprob[i];
        best[b->row0 + b->rows[i]] = f->best[i];
    }
}

static Status run_batch(Scorer *sc, Arena *a, const ScoreBatch *b, float *logprob,
                        int32_t *best)
{
    Found f;
    ARENA_NEW(f.logprob, a, b->n);
    ARENA_NEW(f.best, a, b->n);
    ArenaMark mark = backend_mark(sc->model->backend);
    Status    s = score_batch(sc, &f, b);
    backend_rewind(sc->model->backend, mark);
    TRY(s);
    scatter(b, &f, logprob, best);
    sc->done += b->T;
    progress_step(sc->progress, sc->done, sc->total, sc->what);
    return OK;
}

Status score_run(Scorer *sc, const Sequences *s, float *logprob, int32_t *best)
{
    Arena   a = {0};
    Status  status = OK;
    int64_t budget = score_tokens(sc, false);
    for (ScoreBatch b = {0}; status == OK && b.end < s->n;) {
        ArenaMark mark = arena_mark(&a);
        status = batch_next(&b, &a, s, budget);
        if (status == OK)
            status = run_batch(sc, &a, &b, logprob, best);
        arena_rewind(&a, mark);
    }
    arena_close(&a);
    return status;
}
