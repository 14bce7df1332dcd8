/* test_resume.c - exports that stop on the way, and go on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "quant/formats/export.h"
#include "quant/formats/journal.h"
#include "tests/check.h"
#include "tests/quant/ref_source.h"

typedef struct {
    Arena         a;
    Layers        layers;
    Plan          plan;
    ExportOptions o;
} Run;

static Status run_begin(Run *r, const char *out)
{
    *r = (Run){0};
    TRY(layers_open(&r->layers, &r->a, ref_source("source", true, true, "BF16")));
    TRY(plan_init(&r->plan, &r->a, "w4:g32:asym:bf16"));
    r->o = (ExportOptions){.path = out, .format = FORMAT_COMPRESSED, .source = &r->layers,
                           .plan = &r->plan, .dtype = DTYPE_BF16, .settings = "w4",
                           .shard_bytes = 20000};
    return OK;
}

static void run_end(Run *r)
{
    layers_close(&r->layers);
    arena_close(&r->a);
}

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* Are both folders the same, file by file, byte by byte? */
static bool are_same(const char *one, const char *two)
{
    char command[1300];
    snprintf(command, sizeof command, "diff -r '%s' '%s'", one, two);
    return system(command) == 0;
}

/* Layer 0 is done, layer 1 begun: then the run is gone. Killed: without a farewell. */
static Status stop_halfway(Run *r, bool killed)
{
    static const float STATE[] = {1, 2, 3};
    Export *e = NULL;
    Status  s = OK;
    GUARD(export_open(&e, &r->a, &r->o));
    GUARD(ref_export_layer(e, &r->o, -1));
    GUARD(ref_export_layer(e, &r->o, 0));
    GUARD(export_layer_done(e, 0, "row", 3, STATE, 3));
    GUARD(ref_export_layer(e, &r->o, 1));
    if (killed) {  // what a kill leaves: files half written, and a config.json
        ref_write_text(ref_path("out.partial/" JOURNAL_NAME ".17.part"), "half");
        ref_write_text(ref_path("out.partial/config.json"), "{}");
    }
out:
    export_close(e);
    return s;
}

TEST(a_resumed_run_ends_with_the_same_bytes)
{
    for (int killed = 0; killed < 2; killed++) {
        Run     whole, half;
        Export *e;
        size_t  bytes;
        char    rows[3];
        float   state[3];
        T_STATUS_OK(run_begin(&whole, ref_path("whole")));
        whole.o.overwrite = true;
        T_STATUS_OK(ref_export(&whole.a, &whole.o));
        T_STATUS_OK(run_begin(&half, ref_path("out")));
        half.o.overwrite = true;
        T_STATUS_OK(stop_halfway(&half, killed));
        T_OK(there(ref_path("out.partial")));
        half.o.resume = true;
        T_STATUS_OK(export_open(&e, &half.a, &half.o));
        T_OK(export_layers_done(e) == 1 && !there(ref_path("out.partial/config.json")));
        T_OK(export_has(e, "model.layers.0.mlp.up_proj.weight"));
        T_OK(!export_has(e, "model.layers.1.mlp.up_proj.weight"));
        T_OK(export_has(e, "model.embed_tokens.weight"));
        T_STATUS_OK(export_kept(e, rows, 3, state, 3));
        T_OK(memcmp(rows, "row", 3) == 0 && state[2] == 3);
        T_STATUS_OK(ref_export_layer(e, &half.o, 1));
        T_STATUS_OK(export_layer_done(e, 1, "row", 3, NULL, 0));
        T_STATUS_OK(export_commit(e, &bytes));
        export_close(e);
        T_OK(are_same(ref_path("whole"), ref_path("out")) && bytes > 20000);
        T_OK(!there(ref_path("out.partial")));
        run_end(&half);
        run_end(&whole);
    }
}

/* Layers of a run without text take less time than noting them: the next note tells of all. */
TEST(layers_may_be_noted_together)
{
    Run     r;
    Export *e;
    size_t  bytes;
    T_STATUS_OK(run_begin(&r, ref_path("together")));
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    for (int layer = -1; layer < 2; layer++)
        T_STATUS_OK(ref_export_layer(e, &r.o, layer));
    T_STATUS_OK(export_layer_done(e, 1, NULL, 0, NULL, 0));
    export_close(e);
    r.o.resume = true;
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    T_OK(export_layers_done(e) == 2);
    T_OK(export_has(e, "model.layers.0.mlp.up_proj.weight"));
    T_OK(export_has(e, "model.layers.1.mlp.up_proj.weight"));
    T_STATUS_OK(export_commit(e, &bytes));
    export_close(e);
    run_end(&r);
}

TEST(a_run_with_other_settings_does_not_go_on)
{
    Run     r;
    Export *e;
    T_STATUS_OK(run_begin(&r, ref_path("other")));
    T_STATUS_OK(stop_halfway(&r, false));
    T_FAILS(export_open(&e, &r.a, &r.o), ERR_USAGE, "holds layers of a run that was stopped");
    r.o.resume = true;
    r.o.settings = "w8";
    T_FAILS(export_open(&e, &r.a, &r.o), ERR_USAGE, "begun with \"w4\", now it is \"w8\"");
    r.o.settings = "w4";
    r.o.shard_bytes = 10000;
    T_FAILS(export_open(&e, &r.a, &r.o), ERR_IO, "other.partial/model-");
    r.o.shard_bytes = 20000;
    r.plan.scheme.asym = false;
    T_FAILS(export_open(&e, &r.a, &r.o), ERR_USAGE, "tensors, now there are");
    r.plan.scheme.asym = true;
    r.plan.scheme.group = 0;
    T_OK(export_open(&e, &r.a, &r.o) != OK);
    r.plan.scheme.group = 32;
    /* the same run finds all as it was */
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    T_OK(export_layers_done(e) == 1);
    export_close(e);
    struct utimbuf time = {1000, 1000};
    T_OK(utime(ref_path("source/model-00001-of-00002.safetensors"), &time) == 0);
    T_FAILS(export_open(&e, &r.a, &r.o), ERR_USAGE, "the source's files are not those");
    /* and may be thrown away */
    r.o.resume = false;
    r.o.overwrite = true;
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    T_OK(export_layers_done(e) == 0 && !export_has(e, "model.norm.weight"));
    export_close(e);
    T_OK(!there(ref_path("other.partial")) && !there(ref_path("other")));
    run_end(&r);
}

TEST(resume_begins_where_nothing_is_there)
{
    Run     r;
    Export *e;
    T_STATUS_OK(run_begin(&r, ref_path("begin")));
    r.o.resume = true;
    T_STATUS_OK(export_open(&e, &r.a, &r.o));
    T_OK(export_layers_done(e) == 0);
    Export *other;
    T_FAILS(export_open(&other, &r.a, &r.o), ERR_USAGE, "another run is writing it");
    T_OK(there(ref_path("begin.partial")));
    export_close(e);
    T_OK(!there(ref_path("begin.partial")));  // no layer was done: nothing to resume
    run_end(&r);
}

/* --- failures on the way --- */

/* A finished checkpoint is there; whatever fails, it is there after. */
TEST(every_allocation_may_fail)
{
    Run r;
    T_STATUS_OK(run_begin(&r, ref_path("memory")));
    T_STATUS_OK(ref_export(&r.a, &r.o));
    char copy[700];
    snprintf(copy, sizeof copy, "cp -r '%s' '%s'", ref_path("memory"), ref_path("kept"));
    T_OK(system(copy) == 0);
    r.o.overwrite = true;
    Status  s = ERR_MEMORY;
    int64_t k = 0;
    while (s != OK) {
        Arena a = {0};
        arena_fail_at(++k);
        s = ref_export(&a, &r.o);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(k % 10 || are_same(ref_path("memory"), ref_path("kept")));
        arena_close(&a);
        k += k > 100 ? 9 : 0;  // what comes late comes often
    }
    T_OK(k > 100 && are_same(ref_path("memory"), ref_path("kept")));
    T_OK(!there(ref_path("memory.partial")));
    run_end(&r);
}

/* Files may grow to so many bytes only, as on a disk that fills up. */
TEST(every_write_may_fail)
{
    Run           r;
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    T_OK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    T_STATUS_OK(run_begin(&r, ref_path("full")));
    r.o.shard_bytes = 20000;
    char *big = malloc(60001);  // carried over: the last large file
    memset(big, ' ', 60000);
    big[60000] = 0;
    ref_write_text(ref_path("source/README.md"), big);
    free(big);
    int failed = 0;
    for (rlim_t limit = 0; limit <= 64000; limit += 4000) {
        small = (struct rlimit){limit, old.rlim_max};
        T_OK(setrlimit(RLIMIT_FSIZE, &small) == 0);
        Status s = ref_export(&r.a, &r.o);
        setrlimit(RLIMIT_FSIZE, &old);
        T_OK(s == (limit < 60000 ? ERR_IO : OK));
        T_OK(s == OK || (strstr(status_text(), "File too large") && !there(ref_path("full"))));
        failed += s != OK;
        r.o.overwrite = true;  // of layers that were done before the failure
    }
    T_OK(failed == 15 && there(ref_path("full/README.md")));
    run_end(&r);
    unlink(ref_path("source/README.md"));
}
