/* analyze.c - one pass over the text with all records on, one over marked
 * episodes for the share of attention on an answer, one over a short passage
 * for whole maps. */
#include "analysis/analyze.h"

#include <math.h>
#include <string.h>

#include "analysis/textbuf.h"
#include "kernels/size.h"

static Status add_text(SeriesSet *set, const char *key, const char *text)
{
    const char *copy = arena_text(set->arena, text, strlen(text));
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory for attribute %s", key);
    return series_attr_text(set, key, copy);
}

/* "0, 2, 4": which layers have no attention, or other models would seem to have less. */
static Status add_silent_layers(SeriesSet *set, const ModelConfig *c)
{
    TextBuf b;
    bool    any = false;
    textbuf_init(&b, set->arena);
    for (int64_t l = 0; l < c->n_layers; l++)
        if (!model_attends(c, l)) {
            textbuf_printf(&b, "%s%lld", any ? ", " : "", (long long)l);
            any = true;
        }
    TRY(textbuf_status(&b));
    return any ? series_attr_text(set, "layers_without_logits", b.at) : OK;
}

static Status add_model(SeriesSet *set, const Model *m)
{
    const ModelConfig *c = &m->config;
    const struct {
        const char *key;
        int64_t     value;
    } NUMBERS[] = {
        {"params", m->n_params},    {"n_layers", c->n_layers},  {"n_heads", c->n_heads},
        {"n_groups", c->n_groups},  {"n_maps", c->n_maps},      {"head_dim", c->head_dim},
        {"hidden", c->hidden},      {"inter", c->inter},        {"vocab", c->vocab},
    };
    TRY(add_text(set, "model", m->name));
    TRY(add_text(set, "path", m->path));
    TRY(add_text(set, "arch", m->arch));
    TRY(add_text(set, "dtype", dtype_name(m->dtype)));
    TRY(add_text(set, "device", m->backend->device));
    TRY(add_text(set, "config", m->config_text));
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        TRY(series_attr_int(set, NUMBERS[i].key, NUMBERS[i].value));
    return add_silent_layers(set, c);
}

static Status add_run(SeriesSet *set, const Windows *w, const AnalyzeOptions *o)
{
    TRY(series_attr_int(set, "context", w->context));
    TRY(series_attr_int(set, "tokens", w->n_tokens));
    TRY(series_attr_int(set, "windows", w->seq.n));
    TRY(series_attr_int(set, "recorded_logit_bits", o->quant.bits));
    TRY(add_text(set, "convention", w->convention));
    return add_text(set, "text", o->text_name ? o->text_name : "");
}

static Status add_perplexity(SeriesSet *set, const Perplexity *p)
{
    TRY(series_attr_int(set, "predictions", p->n_tokens));
    TRY(series_attr_real(set, "nll", p->nll));
    return series_attr_real(set, "perplexity", p->perplexity);
}

/* Attention on the answers, from episodes: these records have only that in
 * common with the text's, so the rest of them is left behind. */
static Status measure_spans(Probe *into, Arena *a, Scorer *sc, const AnalyzeOptions *o)
{
    const Retrieval   *r = o->marked;
    const ModelConfig *c = &sc->model->config;
    Probe    probe = {0};
    uint8_t *correct = o->marked_correct;
    ARENA_NEW(probe.shares, a, c->n_layers * c->n_heads);
    if (!correct)
        ARENA_NEW(correct, a, r->n);
    sc->probe = &probe;
    sc->what = "attention to answers";
    sc->n_nan = 0;
    TRY(retrieval_run(r, sc, correct));
    if (o->marked_nan)
        *o->marked_nan = sc->n_nan;
    for (int64_t i = 0; i < c->n_layers * c->n_heads; i++) {
        ShareRecord       *to = &into->shares[i];
        const ShareRecord *from = &probe.shares[i];
        to->span_rows = from->span_rows;
        to->span[0] = from->span[0];
        to->span[1] = from->span[1];
        to->diff_span = from->diff_span;
    }
    return OK;
}

static int64_t layer_of_largest_logit(const Probe *p, const ModelConfig *c)
{
    int64_t best = 0;
    double  largest = -1;
    for (int64_t l = 0; p->logits && l < c->n_layers; l++)
        for (int64_t i = 0; i < c->n_heads * c->n_maps; i++) {
            double x = moments_absmax(&p->logits[l].moments[i]);
            if (x > largest) {
                largest = x;
                best = l;
            }
        }
    return best;
}

/* What stands under the map for one token; U+001F keeps them apart. */
static Status token_label(const char **out, Arena *a, Tokenizer *t, int32_t id)
{
    char *text;
    if (!t) {
        *out = arena_printf(a, "%d", id);
        return *out ? OK : STATUS(ERR_MEMORY, "out of memory for token %d", id);
    }
    TRY(tokenizer_decode(t, a, &id, 1, &text));
    for (char *c = text; *c; c++)
        if (*c == '\x1f')
            *c = ' ';
    *out = text[0] ? text : tokenizer_piece(t, id);  // special tokens decode to nothing
    return OK;
}

static Status add_labels(SeriesSet *set, Arena *a, Tokenizer *t, const int32_t *ids, int64_t n)
{
    const char **label;
    size_t       bytes = 1;
    ARENA_NEW(label, a, n);
    for (int64_t i = 0; i < n; i++) {
        TRY(token_label(&label[i], a, t, ids[i]));
        bytes += strlen(label[i]) + 1;
    }
    char *all, *at;
    ARENA_NEW(all, set->arena, (int64_t)bytes);
    at = all;
    for (int64_t i = 0; i < n; i++)
        at = stpcpy(stpcpy(at, i ? "\x1f" : ""), label[i]);
    return series_attr_text(set, "maps_tokens", all);
}

static Status add_series(SeriesSet *set, MapWindow *w, const ModelConfig *c)
{
    static const char *const MAPS[] = {"head", "map", "query", "key"};
    static const char *const DIFF[] = {"head", "query", "key"};
    int64_t S = w->n_positions;
    Series *out;
    TRY(series_add(set, &out, SERIES_F32, "maps/weights", "",
                   "Attention weights of one layer on one passage.", 4, MAPS,
                   (int64_t[]){c->n_heads, c->n_maps, S, S}));
    w->maps = out->data;
    if (c->n_maps < 2)
        return OK;
    TRY(series_add(set, &out, SERIES_F32, "maps/diff", "",
                   "Map 1 less lambda times map 2, on the same passage.", 3, DIFF,
                   (int64_t[]){c->n_heads, S, S}));
    w->diff = out->data;
    return OK;
}

/* One sequence, nothing to score: only the window is of interest. */
static Status run_passage(Scorer *sc, Arena *a, const int32_t *ids, int64_t n)
{
    int64_t  start[2] = {0, n};
    int32_t *targets, *best;
    float   *logprob;
    ARENA_NEW(targets, a, n);
    ARENA_NEW(best, a, n);
    ARENA_NEW(logprob, a, n);
    for (int64_t i = 0; i < n; i++)
        targets[i] = -1;
    Sequences s = {.n = 1, .start = start, .ids = ids, .targets = targets};
    return score_run(sc, &s, logprob, best);
}

static Status add_maps(SeriesSet *set, Arena *a, Scorer *sc, Tokenizer *t,
                       const Windows *w, const AnalyzeOptions *o)
{
    const ModelConfig *c = &sc->model->config;
    int64_t layer = o->maps_layer;
    int64_t n = o->passage ? o->n_passage : w->seq.start[1];
    const int32_t *ids = o->passage ? o->passage : w->seq.ids;
    if (layer == MAPS_LARGEST)
        layer = sc->probe ? layer_of_largest_logit(sc->probe, c) : 0;
    if (layer < 0 || layer >= c->n_layers)
        FAIL(ERR_RANGE, "maps of layer %lld: the model's layers are 0 to %lld",
             (long long)layer, (long long)c->n_layers - 1);
    if (n < 1)
        FAIL(ERR_RANGE, "the passage for the maps is empty");
    MapWindow window = {
        .n_positions = i64_min(n, o->maps_positions ? o->maps_positions : ANALYZE_MAPS),
    };
    TRY(add_series(set, &window, c));
    TRY(series_attr_int(set, "maps_layer", layer));
    TRY(add_labels(set, a, t, ids, window.n_positions));
    Probe  probe = {.window = &window, .window_layer = layer};
    Scorer passage = {.model = sc->model, .quant = sc->quant, .probe = &probe};
    return run_passage(&passage, a, ids, window.n_positions);
}

/* The layers alone: no token is asked for. */
static Status run_without_loss(Perplexity *p, Scorer *sc, Arena *a, const Windows *w)
{
    Sequences s = w->seq;
    int32_t  *targets, *best;
    float    *logprob;
    ARENA_NEW(targets, a, w->n_tokens);
    ARENA_NEW(best, a, w->n_tokens);
    ARENA_NEW(logprob, a, w->n_tokens);
    for (int64_t i = 0; i < w->n_tokens; i++)
        targets[i] = -1;
    s.targets = targets;
    *p = (Perplexity){.nll = NAN, .perplexity = NAN};
    return score_run(sc, &s, logprob, best);
}

static Status run_text(SeriesSet *set, Perplexity *p, Arena *a, Scorer *sc, const Windows *w,
                       const AnalyzeOptions *o)
{
    sc->what = o->record ? "recording" : "scoring";
    if (o->no_loss)
        return run_without_loss(p, sc, a, w);
    TRY(perplexity_run_windows(p, set->arena, sc, w));
    return add_perplexity(set, p);
}

static Status run(SeriesSet *set, Perplexity *p, Arena *a, Scorer *sc, Tokenizer *t,
                  const Windows *w, const AnalyzeOptions *o)
{
    Probe probe;
    if (o->record) {
        TRY(probe_init(&probe, a, sc->model, sequences_longest(&w->seq)));
        sc->probe = &probe;
    }
    TRY(run_text(set, p, a, sc, w, o));
    if (o->maps_layer != MAPS_NONE)
        TRY(add_maps(set, a, sc, t, w, o));
    if (!o->record)
        return OK;
    if (o->marked)
        TRY(measure_spans(&probe, a, sc, o));
    backend_trim(sc->model->backend);   // the series have its room
    return probe_series(&probe, sc->model, set);
}

Status analyze_describe(SeriesSet *set, const Model *m, const Windows *w,
                        const AnalyzeOptions *o)
{
    TRY(add_model(set, m));
    return w ? add_run(set, w, o) : OK;
}

Status analyze_run(SeriesSet *set, Perplexity *p, Model *m, Tokenizer *t, const Windows *w,
                   const AnalyzeOptions *o)
{
    bool   marked = o->record && o->marked;
    Arena  a = {0};
    Scorer sc = {
        .model = m,
        .quant = o->quant,
        .batch_tokens = o->batch_tokens,
        .progress = o->progress,
        .total = w->n_tokens + (marked ? o->marked->seq.start[o->marked->n] : 0),
    };
    TRY(analyze_describe(set, m, w, o));
    Status s = run(set, p, &a, &sc, t, w, o);
    arena_close(&a);
    return s;
}
