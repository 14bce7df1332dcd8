/* score.h - runs token sequences through a model, batch after batch, and scores
 * the tokens that were to come. What perplexity and retrieval have in common. */
#ifndef DQ_SCORE_H
#define DQ_SCORE_H

#include "analysis/probe.h"
#include "analysis/progress.h"

/* Sequences laid end to end. Sequence i has rows start[i] .. start[i+1]. */
typedef struct {
    int64_t        n;
    const int64_t *start;      // [n + 1], start[0] == 0
    const int32_t *ids;        // [start[n]] what the model reads
    const int32_t *targets;    // [start[n]] what row t must predict; -1: not scored
    const Span    *spans;      // [n] marked key positions, or NULL
    const uint8_t *share_rows; // [start[n]] rows whose attention a probe shares out, or NULL
} Sequences;

/* Most rows of a forward pass: enough to fill the products. */
enum { SCORE_BATCH_TOKENS = 4096 };

/* Sequences first .. end in one forward pass, and those of their rows that have a target. */
typedef struct {
    const Sequences *s;
    int64_t          first, end;
    int64_t          row0, T;      // rows row0 .. row0 + T of all
    Batch            batch;
    int64_t          before;       // rows with a target in the batches before
    int64_t          n;            // with a target
    int32_t         *rows;         // [n] counted from row0
    int32_t         *targets;      // [n]
} ScoreBatch;

typedef struct {
    Model          *model;
    RunQuant      quant;
    Probe          *probe;         // records what passes, or NULL
    int64_t         batch_tokens;  // 0: as memory has it (score_tokens); a longer sequence goes
                                   //   alone
    const Progress *progress;      // or NULL
    const char     *what;          // for progress
    int64_t         done, total;   // tokens; done grows by each batch
    int64_t         n_nan;         // grows: log-probabilities that were NaN
    /* Sees every batch of score_run that has a target, once it is scored: hidden [n,C] of
     * its rows, which go when this returns. Or NULL. */
    Status        (*see)(void *context, const ScoreBatch *b, const Tensor *hidden);
    void           *see_context;
} Scorer;

/* Rows that go through the model at once. On the CPU as many as take little memory beside the
 * weights, at most SCORE_BATCH_TOKENS; more where weights are streamed, as each batch packs
 * them anew. shared: sequences have rows in common (model_forward_branches). */
int64_t score_tokens(const Scorer *sc, bool shared);

int64_t sequences_longest(const Sequences *s);
/* End of the batch that begins with sequence `first`: as many as have n_rows rows
 * together, but one at least. */
int64_t sequences_end(const Sequences *s, int64_t first, int64_t n_rows);
/* Sequences first .. end as a batch; its tables come from a. ERR_RANGE where they have
 * more rows than a batch can. */
MUST_USE Status sequences_batch(Batch *out, Arena *a, const Sequences *s, int64_t first,
                                int64_t end);

/* The model's hidden states of a batch's n rows, in hidden [n,C] of its backend. */
MUST_USE Status score_read(Scorer *sc, Tensor *hidden, const ScoreBatch *b);

/* Scores rows of what a forward pass gave: x [T,C], logprob[i] = log p(targets[i]) after
 * row rows[i], best[i] the likeliest token. A row may come more than once. */
MUST_USE Status score_rows(Scorer *sc, const Tensor *x, int64_t n, const int32_t *rows,
                           const int32_t *targets, float *logprob, int32_t *best);

/* logprob[t] = log p(targets[t]), best[t] = the likeliest token, for every row
 * with a target; other rows become 0 and -1. logprob, best [start[n]] host
 * memory. With no targets at all only the probe has use of the pass. The
 * figures do not depend on batch_tokens nor on the number of threads. */
MUST_USE Status score_run(Scorer *sc, const Sequences *s, float *logprob, int32_t *best);

#endif
