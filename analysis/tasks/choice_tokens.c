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

#include "analysis/tasks/choice_item.h"
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

/* No context at all: the prefix token stands for it, unless the continuation begins
 * with that itself. */
static Status encode_alone(Ids *context, Ids *scored, Arena *a, const ChoiceTokens *t,
                           const char *text)
{
    if (t->prefix < 0)
        FAIL_LINE(t, ERR_RANGE, "an empty context, and the tokenizer has neither BOS nor EOS "
                  "to stand for it");
    TRY(tokenizer_encode(t->tokenizer, a, text, strlen(text), false, &scored->ids, &scored->n,
                         NULL));
    ARENA_NEW(context->ids, a, 1);
    context->ids[0] = t->prefix;
    context->n = 1;
    if (scored->n > 0 && scored->ids[0] == t->prefix) {
        scored->ids++;
        scored->n--;
    }
    return OK;
}

static Status encode_pair(Ids *context, Ids *scored, Arena *a, const ChoiceTokens *t,
                          const char *text, const char *continuation)
{
    const char *end = text + strlen(text);
    char       *whole = arena_printf(a, "%s%s", text, continuation);
    if (!whole)
        FAIL_LINE(t, ERR_MEMORY, "out of memory for a text");
    choice_rstrip(text, &end);
    TRY(encode(context, a, t, text, (size_t)(end - text)));
    TRY(encode(scored, a, t, whole, strlen(whole)));
    if (context->n == 0)
        FAIL_LINE(t, ERR_RANGE, "the context is blank, and no BOS comes before it");
    scored->ids += i64_min(context->n, scored->n);
    scored->n -= i64_min(context->n, scored->n);
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

Status choice_tokens_row(ChoiceRow *out, Arena *a, const ChoiceTokens *t, const char *context,
                         const char *continuation)
{
    Arena  tmp = {0};
    Status s = OK;
    Ids    front = {0}, scored = {0};
    if (context[0])
        GUARD(encode_pair(&front, &scored, &tmp, t, context, continuation));
    else
        GUARD(encode_alone(&front, &scored, &tmp, t, continuation));
    GUARD(lay_out(out, a, t, &front, &scored));
out:
    arena_close(&tmp);
    return s;
}
