/* grid.h - what eval and compare have in common: models, each in every kind of quantized
 * model and every number of bits of its attention logits.
 *
 *   OUT/cells/         finished cells, and what was measured of the unquantized models
 *   OUT/checkpoints/   those kinds of models that take more than rounding
 *
 * A rerun with --resume takes up what is there and ends with the same results. */
#ifndef DQ_GRID_H
#define DQ_GRID_H

#include "analysis/analyze.h"
#include "analysis/needles.h"
#include "analysis/shots.h"
#include "analysis/study.h"
#include "quant/spec.h"
#include "reports/cli/session.h"

enum { GRID_MODELS = 8 };

/* One model: its tokens stay until the comparison of the models is done. */
typedef struct {
    Arena       arena;
    const char *path;
    const char *name;          // of its group and files
    Loaded      reader;        // tokenizer and config
    Windows     text;          // that is scored; context 0: none
    Windows     calibration;   // seq.n 0: none
    const char *text_name, *calibration_name;
    const char *names[MAX_LIST];   // of its kinds: Grid's, but "stored" for fp where the
                                   //   checkpoint has weights of few bits
    const char *settings;      // what its cells hang on, a line each
    int         n_files, n_choices;
    Retrieval   files[MAX_LIST + 1];
    Choice      choices[MAX_LIST];
    Needles     needles;       // n 0: none; their episodes are the last of files
    Shots       orders;        // n_shots 0: none
    Study       study;         // n_cells 0: no text and no task
    bool        has_study;
    SeriesSet   set;
} GridModel;

typedef struct {
    Session    *se;
    bool        record;        // outliers as well
    bool        with_text;
    int         n_specs;
    Spec        specs[MAX_LIST];   // the first is fp
    const char *names[MAX_LIST];
    RunQuant    runs[MAX_LIST];
    LogitBits   bits;
    TextList    tasks;
    int64_t     n_needles, n_asked;   // 0: no needles
    const char *folder;        // OUT where it is a folder, else NULL
    const char *h5;            // where the results go, or NULL
    int         lock;          // descriptor in OUT/cells, this run's alone; 0: none
    const char *device;
    int         n_models, n_planned;   // run; all of them
    GridModel  *models;        // [n_planned]
    SeriesSet  *sets;          // [n_planned] those of the models; of n_models with figures
    Progress   progress;       // over all models
} Grid;

/* Reads the settings, all tokenizers, texts and tasks, makes the folders, keeps other runs
 * out of them and tries whether results can be written: what may be wrong is known before the
 * first model is run, which may take hours. */
MUST_USE Status grid_open(Grid *g, Session *se, bool record);
/* Runs everything, model by model. */
MUST_USE Status grid_run(Grid *g);
/* Zeroed or twice is fine. The sets stay: they are the session's. */
void            grid_close(Grid *g);

/* --- parts, private to grid*.c --- */

/* grid_texts.c: tokens of texts and tasks, and the settings they and the options make. */
MUST_USE Status grid_texts(Grid *g, GridModel *m);
/* Of a file's bytes. */
MUST_USE Status grid_hash(uint64_t *out, const char *path);
/* grid_checkpoint.c: loads m as specification number i says, quantizing it first where
 * that takes more than rounding and was not done yet. */
MUST_USE Status grid_load(Loaded *l, Grid *g, GridModel *m, int i);
/* ERR_IO where something else is in the place of a checkpoint's folder. */
MUST_USE Status grid_checkpoints_try(Grid *g, GridModel *m);
/* grid_extras.c: what is measured of the unquantized model alone: outliers and attention to
 * needles, into m->set. *done: it was there already. */
MUST_USE Status grid_extras_load(bool *done, Grid *g, GridModel *m);
MUST_USE Status grid_extras_run(Grid *g, GridModel *m, Loaded *l);
/* Hands what they and the study have in common, the needles that were found, to the study. */
MUST_USE Status grid_extras_give(GridModel *m);
/* grid_folder.c: OUT with its folders, for this run alone until grid_unlock. */
MUST_USE Status grid_folder(Grid *g);
void            grid_unlock(Grid *g);
/* OUT/folder/model-what.suffix with what no file is called replaced, in m's arena. */
MUST_USE Status grid_path(const char **out, Grid *g, GridModel *m, const char *folder,
                          const char *what);

#endif
