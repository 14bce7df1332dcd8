/* session.h - what the verbs share: a model at work with its tokenizer, the text
 * to run over, and how results are said. Private to the command line. */
#ifndef DQ_SESSION_H
#define DQ_SESSION_H

#include "analysis/windows.h"
#include "quant/plan.h"
#include "reports/cli/bar.h"
#include "reports/cli/settings.h"
#include "reports/tables.h"

/* What lives as long as the program: results and their texts. */
typedef struct {
    Settings    s;
    Arena       arena;
    const char *command;
    Bar         bar;
    Progress    progress;    // draws on the bar
    bool        told_device; // that there is no GPU
} Session;

/* A model on its device. Everything of it goes with loaded_close. */
typedef struct {
    Arena      arena;
    Backend    backend;
    Model      model;
    Tokenizer *tokenizer;    // NULL where none was asked for
    const char *quantization;  // in words, where weights are stored in few bits; NULL: not
                               //   looked at, or none are
    Plan       plan;         // what was done to the weights
} Loaded;

/* The settings' lists as numbers. */
typedef struct {
    int        n;
    int        at[MAX_LIST];
    LogitScale scale;
} LogitBits;

MUST_USE Status session_open(Session *se, int argc, char **argv);
void            session_close(Session *se);

/* Opens --device under --device-memory and --threads; a message says, once, where a GPU was
 * looked for and not found. */
MUST_USE Status session_backend(Backend *be, Session *se);

/* ERR_IO where a folder has none: the sentence has the way on from there. */
MUST_USE Status session_tokenizer(Tokenizer **out, const Session *se, Arena *a,
                                  const char *path);
/* ERR_RANGE where the tokenizer has more ids than the embedding has rows. */
MUST_USE Status session_fits(const char *path, const Tokenizer *t, const ModelConfig *c);

/* Loads inputs.at[i] with weights as spec says ("fp": as they are). Refuses a
 * tokenizer with more tokens than the model has rows. On failure nothing is
 * left open. */
MUST_USE Status loaded_open(Loaded *l, Session *se, const char *path, const char *spec,
                            bool with_tokenizer);
/* The same without weights: model has path, name and config, no layers and no backend. For
 * what tokens alone need. */
MUST_USE Status loaded_reader(Loaded *l, Session *se, const char *path);
/* ERR_USAGE where weights were rounded before: they would lose twice. spec: names what would
 * round them. */
MUST_USE Status loaded_may_round(const Loaded *l, const char *spec);
void            loaded_close(Loaded *l);

/* --floats; N_DTYPES where it was not given. */
Dtype           session_floats(const Session *se);
/* --dtype: of products. */
Dtype           session_dtype(const Session *se);

/* The windows of --text or --tokens; the example text where neither is given.
 * They live in the model's arena; *name, the files' names, in the session's. */
MUST_USE Status session_windows(Windows *w, const char **name, Session *se, Loaded *l);
/* The files of list joined by an empty line, in a; *name, their names, in the
 * session's arena. */
MUST_USE Status session_text(TextBuf *text, const char **name, Session *se, Arena *a,
                             const TextList *list);
int64_t         session_context(const Session *se, const ModelConfig *c);
/* --context, --bos, --convention, --stride for a model. */
MUST_USE Status session_window_options(WindowOptions *o, const Session *se,
                                       const ModelConfig *c);
/* Warns where that is more than the config allows. */
void            session_say_context(Session *se, const char *name, const ModelConfig *c);

/* Refuses a --maps-layer the model does not have. */
MUST_USE Status session_layer(const Session *se, const char *model, const ModelConfig *c);

/* bits: what holds where --logit-bits was not given. */
MUST_USE Status session_bits(LogitBits *out, const Session *se, const char *bits);

/* Path of a file of the example pair, where it was built or installed; NULL
 * where it is not there. In the session's arena. */
const char *session_example(Session *se, const char *file);

/* The name of a model as a group of a file: its folder's, with a number where one
 * of sets[n] has it already, or one that files do not tell from it. In the session's
 * arena. */
MUST_USE Status session_name(const char **out, Session *se, const SeriesSet *sets, int n,
                             const char *name);

/* Root attributes of a statistics file: program, version, command, device. */
MUST_USE Status session_root(SeriesSet *root, Session *se, const char *device);

/* A message on stderr, unless --quiet. */
void session_say(Session *se, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints a table on stdout, as text or as one JSON member "name": [...]. */
MUST_USE Status session_table(Session *se, const char *name, const Table *t);

#endif
