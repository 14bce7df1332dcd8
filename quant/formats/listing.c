/* listing.c - walks the source's tensors with the plan in hand. */
#include "quant/formats/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/halves.h"
#include "kernels/packbits.h"
#include "kernels/size.h"
#include "quant/formats/narrow.h"

const Packing *packing_of(ExportFormat f)
{
    static const Packing *const ALL[N_FORMATS] = {
        [FORMAT_COMPRESSED] = &PACKING_COMPRESSED,
        [FORMAT_INT8] = &PACKING_INT8,
        [FORMAT_GPTQ] = &PACKING_GPTQ,
    };
    CHECK((unsigned)f < N_FORMATS);
    return ALL[f];
}

/* --- what a tensor becomes --- */

/* Bits 0 where it stays as it is. Linear layers of blocks follow the plan; other
 * tensors only where the plan names them. */
static Scheme scheme_of(const Plan *p, const char *name, bool quantizable)
{
    const PlanEntry *e = plan_find(p, name);
    return e ? e->scheme : quantizable ? p->scheme : (Scheme){0};
}

/* Loaders put packed layers in place of nn.Linear alone. */
static Status check_stored(const ModelTensor *t, const ExportOptions *o)
{
    if (t && t->transposed)
        FAIL(ERR_UNSUPPORTED, "%s: is stored as [inputs, outputs] (Conv1D), and loaders of %s "
             "replace nn.Linear only: leave it as it is (fp); eval --weights measures what "
             "few bits would cost", t->name, packing_of(o->format)->name);
    return OK;
}

static Status check_matrix(const Coded *m, const ExportOptions *o)
{
    const Scheme *s = &m->scheme;
    const Packing *p = packing_of(o->format);
    CHECK(s->bits == 4 || s->bits == 6 || s->bits == 8);
    if (s->scale != o->dtype)
        FAIL(ERR_USAGE, "%s: its scales are %s, expected %s as the other floats of the "
             "checkpoint: name that dtype in the scheme, or store all as %s", m->name,
             dtype_name(s->scale), dtype_name(o->dtype), dtype_name(s->scale));
    if (s->group && m->k % s->group)
        FAIL(ERR_SHAPE, "%s: rows of %lld weights cannot be cut into groups of %d: use "
             "another group or one scale a channel", m->name, (long long)m->k, s->group);
    return p->check(m, o);
}

/* The module of a weight as the file calls it, and as loaders do, where that is another: with
 * the prefix that some files leave out; transformers 5 calls every head lm_head. */
static Status module_of(const char **module, const char **also, const Listing *l, Arena *a,
                        const char *name, const ExportOptions *o)
{
    const char *prefix = layers_prefix(o->source);
    bool        is_head = strcmp(name, l->head) == 0;
    *also = NULL;
    *module = arena_text(a, name, strlen(name) - strlen(".weight"));
    if (*module && is_head && strcmp(*module, "lm_head") != 0)
        *also = "lm_head";
    else if (!*module || is_head || !prefix || strncmp(name, prefix, strlen(prefix)) == 0)
        prefix = NULL;
    if (*module && !*also && prefix)
        *also = arena_printf(a, "%s%s", prefix, *module);
    if (!*module || (prefix && !*also))
        FAIL(ERR_MEMORY, "out of memory: name of %s", name);
    return OK;
}

static Status add_coded(Listing *l, Arena *a, const char *name, const Tensor *shape,
                        const ExportOptions *o)
{
    Part     parts[PACKING_PARTS];
    Coded   *m = &l->coded[l->n_coded];
    size_t   n = strlen(name), suffix = strlen(".weight");
    CHECK(n > suffix && strcmp(name + n - suffix, ".weight") == 0 && shape->n_dims == 2);
    m->n = shape->shape[0];
    m->k = shape->shape[1];
    m->name = name;
    TRY(module_of(&m->module, &m->also, l, a, name, o));
    TRY(check_matrix(m, o));
    int n_parts = packing_of(o->format)->parts(parts, m, o);
    for (int i = 0; i < n_parts; i++) {
        const char *part = arena_printf(a, "%s%s", m->module, parts[i].suffix);
        if (!part)
            FAIL(ERR_MEMORY, "out of memory: parts of %s", name);
        l->tensors[l->n++] = (OutTensor){.name = part, .view = parts[i].view};
    }
    l->n_coded++;
    return OK;
}

/* Its module is a linear layer that stays floats. */
static Status ignore(Listing *l, Arena *a, const char *name, const ExportOptions *o)
{
    const char *module, *also;
    TRY(module_of(&module, &also, l, a, name, o));
    l->ignored[l->n_ignored++] = module;
    if (also)
        l->ignored[l->n_ignored++] = also;
    return OK;
}

static void add_plain(Listing *l, const char *name, const Tensor *shape, Dtype dtype)
{
    Tensor view = *shape;
    view.dtype = dtype;
    view.data = NULL;
    l->tensors[l->n++] = (OutTensor){.name = name, .view = view};
}

/* t: in the source; NULL for a head that is not. */
static Status add_tensor(Listing *l, Arena *a, const char *name, const ModelTensor *t,
                         const Tensor *shape, const ExportOptions *o)
{
    bool   quantizable = t && t->quantizable, linear = !t || t->linear;
    Scheme s = scheme_of(o->plan, name, quantizable);
    l->n_linear += quantizable;
    if (!s.bits) {
        add_plain(l, name, shape, t ? export_float_dtype(o, t) : o->dtype);
        return linear ? ignore(l, a, name, o) : OK;
    }
    if (!linear)
        FAIL(ERR_UNSUPPORTED, "%s: is no weight of a linear layer, which alone %s holds as "
             "codes: leave it as it is (fp)", name, packing_of(o->format)->name);
    TRY(check_stored(t, o));
    l->coded[l->n_coded].scheme = s;
    return add_coded(l, a, name, shape, o);
}

/* --- fused layers --- */

/* vLLM joins q, k and v, and gate and up, into one matrix each: they must have one
 * scheme, or be left as they are together. */
static bool are_alike(const ExportOptions *o, const char *name, const char *part,
                      const char *other)
{
    char        text[256], one[SCHEME_TEXT], two[SCHEME_TEXT];
    const char *at = strstr(name, part);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - name), name, other, at + strlen(part));
    Scheme a = scheme_of(o->plan, name, true), b = scheme_of(o->plan, text, true);
    a.method = b.method = METHOD_RTN;  // how codes were chosen is not stored
    return strcmp(scheme_text(&a, one), scheme_text(&b, two)) == 0;
}

static Status note_fused(Listing *l, Arena *a, const ExportOptions *o)
{
    static const char *const FUSED[][2] = {
        {".q_proj.", ".k_proj."}, {".q_proj.", ".v_proj."}, {".gate_proj.", ".up_proj."}};
    const ModelInfo *info = &o->source->info;
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        for (size_t j = 0; j < sizeof FUSED / sizeof *FUSED && t->quantizable; j++) {
            if (!strstr(t->name, FUSED[j][0]) ||
                are_alike(o, t->name, FUSED[j][0], FUSED[j][1]))
                continue;
            const char *note = arena_printf(
                a, "%s has another scheme than its %.*s: transformers loads that, vLLM does "
                "not (it joins q, k, v and gate, up)", t->name, (int)strlen(FUSED[j][1]) - 2,
                FUSED[j][1] + 1);
            if (!note)
                FAIL(ERR_MEMORY, "out of memory: a note");
            return listing_note(l, a, note);  // the first says it
        }
    }
    return OK;
}

/* --- all --- */

static int by_name(const void *x, const void *y)
{
    return strcmp(((const Coded *)x)->name, ((const Coded *)y)->name);
}

/* A tied head has no tensor, but loaders ask about its module. */
static Status add_tied_head(Listing *l, Arena *a, const ExportOptions *o)
{
    const ModelConfig *c = &o->source->info.config;
    Tensor             shape = tensor_2d(o->dtype, NULL, c->vocab, c->hidden);
    CHECK(!layers_head(o->source));
    if (o->untie)
        return add_tensor(l, a, l->head, NULL, &shape, o);
    CHECK(!scheme_of(o->plan, l->head, false).bits);
    return ignore(l, a, l->head, o);
}

static Status add_all(Listing *l, Arena *a, const ExportOptions *o)
{
    const ModelInfo *info = &o->source->info;
    for (int64_t i = 0; i < info->n_tensors; i++) {
        const ModelTensor *t = &info->tensors[i];
        TRY(add_tensor(l, a, t->name, t, &t->view, o));
    }
    return info->config.tied ? add_tied_head(l, a, o) : OK;
}

Status listing_make(Listing *l, Arena *a, const ExportOptions *o)
{
    int64_t        n = o->source->info.n_tensors + 1;
    const Packing *p = packing_of(o->format);
    *l = (Listing){.head = layers_head_name(o->source)};
    ARENA_NEW(l->tensors, a, n * PACKING_PARTS);
    ARENA_NEW(l->coded, a, n);
    ARENA_NEW(l->ignored, a, 2 * n);
    TRY(add_all(l, a, o));
    if (!l->n_coded && o->format != FORMAT_COMPRESSED)
        FAIL(ERR_USAGE, "%s: the plan leaves every matrix as it is, expected a scheme such as "
             "w4:g64", o->path);
    qsort(l->coded, (size_t)l->n_coded, sizeof *l->coded, by_name);
    if (l->n_coded)
        TRY(p->check_all(l, a, o));
    return note_fused(l, a, o);
}

const Coded *listing_find(const Listing *l, const char *name)
{
    Coded key = {.name = name};
    return bsearch(&key, l->coded, (size_t)l->n_coded, sizeof key, by_name);
}

/* --- for the formats --- */

Status listing_note(Listing *l, Arena *a, const char *line)
{
    l->note = l->note ? arena_printf(a, "%s\n%s", l->note, line) : line;
    if (!l->note)
        FAIL(ERR_MEMORY, "out of memory: a note");
    return OK;
}

void listing_names(TextBuf *b, const char *const *names, int64_t n, int indent)
{
    textbuf_add(b, "[");
    for (int64_t i = 0; i < n; i++) {
        textbuf_printf(b, "%s\n%*s", i ? "," : "", indent + 2, "");
        textbuf_json(b, names[i]);
    }
    if (n)
        textbuf_printf(b, "\n%*s", indent, "");
    textbuf_add(b, "]");
}

int64_t listing_groups(const Coded *m)
{
    return rtn_groups(&m->scheme, m->k);
}

/* Codes were fitted to scales as stored: rounding again would change the weights. */
void listing_scales(void *out, Dtype d, const float *scales, int64_t n)
{
    enum { CHUNK = 4096 };
    size_t size = dtype_size(d);
#pragma omp parallel for schedule(static) if (n > 16 * CHUNK)
    for (int64_t at = 0; at < n; at += CHUNK) {
        float   back[CHUNK];
        int64_t some = i64_min(CHUNK, n - at);
        char   *stored = (char *)out + (size_t)at * size;
        CHECK(halves_from_f32(stored, d, scales + at, some));
        CHECK(halves_to_f32(back, d, stored, some));
        CHECK(memcmp(back, scales + at, (size_t)some * sizeof *back) == 0);
    }
}

void listing_rows(void *out, const int8_t *codes, int64_t n, int64_t k, int bits)
{
    enum { ROWS = 16 };
    size_t stride = 4 * (size_t)packbits_words(PACK_DENSE, bits, k);
#pragma omp parallel for schedule(static) if (n * k > 65536)
    for (int64_t r = 0; r < n; r += ROWS)
        packbits_rows((char *)out + (size_t)r * stride, codes + r * k, i64_min(ROWS, n - r), k,
                      PACK_DENSE, bits);
}
