/* grid.c - every model in every kind of quantized model: what to load when. */
#include "reports/cli/grid.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/outfile.h"

/* --- settings --- */

static Status add_spec(Grid *g, const char *text)
{
    Spec spec;
    TRY(spec_parse(&spec, &g->se->arena, text));
    for (int i = 0; i < g->n_specs; i++)
        if (strcmp(g->names[i], spec.text) == 0)
            return OK;   // "fp" comes first anyway; another spelling of the same
    if (g->n_specs == MAX_LIST)
        FAIL(ERR_USAGE, "--weights: more than %d kinds", MAX_LIST - 1);
    g->specs[g->n_specs] = spec;
    g->names[g->n_specs] = spec.text;
    g->runs[g->n_specs++] = spec.run;
    return OK;
}

static Status choose_specs(Grid *g)
{
    const TextList *list = &g->se->s.weights;
    TRY(add_spec(g, "fp"));
    for (int i = 0; i < list->n; i++)
        TRY(add_spec(g, list->at[i]));
    for (int i = 0; i < g->n_specs; i++)
        if (!g->specs[i].in_memory && !g->folder && i > 0)
            FAIL(ERR_USAGE, "--weights %s makes a checkpoint: give a folder for it, --out "
                 "FOLDER", g->names[i]);
    return OK;
}

static Status choose_needles(Grid *g)
{
    const char *text = g->se->s.needles;
    char       *end;
    if (!text)
        return OK;
    errno = 0;
    g->n_needles = strtol(text, &end, 10);
    if (*end == ',')
        g->n_asked = strtol(end + 1, &end, 10);
    if (errno == ERANGE)
        FAIL(ERR_USAGE, "--needles: \"%.40s\": 1 to %d needles are possible", text,
             NEEDLES_CITIES);
    if (*end || g->n_asked < 1 || g->n_needles < g->n_asked)
        FAIL(ERR_USAGE, "--needles: \"%.40s\" is not N,R with N needles and 1 to N of them "
             "asked for, as 6,2", text);
    return OK;
}

static Status choose_tasks(Grid *g)
{
    const Settings *s = &g->se->s;
    const char     *example;
    bool            other = s->needles || s->order;
    g->tasks = s->tasks;
    if (g->tasks.n == 0 && s->texts.n == 0 && !other &&
        (example = session_example(g->se, "retrieval.jsonl")))
        g->tasks.at[g->tasks.n++] = example;
    g->with_text = g->record || s->texts.n || s->kl || (s->tasks.n == 0 && !other);
    return choose_needles(g);
}

/* Options that go unheard are refused: the user takes them to have been heard. */
static Status check_heard(const Grid *g)
{
    const Settings *s = &g->se->s;
    bool            fitted = false;
    for (int i = 0; i < g->n_specs; i++)
        fitted |= g->specs[i].needs_text;
    if (!fitted && (s->calibrate || s->windows))
        FAIL(ERR_USAGE, "--%s says nothing without a kind of --weights that is fitted to a "
             "text: gptq, awq or smooth", s->calibrate ? "calibrate" : "windows");
    /* The text's windows are scored, or calibrated on. */
    bool read = g->with_text || (fitted && !s->calibrate);
    if (!read && (s->convention || s->stride))
        FAIL(ERR_USAGE, "--%s says nothing without --text", s->convention ? "convention"
                                                                          : "stride");
    return OK;
}

/* --- what may be wrong --- */

/* A checkpoint of few bits is compared as it is: its first kind is no "fp", and others would
 * round it a second time. */
static Status name_kinds(Grid *g, GridModel *m)
{
    for (int i = 0; i < g->n_specs; i++) {
        m->names[i] = g->names[i];
        if (g->specs[i].scheme.bits || !g->specs[i].in_memory)
            TRY(loaded_may_round(&m->reader, g->names[i]));
    }
    if (m->reader.quantization)
        m->names[0] = "stored";
    return OK;
}

static Status open_model(Grid *g, int i)
{
    GridModel *m = &g->models[i];
    m->path = g->se->s.inputs.at[i];
    TRY(loaded_reader(&m->reader, g->se, m->path));
    TRY(session_layer(g->se, m->reader.model.path, &m->reader.model.config));
    TRY(name_kinds(g, m));
    TRY(session_name(&m->name, g->se, g->sets, i, m->reader.model.name));
    series_set_init(&m->set, &g->se->arena, m->name);
    g->sets[i] = m->set;
    return OK;
}

static Status init_study(Grid *g, GridModel *m)
{
    const char  *cells = g->folder ? arena_printf(&m->arena, "%s/cells", g->folder) : "";
    StudyOptions o = {
        .n_weights = g->n_specs,
        .weights = m->names,
        .runs = g->runs,
        .n_bits = g->bits.n,
        .bits = g->bits.at,
        .scale = g->bits.scale,
        .text = g->with_text ? &m->text : NULL,
        .divergence = g->se->s.kl,
        .n_files = m->n_files,
        .files = m->files,
        .n_choices = m->n_choices,
        .choices = m->choices,
        .orders = m->orders.n_shots ? &m->orders : NULL,
        .progress = &g->progress,
        .folder = g->folder ? cells : NULL,
        .name = m->name,
        .settings = m->settings,
    };
    if (!cells)
        FAIL(ERR_MEMORY, "out of memory for the name of a folder");
    m->has_study = o.text || m->n_files || m->n_choices || o.orders;
    if (!m->has_study)
        return OK;
    return study_init(&m->study, &m->arena, &o);
}

static Status try_models(Grid *g)
{
    ARENA_NEW(g->models, &g->se->arena, g->n_planned);
    ARENA_NEW(g->sets, &g->se->arena, g->n_planned);
    for (int i = 0; i < g->n_planned; i++)
        TRY(open_model(g, i));
    for (int i = 0; i < g->n_planned; i++) {
        TRY(grid_texts(g, &g->models[i]));
        TRY(init_study(g, &g->models[i]));
    }
    return OK;
}

static Status choose_folder(Grid *g)
{
    const char *out = g->se->s.out;
    size_t      n = out ? strlen(out) : 0;
    bool        file = n > 3 && strcmp(out + n - 3, ".h5") == 0;
    g->folder = file ? NULL : out;
    g->h5 = g->folder ? arena_printf(&g->se->arena, "%s/study.h5", out) : out;
    if (g->se->s.resume && !g->folder)
        FAIL(ERR_USAGE, "--resume goes on with what is in a folder: give --out FOLDER");
    return !out || g->h5 ? OK : STATUS(ERR_MEMORY, "out of memory for the name of a file");
}

static void draw_step(void *context, int64_t done, int64_t total, const char *what);

Status grid_open(Grid *g, Session *se, bool record)
{
    *g = (Grid){.se = se, .record = record, .n_planned = se->s.inputs.n};
    g->progress = (Progress){draw_step, g};
    TRY(choose_folder(g));
    TRY(choose_specs(g));
    TRY(session_bits(&g->bits, se, "16,8,6,4"));
    TRY(choose_tasks(g));
    TRY(check_heard(g));
    TRY(try_models(g));
    if (g->folder)
        return grid_folder(g);
    return g->h5 ? outfile_try(&se->arena, g->h5) : OK;
}

void grid_close(Grid *g)
{
    for (int i = 0; g->models && i < g->n_planned; i++) {
        loaded_close(&g->models[i].reader);
        arena_close(&g->models[i].arena);
    }
    g->models = NULL;
    grid_unlock(g);
}

/* --- progress --- */

/* A study tells how far it is in its model; models that come later are taken to be as
 * long as this one. */
static void draw_step(void *context, int64_t done, int64_t total, const char *what)
{
    Grid *g = context;
    char  text[64];
    snprintf(text, sizeof text, "%s, %s", g->models[g->n_models].name, what);
    bar_show(&g->se->bar, text, "tokens", g->n_models * total + done, g->n_planned * total);
}

Status grid_path(const char **out, Grid *g, GridModel *m, const char *folder, const char *what)
{
    char *path = arena_printf(&m->arena, "%s/%s/%s%s", g->folder, folder, m->name, what);
    if (!path)
        FAIL(ERR_MEMORY, "out of memory for the name of a file");
    for (char *c = path + strlen(g->folder) + strlen(folder) + 2; *c; c++)
        if (*c == '/' || *c == ':' || *c == ' ')
            *c = '-';
    *out = path;
    return OK;
}

/* --- one model --- */

static Status take_up(Grid *g, GridModel *m)
{
    if (!m->has_study || !g->folder)
        return OK;
    return g->se->s.resume ? study_load(&m->study) : study_forget(&m->study);
}

/* The unquantized model: extras and its own cells. It stays loaded in *l where the
 * distances of the others are measured from it. */
static Status run_first(Grid *g, GridModel *m, Loaded *l, bool extras)
{
    if (!extras)
        TRY(grid_extras_run(g, m, l));
    TRY(grid_extras_give(m));
    return m->has_study ? study_weights(&m->study, 0, &l->model, &l->model) : OK;
}

static Status run_spec(Grid *g, GridModel *m, Loaded *first, int i)
{
    Loaded l;
    if (study_finished(&m->study, i))
        return study_weights(&m->study, i, NULL, NULL);
    if (!first->model.layers && g->se->s.kl)
        TRY(loaded_open(first, g->se, m->path, "fp", false));
    TRY(grid_load(&l, g, m, i));
    Status s = study_weights(&m->study, i, &l.model, &first->model);
    loaded_close(&l);
    return s;
}

static Status run_specs(Grid *g, GridModel *m, bool extras)
{
    Loaded first = {0};
    Status s = OK;
    bool   finished = !m->has_study || study_finished(&m->study, 0);
    if (!extras || !finished) {
        GUARD(loaded_open(&first, g->se, m->path, "fp", false));
        GUARD(run_first(g, m, &first, extras));
    } else if (m->has_study) {
        GUARD(study_weights(&m->study, 0, NULL, NULL));
    }
    if (!g->se->s.kl)
        loaded_close(&first);
    for (int i = 1; m->has_study && i < g->n_specs; i++)
        GUARD(run_spec(g, m, &first, i));
out:
    loaded_close(&first);
    return s;
}

static Status run_model(Grid *g, GridModel *m)
{
    bool extras;
    session_say(g->se, "%s", m->reader.model.path);
    TRY(grid_extras_load(&extras, g, m));
    TRY(run_specs(g, m, extras));
    if (m->has_study)
        TRY(study_series(&m->study, &m->set));
    if (m->has_study && g->n_models > 0)
        TRY(study_versus(&m->study, &g->models[0].study, g->models[0].name, &m->set));
    g->sets[g->n_models++] = m->set;
    return OK;
}

Status grid_run(Grid *g)
{
    for (int i = 0; i < g->n_planned; i++)
        TRY(take_up(g, &g->models[i]));
    for (int i = 0; i < g->n_planned; i++)
        TRY(run_model(g, &g->models[i]));
    return OK;
}
