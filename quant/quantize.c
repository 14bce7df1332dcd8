/* quantize.c - the run from one end to the other. */
#include "quant/quantize.h"

#include <math.h>
#include <string.h>

#include "kernels/clock.h"
#include "kernels/size.h"
#include "quant/convert.h"
#include "quant/run/run.h"

/* --- setting up --- */

static Status format_of(ExportFormat *out, const char *name)
{
    static const char *const NAMES[N_FORMATS] = {"compressed-tensors", "int8", "gptq"};
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *out = (ExportFormat)i;
            return OK;
        }
    FAIL(ERR_USAGE, "--format: \"%.40s\" is none of compressed-tensors, gptq, int8, gguf", name);
}

static Status check_options(const Run *r)
{
    const QuantizeOptions *o = r->o;
    if (o->target_bits > 0 && o->target_bytes > 0)
        FAIL(ERR_USAGE, "--target-bits and --target-size exclude each other");
    if ((o->awq || o->smooth > 0) && !r->calibrated)
        FAIL(ERR_USAGE, "--%s needs a text to calibrate on: give --text",
             o->awq ? "awq" : "smooth");
    return OK;
}

/* Quantizing twice loses twice: only where it is asked for. */
static Status check_source(const Run *r)
{
    const ModelInfo *info = &r->layers.info;
    for (int64_t i = 0; i < info->n_tensors; i++) {
        char format[32];
        if (info->quantization && info->tensors[i].packed && !r->o->requantize)
            FAIL(ERR_USAGE, "%s: tensor %s is quantized already (%s); give --requantize to "
                 "quantize what it decodes to", info->path, info->tensors[i].name,
                 model_tensor_format(&info->tensors[i], format));
    }
    return OK;
}

static void warn_short(Run *r)
{
    const ModelConfig *c = &r->layers.info.config;
    int64_t rows = r->o->text->start[r->o->text->n];
    int64_t widest = i64_max(i64_max(c->inter, c->hidden),
                             i64_max(model_out_width(c), c->inner));
    if (rows < widest)
        textbuf_printf(&r->notes, "The calibration text has %lld tokens, fewer than the %lld "
                       "inputs of the widest matrix: what it does not show is left to damping. "
                       "Give more text.\n", (long long)rows, (long long)widest);
}

/* hidden: the embeddings, turned where the model is. */
static Status calibration_start(Run *r, bool again)
{
    if (again)
        TRY(calibration_restart(&r->calibration));
    else
        TRY(calibration_open(&r->calibration, r->a, &r->model, r->o->text));
    r->calibration.progress = r->o->progress;
    if (!r->o->rotate)
        return OK;
    return rotate_embed(r->calibration.hidden, r->o->text->start[r->o->text->n], &r->r1,
                        &r->scratch);
}

static Status set_up_rotation(Run *r)
{
    if (r->o->rotate || (r->o->awq && r->scales_values))
        TRY(valuemap_of(&r->values, r->a, &r->layers));
    if (!r->o->rotate)
        return OK;
    TRY(rotation_init(&r->r1, r->a, r->layers.info.config.hidden, r->o->seed));
    if (!r->values.paired)
        textbuf_add(&r->notes, "Values are not rotated: their heads do not pair up.\n");
    return OK;
}

/* What would stop the run at its end stops it here. */
static Status check_out(Run *r)
{
    const QuantizeOptions *o = r->o;
    if (strcmp(o->format, "gguf") == 0)
        return run_gguf_check(r);
    TRY(format_of(&r->format, o->format));
    if ((o->target_bits > 0 || o->target_bytes > 0) && r->format != FORMAT_COMPRESSED)
        FAIL(ERR_USAGE, "--format %s holds one width for all matrices: --target-bits and "
             "--target-size need compressed-tensors", o->format);
    ExportOptions e = run_export_options(r);
    return export_check(r->a, &e);
}

/* All that can be known without work. */
static Status set_up(Run *r)
{
    const QuantizeOptions *o = r->o;
    TRY(check_options(r));
    TRY(layers_open(&r->layers, r->a, o->model));
    TRY(check_source(r));
    const ModelInfo *info = &r->layers.info;
    r->dtype = o->dtype == N_DTYPES ? info->stored : o->dtype;
    ARENA_NEW(r->figures, r->a, info->config.n_layers * N_WEIGHTS);
    TRY(plan_init(&r->plan, r->a, "fp"));
    TRY(run_plan(r));
    TRY(run_transforms_check(r));
    return check_out(r);
}

/* What stood in for config.json is a config.json of OUT: its readers see no guess in it. */
static void note_layout(Run *r)
{
    const ModelInfo *info = &r->layers.info;
    if (!info->layout)
        return;
    textbuf_printf(&r->notes, "config.json is made from layout %s.\n", info->layout);
    textbuf_printf(&r->notes, "transformers has no class for %s: %s\n", info->arch,
                   convert_refusal(info) ? "OUT is for programs that know its tensors' names."
                                         : "what it is to load is made by convert first, and "
                                           "quantized then.");
}

static Status begin(Run *r)
{
    const QuantizeOptions *o = r->o;
    note_layout(r);
    TRY(set_up_rotation(r));
    if (!r->calibrated)
        return OK;
    warn_short(r);
    if (r->without_inputs)
        textbuf_add(&r->notes, "Matrices inside of Mamba layers (x_proj, dt_proj) get the "
                    "range of least error (clip), not GPTQ: their inputs are not gathered.\n");
    TRY(layers_model(&r->model, r->a, o->backend, &r->layers, o->products));
    return calibration_start(r, false);
}

/* --- a folder of safetensors --- */

/* FNV-1a, 64 bits, of the tokens and where windows begin: a text of the same name and
 * length may be another. */
static uint64_t text_print(const Sequences *text)
{
    uint64_t print = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < text->n; i++) {
        print = (print ^ (uint64_t)text->start[i]) * 0x100000001b3u;
        for (int64_t t = text->start[i]; t < text->start[i + 1]; t++)
            print = (print ^ (uint64_t)text->ids[t]) * 0x100000001b3u;
    }
    return print;
}

/* What a resumed run must have in common with the one it goes on with. */
static const char *settings_line(Run *r)
{
    const QuantizeOptions *o = r->o;
    TextBuf                b;
    char                   scheme[SCHEME_TEXT];
    textbuf_init(&b, r->a);
    textbuf_printf(&b, "%s %s %s", r->layers.info.path, o->format, dtype_name(r->dtype));
    for (int64_t i = 0; i < r->plan.n; i++)
        textbuf_printf(&b, " %s", scheme_text(&r->plan.at[i].scheme, scheme));
    textbuf_printf(&b, " rotate %d seed %llu awq %d smooth %g damp %g wide %d", o->rotate,
                   (unsigned long long)o->seed, o->awq, o->smooth, o->damp, o->wide6);
    if (o->products != DTYPE_F32)
        textbuf_printf(&b, " products %s", dtype_name(o->products));
    if (o->text)
        textbuf_printf(&b, " text %s %lld windows %lld tokens %016llx", o->text_name,
                       (long long)o->text->n, (long long)o->text->start[o->text->n],
                       (unsigned long long)text_print(o->text));
    return textbuf_status(&b) == OK ? b.at : NULL;
}

ExportOptions run_export_options(const Run *r)
{
    const QuantizeOptions *o = r->o;
    return (ExportOptions){
        .path = o->out, .format = r->format, .wide6 = o->wide6, .source = &r->layers,
        .plan = &r->plan, .dtype = r->dtype, .own_dtypes = o->dtype == N_DTYPES,
        .untie = o->rotate && r->layers.info.config.tied,
        .act_order = o->scheme.method == METHOD_GPTQ, .damp = o->damp > 0 ? o->damp : 0.01,
        .resume = o->resume, .overwrite = o->overwrite,
    };
}

static Status open_export(Run *r)
{
    ExportOptions e = run_export_options(r);
    e.settings = settings_line(r);
    if (!e.settings)
        FAIL(ERR_MEMORY, "out of memory for the settings of a run");
    TRY(export_open(&r->export, r->a, &e));
    if (export_note(r->export))
        textbuf_printf(&r->notes, "%s\n", export_note(r->export));
    return OK;
}

/* Takes up a run that was broken off: figures and hidden states after its last layer. */
static Status take_up(Run *r)
{
    const ModelConfig *c = &r->layers.info.config;
    int64_t            done = export_layers_done(r->export);
    if (done == 0)
        return OK;
    TRY(export_kept(r->export, r->figures,
                    (size_t)(c->n_layers * N_WEIGHTS) * sizeof *r->figures,
                    r->calibration.hidden, (size_t)r->calibration.n_kept));
    r->done += done;
    return OK;
}

static Status write_folder(Run *r, size_t *bytes)
{
    int64_t L = r->layers.info.config.n_layers;
    bool    target = r->o->target_bits > 0 || r->o->target_bytes > 0;
    r->total = target ? 2 * L : L;
    if (target) {
        TRY(run_target(r));
        if (r->calibrated)
            TRY(calibration_start(r, true));
    }
    TRY(open_export(r));
    TRY(take_up(r));
    r->noted = clock_seconds();
    for (int64_t l = export_layers_done(r->export); l < L; l++)
        TRY(run_layer(r, l));
    TRY(run_rest(r));
    return export_commit(r->export, bytes);
}

/* --- the result --- */

static Status fill_row(QuantizeRow *row, const Run *r, const LayerMatrix *m,
                       const MatrixFigures *f)
{
    const Scheme *s = run_scheme(r, m->name);
    char          text[SCHEME_TEXT];
    Scheme        shown = *s, stored = *s;
    bool          wide = r->o->wide6 && s->bits == 6;
    shown.scale = DTYPE_F16;  // all have the checkpoint's: no need to say it in each row
    stored.bits = wide ? 8 : s->bits;
    *row = (QuantizeRow){
        .name = m->name, .n = m->n, .k = m->k, .damp = f->damp, .n_dead = f->n_dead,
        .bits = s->bits ? scheme_bits(&stored, m->k) : 8.0 * (double)dtype_size(r->dtype),
        .weight_error = round_error(&f->weight),
        .output_error = f->measured ? round_error(&f->output) : NAN,
    };
    row->format = s->bits ? arena_printf(r->a, "%s%s", scheme_text(&shown, text),
                                         wide ? " in 8" : "")
                          : dtype_name(r->dtype);
    return row->format ? OK : STATUS(ERR_MEMORY, "out of memory for the result");
}

static Status add_row(QuantizeResult *out, const Run *r, const LayerMatrix *m,
                      const MatrixFigures *f)
{
    QuantizeRow *row = &out->rows[out->n_rows++];
    TRY(fill_row(row, r, m, f));
    if (!run_scheme(r, m->name)->bits)
        return OK;
    out->bits += row->bits * (double)(row->n * row->k);
    out->n_weights += row->n * row->k;
    return OK;
}

static Status fill_result(QuantizeResult *out, const Run *r)
{
    const ModelConfig *c = &r->layers.info.config;
    LayerMatrix        head = run_head(r);
    ARENA_NEW(out->rows, r->a, c->n_layers * N_WEIGHTS + 1);
    for (int64_t l = 0; l < c->n_layers; l++) {
        LayerWeights w;
        layers_describe(&w, &r->layers, l);
        for (int kind = 0; kind < N_WEIGHTS; kind++)
            if (w.at[kind].name && !w.at[kind].float_only)
                TRY(add_row(out, r, &w.at[kind], &r->figures[l * N_WEIGHTS + kind]));
    }
    if (run_codes_head(r))
        TRY(add_row(out, r, &head, &r->head));
    if (out->n_weights)
        out->bits /= (double)out->n_weights;
    return OK;
}

static Status run(Run *r, QuantizeResult *out)
{
    TRY(set_up(r));
    TRY(begin(r));
    out->bytes_before = r->layers.info.n_bytes;
    if (strcmp(r->o->format, "gguf") == 0) {
        r->total = r->calibrated ? r->layers.info.config.n_layers : 0;
        TRY(run_gguf(r, out));
    } else {
        TRY(write_folder(r, &out->bytes_after));
        TRY(fill_result(out, r));
    }
    TRY(textbuf_status(&r->notes));
    out->notes = r->notes.at;
    return OK;
}

Status quantize_check(const QuantizeOptions *o, bool with_text)
{
    Arena  a = {0};
    Run    r = {.o = o, .a = &a, .calibrated = with_text};
    textbuf_init(&r.notes, &a);
    Status s = set_up(&r);
    layers_close(&r.layers);
    arena_close(&r.scratch);
    arena_close(&a);
    return s;
}

Status quantize_run(QuantizeResult *out, Arena *a, const QuantizeOptions *o)
{
    Run r = {.o = o, .a = a, .calibrated = o->text != NULL};
    r.scratch.keep = true;  // each layer takes what the one before it took
    *out = (QuantizeResult){0};
    textbuf_init(&r.notes, a);
    Status s = run(&r, out);
    export_close(r.export);
    layers_close(&r.layers);
    arena_close(&r.scratch);
    return s;
}

void run_step(Run *r, const char *what)
{
    r->done++;
    if (r->o->progress)
        r->o->progress->step(r->o->progress->context, r->done, r->total, what);
}
