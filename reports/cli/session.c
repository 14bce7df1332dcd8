/* session.c - opens models and texts for the verbs, and prints for them. */
#include "reports/cli/session.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/json.h"
#include "kernels/filemap.h"
#include "kernels/size.h"

enum { MOST_NAME = 240 };  // HDF5 names here end at 255 bytes, a number comes after

static void draw_step(void *context, int64_t done, int64_t total, const char *what)
{
    bar_show(context, what, "tokens", done, total);
}

/* --layout goes with every MODEL that has no config.json. */
static Status lay_out_models(Session *se)
{
    TextList *list = &se->s.inputs;
    bool      any = false;
    for (int i = 0; i < list->n; i++) {
        const char *given = list->at[i];
        TRY(model_with_layout(&list->at[i], &se->arena, given, se->s.layout));
        any |= list->at[i] != given;
    }
    if (!any)
        session_say(se, "--layout changes nothing: no MODEL is a folder without config.json or "
                    "layout");
    return OK;
}

Status session_open(Session *se, int argc, char **argv)
{
    *se = (Session){0};
    TRY(settings_parse(&se->s, &se->arena, argc, argv));
    TRY(settings_command(&se->command, &se->arena, argc, argv));
    if (se->s.threads)  // of what needs no Backend: reading, packing, rounding
        omp_set_num_threads((int)se->s.threads);
    bar_init(&se->bar, se->s.quiet);
    se->progress = (Progress){draw_step, &se->bar};
    return se->s.layout && !se->s.help ? lay_out_models(se) : OK;
}

void session_close(Session *se)
{
    bar_clear(&se->bar);
    arena_close(&se->arena);
}

/* --- devices --- */

/* Once, and not to those who hid their GPUs. */
static void say_no_gpu(Session *se, const Backend *be)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!be->no_gpu || se->told_device || (visible && !*visible))
        return;
    session_say(se, "Running on the CPU: %.*s", (int)strcspn(be->no_gpu, ";"), be->no_gpu);
    se->told_device = true;
}

Status session_backend(Backend *be, Session *se)
{
    const Settings *s = &se->s;
    TRY(backend_open(be, s->device ? s->device : "auto", (int)s->threads));
    if (s->device_memory > 0)
        backend_limit(be, (size_t)s->device_memory);
    be->tf32 = s->tf32;
    say_no_gpu(se, be);
    return OK;
}

/* --- models --- */

/* Has the path, a folder, no tokenizer.json? */
static bool lacks_tokenizer(const char *path)
{
    struct stat st;
    char        file[4096];
    int         n = snprintf(file, sizeof file, "%s/tokenizer.json", path);
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && n < (int)sizeof file &&
           access(file, F_OK) != 0;
}

Status session_tokenizer(Tokenizer **out, const Session *se, Arena *a, const char *path)
{
    Status s = tokenizer_open(out, a, path);
    if (s == ERR_IO && lacks_tokenizer(path))
        FAIL(ERR_IO, "%s/tokenizer.json: No such file or directory: reading text needs a "
             "tokenizer.json%s", path,
             se->s.verb == VERB_ANALYZE ? "; --tokens FILE takes token ids, without one" : "");
    return s;
}

Status session_fits(const char *path, const Tokenizer *t, const ModelConfig *c)
{
    if (tokenizer_size(t) > c->vocab)
        FAIL(ERR_RANGE, "%s: its tokenizer has ids up to %lld, the embedding %lld rows", path,
             (long long)tokenizer_size(t) - 1, (long long)c->vocab);
    return OK;
}

static Status open_tokenizer(Loaded *l, const Session *se)
{
    TRY(session_tokenizer(&l->tokenizer, se, &l->arena, l->model.path));
    return session_fits(l->model.path, l->tokenizer, &l->model.config);
}

/* How the weights were quantized before; NULL: no matrix was. */
static const char *quantization_of(const ModelInfo *info)
{
    for (int64_t i = 0; i < info->n_tensors; i++)
        if (info->tensors[i].packed)
            return info->quantization;
    return NULL;
}

Status loaded_may_round(const Loaded *l, const char *spec)
{
    if (l->quantization)
        FAIL(ERR_USAGE, "%s: is quantized already (%s), and --weights %s would round what it "
             "decodes to: quantize --requantize makes a checkpoint of that", l->model.path,
             l->quantization, spec);
    return OK;
}

static Status check_rounding(Loaded *l, const char *path)
{
    ModelInfo info;
    TRY(model_info_open(&info, &l->arena, path));
    l->model.path = info.path;
    l->quantization = quantization_of(&info);
    model_info_close(&info);
    return loaded_may_round(l, l->plan.spec);
}

static Status load(Loaded *l, Session *se, const char *path, const char *spec,
                   bool with_tokenizer)
{
    const Settings *s = &se->s;
    TRY(session_backend(&l->backend, se));
    TRY(plan_init(&l->plan, &l->arena, spec));
    ModelOptions options = {
        .dtype = session_dtype(se),
        .edit = strcmp(l->plan.spec, "fp") == 0 ? NULL : plan_edit,
        .edit_context = &l->plan,
        .stream = s->stream,
    };
    if (options.edit)
        TRY(check_rounding(l, path));
    TRY(model_load(&l->model, &l->arena, &l->backend, path, &options));
    return with_tokenizer ? open_tokenizer(l, se) : OK;
}

Status loaded_open(Loaded *l, Session *se, const char *path, const char *spec,
                   bool with_tokenizer)
{
    *l = (Loaded){0};
    Status s = load(l, se, path, spec, with_tokenizer);
    if (s != OK)
        loaded_close(l);
    return s;
}

static Status read_facts(Loaded *l, const Session *se, const char *path)
{
    ModelInfo info;
    TRY(model_info_open(&info, &l->arena, path));
    l->model = (Model){.path = info.path, .name = info.name, .arch = info.arch,
                       .config_text = info.config_text, .config = info.config};
    l->quantization = quantization_of(&info);
    model_info_close(&info);
    return open_tokenizer(l, se);
}

Status loaded_reader(Loaded *l, Session *se, const char *path)
{
    *l = (Loaded){0};
    Status s = read_facts(l, se, path);
    if (s != OK)
        loaded_close(l);
    return s;
}

void loaded_close(Loaded *l)
{
    tokenizer_close(l->tokenizer);
    model_close(&l->model);
    backend_close(&l->backend);
    arena_close(&l->arena);
    *l = (Loaded){0};
}

Dtype session_dtype(const Session *se)
{
    return se->s.dtype && strcmp(se->s.dtype, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
}

Dtype session_floats(const Session *se)
{
    static const char *const NAMES[] = {"f32", "f16", "bf16"};
    for (int d = DTYPE_F32; se->s.floats && d <= DTYPE_BF16; d++)
        if (strcmp(se->s.floats, NAMES[d]) == 0)
            return (Dtype)d;
    return N_DTYPES;
}

/* --- texts --- */

const char *session_example(Session *se, const char *file)
{
    static const char *const FOLDERS[] = {DQ_SOURCE "/tests/pair", DQ_DATA};
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++) {
        const char *path = arena_printf(&se->arena, "%s/%s", FOLDERS[i], file);
        if (path && access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}

int64_t session_context(const Session *se, const ModelConfig *c)
{
    return se->s.context ? se->s.context : i64_min(512, c->max_positions);
}

void session_say_context(Session *se, const char *name, const ModelConfig *c)
{
    int64_t context = session_context(se, c);
    if (context > c->max_positions)
        session_say(se, "%s: a context of %lld is more than the %lld positions of its config",
                    name, (long long)context, (long long)c->max_positions);
}

static Status add_file(Session *se, TextBuf *b, const char *path)
{
    FileMap map;
    TRY(filemap_open(&map, path));
    size_t valid = json_utf8_prefix(map.data, map.size);
    if (valid < map.size)
        session_say(se, "%s: byte %zu is not UTF-8: what is not is read as U+FFFD", path, valid);
    if (map.size)
        textbuf_bytes(b, (const char *)map.data, map.size);
    filemap_close(&map);
    return OK;
}

Status session_text(TextBuf *text, const char **name, Session *se, Arena *a,
                    const TextList *list)
{
    TextBuf names;
    textbuf_init(text, a);
    textbuf_init(&names, &se->arena);
    for (int i = 0; i < list->n; i++) {
        textbuf_add(text, i ? "\n\n" : "");
        textbuf_add(&names, i ? ", " : "");
        TRY(add_file(se, text, list->at[i]));
        textbuf_add(&names, list->at[i]);
    }
    *name = names.at;
    TRY(textbuf_status(text));
    return textbuf_status(&names);
}

/* --text, or the example text where there is none. */
static Status join_texts(TextBuf *text, const char **name, Session *se, Arena *a)
{
    TextList list = se->s.texts;
    if (list.n == 0) {
        list.at[0] = session_example(se, "heldout.txt");
        if (!list.at[0])
            FAIL(ERR_USAGE, "no text to run over: give --text FILE");
        session_say(se, "No --text: running over the example text, %s", list.at[0]);
        list.n = 1;
    }
    return session_text(text, name, se, a, &list);
}

/* Decimal ids; brackets, commas and white space part them. */
static Status parse_ids(int32_t **out, int64_t *n_out, Arena *a, const char *path,
                        const char *text, size_t size, int64_t vocab)
{
    int32_t *ids;
    int64_t  n = 0;
    ARENA_NEW(ids, a, (int64_t)size / 2 + 1);
    for (size_t i = 0; i < size;) {
        if (strchr(" \t\r\n,[]", text[i]) && text[i]) {
            i++;
            continue;
        }
        int64_t id = 0;
        size_t  from = i;
        for (; i < size && text[i] >= '0' && text[i] <= '9' && id < vocab; i++)
            id = id * 10 + (text[i] - '0');
        if (i == from)
            FAIL(ERR_FORMAT, "%s: byte %zu: expected a token id, got '%.1s'", path, i, text + i);
        if (id >= vocab)
            FAIL(ERR_RANGE, "%s: byte %zu: token id is not below %lld", path, from,
                 (long long)vocab);
        ids[n++] = (int32_t)id;
    }
    *out = ids;
    *n_out = n;
    return OK;
}

static Status windows_of_tokens(Windows *w, Session *se, Loaded *l, const WindowOptions *o)
{
    const char *path = se->s.tokens;
    FileMap     map;
    int32_t    *ids = NULL;
    int64_t     n = 0;
    TRY(filemap_open(&map, path));
    Status s = parse_ids(&ids, &n, &l->arena, path, (const char *)map.data, map.size,
                         l->model.config.vocab);
    filemap_close(&map);
    if (s != OK)
        return s;
    int32_t bos = l->tokenizer ? windows_prefix(l->tokenizer, o) : -1;
    return windows_from_ids(w, &l->arena, path, ids, n, bos, o);
}

Status session_window_options(WindowOptions *o, const Session *se, const ModelConfig *c)
{
    *o = (WindowOptions){
        .context = session_context(se, c),
        .max_tokens = se->s.max_tokens,
        .no_bos = se->s.bos && strcmp(se->s.bos, "none") == 0,
        .stride = se->s.stride,
    };
    if (se->s.convention)
        TRY(window_convention_parse(&o->convention, se->s.convention));
    if (se->s.stride && o->convention != WINDOWS_STRIDED)
        FAIL(ERR_USAGE, "--stride goes with --convention strided");
    return OK;
}

Status session_windows(Windows *w, const char **name, Session *se, Loaded *l)
{
    WindowOptions o;
    TRY(session_window_options(&o, se, &l->model.config));
    session_say_context(se, l->model.name, &l->model.config);
    if (se->s.tokens) {
        if (se->s.texts.n)
            FAIL(ERR_USAGE, "--text and --tokens exclude each other");
        *name = se->s.tokens;
        return windows_of_tokens(w, se, l, &o);
    }
    TextBuf text;
    TRY(join_texts(&text, name, se, &l->arena));
    return windows_from_text(w, &l->arena, l->tokenizer, *name, text.at, text.n, &o);
}

Status session_layer(const Session *se, const char *model, const ModelConfig *c)
{
    if (se->s.maps_layer >= c->n_layers)
        FAIL(ERR_RANGE, "--maps-layer %lld: the layers of %s are 0 to %lld",
             (long long)se->s.maps_layer, model, (long long)c->n_layers - 1);
    return OK;
}

/* Twice the same is one cell. */
static void add_bits(LogitBits *out, int bits)
{
    for (int i = 0; i < out->n; i++)
        if (out->at[i] == bits)
            return;
    out->at[out->n++] = bits;
}

Status session_bits(LogitBits *out, const Session *se, const char *bits)
{
    const Settings *s = &se->s;
    *out = (LogitBits){0};
    for (; s->logit_bits.n == 0 && *bits; bits += strcspn(bits, ","), bits += *bits == ',')
        add_bits(out, atoi(bits));
    for (int i = 0; i < s->logit_bits.n; i++) {
        const char *text = s->logit_bits.at[i];
        if (strcmp(text, "16") != 0 && strcmp(text, "8") != 0 && strcmp(text, "6") != 0 &&
            strcmp(text, "4") != 0)
            FAIL(ERR_USAGE, "--logit-bits: \"%s\" is none of 16, 8, 6, 4", text);
        add_bits(out, atoi(text));
    }
    for (int i = 0; s->logit_scale && i < N_SCALES; i++)
        if (strcmp(s->logit_scale, logit_scale_name((LogitScale)i)) == 0)
            out->scale = (LogitScale)i;
    return OK;
}

/* --- results --- */

/* Files of a study have "-" where the names of models have these. */
static char in_files(char c)
{
    return c == '/' || c == ':' || c == ' ' ? '-' : c;
}

static bool same_in_files(const char *a, const char *b)
{
    while (*a && in_files(*a) == in_files(*b)) {
        a++;
        b++;
    }
    return in_files(*a) == in_files(*b);
}

Status session_name(const char **out, Session *se, const SeriesSet *sets, int n,
                    const char *name)
{
    *out = arena_printf(&se->arena, "%s", name);
    /* The numbered name may be another folder's: n + 1 tries find a free one. */
    for (int i = 0, number = n; *out && i < n; i++)
        if (same_in_files(sets[i].model, *out)) {
            *out = arena_printf(&se->arena, "%.*s (%d)", MOST_NAME, name, ++number);
            i = -1;
        }
    return *out ? OK : STATUS(ERR_MEMORY, "out of memory for the name of %s", name);
}

Status session_root(SeriesSet *root, Session *se, const char *device)
{
    series_set_init(root, &se->arena, "");
    TRY(series_attr_text(root, "program", "diffquant"));
    TRY(series_attr_text(root, "version", DQ_VERSION));
    TRY(series_attr_text(root, "command", se->command));
    TRY(series_attr_text(root, "device", device));
    return series_attr_int(root, "seed", 0);
}

void session_say(Session *se, const char *fmt, ...)
{
    if (se->s.quiet)
        return;
    va_list args;
    bar_clear(&se->bar);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

Status session_table(Session *se, const char *name, const Table *t)
{
    TextBuf b;
    textbuf_init(&b, &se->arena);
    if (se->s.json) {
        textbuf_json(&b, name);
        textbuf_add(&b, ": ");
        table_json(&b, t);
        if (t->n_rows > 0 && t->warning)
            session_say(se, "%.*s", (int)strlen(t->warning) - 1, t->warning);
    } else {
        table_text(&b, t);
    }
    TRY(textbuf_status(&b));
    fputs(b.at, stdout);
    return OK;
}
