/* cli_analyze.c - diffquant analyze: one model, one text, all statistics. */
#include <stdio.h>
#include <string.h>

#include "analysis/analyze.h"
#include "kernels/clock.h"
#include "kernels/size.h"
#include "reports/cli/verbs.h"
#include "reports/h5.h"
#include "kernels/outfile.h"

typedef struct {
    SeriesSet  set;
    Perplexity perplexity;
    double     seconds;
    const char *device;
    int64_t    n_tokens;
    const char *convention;
} Result;

static Status run(Result *r, Session *se, Loaded *l)
{
    Windows   w;
    LogitBits bits;
    AnalyzeOptions o = {
        .record = !se->s.no_record,
        .no_loss = se->s.no_loss,
        .maps_layer = se->s.maps_layer >= 0 ? se->s.maps_layer : MAPS_LARGEST,
        .progress = &se->progress,
    };
    TRY(session_layer(se, l->model.path, &l->model.config));
    TRY(session_bits(&bits, se, "16"));
    if (bits.n != 1)
        FAIL(ERR_USAGE, "--logit-bits: analyze takes one number, %d came", bits.n);
    o.quant = model_run(&l->model, (RunQuant){.bits = bits.at[0], .scale = bits.scale});
    if (se->s.no_record || !se->s.out)
        o.maps_layer = MAPS_NONE;  // nobody sees them
    TRY(session_windows(&w, &o.text_name, se, l));
    const char *name = arena_printf(&se->arena, "%s", l->model.name);
    if (!name)
        FAIL(ERR_MEMORY, "out of memory for the name of %s", l->model.name);
    series_set_init(&r->set, &se->arena, name);
    double began = clock_seconds();
    TRY(analyze_run(&r->set, &r->perplexity, &l->model, l->tokenizer, &w, &o));
    r->seconds = clock_seconds() - began;
    r->device = arena_printf(&se->arena, "%s", l->backend.device);
    r->n_tokens = w.n_tokens;
    r->convention = arena_printf(&se->arena, "%s", w.convention);
    return r->device && r->convention ? OK : STATUS(ERR_MEMORY, "out of memory for a report");
}

static void print_run(const Result *r)
{
    char text[32];
    if (r->perplexity.n_tokens)
        printf("Perplexity %s (%lld predictions). %s\n",
               textbuf_value(text, r->perplexity.perplexity),
               (long long)r->perplexity.n_tokens, r->convention);
    printf("%lld tokens in %.2f s, %.0f tokens/s on %s.\n", (long long)r->n_tokens, r->seconds,
           (double)r->n_tokens / r->seconds, r->device);
}

static void print_run_json(const Result *r, TextBuf *b)
{
    textbuf_printf(b, ", \"tokens\": %lld, \"seconds\": ", (long long)r->n_tokens);
    textbuf_json_real(b, r->seconds);
    textbuf_add(b, ", \"perplexity\": ");
    textbuf_json_real(b, r->perplexity.perplexity);
    textbuf_printf(b, ", \"predictions\": %lld, \"device\": ",
                   (long long)r->perplexity.n_tokens);
    textbuf_json(b, r->device);
}

static Status print_all(Session *se, const Result *r)
{
    Table   outliers;
    TextBuf b;
    TRY(table_outliers(&outliers, &se->arena, &r->set, 1));
    textbuf_init(&b, &se->arena);
    if (!se->s.json) {
        if (outliers.n_rows) {
            TRY(session_table(se, "outliers", &outliers));
            session_silent_layers(&r->set, 1);
            printf("\n");
        }
        print_run(r);
        return OK;
    }
    printf("{");
    TRY(session_table(se, "outliers", &outliers));
    print_run_json(r, &b);
    TRY(textbuf_status(&b));
    printf("%s}\n", b.at);
    return OK;
}

Status verb_analyze(Session *se)
{
    Loaded    l;
    Result    r = {0};
    SeriesSet root;
    if (se->s.weights.n > 1)
        FAIL(ERR_USAGE, "--weights: analyze takes one kind, %d came", se->s.weights.n);
    if (se->s.out && se->s.no_record)
        FAIL(ERR_USAGE, "--no-record leaves nothing to write to --out");
    if (se->s.out)
        TRY(outfile_try(&se->arena, se->s.out));
    TRY(loaded_open(&l, se, se->s.inputs.at[0],
                    se->s.weights.n ? se->s.weights.at[0] : "fp", !se->s.tokens));
    Status s = run(&r, se, &l);
    loaded_close(&l);
    if (s != OK)
        return s;
    bar_clear(&se->bar);
    TRY(print_all(se, &r));
    if (!se->s.out)
        return OK;
    TRY(session_root(&root, se, r.device));
    TRY(h5_write(&se->arena, se->s.out, &r.set, 1, &root));
    session_say(se, "Wrote %s", se->s.out);
    return OK;
}
