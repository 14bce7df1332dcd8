/* test_cuda_models.c - whole models, GPU against CPU: what a pass gives at every tap, plain and
 * rounded, whole and in steps, with weights that stay and weights that come and go. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/divergence.h"
#include "kernels/cuda/cuda_weights.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/cuda/ref_models.h"

static const RunQuant PLAIN = {.bits = 16};

#define T_MODELS()                          \
    do {                                    \
        if (!ref_cuda_there())              \
            T_SKIP(status_text());          \
    } while (0)

/* --- every architecture --- */

/* Both are within GOLDEN_F32 of transformers, and of each other by about as much as each. */
static void compare(Status (*open)(Sides *p, const char *name, Dtype dtype), const char *name,
                    Dtype dtype, double bound)
{
    Sides  p = {0};
    Status s = open(&p, name, dtype);
    if (s == OK)
        s = sides_run(&p, PLAIN, NULL);
    if (s != OK) {
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    } else {
        Gaps   g = sides_gaps(&p);
        double golden = golden_worst(&p.golden, p.run[ON_GPU].logits, p.golden.logits,
                                     p.golden.V);
        if (!(gaps_worst(g) <= bound) || (dtype == DTYPE_F32 && !(golden <= GOLDEN_F32)))
            check_fail(__FILE__, __LINE__, "%s in %s: hidden %.1e, final %.1e, logits %.1e; "
                       "from transformers %.1e", name, dtype_name(dtype), g.hidden, g.final,
                       g.logits, golden);
        printf("%s %s: hidden %.1e, final %.1e, logits %.1e\n", name, dtype_name(dtype),
               g.hidden, g.final, g.logits);
    }
    sides_close(&p);
}

/* A text of a thousand tokens is for a GPU; rows of its kind are in test_cuda_attn_*. */
static bool too_long(const char *name)
{
    return strcmp(name, "models/llama_long") == 0;
}

TEST(every_model_in_f32)
{
    Arena        a = {0};
    const char **names;
    int64_t      n;
    T_MODELS();
    T_STATUS_OK(golden_names(&names, &n, &a));
    for (int64_t i = 0; i < n; i++)
        if (!too_long(names[i]))
            compare(sides_open_golden, names[i], DTYPE_F32, 1e-5);
    arena_close(&a);
}

static const char *const KINDS[] = {
    "models/diff_gqa", "models/diff_d100", "models/llama_gqa", "models/llama_gqa_three",
    "variants/motif_gda_gqa", "variants/phi4flash", "variants/unilm_v2_gqa",
    "baselines/qwen2_window_v4", "baselines/stablelm_qk_norm", "baselines/gpt2_plain",
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

/* Sums in another order round to another bf16 now and then, which is 2^-8 of a value. */
TEST(models_in_bf16)
{
    T_MODELS();
    for (int i = 0; i < N_KINDS; i++)
        compare(sides_open_golden, KINDS[i], DTYPE_BF16, 1e-2);
}

TEST(the_pair_that_ships)
{
    T_MODELS();
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "base" : "diff";
        compare(sides_open_pair, name, DTYPE_F32, 1e-5);
        compare(sides_open_pair, name, DTYPE_BF16, 1e-2);
    }
}

/* --- taps --- */

static Status fill_probe(Probe *probe, MapWindow *w, Sides *p, int side, int64_t layer,
                         const Span *spans)
{
    Subject           *s = &p->of[side];
    const ModelConfig *c = &s->m.config;
    int64_t            S = p->golden.S;
    TRY(probe_init(probe, &s->arena, &s->m, p->golden.T));
    *w = (MapWindow){.n_positions = S};
    ARENA_NEW(w->maps, &s->arena, c->n_heads * c->n_maps * S * S);
    if (c->n_maps == 2)
        ARENA_NEW(w->diff, &s->arena, c->n_heads * S * S);
    probe->window = w;
    probe->window_layer = layer;
    probe->spans = spans;
    return OK;
}

static bool same_probes(const Probe *a, const Probe *b, const ModelConfig *c, double tol)
{
    bool same = true;
    for (int64_t l = 0; l < c->n_layers && same; l++) {
        for (int t = 0; t < N_TAPS && same; t++)
            same = same_values(&a->values[t][l], &b->values[t][l], tol);
        same = same && same_logits(&a->logits[l], &b->logits[l], tol);
        for (int64_t h = 0; h < c->n_heads && same; h++)
            same = same_shares(&a->shares[l * c->n_heads + h], &b->shares[l * c->n_heads + h],
                               tol);
        if (!same)
            fprintf(stderr, "in layer %lld\n", (long long)l);
    }
    return same;
}

static bool same_window(const MapWindow *a, const MapWindow *b, const ModelConfig *c, double tol)
{
    int64_t n = c->n_heads * a->n_positions * a->n_positions;
    return ref_worst_gap(b->maps, a->maps, n * c->n_maps) <= tol &&
           (!a->diff || ref_worst_gap(b->diff, a->diff, n) <= tol);
}

static void check_taps(const char *name, int64_t layer, Dtype dtype, double tol)
{
    static const Span SPANS[] = {{2, 6}, {0, 0}};
    Sides     p = {0};
    Probe     probes[N_SIDES] = {{0}};
    MapWindow windows[N_SIDES];
    Status    s = sides_open_golden(&p, name, dtype);
    for (int i = 0; i < N_SIDES && s == OK; i++)
        s = fill_probe(&probes[i], &windows[i], &p, i, layer, SPANS);
    if (s == OK)
        s = sides_run(&p, PLAIN, probes);
    const ModelConfig *c = &p.of[ON_CPU].m.config;
    if (s != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    else if (!same_probes(&probes[ON_CPU], &probes[ON_GPU], c, tol) ||
             !same_window(&windows[ON_CPU], &windows[ON_GPU], c, tol) ||
             !(gaps_worst(sides_gaps(&p)) <= tol))
        check_fail(__FILE__, __LINE__, "%s in %s: its records differ", name, dtype_name(dtype));
    sides_close(&p);
}

TEST(records_of_every_tap)
{
    T_MODELS();
    check_taps("models/diff_gqa", 2, DTYPE_F32, 2e-5);
    check_taps("models/llama_gqa", 1, DTYPE_F32, 2e-5);
    check_taps("models/diff_large_logits", 0, DTYPE_F32, 2e-5);
    check_taps("variants/phi4flash", 1, DTYPE_F32, 2e-5);
    check_taps("variants/motif_gda_r2", 0, DTYPE_F32, 2e-5);
    check_taps("baselines/mistral_window", 1, DTYPE_F32, 2e-5);
}

/* --- rounding --- */

static void check_rounded(const char *name, RunQuant q, double bound)
{
    Sides  p = {0};
    Status s = sides_open_golden(&p, name, DTYPE_F32);
    if (s == OK)
        s = sides_run(&p, q, NULL);
    double e = s == OK ? sides_rms(&p) : 0;
    if (s != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    else if (!(e <= bound))
        check_fail(__FILE__, __LINE__, "%s, logits of %d bits by %s, inputs of %d, keys of %d: "
                   "off by %.1e", name, q.bits, logit_scale_name(q.scale), q.acts, q.kv, e);
    printf("%s %d %d %d %d: %.1e\n", name, q.bits, q.scale, q.acts, q.kv, e);
    sides_close(&p);
}

/* A difference in the last bit moves a code where a value lies between two, which is rare; a
 * wrong scale moves most of them, and the logits by as much as the rounding does: a tenth. */
TEST(quantized_logits)
{
    T_MODELS();
    for (int scale = 0; scale < N_SCALES; scale++)
        for (int bits = 4; bits <= 8; bits += 2) {
            check_rounded("models/diff_gqa", (RunQuant){.bits = bits, .scale = (LogitScale)scale},
                          5e-3);
            check_rounded("models/llama_gqa",
                          (RunQuant){.bits = bits, .scale = (LogitScale)scale}, 5e-3);
        }
}

TEST(rounded_inputs_keys_and_values)
{
    static const RunQuant ROUNDINGS[] = {
        {.bits = 16, .acts = 8},
        {.bits = 16, .acts = 4, .act_scale = ACTS_TENSOR},
        {.bits = 16, .acts = 8, .act_wide = true},
        {.bits = 16, .kv = 8},
        {.bits = 6, .scale = SCALE_HEAD, .acts = 6, .kv = 4},
    };
    T_MODELS();
    for (size_t i = 0; i < sizeof ROUNDINGS / sizeof *ROUNDINGS; i++) {
        check_rounded("models/diff_gqa", ROUNDINGS[i], 2e-2);
        check_rounded("models/llama_gqa", ROUNDINGS[i], 2e-2);
    }
}

/* --- in steps --- */

static Status run_part(Run *r, Subject *s, const int32_t *ids, int64_t n, Cache *cache)
{
    int32_t start[2] = {0, (int32_t)n};
    int64_t number = 0;
    Batch   batch = {.n_sequences = 1, .start = start, .number = &number};
    return subject_run(r, s, ids, &batch, NULL, cache);
}

/* The first sequence whole on the CPU, and on the GPU in parts. */
static Status decode(double *worst, Sides *p, int64_t part)
{
    Subject *gpu = &p->of[ON_GPU];
    int64_t  n = p->golden.S, V = gpu->m.config.vocab;
    Run      whole, step;
    Cache   *cache;
    *worst = 0;
    TRY(run_part(&whole, &p->of[ON_CPU], p->golden.ids, n, NULL));
    TRY(cache_init(&cache, &gpu->m, &gpu->arena, n));
    for (int64_t at = 0, rows; at < n; at += rows) {
        rows = n - at < part ? n - at : part;
        TRY(run_part(&step, gpu, p->golden.ids + at, rows, cache));
        double e = ref_worst_gap(step.logits, whole.logits + at * V, rows * V);
        *worst = !(e <= *worst) ? e : *worst;
    }
    return OK;
}

static void check_steps(const char *name, int64_t part, Dtype dtype, double bound)
{
    Sides  p = {0};
    double worst = 0;
    Status s = sides_open_golden(&p, name, dtype);
    if (s == OK)
        s = decode(&worst, &p, part);
    if (s != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    else if (!(worst <= bound))
        check_fail(__FILE__, __LINE__, "%s in parts of %lld: off by %.1e", name,
                   (long long)part, worst);
    sides_close(&p);
}

TEST(parts_of_a_text_equal_the_whole)
{
    static const char *const NAMES[] = {"models/diff_gqa", "models/llama_gqa",
                                        "baselines/mistral_window", "variants/phi4flash"};
    T_MODELS();
    for (int i = 0; i < 4; i++) {
        check_steps(NAMES[i], 1, DTYPE_F32, 2e-5);
        check_steps(NAMES[i], 7, DTYPE_F32, 2e-5);
        check_steps(NAMES[i], 1, DTYPE_BF16, 2e-2);
    }
}

/* --- weights of few bits --- */

/* As the checkpoint asks: W8A8 rounds inputs too, and the GPU multiplies whole numbers then,
 * where the CPU rounds what they stand for to bf16. The largest input of a row lies between
 * two codes of compressed-tensors, so that a last bit decides now and then. */
static void check_packed(const char *name, Dtype dtype, double bound, bool *rounds)
{
    static int32_t ids[21];
    int32_t        start[3] = {0, 20, 21};
    int64_t        number[2] = {0, 1};
    Sides          p = {0};
    Status         s = sides_open(&p, name, dtype);
    for (int i = 0; i < 21; i++)
        ids[i] = i * 11 % 40;
    p.golden = (Golden){.T = 21, .ids = ids, .batch = {2, start, number}};
    RunQuant quant = PLAIN;
    if (s == OK) {
        quant = model_run(&p.of[ON_GPU].m, PLAIN);
        s = sides_run(&p, quant, NULL);
    }
    double e = s != OK ? 0 : quant.acts ? sides_rms(&p) : gaps_worst(sides_gaps(&p));
    if (quant.acts)
        bound = dtype == DTYPE_F32 ? 1e-2 : 5e-2;
    if (s != OK)
        check_fail(__FILE__, __LINE__, "%s: %s", name, status_text());
    else if (!(e <= bound))
        check_fail(__FILE__, __LINE__, "%s in %s: off by %.1e", name, dtype_name(dtype), e);
    *rounds = *rounds || quant.acts == 8;
    printf("%s %s acts %d: %.1e\n", name, dtype_name(dtype), quant.acts, e);
    sides_close(&p);
}

TEST(weights_of_few_bits)
{
    static const char *const NAMES[] = {"packed/diff_compressed", "packed/llama_gptq",
                                        "packed/llama_int8"};
    bool rounds = false;
    T_MODELS();
    for (int i = 0; i < 3; i++) {
        check_packed(NAMES[i], DTYPE_F32, 2e-5, &rounds);
        check_packed(NAMES[i], DTYPE_BF16, 1e-2, &rounds);
    }
    T_OK(rounds);
}

/* --- memory --- */

/* The side on the GPU again, with no more than that. */
static Status open_under(Sides *p, const char *name, size_t limit)
{
    ModelOptions options = {.dtype = DTYPE_F32};
    Subject     *s = &p->of[ON_GPU];
    subject_close(s);
    *s = (Subject){0};
    TRY(backend_open(&s->be, "cuda", 1));
    backend_limit(&s->be, limit);
    return model_load(&s->m, &s->arena, &s->be, golden_folder(name), &options);
}

static Status run_under(float **logits, Sides *p, size_t limit)
{
    const Golden *g = &p->golden;
    TRY(open_under(p, "models/llama_gqa", limit));
    TRY(subject_run(&p->run[ON_GPU], &p->of[ON_GPU], g->ids, &g->batch, NULL, NULL));
    *logits = p->run[ON_GPU].logits;
    return OK;
}

/* Weights that find no room come from the host: the same bits. With no room for a pass there
 * is a sentence that says what would help. */
TEST(little_memory)
{
    Sides  p = {0};
    float *got;
    T_MODELS();
    T_STATUS_OK(sides_open_golden(&p, "models/llama_gqa", DTYPE_F32));
    T_STATUS_OK(sides_run(&p, PLAIN, NULL));
    size_t bytes = (size_t)(p.golden.T * p.golden.V) * sizeof *got;
    Arena  keep = {0};
    float *want = arena_alloc(&keep, p.golden.T * p.golden.V, sizeof *want);
    memcpy(want, p.run[ON_GPU].logits, bytes);
    T_STATUS_OK(run_under(&got, &p, 1u << 20));
    T_OK(memcmp(got, want, bytes) == 0);
    T_STATUS_OK(run_under(&got, &p, 200u << 10));
    T_OK(memcmp(got, want, bytes) == 0);
    T_FAILS(run_under(&got, &p, 20u << 10), ERR_MEMORY, "a smaller --context or");
    sides_close(&p);
    arena_close(&keep);
}

/* --- scores --- */

static Status windows(Windows *w, Arena *a, int64_t vocab)
{
    static int32_t ids[70];
    uint64_t       seed = 12;
    WindowOptions  o = {.context = 25};
    for (int i = 0; i < 70; i++)
        ids[i] = (int32_t)((check_uniform(&seed) + 1) / 2 * (float)(vocab - 1));
    return windows_from_ids(w, a, "random", ids, 70, 1, &o);
}

static Status measure(Divergence *d, Perplexity *p, Subject *model, Subject *reference,
                      const Windows *w, size_t kept)
{
    enum { A_WINDOW = 25 };
    Scorer    of = {.model = &reference->m, .quant = PLAIN, .batch_tokens = A_WINDOW};
    Scorer    sc = {.model = &model->m, .quant = {.bits = 4, .scale = SCALE_ROW},
                    .batch_tokens = A_WINDOW};
    Arena     a = {0};
    Reference r;
    Status    s = OK;
    GUARD(reference_open(&r, &of, w, kept));
    GUARD(reference_run(&r, p, &a, &of));
    s = divergence_run(d, p, &a, &sc, &r);
out:
    arena_close(&a);
    return s;
}

/* Two models on two backends of one GPU: each waits for what it reads of the other. */
TEST(perplexity_and_divergence)
{
    Arena      a = {0};
    Windows    w;
    Sides      one, other;
    Divergence d[N_SIDES];
    Perplexity p[N_SIDES];
    T_MODELS();
    T_STATUS_OK(sides_open_golden(&one, "models/diff_gqa", DTYPE_F32));
    T_STATUS_OK(sides_open_golden(&other, "models/diff_gqa", DTYPE_F32));
    T_STATUS_OK(windows(&w, &a, one.of[0].m.config.vocab));
    for (size_t kept = 0; kept <= 8000; kept += 8000) {
        for (int i = 0; i < N_SIDES; i++)
            T_STATUS_OK(measure(&d[i], &p[i], &one.of[i], &other.of[i], &w, kept));
        T_OK(p[ON_CPU].n_tokens == p[ON_GPU].n_tokens && d[ON_CPU].n == d[ON_GPU].n);
        T_NEAR(p[ON_GPU].nll, p[ON_CPU].nll, 1e-3);
        T_NEAR(d[ON_GPU].nll_reference, d[ON_CPU].nll_reference, 1e-5);
        T_OK(d[ON_CPU].kl > 1e-4);
        T_NEAR(d[ON_GPU].kl, d[ON_CPU].kl, 0.05 * d[ON_CPU].kl);
        T_NEAR(d[ON_GPU].top1, d[ON_CPU].top1, 0.05);
    }
    sides_close(&one);
    sides_close(&other);
    arena_close(&a);
}

/* A reference whose last layer lies on the host. */
TEST(divergence_from_a_reference_without_room)
{
    Arena       a = {0};
    Windows     w;
    Sides       one, other;
    Divergence  roomy, tight;
    Perplexity  p;
    CudaWeights *head;
    T_MODELS();
    T_STATUS_OK(sides_open_golden(&one, "models/diff_gqa", DTYPE_F32));
    T_STATUS_OK(sides_open_golden(&other, "models/diff_gqa", DTYPE_F32));
    T_STATUS_OK(windows(&w, &a, one.of[0].m.config.vocab));
    T_STATUS_OK(measure(&roomy, &p, &one.of[ON_GPU], &other.of[ON_GPU], &w, 0));
    Status s = ERR_MEMORY;   // the least that a pass needs is not ours to know
    for (size_t kib = 72; s == ERR_MEMORY && kib < 200; kib += 8) {
        T_STATUS_OK(open_under(&other, "models/diff_gqa", kib << 10));
        s = measure(&tight, &p, &one.of[ON_GPU], &other.of[ON_GPU], &w, 0);
    }
    T_STATUS_OK(s);
    head = other.of[ON_GPU].m.head.packed;
    T_OK(!head->device && head->host);
    T_OK(tight.kl == roomy.kl && tight.nll_reference == roomy.nll_reference);
    sides_close(&one);
    sides_close(&other);
    arena_close(&a);
}
