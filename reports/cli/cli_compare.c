/* cli_compare.c - diffquant compare: the whole study on two or more models. */
#include <stdio.h>
#include <string.h>

#include "analysis/analyze.h"
#include "analysis/study.h"
#include "kernels/size.h"
#include "reports/cli/verbs.h"
#include "reports/h5.h"
#include "kernels/outfile.h"
#include "reports/report.h"

static const char *const H5_NAME = "study.h5";

typedef struct {
    int         n;
    SeriesSet   sets[MAX_LIST];
    int         n_weights;
    const char *weights[MAX_LIST];   // "fp" first
    LogitBits   bits;
    TextList    tasks;
    const char *device;
} Comparison;

/* Fails before the work, not after it: the folder can be made and written. */
static Status try_folder(Session *se)
{
    const char *path = arena_printf(&se->arena, "%s/%s", se->s.out, H5_NAME);
    if (!path)
        FAIL(ERR_MEMORY, "out of memory for the name of %s", H5_NAME);
    TRY(outfile_folder(&se->arena, se->s.out));
    return outfile_try(&se->arena, path);
}

/* All models are looked at before the first is run, which may take hours. */
static Status try_models(Session *se)
{
    Arena  a = {0};
    Status s = OK;
    for (int i = 0; i < se->s.inputs.n && s == OK; i++) {
        ModelInfo info;
        GUARD(model_info_open(&info, &a, se->s.inputs.at[i]));
        s = session_layer(se, info.path, &info.config);
        model_info_close(&info);
    }
out:
    arena_close(&a);
    return s;
}

static Status load_tasks(Retrieval *files, Session *se, const Comparison *c, Loaded *l)
{
    bool    no_bos = se->s.bos && strcmp(se->s.bos, "none") == 0;
    int64_t longest = i64_max(session_context(se, &l->model.config),
                              i64_min(l->model.config.max_positions, 4096));
    for (int i = 0; i < c->tasks.n; i++)
        TRY(retrieval_load(&files[i], &l->arena, l->tokenizer, c->tasks.at[i], longest, no_bos));
    return OK;
}

/* What stays the same over all kinds of weights of one model. */
typedef struct {
    Study      study;
    Windows    windows;
    Retrieval  files[MAX_LIST];
    StudyOptions options;
} ModelStudy;

static Status prepare(ModelStudy *ms, SeriesSet *set, Session *se, const Comparison *c,
                      Loaded *l)
{
    AnalyzeOptions a = {
        .record = true,
        .quant = {.bits = 16},
        .maps_layer = se->s.maps_layer >= 0 ? se->s.maps_layer : MAPS_LARGEST,
        .progress = &se->progress,
    };
    Perplexity p;
    TRY(session_windows(&ms->windows, &a.text_name, se, l));
    TRY(load_tasks(ms->files, se, c, l));
    a.marked = c->tasks.n ? &ms->files[0] : NULL;
    TRY(analyze_run(set, &p, &l->model, l->tokenizer, &ms->windows, &a));
    ms->options = (StudyOptions){
        .n_weights = c->n_weights,
        .weights = c->weights,
        .n_bits = c->bits.n,
        .bits = c->bits.at,
        .scale = c->bits.scale,
        .text = &ms->windows,
        .n_files = c->tasks.n,
        .files = ms->files,
        .progress = &se->progress,
    };
    return study_init(&ms->study, &se->arena, &ms->options);
}

/* The first kind of weights is loaded; the others are loaded one after another. */
static Status run_weights(ModelStudy *ms, Session *se, const Comparison *c, const char *path,
                          Loaded *first)
{
    TRY(study_weights(&ms->study, 0, &first->model));
    for (int i = 1; i < c->n_weights; i++) {
        Loaded l;
        TRY(loaded_open(&l, se, path, c->weights[i], false));
        Status s = study_weights(&ms->study, i, &l.model);
        loaded_close(&l);
        if (s != OK)
            return s;
    }
    return OK;
}

static Status compare_model(Comparison *c, Session *se, const char *path)
{
    Loaded      l;
    ModelStudy *ms;
    const char *name;
    SeriesSet  *set = &c->sets[c->n];
    ARENA_NEW(ms, &se->arena, 1);
    session_say(se, "%s", path);
    TRY(loaded_open(&l, se, path, c->weights[0], true));
    Status s = OK;
    GUARD(session_name(&name, se, c->sets, c->n, l.model.name));
    series_set_init(set, &se->arena, name);
    c->device = l.backend.ops->name;
    GUARD(prepare(ms, set, se, c, &l));
    GUARD(run_weights(ms, se, c, path, &l));
    GUARD(study_series(&ms->study, set));
    c->n++;
out:
    loaded_close(&l);
    return s;
}

static Status choose_weights(Comparison *c, Session *se)
{
    Scheme scheme;
    c->weights[c->n_weights++] = "fp";
    for (int i = 0; i < se->s.weights.n; i++) {
        const char *spec = se->s.weights.at[i];
        if (strcmp(spec, "fp") == 0)
            continue;
        TRY(scheme_parse(&scheme, spec));
        if (c->n_weights == MAX_LIST)
            FAIL(ERR_USAGE, "--weights: more than %d kinds", MAX_LIST - 1);
        c->weights[c->n_weights++] = spec;
    }
    return OK;
}

static Status choose(Comparison *c, Session *se)
{
    const char *example;
    if (!se->s.out)
        FAIL(ERR_USAGE, "compare needs a folder for its results: --out FOLDER");
    TRY(choose_weights(c, se));
    TRY(session_bits(&c->bits, se, "16,8,6,4"));
    c->tasks = se->s.tasks;
    if (c->tasks.n == 0 && se->s.texts.n == 0 &&
        (example = session_example(se, "retrieval.jsonl")))
        c->tasks.at[c->tasks.n++] = example;
    TRY(try_models(se));
    return try_folder(se);
}

static Status write_files(ReportFiles *files, Session *se, const Comparison *c)
{
    SeriesSet   root;
    const char *h5 = arena_printf(&se->arena, "%s/%s", se->s.out, H5_NAME);
    if (!h5)
        FAIL(ERR_MEMORY, "out of memory for the name of %s", H5_NAME);
    ReportOptions o = {.command = se->command, .h5_name = H5_NAME, .map_head = -1,
                       .color = se->s.color};
    TRY(session_root(&root, se, c->device));
    TRY(h5_write(&se->arena, h5, c->sets, c->n, &root));
    return report_write(&se->arena, se->s.out, c->sets, c->n, &o, files);
}

Status session_results(Session *se, const SeriesSet *sets, int n, const char *h5,
                       const ReportFiles *files)
{
    Table outliers, accuracy;
    TRY(table_outliers(&outliers, &se->arena, sets, n));
    TRY(table_accuracy(&accuracy, &se->arena, sets, n));
    printf(se->s.json ? "{" : "\n");
    TRY(session_table(se, "outliers", &outliers));
    printf(se->s.json ? ", " : "\n");
    TRY(session_table(se, "accuracy", &accuracy));
    if (!se->s.json) {
        printf("\nPage      %s\n", files->paths[0]);
        for (int i = 1; i < files->n; i++)
            printf("%s%s\n", i == 1 ? "Pictures  " : "          ", files->paths[i]);
        if (h5)
            printf("HDF5 file %s/%s\n", se->s.out, h5);
        return OK;
    }
    TextBuf b;
    textbuf_init(&b, &se->arena);
    textbuf_add(&b, ", \"files\": [");
    for (int i = 0; i < files->n; i++) {
        textbuf_add(&b, i ? ", " : "");
        textbuf_json(&b, files->paths[i]);
    }
    TRY(textbuf_status(&b));
    printf("%s]}\n", b.at);
    return OK;
}

Status verb_compare(Session *se)
{
    Comparison  c = {0};
    ReportFiles files;
    TRY(choose(&c, se));
    for (int i = 0; i < se->s.inputs.n; i++)
        TRY(compare_model(&c, se, se->s.inputs.at[i]));
    TRY(write_files(&files, se, &c));
    bar_clear(&se->bar);
    return session_results(se, c.sets, c.n, H5_NAME, &files);
}
