/* tokenizer.c - opening a tokenizer, encoding and decoding with it. */
#include "analysis/tokenizer.h"

#include <string.h>

#include "analysis/text/gguf_tokenizer.h"
#include "analysis/text/tokenizer_parts.h"
#include "kernels/size.h"

/* --- opening --- */

static Status read_all(Reader *r)
{
    if (r->root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: should be an object, is %s", r->t->path,
             json_kind_name(r->root->kind));
    TRY(tokread_normalizer(r));
    TRY(tokread_pretokenizer(r));
    TRY(tokread_decoder(r));
    TRY(tokread_model(r));
    TRY(tokread_added(r));
    return tokread_special(r);
}

static Status read_folder(Reader *r, Arena *scratch, const char *folder)
{
    TRY(json_read(&r->root, scratch, r->t->path));
    TRY(read_all(r));
    return tokread_config(r->t, folder);
}

/* The parts of a GGUF file that say what those files say. */
static Status read_gguf(Reader *r, Arena *scratch)
{
    GgufFile    file;
    TextBuf     tokenizer, config;
    const Json *root;
    Status      s = OK;
    TRY(gguf_file_open(&file, scratch, r->t->path));
    GUARD(gguf_tokenizer_text(&tokenizer, &config, scratch, &file));
    GUARD(json_parse(&r->root, scratch, r->t->path, tokenizer.at, tokenizer.n));
    GUARD(read_all(r));
    GUARD(json_parse(&root, scratch, r->t->path, config.at, config.n));
    s = tokread_named(r->t, root, NULL);
out:
    gguf_file_close(&file);
    return s;
}

static Status open_parts(Tokenizer *t, Arena *a, const char *folder, bool gguf)
{
    Arena  scratch = {0};
    Status s = OK;
    Reader r = {.t = t, .arena = a};
    GUARD(gguf ? read_gguf(&r, &scratch) : read_folder(&r, &scratch, folder));
    if (!arena_raw(&t->pieces, 1, 1) || !arena_raw(&t->lists, 1, 1))
        s = STATUS(ERR_MEMORY, "out of memory: opening %s", t->path);
out:
    arena_close(&scratch);
    return s;
}

Status tokenizer_open(Tokenizer **out, Arena *a, const char *folder)
{
    Tokenizer  *t;
    const char *gguf;
    *out = NULL;
    ARENA_NEW(t, a, 1);
    TRY(gguf_file_find(&gguf, a, folder));
    t->path = gguf ? arena_text(a, gguf, strlen(gguf))
                   : arena_printf(a, "%s/tokenizer.json", folder);
    if (!t->path)
        FAIL(ERR_MEMORY, "out of memory: path of tokenizer.json");
    Status s = open_parts(t, a, folder, gguf != NULL);
    if (s != OK)
        tokenizer_close(t);
    else
        *out = t;
    return s;
}

void tokenizer_close(Tokenizer *t)
{
    if (!t)
        return;
    pattern_close(&t->patterns);
    arena_close(&t->pieces);
    arena_close(&t->lists);
}

int64_t tokenizer_size(const Tokenizer *t)
{
    return t->size;
}

int32_t tokenizer_bos(const Tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const Tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const Tokenizer *t)
{
    return t->n_prefix > 0 && t->prefix[0] == t->bos;
}

const char *tokenizer_piece(const Tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size && t->piece[id] ? t->piece[id] : "";
}

/* --- encoding --- */

typedef struct {
    Tokenizer *t;
    PieceSpace text;   // pieces that were changed; rewound as they are done
    BpeSpace   bpe;
    Ids        ids;
} Encode;

static Status encode_word(void *context, const Piece *word, bool *enough)
{
    Encode *e = context;
    TRY(bpe_word(&e->t->bpe, &e->bpe, word, &e->ids));
    *enough = ids_enough(&e->ids);
    return OK;
}

typedef Status (*EncodePlain)(Encode *e, Piece p);

/* Ids of the finder's tokens in p, and what plain makes of the text between. */
static Status encode_around(Encode *e, const AddedFinder *f, Piece p, EncodePlain plain)
{
    AddedWalk walk = added_walk(f, p.text, p.n);
    for (;;) {
        int64_t           before, from, to;
        const AddedToken *token = added_next(&walk, &before, &from, &to);
        if (before < from)
            TRY(plain(e, piece_sub(p, before, from)));
        if (!token || ids_enough(&e->ids))
            return OK;
        TRY(ids_reserve(&e->ids, 1));
        ids_push(&e->ids, token->id, piece_origin(&p, from));
    }
}

static Status encode_normalized(Encode *e, Piece p)
{
    return pretoken_run(&e->t->pretokenizer, &e->text, &p, encode_word, e);
}

static Status encode_raw(Encode *e, Piece p)
{
    ArenaMark mark = arena_mark(e->text.arena);
    TRY(normalizer_apply(&e->t->normalizer, &p, &e->text));
    TRY(encode_around(e, &e->t->normalized, p, encode_normalized));
    arena_rewind(e->text.arena, mark);
    return OK;
}

static Status encode_fixed(Encode *e, const int32_t *ids, int n, int64_t begin)
{
    TRY(ids_reserve(&e->ids, n));
    for (int i = 0; i < n; i++)
        ids_push(&e->ids, ids[i], begin);
    return OK;
}

static Status encode(Encode *e, Piece p, bool special)
{
    const Tokenizer *t = e->t;
    int64_t          n = p.n;
    TRY(ids_reserve(&e->ids, e->ids.enough ? i64_min(n / 4, e->ids.enough) : n / 4));
    if (special)
        TRY(encode_fixed(e, t->prefix, t->n_prefix, 0));
    TRY(piece_repair(&p, &e->text));
    TRY(encode_around(e, &t->raw, p, encode_raw));
    return special ? encode_fixed(e, t->suffix, t->n_suffix, n) : OK;
}

/* From the lists that grew to ones that fit. */
static Status hand_over(const Ids *from, Arena *a, int32_t **ids, int64_t *n_ids,
                        int64_t **begin)
{
    ARENA_NEW(*ids, a, from->n);
    if (begin)
        ARENA_NEW(*begin, a, from->n);
    *n_ids = from->n;
    if (from->n)
        memcpy(*ids, from->id, (size_t)from->n * sizeof **ids);
    if (begin && from->n)
        memcpy(*begin, from->begin, (size_t)from->n * sizeof **begin);
    return OK;
}

Status tokenizer_encode(Tokenizer *t, Arena *a, const char *text, size_t n, bool special,
                        int32_t **ids, int64_t *n_ids, int64_t **begin)
{
    return tokenizer_encode_first(t, a, text, n, special, 0, ids, n_ids, begin);
}

Status tokenizer_encode_first(Tokenizer *t, Arena *a, const char *text, size_t n, bool special,
                              int64_t enough, int32_t **ids, int64_t *n_ids,
                              int64_t **begin)
{
    ArenaMark pieces = arena_mark(&t->pieces), lists = arena_mark(&t->lists);
    Status    s = OK;
    Encode    e = {.t = t,
                   .text = {&t->pieces, begin || t->pretokenizer.origin},
                   .bpe = {.arena = &t->lists},
                   .ids = {.arena = &t->lists, .track = begin != NULL, .enough = enough}};
    Piece     p = {.text = text, .n = (int64_t)n};
    GUARD(encode(&e, p, special));
    GUARD(hand_over(&e.ids, a, ids, n_ids, begin));
out:
    arena_rewind(&t->pieces, pieces);
    arena_rewind(&t->lists, lists);
    return s;
}

/* --- decoding --- */

/* The spellings that the decoder gets, special tokens left out. */
static Status spellings(const Tokenizer *t, Arena *a, const int32_t *ids, int64_t n,
                        Piece **out, int64_t *n_out)
{
    ARENA_NEW(*out, a, n);
    *n_out = 0;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->size || !t->form[ids[i]])
            FAIL(ERR_RANGE, "%s: id %d at place %lld is not in the vocabulary of %d", t->path,
                 (int)ids[i], (long long)i, (int)t->size);
        const char *form = t->form[ids[i]];
        if (!t->skip[ids[i]])
            (*out)[(*n_out)++] = (Piece){.text = form, .n = (int64_t)strlen(form)};
    }
    return OK;
}

Status tokenizer_decode(Tokenizer *t, Arena *a, const int32_t *ids, int64_t n, char **text)
{
    ArenaMark  mark = arena_mark(&t->pieces);
    PieceSpace space = {.arena = &t->pieces};
    Piece     *pieces = NULL;
    int64_t    n_pieces = 0, length;
    char      *joined;
    Status     s = OK;
    GUARD(spellings(t, &t->pieces, ids, n, &pieces, &n_pieces));
    GUARD(decoder_run(&t->decoder, &space, pieces, n_pieces, &joined, &length));
    *text = arena_text(a, joined, (size_t)length);
    if (!*text)
        s = STATUS(ERR_MEMORY, "out of memory: %lld bytes of text", (long long)length);
out:
    arena_rewind(&t->pieces, mark);
    return s;
}
