/* tokread_pipeline.c - normalizer, pre-tokenizer and decoder of a tokenizer.json. */
#include <string.h>

#include "analysis/text/tokenizer_parts.h"

/* What ByteLevel cuts by, from GPT-2. */
static const char GPT2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                           "|\\s+(?!\\S)|\\s+";
/* Digits asks Rust's library, whose tables are newer than the expressions'. */
static const char DIGITS[] = "[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]";

static Status unknown(const Reader *r, const char *where, const char *type)
{
    FAIL(ERR_UNSUPPORTED, "%s: %s of type \"%.100s\" is not known", r->t->path, where, type);
}

static Status too_many(const Reader *r, const char *where, int n)
{
    FAIL(ERR_UNSUPPORTED, "%s: %s of more than %d steps", r->t->path, where, n);
}

/* --- normalizer --- */

static Status add_normal(Reader *r, NormalStep step)
{
    Normalizer *z = &r->t->normalizer;
    if (z->n == NORMALIZER_MAX)
        return too_many(r, "normalizer", NORMALIZER_MAX);
    z->step[z->n++] = step;
    return OK;
}

static Status normal_step(Reader *r, const Json *v, const char *type)
{
    NormalStep step = {0};
    if (strcmp(type, "NFC") == 0) {
        step.kind = NORMAL_NFC;
    } else if (strcmp(type, "Prepend") == 0) {
        step.kind = NORMAL_PREPEND;
        TRY(tokread_text(r, v, "normalizer Prepend", "prepend", &step.text));
    } else if (strcmp(type, "Replace") == 0) {
        step.kind = NORMAL_REPLACE;
        TRY(tokread_text(r, v, "normalizer Replace", "content", &step.text));
        TRY(tokread_pattern(r, v, "normalizer Replace", &step.pattern));
    } else {
        return unknown(r, "normalizer", type);
    }
    return add_normal(r, step);
}

Status tokread_normalizer(Reader *r)
{
    return tokread_steps(r, json_member(r->root, "normalizer"), "normalizer", "normalizers",
                         normal_step);
}

/* --- pre-tokenizer --- */

static Status add_pre(Reader *r, PretokenStep step)
{
    Pretokenizer *z = &r->t->pretokenizer;
    if (z->n == PRETOKEN_MAX)
        return too_many(r, "pre_tokenizer", PRETOKEN_MAX);
    if (z->bytes)
        FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer: a step after ByteLevel", r->t->path);
    z->step[z->n++] = step;
    return OK;
}

static Status add_split(Reader *r, const char *regex, SplitRule rule)
{
    Pattern *p;
    TRY(pattern_compile(&p, &r->t->patterns, r->arena, r->t->path, regex));
    return add_pre(r, (PretokenStep){.kind = PRETOKEN_SPLIT, .pattern = p, .rule = rule});
}

static Status pre_bytes(Reader *r, const Json *v)
{
    bool prefix, regex;
    TRY(tokread_flag(r, v, "pre_tokenizer ByteLevel", "add_prefix_space", false, &prefix));
    TRY(tokread_flag(r, v, "pre_tokenizer ByteLevel", "use_regex", true, &regex));
    if (prefix)
        TRY(add_pre(r, (PretokenStep){.kind = PRETOKEN_PREPEND, .text = " "}));
    if (regex)
        TRY(add_split(r, GPT2, SPLIT_ISOLATED));
    if (r->t->pretokenizer.bytes)
        FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer: ByteLevel twice", r->t->path);
    r->t->pretokenizer.bytes = true;
    return OK;
}

static Status pre_split(Reader *r, const Json *v)
{
    static const char *const RULES[N_SPLITS] = {"Removed", "Isolated", "MergedWithPrevious",
                                                "MergedWithNext", "Contiguous"};
    PretokenStep step = {.kind = PRETOKEN_SPLIT};
    const char *rule;
    TRY(tokread_pattern(r, v, "pre_tokenizer Split", &step.pattern));
    TRY(tokread_text(r, v, "pre_tokenizer Split", "behavior", &rule));
    TRY(tokread_flag(r, v, "pre_tokenizer Split", "invert", false, &step.invert));
    int i = 0;
    while (i < N_SPLITS && strcmp(rule, RULES[i]) != 0)
        i++;
    if (i == N_SPLITS)
        FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer Split: behavior \"%.100s\" is not known",
             r->t->path, rule);
    step.rule = (SplitRule)i;
    return add_pre(r, step);
}

/* The replacement, one character, as a pattern too. */
static Status read_replacement(Reader *r, const Json *v, const char *where, const char **text,
                               Pattern **pattern)
{
    int step;
    TRY(tokread_text(r, v, where, "replacement", text));
    if (!**text || (utf8_get(*text, &step), (*text)[step]))
        FAIL(ERR_FORMAT, "%s: %s: replacement \"%.100s\" should be one character", r->t->path,
             where, *text);
    return pattern_literal(pattern, r->arena, *text, (int64_t)strlen(*text));
}

static Status read_prepend(const Reader *r, const Json *v, const char *where, PrependRule *rule)
{
    static const char *const RULES[N_PREPENDS] = {"always", "first", "never"};
    bool prefix;
    int i = 0;
    if (json_member(v, "prepend_scheme")) {
        const char *text;
        TRY(tokread_text(r, v, where, "prepend_scheme", &text));
        while (i < N_PREPENDS && strcmp(text, RULES[i]) != 0)
            i++;
        if (i == N_PREPENDS)
            FAIL(ERR_UNSUPPORTED, "%s: %s: prepend_scheme \"%.100s\" is not known", r->t->path,
                 where, text);
    }
    *rule = (PrependRule)i;
    TRY(tokread_flag(r, v, where, "add_prefix_space", true, &prefix));
    if (!prefix && *rule != PREPEND_NEVER)
        FAIL(ERR_FORMAT, "%s: %s: add_prefix_space is false, prepend_scheme \"%s\"", r->t->path,
             where, RULES[i]);
    return OK;
}

static Status pre_metaspace(Reader *r, const Json *v)
{
    static const char where[] = "pre_tokenizer Metaspace";
    const char *text;
    Pattern *pattern, *space;
    PrependRule rule;
    bool cut;
    TRY(read_replacement(r, v, where, &text, &pattern));
    TRY(read_prepend(r, v, where, &rule));
    TRY(tokread_flag(r, v, where, "split", true, &cut));
    TRY(pattern_literal(&space, r->arena, " ", 1));
    TRY(add_pre(r, (PretokenStep){.kind = PRETOKEN_REPLACE, .pattern = space, .text = text}));
    if (rule == PREPEND_FIRST)
        r->t->pretokenizer.origin = true;
    if (rule != PREPEND_NEVER)
        TRY(add_pre(r, (PretokenStep){.kind = PRETOKEN_PREPEND,
                                      .text = text,
                                      .first = rule == PREPEND_FIRST}));
    if (cut)
        TRY(add_pre(r, (PretokenStep){.kind = PRETOKEN_SPLIT,
                                      .pattern = pattern,
                                      .rule = SPLIT_WITH_NEXT}));
    return OK;
}

static Status pre_step(Reader *r, const Json *v, const char *type)
{
    bool each;
    if (strcmp(type, "ByteLevel") == 0)
        return pre_bytes(r, v);
    if (strcmp(type, "Split") == 0)
        return pre_split(r, v);
    if (strcmp(type, "Metaspace") == 0)
        return pre_metaspace(r, v);
    if (strcmp(type, "Digits") == 0) {
        TRY(tokread_flag(r, v, "pre_tokenizer Digits", "individual_digits", false, &each));
        return add_split(r, DIGITS, each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS);
    }
    return unknown(r, "pre_tokenizer", type);
}

Status tokread_pretokenizer(Reader *r)
{
    return tokread_steps(r, json_member(r->root, "pre_tokenizer"), "pre_tokenizer",
                         "pretokenizers", pre_step);
}

/* --- decoder --- */

static Status decode_metaspace(Reader *r, const Json *v, DecodeStep *step)
{
    Pattern *pattern;
    PrependRule rule;
    step->kind = DECODE_METASPACE;
    TRY(read_replacement(r, v, "decoder Metaspace", &step->text, &pattern));
    TRY(read_prepend(r, v, "decoder Metaspace", &rule));
    step->pattern = pattern;
    step->start = rule != PREPEND_NEVER;
    return OK;
}

static Status decode_step(Reader *r, const Json *v, const char *type)
{
    Decoder *d = &r->t->decoder;
    DecodeStep step = {0};
    if (strcmp(type, "ByteLevel") == 0) {
        step.kind = DECODE_BYTES;
    } else if (strcmp(type, "ByteFallback") == 0) {
        step.kind = DECODE_FALLBACK;
    } else if (strcmp(type, "Fuse") == 0) {
        step.kind = DECODE_FUSE;
    } else if (strcmp(type, "Replace") == 0) {
        step.kind = DECODE_REPLACE;
        TRY(tokread_text(r, v, "decoder Replace", "content", &step.text));
        TRY(tokread_pattern(r, v, "decoder Replace", &step.pattern));
    } else if (strcmp(type, "Strip") == 0) {
        step.kind = DECODE_STRIP;
        TRY(tokread_text(r, v, "decoder Strip", "content", &step.text));
        TRY(tokread_count(r, v, "decoder Strip", "start", &step.start));
        TRY(tokread_count(r, v, "decoder Strip", "stop", &step.stop));
        if (!*step.text)
            FAIL(ERR_FORMAT, "%s: decoder Strip: empty content", r->t->path);
    } else if (strcmp(type, "Metaspace") == 0) {
        TRY(decode_metaspace(r, v, &step));
    } else {
        return unknown(r, "decoder", type);
    }
    if (d->n == DECODER_MAX)
        return too_many(r, "decoder", DECODER_MAX);
    d->step[d->n++] = step;
    return OK;
}

Status tokread_decoder(Reader *r)
{
    return tokread_steps(r, json_member(r->root, "decoder"), "decoder", "decoders",
                         decode_step);
}
