/* gguf_tokens.c - tokenizer.json as the keys that llama.cpp reads (formats.md 4.2):
 * byte-level BPE ("gpt2") and SentencePiece-like BPE with bytes to fall back on ("llama"). */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "quant/formats/gguf_reader.h"

/* --- files --- */

bool gguf_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

Status gguf_path_in(const char **out, GgufReader *r, const char *file)
{
    *out = arena_printf(r->arena, "%s/%s", r->info->path, file);
    if (!*out)
        FAIL(ERR_MEMORY, "out of memory: path of %s", file);
    return OK;
}

/* NULL where the folder has no such file. */
static Status read_optional(const Json **out, GgufReader *r, const char *file)
{
    const char *path;
    *out = NULL;
    TRY(gguf_path_in(&path, r, file));
    return gguf_is_file(path) ? json_read(out, r->arena, path) : OK;
}

static Status need(const Json **out, const GgufReader *r, const Json *v, const char *name,
                   JsonKind kind)
{
    *out = json_member(v, name);
    if (!*out || (*out)->kind != kind)
        FAIL(ERR_FORMAT, "%s: %s is %s, expected %s", r->path, name,
             *out ? json_kind_name((*out)->kind) : "missing",
             kind == JSON_LIST ? "a list" : "an object");
    return OK;
}

static Status warn(GgufReader *r, const char *text)
{
    *r->warning = arena_printf(r->arena, "%s%s%s", *r->warning ? *r->warning : "",
                               *r->warning ? "; " : "", text);
    if (!*r->warning)
        FAIL(ERR_MEMORY, "out of memory: a warning");
    return OK;
}

/* --- the two kinds --- */

static Status check_kind(GgufReader *r)
{
    const Json *type = json_member(r->model, "type");
    const Json *pre = json_member(r->root, "pre_tokenizer");
    const Json *fall = json_member(r->model, "byte_fallback");
    const char *name = type ? type->text : "BPE";  // old files do not say
    r->bytes_fall_back = fall && fall->truth;
    if (strcmp(name, "BPE") != 0)
        FAIL(ERR_UNSUPPORTED, "%s: a tokenizer of type \"%.40s\": GGUF can hold BPE only; "
             "write compressed-tensors or GPTQ instead", r->path, name);
    if (!r->bytes_fall_back && !gguf_has_part(pre, "ByteLevel"))
        FAIL(ERR_UNSUPPORTED, "%s: a BPE without bytes (neither ByteLevel nor byte_fallback): "
             "GGUF has no name for it; write compressed-tensors or GPTQ instead", r->path);
    return OK;
}

static Status check_bytes(const GgufReader *r)
{
    for (unsigned i = 0; i < 256; i++) {
        char text[16];
        snprintf(text, sizeof text, "<0x%02X>", i);
        if (!json_member(r->vocab, text))
            FAIL(ERR_UNSUPPORTED, "%s: byte_fallback without the token %s, which llama.cpp "
                 "needs", r->path, text);
    }
    return OK;
}

static bool adds_space(const Json *root)
{
    const Json *pre = json_member(root, "pre_tokenizer");
    const Json *scheme = json_member(pre, "prepend_scheme");
    if (gguf_has_part(json_member(root, "normalizer"), "Prepend"))
        return true;
    return gguf_has_part(pre, "Metaspace") && !(scheme && strcmp(scheme->text, "never") == 0);
}

/* A ByteLevel that does, itself or inside a Sequence. */
static bool prefixes_space(const Json *pre)
{
    const Json *own = json_member(pre, "add_prefix_space");
    const Json *inside = json_member(pre, "pretokenizers");
    if (own && own->truth)
        return true;
    for (int64_t i = 0; inside && i < inside->n; i++)
        if (prefixes_space(&inside->at[i]))
            return true;
    return false;
}

static Status put_llama(GgufReader *r)
{
    const Json *unk = json_member(r->model, "unk_token");
    int64_t     id = unk && *unk->text ? gguf_id_of(r, unk->text) : -1;
    TRY(check_bytes(r));
    if (id >= 0)
        r->kinds[id] = TOKEN_UNKNOWN;
    gguf_put_text(r->put, TOKENIZER "model", "llama");
    gguf_put_text(r->put, TOKENIZER "pre", "default");
    gguf_put_pieces(r);
    TRY(gguf_put_scores(r));
    gguf_put_bool(r->put, TOKENIZER "add_space_prefix", adds_space(r->root));
    return OK;
}

static Status put_gpt2(GgufReader *r)
{
    const char *pre;
    TRY(gguf_split_name(&pre, r->arena, r->root));
    if (!pre)
        TRY(warn(r, "tokenizer: its pre_tokenizer is none that llama.cpp is known to have; "
                    "\"default\" was written, which may split some texts differently"));
    if (prefixes_space(json_member(r->root, "pre_tokenizer")))
        TRY(warn(r, "tokenizer: it puts a space in front of a text, llama.cpp will not"));
    gguf_put_text(r->put, TOKENIZER "model", "gpt2");
    gguf_put_text(r->put, TOKENIZER "pre", pre ? pre : "default");
    gguf_put_pieces(r);
    return gguf_put_merges(r);
}

static Status read_parts(GgufReader *r)
{
    const char *path = r->path;
    TRY(json_read(&r->root, r->arena, path));
    TRY(need(&r->model, r, r->root, "model", JSON_OBJECT));
    TRY(check_kind(r));
    TRY(need(&r->vocab, r, r->model, "vocab", JSON_OBJECT));
    TRY(need(&r->merges, r, r->model, "merges", JSON_LIST));
    r->added = json_member(r->root, "added_tokens");
    TRY(read_optional(&r->config, r, "tokenizer_config.json"));
    TRY(read_optional(&r->map, r, "special_tokens_map.json"));
    return gguf_read_pieces(r);
}

Status gguf_tokens(GgufPut *p, Arena *a, const ModelInfo *info, const char **warning)
{
    GgufReader r = {.put = p, .arena = a, .info = info, .warning = warning};
    TRY(gguf_path_in(&r.path, &r, "tokenizer.json"));
    if (!gguf_is_file(r.path)) {
        gguf_put_text(p, TOKENIZER "model", "none");
        return warn(&r, "no tokenizer.json: the file has no tokenizer, programs must be "
                        "given token numbers");
    }
    TRY(read_parts(&r));
    TRY(r.bytes_fall_back ? put_llama(&r) : put_gpt2(&r));
    TRY(gguf_put_special(&r));
    return gguf_put_chat(&r);
}
