/* gguf_special.c - special tokens and the chat template. */
#include <string.h>

#include "kernels/filemap.h"
#include "quant/formats/gguf_reader.h"

/* --- special tokens --- */

/* Id of the token that a file names as "bos_token": a text, or an object with one. -1 where
 * it names none that is known. */
static int64_t named_id(const GgufReader *r, const Json *file, const char *name)
{
    const Json *v = json_member(file, name), *content = json_member(v, "content");
    const char *text = content ? content->text : v ? v->text : "";
    return *text ? gguf_id_of(r, text) : -1;
}

static int64_t special_id(const GgufReader *r, const char *name, int64_t otherwise)
{
    int64_t id = named_id(r, r->config, name);
    if (id < 0)
        id = named_id(r, r->map, name);
    return id < 0 ? otherwise : id;
}

static void put_id(GgufReader *r, const char *key, int64_t id)
{
    if (id >= 0 && id < r->n)
        gguf_put_u32(r->put, key, id);
}

/* The TemplateProcessing in a post-processor; NULL where there is none. */
static const Json *find_template(const Json *post)
{
    const Json *type = json_member(post, "type"), *inside = json_member(post, "processors");
    if (type && strcmp(type->text, "TemplateProcessing") == 0)
        return json_member(post, "single");
    for (int64_t i = 0; inside && i < inside->n; i++) {
        const Json *found = find_template(&inside->at[i]);
        if (found)
            return found;
    }
    return NULL;
}

/* Id of the special token that the template puts in front (or last); -1 for none. */
static int64_t template_id(const GgufReader *r, bool last)
{
    const Json *single = find_template(json_member(r->root, "post_processor"));
    if (!single || single->kind != JSON_LIST || single->n == 0)
        return -1;
    const Json *item = &single->at[last ? single->n - 1 : 0];
    const Json *text = json_member(json_member(item, "SpecialToken"), "id");
    return text ? gguf_id_of(r, text->text) : -1;
}

static void put_adds(GgufReader *r, const char *key, const char *name, bool otherwise)
{
    const Json *v = json_member(r->config, name);
    gguf_put_bool(r->put, key, v && v->kind == JSON_BOOL ? v->truth : otherwise);
}

Status gguf_put_special(GgufReader *r)
{
    const char *config = r->info->config_text;
    const Json *root, *unk = json_member(r->model, "unk_token");
    int64_t     first = template_id(r, false), last = template_id(r, true);
    int64_t     bos = special_id(r, "bos_token", first < 0 ? r->info->config.bos : first);
    int64_t     eos = special_id(r, "eos_token", last < 0 ? r->info->config.eos : last);
    TRY(json_parse(&root, r->arena, r->info->path, config, strlen(config)));
    const Json *pad = json_member(root, "pad_token_id");
    put_id(r, TOKENIZER "bos_token_id", bos);
    put_id(r, TOKENIZER "eos_token_id", eos);
    put_id(r, TOKENIZER "unknown_token_id",
           special_id(r, "unk_token", unk && *unk->text ? gguf_id_of(r, unk->text) : -1));
    put_id(r, TOKENIZER "padding_token_id",
           special_id(r, "pad_token", pad && pad->whole ? pad->integer : -1));
    put_adds(r, TOKENIZER "add_bos_token", "add_bos_token", first >= 0 && first == bos);
    put_adds(r, TOKENIZER "add_eos_token", "add_eos_token", last >= 0 && last == eos);
    return OK;
}

/* --- chat template --- */

/* One text, or a list of named ones. */
static void put_templates(GgufReader *r, const Json *v)
{
    if (v && v->kind == JSON_TEXT)
        gguf_put_text(r->put, "tokenizer.chat_template", v->text);
    for (int64_t i = 0; v && v->kind == JSON_LIST && i < v->n; i++) {
        const Json *name = json_member(&v->at[i], "name");
        const Json *text = json_member(&v->at[i], "template");
        if (name && text && strcmp(name->text, "default") == 0)
            gguf_put_text(r->put, "tokenizer.chat_template", text->text);
    }
}

/* chat_template.jinja, where there is one, goes before what the config holds. */
Status gguf_put_chat(GgufReader *r)
{
    const char *path;
    FileMap     map;
    TRY(gguf_path_in(&path, r, "chat_template.jinja"));
    if (!gguf_is_file(path)) {
        put_templates(r, json_member(r->config, "chat_template"));
        return OK;
    }
    TRY(filemap_open(&map, path));
    const char *text = arena_text(r->arena, (const char *)map.data, map.size);
    filemap_close(&map);
    if (!text)
        FAIL(ERR_MEMORY, "out of memory: %s", path);
    gguf_put_text(r->put, "tokenizer.chat_template", text);
    return OK;
}

