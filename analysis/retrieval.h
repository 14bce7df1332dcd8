/* retrieval.h - exact-match questions from a JSONL file, a line an episode:
 *   {"id": text, "n": needles, "context": text, "answer": text,
 *    "span": [start, end]}     of the answer in the context, in code points
 * and, where an answer has parts that are told and not asked (the words between two
 * numbers), "given": [[start, end]...] of the answer, in code points: tokens that begin
 * there are read but not scored.
 *
 * Tokens as lm-evaluation-harness makes them: spaces that end the context move
 * to the answer; answer tokens = encode(context + answer)[len(encode(context)):].
 * BOS in front by the rule of windows.h. An episode is correct when greedy
 * decoding would write the answer's tokens: one forward pass tells, because
 * greedy decoding repeats the answer exactly when each of its tokens is the
 * first choice after the ones before it.
 * A context that is too long loses tokens on its left (never BOS). */
#ifndef DQ_RETRIEVAL_H
#define DQ_RETRIEVAL_H

#include "analysis/windows.h"

/* Episodes with one number of needles: a row of the accuracy table. */
typedef struct {
    const char    *name;       // file's stem and needles: "retrieval-n4"
    int64_t        needles;
    int64_t        n;          // episodes
    const int64_t *items;      // [n] their numbers within the file
    int64_t        n_truncated;
} RetrievalTask;

typedef struct {
    const char        *path;
    int64_t            n;            // episodes, in the file's order
    const char *const *ids;          // [n]
    const int64_t     *needles;      // [n]
    const uint8_t     *truncated;    // [n]
    Sequences          seq;          // one an episode; targets on the answer only
    int64_t            n_tasks;
    RetrievalTask     *tasks;        // by rising needles
} Retrieval;

typedef struct {
    int64_t n, n_correct;
    double  accuracy;
    double  error;        // standard error: sample stddev / sqrt(n); NaN for n == 1
} TaskScore;

/* context: most tokens of a sequence, BOS included. Errors name file and line:
 * ERR_FORMAT for bad JSON, a missing key, one of another type, a span outside
 * the context, an id met before; ERR_RANGE for a file without episodes, or an
 * answer of no tokens or of more than fit. */
MUST_USE Status retrieval_load(Retrieval *r, Arena *a, Tokenizer *t, const char *path,
                               int64_t context, bool no_bos);

/* correct [r->n], 1 or 0 for each episode. A probe in sc gets the spans. */
MUST_USE Status retrieval_run(const Retrieval *r, Scorer *sc, uint8_t *correct);
/* Of n questions, n_correct were right. */
TaskScore       task_score(int64_t n, int64_t n_correct);
TaskScore       retrieval_score(const RetrievalTask *task, const uint8_t *correct);

#endif
