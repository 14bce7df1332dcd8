/* test_gguf_tokens.c - tokenizers as GGUF keys: against the fixtures' own ids, and for
 * what the fixtures do not have, by hand. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/tokenizer.h"
#include "tests/check.h"
#include "tests/quant/ref_llama.h"
#include "tests/quant/ref_written.h"

static Written run;

/* Ids of texts by the folder's tokenizer, and by that in the file. No text begins with a
 * space: before that, Metaspace puts no other, and llama.cpp does. */
static const char *compare_ids(Arena *a, const char *folder, const char *file)
{
    static const char *const TEXTS[] = {
        "The quick brown fox, it's 1234567 miles away!", "a  two  spaces\tand\n\nlines \r\n",
        "na\u00efve \u4e2d\u6587 \U0001f600 DON'T HTTPServer", "x", "",
    };
    Tokenizer  *t[2] = {0};
    const char *wrong = NULL;
    if (tokenizer_open(&t[0], a, folder) != OK || tokenizer_open(&t[1], a, file) != OK)
        wrong = status_text();
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS && !wrong; i++) {
        int32_t *ids[2];
        int64_t  n[2];
        for (int side = 0; side < 2 && !wrong; side++)
            if (tokenizer_encode(t[side], a, TEXTS[i], strlen(TEXTS[i]), true, &ids[side],
                                 &n[side], NULL) != OK)
                wrong = status_text();
        if (!wrong && (n[0] != n[1] || memcmp(ids[0], ids[1], (size_t)n[0] * 4) != 0))
            wrong = TEXTS[i];
    }
    for (int side = 0; side < 2; side++)
        if (t[side])
            tokenizer_close(t[side]);
    return wrong;
}

TEST(tokenizers_give_the_same_ids)
{
    static const struct {
        const char *name, *model, *pre;
        bool        warns;
    } WANT[] = {
        {"llama3", "gpt2", "llama-bpe", false}, {"qwen2", "gpt2", "qwen2", false},
        {"gpt2", "gpt2", "gpt-2", false},  {"gpt2_prefix", "gpt2", "gpt-2", true},
        {"digits", "gpt2", "smollm", false}, {"o200k", "gpt2", "gpt-4o", false},
        {"splits", "gpt2", "default", true}, {"llama2", "llama", "default", false},
        {"meta_first", "llama", "default", false},
    };
    for (size_t i = 0; i < sizeof WANT / sizeof *WANT; i++) {
        RefLlama m = {.hidden = 32, .inter = 32, .vocab = 2010, .layers = 1, .heads = 1,
                      .kv_heads = 1, .head_dim = 32, .tied = true, .tokenizer = WANT[i].name};
        const char *folder = ref_llama_write(&m, WANT[i].name);
        T_RUNS(written_run(&run, folder, GGUF_Q8_0, WANT[i].name));
        const RefGguf *f = &run.file;
        T_TEXT(ref_gguf_text(f, "tokenizer.ggml.model"), WANT[i].model);
        T_TEXT(ref_gguf_text(f, "tokenizer.ggml.pre"), WANT[i].pre);
        T_OK(ref_gguf_count(f, "tokenizer.ggml.tokens", 8) == 2010);
        T_OK(ref_gguf_count(f, "tokenizer.ggml.token_type", 5) == 2010);
        T_TEXT(ref_gguf_item(f, "tokenizer.ggml.tokens", 2009), "[PAD2009]");
        T_NEAR(ref_gguf_number(f, "tokenizer.ggml.token_type", 2009), 5, 0);
        T_OK((run.o.warning != NULL) == WANT[i].warns);
        if (!WANT[i].warns)
            T_RUNS(compare_ids(&run.arena, folder, run.o.path));
        written_close(&run);
    }
}

TEST(special_tokens_of_a_byte_level_tokenizer)
{
    RefLlama m = {.hidden = 32, .inter = 32, .vocab = 2010, .layers = 1, .heads = 1,
                  .kv_heads = 1, .head_dim = 32, .tied = true, .tokenizer = "digits",
                  .config = "\"bos_token_id\": 0, \"eos_token_id\": 1, \"pad_token_id\": 7, "};
    T_RUNS(written_run(&run, ref_llama_write(&m, "digits"), GGUF_Q8_0, "digits"));
    const RefGguf *f = &run.file;
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.bos_token_id") == 0);
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.eos_token_id") == 1);
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.padding_token_id") == 7);
    T_OK(ref_gguf_bool(f, "tokenizer.ggml.add_bos_token") == 1);  // <s> A </s>
    T_OK(ref_gguf_bool(f, "tokenizer.ggml.add_eos_token") == 1);
    T_TEXT(ref_gguf_item(f, "tokenizer.ggml.tokens", 0), "<s>");
    T_NEAR(ref_gguf_number(f, "tokenizer.ggml.token_type", 0), 3, 0);
    T_NEAR(ref_gguf_number(f, "tokenizer.ggml.token_type", 5), 1, 0);
    T_OK(ref_gguf_count(f, "tokenizer.ggml.merges", 8) == 742);
    T_OK(!ref_gguf_key(f, "tokenizer.ggml.scores"));
    written_close(&run);
}

TEST(scores_merge_in_the_order_of_the_merges)
{
    RefLlama m = {.hidden = 32, .inter = 32, .vocab = 1600, .layers = 1, .heads = 1,
                  .kv_heads = 1, .head_dim = 32, .tied = true, .tokenizer = "llama2"};
    T_RUNS(written_run(&run, ref_llama_write(&m, "llama2"), GGUF_Q8_0, "llama2"));
    const RefGguf *f = &run.file;
    T_OK(ref_gguf_count(f, "tokenizer.ggml.scores", 6) == 1600);
    T_OK(!ref_gguf_key(f, "tokenizer.ggml.merges"));
    T_OK(ref_gguf_bool(f, "tokenizer.ggml.add_space_prefix") == 1);
    T_OK(ref_gguf_bool(f, "tokenizer.ggml.add_bos_token") == 1);
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.unknown_token_id") == 0);
    T_NEAR(ref_gguf_number(f, "tokenizer.ggml.token_type", 0), 2, 0);
    double best = -1e9;
    int    bytes = 0;
    for (int i = 0; i < 1500; i++) {
        double kind = ref_gguf_number(f, "tokenizer.ggml.token_type", i);
        bytes += kind == 6;
        if (kind == 1)
            best = fmax(best, ref_gguf_number(f, "tokenizer.ggml.scores", i));
    }
    T_OK(bytes == 256);
    T_NEAR(best, 0, 0);  // the first merge
    written_close(&run);
}

static bool put_file(const char *folder, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    return f && fputs(text, f) >= 0 && fclose(f) == 0;
}

/* All that the fixtures do not have: both spellings of merges, spaces inside pieces, a
 * control token that is not marked, named templates, three places of special tokens. */
TEST(tokenizer_written_by_hand)
{
    RefLlama    m = {.hidden = 32, .inter = 32, .vocab = 8, .layers = 1, .heads = 1,
                     .kv_heads = 1, .head_dim = 32, .tied = true};
    const char *folder = ref_llama_write(&m, "byhand");
    T_OK(folder && put_file(folder, "tokenizer.json",
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"<|x|>\", \"special\": false},"
        " {\"id\": 6, \"content\": \"yes\", \"special\": false}],"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
        " \"model\": {\"type\": \"BPE\","
        " \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"c d\": 3},"
        " \"merges\": [\"a b\", [\"c d\", \"b\"]]}}"));
    T_OK(put_file(folder, "tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<|x|>\"}, \"add_bos_token\": true, \"chat_template\": "
        "[{\"name\": \"tools\", \"template\": \"T\"}, "
        "{\"name\": \"default\", \"template\": \"{{ x }}\"}]}"));
    T_OK(put_file(folder, "special_tokens_map.json", "{\"pad_token\": \"yes\"}"));
    T_RUNS(written_run(&run, folder, GGUF_Q8_0, "byhand"));
    const RefGguf *f = &run.file;
    static const int KINDS[8] = {1, 1, 1, 1, 3, 5, 4, 5};
    for (int i = 0; i < 8; i++)
        T_NEAR(ref_gguf_number(f, "tokenizer.ggml.token_type", i), KINDS[i], 0);
    T_TEXT(ref_gguf_item(f, "tokenizer.ggml.tokens", 4), "<|x|>");
    T_TEXT(ref_gguf_item(f, "tokenizer.ggml.tokens", 5), "[PAD5]");
    T_TEXT(ref_gguf_item(f, "tokenizer.ggml.merges", 0), "a b");
    T_TEXT(ref_gguf_item(f, "tokenizer.ggml.merges", 1), "c\xc4\xa0" "d b");
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.bos_token_id") == 4);
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.eos_token_id") == 2);  // of the config's class
    T_OK(ref_gguf_u32(f, "tokenizer.ggml.padding_token_id") == 6);
    T_OK(ref_gguf_bool(f, "tokenizer.ggml.add_bos_token") == 1);
    T_OK(ref_gguf_bool(f, "tokenizer.ggml.add_eos_token") == 0);
    T_TEXT(ref_gguf_text(f, "tokenizer.chat_template"), "{{ x }}");
    written_close(&run);
    T_OK(put_file(folder, "chat_template.jinja", "newer"));
    T_RUNS(written_run(&run, folder, GGUF_Q8_0, "byhand"));
    T_TEXT(ref_gguf_text(f, "tokenizer.chat_template"), "newer");
    written_close(&run);
}

TEST(broken_tokenizers)
{
    static const struct {
        const char *text, *sentence;
        Status      code;
    } CASES[] = {
        {"{", "tokenizer.json", ERR_FORMAT},
        {"{\"model\": 3}", "model is a number, expected an object", ERR_FORMAT},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "\"Unigram\"", ERR_UNSUPPORTED},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {}}}",
         "merges is missing, expected a list", ERR_FORMAT},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": -1}, "
         "\"merges\": []}}", "the id of token \"a\"", ERR_FORMAT},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": 0}, "
         "\"merges\": [\"ab\"]}}", "merges[0] is no pair", ERR_FORMAT},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [{\"id\": 1}], "
         "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}", "added_tokens[0]", ERR_FORMAT},
        {"{\"model\": {\"byte_fallback\": true, \"vocab\": {\"<0x00>\": 0}, \"merges\": []}}",
         "without the token <0x01>", ERR_UNSUPPORTED},
    };
    RefLlama    m = {.hidden = 32, .inter = 32, .vocab = 8, .layers = 1, .heads = 1,
                     .kv_heads = 1, .head_dim = 32, .tied = true};
    const char *folder = ref_llama_write(&m, "broken");
    memset(&run, 0, sizeof run);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        T_OK(put_file(folder, "tokenizer.json", CASES[i].text));
        T_FAILS(written_write(&run, folder, GGUF_Q8_0, written_path("broken-x"), NULL),
                CASES[i].code, CASES[i].sentence);
        T_OK(written_files("broken-x") == 0);
    }
    written_close(&run);
}

TEST(tokenizers_that_gguf_has_no_name_for)
{
    RefLlama m = {.hidden = 32, .inter = 32, .vocab = 2000, .layers = 1, .heads = 1,
                  .kv_heads = 1, .head_dim = 32, .tied = true, .tokenizer = "meta_never"};
    const char *path = written_path("x");
    memset(&run, 0, sizeof run);
    T_FAILS(written_write(&run, ref_llama_write(&m, "never"), GGUF_Q8_0, path, NULL),
            ERR_UNSUPPORTED, "BPE without bytes");
    m.tokenizer = "gpt2";
    m.vocab = 1999;
    T_FAILS(written_write(&run, ref_llama_write(&m, "few"), GGUF_Q8_0, path, NULL),
            ERR_SHAPE, "the embedding has 1999 rows");
    written_close(&run);
}

