/* cli_quantize.c - diffquant quantize: reads the options, cuts the text, runs, and
 * tells what came of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/perplexity.h"
#include "kernels/clock.h"
#include "kernels/outfile.h"
#include "kernels/size.h"
#include "quant/quantize.h"
#include "reports/cli/verbs.h"
#include "reports/h5.h"

enum { WINDOWS = 128, CHECK_WINDOWS = 128 };

/* Text to calibrate on, text to check with; n == 0 where there is none. */
typedef struct {
    Arena       arena;
    Windows     calibration, check;
    const char *name, *check_name;
} Texts;

typedef struct {
    QuantizeOptions o;
    QuantizeResult  r;
    Texts           texts;
    Perplexity      before, after;   // n_tokens 0: not measured
    double          seconds;
} Job;

/* --- options --- */

/* The largest usual group that divides every row that is coded. */
static int group_of(const ModelInfo *info)
{
    for (int group = 128; group >= 32; group /= 2) {
        int64_t i = 0;
        while (i < info->n_tensors && !(info->tensors[i].quantizable &&
                                        info->tensors[i].view.shape[1] % group))
            i++;
        if (i == info->n_tensors)
            return group;
    }
    return 0;
}

static Status usual_group(int *group, const char *model)
{
    Arena     scratch = {0};
    ModelInfo info = {0};
    Status    s = model_info_open(&info, &scratch, model);
    if (s == OK)
        *group = group_of(&info);
    model_info_close(&info);
    arena_close(&scratch);
    return s;
}

static bool is_int8(const QuantizeOptions *o)
{
    return strcmp(o->format, "int8") == 0;
}

static Method method_of(const Settings *s)
{
    Method m = METHOD_RTN;
    while (s->method && strcmp(s->method, method_name(m)) != 0)
        m++;
    return s->method ? m : s->texts.n ? METHOD_GPTQ : METHOD_CLIP;
}

static Status set_scheme(QuantizeOptions *o, const Settings *s)
{
    int bits = s->bits ? atoi(s->bits) : is_int8(o) ? 8 : 4;
    o->scheme = (Scheme){.bits = bits == 16 ? 0 : bits, .asym = s->asym,
                         .method = method_of(s), .scale = DTYPE_F16};
    if (s->group)
        o->scheme.group = strcmp(s->group, "channel") == 0 ? 0 : atoi(s->group);
    else if (bits < 8)
        TRY(usual_group(&o->scheme.group, o->model));
    return OK;
}

/* An option that would not be looked at is a slip of the pen: first those that want a text,
 * then those that do not go together. */
static Status check_read(const Settings *s)
{
    bool        calibrated = s->texts.n > 0, cut = calibrated || s->check;
    const char *idle = !calibrated && s->windows ? "windows" :
                       !calibrated && s->damp > 0 ? "damp" :
                       !cut && s->max_tokens ? "max-tokens" :
                       !cut && s->context ? "context" : !cut && s->bos ? "bos" : NULL;
    if (idle)
        FAIL(ERR_USAGE, "--%s says nothing without --text", idle);
    return OK;
}

static Status check_together(const QuantizeOptions *o, const Settings *s)
{
    bool        gguf = strcmp(o->format, "gguf") == 0;
    const char *idle = s->group ? "group" : s->asym ? "asym" : s->method ? "method" :
                       s->wide6 ? "wide6" : s->floats ? "floats" : NULL;
    if (gguf && idle)
        FAIL(ERR_USAGE, "--%s does not go with gguf, whose --gguf-type says it all", idle);
    if (s->gguf_type && !gguf)
        FAIL(ERR_USAGE, "--gguf-type goes with --format gguf, or --out FILE.gguf");
    if (s->gguf_type && s->bits)
        FAIL(ERR_USAGE, "--bits and --gguf-type exclude each other");
    if (s->bits && (s->target_bits > 0 || s->size > 0))
        FAIL(ERR_USAGE, "--bits and --target-%s exclude each other: --scheme gives matrices "
             "bits that the budget leaves", s->size > 0 ? "size" : "bits");
    return OK;
}

static Status set_rules(QuantizeOptions *o, Session *se)
{
    const TextList *list = &se->s.schemes;
    SchemeRule     *rules;
    ARENA_NEW(rules, &se->arena, list->n);
    for (int i = 0; i < list->n; i++) {
        const char *equals = strrchr(list->at[i], '=');
        if (!equals || equals == list->at[i])
            FAIL(ERR_USAGE, "--scheme \"%.60s\": expected PATTERN=SPEC, as '*down_proj*=w8'",
                 list->at[i]);
        rules[i].pattern = arena_text(&se->arena, list->at[i], (size_t)(equals - list->at[i]));
        if (!rules[i].pattern)
            FAIL(ERR_MEMORY, "out of memory for --scheme");
        TRY(scheme_parse(&rules[i].scheme, equals + 1));
        if (rules[i].scheme.scale != DTYPE_F16)
            FAIL(ERR_USAGE, "--scheme \"%.60s\": scales are stored as all floats, and --floats "
                 "says how", list->at[i]);
    }
    o->rules = rules;
    o->n_rules = list->n;
    return OK;
}

static const char *format_of(const Settings *s)
{
    size_t n = strlen(s->out);
    if (s->format)
        return s->format;
    return n > 5 && strcmp(s->out + n - 5, ".gguf") == 0 ? "gguf" : "compressed-tensors";
}

static Status set_options(Job *j, Session *se)
{
    const Settings  *s = &se->s;
    QuantizeOptions *o = &j->o;
    if (!s->out)
        FAIL(ERR_USAGE, "quantize needs --out, where the checkpoint goes");
    *o = (QuantizeOptions){
        .model = s->inputs.at[0], .out = s->out, .format = format_of(s),
        .gguf_type = s->gguf_type, .target_bits = s->target_bits, .target_bytes = s->size,
        .rotate = s->rotate,
        .awq = s->awq, .smooth = s->smooth, .seed = (uint64_t)s->seed, .damp = s->damp,
        .products = session_dtype(se), .dtype = session_floats(se), .wide6 = s->wide6,
        .note_seconds = 2,
        .resume = s->resume, .overwrite = s->force,
        .requantize = s->requantize, .progress = &se->progress,
    };
    TRY(check_read(s));
    TRY(check_together(o, s));
    TRY(set_rules(o, se));
    return set_scheme(o, s);
}

/* --- texts --- */

static Status cut(Windows *w, const char **name, Session *se, Arena *a, Tokenizer *t,
                  const TextList *files, int64_t context)
{
    TextBuf       text;
    WindowOptions o = {.context = context, .max_tokens = se->s.max_tokens,
                       .no_bos = se->s.bos && strcmp(se->s.bos, "none") == 0};
    TRY(session_text(&text, name, se, a, files));
    return windows_from_text(w, a, t, *name, text.at, text.n, &o);
}

/* The first windows to calibrate on; what follows, or --check, to check with. */
static Status cut_texts(Texts *x, Session *se, Tokenizer *t, int64_t context)
{
    const Settings *s = &se->s;
    int64_t         most = s->windows ? s->windows : WINDOWS, n = 0;
    Windows         all;
    if (s->texts.n) {
        TRY(cut(&all, &x->name, se, &x->arena, t, &s->texts, context));
        n = i64_min(most, all.seq.n);
        TRY(windows_slice(&x->calibration, &x->arena, &all, 0, n));
    }
    if (s->check) {
        TextList one = {.n = 1, .at = {s->check}};
        return cut(&x->check, &x->check_name, se, &x->arena, t, &one, context);
    }
    if (!s->texts.n || n == all.seq.n)
        return OK;
    x->check_name = arena_printf(&se->arena, "%s after its first %lld windows", x->name,
                                 (long long)n);
    if (!x->check_name)
        FAIL(ERR_MEMORY, "out of memory for the name of a text");
    return windows_slice(&x->check, &x->arena, &all, n,
                         i64_min(CHECK_WINDOWS, all.seq.n - n));
}

static Status open_texts(Texts *x, Session *se)
{
    Arena      scratch = {0};
    ModelInfo  info = {0};
    Tokenizer *t = NULL;
    Status     s = OK;
    if (!se->s.texts.n && !se->s.check)
        return OK;
    GUARD(model_info_open(&info, &scratch, se->s.inputs.at[0]));
    GUARD(session_tokenizer(&t, se, &scratch, info.path));
    GUARD(session_fits(info.path, t, &info.config));
    session_say_context(se, info.path, &info.config);
    GUARD(cut_texts(x, se, t, session_context(se, &info.config)));
out:
    tokenizer_close(t);
    model_info_close(&info);
    arena_close(&scratch);
    return s;
}

/* --- perplexity, before and after --- */

static Status measure(Perplexity *p, Session *se, const char *path, const Windows *w,
                      const char *what)
{
    Loaded l;
    TRY(loaded_open(&l, se, path, "fp", false));
    Scorer sc = {.model = &l.model, .quant = model_run(&l.model, (RunQuant){.bits = 16}),
                 .progress = &se->progress, .what = what, .total = w->n_tokens};
    Status s = perplexity_run(p, &sc, w);
    loaded_close(&l);
    return s;
}

/* --- the run --- */

static void draw_layers(void *context, int64_t done, int64_t total, const char *what)
{
    bar_show(context, what, "layers", done, total);
}

static Status quantize(Job *j, Session *se)
{
    Backend  be;
    Progress layers = {draw_layers, &se->bar};
    double   began = clock_seconds();
    TRY(session_backend(&be, se));
    j->o.backend = &be;
    j->o.progress = &layers;
    if (j->texts.calibration.seq.n) {
        j->o.text = &j->texts.calibration.seq;
        j->o.text_name = j->texts.name;
    }
    Status s = quantize_run(&j->r, &se->arena, &j->o);
    backend_close(&be);
    j->seconds = clock_seconds() - began;
    return s;
}

/* A report without the figure that was asked for says why. */
static Status note_unchecked(Job *j, Session *se)
{
    if (!j->texts.calibration.seq.n || j->texts.check.seq.n)
        return OK;
    j->r.notes = arena_printf(&se->arena, "%sNo text is left after the %lld windows to calibrate "
                              "on, so perplexity was not measured: give --check FILE or fewer "
                              "--windows.\n", j->r.notes,
                              (long long)j->texts.calibration.seq.n);
    return j->r.notes ? OK : STATUS(ERR_MEMORY, "out of memory for a note");
}

static Status run(Job *j, Session *se)
{
    TRY(set_options(j, se));
    TRY(quantize_check(&j->o, se->s.texts.n > 0));
    TRY(open_texts(&j->texts, se));
    const Windows *w = &j->texts.check;
    if (w->seq.n)
        TRY(measure(&j->before, se, j->o.model, w, "perplexity before"));
    TRY(quantize(j, se));
    if (w->seq.n)
        TRY(measure(&j->after, se, j->o.out, w, "perplexity after"));
    return note_unchecked(j, se);
}

/* --- what came of it --- */

static Status fill_set(SeriesSet *set, Session *se, const Job *j)
{
    series_set_init(set, &se->arena, "quantize");
    TRY(quantize_series(&j->r, set));
    TRY(series_attr_text(set, "quant_model", j->o.model));
    TRY(series_attr_text(set, "quant_out", j->o.out));
    TRY(series_attr_text(set, "quant_format", j->o.format));
    TRY(series_attr_text(set, "quant_text", j->texts.name ? j->texts.name : ""));
    TRY(series_attr_int(set, "quant_windows", j->texts.calibration.seq.n));
    TRY(series_attr_int(set, "quant_tokens", j->texts.calibration.n_tokens));
    if (!j->before.n_tokens)
        return OK;
    TRY(series_attr_text(set, "quant_check", j->texts.check_name));
    TRY(series_attr_real(set, "quant_perplexity_before", j->before.perplexity));
    return series_attr_real(set, "quant_perplexity_after", j->after.perplexity);
}

static void print_summary(const Job *j)
{
    char before[32], after[32], weights[32];
    printf("\n%s weights in %.3f bits each, scales included. All tensors: %s bytes, before %s "
           "(%.2f times as many).\n", textbuf_count(weights, j->r.n_weights), j->r.bits,
           textbuf_count(after, (int64_t)j->r.bytes_after),
           textbuf_count(before, (int64_t)j->r.bytes_before),
           (double)j->r.bytes_before / (double)j->r.bytes_after);
    if (j->before.n_tokens)
        printf("Perplexity %s, before %s (%+.2f %%), over %lld predictions of %s. %s\n",
               textbuf_value(after, j->after.perplexity),
               textbuf_value(before, j->before.perplexity),
               100 * (j->after.perplexity / j->before.perplexity - 1),
               (long long)j->before.n_tokens, j->texts.check_name, j->texts.check.convention);
    printf("%.1f s. Wrote %s\n", j->seconds, j->o.out);
}

static void json_real(TextBuf *b, const char *key, double value)
{
    textbuf_printf(b, ", \"%s\": ", key);
    textbuf_json_real(b, value);
}

static Status print_json(Session *se, const Job *j)
{
    TextBuf b;
    textbuf_init(&b, &se->arena);
    textbuf_printf(&b, ", \"weights\": %lld, \"bytes_before\": %zu, \"bytes_after\": %zu",
                   (long long)j->r.n_weights, j->r.bytes_before, j->r.bytes_after);
    json_real(&b, "bits", j->r.bits);
    json_real(&b, "perplexity_before", j->before.n_tokens ? j->before.perplexity : NAN);
    json_real(&b, "perplexity_after", j->before.n_tokens ? j->after.perplexity : NAN);
    json_real(&b, "seconds", j->seconds);
    textbuf_add(&b, ", \"format\": ");
    textbuf_json(&b, j->o.format);
    textbuf_add(&b, ", \"notes\": ");
    textbuf_json(&b, j->r.notes);
    textbuf_add(&b, ", \"out\": ");
    textbuf_json(&b, j->o.out);
    TRY(textbuf_status(&b));
    printf("%s}\n", b.at);
    return OK;
}

static Status show(Session *se, const Job *j, const SeriesSet *set)
{
    Table t;
    TRY(table_quantized(&t, &se->arena, set));
    bar_clear(&se->bar);
    if (se->s.json) {
        printf("{");
        TRY(session_table(se, "matrices", &t));
        return print_json(se, j);
    }
    TRY(session_table(se, "matrices", &t));
    print_summary(j);
    return OK;
}

Status verb_quantize(Session *se)
{
    Job       j = {0};
    SeriesSet set, root;
    if (se->s.stats)
        TRY(outfile_try(&se->arena, se->s.stats));
    Status s = run(&j, se);
    if (s == OK)
        s = fill_set(&set, se, &j);
    if (s == OK)
        s = show(se, &j, &set);
    if (s == OK && *j.r.notes)
        session_say(se, "%.*s", (int)strlen(j.r.notes) - 1, j.r.notes);
    if (s == OK && se->s.stats) {
        s = session_root(&root, se, "cpu");
        if (s == OK)
            s = h5_write(&se->arena, se->s.stats, &set, 1, &root);
    }
    arena_close(&j.texts.arena);
    return s;
}
