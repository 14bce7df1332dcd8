/* tables.h - the tables of a study as rows of cells, and three ways to show them.
 * Built from SeriesSets alone; everything lives in the arena passed in. */
#ifndef DQ_TABLES_H
#define DQ_TABLES_H

#include "analysis/series.h"
#include "analysis/textbuf.h"

enum { TABLE_BITS = 16 };  // widths of logits that are shown at most

/* DIFFERENCE: of two scores of the same items, with the p of its paired test. */
typedef enum { CELL_NONE, CELL_TEXT, CELL_INT, CELL_VALUE, CELL_PERCENT, CELL_DIFFERENCE }
    CellKind;

#define TABLE_NOISE 0.05   // a difference of larger p is within noise

typedef struct {
    CellKind    kind;     // NONE: nothing was measured, shown as a dash
    const char *text;
    int64_t     integer;
    double      value;    // PERCENT, DIFFERENCE: a share, 0.912 is shown as 91.2
    double      error;    // of these: standard error as a share; NaN: none
    double      p;        // DIFFERENCE
} Cell;

typedef struct {
    const char        *title;
    const char        *note;      // one or two sentences, or NULL
    const char        *warning;   // lines without which the figures mislead, or NULL: told
                                  //   wherever the table is
    int                group;     // column whose change begins a new group of rows
    int                n_columns;
    const char *const *columns;   // what a person reads: "top-1"
    const char *const *keys;      // names in JSON: "top_1"
    int64_t            n_rows;
    Cell              *cells;     // [n_rows, n_columns]
} Table;

/* Largest magnitudes and median of attention logits and hidden states, in the
 * columns of the paper, and one more where values were NaN or infinite. n_rows is
 * 0 where no set has them. */
MUST_USE Status table_outliers(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
/* "0, 2, 4": the layers of the set that have no attention; NULL: all have. */
const char *table_silent_layers(const SeriesSet *set);
/* Logits and hidden states that were NaN or infinite. */
double table_not_finite(const SeriesSet *set);
/* One row a model, kind of weights and number of logit bits: accuracy of every
 * task with its standard error, and perplexity; one more column where answers were scored by
 * NaN, and a warning of that and of items that were cut. n_rows 0: nothing was scored. */
MUST_USE Status table_accuracy(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
/* Names of the tasks that any set was scored on, in the order they are met. */
enum { TABLE_TASKS = 64 };
typedef struct {
    int         n;
    const char *name[TABLE_TASKS];
} TaskNames;
void table_tasks(TaskNames *tasks, Arena *a, const SeriesSet *sets, int n_sets);

/* Every cell less the unquantized one of its model; every model less the first, cell by
 * cell. n_rows 0: there is nothing to compare. */
MUST_USE Status table_paired(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
MUST_USE Status table_versus(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
/* Multi-needle retrieval by depth, the shares of attention, and these layer by layer. */
MUST_USE Status table_needles(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
MUST_USE Status table_needle_shares(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
MUST_USE Status table_needle_layers(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
/* Accuracy over the orders of examples. */
MUST_USE Status table_orders(Table *t, Arena *a, const SeriesSet *sets, int n_sets);
/* One row a layer: largest logit and hidden state of each model, and lambda. */
MUST_USE Status table_layers(Table *t, Arena *a, const SeriesSet *sets, int n_sets);

/* One row a matrix that quantize_series tells of: format, bits, errors. */
MUST_USE Status table_quantized(Table *t, Arena *a, const SeriesSet *set);

/* Room for a table, all cells empty; the name of a column for people and for JSON. */
MUST_USE Status table_new(Table *t, Arena *a, int64_t n_rows, int n_columns);
void            table_name(Table *t, int i, const char *column, const char *key);
Cell            table_text_cell(const char *text);   // NULL: nothing was measured
Cell            table_value_cell(double value);      // NaN: nothing was measured
Cell            table_int_cell(int64_t value);

/* Columns aligned with spaces, title above; for a terminal. */
void table_text(TextBuf *b, const Table *t);
/* A <table> with <caption>; every string escaped. */
void table_html(TextBuf *b, const Table *t);
/* An array of objects, one a row; PERCENT cells are {"value":,"stderr":},
 * DIFFERENCE cells have p and within_noise too. */
void table_json(TextBuf *b, const Table *t);

/* The i-th of the names joined by separator in attribute key; NULL where the
 * attribute or the name is missing. Lives in a. */
const char *table_attr_part(Arena *a, const SeriesSet *set, const char *key, char separator,
                            int64_t i);

#endif
