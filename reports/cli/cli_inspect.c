/* cli_inspect.c - diffquant inspect: what a checkpoint is, without its weights. */
#include <stdio.h>
#include <string.h>

#include "analysis/memory.h"
#include "kernels/size.h"
#include "reports/cli/verbs.h"

static const char *const ROPES[N_ROPES] = {"default", "linear", "dynamic", "yarn", "llama3",
                                           "longrope"};

static const char *size_text(char *text, size_t bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double                   x = (double)bytes;
    int                      u = 0;
    for (; x >= 1024 && u < 4; u++)
        x /= 1024;
    snprintf(text, 32, u ? "%.1f %s" : "%.0f %s", x, UNITS[u]);
    return text;
}

static int64_t context_of(const Session *se, const ModelInfo *info)
{
    return session_context(se, &info->config);
}

/* --- for people --- */

static bool layers_alike(const LayerConfig *a, const LayerConfig *b)
{
    return a->mixer == b->mixer && a->reach == b->reach &&
           (a->mixer != MIX_CROSS || a->keys_of == b->keys_of);
}

static bool first_of_its_kind(const ModelConfig *c, int64_t layer)
{
    for (int64_t i = 0; i < layer; i++)
        if (layers_alike(&c->layers[i], &c->layers[layer]))
            return false;
    return true;
}

/* What mixes the positions: how many layers of each kind. */
static void print_mixers(const ModelConfig *c)
{
    static const char *const NAMES[N_MIXERS] = {
        [MIX_ATTENTION] = "attention", [MIX_CROSS] = "attention to the keys of layer",
        [MIX_MAMBA] = "Mamba", [MIX_MEMORY] = "gated memory unit"};
    const char *sign = "";
    printf("  mixers      ");
    for (int64_t kind = 0; kind < N_MIXERS; kind++)
        for (int64_t first = 0; first < c->n_layers; first++) {
            const LayerConfig *l = &c->layers[first];
            int64_t            n = 0;
            if (l->mixer != (Mixer)kind || !first_of_its_kind(c, first))
                continue;
            for (int64_t i = first; i < c->n_layers; i++)
                n += layers_alike(l, &c->layers[i]);
            printf("%s%lld x %s", sign, (long long)n, NAMES[kind]);
            if (l->mixer == MIX_CROSS)
                printf(" %lld", (long long)l->keys_of);
            if (l->reach)
                printf(" over %lld keys", (long long)l->reach);
            sign = ", ";
        }
    printf("\n");
}

static void print_mlp(const ModelConfig *c)
{
    printf("  layers      %lld, hidden %lld, MLP %lld (%s%s), %s, vocabulary %lld%s\n",
           (long long)c->n_layers, (long long)c->hidden, (long long)c->inter,
           c->poly ? "PolyNorm" : activation_name(c->act), c->gated ? ", gated" : "",
           c->centred ? "LayerNorm" : "RMSNorm", (long long)c->vocab, c->tied ? ", tied" : "");
    if (c->residual != RESIDUAL_PRE)
        printf("  residual    %s\n", c->residual == RESIDUAL_POST
                                         ? "norms after attention and MLP"
                                         : "attention and MLP side by side");
}

static void print_heads(const ModelInfo *info)
{
    const ModelConfig *c = &info->config;
    printf("  heads       %lld of %lld map%s, %lld key-value group%s, width %lld",
           (long long)c->n_heads, (long long)c->n_maps, c->n_maps > 1 ? "s" : "",
           (long long)c->n_groups, c->n_groups > 1 ? "s" : "", (long long)c->head_dim);
    if (c->n_signals > 1)
        printf(", %lld of them to a noise map", (long long)c->n_signals);
    printf("%s\n", c->qk_norm ? ", queries and keys normed" : "");
    printf("  pairing     %s\n", info->pairing);
}

static void print_positions(const ModelConfig *c)
{
    if (c->rope.dims)
        printf("  rope        %s, theta %g, %lld of %lld dims\n", ROPES[c->rope.kind],
               c->rope.theta, (long long)c->rope.dims, (long long)c->head_dim);
    else
        printf("  rope        none%s\n", c->n_positions ? ", positions are learned" : "");
    printf("  context     %lld\n", (long long)c->max_positions);
}

static void print_shape(const ModelInfo *info)
{
    const ModelConfig *c = &info->config;
    char               count[32], size[32];
    printf("%s: %s\n", info->path, info->arch);
    print_mlp(c);
    print_mixers(c);
    print_heads(info);
    print_positions(c);
    if (info->layout)
        printf("  layout      %s\n", info->layout);
    printf("  parameters  %s, %s%s%s in %lld file%s\n", textbuf_count(count, info->n_params),
           size_text(size, info->n_bytes), info->quantization ? "" : " as ",
           info->quantization ? "" : dtype_name(info->stored), (long long)info->n_files,
           info->n_files > 1 ? "s" : "");
    if (info->quantization)
        printf("  quantized   %s\n", info->quantization);
    printf("  quantizable %s, %.1f %% of them\n", textbuf_count(count, info->n_quantizable),
           100.0 * (double)info->n_quantizable / (double)info->n_params);
}

static void print_lambda(const ModelInfo *info)
{
    int64_t printed = 0;
    if (info->config.lambda_rows)
        printf("\nLambda is computed from each token.\n");
    if (!info->lambda)
        return;
    printf("\nLambda of each layer (before training in brackets)");
    for (int64_t l = 0; l < info->config.n_layers; l++)
        if (model_attends(&info->config, l))
            printf("%s %lld: %.4f (%.4f)", printed++ % 4 ? "" : "\n ", (long long)l,
                   info->lambda[l], info->lambda_init[l]);
    printf("\n");
}

static void print_tensors(const ModelInfo *info)
{
    int  widest = 0, format_width = 4;
    char shape[128], size[32], format[MODEL_FORMAT];
    for (int64_t i = 0; i < info->n_tensors; i++)
        widest = (int)i64_max(widest, snprintf(NULL, 0, "%s", info->tensors[i].name));
    for (int64_t i = 0; i < info->n_tensors; i++)
        format_width = (int)i64_max(
            format_width, (int64_t)strlen(model_tensor_format(&info->tensors[i], format)));
    printf("\nTensors (* can be quantized)\n");
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        printf("%s %-*s  %-*s  %-16s %10s  %s\n", t->quantizable ? "*" : " ", widest, t->name,
               format_width, model_tensor_format(t, format),
               tensor_shape_text(&t->view, shape), size_text(size, model_tensor_bytes(t)),
               t->file);
    }
}

/* What analyze takes in each way to run it. */
enum { N_WAYS = 4 };

static const struct {
    const char *name, *key;
    Dtype       dtype;
    bool        stream;
} WAYS[N_WAYS] = {
    {"f32", "f32", DTYPE_F32, false},
    {"f32 --stream", "f32_stream", DTYPE_F32, true},
    {"bf16", "bf16", DTYPE_BF16, false},
    {"bf16 --stream", "bf16_stream", DTYPE_BF16, true},
};

static MemoryAsk memory_ask(const Session *se, const ModelInfo *info)
{
    return (MemoryAsk){.context = context_of(se, info), .n_threads = (int)se->s.threads,
                       .n_tokens = se->s.max_tokens};
}

static Status measure_ways(Memory ways[N_WAYS], const Session *se, const ModelInfo *info)
{
    MemoryAsk ask = memory_ask(se, info);
    for (int i = 0; i < N_WAYS; i++) {
        ask.dtype = WAYS[i].dtype;
        ask.stream = WAYS[i].stream;
        TRY(memory_measure(&ways[i], se->s.inputs.at[0], &ask));
    }
    return OK;
}

static void print_memory(const Session *se, const ModelInfo *info, const Memory ways[N_WAYS])
{
    printf("\nMemory that analyze takes on the CPU at its peak, windows of %lld tokens\n"
           "  %-13s  %10s  %10s  %10s  %10s  %10s\n", (long long)context_of(se, info), "dtype",
           "in all", "weights", "a batch", "operation", "statistics");
    for (int i = 0; i < N_WAYS; i++) {
        const Memory *m = &ways[i];
        char          text[5][32];
        printf("  %-13s  %10s  %10s  %10s  %10s  %10s\n", WAYS[i].name,
               size_text(text[0], m->peak + MEMORY_PROGRAM), size_text(text[1], m->weights),
               size_text(text[2], m->pass), size_text(text[3], m->scratch),
               size_text(text[4], m->records));
    }
    printf("and %zu B for each token of the text. A batch: the windows that are on their way at\n"
           "once, and, with --stream, the weights at work. In all: the program's own %d MiB too.\n",
           ways[0].token, MEMORY_PROGRAM >> 20);
}

/* --- for programs --- */

static void json_text(TextBuf *b, const char *key, const char *value)
{
    textbuf_printf(b, "\"%s\": ", key);
    textbuf_json(b, value);
    textbuf_add(b, ", ");
}

static void json_int(TextBuf *b, const char *key, int64_t value)
{
    textbuf_printf(b, "\"%s\": %lld, ", key, (long long)value);
}

static void json_reals(TextBuf *b, const char *key, const double *x, int64_t n)
{
    textbuf_printf(b, "\"%s\": [", key);
    for (int64_t i = 0; x && i < n; i++) {
        textbuf_add(b, i ? ", " : "");
        textbuf_json_real(b, x[i]);
    }
    textbuf_add(b, "], ");
}

static void json_tensors(TextBuf *b, const ModelInfo *info)
{
    textbuf_add(b, "\"tensors\": [");
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        char               shape[128], format[MODEL_FORMAT];
        textbuf_add(b, i ? ",\n  {" : "\n  {");
        json_text(b, "name", t->name);
        json_text(b, "dtype", dtype_name(t->view.dtype));
        json_text(b, "format", model_tensor_format(t, format));
        json_text(b, "file", t->file);
        textbuf_printf(b, "\"shape\": %s, \"bytes\": %zu, \"quantizable\": %s}",
                       tensor_shape_text(&t->view, shape), model_tensor_bytes(t),
                       t->quantizable ? "true" : "false");
    }
    textbuf_add(b, "]");
}

static void json_memory(TextBuf *b, int64_t context, const Memory ways[N_WAYS])
{
    textbuf_printf(b, "\"memory\": {\"context\": %lld, \"bytes_per_token\": %zu",
                   (long long)context, ways[0].token);
    for (int i = 0; i < N_WAYS; i++) {
        const Memory *m = &ways[i];
        textbuf_printf(b, ", \"%s\": {\"peak\": %zu, \"weights\": %zu, \"pass\": %zu, "
                       "\"scratch\": %zu, \"records\": %zu, \"batch_tokens\": %lld}",
                       WAYS[i].key, m->peak + MEMORY_PROGRAM, m->weights, m->pass, m->scratch,
                       m->records, (long long)m->batch);
    }
    textbuf_add(b, "}, ");
}

static void json_mixers(TextBuf *b, const ModelConfig *c)
{
    static const char *const NAMES[N_MIXERS] = {"attention", "cross", "mamba", "memory"};
    textbuf_add(b, "\"mixers\": [");
    for (int64_t l = 0; l < c->n_layers; l++) {
        textbuf_printf(b, "%s{\"mixer\": \"%s\"", l ? ", " : "", NAMES[c->layers[l].mixer]);
        if (c->layers[l].reach)
            textbuf_printf(b, ", \"window\": %lld", (long long)c->layers[l].reach);
        if (c->layers[l].keys_of != l)
            textbuf_printf(b, ", \"keys_of\": %lld", (long long)c->layers[l].keys_of);
        textbuf_add(b, "}");
    }
    textbuf_add(b, "], ");
}

static Status print_json(Session *se, const ModelInfo *info, const Memory ways[N_WAYS])
{
    const ModelConfig *c = &info->config;
    TextBuf            b;
    textbuf_init(&b, &se->arena);
    textbuf_add(&b, "{");
    json_text(&b, "path", info->path);
    json_text(&b, "architecture", info->arch);
    json_text(&b, "pairing", info->pairing);
    if (info->layout)
        json_text(&b, "layout", info->layout);
    if (info->quantization)
        json_text(&b, "quantization", info->quantization);
    json_int(&b, "layers", c->n_layers);
    json_int(&b, "hidden", c->hidden);
    json_int(&b, "intermediate", c->inter);
    json_int(&b, "vocabulary", c->vocab);
    json_int(&b, "heads", c->n_heads);
    json_int(&b, "maps", c->n_maps);
    json_int(&b, "groups", c->n_groups);
    json_int(&b, "head_dim", c->head_dim);
    json_int(&b, "max_positions", c->max_positions);
    json_text(&b, "activation", c->poly ? "poly_norm" : activation_name(c->act));
    json_text(&b, "rope", c->rope.dims ? ROPES[c->rope.kind] : "none");
    json_mixers(&b, c);
    json_int(&b, "parameters", info->n_params);
    json_int(&b, "quantizable", info->n_quantizable);
    json_int(&b, "bytes", (int64_t)info->n_bytes);
    json_text(&b, "dtype", dtype_name(info->stored));
    json_reals(&b, "lambda", info->lambda, c->n_layers);
    json_reals(&b, "lambda_init", info->lambda_init, c->n_layers);
    json_memory(&b, context_of(se, info), ways);
    json_tensors(&b, info);
    textbuf_add(&b, "}\n");
    TRY(textbuf_status(&b));
    fputs(b.at, stdout);
    return OK;
}

static Status inspect(Session *se, const ModelInfo *info)
{
    Memory ways[N_WAYS];
    session_say_context(se, info->path, &info->config);
    TRY(measure_ways(ways, se, info));
    if (se->s.json)
        return print_json(se, info, ways);
    print_shape(info);
    print_lambda(info);
    print_memory(se, info, ways);
    print_tensors(info);
    return OK;
}

Status verb_inspect(Session *se)
{
    ModelInfo info;
    TRY(model_info_open(&info, &se->arena, se->s.inputs.at[0]));
    Status s = inspect(se, &info);
    model_info_close(&info);
    return s;
}
