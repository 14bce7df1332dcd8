/* test_tokenizer_errors.c - tokenizer.json files that are wrong or unknown, no
 * memory, and bytes changed at random (run it under sanitizers). */
#include <stdio.h>
#include <string.h>

#include "analysis/tokenizer.h"
#include "kernels/filemap.h"
#include "tests/check.h"

static bool write_file(const void *text, size_t n)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/tokenizer.json", check_tmp());
    FILE *f = fopen(path, "wb");
    return f && fwrite(text, 1, n, f) == n && fclose(f) == 0;
}

/* Opens a file of that text; closed again if it opens. */
static Status try_text(const char *text)
{
    Arena      a = {0};
    Tokenizer *t = NULL;
    if (!write_file(text, strlen(text)))
        FAIL(ERR_IO, "cannot write");
    Status s = tokenizer_open(&t, &a, check_tmp());
    if (s == OK)
        tokenizer_close(t);
    arena_close(&a);
    return s;
}

/* A small file around one member that differs. */
static Status try_part(const char *key, const char *value)
{
    static const char *const KEYS[] = {"normalizer", "pre_tokenizer", "decoder",
                                       "post_processor", "added_tokens"};
    static char text[8192];
    size_t      n = (size_t)snprintf(text, sizeof text, "{\"version\":\"1.0\"");
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (strcmp(KEYS[i], key) != 0)
            n += (size_t)snprintf(text + n, sizeof text - n, ",\"%s\":null", KEYS[i]);
    if (strcmp(key, "model") != 0)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              ",\"model\":{\"type\":\"BPE\",\"vocab\":"
                              "{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}");
    snprintf(text + n, sizeof text - n, ",\"%s\":%s}", key, value);
    return try_text(text);
}

/* A model whose members are those, after its type. */
static Status try_model(const char *members)
{
    char text[4096];
    snprintf(text, sizeof text, "{\"type\":\"BPE\",%s}", members);
    return try_part("model", text);
}

TEST(absent_file)
{
    Arena      a = {0};
    Tokenizer *t;
    T_FAILS(tokenizer_open(&t, &a, "/nonexistent/folder"), ERR_IO,
            "/nonexistent/folder/tokenizer.json");
    T_OK(t == NULL);
    arena_close(&a);
}

TEST(malformed_json)
{
    T_FAILS(try_text(""), ERR_FORMAT, "tokenizer.json");
    T_FAILS(try_text("[]"), ERR_FORMAT, "should be an object, is a list");
    T_FAILS(try_text("{\"model\":"), ERR_FORMAT, "tokenizer.json");
    T_FAILS(try_text("{}"), ERR_FORMAT, "\"model\" should be an object, is missing");
}

TEST(unknown_kinds_by_name)
{
    T_STATUS_OK(try_part("decoder", "null"));
    T_FAILS(try_part("model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}"), ERR_UNSUPPORTED,
            "\"Unigram\"");
    T_FAILS(try_part("model", "{\"type\":\"WordPiece\",\"vocab\":{}}"), ERR_UNSUPPORTED,
            "\"WordPiece\"");
    T_FAILS(try_part("model", "{\"type\":\"WordLevel\",\"vocab\":{}}"), ERR_UNSUPPORTED,
            "\"WordLevel\"");
    T_FAILS(try_part("normalizer", "{\"type\":\"NFKC\"}"), ERR_UNSUPPORTED, "\"NFKC\"");
    T_FAILS(try_part("normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
                                   "{\"type\":\"Lowercase\"}]}"),
            ERR_UNSUPPORTED, "\"Lowercase\"");
    T_FAILS(try_part("pre_tokenizer", "{\"type\":\"BertPreTokenizer\"}"), ERR_UNSUPPORTED,
            "\"BertPreTokenizer\"");
    T_FAILS(try_part("decoder", "{\"type\":\"CTC\"}"), ERR_UNSUPPORTED, "\"CTC\"");
    T_FAILS(try_part("post_processor", "{\"type\":\"BertProcessing\"}"), ERR_UNSUPPORTED,
            "\"BertProcessing\"");
    T_FAILS(try_part("normalizer", "{\"type\":3}"), ERR_FORMAT, "\"type\" should be a text");
    T_FAILS(try_part("normalizer", "[]"), ERR_FORMAT, "\"type\" should be a text");
}

TEST(wrong_steps)
{
    T_FAILS(try_part("normalizer", "{\"type\":\"Prepend\"}"), ERR_FORMAT, "\"prepend\"");
    T_FAILS(
        try_part("normalizer", "{\"type\":\"Replace\",\"content\":\"x\",\"pattern\":\"y\"}"),
        ERR_FORMAT, "\"pattern\"");
    T_FAILS(try_part("normalizer", "{\"type\":\"Replace\",\"content\":\"x\",\"pattern\":"
                                   "{\"String\":\"\"}}"), ERR_UNSUPPORTED, "empty pattern");
    T_FAILS(try_part("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},"
                                      "\"behavior\":\"Twice\"}"), ERR_UNSUPPORTED, "\"Twice\"");
    T_FAILS(try_part("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"),
            ERR_FORMAT, "one character");
    T_FAILS(try_part("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\","
                                      "\"prepend_scheme\":\"last\"}"),
            ERR_UNSUPPORTED, "\"last\"");
    T_FAILS(try_part("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\","
                                      "\"add_prefix_space\":false}"),
            ERR_FORMAT, "add_prefix_space");
    T_FAILS(try_part("pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                                      "\"ByteLevel\"},{\"type\":\"Digits\"}]}"),
            ERR_UNSUPPORTED, "after ByteLevel");
    T_FAILS(try_part("decoder", "{\"type\":\"Strip\",\"content\":\"\",\"start\":0,\"stop\":0}"),
            ERR_FORMAT, "empty content");
    T_FAILS(
        try_part("decoder", "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"),
        ERR_FORMAT, "\"start\"");
    T_FAILS(try_part("decoder", "{\"type\":\"Sequence\",\"decoders\":3}"), ERR_FORMAT,
            "\"decoders\" should be a list");
}

/* A Split with that regular expression (as JSON text). */
static Status try_regex(const char *regex)
{
    char text[512];
    snprintf(text, sizeof text, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
             "\"behavior\":\"Isolated\",\"invert\":false}", regex);
    return try_part("pre_tokenizer", text);
}

TEST(regular_expressions)
{
    T_STATUS_OK(try_regex(
        "(?i:'s)|[^\\\\r\\\\n\\\\p{L}]?+\\\\p{Lu}++|\\\\s+(?!\\\\S)|[\\\\]a\\\\u0301]"));
    T_FAILS(try_regex("(a"), ERR_FORMAT, "\"(a\"");
    T_FAILS(try_regex("\\\\p{Nope}"), ERR_FORMAT, "Nope");
    T_FAILS(try_regex("\\\\p{L"), ERR_UNSUPPORTED, "\\p");
    T_FAILS(try_regex("\\\\h+"), ERR_UNSUPPORTED, "\\h");
    T_FAILS(try_regex("a\\\\"), ERR_UNSUPPORTED, "at the end");
    T_FAILS(try_regex("\\\\p{N}{1,3}+"), ERR_UNSUPPORTED, "{n,m}+");
    T_FAILS(try_regex("a{,3}"), ERR_UNSUPPORTED, "{,m}");
    T_FAILS(try_regex("[a&&b]"), ERR_UNSUPPORTED, "&&");
    T_FAILS(try_regex("[a[b]]"), ERR_UNSUPPORTED, "[ inside");
    T_FAILS(try_regex("[a\\\\S]"), ERR_UNSUPPORTED, "negated");
    T_FAILS(try_regex("[]a]"), ERR_UNSUPPORTED, "[]");
    T_FAILS(try_regex("(?m:.)"), ERR_UNSUPPORTED, "a group");
    T_FAILS(try_regex("\\\\xff"), ERR_UNSUPPORTED, "past 7f");
}

TEST(wrong_vocabularies)
{
    T_FAILS(try_model("\"merges\":[]"), ERR_FORMAT,
            "\"vocab\" should be an object, is missing");
    T_FAILS(try_model("\"vocab\":{\"a\":0}"), ERR_FORMAT, "\"merges\" should be a list");
    T_FAILS(try_model("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), ERR_FORMAT,
            "id 0 is both \"a\" and \"b\"");
    T_FAILS(try_model("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]"), ERR_FORMAT, "\"a\"");
    T_FAILS(try_model("\"vocab\":{\"a\":-1},\"merges\":[]"), ERR_FORMAT, "id of token \"a\"");
    T_FAILS(try_model("\"vocab\":{\"a\":1.5},\"merges\":[]"), ERR_FORMAT, "id of token \"a\"");
    T_FAILS(try_model("\"vocab\":{\"a\":16777216},\"merges\":[]"), ERR_FORMAT,
            "id of token \"a\"");
    T_FAILS(try_model("\"vocab\":{\"a\":99999999999999999999},\"merges\":[]"), ERR_FORMAT,
            "id of token \"a\"");
    T_FAILS(try_model("\"vocab\":{\"a\":\"0\"},\"merges\":[]"), ERR_FORMAT,
            "id of token \"a\"");
    T_FAILS(try_model("\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\""), ERR_FORMAT,
            "unk_token \"u\"");
    T_FAILS(try_model("\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1"), ERR_UNSUPPORTED,
            "\"dropout\"");
    T_FAILS(try_model("\"vocab\":{\"a\":0},\"merges\":[],\"continuing_subword_prefix\":\"##\""),
            ERR_UNSUPPORTED, "\"continuing_subword_prefix\"");
    T_FAILS(try_model("\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\""),
            ERR_UNSUPPORTED, "\"end_of_word_suffix\"");
    T_FAILS(try_model("\"vocab\":{\"a\":0},\"merges\":[],\"fuse_unk\":1"), ERR_FORMAT,
            "fuse_unk");
    T_STATUS_OK(try_model("\"vocab\":{},\"merges\":[]"));
}

TEST(wrong_merges)
{
    static const char VOCAB[] = "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":";
    static const struct {
        const char *merges, *says;
    } CASES[] = {
        {"[\"a c\"]", "merge number 0: \"c\" is not"},
        {"[\"a b\",\"ab a\"]", "merge number 1: \"aba\" is not"},
        {"[[\"a\",\"b\"],[\"x\",\"b\"]]", "merge number 1: \"x\" is not"},
        {"[\"ab\"]", "one space"},
        {"[\"a b c\"]", "one space"},
        {"[\" ab\"]", "not empty"},
        {"[[\"\",\"ab\"]]", "not empty"},
        {"[[\"a\",\"b\",\"a\"]]", "a list of two"},
        {"[[\"a\",1]]", "a list of two"},
        {"[7]", "a list of two"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", VOCAB, CASES[i].merges);
        T_FAILS(try_model(text), ERR_FORMAT, CASES[i].says);
    }
}

TEST(wrong_added_tokens)
{
    T_FAILS(try_part("added_tokens", "{}"), ERR_FORMAT, "\"added_tokens\" should be a list");
    T_FAILS(try_part("added_tokens", "[{\"id\":3}]"), ERR_FORMAT, "\"content\"");
    T_FAILS(try_part("added_tokens", "[{\"content\":\"<s>\"},{\"content\":\"<s>\"}]"),
            ERR_FORMAT, "both \"<s>\"");
    T_FAILS(try_part("added_tokens", "[{\"content\":\"<s>\",\"special\":\"yes\"}]"), ERR_FORMAT,
            "\"special\"");
    T_STATUS_OK(try_part("added_tokens",
                         "[{\"content\":\"<s>\",\"special\":true},{\"content\":\"\"}]"));
}

TEST(added_token_on_a_taken_id)
{
    T_FAILS(try_text("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":2},\"merges\":[]},"
                     "\"added_tokens\":[{\"content\":\"x\"}]}"), ERR_FORMAT, "would get id 2");
}

TEST(wrong_templates)
{
#define SINGLE(x) "{\"type\":\"TemplateProcessing\",\"single\":" x ",\"special_tokens\":" \
                  "{\"s\":{\"ids\":[2]},\"far\":{\"ids\":[3]},\"none\":{}}}"
#define PART_A "{\"Sequence\":{\"id\":\"A\"}}"
    T_STATUS_OK(
        try_part("post_processor", SINGLE("[{\"SpecialToken\":{\"id\":\"s\"}}," PART_A "]")));
    T_FAILS(try_part("post_processor", SINGLE("3")), ERR_UNSUPPORTED, "not a list");
    T_FAILS(try_part("post_processor", SINGLE("[]")), ERR_UNSUPPORTED, "no sequence A");
    T_FAILS(try_part("post_processor", SINGLE("[" PART_A "," PART_A "]")), ERR_UNSUPPORTED,
            "twice");
    T_FAILS(try_part("post_processor", SINGLE("[{\"Sequence\":{\"id\":\"B\"}}]")),
            ERR_UNSUPPORTED, "neither");
    T_FAILS(try_part("post_processor", SINGLE("[{\"SpecialToken\":{\"id\":\"none\"}}]")),
            ERR_UNSUPPORTED, "without ids");
    T_FAILS(try_part("post_processor", SINGLE("[{\"SpecialToken\":{}}]")), ERR_UNSUPPORTED,
            "without ids");
    T_FAILS(try_part("post_processor", SINGLE("[{\"SpecialToken\":{\"id\":\"far\"}}]")),
            ERR_FORMAT, "id 3 of \"far\"");
}

TEST(character_outside_the_vocabulary)
{
    Arena      a = {0};
    Tokenizer *t;
    int32_t   *ids;
    int64_t    n;
    T_STATUS_OK(try_model("\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"));
    T_STATUS_OK(tokenizer_open(&t, &a, check_tmp()));
    T_STATUS_OK(tokenizer_encode(t, &a, "aba", 3, true, &ids, &n, NULL));
    T_OK(n == 2 && ids[0] == 2 && ids[1] == 0);
    T_FAILS(tokenizer_encode(t, &a, "ab\xc3\xa9", 4, true, &ids, &n, NULL), ERR_RANGE,
            "U+00E9");
    tokenizer_close(t);
    arena_close(&a);
}

/* --- no memory --- */

static Status whole_run(const char *folder)
{
    static const char TEXT[] =
        "The magic\xff <s> 1234 e\xcc\x81\xcc\xa3 \xf0\x9f\x99\x82\n\n  x";
    Arena      a = {0};
    Tokenizer *t = NULL;
    int32_t   *ids;
    int64_t    n, *begin;
    char      *back;
    Status     s = OK;
    GUARD(tokenizer_open(&t, &a, folder));
    GUARD(tokenizer_encode(t, &a, TEXT, sizeof TEXT - 1, true, &ids, &n, &begin));
    GUARD(tokenizer_decode(t, &a, ids, n, &back));
out:
    tokenizer_close(t);
    arena_close(&a);
    return s;
}

TEST(every_allocation_may_fail)
{
    static const char *const STYLES[] = {"qwen2", "llama2", "meta_first", "gpt2_prefix"};
    for (size_t i = 0; i < sizeof STYLES / sizeof *STYLES; i++) {
        char name[96];
        snprintf(name, sizeof name, "golden/tokenizers/%s", STYLES[i]);
        const char *folder = check_path(name);
        Status      s = ERR_MEMORY;
        int64_t     k = 1;
        for (; s == ERR_MEMORY && k < 20000; k += 1 + k / 64) {
            arena_fail_at(k);
            s = whole_run(folder);
            arena_fail_at(0);
            T_OK(s == OK || s == ERR_MEMORY);
        }
        T_OK(s == OK && k > 30);
    }
}

/* --- bytes changed at random --- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Any Status will do; what opens must also run. */
static void run_changed(const unsigned char *data, size_t n)
{
    Arena      a = {0};
    Tokenizer *t = NULL;
    int32_t   *ids;
    int64_t    n_ids;
    char      *text;
    if (!write_file(data, n) || tokenizer_open(&t, &a, check_tmp()) != OK)
        goto out;
    if (tokenizer_encode(t, &a, "a <s>b\xff 12", 10, true, &ids, &n_ids, NULL) == OK)
        (void)!tokenizer_decode(t, &a, ids, n_ids, &text);
out:
    tokenizer_close(t);
    arena_close(&a);
}

/* The parts that are not vocabulary are few bytes in a large file: half of the
 * changes go to the first 2000 and the last 300 of it. */
TEST(changed_files)
{
    static const char *const STYLES[] = {"llama2", "splits", "gpt2_prefix"};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof STYLES / sizeof *STYLES; i++) {
        char    name[96];
        FileMap m;
        snprintf(name, sizeof name, "golden/tokenizers/%s/tokenizer.json", STYLES[i]);
        T_STATUS_OK(filemap_open(&m, check_path(name)));
        Arena          a = {0};
        unsigned char *copy = arena_raw(&a, (int64_t)m.size, 1);
        T_OK(copy);
        for (int round = 0; round < 200; round++) {
            memcpy(copy, m.data, m.size);
            for (uint64_t k = next_random(&seed) % 3 + 1; k > 0; k--) {
                size_t at = next_random(&seed) % (round % 2 ? m.size : 2000);
                copy[at] = round % 3 ? " \",:[]{}0aNt\\"[next_random(&seed) % 13]
                                     : (unsigned char)next_random(&seed);
            }
            run_changed(copy, round % 10 ? m.size : next_random(&seed) % m.size);
        }
        arena_close(&a);
        filemap_close(&m);
    }
}

/* Any bytes at all encode, and their begins are within the text and in order. */
TEST(changed_texts)
{
    static const char *const STYLES[] = {"qwen2", "llama2", "meta_always", "gpt2_prefix",
                                         "o200k"};
    uint64_t seed = 2;
    for (size_t i = 0; i < sizeof STYLES / sizeof *STYLES; i++) {
        char       name[96];
        Arena      a = {0};
        Tokenizer *t;
        snprintf(name, sizeof name, "golden/tokenizers/%s", STYLES[i]);
        T_STATUS_OK(tokenizer_open(&t, &a, check_path(name)));
        for (int round = 0; round < 500; round++) {
            char     text[96];
            size_t   n = next_random(&seed) % sizeof text;
            int32_t *ids;
            int64_t  n_ids, *begin;
            char    *back;
            for (size_t k = 0; k < n; k++)
                text[k] =
                    round % 2
                        ? "\xe2\x96\x81 <s>a1\xcc\x81\xf0\x9f\xed\n"[next_random(&seed) % 15]
                        : (char)next_random(&seed);
            ArenaMark mark = arena_mark(&a);
            T_STATUS_OK(tokenizer_encode(t, &a, text, n, true, &ids, &n_ids, &begin));
            for (int64_t k = 1; k < n_ids; k++)
                T_OK(begin[k] >= begin[k - 1] && begin[k] <= (int64_t)n);
            T_STATUS_OK(tokenizer_decode(t, &a, ids, n_ids, &back));
            arena_rewind(&a, mark);
        }
        tokenizer_close(t);
        arena_close(&a);
    }
}
