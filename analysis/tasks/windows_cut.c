/* windows_cut.c - the table of conventions. Numbers of tokens are those of the text;
 * where BOS stands once before it, place p of that longer text is token p - bos. */
#include "analysis/tasks/windows_cut.h"

#include "kernels/size.h"

/* --- disjoint --- */

static int64_t disjoint_count(const Cut *c)
{
    return ceil_div(c->n, c->context - c->bos);
}

static Piece disjoint_piece(const Cut *c, int64_t i)
{
    int64_t size = c->context - c->bos, first = i * size, end = i64_min(first + size, c->n);
    return (Piece){c->bos, first, end, first + !c->bos, end};
}

static char *disjoint_sentence(Arena *a, const Cut *c)
{
    return arena_printf(
        a, "Windows of %lld tokens without overlap, %s; perplexity is exp of the mean "
        "negative log-likelihood of all other tokens.", (long long)c->context,
        c->bos ? "each beginning with BOS, which counts but is not scored"
               : "without BOS, the first token of each not scored");
}

/* --- strided --- */

static int64_t strided_count(const Cut *c)
{
    int64_t n = c->n + c->bos;
    return n <= c->context ? 1 : 1 + ceil_div(n - c->context, c->stride);
}

/* What the window before predicted ends where that window ends. With a stride of the
 * whole context nothing precedes the first token. */
static Piece strided_piece(const Cut *c, int64_t i)
{
    int64_t first = i * c->stride - c->bos, end = i64_min(first + c->context, c->n);
    int64_t before = i ? first - c->stride + c->context : 0;
    if (i == 0)
        return (Piece){c->bos, 0, end, !c->bos, end};
    return (Piece){false, first, end, i64_max(before, first + 1), end};
}

static char *strided_sentence(Arena *a, const Cut *c)
{
    return arena_printf(
        a, "Windows of %lld tokens, one every %lld, %s; each scores the tokens that none "
        "before it did; perplexity is exp of the mean negative log-likelihood of these.",
        (long long)c->context, (long long)c->stride,
        c->bos ? "BOS once before the text" : "without BOS");
}

/* --- llama.cpp and GPTQ: whole windows of the text with BOS before it --- */

static int64_t whole_count(const Cut *c)
{
    return (c->n + c->bos) / c->context;
}

/* The first place of each window is BOS, whatever stood there. */
static Piece llama_piece(const Cut *c, int64_t i)
{
    int64_t first = i * c->context, end = first + c->context - c->bos;
    return (Piece){c->bos, first, end, first + c->context / 2 + 1 - c->bos, end};
}

static char *llama_sentence(Arena *a, const Cut *c)
{
    return arena_printf(
        a, "llama.cpp's convention: whole windows of %lld tokens without overlap, %s; "
        "perplexity is exp of the mean negative log-likelihood of tokens %lld to %lld of "
        "each, counted from 0.", (long long)c->context,
        c->bos ? "the first token of each replaced by BOS" : "without BOS",
        (long long)c->context / 2 + 1, (long long)c->context - 1);
}

static Piece gptq_piece(const Cut *c, int64_t i)
{
    bool    bos = c->bos && i == 0;
    int64_t first = bos ? 0 : i * c->context - c->bos, end = (i + 1) * c->context - c->bos;
    return (Piece){bos, first, end, first + !bos, end};
}

static char *gptq_sentence(Arena *a, const Cut *c)
{
    return arena_printf(
        a, "GPTQ's convention: whole windows of %lld tokens without overlap, %s, a rest left "
        "out; perplexity is exp of the mean negative log-likelihood of all tokens but the "
        "first of each.", (long long)c->context,
        c->bos ? "BOS once before the text" : "without BOS");
}

/* --- lm-evaluation-harness: context tokens go in, as many others are predicted --- */

static int64_t rolling_count(const Cut *c)
{
    return ceil_div(c->n, c->context);
}

/* Each predicts the token behind its last. The last window is filled up from the left. */
static Piece rolling_piece(const Cut *c, int64_t i)
{
    int64_t done = i * c->context, end = i64_min(done + c->context, c->n);
    if (i == 0)
        return (Piece){true, 0, end - 1, 0, end};
    return (Piece){false, end - c->context - 1, end - 1, done, end};
}

static char *rolling_sentence(Arena *a, const Cut *c)
{
    return arena_printf(
        a, "lm-evaluation-harness's rolling windows of %lld tokens, the first conditioned on "
        "BOS or EOS, each later one on the token before it, the last on as many as fit; "
        "perplexity is exp of the mean negative log-likelihood of all tokens.",
        (long long)c->context);
}

const Convention CONVENTIONS[N_WINDOW_CONVENTIONS] = {
    [WINDOWS_DISJOINT] = {"disjoint", 2, false, disjoint_count, disjoint_piece,
                          disjoint_sentence},
    [WINDOWS_STRIDED] = {"strided", 2, false, strided_count, strided_piece, strided_sentence},
    [WINDOWS_LLAMA_CPP] = {"llama.cpp", 3, false, whole_count, llama_piece, llama_sentence},
    [WINDOWS_LM_EVAL] = {"lm-eval", 2, true, rolling_count, rolling_piece, rolling_sentence},
    [WINDOWS_GPTQ] = {"gptq", 2, false, whole_count, gptq_piece, gptq_sentence},
};
