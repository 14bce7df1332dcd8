/* tokread_model.c - vocabulary, merges and added tokens of a tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include "analysis/text/tokenizer_parts.h"

/* --- vocabulary --- */

/* Total bytes of the spellings, the largest id + 1 to *size. */
static Status measure(const Reader *r, const Json *vocab, int32_t *size, int64_t *bytes)
{
    *size = 0;
    *bytes = 0;
    for (int64_t i = 0; i < vocab->n; i++) {
        const Json *v = &vocab->at[i];
        if (v->kind != JSON_NUMBER || !v->whole || v->integer < 0 || v->integer >= VOCAB_MAX_ID)
            FAIL(ERR_FORMAT, "%s: id of token \"%.100s\" should be a whole number from 0 to %d",
                 r->t->path, v->key, VOCAB_MAX_ID - 1);
        *bytes += (int64_t)strlen(v->key) + 1;
        if (v->integer >= *size)
            *size = (int32_t)v->integer + 1;
    }
    return OK;
}

static Status read_vocab(Reader *r, const Json *model)
{
    const Json *vocab = json_member(model, "vocab");
    int32_t size;
    int64_t bytes;
    char *text;
    if (!vocab || vocab->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: model: \"vocab\" should be an object, is %s", r->t->path,
             vocab ? json_kind_name(vocab->kind) : "missing");
    TRY(measure(r, vocab, &size, &bytes));
    TRY(vocab_init(&r->t->vocab, r->arena, size, (int32_t)vocab->n));
    ARENA_NEW(text, r->arena, bytes);
    for (int64_t i = 0; i < vocab->n; i++) {
        size_t n = strlen(vocab->at[i].key) + 1;
        memcpy(text, vocab->at[i].key, n);
        TRY(vocab_add(&r->t->vocab, r->t->path, text, (int32_t)vocab->at[i].integer));
        text += n;
    }
    return OK;
}

/* --- merges --- */

typedef struct {
    const char *left, *right;
    size_t n_left, n_right;
} MergeText;

static Status bad_merge(const Reader *r, int64_t i, const char *wanted)
{
    FAIL(ERR_FORMAT, "%s: model: merge number %lld should be %s", r->t->path, (long long)i,
         wanted);
}

/* ["a", "b"] or "a b". */
static Status split_merge(const Reader *r, const Json *v, int64_t i, MergeText *m)
{
    if (v->kind == JSON_LIST && v->n == 2 && v->at[0].kind == JSON_TEXT &&
        v->at[1].kind == JSON_TEXT) {
        *m = (MergeText){v->at[0].text, v->at[1].text, strlen(v->at[0].text),
                         strlen(v->at[1].text)};
    } else if (v->kind == JSON_TEXT) {
        const char *space = strchr(v->text, ' ');
        if (!space || strchr(space + 1, ' '))
            return bad_merge(r, i, "two tokens with one space between them");
        *m = (MergeText){v->text, space + 1, (size_t)(space - v->text), strlen(space + 1)};
    } else {
        return bad_merge(r, i, "a text or a list of two");
    }
    return m->n_left && m->n_right ? OK : bad_merge(r, i, "of two tokens that are not empty");
}

static Status find_token(const Reader *r, int64_t i, const char *text, size_t n, int32_t *id)
{
    *id = vocab_find(&r->t->vocab, text, (int64_t)n);
    if (*id < 0)
        FAIL(ERR_FORMAT, "%s: model: merge number %lld: \"%.*s\" is not in the vocabulary",
             r->t->path, (long long)i, n > 100 ? 100 : (int)n, text);
    return OK;
}

static Status add_merge(Reader *r, const MergeText *m, int64_t i, int32_t rank)
{
    char small[256], *both = small;
    size_t n = m->n_left + m->n_right;
    int32_t left, right, result;
    if (n > sizeof small)
        ARENA_NEW(both, r->arena, (int64_t)n);
    memcpy(both, m->left, m->n_left);
    memcpy(both + m->n_left, m->right, m->n_right);
    TRY(find_token(r, i, m->left, m->n_left, &left));
    TRY(find_token(r, i, m->right, m->n_right, &right));
    TRY(find_token(r, i, both, n, &result));
    merges_add(&r->t->bpe.merges, left, right, rank, result);
    return OK;
}

static Status read_merges(Reader *r, const Json *model)
{
    const Json *list = json_member(model, "merges");
    int32_t rank = 0;
    if (!list || list->kind != JSON_LIST)
        FAIL(ERR_FORMAT, "%s: model: \"merges\" should be a list, is %s", r->t->path,
             list ? json_kind_name(list->kind) : "missing");
    TRY(merges_init(&r->t->bpe.merges, r->arena, &r->t->vocab, list->n));
    for (int64_t i = 0; i < list->n; i++) {
        MergeText m = {0};
        if (list->at[i].kind == JSON_TEXT && strncmp(list->at[i].text, "#version", 8) == 0)
            continue;
        TRY(split_merge(r, &list->at[i], i, &m));
        TRY(add_merge(r, &m, i, rank++));
    }
    return OK;
}

/* --- model --- */

/* Options that change how words are spelled or make it random. */
static Status refuse_options(const Reader *r, const Json *model)
{
    static const char *const NAMES[] = {"dropout", "continuing_subword_prefix",
                                        "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const Json *v = json_member(model, NAMES[i]);
        bool none = !v || v->kind == JSON_NULL || (v->kind == JSON_TEXT && !v->text[0]) ||
                    (v->kind == JSON_NUMBER && v->number == 0);
        if (!none)
            FAIL(ERR_UNSUPPORTED, "%s: model: \"%s\" is not supported", r->t->path, NAMES[i]);
    }
    return OK;
}

static Status read_unk(Reader *r, const Json *model)
{
    const Json *v = json_member(model, "unk_token");
    r->t->bpe.unk = -1;
    if (!v || v->kind == JSON_NULL)
        return OK;
    r->t->bpe.unk = vocab_find(&r->t->vocab, v->text, (int64_t)strlen(v->text));
    if (r->t->bpe.unk < 0)
        FAIL(ERR_FORMAT, "%s: model: unk_token \"%.100s\" is not in the vocabulary", r->t->path,
             v->text);
    return OK;
}

Status tokread_model(Reader *r)
{
    const Json *model = json_member(r->root, "model"), *type = json_member(model, "type");
    Bpe *b = &r->t->bpe;
    if (!model || model->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: \"model\" should be an object, is %s", r->t->path,
             model ? json_kind_name(model->kind) : "missing");
    /* Old files of BPE models do not say what they are. */
    if (type ? strcmp(type->text, "BPE") != 0 : !json_member(model, "merges"))
        FAIL(ERR_UNSUPPORTED, "%s: model of type \"%.100s\" is not known, only BPE", r->t->path,
             type ? type->text : "");
    TRY(refuse_options(r, model));
    TRY(tokread_flag(r, model, "model", "fuse_unk", false, &b->fuse_unk));
    TRY(tokread_flag(r, model, "model", "byte_fallback", false, &b->byte_fallback));
    TRY(tokread_flag(r, model, "model", "ignore_merges", false, &b->ignore_merges));
    TRY(read_vocab(r, model));
    TRY(read_unk(r, model));
    TRY(read_merges(r, model));
    b->name = r->t->path;
    b->vocab = &r->t->vocab;
    b->bytes = r->t->pretokenizer.bytes;
    return bpe_init(b, r->arena);
}

/* --- added tokens --- */

/* What the decoder and, where normalized, the finder see of it. */
static Status make_form(Reader *r, AddedToken *t)
{
    PieceSpace space = {.arena = r->arena};
    Piece p = {.text = t->content, .n = (int64_t)strlen(t->content)};
    t->form = t->content;
    if (!t->normalized)
        return OK;
    TRY(normalizer_apply(&r->t->normalizer, &p, &space));
    if (p.text != t->content)
        t->form = arena_text(r->arena, p.text, (size_t)p.n);
    if (!t->form)
        FAIL(ERR_MEMORY, "out of memory: added token of %lld bytes", (long long)p.n);
    return OK;
}

/* The model's id, or else the next free one: the id in the file is not asked,
 * as in the library. */
static Status read_token(Reader *r, const Json *v, int32_t *next, AddedToken *t)
{
    static const char where[] = "added_tokens";
    TRY(tokread_text(r, v, where, "content", &t->content));
    TRY(tokread_flag(r, v, where, "single_word", false, &t->single_word));
    TRY(tokread_flag(r, v, where, "lstrip", false, &t->lstrip));
    TRY(tokread_flag(r, v, where, "rstrip", false, &t->rstrip));
    TRY(tokread_flag(r, v, where, "special", false, &t->special));
    TRY(tokread_flag(r, v, where, "normalized", !t->special, &t->normalized));
    t->id = vocab_find(&r->t->vocab, t->content, (int64_t)strlen(t->content));
    if (t->id >= 0 || !t->content[0])
        return OK;
    if (*next < r->t->vocab.size && r->t->vocab.text[*next])
        FAIL(ERR_FORMAT, "%s: added token \"%.100s\" would get id %d, which is \"%.100s\"",
             r->t->path, t->content, (int)*next, r->t->vocab.text[*next]);
    t->id = (*next)++;
    return *next < VOCAB_MAX_ID ? OK : STATUS(ERR_RANGE, "%s: too many tokens", r->t->path);
}

/* Spellings of all ids. */
static Status make_pieces(Reader *r)
{
    Tokenizer *t = r->t;
    t->size = t->vocab.size;
    for (int32_t i = 0; i < t->n_added; i++)
        if (t->added[i].id >= t->size)
            t->size = t->added[i].id + 1;
    ARENA_NEW(t->piece, r->arena, t->size);
    ARENA_NEW(t->form, r->arena, t->size);
    ARENA_NEW(t->skip, r->arena, t->size);
    for (int32_t i = 0; i < t->vocab.size; i++)
        t->piece[i] = t->form[i] = t->vocab.text[i];
    for (int32_t i = 0; i < t->n_added; i++) {
        const AddedToken *a = &t->added[i];
        t->piece[a->id] = a->content;
        t->form[a->id] = a->form;
        /* The library looks the decoder's form up among the specials' contents. */
        t->skip[a->id] = a->special && strcmp(a->form, a->content) == 0;
    }
    return OK;
}

Status tokread_added(Reader *r)
{
    Tokenizer *t = r->t;
    const Json *list = json_member(r->root, "added_tokens");
    int32_t next = t->vocab.n;
    if (list && list->kind != JSON_LIST && list->kind != JSON_NULL)
        FAIL(ERR_FORMAT, "%s: \"added_tokens\" should be a list, is %s", t->path,
             json_kind_name(list->kind));
    int64_t n = list ? list->n : 0;
    ARENA_NEW(t->added, r->arena, n);
    for (int64_t i = 0; i < n; i++) {
        AddedToken *a = &t->added[t->n_added];
        TRY(read_token(r, &list->at[i], &next, a));
        TRY(make_form(r, a));
        t->n_added += a->content[0] != 0; // an empty one is never found
    }
    TRY(added_finder(&t->raw, r->arena, t->path, t->added, t->n_added, false, &t->patterns));
    TRY(added_finder(&t->normalized, r->arena, t->path, t->added, t->n_added, true,
                     &t->patterns));
    return make_pieces(r);
}
