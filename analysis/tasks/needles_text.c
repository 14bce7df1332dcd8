/* needles_text.c - one episode: draws its needles and lays out its text. */
#include <string.h>

#include "analysis/random.h"
#include "analysis/tasks/needles_parts.h"
#include "analysis/textbuf.h"

typedef struct {
    const char *name;
    const char *fact;         // before the city, in a needle and before an answer
    const char *one, *many;   // questions up to the cities; NULL: none
    int         least, most;  // digits
} Form;

static const Form FORMS[N_NEEDLE_FORMS] = {
    [NEEDLES_QUESTION] = {"question", "The magic number for ",
                          "What is the magic number for ", "What are the magic numbers for ",
                          5, 7},
    [NEEDLES_STATEMENT] = {"statement", "The magic number of ", NULL, NULL, 4, 4},
};

const char *needles_form_name(NeedleForm f)
{
    CHECK((unsigned)f < N_NEEDLE_FORMS);
    return FORMS[f].name;
}

/* --- what is drawn --- */

enum { WHOLE = 1000000 };   // of the filler: places are in millionths of it

typedef struct {
    const char *city;
    int64_t     number;
    int64_t     place;        // where it is put, 0 .. WHOLE of the filler
} Fact;

/* Facts 0 .. asked - 1 are asked for. */
typedef struct {
    const NeedleOptions *o;
    const Form          *form;
    const Filler        *filler;
    int64_t              first;   // sentence of the filler
    Fact                *facts;   // [o->needles]
    int64_t             *order;   // [o->needles] as they come in the text
} Draft;

static int64_t draw_number(const Draft *d, int64_t drawn, uint64_t *state)
{
    int64_t low = 1, number;
    bool    seen;
    int     digits = d->form->least;
    digits += (int)random_below(state, d->form->most - d->form->least + 1);
    while (--digits > 0)
        low *= 10;
    do {
        number = low + random_below(state, 9 * low);
        seen = false;
        for (int64_t i = 0; i < drawn; i++)
            seen = seen || d->facts[i].number == number;
    } while (seen);
    return number;
}

/* Fact 0 is the only one to stand at an end of the filler, so that there it comes before,
 * or after, any other that goes to the same place. */
static void draw_facts(Draft *d, int64_t depth, uint64_t *state)
{
    int64_t cities[NEEDLES_CITIES];
    for (int64_t i = 0; i < NEEDLES_CITIES; i++)
        cities[i] = i;
    random_shuffle(cities, NEEDLES_CITIES, state);
    for (int64_t i = 0; i < d->o->needles; i++) {
        Fact *f = &d->facts[i];
        f->city = NEEDLES_CITY[cities[i]];
        f->number = draw_number(d, i, state);
        f->place = i ? 1 + random_below(state, WHOLE - 1) : depth * (WHOLE / 100);
    }
}

/* By place; at most NEEDLES_CITIES of them. */
static void sort_facts(Draft *d)
{
    for (int64_t i = 0; i < d->o->needles; i++) {
        int64_t j = i;
        for (; j > 0 && d->facts[d->order[j - 1]].place > d->facts[i].place; j--)
            d->order[j] = d->order[j - 1];
        d->order[j] = i;
    }
}

/* A sentence with a whole context's tokens from there on. */
static Status draw_start(Draft *d, uint64_t *state)
{
    const Filler *f = d->filler;
    int64_t       total = f->tokens[f->n], starts = 0;
    while (starts < f->n && total - f->tokens[starts] >= d->o->context)
        starts++;
    if (starts == 0)
        FAIL(ERR_RANGE, "%s: %lld tokens are too few to fill a context of %lld", f->name,
             (long long)total, (long long)d->o->context);
    d->first = random_below(state, starts);
    return OK;
}

static Status draw(Draft *d, Arena *a, const Filler *f, const NeedleOptions *o, int64_t i)
{
    uint64_t state = random_stream(o->seed, i);
    *d = (Draft){.o = o, .form = &FORMS[o->form], .filler = f};
    ARENA_NEW(d->facts, a, o->needles);
    ARENA_NEW(d->order, a, o->needles);
    draw_facts(d, NEEDLES_DEPTH[i / o->samples], &state);
    sort_facts(d);
    return draw_start(d, &state);
}

/* --- its text --- */

typedef struct {
    TextBuf   text;
    TextSpan  span;        // of fact 0
    size_t    n_context;
    TextSpan *given;       // [asked - 1]
} Layout;

static void add_space(TextBuf *b)
{
    if (b->n > 0 && b->at[b->n - 1] != ' ' && b->at[b->n - 1] != '\n')
        textbuf_add(b, " ");
}

/* The boundary of sentences first .. end that is nearest to that place of their tokens. */
static int64_t boundary(const Draft *d, int64_t end, int64_t place)
{
    const int64_t *tokens = d->filler->tokens;
    int64_t from = tokens[d->first], at = d->first;
    int64_t wanted = from + (tokens[end] - from) * place / WHOLE;
    while (at < end && tokens[at + 1] <= wanted)
        at++;
    if (at < end && tokens[at + 1] - wanted < wanted - tokens[at])
        at++;
    return at;
}

static void add_filler(TextBuf *b, const Filler *f, int64_t from, int64_t to)
{
    if (from == to)
        return;
    add_space(b);
    textbuf_bytes(b, f->text + f->start[from], (size_t)(f->start[to] - f->start[from]));
}

static void add_needle(Layout *l, const Draft *d, int64_t i)
{
    add_space(&l->text);
    size_t first = l->text.n;
    textbuf_printf(&l->text, "%s%s is %lld.", d->form->fact, d->facts[i].city,
                   (long long)d->facts[i].number);
    if (i == 0)
        l->span = (TextSpan){first, l->text.n};
}

static void add_question(TextBuf *b, const Draft *d)
{
    int64_t R = d->o->asked;
    if (!d->form->one)
        return;
    add_space(b);
    textbuf_add(b, R > 1 ? d->form->many : d->form->one);
    for (int64_t i = 0; i < R; i++)
        textbuf_printf(b, "%s%s", i == 0 ? "" : i + 1 < R ? ", " : " and ", d->facts[i].city);
    textbuf_add(b, "?");
}

static void add_answers(Layout *l, const Draft *d)
{
    for (int64_t i = 0; i < d->o->asked; i++) {
        size_t first = l->text.n;
        add_space(&l->text);
        textbuf_printf(&l->text, "%s%s is", d->form->fact, d->facts[i].city);
        if (i == 0)
            l->n_context = l->text.n;
        else
            l->given[i - 1] = (TextSpan){first, l->text.n};
        textbuf_printf(&l->text, " %lld.", (long long)d->facts[i].number);
    }
}

/* The episode with the filler's sentences d->first .. end. */
static Status lay_out(Layout *l, Arena *a, const Draft *d, int64_t end)
{
    int64_t at = d->first;
    *l = (Layout){0};
    textbuf_init(&l->text, a);
    ARENA_NEW(l->given, a, d->o->asked);
    for (int64_t k = 0; k < d->o->needles; k++) {
        int64_t i = d->order[k], gap = boundary(d, end, d->facts[i].place);
        add_filler(&l->text, d->filler, at, gap);
        add_needle(l, d, i);
        at = gap;
    }
    add_filler(&l->text, d->filler, at, end);
    add_question(&l->text, d);
    add_answers(l, d);
    return textbuf_status(&l->text);
}

/* --- its length --- */

static Status count_tokens(int64_t *n, Tokenizer *t, const Draft *d, int64_t end)
{
    Arena    tmp = {0};
    Layout   l;
    int32_t *ids;
    Status   s = lay_out(&l, &tmp, d, end);
    *n = 0;
    if (s == OK)
        s = tokenizer_encode(t, &tmp, l.text.at, l.text.n, false, &ids, n, NULL);
    *n += windows_bos(t, d->o->no_bos) >= 0;
    arena_close(&tmp);
    return s;
}

static Status check_room(const Draft *d, int64_t bare, int64_t end)
{
    if (bare <= d->o->context && end > d->first)
        return OK;
    FAIL(ERR_RANGE, "a context of %lld tokens is too small: %lld needles and %lld questions "
         "take %lld, and a sentence of filler must fit", (long long)d->o->context,
         (long long)d->o->needles, (long long)d->o->asked, (long long)bare);
}

/* Tokens of a whole are not those of its parts, but nearly: from a guess, step by step to
 * the last sentence that fits. */
static Status fit(int64_t *end, Tokenizer *t, const Draft *d)
{
    const Filler *f = d->filler;
    int64_t       bare, n, more;
    TRY(count_tokens(&bare, t, d, d->first));
    int64_t last = f->tokens[d->first] + d->o->context - bare, at = d->first;
    while (at < f->n && f->tokens[at + 1] <= last)
        at++;
    TRY(count_tokens(&n, t, d, at));
    while (at > d->first && n > d->o->context)
        TRY(count_tokens(&n, t, d, --at));
    for (more = 0; at < f->n && more <= d->o->context;) {
        TRY(count_tokens(&more, t, d, at + 1));
        at += more <= d->o->context;
    }
    *end = at;
    if (at == f->n)
        FAIL(ERR_RANGE, "%s: too short to fill a context of %lld tokens from sentence %lld on",
             f->name, (long long)d->o->context, (long long)d->first);
    return check_room(d, bare, at);
}

static Status finish(Episode *e, Arena *a, const Layout *l, const Draft *d, int64_t i)
{
    *e = (Episode){.line = i + 1, .needles = d->o->needles, .text = l->text.at,
                   .n_text = l->text.n, .n_context = l->n_context, .span = l->span,
                   .n_given = d->o->asked - 1, .given = l->given};
    e->id = arena_printf(a, "d%03d-%03lld", NEEDLES_DEPTH[i / d->o->samples],
                         (long long)(i % d->o->samples));
    return e->id ? OK : STATUS(ERR_MEMORY, "out of memory for an episode");
}

Status needles_episode(Episode *e, Arena *a, Tokenizer *t, const Filler *f,
                       const NeedleOptions *o, int64_t i)
{
    Draft   d;
    Layout  l;
    int64_t end;
    TRY(draw(&d, a, f, o, i));
    TRY(fit(&end, t, &d));
    TRY(lay_out(&l, a, &d, end));
    return finish(e, a, &l, &d, i);
}
