/* page.c - the sections of the page, in the order they are read. */
#include "reports/draw/page.h"

#include <stdio.h>
#include <string.h>

#include "reports/tables.h"

typedef struct {
    TextBuf             *b;
    Arena               *arena;
    const SeriesSet     *sets;
    int                  n_sets;
    const Figures       *figures;
    const ReportOptions *options;
    bool                 outliers;   // were recorded
} Page;

/* --- pieces --- */

static void figure(Page *p, const char *file)
{
    const Figure *f = figures_find(p->figures, file);
    if (!f)
        return;
    textbuf_printf(p->b, "<figure><div class=\"scroll\"><img width=\"%d\" height=\"%d\" "
                   "style=\"max-width:%dpx\" alt=\"", f->width, f->height, f->width);
    textbuf_html(p->b, f->alt);
    textbuf_add(p->b, "\" src=\"data:image/png;base64,");
    textbuf_base64(p->b, f->png.data, f->png.size);
    textbuf_add(p->b, "\"></div>\n<figcaption>");
    textbuf_html(p->b, f->caption);
    textbuf_add(p->b, "</figcaption></figure>\n");
}

static void table(Page *p, const Table *t)
{
    table_html(p->b, t);
    if (t->n_rows > 0 && t->warning) {
        textbuf_add(p->b, "<p class=\"note\"><strong>");
        textbuf_html(p->b, t->warning);
        textbuf_add(p->b, "</strong></p>\n");
    }
    if (t->n_rows > 0 && t->note) {
        textbuf_add(p->b, "<p class=\"note\">");
        textbuf_html(p->b, t->note);
        textbuf_add(p->b, "</p>\n");
    }
}

static void model_names(Page *p)
{
    for (int i = 0; i < p->n_sets; i++) {
        textbuf_add(p->b, i == 0 ? "" : i + 1 < p->n_sets ? ", " : " and ");
        textbuf_html(p->b, p->sets[i].model);
    }
}

static void title(Page *p)
{
    if (p->options->title) {
        textbuf_html(p->b, p->options->title);
        return;
    }
    textbuf_add(p->b, p->outliers ? "Outliers and low-bit attention: " : "Accuracy at few bits: ");
    model_names(p);
}

static const char *attr_text(const SeriesSet *set, const char *key)
{
    const Attr *attr = series_attr(set, key);
    return attr && attr->kind == ATTR_TEXT && attr->text[0] ? attr->text : NULL;
}

/* Does any model have two maps a head? */
static bool any_differential(const Page *p)
{
    for (int i = 0; i < p->n_sets; i++) {
        const Attr *maps = series_attr(&p->sets[i], "n_maps");
        if (maps && maps->kind == ATTR_INT && maps->integer == 2)
            return true;
    }
    return false;
}

/* --- sections --- */

static void head(Page *p)
{
    textbuf_add(p->b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    title(p);
    textbuf_add(p->b, "</title>\n<style>\n");
    textbuf_add(p->b, PAGE_STYLE);
    textbuf_add(p->b, "</style>\n</head>\n<body>\n<main>\n<h1>");
    title(p);
    textbuf_add(p->b, "</h1>\n");
}

static void lead(Page *p)
{
    char text[32];
    const Attr *tokens = series_attr(&p->sets[0], "tokens");
    if (!p->outliers) {
        textbuf_add(p->b, "<p class=\"lead\">What it costs ");
        model_names(p);
        textbuf_add(p->b, " to be rounded to a few bits.</p>\n");
        return;
    }
    textbuf_add(p->b, "<p class=\"lead\">What happens inside ");
    model_names(p);
    textbuf_add(p->b, p->n_sets > 1 ? " while they read" : " while it reads");
    if (tokens && tokens->kind == ATTR_INT)
        textbuf_printf(p->b, " %s tokens of text", textbuf_count(text, tokens->integer));
    else
        textbuf_add(p->b, " a text");
    textbuf_add(p->b, ": how large the largest values get, and what it costs to round them to "
                "a few bits.</p>\n");
}

static Status findings(Page *p)
{
    textbuf_add(p->b, "<ul class=\"findings\">\n");
    page_outlier_words(p->b, p->sets, p->n_sets);
    TRY(page_cost_words(p->b, p->arena, p->sets, p->n_sets));
    textbuf_add(p->b, "</ul>\n");
    return OK;
}

static void explanation(Page *p)
{
    textbuf_add(p->b,
        "<h2>What was measured</h2>\n"
        "<p>A 4-bit number can take 16 values (15 are used, as many below zero as above). To "
        "store a list of numbers so, they are divided "
        "by a common scale that lets the largest just fit, and rounded. One number much larger "
        "than the others, an <b>outlier</b>, makes the steps coarse for all of them.</p>\n");
    if (p->outliers)
        textbuf_add(p->b,
            "<p><b>Attention logits</b> say how strongly one token attends to another, before "
            "the softmax turns them into shares. <b>Hidden states</b> are what each layer hands "
            "to the next. For both, every value of the run was looked at as it was computed: "
            "the largest and their places, the median, and how often each size occurs.</p>\n");
    if (any_differential(p))
        textbuf_add(p->b,
            "<p>A <b>differential transformer</b> computes two attention maps a head and "
            "subtracts the second, times a learned <b>λ</b>, from the first. Its paper "
            "(arXiv 2410.05258) reports smaller outliers than a plain transformer of equal size "
            "has, and less loss at few bits.");
    if (any_differential(p))
        textbuf_add(p->b, p->n_sets > 1 ? " This page shows whether that holds for the models "
                                          "here.</p>\n"
                                        : " Whether that holds takes a plain model beside this "
                                          "one: <code>diffquant compare</code>.</p>\n");
}

static void definitions(Page *p)
{
    TextBuf list;
    textbuf_init(&list, p->arena);
    for (int i = 0; i < p->n_sets; i++)
        page_definition_words(&list, &p->sets[i]);
    if (list.n == 0)
        return;
    textbuf_add(p->b, "<p>By the usual definitions (a channel is an outlier where it reaches 6 "
                "in a quarter of the layers and 6 % of the positions, LLM.int8; a value is "
                "massive above 100 and 1000 times its layer’s median):</p>\n<ul>\n");
    textbuf_bytes(p->b, list.at, list.n);
    textbuf_add(p->b, "</ul>\n");
}

static Status outliers(Page *p)
{
    Table t;
    TRY(table_outliers(&t, p->arena, p->sets, p->n_sets));
    if (t.n_rows == 0)
        return OK;
    textbuf_add(p->b, "<h2>How large values get</h2>\n"
                "<p>The largest, second, third, tenth and hundredth largest magnitude of the "
                "whole run, and the median: half of all values are smaller.</p>\n");
    table(p, &t);
    definitions(p);
    figure(p, "logits-heads.png");
    figure(p, "tails.png");
    figure(p, "hidden-channels.png");
    figure(p, "hidden-positions.png");
    return OK;
}

static void attr_note(Page *p, const char *before, const char *key)
{
    const char *text = attr_text(&p->sets[0], key);
    if (!text)
        return;
    textbuf_add(p->b, "<p class=\"note\">");
    textbuf_add(p->b, before);
    textbuf_html(p->b, text);
    textbuf_add(p->b, "</p>\n");
}

static void scale_note(Page *p)
{
    static const char *const words[][2] = {
        {"tensor", "All logits of a layer and a sequence share one scale."},
        {"head", "Every head (and each of its maps) has a scale of its own."},
        {"row", "Every query has a scale of its own."}};
    const char *scale = attr_text(&p->sets[0], "eval_logit_scale");
    for (int i = 0; scale && i < 3; i++)
        if (strcmp(scale, words[i][0]) == 0)
            textbuf_printf(p->b, "<p class=\"note\">%s</p>\n", words[i][1]);
}

static Status accuracy(Page *p)
{
    Table t;
    TRY(table_accuracy(&t, p->arena, p->sets, p->n_sets));
    if (t.n_rows == 0)
        return OK;
    textbuf_add(p->b, "<h2>What fewer bits cost</h2>\n"
                "<p>The same models again, with their attention logits rounded to fewer bits "
                "as they are computed. Nothing is trained again. Every cell answers the same "
                "questions, so two of them are compared question by question.</p>\n");
    table(p, &t);
    scale_note(p);
    attr_note(p, "How it was scored: ", "eval_convention");
    figure(p, "accuracy.png");
    figure(p, "perplexity.png");
    TRY(table_paired(&t, p->arena, p->sets, p->n_sets));
    table(p, &t);
    TRY(table_versus(&t, p->arena, p->sets, p->n_sets));
    table(p, &t);
    return OK;
}

static Status needles(Page *p)
{
    Table t;
    TRY(table_needles(&t, p->arena, p->sets, p->n_sets));
    if (t.n_rows > 0)
        textbuf_add(p->b, "<h2>Needles in a text</h2>\n<p>Sentences that give a city a number "
                    "are hidden in a text, and some of them are asked for. A model that attends "
                    "to the answer, not to the rest, finds them.</p>\n");
    table(p, &t);
    TRY(table_needle_shares(&t, p->arena, p->sets, p->n_sets));
    table(p, &t);
    TRY(table_needle_layers(&t, p->arena, p->sets, p->n_sets));
    if (t.n_rows > 0) {
        textbuf_add(p->b, "<details><summary>Layer by layer</summary>\n");
        table(p, &t);
        textbuf_add(p->b, "</details>\n");
    }
    TRY(table_orders(&t, p->arena, p->sets, p->n_sets));
    if (t.n_rows > 0)
        textbuf_add(p->b, "<h2>The order of examples</h2>\n");
    table(p, &t);
    return OK;
}

/* The passage, so that numbers on the axes can be looked up. */
static void passage(Page *p)
{
    const char *tokens = NULL;
    for (int i = 0; i < p->n_sets && !tokens; i++)
        tokens = attr_text(&p->sets[i], "maps_tokens");
    if (!tokens)
        return;
    textbuf_add(p->b, "<details><summary>The passage, token by token</summary>"
                "<p class=\"tokens\">");
    for (int64_t i = 0; i < 4096 && tokens; i++) {
        const char *end = strchr(tokens, '\x1f');
        size_t n = end ? (size_t)(end - tokens) : strlen(tokens);
        char *token = arena_text(p->arena, tokens, n);
        textbuf_printf(p->b, "<sub>%lld</sub>", (long long)i);
        textbuf_html(p->b, token ? token : "");
        textbuf_add(p->b, " ");
        tokens = end ? end + 1 : NULL;
    }
    textbuf_add(p->b, "</p></details>\n");
}

static Status inside(Page *p)
{
    Table t;
    TRY(table_layers(&t, p->arena, p->sets, p->n_sets));
    if (figures_find(p->figures, "attention-maps.png")) {
        textbuf_add(p->b, "<h2>Inside one head</h2>\n"
                    "<p>Of the layer with the largest attention logit, or of the one asked for: "
                    "the head whose maps cancel most, of a plain model the first.</p>\n");
        figure(p, "attention-maps.png");
        passage(p);
    }
    if (t.n_columns > 1 && t.n_rows > 0) {
        textbuf_add(p->b, "<h2>Layer by layer</h2>\n");
        if (any_differential(p))
            textbuf_add(p->b, "<p>λ is the learned weight of the second map: the larger, the "
                        "more of it is subtracted; below zero it is added.</p>\n");
        table(p, &t);
    }
    return OK;
}

static const struct {
    const char *key, *label;
} FACTS[] = {
    {"arch", "architecture"}, {"path", "checkpoint"}, {"params", "parameters"},
    {"n_layers", "layers"}, {"n_heads", "heads"}, {"n_groups", "key-value groups"},
    {"n_maps", "maps a head"}, {"head_dim", "head dimension"}, {"hidden", "channels"},
    {"inter", "feed-forward channels"}, {"vocab", "vocabulary"}, {"dtype", "computed in"},
    {"device", "device"}, {"context", "tokens a window"}, {"windows", "windows"},
    {"tokens", "tokens in all"}, {"text", "text"},
};

static void fact(Page *p, const SeriesSet *set, const char *key)
{
    char text[32];
    const Attr *attr = series_attr(set, key);
    textbuf_add(p->b, "<td>");
    if (!attr)
        textbuf_add(p->b, "–");
    else if (attr->kind == ATTR_TEXT)
        textbuf_html(p->b, attr->text);
    else if (attr->kind == ATTR_INT)
        textbuf_add(p->b, textbuf_count(text, attr->integer));
    else
        textbuf_add(p->b, textbuf_value(text, attr->real));
    textbuf_add(p->b, "</td>");
}

static bool any_has(const Page *p, const char *key)
{
    for (int i = 0; i < p->n_sets; i++)
        if (series_attr(&p->sets[i], key))
            return true;
    return false;
}

static void facts(Page *p)
{
    textbuf_add(p->b, "<h2>The run</h2>\n<div class=\"scroll\"><table class=\"facts\">\n"
                "<thead><tr><th scope=\"col\" class=\"word\">model</th>");
    for (int i = 0; i < p->n_sets; i++) {
        textbuf_add(p->b, "<th scope=\"col\" class=\"word\">");
        textbuf_html(p->b, p->sets[i].model);
        textbuf_add(p->b, "</th>");
    }
    textbuf_add(p->b, "</tr></thead>\n<tbody>\n");
    for (size_t k = 0; k < sizeof FACTS / sizeof *FACTS; k++) {
        if (!any_has(p, FACTS[k].key))
            continue;
        textbuf_printf(p->b, "<tr><th scope=\"row\" class=\"word\">%s</th>", FACTS[k].label);
        for (int i = 0; i < p->n_sets; i++)
            fact(p, &p->sets[i], FACTS[k].key);
        textbuf_add(p->b, "</tr>\n");
    }
    textbuf_add(p->b, "</tbody></table></div>\n");
    if (p->options->command) {
        textbuf_add(p->b, "<p>Command line:</p>\n<pre>");
        textbuf_html(p->b, p->options->command);
        textbuf_add(p->b, "</pre>\n");
    }
    for (int i = 0; i < p->n_sets; i++) {
        const char *config = attr_text(&p->sets[i], "config");
        if (!config)
            continue;
        textbuf_add(p->b, "<details><summary>config.json of ");
        textbuf_html(p->b, p->sets[i].model);
        textbuf_add(p->b, "</summary><pre>");
        textbuf_html(p->b, config);
        textbuf_add(p->b, "</pre></details>\n");
    }
}

/* A series, and how to print it. */
static const struct {
    const char *group, *name, *h5py, *xarray, *comment;
} SAMPLES[] = {
    {"logits", "absmax", "[:].max(axis=(1, 2))", ".max([\"head\", \"map\"])",
     "largest logit of every layer"},
    {"eval", "accuracy", "[:]", "", "by task, weights and bits of the logits"},
    {"eval", "perplexity", "[:]", "", "by weights and bits of the logits"},
};
enum { N_SAMPLES = sizeof SAMPLES / sizeof *SAMPLES };

/* Number of the first that the set has; N_SAMPLES: none. */
static int sample_of(const SeriesSet *set)
{
    int  i = 0;
    char name[64];
    for (; i < N_SAMPLES; i++) {
        snprintf(name, sizeof name, "%s/%s", SAMPLES[i].group, SAMPLES[i].name);
        if (series_find(set, name))
            break;
    }
    return i;
}

static void sample_lines(Page *p, int i)
{
    TextBuf *b = p->b;
    const char *file = p->options->h5_name, *model = p->sets[0].model;
    textbuf_add(b, "<p>With h5py:</p>\n<pre>import h5py\nf = h5py.File(\"");
    textbuf_html(b, file);
    textbuf_add(b, "\")\nprint(f[\"");
    textbuf_html(b, model);
    textbuf_printf(b, "/%s/%s\"]%s)  # %s</pre>\n", SAMPLES[i].group, SAMPLES[i].name,
                   SAMPLES[i].h5py, SAMPLES[i].comment);
    textbuf_add(b, "<p>With xarray:</p>\n<pre>import xarray as xr\nd = xr.open_dataset(\"");
    textbuf_html(b, file);
    textbuf_add(b, "\", group=\"");
    textbuf_html(b, model);
    textbuf_printf(b, "/%s\", engine=\"h5netcdf\")\nprint(d.%s%s)  # the same, with names"
                   "</pre>\n", SAMPLES[i].group, SAMPLES[i].name, SAMPLES[i].xarray);
}

static void numbers(Page *p)
{
    int sample = sample_of(&p->sets[0]);
    if (!p->options->h5_name)
        return;
    textbuf_add(p->b, "<h2>The numbers behind this page</h2>\n<p>All of them are in <code>");
    textbuf_html(p->b, p->options->h5_name);
    textbuf_add(p->b, "</code>, an HDF5 file with one group a model and named dimensions."
                "</p>\n");
    if (sample < N_SAMPLES)
        sample_lines(p, sample);
}

Status page_write(TextBuf *b, Arena *a, const SeriesSet *sets, int n_sets,
                  const Figures *figures, const ReportOptions *options)
{
    Page  p = {b, a, sets, n_sets, figures, options, false};
    Table recorded;
    CHECK(n_sets > 0);
    TRY(table_outliers(&recorded, a, sets, n_sets));
    p.outliers = recorded.n_rows > 0;
    head(&p);
    lead(&p);
    TRY(findings(&p));
    explanation(&p);
    TRY(outliers(&p));
    TRY(accuracy(&p));
    TRY(needles(&p));
    TRY(inside(&p));
    facts(&p);
    numbers(&p);
    textbuf_add(b, "<footer>Made by diffquant ");
    textbuf_html(b, options->version ? options->version : DQ_VERSION);
    textbuf_add(b, ".</footer>\n</main>\n</body>\n</html>\n");
    return textbuf_status(b);
}
