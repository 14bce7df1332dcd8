/* grid_texts.c - the tokens that a model is scored on, and a line for each setting that
 * the scores hang on: a resumed run must have the same. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/json.h"
#include "kernels/filemap.h"
#include "kernels/hash.h"
#include "kernels/size.h"
#include "reports/cli/grid.h"

enum { CALIBRATION_WINDOWS = 128, LONG_CONTEXT = 4096, DEPTH_SAMPLES = 50, ORDERS = 10,
       FEW_QUESTIONS = 20 };

/* --- text --- */

/* The calibration text of --calibrate. */
static Status read_calibration(Grid *g, GridModel *m)
{
    const Settings *s = &g->se->s;
    TextList        one = {.n = 1, .at = {s->calibrate}};
    WindowOptions   o = {.context = session_context(g->se, &m->reader.model.config),
                         .no_bos = s->bos && strcmp(s->bos, "none") == 0};
    TextBuf         text;
    Windows         all;
    TRY(session_text(&text, &m->calibration_name, g->se, &m->arena, &one));
    TRY(windows_from_text(&all, &m->arena, m->reader.tokenizer, s->calibrate, text.at, text.n,
                          &o));
    int64_t n = i64_min(s->windows ? s->windows : CALIBRATION_WINDOWS, all.seq.n);
    return windows_slice(&m->calibration, &m->arena, &all, 0, n);
}

/* The first windows of the text; what follows is scored, these are not. */
static Status split_text(Grid *g, GridModel *m)
{
    const Settings *s = &g->se->s;
    Windows         all = m->text;
    int64_t         n = s->windows ? s->windows : i64_min(CALIBRATION_WINDOWS, all.seq.n / 2);
    if (s->convention && strcmp(s->convention, "strided") == 0)
        FAIL(ERR_USAGE, "strided windows overlap, so the first of them cannot be kept from "
             "the score: give --calibrate FILE");
    if (all.seq.n < 2)
        FAIL(ERR_USAGE, "%s: is one window of %lld tokens, and calibrating takes windows that "
             "are not scored: give --calibrate FILE, more text or a smaller --context",
             m->text_name, (long long)all.n_tokens);
    if (n < 1 || n >= all.seq.n)
        FAIL(ERR_USAGE, "%s: %lld windows of its %lld to calibrate on leave none to score: give "
             "--calibrate FILE, or fewer --windows", m->text_name, (long long)n,
             (long long)all.seq.n);
    TRY(windows_slice(&m->calibration, &m->arena, &all, 0, n));
    TRY(windows_slice(&m->text, &m->arena, &all, n, all.seq.n - n));
    m->calibration_name = m->text_name;
    session_say(g->se, "%s: calibrating on the first %lld windows of %s, scoring the other "
                "%lld", m->name, (long long)n, m->text_name, (long long)(all.seq.n - n));
    return OK;
}

static Status read_text(Grid *g, GridModel *m)
{
    bool wanted = false;
    for (int i = 0; i < g->n_specs; i++)
        wanted |= g->specs[i].needs_text;
    bool split = wanted && !g->se->s.calibrate;
    if (g->with_text || split) {
        Loaded *reader = &m->reader;
        TRY(session_windows(&m->text, &m->text_name, g->se, reader));
    }
    if (wanted && g->se->s.calibrate)
        TRY(read_calibration(g, m));
    return split ? split_text(g, m) : OK;
}

/* --- tasks --- */

/* The first line that is not blank, as the readers of tasks take it. */
static const void *first_line(const FileMap *map, size_t *n)
{
    const unsigned char *at = map->data, *end = at + map->size;
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r')))
        at++;
    const unsigned char *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    *n = (size_t)((stop ? stop : end) - at);
    return at;
}

/* Retrieval has a span and no choices. What is wrong with a file is left to the reader of
 * one kind or the other. */
static Status is_retrieval(bool *out, const char *path)
{
    Arena       a = {0};
    FileMap     map;
    const Json *first;
    *out = false;
    TRY(filemap_open(&map, path));
    size_t      n;
    const void *line = map.size ? first_line(&map, &n) : NULL;
    if (line && json_parse(&first, &a, path, line, n) == OK)
        *out = json_member(first, "span") && !json_member(first, "choices");
    filemap_close(&map);
    arena_close(&a);
    return OK;
}

static Status read_task(Grid *g, GridModel *m, const char *path, int64_t context)
{
    const Settings *s = &g->se->s;
    bool            no_bos = s->bos && strcmp(s->bos, "none") == 0, retrieval;
    ChoiceKind      kind;
    ChoiceOptions   o = {.context = context, .shots = s->shots, .shots_path = s->shots_from,
                         .seed = (uint64_t)s->seed, .no_bos = no_bos};
    TRY(is_retrieval(&retrieval, path));
    if (retrieval)
        return retrieval_load(&m->files[m->n_files++], &m->arena, m->reader.tokenizer, path,
                              context, no_bos);
    TRY(choice_kind(&kind, path));
    return choice_load(&m->choices[m->n_choices++], &m->arena, m->reader.tokenizer, path, &o);
}

static Status make_needles(Grid *g, GridModel *m, int64_t context)
{
    const Settings *s = &g->se->s;
    NeedleOptions   o = {.needles = g->n_needles, .asked = g->n_asked, .context = context,
                         .samples = s->samples ? s->samples : DEPTH_SAMPLES,
                         .seed = (uint64_t)s->seed,
                         .no_bos = s->bos && strcmp(s->bos, "none") == 0};
    TextBuf         filler;
    const char     *name;
    TextList        list = s->texts;
    if (list.n == 0 && (list.at[0] = session_example(g->se, "heldout.txt")))
        list.n = 1;
    if (list.n == 0)
        FAIL(ERR_USAGE, "no text for the needles to stand in: give --text FILE");
    if (s->needle_form && strcmp(s->needle_form, needles_form_name(NEEDLES_STATEMENT)) == 0)
        o.form = NEEDLES_STATEMENT;
    TRY(session_text(&filler, &name, g->se, &m->arena, &list));
    o.filler_name = name;
    o.filler = filler.at;
    o.n_filler = filler.n;
    TRY(needles_make(&m->needles, &m->arena, m->reader.tokenizer, &o));
    m->files[m->n_files++] = m->needles.episodes;
    return OK;
}

static Status read_orders(Grid *g, GridModel *m)
{
    const Settings *s = &g->se->s;
    ShotOptions     o = {.shots = s->shots, .permutations = s->orders ? s->orders : ORDERS,
                         .context = session_context(g->se, &m->reader.model.config),
                         .seed = (uint64_t)s->seed,
                         .no_bos = s->bos && strcmp(s->bos, "none") == 0};
    TRY(shots_load(&m->orders, &m->arena, m->reader.tokenizer, s->order, &o));
    int64_t n = m->orders.n_queries;
    if (n < FEW_QUESTIONS)
        session_say(g->se, "%s: %lld question%s left of %s after %lld examples: too few to tell "
                    "orders apart; give more lines or fewer --shots", m->name, (long long)n,
                    n == 1 ? " is" : "s are", s->order, (long long)m->orders.n_shots);
    return OK;
}

/* --- settings --- */

Status grid_hash(uint64_t *out, const char *path)
{
    FileMap map;
    TRY(filemap_open(&map, path));
    *out = hash_bytes(HASH_BEGIN, map.data, map.size);
    filemap_close(&map);
    return OK;
}

/* Size and time of a model's file, or of the files in its folder, in whatever order they
 * come: its bytes are too many to look at. */
static uint64_t print_of(const char *path)
{
    struct stat    st;
    struct dirent *e;
    uint64_t       sum = 0;
    if (stat(path, &st) != 0)
        return 0;
    DIR *d = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (!d) {
        int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        return hash_bytes(HASH_BEGIN, facts, sizeof facts);
    }
    while ((e = readdir(d))) {
        if (fstatat(dirfd(d), e->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode))
            continue;
        int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        uint64_t name = hash_bytes(HASH_BEGIN, e->d_name, strlen(e->d_name));
        sum += hash_bytes(name, facts, sizeof facts);
    }
    closedir(d);
    return sum;
}

/* A text's bytes: it may be changed and have its size and time as before. */
static Status file_line(TextBuf *b, const char *what, const char *path)
{
    uint64_t hash;
    if (!path)
        return OK;
    TRY(grid_hash(&hash, path));
    textbuf_printf(b, "%s %s, bytes %016llx\n", what, path, (unsigned long long)hash);
    return OK;
}

static Status list_lines(TextBuf *b, const char *what, const TextList *list)
{
    for (int i = 0; i < list->n; i++)
        TRY(file_line(b, what, list->at[i]));
    return OK;
}

static const char *or_auto(const char *text)
{
    return text ? text : "auto";
}

static void needle_lines(TextBuf *b, const GridModel *m)
{
    const NeedleOptions *o = &m->needles.o;
    if (m->needles.n)
        textbuf_printf(b, "--needles %lld,%lld --needle-form %s --samples %lld, %lld tokens in "
                       "%s\n", (long long)o->needles, (long long)o->asked,
                       needles_form_name(o->form), (long long)o->samples,
                       (long long)o->context, o->filler_name);
}

/* Specifications and bits are not among them: each cell is of one. Nor are threads. */
static Status write_settings(Grid *g, GridModel *m)
{
    const Settings *s = &g->se->s;
    TextBuf         b;
    textbuf_init(&b, &m->arena);
    textbuf_printf(&b, "model %s, sizes and times %016llx\n", m->path,
                   (unsigned long long)print_of(m->reader.model.path));
    textbuf_printf(&b, "dtype %s%s on %s\n", s->dtype ? s->dtype : "f32",
                   s->tf32 ? " as TF32" : "", or_auto(s->device));
    textbuf_printf(&b, "--context %lld\n",
                   (long long)session_context(g->se, &m->reader.model.config));
    textbuf_printf(&b, "--bos %s\n", or_auto(s->bos));
    textbuf_printf(&b, "--convention %s --stride %lld\n",
                   s->convention ? s->convention : "disjoint", (long long)s->stride);
    textbuf_printf(&b, "--logit-scale %s\n", logit_scale_name(g->bits.scale));
    TRY(list_lines(&b, "--text", &s->texts));
    textbuf_printf(&b, "%lld windows scored\n", g->with_text ? (long long)m->text.seq.n : 0);
    textbuf_printf(&b, "%lld tokens scored\n", g->with_text ? (long long)m->text.n_tokens : 0);
    TRY(list_lines(&b, "--task", &g->tasks));
    textbuf_printf(&b, "--shots %lld\n", (long long)s->shots);
    TRY(file_line(&b, "--shots-from", s->shots_from));
    textbuf_printf(&b, "--seed %lld\n", (long long)s->seed);
    textbuf_printf(&b, "--kl %s\n", s->kl ? "given" : "not given");
    needle_lines(&b, m);
    TRY(file_line(&b, "--order", s->order));
    if (s->order)
        textbuf_printf(&b, "%lld orders\n", (long long)m->orders.n_permutations);
    TRY(file_line(&b, "calibrated on", s->calibrate));
    textbuf_printf(&b, "%lld windows to calibrate on\n", (long long)m->calibration.seq.n);
    textbuf_printf(&b, "diffquant %s\n", DQ_VERSION);
    m->settings = b.at;
    return textbuf_status(&b);
}

Status grid_texts(Grid *g, GridModel *m)
{
    const ModelConfig *c = &m->reader.model.config;
    int64_t context = session_context(g->se, c);
    int64_t longest = i64_max(context, i64_min(c->max_positions, LONG_CONTEXT));
    TRY(read_text(g, m));
    for (int i = 0; i < g->tasks.n; i++)
        TRY(read_task(g, m, g->tasks.at[i], longest));
    if (g->n_needles)
        TRY(make_needles(g, m, g->se->s.context ? context : longest));
    if (g->se->s.order)
        TRY(read_orders(g, m));
    return write_settings(g, m);
}
