/* test_analyze.c - what the instrumented run puts into its set. */
#include "analysis/analyze.h"

#include <math.h>
#include <string.h>

#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

#define EPISODE(id) "{\"id\":\"" id "\",\"n\":1,\"context\":\"the magic word is k, says he\"," \
                    "\"answer\":\"ey\",\"span\":[4,9]}\n"

typedef struct {
    Arena      arena, results;
    Tokenizer *t;
    TinyModel  m;
    Windows    w;
    Retrieval  marked;
    SeriesSet  set;
    Perplexity p;
} Bench;

static const char TEXT[] = "a \"text\" of 42 words or \xc3\xa9 fewer, which goes on and on "
                           "until it has filled more than one or two windows of tokens";

static Status bench_open(Bench *b, const char *model)
{
    WindowOptions o = {.context = 40};
    *b = (Bench){0};
    TRY(tiny_open(&b->m, model));
    TRY(tiny_tokenizer(&b->t, &b->arena, true));
    TRY(windows_from_text(&b->w, &b->arena, b->t, "text", TEXT, sizeof TEXT - 1, &o));
    series_set_init(&b->set, &b->results, "m");
    return retrieval_load(&b->marked, &b->arena, b->t,
                          tiny_file("marked.jsonl", EPISODE("a") EPISODE("b")), 64, false);
}

static void bench_close(Bench *b)
{
    tokenizer_close(b->t);
    tiny_close(&b->m);
    arena_close(&b->arena);
    arena_close(&b->results);
}

static const AnalyzeOptions ALL = {
    .record = true, .quant = {.bits = 16}, .maps_layer = MAPS_LARGEST,
    .text_name = "text.txt",
};

static Status run(Bench *b, const AnalyzeOptions *o)
{
    return analyze_run(&b->set, &b->p, &b->m.model, b->t, &b->w, o);
}

TEST(attributes_outlive_the_model)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "diff_gqa"));
    T_STATUS_OK(run(&b, &ALL));
    int64_t tokens = b.w.n_tokens, windows = b.w.seq.n, layers = b.m.model.config.n_layers;
    tiny_close(&b.m);
    tokenizer_close(b.t);
    arena_close(&b.arena);
    T_TEXT(series_attr(&b.set, "model")->text, "diff_gqa");
    T_TEXT(series_attr(&b.set, "arch")->text, "DiffLlamaForCausalLM");
    T_TEXT(series_attr(&b.set, "dtype")->text, "F32");
    T_TEXT(series_attr(&b.set, "device")->text, "cpu");
    T_TEXT(series_attr(&b.set, "text")->text, "text.txt");
    T_OK(strstr(series_attr(&b.set, "config")->text, "\"lambda_std_dev\""));
    T_OK(strstr(series_attr(&b.set, "path")->text, "models/diff_gqa"));
    T_OK(series_attr(&b.set, "tokens")->integer == tokens);
    T_OK(series_attr(&b.set, "windows")->integer == windows);
    T_OK(series_attr(&b.set, "context")->integer == 40);
    T_OK(series_attr(&b.set, "n_layers")->integer == layers);
    T_OK(series_attr(&b.set, "n_maps")->integer == 2);
    T_OK(series_attr(&b.set, "vocab")->integer == 101);
    arena_close(&b.results);
}

TEST(recording_changes_no_score)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "diff_gqa"));
    Perplexity plain;
    Scorer     sc = {.model = &b.m.model, .quant = {.bits = 16}};
    T_STATUS_OK(perplexity_run_windows(&plain, &b.arena, &sc, &b.w));
    T_STATUS_OK(run(&b, &ALL));
    T_NEAR(b.p.nll, plain.nll, 0);
    size_t bytes = (size_t)plain.n_windows * sizeof(double);
    T_OK(b.p.n_windows == plain.n_windows && plain.n_windows > 1);
    T_OK(memcmp(b.p.window_nll, plain.window_nll, bytes) == 0);
    T_NEAR(series_attr(&b.set, "nll")->real, plain.nll, 0);
    T_NEAR(series_attr(&b.set, "perplexity")->real, exp(plain.nll), 1e-12 * exp(plain.nll));
    T_OK(series_attr(&b.set, "predictions")->integer == b.w.n_scored);
    const Series *count = series_find(&b.set, "hidden/count");
    const ModelConfig *c = &b.m.model.config;
    T_OK(count && series_find(&b.set, "logits/absmax") && series_find(&b.set, "maps/diff"));
    T_OK(count->shape[0] == c->n_layers);
    T_OK(series_at(count, c->n_layers - 1) == (double)(b.w.n_tokens * c->hidden));
    bench_close(&b);
}

/* Counts of every layer are those of its values, and the outermost bins hold some. */
TEST(histograms_count_every_value)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "diff_gqa"));
    T_STATUS_OK(run(&b, &ALL));
    const Series *counts = series_find(&b.set, "hidden/histogram");
    const Series *value = series_find(&b.set, "hidden/bin_value");
    const Series *count = series_find(&b.set, "hidden/count");
    const Series *top = series_find(&b.set, "hidden/absmax");
    T_OK(counts && value && count && top && counts->shape[1] == value->shape[0]);
    int64_t layers = counts->shape[0], n = counts->shape[1];
    double  ends[2] = {0}, largest = 0;
    for (int64_t l = 0; l < layers; l++) {
        double all = 0;
        for (int64_t i = 0; i < n; i++)
            all += series_at(counts, l * n + i);
        T_NEAR(all, series_at(count, l), 0);
        ends[0] += series_at(counts, l * n);
        ends[1] += series_at(counts, l * n + n - 1);
        largest = fmax(largest, series_at(top, l));
    }
    T_OK(n > 1 && ends[0] > 0 && ends[1] > 0);
    T_NEAR(series_at(value, n - 1) / largest, 1, 0.002);
    bench_close(&b);
}

TEST(no_record_leaves_no_statistics)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "llama_gqa"));
    AnalyzeOptions o = ALL;
    o.record = false;
    o.maps_layer = MAPS_NONE;
    o.marked = &b.marked;  // without a probe there is nothing to mark
    T_STATUS_OK(run(&b, &o));
    T_OK(b.set.n == 0 && b.p.nll > 0 && series_attr(&b.set, "nll"));
    bench_close(&b);
}

/* Rows of each map sum to 1 and look at nothing that comes later. */
static bool is_causal_softmax(const Series *s, int64_t maps, int64_t S)
{
    for (int64_t r = 0; r < maps * S; r++) {
        double sum = 0;
        for (int64_t k = 0; k < S; k++) {
            double x = series_at(s, r * S + k);
            if (!(x >= 0) || (k > r % S && x != 0))
                return false;
            sum += x;
        }
        /* S roundings of values below 1 */
        if (!(fabs(sum - 1) <= (double)S * 0x1p-24))
            return false;
    }
    return true;
}

TEST(maps_of_a_passage)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "diff_gqa"));
    AnalyzeOptions o = ALL;
    o.maps_layer = 1;
    o.maps_positions = 15;
    T_STATUS_OK(run(&b, &o));
    const ModelConfig *c = &b.m.model.config;
    const Series *maps = series_find(&b.set, "maps/weights");
    const Series *diff = series_find(&b.set, "maps/diff");
    T_OK(maps && diff && maps->n_dims == 4 && diff->n_dims == 3);
    int64_t H = c->n_heads, S = 15, cells = S * S;
    T_OK(maps->shape[0] == H && maps->shape[1] == 2);
    T_OK(maps->shape[2] == S && maps->shape[3] == S);
    T_OK(is_causal_softmax(maps, 2 * H, S));
    double lambda = b.m.model.layers[1].lambda;
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < cells; i++)
            T_NEAR(series_at(diff, h * cells + i),
                   series_at(maps, 2 * h * cells + i) -
                       lambda * series_at(maps, (2 * h + 1) * cells + i), 2e-7);
    T_OK(series_attr(&b.set, "maps_layer")->integer == 1);
    /* BOS, then characters; "42" is one token, of U+00E9 only halves remain */
    T_TEXT(series_attr(&b.set, "maps_tokens")->text,
           "<s>\x1f" "a\x1f \x1f\"\x1ft\x1f" "e\x1fx\x1ft\x1f\"\x1f \x1fo\x1f" "f\x1f \x1f"
           "42\x1f ");
    bench_close(&b);
}

TEST(maps_of_the_layer_with_the_largest_logit)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "diff_gqa"));
    T_STATUS_OK(run(&b, &ALL));
    const Series *absmax = series_find(&b.set, "logits/absmax");
    int64_t layer = series_attr(&b.set, "maps_layer")->integer;
    int64_t n = series_count(absmax) / absmax->shape[0];
    double  of_layer = 0, of_all = 0;
    for (int64_t i = 0; i < series_count(absmax); i++) {
        of_all = fmax(of_all, series_at(absmax, i));
        if (i / n == layer)
            of_layer = fmax(of_layer, series_at(absmax, i));
    }
    T_OK(of_all > 0 && of_layer == of_all);
    bench_close(&b);
}

TEST(plain_models_have_no_differential_map)
{
    static const int32_t PASSAGE[] = {1, 40, 41, 42, 43};
    Bench b;
    T_STATUS_OK(bench_open(&b, "llama_gqa"));
    AnalyzeOptions o = ALL;
    o.passage = PASSAGE;
    o.n_passage = 5;
    T_STATUS_OK(analyze_run(&b.set, &b.p, &b.m.model, NULL, &b.w, &o));
    const Series *maps = series_find(&b.set, "maps/weights");
    T_OK(maps && !series_find(&b.set, "maps/diff"));
    T_OK(maps->shape[1] == 1 && maps->shape[2] == 5);
    T_OK(is_causal_softmax(maps, maps->shape[0], 5));
    T_TEXT(series_attr(&b.set, "maps_tokens")->text, "1\x1f" "40\x1f" "41\x1f" "42\x1f" "43");
    bench_close(&b);
}

TEST(impossible_maps)
{
    Bench b;
    T_STATUS_OK(bench_open(&b, "llama_gqa"));
    AnalyzeOptions o = ALL;
    o.maps_layer = 2;
    T_FAILS(run(&b, &o), ERR_RANGE, "maps of layer 2: the model's layers are 0 to 1");
    bench_close(&b);
}

TEST(spans_come_from_episodes_and_the_rest_from_the_text)
{
    static const char *const SAME[] = {"attention/entropy", "attention/first",
                                       "attention/diff_abs", "attention/negative",
                                       "logits/absmax", "hidden/mean"};
    Bench one, two;
    T_STATUS_OK(bench_open(&one, "diff_gqa"));
    T_STATUS_OK(bench_open(&two, "diff_gqa"));
    AnalyzeOptions o = ALL;
    T_STATUS_OK(run(&one, &o));
    uint8_t found[2], correct[2] = {7, 7};
    Scorer  sc = {.model = &two.m.model, .quant = o.quant};
    T_STATUS_OK(retrieval_run(&two.marked, &sc, found));
    o.marked = &two.marked;
    o.marked_correct = correct;
    T_STATUS_OK(run(&two, &o));
    T_OK(memcmp(correct, found, sizeof found) == 0);
    for (size_t i = 0; i < sizeof SAME / sizeof SAME[0]; i++) {
        const Series *a = series_find(&one.set, SAME[i]), *b = series_find(&two.set, SAME[i]);
        T_OK(a && b && series_count(a) == series_count(b));
        for (int64_t k = 0; k < series_count(a); k++)
            T_NEAR(series_at(a, k), series_at(b, k), 0);
    }
    const Series *span = series_find(&two.set, "attention/span");
    const Series *diff = series_find(&two.set, "attention/diff_span");
    T_OK(span && diff);
    for (int64_t k = 0; k < series_count(span); k++)
        T_OK(series_at(span, k) > 0 && series_at(span, k) < 1);
    for (int64_t k = 0; k < series_count(diff); k++)
        T_OK(fabs(series_at(diff, k)) > 1e-6);
    bench_close(&one);
    bench_close(&two);
}

TEST(batches_leave_no_trace)
{
    Bench one, two;
    T_STATUS_OK(bench_open(&one, "diff_gqa"));
    T_STATUS_OK(bench_open(&two, "diff_gqa"));
    AnalyzeOptions o = ALL;
    T_STATUS_OK(run(&one, &o));
    o.batch_tokens = 1;
    T_STATUS_OK(run(&two, &o));
    T_OK(one.set.n == two.set.n && one.set.n > 20);
    for (int64_t i = 0; i < one.set.n; i++) {
        const Series *a = &one.set.at[i], *b = &two.set.at[i];
        T_TEXT(a->name, b->name);
        T_OK(series_count(a) == series_count(b));
        for (int64_t k = 0; k < series_count(a); k++) {
            double x = series_at(a, k), y = series_at(b, k);
            /* moments are merged in another order */
            T_OK((isnan(x) && isnan(y)) || fabs(x - y) <= 1e-9 * (fabs(x) + 1));
        }
    }
    bench_close(&one);
    bench_close(&two);
}

TEST(every_allocation_may_fail)
{
    Bench   b;
    Status  s = ERR_MEMORY;
    int64_t k = 0;
    T_STATUS_OK(bench_open(&b, "llama_gqa"));
    AnalyzeOptions o = ALL;
    o.marked = &b.marked;
    o.maps_positions = 6;
    for (; s != OK; k += 1 + k / 16) {  // all of the first, then some of the many alike
        arena_close(&b.results);
        series_set_init(&b.set, &b.results, "m");
        arena_fail_at(k + 1);
        s = run(&b, &o);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
    }
    T_OK(k > 100);
    bench_close(&b);
}
