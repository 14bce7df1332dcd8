/* layout_config.c - microsoft/unilm's tensors as the config.json that archs/unilm.c reads.
 * architectures.md 2, 3: sizes follow from shapes; d of the first form is the length of
 * lambda_q1, that of the second follows from lambda_proj, which has a row for each head. */
#include <math.h>
#include <string.h>

#include "analysis/model/layout.h"
#include "analysis/textbuf.h"

#define LAYER "model.layers."
#define ATTN LAYER "0.self_attn."

typedef struct {
    const Layout     *layout;
    const Checkpoint *checkpoint;
} Context;

typedef struct {
    bool    second;   // DIFF V2
    bool    tied;
    int64_t vocab, hidden, inter, layers, heads, kv_heads, head_dim;
} Sizes;

/* --- tensors --- */

static bool has(const Context *c, const char *name)
{
    return checkpoint_find(c->checkpoint, name) != NULL;
}

/* Dims of a tensor that must be there; none of them is 0. */
static Status read_shape(int64_t *shape, int n_dims, const Context *c, const char *name)
{
    const ModelTensor *t = checkpoint_find(c->checkpoint, name);
    char               text[128];
    if (!t)
        FAIL(ERR_FORMAT, "%s: tensor %s is missing, from which layout %s knows its sizes",
             c->layout->path, name, c->layout->name);
    bool fits = t->view.n_dims == n_dims;
    for (int i = 0; fits && i < n_dims; i++) {
        shape[i] = t->view.shape[i];
        fits = shape[i] > 0;
    }
    if (!fits)
        FAIL(ERR_SHAPE, "%s/%s: tensor %s has shape %s, expected a %s that is not empty",
             c->layout->path, t->file, name, tensor_shape_text(&t->view, text),
             n_dims == 1 ? "vector" : "matrix");
    return OK;
}

/* Heads of width d in the rows of a projection. */
static Status count_heads(int64_t *heads, const Context *c, const char *name, int64_t d)
{
    int64_t shape[2] = {0};
    TRY(read_shape(shape, 2, c, name));
    if (shape[0] % d)
        FAIL(ERR_SHAPE, "%s: tensor %s has %lld rows, expected a multiple of the width of a "
             "head, %lld", c->layout->path, name, (long long)shape[0], (long long)d);
    *heads = shape[0] / d;
    return OK;
}

/* The number in "model.layers.N."; -1 for other names. Numbers too long for any model
 * are cut: config_parse refuses what they count. */
static int64_t layer_of(const char *name)
{
    int64_t     n = 0;
    const char *digit = name + strlen(LAYER);
    if (strncmp(name, LAYER, strlen(LAYER)) != 0 || *digit < '0' || *digit > '9')
        return -1;
    for (; *digit >= '0' && *digit <= '9' && n < INT32_MAX; digit++)
        n = 10 * n + (*digit - '0');
    return n;
}

static int64_t count_layers(const Checkpoint *c)
{
    int64_t most = -1;
    for (int64_t i = 0; i < c->n; i++) {
        int64_t layer = layer_of(c->tensors[i].name);
        most = layer > most ? layer : most;
    }
    return most + 1;
}

/* --- which form --- */

static Status find_form(bool *second, const Context *c)
{
    bool exponents = has(c, ATTN "lambda_q1"), norm = has(c, ATTN "subln.weight");
    bool projected = has(c, ATTN "lambda_proj.weight");
    const char *path = c->layout->path, *name = c->layout->name;
    if (projected && (exponents || norm))
        FAIL(ERR_UNSUPPORTED, "%s: has both " ATTN "lambda_proj.weight and %s, expected those "
             "of one form of layout %s", path, exponents ? "lambda_q1" : "subln.weight", name);
    if (exponents && !norm)
        FAIL(ERR_UNSUPPORTED, "%s: has " ATTN "lambda_q1 but no subln.weight, so it is not of "
             "layout %s: DiffLlama has such tensors, and needs its config.json", path, name);
    if (!projected && !exponents)
        FAIL(ERR_UNSUPPORTED, "%s: has neither " ATTN "lambda_q1 nor lambda_proj.weight, so it "
             "is not of layout %s", path, name);
    *second = projected;
    return OK;
}

/* --- sizes --- */

/* lambda_proj has a row for each of H heads, q has two maps for each. */
static Status second_width(int64_t *d, const Context *c)
{
    int64_t lambda[2], q[2];
    TRY(read_shape(lambda, 2, c, ATTN "lambda_proj.weight"));
    TRY(read_shape(q, 2, c, ATTN "q_proj.weight"));
    if (q[0] % (2 * lambda[0]))
        FAIL(ERR_SHAPE, "%s: tensor " ATTN "q_proj.weight has %lld rows, expected a multiple of "
             "twice the rows of lambda_proj, %lld", c->layout->path, (long long)q[0],
             (long long)lambda[0]);
    *d = q[0] / (2 * lambda[0]);
    return OK;
}

static Status read_sizes(Sizes *s, const Context *c)
{
    int64_t embed[2] = {0}, gate[2] = {0};
    TRY(find_form(&s->second, c));
    TRY(s->second ? second_width(&s->head_dim, c)
                  : read_shape(&s->head_dim, 1, c, ATTN "lambda_q1"));
    TRY(count_heads(&s->heads, c, ATTN "q_proj.weight", s->head_dim));
    TRY(count_heads(&s->kv_heads, c, ATTN "k_proj.weight", s->head_dim));
    TRY(read_shape(embed, 2, c, "model.embed_tokens.weight"));
    TRY(read_shape(gate, 2, c, LAYER "0.mlp.gate_proj.weight"));
    s->vocab = embed[0];
    s->hidden = embed[1];
    s->inter = gate[0];
    s->layers = count_layers(c->checkpoint);
    s->tied = !has(c, "lm_head.weight");
    return OK;
}

static Status check_token(const Context *c, const char *what, int64_t id, int64_t vocab)
{
    if (id >= vocab)
        FAIL(ERR_USAGE, "layout %s: %s is %lld, but %s has %lld tokens", c->layout->name, what,
             (long long)id, c->layout->path, (long long)vocab);
    return OK;
}

/* --- the text --- */

static void add_count(TextBuf *b, const char *key, int64_t value)
{
    textbuf_printf(b, "  \"%s\": %lld,\n", key, (long long)value);
}

/* With a point: readers in other languages tell floats from whole numbers by it. */
static void add_real(TextBuf *b, const char *key, double value)
{
    textbuf_printf(b, "  \"%s\": ", key);
    if (value == floor(value) && value < 1e15)
        textbuf_printf(b, "%.1f", value);
    else
        textbuf_json_real(b, value);
    textbuf_add(b, ",\n");
}

static void add_token(TextBuf *b, const char *key, int64_t id)
{
    if (id < 0)
        textbuf_printf(b, "  \"%s\": null,\n", key);
    else
        add_count(b, key, id);
}

static void write_config(TextBuf *b, const Layout *l, const Sizes *s)
{
    textbuf_printf(b, "{\n  \"architectures\": [\"UnilmDiff%sForCausalLM\"],\n"
                   "  \"model_type\": \"unilm_diff%s\",\n", s->second ? "2" : "",
                   s->second ? "2" : "");
    add_count(b, "vocab_size", s->vocab);
    add_count(b, "hidden_size", s->hidden);
    add_count(b, "intermediate_size", s->inter);
    add_count(b, "num_hidden_layers", s->layers);
    add_count(b, "num_attention_heads", s->heads);
    add_count(b, "num_key_value_heads", s->kv_heads);
    add_count(b, "head_dim", s->head_dim);
    add_count(b, "max_position_embeddings", l->context);
    add_real(b, "rms_norm_eps", l->eps);
    add_real(b, "rope_theta", l->theta);
    add_token(b, "bos_token_id", l->bos);
    add_token(b, "eos_token_id", l->eos);
    textbuf_printf(b, "  \"hidden_act\": \"silu\",\n  \"tie_word_embeddings\": %s\n}\n",
                   s->tied ? "true" : "false");
}

Status layout_config_text(const char **text, Arena *a, const Layout *l, const Checkpoint *ck)
{
    const Context c = {l, ck};
    Sizes         s = {0};
    TextBuf       b;
    textbuf_init(&b, a);
    TRY(read_sizes(&s, &c));
    TRY(check_token(&c, "bos", l->bos, s.vocab));
    TRY(check_token(&c, "eos", l->eos, s.vocab));
    write_config(&b, l, &s);
    *text = b.at;
    return textbuf_status(&b);
}
