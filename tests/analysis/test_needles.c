/* test_needles.c - episodes of the multi-needle test, and their scores. */
#include "analysis/needles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "analysis/tasks/needles_parts.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

enum { SENTENCES = 60, CONTEXT = 500 };

/* Sentences of 20 to 48 characters, none like another; some with two spaces behind. */
static const char *filler(void)
{
    static char text[SENTENCES * 64];
    char       *at = text;
    if (text[0])
        return text;
    for (int i = 0; i < SENTENCES; i++)
        at += sprintf(at, "Line nr: %d%.*s stands%s", 100 + i, i * 7 % 29,
                      ", which says little of anything", i % 5 == 4 ? ".  " : ". ");
    return text;
}

typedef struct {
    Arena      arena;
    Tokenizer *t;
    Needles    nd;
} Made;

static NeedleOptions options(int64_t needles, int64_t asked, NeedleForm form)
{
    return (NeedleOptions){.needles = needles, .asked = asked, .samples = 4, .seed = 9,
                           .context = CONTEXT, .form = form, .filler = filler(),
                           .n_filler = strlen(filler())};
}

static Status make(Made *m, const NeedleOptions *o)
{
    *m = (Made){0};
    TRY(tiny_tokenizer(&m->t, &m->arena, true));
    return needles_make(&m->nd, &m->arena, m->t, o);
}

static void unmake(Made *m)
{
    tokenizer_close(m->t);
    arena_close(&m->arena);
}

/* --- what an episode is made of, read from its line --- */

typedef struct {
    const char *context, *answer;
    int64_t     span[2], depth;
} Line;

/* Line i of the set, by the JSON reader. ASCII: code points are bytes. */
static Status line_of(Line *l, Arena *a, const Needles *nd, int64_t i)
{
    const char *at = nd->jsonl;
    const Json *v;
    for (; i > 0; i--)
        at = strchr(at, '\n') + 1;
    TRY(json_parse(&v, a, "line", at, (size_t)(strchr(at, '\n') - at)));
    const Json *span = json_member(v, "span");
    *l = (Line){json_member(v, "context")->text, json_member(v, "answer")->text,
                {span->at[0].integer, span->at[1].integer},
                json_member(v, "depth")->integer};
    return OK;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* Removes the needles ("The magic ... N." and the space behind each) from the context up
 * to its question: what is left is filler. before: its bytes in front of byte `at`. */
static void strip(char *out, const char *context, size_t end, size_t at, size_t *before,
                  int *needles)
{
    size_t n = 0;
    *needles = 0;
    *before = 0;
    for (size_t i = 0; i < end;) {
        if (i == at)
            *before = n;
        if (strncmp(context + i, "The magic number ", 17) == 0) {
            i += (size_t)(strchr(context + i, '.') - (context + i)) + 1;
            i += context[i] == ' ';
            ++*needles;
        } else {
            out[n++] = context[i++];
        }
    }
    out[n] = 0;
}

/* Where question (or stem) begins. */
static size_t question_at(const char *context, NeedleForm form)
{
    const char *at = form == NEEDLES_QUESTION ? strstr(context, "What ") : NULL, *next;
    for (next = context; !at && (next = strstr(next, "The magic")); next++)
        if (!strstr(next + 1, "The magic"))
            at = next;
    return (size_t)(at - context);
}

static bool is_right(const Made *m, int64_t i)
{
    const NeedleOptions *o = &m->nd.o;
    Arena  a = {0};
    Line   l;
    char   left[4000], needle[100], city[40], number[20];
    size_t before, end;
    int    needles;
    bool   ok = line_of(&l, &a, &m->nd, i) == OK;
    end = question_at(l.context, o->form);
    /* The span is a needle, and the answer begins with its number. */
    snprintf(needle, sizeof needle, "%.*s", (int)(l.span[1] - l.span[0]),
             l.context + l.span[0]);
    ok = ok && sscanf(needle, o->form == NEEDLES_QUESTION
                                  ? "The magic number for %39s is %19[0-9]"
                                  : "The magic number of %39s is %19[0-9]", city, number) == 2;
    size_t digits = strlen(number);
    ok = ok && (o->form == NEEDLES_QUESTION ? digits >= 5 && digits <= 7 : digits == 4);
    ok = ok && l.answer[0] == ' ' && strncmp(l.answer + 1, number, digits) == 0 &&
         l.answer[1 + digits] == '.' && needle[strlen(needle) - 1] == '.';
    ok = ok && count(l.context, needle) == 1 && strstr(l.context + end, city);
    /* What is left is the filler from the start of a sentence to the end of one. */
    strip(left, l.context, end, (size_t)l.span[0], &before, &needles);
    const char *from = strstr(filler(), left);
    ok = ok && needles == o->needles && strncmp(left, "Line nr:", 8) == 0 && from;
    ok = ok && left[strlen(left) - 1] == ' ';
    /* No longer than the context; with the next sentence it would be. */
    const char *next = from + strlen(left), *after = strstr(next + 1, "Line nr:");
    int64_t rows = m->nd.episodes.seq.start[i + 1] - m->nd.episodes.seq.start[i];
    ok = ok && rows + 1 <= o->context && !m->nd.episodes.truncated[i];
    /* "42" is one token: a sentence may be one shorter than its characters. */
    ok = ok && rows + 1 + (after ? after - next : 99) >= o->context;
    /* Sentences have at most 50 characters: the nearest boundary is within half of that. */
    ok = ok && l.depth == NEEDLES_DEPTH[m->nd.depth[i]] && m->nd.depth[i] == i / o->samples;
    ok = ok && fabs((double)before - (double)l.depth / 100 * (double)strlen(left)) <= 26;
    ok = ok && (l.depth > 0 || l.span[0] == 0);
    ok = ok && (l.depth < 100 || l.context[l.span[1]] == ' ');
    ok = ok && (l.depth < 100 || (size_t)l.span[1] + 1 == end);
    arena_close(&a);
    return ok;
}

TEST(episodes_are_what_they_should_be)
{
    static const int64_t NR[][2] = {{1, 1}, {2, 1}, {2, 2}, {6, 1}, {6, 2}, {5, 5}};
    for (int form = 0; form < N_NEEDLE_FORMS; form++)
        for (size_t k = 0; k < sizeof NR / sizeof NR[0]; k++) {
            Made          m;
            NeedleOptions o = options(NR[k][0], NR[k][1], (NeedleForm)form);
            o.context += 100 * NR[k][1];
            T_STATUS_OK(make(&m, &o));
            T_OK(m.nd.n == 20 && m.nd.episodes.n == 20);
            for (int64_t i = 0; i < m.nd.n; i++)
                T_OK(is_right(&m, i));
            unmake(&m);
        }
}

/* All sentences alike: whatever the context, less than the tokens of one are left of it. */
static void check_fill(const char *folder)
{
    static char text[20 * 80 + 1];
    Arena       a = {0};
    Tokenizer  *t;
    int64_t     full = 0, barely = 0;
    T_STATUS_OK(folder ? tokenizer_open(&t, &a, check_path(folder))
                       : tiny_tokenizer(&t, &a, true));
    for (int i = 0; i < 80; i++)
        strcpy(text + 20 * i, "nothing to be seen. ");
    for (int64_t context = 200; context < 225; context++) {
        Needles       nd;
        Filler        f;
        NeedleOptions o = options(3, 1, NEEDLES_STATEMENT);
        o.filler = text;
        o.n_filler = strlen(text);
        o.context = context;
        T_STATUS_OK(needles_make(&nd, &a, t, &o));
        T_STATUS_OK(filler_cut(&f, &a, t, &o));
        const int64_t *start = nd.episodes.seq.start, one = f.tokens[2] - f.tokens[1];
        for (int64_t i = 0; i < nd.n; i++) {
            int64_t left = context - (start[i + 1] - start[i] + 1);
            T_OK(left >= 0 && left < one);
            full += left == 0;
            barely += left == one - 1;
        }
    }
    T_OK(full > 0 && barely > 0);
    tokenizer_close(t);
    arena_close(&a);
}

/* The pair's tokens reach from one sentence into the next, the tiny ones do not. */
TEST(contexts_are_filled_to_the_sentence)
{
    check_fill(NULL);
    check_fill("pair/diff");
}

/* The words that stand for R answers, exactly. */
TEST(question_and_answers_read_well)
{
    Made m;
    Line l;
    char want[400], name[3][20];
    NeedleOptions o = options(4, 3, NEEDLES_QUESTION);
    o.context = 700;
    T_STATUS_OK(make(&m, &o));
    T_STATUS_OK(line_of(&l, &m.arena, &m.nd, 7));
    const char *q = strstr(l.context, "What are the magic numbers for ");
    T_OK(q && sscanf(q + 31, "%19[^,], %19s and %19[^?]", name[0], name[1], name[2]) == 3);
    snprintf(want, sizeof want, "What are the magic numbers for %s, %s and %s? The magic "
             "number for %s is", name[0], name[1], name[2], name[0]);
    T_TEXT(q, want);
    int at = 0, x[3];
    T_OK(sscanf(l.answer, " %d. The magic number for %*s is %d. The magic number for %*s is "
                "%d.%n", &x[0], &x[1], &x[2], &at) == 3);
    T_OK(l.answer[at] == 0 && at > 0);
    for (int i = 0; i < 3; i++) {
        snprintf(want, sizeof want, "The magic number for %s is %d.", name[i], x[i]);
        T_OK(count(l.context, want) == 1);
    }
    unmake(&m);
}

/* Only numbers and their full stops are scored; shares are taken on the first's rows. */
TEST(targets_are_the_numbers)
{
    Made m;
    Line l;
    NeedleOptions o = options(3, 2, NEEDLES_STATEMENT);
    T_STATUS_OK(make(&m, &o));
    const Sequences *s = &m.nd.episodes.seq;
    for (int64_t i = 0; i < m.nd.n; i++) {
        T_STATUS_OK(line_of(&l, &m.arena, &m.nd, i));
        int32_t scored[64];
        int64_t n = 0, n_shared = 0;
        char   *text, want[40];
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++) {
            if (s->targets[t] >= 0)
                scored[n++] = s->targets[t];
            T_OK(!s->share_rows[t] || s->targets[t] >= 0);
            n_shared += s->share_rows[t];
        }
        T_STATUS_OK(tokenizer_decode(m.t, &m.arena, scored, n_shared, &text));
        snprintf(want, sizeof want, "%.6s", l.answer);
        T_TEXT(text, want);
        T_STATUS_OK(tokenizer_decode(m.t, &m.arena, scored + n_shared, n - n_shared, &text));
        T_TEXT(text, strrchr(l.answer, ' '));
        T_STATUS_OK(tokenizer_decode(m.t, &m.arena, s->ids + s->start[i] + s->spans[i].first,
                                     s->spans[i].end - s->spans[i].first, &text));
        snprintf(want, sizeof want, "%.*s", (int)(l.span[1] - l.span[0]),
                 l.context + l.span[0]);
        T_OK(strstr(text, want) && strlen(text) <= strlen(want) + 1);
    }
    unmake(&m);
}

static uint64_t hash(const char *text)   // FNV-1a
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

TEST(the_seed_says_all)
{
    Made a, b;
    NeedleOptions o = options(4, 2, NEEDLES_QUESTION);
    T_STATUS_OK(make(&a, &o));
    T_STATUS_OK(make(&b, &o));
    T_TEXT(a.nd.jsonl, b.nd.jsonl);
    T_TEXT(a.nd.name, "needles-n4r2");
    T_OK(a.nd.episodes.n_tasks == 1 && a.nd.episodes.tasks[0].n == 20);
    unmake(&b);
    o.seed++;
    T_STATUS_OK(make(&b, &o));
    T_OK(strcmp(a.nd.jsonl, b.nd.jsonl) != 0);
    T_OK(hash(a.nd.jsonl) == 0x4b5fe24ca93bad98u);   // on every machine
    unmake(&a);
    unmake(&b);
}

TEST(lines_are_read_back_as_they_were)
{
    Made          m;
    Retrieval     r;
    NeedleOptions o = options(4, 3, NEEDLES_QUESTION);
    T_STATUS_OK(make(&m, &o));
    T_STATUS_OK(retrieval_load(&r, &m.arena, m.t, tiny_file("set.jsonl", m.nd.jsonl), CONTEXT,
                               false));
    const Sequences *a = &m.nd.episodes.seq, *b = &r.seq;
    size_t n = (size_t)a->start[a->n];
    T_OK(a->n == b->n && memcmp(a->start, b->start, (size_t)(a->n + 1) * 8) == 0);
    T_OK(memcmp(a->ids, b->ids, n * 4) == 0 && memcmp(a->targets, b->targets, n * 4) == 0);
    T_OK(memcmp(a->spans, b->spans, (size_t)a->n * sizeof(Span)) == 0);
    unmake(&m);
}

/* --- filler --- */

TEST(filler_is_cut_where_sentences_end)
{
    static const char *const PARTS[] = {
        "One, two.  ", "A \"quoted one.\" ", "3.14 is (no end!) ", "A title\n\n  ",
        "No stop\r\n", "\xe4\xb8\x80\xe3\x80\x82", "\xe4\xba\x8c\xef\xbc\x9f ", "last",
    };
    char   text[200] = "\n ";
    Arena  a = {0};
    Filler f;
    Tokenizer *t;
    for (size_t i = 0; i < 8; i++)
        strcat(text, PARTS[i]);
    NeedleOptions o = {.filler = text, .n_filler = strlen(text)};
    /* tiny_tokenizer has no such bytes: the pair's has all. */
    T_STATUS_OK(tokenizer_open(&t, &a, check_path("pair/diff")));
    T_STATUS_OK(filler_cut(&f, &a, t, &o));
    T_OK(f.n == 8);
    int64_t at = 2, n_ids;
    int32_t *ids;
    T_STATUS_OK(tokenizer_encode(t, &a, text, strlen(text), false, &ids, &n_ids, NULL));
    for (int i = 0; i < 8; i++) {
        T_OK(f.start[i] == at);
        at += (int64_t)strlen(PARTS[i]);
        T_OK(f.tokens[i + 1] >= f.tokens[i] && f.tokens[i + 1] <= at);
    }
    T_OK(f.start[8] == at && at == (int64_t)strlen(text));
    T_OK(f.tokens[8] == n_ids && n_ids < at && f.tokens[0] <= 2);
    tokenizer_close(t);
    arena_close(&a);
}

TEST(endless_sentences_are_cut)
{
    static char text[3 * FILLER_WORD];
    Arena       a = {0};
    Filler      f;
    Tokenizer  *t;
    T_STATUS_OK(tokenizer_open(&t, &a, check_path("pair/diff")));
    for (size_t i = 0; i + 1 < sizeof text; i++)   // words of 9 letters
        text[i] = i % 10 == 9 ? ' ' : 'a';
    NeedleOptions o = {.filler = text, .n_filler = sizeof text - 1};
    T_STATUS_OK(filler_cut(&f, &a, t, &o));
    T_OK(f.start[1] == 410 && f.start[2] == 820);
    for (size_t i = 0; i + 2 < sizeof text; i += 2)  // no space at all, letters of 2 bytes
        memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 2] = 'x';
    text[0] = text[1] = 'x';
    text[2] = 'x';
    text[3] = 'x';
    T_STATUS_OK(filler_cut(&f, &a, t, &o));
    T_OK(f.n == 3 && f.start[1] == FILLER_WORD && f.start[2] == 2 * FILLER_WORD);
    memmove(text + 1, text, sizeof text - 2);        // now a letter lies across the cut
    text[sizeof text - 1] = 0;
    o.n_filler = FILLER_WORD + 501;
    T_STATUS_OK(filler_cut(&f, &a, t, &o));
    T_OK(f.n == 2 && f.start[1] == FILLER_WORD + 1);
    tokenizer_close(t);
    arena_close(&a);
}

/* --- scores --- */

/* Lets the model be right: the targets of episode i become what it would say, but for one
 * of them where i % 3 == 0. */
static void let_succeed(const Needles *nd, const int32_t *best)
{
    const Sequences *s = &nd->episodes.seq;
    int32_t *targets = (int32_t *)(uintptr_t)s->targets;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t first = -1, last = -1;
        for (int64_t t = s->start[i]; t < s->start[i + 1]; t++)
            if (targets[t] >= 0) {
                targets[t] = best[t];
                first = first < 0 ? t : first;
                last = t;
            }
        if (i % 3 == 0)
            targets[i % 2 ? first : last] ^= 1;
    }
}

TEST(scores_are_exact_matches)
{
    static double  logprob[20 * CONTEXT];
    static int32_t best[20 * CONTEXT];
    Made        m;
    TinyModel   tiny;
    NeedleScore s;
    NeedleOptions o = options(3, 2, NEEDLES_STATEMENT);
    T_STATUS_OK(make(&m, &o));
    T_STATUS_OK(tiny_open(&tiny, "diff_gqa"));
    T_STATUS_OK(tiny_score(&tiny.model, (RunQuant){.bits = 16}, &m.nd.episodes.seq, logprob,
                           best));
    let_succeed(&m.nd, best);
    Probe  mine = {0};
    Scorer sc = {.model = &tiny.model, .quant = {.bits = 16}, .probe = &mine};
    T_STATUS_OK(needles_run(&s, &m.arena, &m.nd, &sc));
    T_OK(sc.probe == &mine && s.all.n == 20 && s.all.n_correct == 13);
    T_NEAR(s.all.accuracy, 0.65, 1e-15);
    for (int i = 0; i < 20; i++)
        T_OK(s.correct[i] == (i % 3 != 0));
    static const double WANT[] = {0.5, 0.75, 0.75, 0.5, 0.75};   // of episodes 4 d ..
    for (int d = 0; d < 5; d++)
        T_OK(s.depth[d].n == 4 && s.depth[d].accuracy == WANT[d]);
    unmake(&m);
    tiny_close(&tiny);
}

/* Whole maps of one episode in one layer; what the rows that predict its first answer
 * (begin .. end) give to the span. Adds |diff| of [span, all, position 0] of each head,
 * and the span's weight of each map. */
static Status add_maps(double *abs, double *map, Model *model, const Needles *nd, int64_t i,
                       int64_t layer)
{
    const Sequences *s = &nd->episodes.seq;
    int64_t H = model->config.n_heads, M = model->config.n_maps;
    int64_t from = s->start[i], S = s->start[i + 1] - from, start[2] = {0, S};
    MapWindow w = {.n_positions = S, .maps = malloc((size_t)(H * M * S * S) * 4),
                   .diff = malloc((size_t)(H * S * S) * 4)};
    Probe     p = {.window = &w, .window_layer = layer};
    Scorer    sc = {.model = model, .quant = {.bits = 16}, .probe = &p};
    Sequences one = {.n = 1, .start = start, .ids = s->ids + from,
                     .targets = s->targets + from};
    static float   logprob[CONTEXT];
    static int32_t best[CONTEXT];
    Status status = score_run(&sc, &one, logprob, best);
    bool   begun = false;
    for (int64_t t = 0; status == OK && t < S; t++) {
        if (begun && s->targets[from + t] < 0)
            break;
        if (s->targets[from + t] < 0)
            continue;
        begun = true;
        for (int64_t h = 0; h < H; h++)
            for (int64_t k = 0; k <= t; k++) {
                bool   in = k >= s->spans[i].first && k < s->spans[i].end;
                double d = fabs((double)w.diff[(h * S + t) * S + k]);
                abs[h * 3] += in ? d : 0;
                abs[h * 3 + 1] += d;
                abs[h * 3 + 2] += k == 0 ? d : 0;
                for (int64_t m = 0; in && m < M; m++)
                    map[h * M + m] += (double)w.maps[((h * M + m) * S + t) * S + k];
            }
    }
    free(w.maps);
    free(w.diff);
    return status;
}

/* Sums over rows in double of weights that the window rounds to f32. */
static void check_shares(const char *name, bool no_bos)
{
    Made        m;
    TinyModel   tiny;
    NeedleScore s;
    NeedleOptions o = options(2, 2, NEEDLES_STATEMENT);
    o.samples = 2;
    o.context = 300;
    o.no_bos = no_bos;
    T_STATUS_OK(make(&m, &o));
    T_STATUS_OK(tiny_open(&tiny, name));
    const ModelConfig *c = &tiny.model.config;
    Scorer sc = {.model = &tiny.model, .quant = {.bits = 16}, .batch_tokens = 500};
    T_STATUS_OK(needles_run(&s, &m.arena, &m.nd, &sc));
    double H = (double)c->n_heads;
    for (int64_t l = 0; l < c->n_layers; l++)
        for (int d = 0; d < 5; d++) {
            double abs[16 * 3] = {0}, map[16 * 2] = {0}, span = 0, first = 0, by_map[2] = {0};
            int64_t rows = 0;
            for (int64_t i = 2 * d; i < 2 * d + 2; i++)
                T_STATUS_OK(add_maps(abs, map, &tiny.model, &m.nd, i, l));
            for (int64_t t = m.nd.episodes.seq.start[2 * d];
                 t < m.nd.episodes.seq.start[2 * d + 2]; t++)
                rows += m.nd.episodes.seq.share_rows[t];
            for (int64_t h = 0; h < c->n_heads; h++) {
                span += abs[h * 3] / abs[h * 3 + 1] / H;
                first += abs[h * 3 + 2] / abs[h * 3 + 1] / H;
                for (int64_t k = 0; k < c->n_maps; k++)
                    by_map[k] += map[h * c->n_maps + k] / (double)rows / H;
            }
            T_NEAR(s.span[l * 5 + d], span, 1e-6);
            T_NEAR(s.rest[l * 5 + d], 1 - span, 1e-6);
            T_NEAR(s.first[l * 5 + d], no_bos && d == 0 ? 0 : first, 1e-6);
            T_OK(span > 0.01 && span < 0.99);
            for (int64_t k = 0; k < c->n_maps; k++)
                T_NEAR(s.map_span[(l * c->n_maps + k) * 5 + d], by_map[k], 1e-6);
        }
    unmake(&m);
    tiny_close(&tiny);
}

TEST(shares_are_those_of_whole_maps)
{
    check_shares("diff_gqa", false);
    check_shares("diff_gqa", true);
    check_shares("llama_gqa", false);
}

TEST(series_of_two_sets)
{
    Arena       results = {0};
    SeriesSet   set;
    TinyModel   tiny;
    NeedleScore s;
    T_STATUS_OK(tiny_open(&tiny, "diff_gqa"));
    series_set_init(&set, &results, "m");
    for (int n = 1; n <= 2; n++) {
        Made          m;
        NeedleOptions o = options(n, 1, NEEDLES_STATEMENT);
        o.context = 250;
        Scorer sc = {.model = &tiny.model, .quant = {.bits = 16}};
        T_STATUS_OK(make(&m, &o));
        T_STATUS_OK(needles_run(&s, &m.arena, &m.nd, &sc));
        T_STATUS_OK(needles_series(&s, &m.nd, &set));
        double span = s.map_span[(2 * 2 + 1) * 5 + 3];
        unmake(&m);
        char name[60];
        snprintf(name, sizeof name, "needles/n%d_r1/map_span", n);
        const Series *x = series_find_dims(&set, name, "layer,map,depth");
        T_OK(x && series_get(x, 2, 1, 3) == span);
    }
    T_OK(series_find_dims(&set, "needles/n1_r1/accuracy", "depth"));
    T_OK(series_find_dims(&set, "needles/n2_r1/stderr", "depth"));
    T_OK(series_find_dims(&set, "needles/n2_r1/span", "layer,depth"));
    T_OK(series_find_dims(&set, "needles/n2_r1/rest", "layer,depth"));
    T_OK(series_find_dims(&set, "needles/n2_r1/first", "layer,depth"));
    T_OK(series_at(series_find_dims(&set, "depth", "depth"), 3) == 75);
    T_OK(series_attr(&set, "needles_context")->integer == 250);
    T_TEXT(series_attr(&set, "needles_form")->text, "statement");
    tiny_close(&tiny);
    arena_close(&results);
}

/* --- what cannot be made --- */

TEST(impossible_sets_are_refused)
{
    static const struct {
        int64_t     needles, asked, samples, context;
        const char *says;
    } ROWS[] = {
        {0, 1, 1, 500, "0 needles: 1 to 128 are possible"},
        {129, 1, 1, 500, "129 needles"},
        {2, 0, 1, 500, "0 needles asked for: 1 to 2 are possible"},
        {2, 3, 1, 500, "3 needles asked for"},
        {2, 1, 0, 500, "0 samples a depth"},
        {2, 1, 1, 1, "1 tokens of context"},
        {2, 1, 1, 100, "a context of 100 tokens is too small: 2 needles and 1 questions take"},
        {1, 1, 1, 70, "a sentence of filler must fit"},
        {1, 1, 1, 5000, "tokens are too few to fill a context of 5000"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Made          m;
        NeedleOptions o = options(ROWS[i].needles, ROWS[i].asked, NEEDLES_STATEMENT);
        o.samples = ROWS[i].samples;
        o.context = ROWS[i].context;
        T_FAILS(make(&m, &o), ERR_RANGE, ROWS[i].says);
        unmake(&m);
    }
    static const struct {
        const char *text;
        size_t      n;
        Status      code;
        const char *says;
    } FILLERS[] = {
        {"", 0, ERR_RANGE, "f.txt: 0 tokens are too few to fill a context of 500"},
        {NULL, 0, ERR_RANGE, "f.txt: 0 tokens are too few"},
        {" \n", 2, ERR_RANGE, "f.txt: 2 bytes of white space, expected sentences"},
        {"ab\xff", 3, ERR_FORMAT, "f.txt: byte 2 is not UTF-8"},
        {"abc\0d", 5, ERR_FORMAT, "f.txt: byte 3 is zero"},
    };
    for (size_t i = 0; i < sizeof FILLERS / sizeof FILLERS[0]; i++) {
        Made          m;
        NeedleOptions o = options(1, 1, NEEDLES_QUESTION);
        o.filler_name = "f.txt";
        o.filler = FILLERS[i].text;
        o.n_filler = FILLERS[i].n;
        T_FAILS(make(&m, &o), FILLERS[i].code, FILLERS[i].says);
        unmake(&m);
    }
}

TEST(every_needle_may_be_there)
{
    Made          m;
    NeedleOptions o = options(NEEDLES_CITIES, NEEDLES_CITIES, NEEDLES_STATEMENT);
    o.samples = 1;
    o.context = 12000;
    char *text = malloc(20001);
    for (int i = 0; i < 1000; i++)
        strcpy(text + 20 * i, i % 3 ? "nothing to be seen. " : "there is no needle. ");
    o.filler = text;
    o.n_filler = 20 * 1000;
    T_STATUS_OK(make(&m, &o));
    Line l;
    T_STATUS_OK(line_of(&l, &m.arena, &m.nd, 2));
    for (int i = 0; i < NEEDLES_CITIES; i++) {
        char fact[60];
        snprintf(fact, sizeof fact, "The magic number of %s is ", NEEDLES_CITY[i]);
        T_OK(count(l.context, fact) == 1);
        const char *number = strstr(l.context, fact) + strlen(fact);
        snprintf(fact, sizeof fact, " is %.5s", number);
        T_OK(count(l.context, fact) == 1);
    }
    unmake(&m);
    free(text);
}

TEST(every_allocation_may_fail)
{
    Arena         tokens = {0};
    Tokenizer    *t;
    TinyModel     tiny;
    Status        s = ERR_MEMORY;
    int64_t       k = 0;
    NeedleOptions o = options(2, 2, NEEDLES_STATEMENT);
    o.samples = 1;
    o.context = 220;
    o.n_filler = 700;
    T_STATUS_OK(tiny_tokenizer(&t, &tokens, true));
    T_STATUS_OK(tiny_open(&tiny, "diff_gqa"));
    while (s != OK) {
        Arena       a = {0};
        Needles     nd;
        NeedleScore score;
        SeriesSet   set;
        Scorer      sc = {.model = &tiny.model, .quant = {.bits = 16}};
        arena_fail_at(++k);
        series_set_init(&set, &a, "m");
        s = needles_make(&nd, &a, t, &o);
        if (s == OK)
            s = needles_run(&score, &a, &nd, &sc);
        if (s == OK)
            s = needles_series(&score, &nd, &set);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(!sc.probe);
        arena_close(&a);
    }
    T_OK(k > 100);
    tiny_close(&tiny);
    tokenizer_close(t);
    arena_close(&tokens);
}
