/* study.h - what quantization costs one model: perplexity of a text, distance from the
 * unquantized model and accuracy of every task, for each kind of quantized model (a
 * specification) and each width of attention logits. A cell is one of each.
 *
 * The caller loads the model anew for each specification and hands it to study_weights;
 * cells that are finished already (study_load) are passed over. study_series turns all
 * cells into the series eval/... */
#ifndef DQ_STUDY_H
#define DQ_STUDY_H

#include "analysis/choice.h"
#include "analysis/divergence.h"
#include "analysis/paired.h"
#include "analysis/perplexity.h"
#include "analysis/retrieval.h"
#include "analysis/shots.h"

enum { STUDY_EXACT_BITS = 16 };   // leave logits as they are

typedef struct {
    int64_t            n_weights;
    const char *const *weights;      // names: "fp", "w4:g64"; the first is not quantized
    const RunQuant    *runs;         // [n_weights] inputs, keys and values; NULL, 0: as the
                                     //   checkpoint says
    int64_t            n_bits;
    const int         *bits;         // of attention logits: 16, 8, 6, 4
    LogitScale         scale;
    const Windows     *text;         // NULL: no perplexity
    bool               divergence;   // from the unquantized model, over the text
    int64_t            n_files;
    const Retrieval   *files;        // [n_files] tasks
    int64_t            n_choices;
    const Choice      *choices;      // [n_choices] tasks
    const Shots       *orders;       // a task as well, or NULL
    int64_t            batch_tokens; // 0: SCORE_BATCH_TOKENS
    const Progress    *progress;     // over all cells, or NULL
    const char        *folder;       // where finished cells are kept, NULL: nowhere
    const char        *name;         // of the model, for their files
    const char        *settings;     // what all cells have in common, a line each
} StudyOptions;

/* One column of the table: some items of a file, each of them right or wrong. */
typedef struct {
    const char    *name;      // "retrieval-n4", "hellaswag", "hellaswag norm", "trec orders"
    int64_t        n;
    const int64_t *items;     // [n] numbers within the source; NULL: all of it
    int64_t        source;    // which of StudyCell.correct
    int64_t        n_truncated;  // items that lost tokens on the left
    int64_t        turns;     // items are questions [turns, n / turns], the same in each turn:
                              //   errors and tests are of a question's mean over turns
} StudyTask;

/* One cell of the table. Cells that were not run hold NaN. */
typedef struct {
    bool        done;
    Perplexity  text;         // with window_nll
    Divergence  divergence;   // n == 0: none was asked for, or of the unquantized cell
    TaskScore  *tasks;        // [n_tasks]
    uint8_t   **correct;      // [n_sources] -> [source_items]
    int64_t     n_nan;        // tokens of answers whose log-probability was NaN
} StudyCell;

typedef struct {
    StudyOptions   o;
    Arena         *arena;
    int64_t        n_sources;     // of right and wrong: a file, or one way to score it: of
                                  //   o.files, then of o.choices, then of o.orders
    const int64_t *source_items;  // [n_sources]
    int64_t        n_tasks;
    StudyTask     *tasks;         // [n_tasks]
    StudyCell     *cells;         // [n_weights, n_bits]
    Reference      reference;     // that the divergence is measured from, if it was needed yet
    const uint8_t **given;        // [n_sources] of the unquantized cell: study_give, or NULL
    int64_t       *given_nan;     // [n_sources] the same of StudyCell.n_nan
    const Perplexity *given_text; // study_give_text, or NULL
    int64_t        cell_tokens;   // that a cell runs over
    int64_t        done, total;   // tokens, for progress
} Study;

/* Keeps o's pointers: text and files must outlive the study. ERR_RANGE for bits
 * other than 16, 8, 6, 4, for two tasks of one name, and when there is neither
 * text nor task. */
MUST_USE Status study_init(Study *s, Arena *a, const StudyOptions *o);
/* Are all cells of weights number i finished? */
bool       study_finished(const Study *s, int64_t i);
StudyCell *study_cell(const Study *s, int64_t weights, int64_t bits);
/* Number of the bits that leave logits as they are; -1: they are not among them. */
int64_t    study_exact(const Study *s);
/* Share of turns in which question i of t was answered right; correct: of its source. */
double     study_question(const StudyTask *t, const uint8_t *correct, int64_t i);
/* Fills c->tasks from c->correct. */
void       study_score(const Study *s, StudyCell *c);

/* --- study_run.c --- */

/* Runs all logit widths with weights number i, which m holds; a finished cell is kept
 * at once. reference: the unquantized model, m itself where i is that; needed for the
 * divergence only, which keeps hidden states of it in its backend's memory: it is the same
 * in each call, and open from the first to the last. */
MUST_USE Status study_weights(Study *s, int64_t i, Model *m, Model *reference);
/* Right and wrong of all items of a source in the unquantized cell, from a run that measured
 * more: they are not asked again. Copied; nothing where that cell is none of the study's.
 * n_nan: as Scorer's, of that source. */
MUST_USE Status study_give(Study *s, int64_t source, const uint8_t *correct, int64_t n_nan);
/* The same with its perplexity of o.text; window_nll is copied too. */
MUST_USE Status study_give_text(Study *s, const Perplexity *p);

/* --- study_store.c: finished cells in o.folder, one file each --- */

/* Takes up those that are there. ERR_USAGE where one was scored with other settings (the
 * sentence says which), ERR_FORMAT where one is no cell of this program. */
MUST_USE Status study_load(Study *s);
/* Removes those that are there. */
MUST_USE Status study_forget(Study *s);
MUST_USE Status study_save(Study *s, int64_t weights, int64_t bits);
/* Is what was stored as `was` of a run with the same settings? name: the file's. */
MUST_USE Status study_same(const char *name, const char *was, size_t n, const char *now);

/* --- study_series.c --- */

/* eval/... and order/... of the README; tables without rows (no text, no task) are left out.
 * Nothing of the study is needed afterwards. */
MUST_USE Status study_series(const Study *s, SeriesSet *set);

/* --- study_paired.c --- */

/* paired/...: each cell less the unquantized one; nothing where that was not asked for.
 * Part of study_series. */
MUST_USE Status study_paired(const Study *s, SeriesSet *set);
/* versus/...: the cells of s less the same cells of first, another model. Tasks that
 * both do not have with as many items stay NaN. */
MUST_USE Status study_versus(const Study *s, const Study *first, const char *first_name,
                             SeriesSet *set);

#endif
