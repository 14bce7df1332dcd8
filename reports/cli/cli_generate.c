/* cli_generate.c - diffquant generate: the likeliest continuation, token by token. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/clock.h"
#include "reports/cli/verbs.h"

typedef struct {
    Session *se;
    Loaded  *l;
    Cache   *cache;
    Arena    scratch;     // texts of one step
    int32_t *ids;         // prompt, then what was added
    int64_t  n_prompt, n;
    int32_t *said;        // of what was added, the ids that have a text
    int64_t  n_said;
    size_t   printed;     // bytes of the continuation that are out
    double   prompt_seconds, step_seconds;   // to the first token, and from there on
} Generation;

/* Runs rows ids[from..n) and returns the likeliest next token. */
static Status next_token(Generation *g, int64_t from, int32_t *next)
{
    Model         *m = &g->l->model;
    int32_t        start[2] = {0, (int32_t)(g->n - from)};
    int64_t        number = 0;
    Batch          batch = {1, start, &number};
    const int32_t  target = 0;   // any: only `best` is wanted
    float          logprob;
    Tensor         hidden;
    ArenaMark      mark = backend_mark(m->backend);
    TRY(backend_tensor(m->backend, &hidden, 2, (int64_t[]){start[1], m->config.hidden}));
    TRY(model_forward(m, &hidden, g->ids + from, &batch,
                      model_run(m, (RunQuant){.bits = 16}), NULL, g->cache));
    Tensor last = tensor_2d(DTYPE_F32, (float *)hidden.data + (start[1] - 1) * m->config.hidden,
                            1, m->config.hidden);
    TRY(op_score(m->backend, &last, &m->head, &target, &logprob, next));
    backend_rewind(m->backend, mark);
    if (isnan(logprob))
        FAIL(ERR_RANGE, "%s: after %lld tokens some logits are NaN or infinite", m->name,
             (long long)g->n);
    return OK;
}

/* Bytes of text[0..n) that end no character in the middle: U+FFFD at the end may
 * still become one. */
static size_t whole_characters(const char *text, size_t n)
{
    while (n >= 3 && memcmp(text + n - 3, "\xef\xbf\xbd", 3) == 0)
        n -= 3;
    return n;
}

static Status print_new(Generation *g, bool all)
{
    char     *text;
    ArenaMark mark = arena_mark(&g->scratch);
    TRY(tokenizer_decode(g->l->tokenizer, &g->scratch, g->said, g->n_said, &text));
    size_t n = strlen(text);
    if (!all)
        n = whole_characters(text, n);
    if (n > g->printed) {
        fwrite(text + g->printed, 1, n - g->printed, stdout);
        fflush(stdout);
        g->printed = n;
    }
    arena_rewind(&g->scratch, mark);
    return OK;
}

static bool ends(const Loaded *l, int32_t id)
{
    const ModelConfig *c = &l->model.config;
    for (int64_t i = 0; i < c->n_stops; i++)
        if (id == c->stops[i])
            return true;
    return id == tokenizer_eos(l->tokenizer);
}

/* Vocabularies of models are padded: ids past the tokenizer's say nothing, as in
 * transformers. */
static void add(Generation *g, int32_t id)
{
    g->ids[g->n++] = id;
    if (*tokenizer_piece(g->l->tokenizer, id))
        g->said[g->n_said++] = id;
}

static Status run(Generation *g, int64_t most)
{
    int64_t from = 0;
    for (int64_t i = 0; i < most; i++) {
        int32_t next;
        double  began = clock_seconds();
        TRY(next_token(g, from, &next));
        *(i ? &g->step_seconds : &g->prompt_seconds) += clock_seconds() - began;
        if (ends(g->l, next))
            break;
        from = g->n;
        add(g, next);
        if (!g->se->s.json)
            TRY(print_new(g, false));
    }
    return OK;
}

static Status print_json(Generation *g)
{
    TextBuf b;
    char   *text;
    TRY(tokenizer_decode(g->l->tokenizer, &g->scratch, g->said, g->n_said, &text));
    textbuf_init(&b, &g->scratch);
    textbuf_add(&b, "{\"prompt\": ");
    textbuf_json(&b, g->se->s.prompt);
    textbuf_add(&b, ", \"text\": ");
    textbuf_json(&b, text);
    textbuf_add(&b, ", \"ids\": [");
    for (int64_t i = g->n_prompt; i < g->n; i++)
        textbuf_printf(&b, "%s%d", i > g->n_prompt ? ", " : "", g->ids[i]);
    textbuf_printf(&b, "], \"prompt_tokens\": %lld, \"prompt_seconds\": %.6f, "
                   "\"step_seconds\": %.6f}\n", (long long)g->n_prompt, g->prompt_seconds,
                   g->step_seconds);
    TRY(textbuf_status(&b));
    fputs(b.at, stdout);
    return OK;
}

static Status generate(Generation *g, int64_t most)
{
    Loaded     *l = g->l;
    const char *prompt = g->se->s.prompt;
    int32_t    *ids;
    TRY(tokenizer_encode(l->tokenizer, &l->arena, prompt, strlen(prompt), false, &ids,
                         &g->n_prompt, NULL));
    int32_t bos = windows_bos(l->tokenizer, false);
    ARENA_NEW(g->ids, &l->arena, g->n_prompt + 1 + most);
    ARENA_NEW(g->said, &l->arena, most);
    if (bos >= 0)
        g->ids[g->n++] = bos;
    memcpy(g->ids + g->n, ids, (size_t)g->n_prompt * sizeof *ids);
    g->n += g->n_prompt;
    g->n_prompt = g->n;
    if (g->n == 0)
        FAIL(ERR_RANGE, "an empty prompt, and a tokenizer without BOS: nothing to begin with");
    TRY(cache_init(&g->cache, &l->model, &l->arena, g->n + most));
    if (!g->se->s.json)
        fputs(prompt, stdout);
    TRY(run(g, most));
    if (g->se->s.json)
        return print_json(g);
    TRY(print_new(g, true));
    putchar('\n');
    return OK;
}

Status verb_generate(Session *se)
{
    Loaded l;
    if (!se->s.prompt)
        FAIL(ERR_USAGE, "generate needs a text to continue: --prompt TEXT");
    TRY(loaded_open(&l, se, se->s.inputs.at[0], "fp", true));
    Generation g = {.se = se, .l = &l};
    Status     s = generate(&g, se->s.n_tokens ? se->s.n_tokens : 64);
    arena_close(&g.scratch);
    loaded_close(&l);
    return s;
}
