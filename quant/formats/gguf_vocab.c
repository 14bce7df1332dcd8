/* gguf_vocab.c - tokens, their kinds, and how they merge. */
#include <stdio.h>
#include <string.h>

#include "quant/formats/gguf_reader.h"

/* --- tokens --- */

static Status set_piece(GgufReader *r, const Json *id, const char *piece, int kind)
{
    if (!id || id->kind != JSON_NUMBER || !id->whole || id->integer < 0)
        FAIL(ERR_FORMAT, "%s: the id of token \"%.80s\" is no whole number", r->path, piece);
    if (id->integer >= r->n)
        FAIL(ERR_SHAPE, "%s: token \"%.80s\" has id %lld, but the embedding has %lld rows",
             r->path, piece, (long long)id->integer, (long long)r->n);
    r->pieces[id->integer] = piece;
    r->kinds[id->integer] = kind;
    return OK;
}

static bool is_byte(const char *piece)
{
    unsigned value;
    char     end;
    return strlen(piece) == 6 && sscanf(piece, "<0x%2X%c", &value, &end) == 2 && end == '>';
}

/* Some models leave control tokens without the mark of being special. */
static bool looks_special(const char *text)
{
    size_t n = strlen(text);
    return n > 4 && strncmp(text, "<|", 2) == 0 && strcmp(text + n - 2, "|>") == 0;
}

static Status read_added(GgufReader *r)
{
    for (int64_t i = 0; r->added && i < r->added->n; i++) {
        const Json *token = &r->added->at[i], *text = json_member(token, "content");
        const Json *special = json_member(token, "special");
        if (!text || text->kind != JSON_TEXT)
            FAIL(ERR_FORMAT, "%s: added_tokens[%lld] has no content", r->path, (long long)i);
        bool control = (special && special->truth) || looks_special(text->text);
        TRY(set_piece(r, json_member(token, "id"), text->text,
                      control ? TOKEN_CONTROL : TOKEN_USER));
    }
    return OK;
}

Status gguf_read_pieces(GgufReader *r)
{
    r->n = r->info->config.vocab;
    ARENA_NEW(r->pieces, r->arena, r->n);
    ARENA_NEW(r->kinds, r->arena, r->n);
    for (int64_t i = 0; i < r->vocab->n; i++) {
        const char *piece = r->vocab->at[i].key;
        bool        byte = r->bytes_fall_back && is_byte(piece);
        TRY(set_piece(r, &r->vocab->at[i], piece, byte ? TOKEN_BYTE : TOKEN_NORMAL));
    }
    TRY(read_added(r));
    for (int64_t i = 0; i < r->n; i++) {
        if (r->pieces[i])
            continue;
        r->pieces[i] = arena_printf(r->arena, "[PAD%lld]", (long long)i);
        r->kinds[i] = TOKEN_UNUSED;
        if (!r->pieces[i])
            FAIL(ERR_MEMORY, "out of memory: names of tokens");
    }
    return OK;
}

void gguf_put_pieces(GgufReader *r)
{
    gguf_put_texts(r->put, TOKENIZER "tokens", r->n);
    for (int64_t i = 0; i < r->n; i++)
        gguf_put_item(r->put, r->pieces[i], strlen(r->pieces[i]));
    gguf_put_i32s(r->put, TOKENIZER "token_type", r->kinds, r->n);
}

int64_t gguf_id_of(const GgufReader *r, const char *text)
{
    for (int64_t i = 0; r->added && i < r->added->n; i++) {
        const Json *content = json_member(&r->added->at[i], "content");
        const Json *id = json_member(&r->added->at[i], "id");
        if (content && id && strcmp(content->text, text) == 0)
            return id->integer;
    }
    const Json *id = json_member(r->vocab, text);
    return id ? id->integer : -1;
}

/* --- merges --- */

/* Both halves of merge i: "a b", or a list of two. ERR_FORMAT. */
static Status merge_parts(const GgufReader *r, int64_t i, const char **left, size_t *n_left,
                          const char **right)
{
    const Json *m = &r->merges->at[i];
    const char *space = m->kind == JSON_TEXT ? strchr(m->text, ' ') : NULL;
    if (m->kind == JSON_LIST && m->n == 2 && m->at[0].kind == JSON_TEXT &&
        m->at[1].kind == JSON_TEXT) {
        *left = m->at[0].text;
        *n_left = strlen(*left);
        *right = m->at[1].text;
    } else if (space) {
        *left = m->text;
        *n_left = (size_t)(space - m->text);
        *right = space + 1;
    } else {
        FAIL(ERR_FORMAT, "%s: merges[%lld] is no pair of tokens", r->path, (long long)i);
    }
    return OK;
}

/* A space would end the left half: byte-level pieces spell it U+0120 anyway. */
static void add_spelled(TextBuf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        textbuf_bytes(b, text[i] == ' ' ? "\xc4\xa0" : text + i, text[i] == ' ' ? 2 : 1);
}

Status gguf_put_merges(GgufReader *r)
{
    TextBuf b;
    textbuf_init(&b, r->arena);
    gguf_put_texts(r->put, TOKENIZER "merges", r->merges->n);
    for (int64_t i = 0; i < r->merges->n; i++) {
        const char *left, *right;
        size_t      n;
        TRY(merge_parts(r, i, &left, &n, &right));
        b.n = 0;  // the room stays
        add_spelled(&b, left, n);
        textbuf_add(&b, " ");
        add_spelled(&b, right, strlen(right));
        gguf_put_item(r->put, b.at, b.n);
    }
    return textbuf_status(&b);
}

/* llama.cpp joins the two neighbours whose union has the highest score: minus the rank
 * of the merge that makes it. What no merge makes comes last. */
Status gguf_put_scores(GgufReader *r)
{
    float *scores;
    ARENA_NEW(scores, r->arena, r->n);
    for (int64_t i = 0; i < r->n; i++)
        scores[i] = r->kinds[i] == TOKEN_NORMAL ? -(float)r->merges->n : 0;
    for (int64_t i = r->merges->n - 1; i >= 0; i--) {  // the first merge that makes it wins
        const char *left, *right;
        size_t      n;
        TRY(merge_parts(r, i, &left, &n, &right));
        ArenaMark   mark = arena_mark(r->arena);
        const char *joined = arena_printf(r->arena, "%.*s%s", (int)n, left, right);
        if (!joined)
            FAIL(ERR_MEMORY, "out of memory: a token");
        const Json *id = json_member(r->vocab, joined);
        if (id)
            scores[id->integer] = -(float)i;
        arena_rewind(r->arena, mark);
    }
    gguf_put_f32s(r->put, TOKENIZER "scores", scores, r->n);
    return OK;
}
