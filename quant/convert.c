/* convert.c - the run from one end to the other, and the new config.json. */
#include "quant/convert.h"

#include <string.h>
#include <unistd.h>

#include "analysis/json.h"
#include "kernels/outfile.h"
#include "quant/formats/carry.h"
#include "quant/formats/config_write.h"
#include "quant/formats/diffllama.h"
#include "quant/formats/journal.h"
#include "quant/formats/outfolder.h"

#define SHARD_BYTES ((size_t)5000000000)
#define TARGET "DiffLlamaForCausalLM"
#define HEAD_NORM_EPS 1e-5   // of microsoft/unilm's code, fixed

typedef struct {
    const ConvertOptions *o;
    Arena                *a, scratch;   // scratch is empty between tensors
    Layers                layers;
    OutFolder             folder;
    Shards                shards;
    Moved                *moved;   // [n]
    int64_t               n;
    Dtype                 dtype;   // of all; N_DTYPES: each its own
    TextBuf               notes;
} Job;

/* --- may it be converted? --- */

const char *convert_refusal(const ModelInfo *info)
{
    const char *arch = info->arch, *dot = strrchr(info->tensors[0].file, '.');
    static const struct {
        const char *arch, *why;
    } OTHERS[] = {
        {"UnilmDiffForCausalLM", NULL},
        {"UnilmDiff2ForCausalLM", "transformers has no class whose lambda is computed from "
                                  "each token"},
        {"MotifForCausalLM", "transformers has no class for it: its layout is the one that "
                             "its own code reads"},
        {"Phi4FlashForCausalLM", "transformers has no class for it: its layout is the one "
                                 "that its own code reads"},
        {"StableLMEpochForCausalLM", "only microsoft/unilm's layout is converted"},
        {"StableLMAlphaForCausalLM", "only microsoft/unilm's layout is converted"},
    };
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (strcmp(arch, OTHERS[i].arch) == 0)
            return OTHERS[i].why;
    if (dot && strcasecmp(dot, ".gguf") == 0)
        return "GGUF files are not";
    return "it is already in the layout of transformers";
}

static Status check_source(const ModelInfo *info)
{
    const char *why = convert_refusal(info);
    char        format[MODEL_FORMAT];
    if (why)
        FAIL(ERR_UNSUPPORTED, "%s: %s is not converted: %s", info->path, info->arch, why);
    for (int64_t i = 0; i < info->n_tensors; i++)
        if (info->tensors[i].packed)
            FAIL(ERR_UNSUPPORTED, "%s: tensor %s is quantized (%s): convert the model it was "
                 "made from", info->path, info->tensors[i].name,
                 model_tensor_format(&info->tensors[i], format));
    if (info->config.norm_eps != HEAD_NORM_EPS)
        FAIL(ERR_UNSUPPORTED, "%s: rms_norm_eps is %g, expected %g: that of the heads' norm is "
             "fixed, and DiffLlama has one for both", info->path, info->config.norm_eps,
             HEAD_NORM_EPS);
    return OK;
}

/* --- what will be written --- */

/* Products of two numbers of 16 bits are whole in F32 and nowhere else. */
static Status choose_dtype(Job *j)
{
    bool             unscaled;
    const ModelInfo *info = &j->layers.info;
    TRY(diffllama_unscaled(&unscaled, &j->scratch, &j->layers));
    j->dtype = j->o->dtype;
    if (unscaled)
        return OK;
    if (j->dtype == N_DTYPES) {
        j->dtype = DTYPE_F32;
        if (info->stored != DTYPE_F32)
            textbuf_printf(&j->notes, "DiffLlama has no subln.weight, so o_proj is multiplied "
                           "by it; %s does not hold the products, so all is stored as F32. "
                           "--floats %s rounds them.\n", dtype_name(info->stored),
                           info->stored == DTYPE_BF16 ? "bf16" : "f16");
    } else if (j->dtype != DTYPE_F32) {
        textbuf_printf(&j->notes, "o_proj, multiplied by subln.weight, was rounded to %s: the "
                       "new model differs a little from the old one. --floats f32 holds it.\n",
                       dtype_name(j->dtype));
    }
    return OK;
}

static Status lay_out(Job *j)
{
    OutTensor *tensors;
    ARENA_NEW(j->moved, j->a, j->layers.info.n_tensors);
    TRY(diffllama_list(j->moved, &j->n, j->a, &j->layers));
    ARENA_NEW(tensors, j->a, j->n);
    for (int64_t i = 0; i < j->n; i++) {
        tensors[i] = (OutTensor){.name = j->moved[i].name, .view = j->moved[i].from->view};
        tensors[i].view.data = NULL;
        if (j->dtype != N_DTYPES)
            tensors[i].view.dtype = j->dtype;
    }
    return shards_layout(&j->shards, j->a, j->folder.partial, tensors, j->n,
                         j->o->shard_bytes ? j->o->shard_bytes : SHARD_BYTES);
}

static Status open_folder(Job *j)
{
    const char *journal = arena_printf(j->a, "%s/" JOURNAL_NAME, j->folder.partial);
    if (!journal)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    if (access(journal, F_OK) == 0 && !j->o->overwrite)
        FAIL(ERR_USAGE, "%s: holds layers of a quantize run that was stopped: finish that, or "
             "replace it with --force", j->folder.partial);
    TRY(outfolder_open(&j->folder, &j->scratch));
    TRY(outfolder_clear(&j->folder, ""));
    return shards_create(&j->shards);
}

/* --- config.json --- */

enum { MOST_EDITS = 20 };

typedef struct {
    ConfigEdit  at[MOST_EDITS];
    int         n;
    Arena      *a;
    const Json *root;
    bool        failed;
} Edits;

static void set(Edits *e, const char *key, const char *value)
{
    CHECK(e->n < MOST_EDITS);
    e->at[e->n++] = (ConfigEdit){key, value, true};
}

static void set_count(Edits *e, const char *key, int64_t value)
{
    const char *text = arena_printf(e->a, "%lld", (long long)value);
    e->failed |= !text;
    set(e, key, text);
}

static void set_real(Edits *e, const char *key, double value)
{
    TextBuf b;
    textbuf_init(&b, e->a);
    textbuf_json_real(&b, value);
    if (b.n && !strpbrk(b.at, ".e"))
        textbuf_add(&b, ".0");
    e->failed |= textbuf_status(&b) != OK;
    set(e, key, b.at);
}

/* Where the source says nothing: the classes' own defaults differ. */
static void set_missing(Edits *e, const char *key, const char *value)
{
    const Json *v = json_member(e->root, key);
    if (!v || v->kind == JSON_NULL)
        set(e, key, value);
}

/* All that DiffLlama's class would otherwise take from its own defaults. Long RoPE and the
 * like stand in keys of the same name and meaning, and stay. */
static Status list_edits(Edits *e, const Job *j)
{
    const ModelConfig *c = &j->layers.info.config;
    const char        *dtype = config_dtype(j->dtype == N_DTYPES ? j->layers.info.stored
                                                                 : j->dtype);
    set(e, "architectures", "[\"" TARGET "\"]");
    set(e, "model_type", "\"diffllama\"");
    set_count(e, "num_key_value_heads", model_key_heads(c));
    set_count(e, "head_dim", c->head_dim);
    set_count(e, "max_position_embeddings", c->max_positions);
    set_real(e, "rms_norm_eps", c->norm_eps);
    set_real(e, "rope_theta", c->rope.theta);
    set(e, "tie_word_embeddings", c->tied ? "true" : "false");
    set(e, "attention_bias", "false");
    set_missing(e, "hidden_act", "\"silu\"");
    set_missing(e, "bos_token_id", "null");
    set_missing(e, "eos_token_id", "null");
    set(e, "dtype", dtype);
    set(e, "torch_dtype", dtype);
    set(e, "auto_map", NULL);
    set(e, "quantization_config", NULL);
    if (e->failed)
        FAIL(ERR_MEMORY, "out of memory: values of config.json");
    return OK;
}

static Status write_config(Job *j)
{
    const ModelInfo *info = &j->layers.info;
    const char      *path = arena_printf(j->a, "%s/config.json", j->folder.partial);
    Edits            e = {.a = j->a};
    TextBuf          text;
    if (!path)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    textbuf_init(&text, j->a);
    TRY(json_parse(&e.root, j->a, info->path, info->config_text, strlen(info->config_text)));
    TRY(list_edits(&e, j));
    TRY(config_write(&text, j->a, info->path, info->config_text, e.at, e.n));
    return outfile_save(&j->scratch, path, text.at, text.n);
}

/* --- the run --- */

static Status write_tensors(Job *j)
{
    for (int64_t i = 0; i < j->n; i++) {
        ArenaMark mark = arena_mark(&j->scratch);
        progress_step(j->o->progress, i, j->n, "convert");
        Status s = diffllama_write(&j->shards, &j->scratch, &j->layers, &j->moved[i]);
        arena_rewind(&j->scratch, mark);
        TRY(s);
    }
    progress_step(j->o->progress, j->n, j->n, "convert");
    CHECK(!shards_missing(&j->shards));
    return OK;
}

static Status convert(Job *j)
{
    const ConvertOptions *o = j->o;
    TRY(layers_open(&j->layers, j->a, o->model));
    const ModelInfo *info = &j->layers.info;
    TRY(check_source(info));
    TRY(outfolder_check(&j->folder, j->a, o->out, info->path, o->overwrite));
    if (info->layout)
        textbuf_printf(&j->notes, "config.json is made from layout %s.\n", info->layout);
    TRY(choose_dtype(j));
    TRY(lay_out(j));
    TRY(open_folder(j));
    TRY(write_tensors(j));
    TRY(shards_sync(&j->shards));
    TRY(shards_write_index(&j->shards, &j->scratch, j->folder.partial));
    TRY(carry_files(&j->scratch, info->path, j->folder.partial));
    TRY(write_config(j));
    return outfolder_commit(&j->folder);
}

static Status fill_result(ConvertResult *r, const Job *j)
{
    const ModelInfo *info = &j->layers.info;
    *r = (ConvertResult){
        .from = info->arch, .to = TARGET, .dtype = j->dtype == N_DTYPES ? info->stored : j->dtype,
        .n_tensors = j->n, .n_files = j->shards.n_files, .bytes = shards_bytes(&j->shards),
        .notes = j->notes.at,
    };
    return textbuf_status(&j->notes);
}

Status convert_run(ConvertResult *r, Arena *a, const ConvertOptions *o)
{
    Job j = {.o = o, .a = a};
    CHECK(o->dtype <= DTYPE_BF16 || o->dtype == N_DTYPES);
    textbuf_init(&j.notes, a);
    Status s = convert(&j);
    if (s == OK)
        s = fill_result(r, &j);
    shards_close(&j.shards);
    outfolder_close(&j.folder, false);
    layers_close(&j.layers);
    arena_close(&j.scratch);
    return s;
}
