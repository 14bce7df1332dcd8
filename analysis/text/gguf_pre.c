/* gguf_pre.c - what the names in tokenizer.ggml.pre mean: the patterns of the
 * tokenizer.json that each stands for. llama.cpp knows more names; models of other
 * architectures than llama use those. */
#include <string.h>

#include "analysis/text/gguf_tokenizer.h"

/* GPT-2's words. */
#define GPT2                                                                              \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* tiktoken's: contractions, a word with one sign before it, digits in runs. */
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TIKTOKEN(digits)                                                                  \
    ENDINGS "|" LETTERS "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES

/* The later ones part words where small letters end. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(endings, digits)                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" endings "|"                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" endings "|"                                  \
    digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

/* Latin, Greek, Cyrillic and other letters that have cases. */
#define DEEPSEEK_LETTERS \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}" \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}" \
    "\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}" \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}" \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}" \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}" \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}" \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}" \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}" \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}" \
    "\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}" \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}" \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}" \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}" \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}" \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}" \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}" \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_SIGNS                                                                    \
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"                 \
    "\\x{3000}-\\x{3002}]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

/* Up to a sign that ends a part of a sentence, in many scripts. */
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

static const GgufPre PRES[] = {
    /* What llama.cpp does where nothing is said; no model was trained with it. */
    {" default ",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
     false, false},
    {" gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 jina-es jina-de "
     "jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat a.x-4.0 mellum modern-bert ",
     {GPT2}, false, false},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ",
     {"\\p{N}", GPT2}, false, false},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {TIKTOKEN("\\p{N}{1,3}")}, true, true},
    {" dbrx smaug-bpe glm4 chatglm-bpe ", {TIKTOKEN("\\p{N}{1,3}")}, false, false},
    {" qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 ",
     {TIKTOKEN("\\p{N}")}, false, false},
    {" seed-coder ",
     {ENDINGS "|" LETTERS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}, false, false},
    {" tekken ", {CASED("", "\\p{N}")}, true, true},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {CASED(ENDINGS "?", "\\p{N}{1,3}")}, false,
     false},
    {" deepseek-llm ",
     {"[\\r\\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, "\\s+$", DEEPSEEK_CJK, "\\p{N}+"},
     false, false},
    {" deepseek-coder ",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}, false, false},
    {" deepseek-v3 hunyuan-dense joyai-llm ",
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
      "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
     false, false},
    {" bloom poro-chat gpt3-finnish ", {BLOOM}, false, false},
    {" viking ", {BLOOM, "\\p{N}"}, false, false},
};

Status gguf_pre_find(const GgufPre **out, const char *where, const char *name)
{
    size_t n = strchr(name, ' ') ? 0 : strlen(name);
    for (size_t i = 0; i < sizeof PRES / sizeof *PRES; i++)
        for (const char *at = PRES[i].names; n && (at = strstr(at, name)); at++)
            if (at[-1] == ' ' && at[n] == ' ') {
                *out = &PRES[i];
                return OK;
            }
    FAIL(ERR_UNSUPPORTED, "%s is \"%.80s\": how that cuts texts into words is not known; known "
         "are llama-bpe, qwen2, gpt-2, smollm, tekken, gpt-4o, deepseek-llm and others", where,
         name);
}
