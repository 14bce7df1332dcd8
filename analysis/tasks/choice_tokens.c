/* choice_tokens.c - see choice_tokens.h. HFLM._encode_pair and _loglikelihood_tokens:
 *
 *   white space that ends the context moves to the continuation
 *   scored = encode(context + continuation)[len(encode(context)):]
 *   row    = (encode(context) + scored)[-(max_length + 1):]
 *
 * The context's tokens are those of the context alone, also where the two texts together
 * are cut in another way. Encoding adds what the tokenizer's post-processor adds, unless
 * the text begins with that token's spelling. */
#include "analysis/tasks/choice_tokens.h"

#include <string.h>

#include "kernels/size.h"

void choice_tokens_init(ChoiceTokens *t, Tokenizer *tokenizer, const char *path,
                        const ChoiceOptions *o)
{
    int32_t bos = tokenizer_bos(tokenizer);
    *t = (ChoiceTokens){.tokenizer = tokenizer, .path = path, .context = o->context,
                        .no_bos = o->no_bos,
                        .prefix = bos >= 0 ? bos : tokenizer_eos(tokenizer)};
}

typedef struct {
    int32_t *ids;
    int64_t  n;
} Ids;

static Status encode(Ids *out, Arena *a, const ChoiceTokens *t, const char *text, size_t n)
{
    const char *spelling = t->prefix >= 0 ? tokenizer_piece(t->tokenizer, t->prefix) : "";
    size_t      k = strlen(spelling);
    bool        begun = k > 0 && n >= k && memcmp(text, spelling, k) == 0;
    return tokenizer_encode(t->tokenizer, a, text, n, !t->no_bos && !begun, &out->ids, &out->n,
                            NULL);
}

/* A request on its way: the text of its context, its end without white space. */
typedef struct {
    const char *text;
    size_t      n;
    Ids         context, scored;
} Pair;

/* No context at all: the prefix token stands for it. */
static Status encode_context(Pair *p, Arena *a, const ChoiceTokens *t, const char *shots,
                             const char *context)
{
    p->text = arena_printf(a, "%s%s", shots, context);
    if (!p->text)
        FAIL_LINE(t, ERR_MEMORY, "out of memory for a text");
    const char *end = p->text + strlen(p->text);
    choice_rstrip(p->text, &end);
    p->n = (size_t)(end - p->text);
    if (p->text[0])
        return encode(&p->context, a, t, p->text, p->n);
    if (t->prefix < 0)
        FAIL_LINE(t, ERR_RANGE, "an empty context, and the tokenizer has neither BOS nor EOS "
                  "to stand for it");
    ARENA_NEW(p->context.ids, a, 1);
    p->context.ids[0] = t->prefix;
    p->context.n = 1;
    return OK;
}

static void skip(Ids *ids, int64_t n)
{
    n = i64_min(n, ids->n);
    ids->ids += n;
    ids->n -= n;
}

static Status encode_scored(Pair *p, Arena *a, const ChoiceTokens *t, const char *continuation)
{
    const char *whole = arena_printf(a, "%s%s%s", p->text, CHOICE_DELIMITER, continuation);
    if (!whole)
        FAIL_LINE(t, ERR_MEMORY, "out of memory for a text");
    if (p->context.n == 0)
        FAIL_LINE(t, ERR_RANGE, "the context is blank, and no BOS comes before it");
    if (p->text[0]) {
        TRY(encode(&p->scored, a, t, whole, strlen(whole)));
        skip(&p->scored, p->context.n);
        return OK;
    }
    TRY(tokenizer_encode(t->tokenizer, a, whole, strlen(whole), false, &p->scored.ids,
                         &p->scored.n, NULL));
    /* The prefix token comes once, also where the continuation begins with it. */
    if (p->scored.n > 0 && p->scored.ids[0] == t->prefix)
        skip(&p->scored, 1);
    return OK;
}

static Status lay_out(ChoiceRow *out, Arena *a, const ChoiceTokens *t, const Ids *context,
                      const Ids *scored)
{
    if (scored->n == 0)
        FAIL_LINE(t, ERR_RANGE, "a choice adds no token to the context");
    if (scored->n > t->context)
        FAIL_LINE(t, ERR_RANGE, "a choice of %lld tokens does not fit a context of %lld",
                  (long long)scored->n, (long long)t->context);
    int64_t drop = i64_max(0, context->n + scored->n - 1 - t->context);
    int64_t kept = context->n - drop;
    *out = (ChoiceRow){.n = kept + scored->n - 1, .n_scored = scored->n, .truncated = drop > 0};
    ARENA_NEW(out->ids, a, out->n + 1);
    memcpy(out->ids, context->ids + drop, (size_t)kept * sizeof *out->ids);
    memcpy(out->ids + kept, scored->ids, (size_t)scored->n * sizeof *out->ids);
    return OK;
}

Status choice_tokens_item(ChoiceRow *rows, Arena *a, ChoiceTokens *t, const char *shots,
                          const ChoiceItem *it)
{
    Arena  tmp = {0};
    Status s = OK;
    Pair   p = {0};
    t->line = it->line;
    for (int64_t j = 0; j < it->n; j++) {
        if (j == 0 || it->context[j] != it->context[j - 1])
            GUARD(encode_context(&p, &tmp, t, shots, it->context[j]));
        GUARD(encode_scored(&p, &tmp, t, it->continuation[j]));
        GUARD(lay_out(&rows[j], a, t, &p.context, &p.scored));
    }
out:
    arena_close(&tmp);
    return s;
}
