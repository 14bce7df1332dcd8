/* gguf_splits.c - which of llama.cpp's pre-tokenizers splits text as a tokenizer.json does.
 * The parts of its pre_tokenizer are spelled as one text, and that is looked up. */
#include <string.h>

#include "quant/formats/gguf_parts.h"

bool gguf_has_part(const Json *part, const char *type)
{
    const Json *own = json_member(part, "type");
    if (own && strcmp(own->text, type) == 0)
        return true;
    const Json *inside = json_member(part, "pretokenizers");
    if (!inside)
        inside = json_member(part, "normalizers");
    for (int64_t i = 0; inside && i < inside->n; i++)
        if (gguf_has_part(&inside->at[i], type))
            return true;
    return false;
}

static bool flag(const Json *part, const char *name, bool otherwise)
{
    const Json *v = json_member(part, name);
    return v && v->kind == JSON_BOOL ? v->truth : otherwise;
}

/* A Split that cuts matches out as pieces of their own: "isolated", or, as converted
 * tiktoken files have it, all but the matches removed. */
static void spell_split(TextBuf *b, const Json *part)
{
    const Json *regex = json_member(json_member(part, "pattern"), "Regex");
    const Json *behavior = json_member(part, "behavior");
    const char *wanted = flag(part, "invert", false) ? "Removed" : "Isolated";
    if (regex && behavior && strcmp(behavior->text, wanted) == 0)
        textbuf_printf(b, "split %s\n", regex->text);
    else
        textbuf_add(b, "other\n");
}

static void spell(TextBuf *b, const Json *part)
{
    const Json *type = json_member(part, "type"), *inside = json_member(part, "pretokenizers");
    const char *name = type ? type->text : "";
    if (strcmp(name, "Sequence") == 0)
        for (int64_t i = 0; inside && i < inside->n; i++)
            spell(b, &inside->at[i]);
    else if (strcmp(name, "ByteLevel") == 0)
        textbuf_add(b, flag(part, "use_regex", true) ? "gpt2\n" : "");
    else if (strcmp(name, "Digits") == 0)
        textbuf_add(b, flag(part, "individual_digits", false) ? "digits\n" : "other\n");
    else if (strcmp(name, "Split") == 0)
        spell_split(b, part);
    else
        textbuf_add(b, "other\n");
}

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+\n"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define FIRST "[^\\r\\n\\p{L}\\p{N}]?"
#define REST_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+\n"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define CJK "[一-龥ࠀ-一가-퟿]+\n"

/* begins: what follows may be anything. */
static const struct {
    const char *spelled;
    bool        begins;
    const char *name;
} KNOWN[] = {
    {"gpt2\n", false, "gpt-2"},
    {"digits\ngpt2\n", false, "smollm"},
    {"split " WORDS "\\p{N}{1,3}" REST, false, "llama-bpe"},
    {"split " WORDS "\\p{N}" REST, false, "qwen2"},
    {"split " FIRST UPPER "*" LOWER "+" ENDING "|" FIRST UPPER "+" LOWER "*" ENDING
     "|\\p{N}{1,3}" REST_SLASH, false, "gpt-4o"},
    {"split " FIRST UPPER "*" LOWER "+|" FIRST UPPER "+" LOWER "*|\\p{N}" REST_SLASH, false,
     "tekken"},
    {"split [\r\n]\nsplit \\s?\\p{L}+\nsplit \\s?\\p{P}+\nsplit " CJK "digits\n", false,
     "deepseek-coder"},
    {"split [\r\n]\nsplit \\s?[A-Za-zµÀ-ÖØ-öø-", true, "deepseek-llm"},
    {"split \\p{N}{1,3}\nsplit [一-龥぀-ゟ゠-ヿ]+\n", true, "deepseek-v3"},
};

Status gguf_split_name(const char **out, Arena *a, const Json *tokenizer)
{
    TextBuf b;
    *out = NULL;
    textbuf_init(&b, a);
    spell(&b, json_member(tokenizer, "pre_tokenizer"));
    TRY(textbuf_status(&b));
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        size_t n = strlen(KNOWN[i].spelled);
        if (KNOWN[i].begins ? strncmp(b.at, KNOWN[i].spelled, n) == 0
                            : strcmp(b.at, KNOWN[i].spelled) == 0)
            *out = KNOWN[i].name;
    }
    /* The same splits, but llama-bpe takes whole words of the vocabulary without merging. */
    if (*out && strcmp(*out, "llama-bpe") == 0 &&
        !flag(json_member(tokenizer, "model"), "ignore_merges", false))
        *out = "dbrx";
    return OK;
}
