/* page_words.c - the findings as sentences, every number in them computed. */
#include <math.h>
#include <string.h>

#include "reports/draw/page.h"
#include "reports/tables.h"

enum { EXACT_BITS = 16 };

static void bold(TextBuf *b, const char *text)
{
    textbuf_add(b, "<b>");
    textbuf_html(b, text);
    textbuf_add(b, "</b>");
}

static void value(TextBuf *b, double x)
{
    char text[32];
    textbuf_add(b, textbuf_value(text, x));
}

/* "8.2 times", "1,234 times" */
static void times(TextBuf *b, double ratio)
{
    char text[32];
    if (ratio >= 99.5)
        textbuf_printf(b, "%s times", textbuf_count(text, (int64_t)(ratio + 0.5)));
    else
        textbuf_printf(b, "%.*f times", ratio < 9.95 ? 1 : 0, ratio);
}

/* --- outliers --- */

typedef struct {
    const char *what, *top, *median;
} Activation;

static const Activation ACTIVATIONS[] = {
    {"attention logit", "logits/top/value", "logits/median"},
    {"hidden state", "hidden/top/value", "hidden/median"},
};

static double largest_of(const SeriesSet *set, const Activation *a)
{
    return fabs(series_get(series_find_dims(set, a->top, "rank"), 0, 0, 0));
}

/* The largest counted in medians; NaN where the median is zero or unknown. */
static double in_medians(const SeriesSet *set, const Activation *a)
{
    double median = series_get(series_find_dims(set, a->median, ""), 0, 0, 0);
    return median > 0 ? largest_of(set, a) / median : NAN;
}

/* "318.0 (59 times the median)" */
static void largest_words(TextBuf *b, const SeriesSet *set, const Activation *a)
{
    value(b, largest_of(set, a));
    if (isnan(in_medians(set, a)))
        return;
    textbuf_add(b, " (");
    times(b, in_medians(set, a));
    textbuf_add(b, " the median)");
}

static void one_model(TextBuf *b, const SeriesSet *set, const Activation *a)
{
    textbuf_printf(b, "<li>The largest %s of ", a->what);
    bold(b, set->model);
    textbuf_add(b, " is ");
    largest_words(b, set, a);
    textbuf_add(b, ".</li>\n");
}

static void two_models(TextBuf *b, const SeriesSet *most, const SeriesSet *least,
                       const Activation *a)
{
    double ratio = largest_of(most, a) / largest_of(least, a);
    textbuf_add(b, "<li>");
    if (ratio < 1.1) {
        textbuf_printf(b, "The largest %ss are about equal: ", a->what);
    } else {
        bold(b, most->model);
        textbuf_printf(b, " has the larger %s outliers, by a factor of <b>%.*f</b>: ", a->what,
                       ratio < 9.95 ? 1 : 0, ratio);
    }
    largest_words(b, most, a);
    textbuf_add(b, " in ");
    textbuf_html(b, most->model);
    textbuf_add(b, ", ");
    largest_words(b, least, a);
    textbuf_add(b, " in ");
    textbuf_html(b, least->model);
    textbuf_add(b, ".");
    if (ratio >= 1.1 && in_medians(least, a) > 1.1 * in_medians(most, a))
        textbuf_add(b, " Counted in medians it is the other way round.");
    textbuf_add(b, "</li>\n");
}

static void activation_words(TextBuf *b, const SeriesSet *sets, int n_sets, const Activation *a)
{
    const SeriesSet *most = NULL, *least = NULL;
    for (int i = 0; i < n_sets; i++) {
        double top = largest_of(&sets[i], a);
        if (isnan(top))
            continue;
        if (!most || top > largest_of(most, a))
            most = &sets[i];
        if (!least || top <= largest_of(least, a))  // of equals, the other one
            least = &sets[i];
    }
    if (most && most == least)
        one_model(b, most, a);
    else if (most)
        two_models(b, most, least, a);
}

static double sum_of(const Series *s)
{
    double sum = 0;
    for (int64_t i = 0; s && i < series_count(s); i++)
        sum += series_at(s, i);
    return s ? sum : NAN;
}

/* "1 channel", "12 channels" */
static void count_of(TextBuf *b, double n, const char *what)
{
    char text[32];
    textbuf_printf(b, "%s %s%s", textbuf_count(text, (int64_t)n), what, n == 1 ? "" : "s");
}

void page_definition_words(TextBuf *b, const SeriesSet *set)
{
    char text[32];
    const Series *channels = series_find_dims(set, "hidden/outlier_channels", "hidden_channel");
    double massive = sum_of(series_find_dims(set, "hidden/massive", "layer"));
    if (!channels && isnan(massive))
        return;
    textbuf_add(b, "<li>");
    bold(b, set->model);
    textbuf_add(b, " has ");
    if (channels) {
        count_of(b, sum_of(channels), "outlier channel");
        textbuf_printf(b, " of %s", textbuf_count(text, series_count(channels)));
    }
    textbuf_add(b, channels && !isnan(massive) ? " and " : "");
    if (!isnan(massive))
        count_of(b, massive, "massive activation");
    textbuf_add(b, ".</li>\n");
}

/* What must not be overlooked. */
static void warning_words(TextBuf *b, const SeriesSet *set)
{
    double bad = table_not_finite(set);
    if (!(bad > 0))
        return;
    textbuf_add(b, "<li><b>Mind:</b> ");
    textbuf_html(b, set->model);
    textbuf_add(b, " produced ");
    count_of(b, bad, "value");
    textbuf_add(b, " not a number or infinite: counted, and kept out of everything else.</li>\n");
}

void page_outlier_words(TextBuf *b, const SeriesSet *sets, int n_sets)
{
    for (int i = 0; i < 2; i++)
        activation_words(b, sets, n_sets, &ACTIVATIONS[i]);
    for (int i = 0; i < n_sets; i++)
        warning_words(b, &sets[i]);
}

/* --- what few bits cost --- */

/* A cell of the scores: weights and width of the logits. */
typedef struct {
    int64_t weights, bits;
} Place;

typedef struct {
    int    bits;           // the fewest of the logits; 16: no fewer
    double lost, error;    // mean over tasks, as a share; NaN: no task
} Cost;

/* Where the exact logits and those of the fewest bits stand; -1: not scored. */
static void find_bits(const SeriesSet *set, Place *exact, Place *few, int *bits)
{
    const Series *s = series_find_dims(set, "logit_bits", "logit_bits");
    *exact = *few = (Place){0, -1};
    *bits = EXACT_BITS;
    for (int64_t i = 0; s && i < series_count(s); i++) {
        int here = (int)series_at(s, i);
        if (here == EXACT_BITS)
            exact->bits = i;
        if (here < *bits) {
            *bits = here;
            few->bits = i;
        }
    }
}

/* The change of a score, and whether it is more than noise. */
typedef struct {
    double from, to;
    double error;    // of the change; NaN: unknown
    double p;        // of its paired test; NaN: none was made
} Change;

/* Without a paired test both errors count as independent, which is on the careful side. */
static bool within_noise(const Change *c)
{
    return isnan(c->p) ? fabs(c->from - c->to) <= 2 * c->error : !(c->p <= TABLE_NOISE);
}

/* "2.1 points on needles-4 (61.0 → 58.9 %, within noise: ± 4.4, p 0.63)" */
static void task_words(TextBuf *b, const char *name, const Change *c)
{
    textbuf_printf(b, "<b>%.1f points</b> on ", 100 * fabs(c->from - c->to));
    textbuf_html(b, name);
    textbuf_printf(b, " (%.1f → %.1f %%", 100 * c->from, 100 * c->to);
    if (c->error > 0)
        textbuf_printf(b, ", %s noise: ± %.1f", within_noise(c) ? "within" : "beyond",
                       100 * c->error);
    if (c->error > 0 && !isnan(c->p))
        textbuf_printf(b, c->p < 0.001 ? ", p &lt; 0.001" : ", p %.2g", c->p);
    textbuf_add(b, ")");
}

static void perplexity_words(TextBuf *b, const SeriesSet *set, Place from, Place to, bool more)
{
    const Series *p = series_find_dims(set, "eval/perplexity", "weights,logit_bits");
    double before = series_get(p, from.weights, from.bits, 0);
    double after = series_get(p, to.weights, to.bits, 0);
    if (isnan(before) || isnan(after))
        return;
    textbuf_add(b, more ? "; perplexity " : "perplexity ");
    value(b, before);
    textbuf_add(b, " → ");
    value(b, after);
    textbuf_printf(b, " (%+.1f %%)", 100 * (after / before - 1));
}

/* The score of task k at two places; `from` is the unquantized cell. */
static Change change_of(const SeriesSet *set, int64_t k, Place from, Place to)
{
    static const char DIMS[] = "task,weights,logit_bits";
    const Series *accuracy = series_find_dims(set, "eval/accuracy", DIMS);
    const Series *error = series_find_dims(set, "eval/stderr", DIMS);
    const Series *p = series_find_dims(set, "paired/accuracy_p", DIMS);
    const Series *paired = series_find_dims(set, "paired/accuracy_stderr", DIMS);
    Change c = {
        .from = series_get(accuracy, k, from.weights, from.bits),
        .to = series_get(accuracy, k, to.weights, to.bits),
        .error = hypot(series_get(error, k, from.weights, from.bits),
                       series_get(error, k, to.weights, to.bits)),
        .p = series_get(p, k, to.weights, to.bits),
    };
    if (!isnan(c.p))
        c.error = series_get(paired, k, to.weights, to.bits);
    return c;
}

/* What a sentence tells of the tasks, in its order. */
typedef enum { PART_LOST, PART_SAME, PART_UNSOLVED, PART_GAINED, N_PARTS } Part;

static const struct {
    const char *before, *between, *after;
} PARTS[N_PARTS] = {
    [PART_LOST] = {"", ", ", ""},
    [PART_SAME] = {"nothing on ", ", ", ""},
    [PART_UNSOLVED] = {"nothing on ", ", ", ", where no answer was right before either"},
    [PART_GAINED] = {"a gain of ", ", of ", ""},
};

static Part part_of(const Change *c)
{
    double lost = c->from - c->to;
    if (c->from == 0 && c->to == 0)
        return PART_UNSOLVED;
    if (fabs(lost) < 0.0005)   // 0.0 points
        return PART_SAME;
    return lost > 0 ? PART_LOST : PART_GAINED;
}

/* Those that have tasks, into b. */
static Status join_parts(TextBuf *b, const TextBuf *parts)
{
    bool any = false;
    for (int i = 0; i < N_PARTS; i++) {
        TRY(textbuf_status(&parts[i]));
        if (parts[i].n == 0)
            continue;
        textbuf_add(b, any ? "; " : i == PART_GAINED ? "no points, but " : "");
        textbuf_add(b, PARTS[i].before);
        textbuf_bytes(b, parts[i].at, parts[i].n);
        textbuf_add(b, PARTS[i].after);
        any = true;
    }
    return OK;
}

static void add_task(TextBuf *parts, const char *name, const Change *c)
{
    Part     part = part_of(c);
    TextBuf *words = &parts[part];
    textbuf_add(words, words->n ? PARTS[part].between : "");
    if (part == PART_LOST || part == PART_GAINED)
        task_words(words, name, c);
    else
        textbuf_html(words, name);
}

/* Every task and the perplexity at two places. */
static Status cost_words(TextBuf *b, Arena *a, const SeriesSet *set, Place from, Place to,
                         Cost *cost)
{
    const Series *accuracy = series_find_dims(set, "eval/accuracy", "task,weights,logit_bits");
    double lost = 0, square = 0;
    int n = 0, n_told = 0;
    TextBuf parts[N_PARTS];
    for (int i = 0; i < N_PARTS; i++)
        textbuf_init(&parts[i], a);
    for (int64_t k = 0; accuracy && k < accuracy->shape[0]; k++) {
        const char *name = table_attr_part(a, set, "eval_tasks", ',', k);
        Change c = change_of(set, k, from, to);
        if (isnan(c.from) || isnan(c.to))
            continue;
        add_task(parts, name ? name : "a task", &c);
        n_told++;
        if (part_of(&c) == PART_UNSOLVED)
            continue;
        lost += c.from - c.to;
        square += c.error * c.error;
        n++;
    }
    TRY(join_parts(b, parts));
    cost->lost = n ? lost / n : NAN;
    cost->error = n ? sqrt(square) / n : NAN;
    perplexity_words(b, set, from, to, n_told > 0);
    textbuf_add(b, ".</li>\n");
    return OK;
}

static Status model_costs(TextBuf *b, Arena *a, const SeriesSet *set, Cost *cost)
{
    Place exact, few;
    Cost weights_cost;
    const Series *p = series_find_dims(set, "eval/perplexity", "weights,logit_bits");
    const Series *t = series_find_dims(set, "eval/accuracy", "task,weights,logit_bits");
    int64_t n_weights = t ? t->shape[1] : p ? p->shape[0] : 0;
    *cost = (Cost){.lost = NAN, .error = NAN};
    find_bits(set, &exact, &few, &cost->bits);
    if (n_weights == 0 || exact.bits < 0)
        return OK;
    if (few.bits >= 0) {
        textbuf_printf(b, "<li>%d-bit attention logits cost ", cost->bits);
        bold(b, set->model);
        textbuf_add(b, ": ");
        TRY(cost_words(b, a, set, exact, few, cost));
    }
    for (int64_t w = 1; w < n_weights; w++) {
        const char *name = table_attr_part(a, set, "eval_weights", ',', w);
        textbuf_add(b, "<li>Weights as ");
        textbuf_html(b, name ? name : "another kind");
        textbuf_add(b, ", with exact logits, cost ");
        bold(b, set->model);
        textbuf_add(b, ": ");
        TRY(cost_words(b, a, set, exact, (Place){w, exact.bits}, &weights_cost));
    }
    return OK;
}

/* The model that keeps most against the one that loses most. */
static void compare_costs(TextBuf *b, const SeriesSet *sets, const Cost *costs, int n_sets)
{
    int keeps = -1, loses = -1;
    for (int i = 0; i < n_sets; i++) {
        if (isnan(costs[i].lost))
            continue;
        keeps = keeps < 0 || costs[i].lost < costs[keeps].lost ? i : keeps;
        loses = loses < 0 || costs[i].lost > costs[loses].lost ? i : loses;
    }
    if (keeps == loses || costs[keeps].bits != costs[loses].bits)
        return;
    double gap = costs[loses].lost - costs[keeps].lost;
    double error = hypot(costs[loses].error, costs[keeps].error);
    textbuf_add(b, "<li>");
    if (!(gap > 2 * error)) {
        textbuf_printf(b, "Between the models, the loss at %d bits differs by %.1f points over "
                       "all tasks: within noise (± %.1f).", costs[keeps].bits, 100 * gap,
                       100 * error);
    } else {
        bold(b, sets[keeps].model);
        textbuf_printf(b, " keeps more at %d bits: over all tasks it loses <b>%.1f points</b>, ",
                       costs[keeps].bits, 100 * costs[keeps].lost);
        textbuf_html(b, sets[loses].model);
        textbuf_printf(b, " <b>%.1f</b> (the difference is %.1f ± %.1f).",
                       100 * costs[loses].lost, 100 * gap, 100 * error);
    }
    textbuf_add(b, "</li>\n");
}

Status page_cost_words(TextBuf *b, Arena *a, const SeriesSet *sets, int n_sets)
{
    Cost *costs;
    ARENA_NEW(costs, a, n_sets);
    for (int i = 0; i < n_sets; i++)
        TRY(model_costs(b, a, &sets[i], &costs[i]));
    compare_costs(b, sets, costs, n_sets);
    return OK;
}
