/* gguf_tokenizer.c - see gguf_tokenizer.h. Keys: formats.md 4.2. */
#include "analysis/text/gguf_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/text/utf8.h"
#include "analysis/text/vocab.h"

#define KEY "tokenizer.ggml."

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

typedef struct {
    const GgufFile *file;
    Arena          *arena;
    const char    **tokens;   // [n]
    int32_t        *types;    // [n] or NULL: all normal
    int64_t         n;
    const GgufPre  *pre;      // "gpt2"; NULL: "llama"
    int64_t         bos, eos, unk;        // -1: none
    bool            add_bos, add_eos, add_space;
} Source;

/* --- reading --- */

static Status missing(const Source *s, const char *key)
{
    FAIL(ERR_FORMAT, "%s: key %s is missing", s->file->path, key);
}

static Status check_length(const Source *s, const char *key, int64_t n)
{
    if (n != s->n)
        FAIL(ERR_SHAPE, "%s: key %s has %lld items, expected %lld as " KEY "tokens has",
             s->file->path, key, (long long)n, (long long)s->n);
    return OK;
}

/* As in llama.cpp, empty spellings become names that no text has. */
static Status name_empty(Source *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        if (!s->tokens[i][0])
            s->tokens[i] = arena_printf(s->arena, "[EMPTY_%lld]", (long long)i);
        if (!s->tokens[i])
            FAIL(ERR_MEMORY, "out of memory: spelling of a token");
    }
    return OK;
}

static Status read_tokens(Source *s)
{
    int64_t n;
    TRY(gguf_key_texts(&s->tokens, &s->n, s->arena, s->file, KEY "tokens"));
    if (s->n == 0)
        return missing(s, KEY "tokens");
    if (s->n > VOCAB_MAX_ID)
        FAIL(ERR_RANGE, "%s: key " KEY "tokens has %lld items, expected at most %d",
             s->file->path, (long long)s->n, VOCAB_MAX_ID);
    TRY(name_empty(s));
    TRY(gguf_key_ints(&s->types, &n, s->arena, s->file, KEY "token_type"));
    return s->types ? check_length(s, KEY "token_type", n) : OK;
}

/* "gpt2" or "llama", and what each does where the file is silent. */
static Status read_kind(Source *s)
{
    const char *model = NULL, *pre = "default";
    TRY(gguf_key_text(&model, s->arena, s->file, KEY "model"));
    if (!model)
        return missing(s, KEY "model");
    s->bos = s->eos = s->unk = -1;
    if (strcmp(model, "llama") == 0) {
        s->bos = 1;
        s->eos = 2;
        s->unk = 0;
        s->add_bos = s->add_space = true;
        return OK;
    }
    if (strcmp(model, "gpt2") != 0)
        FAIL(ERR_UNSUPPORTED, "%s: key " KEY "model is \"%.80s\", expected gpt2 or llama",
             s->file->path, model);
    const char *where = arena_printf(s->arena, "%s: key " KEY "pre", s->file->path);
    if (!where)
        FAIL(ERR_MEMORY, "out of memory: a message");
    TRY(gguf_key_text(&pre, s->arena, s->file, KEY "pre"));
    TRY(gguf_pre_find(&s->pre, where, pre));
    s->add_bos = s->pre->adds_bos;
    return OK;
}

static Status read_source(Source *s)
{
    TRY(read_kind(s));
    TRY(read_tokens(s));
    int64_t most = s->n - 1;
    TRY(gguf_key_int(&s->bos, s->file, KEY "bos_token_id", 0, most));
    TRY(gguf_key_int(&s->eos, s->file, KEY "eos_token_id", 0, most));
    TRY(gguf_key_int(&s->unk, s->file, KEY "unknown_token_id", 0, most));
    TRY(gguf_key_bool(&s->add_bos, s->file, KEY "add_bos_token"));
    TRY(gguf_key_bool(&s->add_eos, s->file, KEY "add_eos_token"));
    if (!s->pre)
        TRY(gguf_key_bool(&s->add_space, s->file, KEY "add_space_prefix"));
    return OK;
}

static int type_of(const Source *s, int64_t id)
{
    return s->types ? s->types[id] : TYPE_NORMAL;
}

/* --- merges --- */

/* Two tokens that make a third. */
typedef struct {
    int32_t left, right, result;
    int32_t n_left;    // characters
    int32_t n_right;
    float   score;     // of the result
} Merge;

typedef struct {
    Merge  *at;
    int64_t n, room;
} MergeList;

/* Best score first; then longer left parts, as the converter of transformers has it. */
static int by_score(const void *x, const void *y)
{
    const Merge *a = x, *b = y;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->n_left != b->n_left)
        return a->n_left > b->n_left ? -1 : 1;
    if (a->n_right != b->n_right)
        return a->n_right > b->n_right ? -1 : 1;
    return (a->result > b->result) - (a->result < b->result);
}

static Status add_merge(MergeList *list, Arena *a, Merge m)
{
    if (list->n == list->room) {
        Merge *wider;
        list->room = 2 * list->room + 1024;
        ARENA_NEW(wider, a, list->room);
        if (list->n)
            memcpy(wider, list->at, (size_t)list->n * sizeof *wider);
        list->at = wider;
    }
    list->at[list->n++] = m;
    return OK;
}

static int32_t count_characters(const char *text)
{
    int32_t n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

/* All ways to cut token id into two tokens. */
static Status cut_token(MergeList *list, const Source *s, const Vocab *v, int32_t id,
                        float score)
{
    const char *text = s->tokens[id];
    int32_t     n = count_characters(text), before = 0;
    int64_t     bytes = (int64_t)strlen(text);
    for (int64_t at = 1; at < bytes; at++) {
        if ((text[at] & 0xc0) == 0x80)
            continue;
        before++;
        int32_t left = vocab_find(v, text, at), right = vocab_find(v, text + at, bytes - at);
        if (left >= 0 && right >= 0)
            TRY(add_merge(list, s->arena, (Merge){left, right, id, before, n - before, score}));
    }
    return OK;
}

/* SentencePiece never merges to a control, unknown or byte piece. */
static Status merges_from_scores(MergeList *list, const Source *s, const float *scores)
{
    Vocab v;
    TRY(vocab_init(&v, s->arena, (int32_t)s->n, (int32_t)s->n));
    for (int64_t i = 0; i < s->n; i++)
        TRY(vocab_add(&v, s->file->path, s->tokens[i], (int32_t)i));
    for (int64_t i = 0; i < s->n; i++) {
        int type = type_of(s, i);
        if (type != TYPE_CONTROL && type != TYPE_UNKNOWN && type != TYPE_BYTE)
            TRY(cut_token(list, s, &v, (int32_t)i, scores[i]));
    }
    if (list->n)
        qsort(list->at, (size_t)list->n, sizeof *list->at, by_score);
    return OK;
}

static void put_pair(TextBuf *b, const char *left, const char *right, bool first)
{
    textbuf_add(b, first ? "\n[" : ",\n[");
    textbuf_json(b, left);
    textbuf_add(b, ",");
    textbuf_json(b, right);
    textbuf_add(b, "]");
}

static Status put_derived(TextBuf *b, const Source *s)
{
    MergeList list = {0};
    float    *scores;
    int64_t   n;
    TRY(gguf_key_reals(&scores, &n, s->arena, s->file, KEY "scores"));
    if (!scores)
        return missing(s, KEY "scores");
    TRY(check_length(s, KEY "scores", n));
    TRY(merges_from_scores(&list, s, scores));
    for (int64_t i = 0; i < list.n; i++)
        put_pair(b, s->tokens[list.at[i].left], s->tokens[list.at[i].right], i == 0);
    return OK;
}

/* "a b": cut at the first space that is not the first character. */
static Status put_given(TextBuf *b, const Source *s, const char *const *merges, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const char *space = merges[i][0] ? strchr(merges[i] + 1, ' ') : NULL;
        if (!space || !space[1])
            FAIL(ERR_FORMAT, "%s: key " KEY "merges: \"%.100s\", item %lld, is not two tokens "
                 "with a space between them", s->file->path, merges[i], (long long)i);
        const char *left = arena_text(s->arena, merges[i], (size_t)(space - merges[i]));
        if (!left)
            FAIL(ERR_MEMORY, "out of memory: a merge");
        put_pair(b, left, space + 1, i == 0);
    }
    return OK;
}

static Status put_merges(TextBuf *b, const Source *s)
{
    const char **merges;
    int64_t      n;
    textbuf_add(b, "\"merges\": [");
    TRY(gguf_key_texts(&merges, &n, s->arena, s->file, KEY "merges"));
    if (!merges && s->pre)
        return missing(s, KEY "merges");
    TRY(merges ? put_given(b, s, merges, n) : put_derived(b, s));
    textbuf_add(b, "]");
    return OK;
}

/* --- tokenizer.json --- */

/* Tokens that are found whole in a text; all but those of users are special. */
static void put_added(TextBuf *b, const Source *s)
{
    const char *comma = "";
    textbuf_add(b, "\"added_tokens\": [");
    for (int64_t i = 0; i < s->n; i++) {
        int type = type_of(s, i);
        if (type != TYPE_CONTROL && type != TYPE_UNKNOWN && type != TYPE_USER)
            continue;
        textbuf_printf(b, "%s\n{\"id\": %lld, \"normalized\": false, \"special\": %s, ",
                       comma, (long long)i, type == TYPE_USER ? "false" : "true");
        textbuf_add(b, "\"content\": ");
        textbuf_json(b, s->tokens[i]);
        textbuf_add(b, "}");
        comma = ",";
    }
    textbuf_add(b, "],\n");
}

static void put_words(TextBuf *b, const GgufPre *pre)
{
    textbuf_add(b, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n");
    for (int i = 0; i < GGUF_MAX_SPLITS && pre->splits[i]; i++) {
        textbuf_add(b, "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": "
                    "{\"Regex\": ");
        textbuf_json(b, pre->splits[i]);
        textbuf_add(b, "}},\n");
    }
    textbuf_add(b, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                "\"use_regex\": false}]},\n\"decoder\": {\"type\": \"ByteLevel\"},\n");
}

/* SentencePiece writes spaces as U+2581, one in front of each text between special
 * tokens. */
static void put_sentences(TextBuf *b, bool add_space)
{
    static const char SPACE[] = "\xe2\x96\x81";
    textbuf_add(b, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    if (add_space)
        textbuf_printf(b, "{\"type\": \"Prepend\", \"prepend\": \"%s\"}, ", SPACE);
    textbuf_printf(b, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                   "\"content\": \"%s\"}]},\n", SPACE);
    textbuf_printf(b, "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
                   "\"Replace\", \"pattern\": {\"String\": \"%s\"}, \"content\": \" \"}, "
                   "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}", SPACE);
    if (add_space)
        textbuf_add(b, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
                    "\"stop\": 0}");
    textbuf_add(b, "]},\n");
}

static Status put_model(TextBuf *b, const Source *s)
{
    const char *spm = s->pre ? "false" : "true";
    textbuf_printf(b, "\"model\": {\"type\": \"BPE\", \"byte_fallback\": %s, "
                   "\"fuse_unk\": %s, \"ignore_merges\": %s, ", spm, spm,
                   s->pre && s->pre->ignore_merges ? "true" : "false");
    if (s->unk >= 0) {
        textbuf_add(b, "\"unk_token\": ");
        textbuf_json(b, s->tokens[s->unk]);
        textbuf_add(b, ", ");
    }
    textbuf_add(b, "\"vocab\": {");
    for (int64_t i = 0; i < s->n; i++) {
        textbuf_add(b, i ? ",\n" : "\n");
        textbuf_json(b, s->tokens[i]);
        textbuf_printf(b, ": %lld", (long long)i);
    }
    textbuf_add(b, "},\n");
    TRY(put_merges(b, s));
    textbuf_add(b, "}");
    return OK;
}

static Status put_tokenizer(TextBuf *b, const Source *s)
{
    textbuf_add(b, "{");
    put_added(b, s);
    if (s->pre)
        put_words(b, s->pre);
    else
        put_sentences(b, s->add_space);
    TRY(put_model(b, s));
    textbuf_add(b, "}\n");
    return textbuf_status(b);
}

/* --- tokenizer_config.json --- */

static void put_named(TextBuf *b, const Source *s, const char *name, int64_t id)
{
    textbuf_printf(b, "\"%s\": ", name);
    if (id >= 0)
        textbuf_json(b, s->tokens[id]);
    else
        textbuf_add(b, "null");
    textbuf_add(b, ", ");
}

static Status put_config(TextBuf *b, const Source *s)
{
    textbuf_add(b, "{");
    put_named(b, s, "bos_token", s->bos);
    put_named(b, s, "eos_token", s->eos);
    textbuf_printf(b, "\"add_bos_token\": %s, \"add_eos_token\": %s}\n",
                   s->add_bos ? "true" : "false", s->add_eos ? "true" : "false");
    return textbuf_status(b);
}

Status gguf_tokenizer_text(TextBuf *tokenizer, TextBuf *config, Arena *a, const GgufFile *f)
{
    Source s = {.file = f, .arena = a};
    textbuf_init(tokenizer, a);
    textbuf_init(config, a);
    TRY(read_source(&s));
    if (s.bos >= s.n || s.eos >= s.n || s.unk >= s.n)
        FAIL(ERR_FORMAT, "%s: key " KEY "tokens has %lld items: too few for the ids of BOS, "
             "EOS and unknown", f->path, (long long)s.n);
    TRY(put_tokenizer(tokenizer, &s));
    return put_config(config, &s);
}
