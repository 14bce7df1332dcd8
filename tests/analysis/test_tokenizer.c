/* test_tokenizer.c - ids and decoded text against the `tokenizers` library, on
 * golden/tokenizers (make_tokenizer_golden.py); BOS rule, offsets, decoding. */
#include <stdio.h>
#include <string.h>

#include "analysis/tokenizer.h"
#include "kernels/filemap.h"
#include "tests/check.h"

/* --- the library's ids --- */

enum { N_LINES = 10000 };

static uint32_t fnv(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t             h = 0x811c9dc5u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x01000193u;
    return h;
}

/* One line against its two hashes; says which it is. */
static bool line_agrees(Tokenizer *t, Arena *a, int line, const char *text, size_t n,
                        const uint32_t *want)
{
    ArenaMark mark = arena_mark(a);
    int32_t  *ids = NULL;
    int64_t   n_ids = 0;
    char     *back = NULL;
    bool      good = false;
    if (tokenizer_encode(t, a, text, n, true, &ids, &n_ids, NULL) != OK ||
        tokenizer_decode(t, a, ids, n_ids, &back) != OK)
        check_fail(__FILE__, __LINE__, "line %d: %s", line, status_text());
    else if (fnv(ids, (size_t)n_ids * sizeof *ids) != want[0])
        check_fail(__FILE__, __LINE__, "line %d: other ids for \"%.*s\"", line, (int)n, text);
    else if (fnv(back, strlen(back)) != want[1])
        check_fail(__FILE__, __LINE__, "line %d: other text \"%s\"", line, back);
    else
        good = true;
    arena_rewind(a, mark);
    return good;
}

static void compare_lines(Tokenizer *t, Arena *a, const FileMap *lines, const FileMap *expected)
{
    size_t at = 0;
    int    line = 0, wrong = 0;
    T_OK(expected->size == N_LINES * 8);
    for (; at + 2 <= lines->size && line < N_LINES && wrong < 5; line++) {
        uint32_t want[2];
        size_t   n = lines->data[at] | (size_t)lines->data[at + 1] << 8;
        memcpy(want, expected->data + 8 * (size_t)line, 8);
        T_OK(n <= lines->size - at - 2);
        wrong += !line_agrees(t, a, line, (const char *)lines->data + at + 2, n, want);
        at += 2 + n;
    }
    T_OK(wrong == 0 && line == N_LINES && at == lines->size);
}

static void compare_style(const char *style)
{
    char       name[96];
    Arena      a = {0};
    Tokenizer *t;
    FileMap    lines, expected;
    snprintf(name, sizeof name, "golden/tokenizers/%s", style);
    T_STATUS_OK(tokenizer_open(&t, &a, check_path(name)));
    snprintf(name, sizeof name, "golden/tokenizers/%s/expected.bin", style);
    T_STATUS_OK(filemap_open(&lines, check_path("golden/tokenizers/lines.bin")));
    T_STATUS_OK(filemap_open(&expected, check_path(name)));
    compare_lines(t, &a, &lines, &expected);
    filemap_close(&lines);
    filemap_close(&expected);
    tokenizer_close(t);
    arena_close(&a);
}

#define STYLE(name)                  \
    TEST(style_##name)               \
    {                                \
        compare_style(#name);        \
    }
STYLE(gpt2)
STYLE(gpt2_prefix)
STYLE(llama3)
STYLE(qwen2)
STYLE(o200k)
STYLE(digits)
STYLE(splits)
STYLE(llama2)
STYLE(meta_first)
STYLE(meta_always)
STYLE(meta_never)

/* --- single cases --- */

typedef struct {
    Arena      a;
    Tokenizer *t;
    int32_t   *ids;
    int64_t   *begin;
    int64_t    n;
} Case;

static Status open_style(Case *c, const char *style)
{
    char name[96];
    *c = (Case){0};
    snprintf(name, sizeof name, "golden/tokenizers/%s", style);
    return tokenizer_open(&c->t, &c->a, check_path(name));
}

static Status encode(Case *c, const char *text, bool special)
{
    return tokenizer_encode(c->t, &c->a, text, strlen(text), special, &c->ids, &c->n,
                            &c->begin);
}

static void close_case(Case *c)
{
    tokenizer_close(c->t);
    arena_close(&c->a);
}

TEST(begins_are_bytes_of_the_input)
{
    /* U+FFFD takes three bytes where the input had one. */
    static const char *const STYLES[] = {"gpt2", "llama2", "gpt2_prefix", "meta_first",
                                         "qwen2"};
    const char text[] = "ab \xff" "cd  e\xcc\x81 12";
    for (size_t i = 0; i < sizeof STYLES / sizeof *STYLES; i++) {
        Case c;
        T_STATUS_OK(open_style(&c, STYLES[i]));
        T_STATUS_OK(encode(&c, text, false));
        T_OK(c.n > 3 && c.begin[0] == 0);
        for (int64_t k = 1; k < c.n; k++)
            T_OK(c.begin[k] >= c.begin[k - 1] && c.begin[k] < (int64_t)strlen(text));
        T_OK(c.begin[c.n - 1] >= (int64_t)strlen(text) - 2);
        close_case(&c);
    }
}

TEST(begin_of_each_token)
{
    Case c;
    T_STATUS_OK(open_style(&c, "digits"));
    T_STATUS_OK(encode(&c, "\xff" "1<s>2", true));
    /* <s>, three bytes of U+FFFD, 1, <s>, 2, </s> */
    static const int64_t WANT[] = {0, 0, 0, 0, 1, 2, 5, 6};
    T_OK(c.n == 8);
    for (int64_t i = 0; i < c.n; i++)
        T_OK(c.begin[i] == WANT[i]);
    close_case(&c);
}

/* Are c's first tokens those of whole? */
static bool begins_as(const Case *c, const Case *whole, int64_t n)
{
    return c->n >= n && whole->n >= n &&
           memcmp(c->ids, whole->ids, (size_t)n * sizeof *c->ids) == 0 &&
           memcmp(c->begin, whole->begin, (size_t)n * sizeof *c->begin) == 0;
}

/* Each with a cache of its own: what was cut short must not be remembered. */
TEST(the_first_tokens_are_those_of_the_whole)
{
    static const char *const STYLES[] = {"gpt2", "llama2", "digits", "meta_first", "qwen2"};
    static const char TEXT[] = "The <s> licence(((\xe6\xbc\xa2\xf0\x9f\x99\x82   grants\xff you "
                               "1234567 </s>e\xcc\x81\n\n";
    for (size_t i = 0; i < sizeof STYLES / sizeof *STYLES; i++) {
        Case whole, c;
        T_STATUS_OK(open_style(&whole, STYLES[i]));
        T_STATUS_OK(encode(&whole, TEXT, true));
        T_OK(whole.n > 20);
        for (int64_t n = 1; n <= whole.n + 1; n++) {
            T_STATUS_OK(open_style(&c, STYLES[i]));
            T_STATUS_OK(tokenizer_encode_first(c.t, &c.a, TEXT, strlen(TEXT), true, n, &c.ids,
                                               &c.n, &c.begin));
            T_OK(begins_as(&c, &whole, n < whole.n ? n : whole.n));
            T_STATUS_OK(encode(&c, TEXT, true));
            T_OK(c.n == whole.n && begins_as(&c, &whole, c.n));
            close_case(&c);
        }
        close_case(&whole);
    }
}

TEST(the_first_tokens_cost_no_more)
{
    static const char *const STYLES[] = {"gpt2", "llama2"};
    enum { N = 1 << 20 };
    static char text[N];
    for (size_t i = 0; i < 2 * sizeof STYLES / sizeof *STYLES; i++) {
        Case c;
        for (int64_t k = 0; k < N; k++)   // one endless word of NUL, or many words
            text[k] = i % 2 ? 0 : "ab, "[k % 4];
        T_STATUS_OK(open_style(&c, STYLES[i / 2]));
        T_STATUS_OK(tokenizer_encode_first(c.t, &c.a, text, N, false, 10, &c.ids, &c.n,
                                           &c.begin));
        T_OK(c.n >= 10 && c.n < 40);
        close_case(&c);
    }
}

TEST(words_from_the_cache_are_the_same)
{
    Case    c;
    int32_t first[64];
    int64_t begin[64];
    T_STATUS_OK(open_style(&c, "llama2"));
    for (int round = 0; round < 2; round++) {
        T_STATUS_OK(encode(&c, "The licence \xe6\xbc\xa2\xf0\x9f\x99\x82 grants", true));
        T_OK(c.n < 64);
        if (round == 0) {
            memcpy(first, c.ids, (size_t)c.n * sizeof *first);
            memcpy(begin, c.begin, (size_t)c.n * sizeof *begin);
        }
        T_OK(memcmp(first, c.ids, (size_t)c.n * sizeof *first) == 0);
        T_OK(memcmp(begin, c.begin, (size_t)c.n * sizeof *begin) == 0);
    }
    close_case(&c);
}

TEST(empty_text)
{
    Case c;
    T_STATUS_OK(open_style(&c, "llama2"));
    T_STATUS_OK(encode(&c, "", false));
    T_OK(c.n == 0);
    T_STATUS_OK(encode(&c, "", true));
    T_OK(c.n == 1 && c.ids[0] == tokenizer_bos(c.t));
    char *text;
    T_STATUS_OK(tokenizer_decode(c.t, &c.a, c.ids, 0, &text));
    T_TEXT(text, "");
    close_case(&c);
}

TEST(template_gives_bos_and_eos)
{
    Case c;
    T_STATUS_OK(open_style(&c, "digits"));
    T_OK(tokenizer_bos(c.t) == 0 && tokenizer_eos(c.t) == 1 && tokenizer_adds_bos(c.t));
    T_OK(tokenizer_size(c.t) == 1000);
    T_TEXT(tokenizer_piece(c.t, 0), "<s>");
    T_TEXT(tokenizer_piece(c.t, 1000), "");
    T_TEXT(tokenizer_piece(c.t, -1), "");
    close_case(&c);
    T_STATUS_OK(open_style(&c, "gpt2"));
    T_OK(tokenizer_bos(c.t) == -1 && tokenizer_eos(c.t) == -1 && !tokenizer_adds_bos(c.t));
    close_case(&c);
}

/* Each [SEP] takes the space on both sides, the one between them only once. */
TEST(added_tokens_share_space)
{
    Case c;
    T_STATUS_OK(open_style(&c, "gpt2_prefix"));
    T_STATUS_OK(encode(&c, "  [SEP]  [SEP] ", false));
    T_OK(c.n == 2 && c.begin[0] == 0 && c.begin[1] == 9);
    T_TEXT(tokenizer_piece(c.t, c.ids[1]), "[SEP]");
    close_case(&c);
}

/* Runs of byte tokens: text, or U+FFFD for every byte of the run. */
TEST(decode_byte_tokens)
{
    Case  c;
    char *text;
    T_STATUS_OK(open_style(&c, "llama2"));
    static const int32_t IDS[] = {198, 198, 774, 198, 172, 229};  // C3 C3, " a", C3 A9 E2
    T_TEXT(tokenizer_piece(c.t, 198), "<0xC3>");
    T_STATUS_OK(tokenizer_decode(c.t, &c.a, IDS, 6, &text));
    T_TEXT(text, "\ufffd\ufffd a\ufffd\ufffd\ufffd");
    T_STATUS_OK(tokenizer_decode(c.t, &c.a, IDS + 3, 2, &text));
    T_TEXT(text, "\u00e9");
    close_case(&c);
}

TEST(decode_refuses_unknown_ids)
{
    Case          c;
    char         *text;
    const int32_t past = 2000, below = -1;
    T_STATUS_OK(open_style(&c, "gpt2"));
    T_FAILS(tokenizer_decode(c.t, &c.a, &past, 1, &text), ERR_RANGE, "id 2000");
    T_FAILS(tokenizer_decode(c.t, &c.a, &below, 1, &text), ERR_RANGE, "id -1");
    close_case(&c);
}

/* A word that takes any number of merges: whole tokens, and not too slow even
 * under sanitizers (a quadratic merge would take minutes). */
TEST(long_words)
{
    static const char *const STYLES[] = {"gpt2", "llama2"};
    enum { N = 300000 };
    static char text[N + 1], back[2 * N];
    memset(text, ' ', N);
    for (size_t i = 0; i < 2; i++) {
        Case  c;
        char *out;
        T_STATUS_OK(open_style(&c, STYLES[i]));
        T_STATUS_OK(encode(&c, text, false));
        T_STATUS_OK(tokenizer_decode(c.t, &c.a, c.ids, c.n, &out));
        snprintf(back, sizeof back, "%s", out);
        T_OK(strcmp(back, text) == 0);
        close_case(&c);
    }
}

/* --- tokenizer_config.json and special_tokens_map.json --- */

static bool write_file(const char *folder, const char *name, const void *text, size_t n)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    return f && fwrite(text, 1, n, f) == n && fclose(f) == 0;
}

/* Three letters and a merge; what else is in the file is given. */
static Status open_small(Case *c, const char *members, const char *config)
{
    const char *folder = check_tmp();
    char        text[1024], path[1200];
    *c = (Case){0};
    snprintf(text, sizeof text, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"1\":0,\"2\":1,"
             "\"12\":2,\"a\":3},\"merges\":[\"1 2\"]},%s}", members);
    snprintf(path, sizeof path, "%s/special_tokens_map.json", folder);
    remove(path);
    if (!write_file(folder, "tokenizer.json", text, strlen(text)) ||
        !write_file(folder, "tokenizer_config.json", config, strlen(config)))
        FAIL(ERR_IO, "%s: cannot write", folder);
    return tokenizer_open(&c->t, &c->a, folder);
}

TEST(digits_alone_or_together)
{
    Case c;
    T_STATUS_OK(open_small(
        &c, "\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":true}", "{}"));
    T_STATUS_OK(encode(&c, "a12", true));
    T_OK(c.n == 3);
    close_case(&c);
    T_STATUS_OK(open_small(
        &c, "\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":false}", "{}"));
    T_STATUS_OK(encode(&c, "a12", true));
    T_OK(c.n == 2 && c.ids[0] == 3 && c.ids[1] == 2);
    close_case(&c);
}

/* A template of several ids: only BOS itself comes and goes. */
TEST(config_with_a_longer_template)
{
    static const char TEMPLATE[] =
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
        "{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":"
        "[0,1]}}}";
    Case c;
    T_STATUS_OK(open_small(&c, TEMPLATE, "{\"bos_token\":\"1\",\"add_bos_token\":false}"));
    T_STATUS_OK(encode(&c, "a", true));
    T_OK(c.n == 2 && c.ids[0] == 1 && c.ids[1] == 3);
    close_case(&c);
    T_STATUS_OK(open_small(&c, TEMPLATE, "{\"bos_token\":\"a\",\"add_bos_token\":true,"
                                         "\"eos_token\":\"2\",\"add_eos_token\":true}"));
    T_STATUS_OK(encode(&c, "a", true));
    static const int32_t WANT[] = {3, 0, 1, 3, 1};
    T_OK(c.n == 5 && memcmp(c.ids, WANT, sizeof WANT) == 0);
    close_case(&c);
}

/* The digits style (<s> A </s>) with these files beside it. */
static Status open_with(Case *c, const char *config, const char *map)
{
    const char *folder = check_tmp();
    char        path[1200];
    FileMap     m;
    *c = (Case){0};
    TRY(filemap_open(&m, check_path("golden/tokenizers/digits/tokenizer.json")));
    bool written = write_file(folder, "tokenizer.json", m.data, m.size);
    filemap_close(&m);
    static const char *const NAMES[] = {"tokenizer_config.json", "special_tokens_map.json"};
    const char *const        texts[] = {config, map};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        remove(path);
        if (texts[i])
            written = written && write_file(folder, NAMES[i], texts[i], strlen(texts[i]));
    }
    if (!written)
        FAIL(ERR_IO, "%s: cannot write", folder);
    return tokenizer_open(&c->t, &c->a, folder);
}

TEST(config_decides_bos_and_eos)
{
    Case c;
    T_STATUS_OK(open_with(&c, "{\"add_bos_token\": false, \"bos_token\": \"<s>\"}", NULL));
    T_OK(tokenizer_bos(c.t) == 0 && !tokenizer_adds_bos(c.t));
    T_STATUS_OK(encode(&c, "7", true));
    T_OK(c.n == 2 && c.ids[1] == 1 && c.begin[0] == 0 && c.begin[1] == 1);
    close_case(&c);

    T_STATUS_OK(open_with(&c,
                          "{\"add_eos_token\": false, \"bos_token\": {\"content\": \"</s>\"},"
                          " \"add_bos_token\": true}",
                          NULL));
    T_OK(tokenizer_bos(c.t) == 1 && tokenizer_adds_bos(c.t));
    T_STATUS_OK(encode(&c, "7", true));
    T_OK(c.n == 3 && c.ids[0] == 1 && c.ids[1] == 0);
    close_case(&c);

    T_STATUS_OK(open_with(&c, "{\"bos_token\": null}", "{\"bos_token\": {\"content\": \"7\"}, "
                                                       "\"eos_token\": \"8\"}"));
    T_TEXT(tokenizer_piece(c.t, tokenizer_bos(c.t)), "7");
    T_TEXT(tokenizer_piece(c.t, tokenizer_eos(c.t)), "8");
    T_OK(!tokenizer_adds_bos(c.t));  // the template's is another
    close_case(&c);
}

TEST(config_that_is_wrong)
{
    Case c;
    T_FAILS(open_with(&c, "{\"bos_token\": \"<nope>\"}", NULL), ERR_FORMAT, "<nope>");
    arena_close(&c.a);
    T_FAILS(open_with(&c, "{\"eos_token\": 3}", NULL), ERR_FORMAT, "eos_token");
    arena_close(&c.a);
    T_FAILS(open_with(&c, "{", NULL), ERR_FORMAT, "tokenizer_config.json");
    arena_close(&c.a);
}
