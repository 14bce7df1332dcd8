/* test_gguf_tokenizer.c - tokenizers of GGUF files beside the tokenizer.json they were
 * made from, on ten thousand lines; what such files can get wrong. */
#include "analysis/text/gguf_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/tokenizer.h"
#include "tests/analysis/ref_checkpoint.h"
#include "tests/analysis/ref_gguf.h"
#include "tests/check.h"

#define PATH ref_path("t.gguf")

static const char *style_path(const char *style, const char *file)
{
    char text[128];
    snprintf(text, sizeof text, "golden/tokenizers/%s%s", style, file);
    return check_path(text);
}

typedef struct {
    const unsigned char *at, *end;
} Lines;

static bool next_line(Lines *l, const char **text, size_t *n)
{
    if (l->end - l->at < 2)
        return false;
    *n = l->at[0] | (size_t)l->at[1] << 8;
    *text = (const char *)l->at + 2;
    l->at += 2 + *n;
    return true;
}

static bool same_ids(Tokenizer *a, Tokenizer *b, const char *text, size_t n)
{
    static Arena arena;
    int32_t     *x, *y;
    int64_t      n_x, n_y;
    arena_close(&arena);
    return tokenizer_encode(a, &arena, text, n, true, &x, &n_x, NULL) == OK &&
           tokenizer_encode(b, &arena, text, n, true, &y, &n_y, NULL) == OK && n_x == n_y &&
           memcmp(x, y, (size_t)n_x * sizeof *x) == 0;
}

static bool same_text(Tokenizer *a, Tokenizer *b, const char *text, size_t n)
{
    static Arena arena;
    int32_t     *ids;
    int64_t      n_ids;
    char        *x, *y;
    arena_close(&arena);
    return tokenizer_encode(a, &arena, text, n, false, &ids, &n_ids, NULL) == OK &&
           tokenizer_decode(a, &arena, ids, n_ids, &x) == OK &&
           tokenizer_decode(b, &arena, ids, n_ids, &y) == OK && strcmp(x, y) == 0;
}

/* Every line of the goldens: the same ids and texts from both. */
static void compare(const char *folder, const char *json, const RefGgufTokenizer *t)
{
    static Arena a;
    Tokenizer   *want, *got;
    size_t       n, size;
    const char  *text;
    int          lines = 0;
    ref_gguf_tokenizer(PATH, json, t);
    T_STATUS_OK(tokenizer_open(&want, &a, folder));
    T_STATUS_OK(tokenizer_open(&got, &a, PATH));
    unsigned char *bytes = ref_read(check_path("golden/tokenizers/lines.bin"), &size);
    Lines          l = {bytes, bytes + size};
    for (; next_line(&l, &text, &n); lines++)
        if (!same_ids(want, got, text, n) || !same_text(want, got, text, n)) {
            check_fail(__FILE__, __LINE__, "%s: line %d: \"%.*s\"", t->pre ? t->pre : "llama",
                       lines, (int)n, text);
            break;
        }
    T_OK(lines >= 10000);
    T_OK(tokenizer_size(got) == tokenizer_size(want));
    T_OK(tokenizer_adds_bos(got) == tokenizer_adds_bos(want));
    free(bytes);
    tokenizer_close(want);
    tokenizer_close(got);
    arena_close(&a);
}

static void compare_style(const char *style, RefGgufTokenizer t)
{
    compare(style_path(style, ""), style_path(style, "/tokenizer.json"), &t);
}

TEST(gpt_2_words)
{
    compare_style("gpt2", (RefGgufTokenizer){"gpt2", "gpt-2", true, false, false});
}

TEST(llama_3_words)
{
    compare_style("llama3", (RefGgufTokenizer){"gpt2", "llama-bpe", true, true, false});
}

TEST(gpt_4o_words)
{
    compare_style("o200k", (RefGgufTokenizer){"gpt2", "gpt-4o", true, false, false});
}

TEST(smollm_words)
{
    compare_style("digits", (RefGgufTokenizer){"gpt2", "smollm", true, true, true});
}

/* GGUF has no name for Qwen's normalizer, nor for tokens found after one. */
TEST(qwen_2_words)
{
    size_t         n;
    unsigned char *json = ref_read(style_path("qwen2", "/tokenizer.json"), &n);
    char          *text = calloc(n + 1, 1), *at;
    memcpy(text, json, n);
    T_OK((at = strstr(text, "{\"type\":\"NFC\"}")) != NULL);
    memcpy(at, "null          ", 14);
    while ((at = strstr(text, "\"normalized\":true")))
        memcpy(at, "\"normalized\":null", 17);
    ref_write_text(ref_path("tokenizer.json"), text);
    compare(ref_path("."), ref_path("tokenizer.json"),
            &(RefGgufTokenizer){"gpt2", "qwen2", true, false, false});
    free(json);
    free(text);
}

/* SentencePiece with the merges in the file; its special tokens are found in the raw text,
 * the golden's after the normalizer: lines that have them differ, and are few. */
TEST(llama_2_pieces)
{
    size_t         n;
    unsigned char *json = ref_read(style_path("llama2", "/tokenizer.json"), &n);
    char          *text = calloc(n + 1, 1), *at;
    memcpy(text, json, n);
    while ((at = strstr(text, "\"normalized\":true")))
        memcpy(at, "\"normalized\":null", 17);
    ref_write_text(ref_path("tokenizer.json"), text);
    compare(ref_path("."), ref_path("tokenizer.json"),
            &(RefGgufTokenizer){"llama", NULL, true, true, false});
    free(json);
    free(text);
}

static uint32_t fnv(uint32_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x01000193u;
    return h;
}

/* Merges from scores, with ties: ids of the library with the merges of transformers. */
TEST(llama_2_scores)
{
    static Arena a;
    Tokenizer   *t;
    size_t       n, size, n_sums;
    const char  *text;
    int32_t     *ids;
    int64_t      n_ids;
    uint32_t     h = 0x811c9dc5u, *sum;
    int          line = 0, wrong = 0;
    ref_gguf_tokenizer(PATH, style_path("llama2", "/tokenizer.json"),
                       &(RefGgufTokenizer){"llama", NULL, false, true, false});
    T_STATUS_OK(tokenizer_open(&t, &a, PATH));
    unsigned char *bytes = ref_read(check_path("golden/tokenizers/lines.bin"), &size);
    unsigned char *sums = ref_read(check_path("golden/gguf/llama2_scores.bin"), &n_sums);
    Lines          l = {bytes, bytes + size};
    sum = (uint32_t *)(void *)sums;
    while (next_line(&l, &text, &n)) {
        ArenaMark mark = arena_mark(&a);
        T_STATUS_OK(tokenizer_encode(t, &a, text, n, true, &ids, &n_ids, NULL));
        h = fnv(h, ids, (size_t)n_ids * sizeof *ids);
        arena_rewind(&a, mark);
        if (++line % 100)
            continue;
        wrong += h != *sum++;
        h = 0x811c9dc5u;
    }
    T_OK(line == 10000 && n_sums == 400);
    T_OK(wrong == 0);
    free(bytes);
    free(sums);
    tokenizer_close(t);
    arena_close(&a);
}

/* --- small files --- */

static const char *const LETTERS[] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81", "a", "b",
                                      "ab", "\xe2\x96\x81" "ab", "<me>", ""};
static const int32_t TYPES[] = {2, 3, 3, 1, 1, 1, 1, 1, 4, 1};
static const float SCORES[] = {0, 0, 0, -5, -5, -5, -1, -2, 0, -9};
enum { N_LETTERS = sizeof LETTERS / sizeof *LETTERS };

typedef struct {
    const char *model, *pre, *merge;  // NULL: no such key
    int         n_tokens, n_types, n_scores;
    int         bos, unk;             // -1: none
    int         space;                // add_space_prefix, -1: none
} Small;

static const Small SPM = {"llama", NULL, NULL, N_LETTERS, N_LETTERS, N_LETTERS, 1, 0, -1};

static int count_keys(const Small *s)
{
    return !!s->model + !!s->pre + !!s->merge + (s->n_tokens >= 0) + (s->n_types >= 0) +
           (s->n_scores >= 0) + (s->bos >= 0) + (s->unk >= 0) + (s->space >= 0);
}

static void write_small(const Small *s)
{
    RefGguf g;
    ref_gguf_begin(&g, 3, 0, (uint64_t)count_keys(s));
    if (s->model)
        ref_gguf_key_text(&g, "tokenizer.ggml.model", s->model);
    if (s->pre)
        ref_gguf_key_text(&g, "tokenizer.ggml.pre", s->pre);
    if (s->merge) {
        ref_gguf_key_list(&g, "tokenizer.ggml.merges", 8, 1);
        ref_gguf_name(&g, s->merge);
    }
    if (s->n_tokens >= 0)
        ref_gguf_key_list(&g, "tokenizer.ggml.tokens", 8, (uint64_t)s->n_tokens);
    for (int i = 0; i < s->n_tokens; i++)
        ref_gguf_name(&g, LETTERS[i]);
    if (s->n_types >= 0) {
        ref_gguf_key_list(&g, "tokenizer.ggml.token_type", 5, (uint64_t)s->n_types);
        ref_gguf_bytes(&g, TYPES, (size_t)s->n_types * sizeof *TYPES);
    }
    if (s->n_scores >= 0) {
        ref_gguf_key_list(&g, "tokenizer.ggml.scores", 6, (uint64_t)s->n_scores);
        ref_gguf_bytes(&g, SCORES, (size_t)s->n_scores * sizeof *SCORES);
    }
    if (s->bos >= 0)
        ref_gguf_key_u32(&g, "tokenizer.ggml.bos_token_id", (uint32_t)s->bos);
    if (s->unk >= 0)
        ref_gguf_key_u32(&g, "tokenizer.ggml.unknown_token_id", (uint32_t)s->unk);
    if (s->space >= 0)
        ref_gguf_key_bool(&g, "tokenizer.ggml.add_space_prefix", s->space);
    ref_gguf_save(&g, PATH);
}

static void expect(const Small *s, const char *text, int n, const int32_t *want)
{
    Arena      a = {0};
    Tokenizer *t;
    int32_t   *ids;
    int64_t    n_ids;
    write_small(s);
    T_STATUS_OK(tokenizer_open(&t, &a, PATH));
    T_STATUS_OK(tokenizer_encode(t, &a, text, strlen(text), true, &ids, &n_ids, NULL));
    bool same = n_ids == n && memcmp(ids, want, (size_t)n * sizeof *ids) == 0;
    if (!same)
        for (int64_t i = 0; i < n_ids; i++)
            printf("%d ", ids[i]);
    T_OK(same);
    tokenizer_close(t);
    arena_close(&a);
}

TEST(spaces_bos_and_tokens_of_users)
{
    Small s = SPM;
    expect(&s, "ab", 2, (int32_t[]){1, 7});
    /* A space again after a token that is found whole; unknown letters are one <unk>. */
    expect(&s, "ab<me>ab", 4, (int32_t[]){1, 7, 8, 7});
    expect(&s, "xyab", 4, (int32_t[]){1, 3, 0, 6});
    s.space = 0;
    expect(&s, "ab", 2, (int32_t[]){1, 6});
    expect(&s, " ab", 2, (int32_t[]){1, 7});
    s.n_types = -1;  // all normal: nothing is found whole
    expect(&s, "ab<", 3, (int32_t[]){1, 6, 0});
}

/* Llama 3 takes a word that is a token as it is, Qwen builds it by merges. */
TEST(words_that_no_merge_makes)
{
    Small s = {"gpt2", "llama-bpe", "\xe2\x96\x81 ab", 9, 9, -1, 1, 0, -1};
    expect(&s, "ab", 2, (int32_t[]){1, 6});
    s.pre = "qwen2";
    expect(&s, "ab", 2, (int32_t[]){4, 5});
}

TEST(empty_spellings_get_a_name)
{
    Arena      a = {0};
    Tokenizer *t;
    write_small(&SPM);
    T_STATUS_OK(tokenizer_open(&t, &a, PATH));
    T_OK(tokenizer_size(t) == N_LETTERS && tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2);
    T_TEXT(tokenizer_piece(t, 9), "[EMPTY_9]");
    tokenizer_close(t);
    arena_close(&a);
}

TEST(tokenizers_that_are_refused)
{
    const Small BYTES = {"gpt2", "gpt-2", "a b", 9, 9, -1, -1, -1, -1};
    struct {
        Small       s;
        Status      code;
        const char *words;
    } ROWS[14];
    int n = 0;
#define ROW(base, change, c, w)                \
    do {                                       \
        Small x = base;                        \
        x.change;                              \
        ROWS[n].s = x;                         \
        ROWS[n].code = c;                      \
        ROWS[n++].words = w;                   \
    } while (0)
    ROW(SPM, model = NULL, ERR_FORMAT, "t.gguf: key tokenizer.ggml.model is missing");
    ROW(SPM, model = "t5", ERR_UNSUPPORTED, "model is \"t5\", expected gpt2 or llama");
    ROW(SPM, n_tokens = -1, ERR_FORMAT, "key tokenizer.ggml.tokens is missing");
    ROW(SPM, n_tokens = 1, ERR_RANGE, "bos_token_id is 1, expected 0 to 0");
    ROW(SPM, n_types = 3, ERR_SHAPE, "token_type has 3 items, expected 10");
    ROW(SPM, n_scores = 3, ERR_SHAPE, "scores has 3 items, expected 10");
    ROW(SPM, n_scores = -1, ERR_FORMAT, "key tokenizer.ggml.scores is missing");
    ROW(SPM, bos = 10, ERR_RANGE, "bos_token_id is 10, expected 0 to 9");
    ROW(BYTES, merge = NULL, ERR_FORMAT, "key tokenizer.ggml.merges is missing");
    ROW(BYTES, merge = "ab", ERR_FORMAT, "merges: \"ab\", item 0, is not two tokens");
    ROW(BYTES, merge = " a", ERR_FORMAT, "merges: \" a\", item 0, is not two tokens");
    ROW(BYTES, pre = "pt-2", ERR_UNSUPPORTED, "key tokenizer.ggml.pre is \"pt-2\": how that");
    ROW(BYTES, pre = "gpt-3", ERR_UNSUPPORTED, "key tokenizer.ggml.pre is \"gpt-3\": how that");
    ROW(BYTES, pre = " gpt-2", ERR_UNSUPPORTED, "key tokenizer.ggml.pre is \" gpt-2\": how");
    for (int i = 0; i < n; i++) {
        Arena      a = {0};
        Tokenizer *t;
        write_small(&ROWS[i].s);
        if (ROWS[i].s.n_tokens == 1)
            ROWS[i].s.n_types = ROWS[i].s.n_scores = 1;
        write_small(&ROWS[i].s);
        T_FAILS(tokenizer_open(&t, &a, PATH), ROWS[i].code, ROWS[i].words);
        T_OK(!t);
        arena_close(&a);
    }
}

/* All patterns compile, and every name leads to its own. */
TEST(every_pre_tokenizer_opens)
{
    static const char *const NAMES[] = {
        "default", "gpt-2", "jina-v2-code", "modern-bert", "smollm", "mellum2", "llama-bpe",
        "jina-v5-nano", "smaug-bpe", "qwen2", "grok-2", "seed-coder", "tekken", "llama4",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "poro-chat", "viking",
    };
    Small s = {"gpt2", NULL, "a b", 9, 9, -1, -1, 0, -1};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        Arena      a = {0};
        Tokenizer *t;
        int32_t   *ids;
        int64_t    n;
        s.pre = NAMES[i];
        write_small(&s);
        T_STATUS_OK(tokenizer_open(&t, &a, PATH));
        T_STATUS_OK(tokenizer_encode(t, &a, "ab ab1ba", 8, false, &ids, &n, NULL));
        T_OK(n >= 4 && ids[0] == 6);
        tokenizer_close(t);
        arena_close(&a);
    }
}

TEST(tokenizer_allocations_that_fail)
{
    Status  s = ERR_MEMORY;
    int64_t k = 0;
    write_small(&SPM);
    while (s != OK) {
        Arena      a = {0};
        Tokenizer *t;
        arena_fail_at(++k);
        s = tokenizer_open(&t, &a, PATH);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        tokenizer_close(t);
        arena_close(&a);
    }
    T_OK(k > 5);
}
