/* study.h - what quantization costs one model: perplexity of a text and accuracy
 * of every task, for each kind of weights and each width of attention logits.
 *
 * The caller loads the model anew for each kind of weights (with another
 * WeightEdit) and hands it to study_weights; study_series turns all cells into
 * the series eval/... */
#ifndef DQ_STUDY_H
#define DQ_STUDY_H

#include "analysis/perplexity.h"
#include "analysis/retrieval.h"

typedef struct {
    int64_t            n_weights;
    const char *const *weights;      // names: "fp", "w4:g64"
    int64_t            n_bits;
    const int         *bits;         // of attention logits: 16, 8, 6, 4
    LogitScale         scale;
    const Windows     *text;         // NULL: no perplexity
    int64_t            n_files;
    const Retrieval   *files;        // [n_files] tasks
    int64_t            batch_tokens; // 0: SCORE_BATCH_TOKENS
    const Progress    *progress;     // over all cells, or NULL
} StudyOptions;

/* One cell of the table. Cells that were not run hold NaN. */
typedef struct {
    Perplexity  text;
    TaskScore  *tasks;     // [n_tasks]
    uint8_t   **correct;   // [n_files] -> [files[i].n], for paired tests
} StudyCell;

typedef struct {
    StudyOptions          o;
    Arena                *arena;
    int64_t               n_tasks;   // of all files, in their order
    const RetrievalTask **tasks;     // [n_tasks]
    StudyCell            *cells;     // [n_weights, n_bits]
    int64_t               done, total;  // tokens, for progress
} Study;

/* Keeps o's pointers: text and files must outlive the study. ERR_RANGE for bits
 * other than 16, 8, 6, 4, for two tasks of one name, and when there is neither
 * text nor task. */
MUST_USE Status study_init(Study *s, Arena *a, const StudyOptions *o);
/* Runs all logit widths with weights number i, which m holds. */
MUST_USE Status study_weights(Study *s, int64_t i, Model *m);
StudyCell      *study_cell(const Study *s, int64_t weights, int64_t bits);
/* eval/... of the README; tables without rows (no text, no task) are left out.
 * Nothing of the study is needed afterwards. */
MUST_USE Status study_series(const Study *s, SeriesSet *set);

#endif
