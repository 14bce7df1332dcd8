/* study_run.c - runs the cells of the accuracy table, and keeps each as it is finished. */
#include "analysis/study.h"

#include <string.h>

enum { KEPT_BYTES = 256 << 20 };

/* --- tasks --- */

static Status run_choice(const Choice *c, Scorer *sc, uint8_t *correct, uint8_t *norm)
{
    Arena   a = {0};
    double *loglik = arena_alloc(&a, c->n_requests, sizeof *loglik);
    Status  s = loglik ? choice_run(c, sc, loglik, NULL)
                       : STATUS(ERR_MEMORY, "out of memory for %s", c->name);
    if (s == OK)
        choice_correct(correct, norm, c, loglik);
    arena_close(&a);
    return s;
}

Status study_give(Study *s, int64_t source, const uint8_t *correct, int64_t n_nan)
{
    uint8_t *copy;
    CHECK(source >= 0 && source < s->n_sources);
    ARENA_NEW(copy, s->arena, s->source_items[source]);
    memcpy(copy, correct, (size_t)s->source_items[source]);
    s->given[source] = copy;
    s->given_nan[source] = n_nan;
    return OK;
}

Status study_give_text(Study *s, const Perplexity *p)
{
    Perplexity *copy;
    CHECK(s->o.text && p->n_windows == s->o.text->seq.n && p->window_nll);
    ARENA_NEW(copy, s->arena, 1);
    *copy = *p;
    ARENA_NEW(copy->window_nll, s->arena, p->n_windows);
    memcpy(copy->window_nll, p->window_nll, (size_t)p->n_windows * sizeof *p->window_nll);
    s->given_text = copy;
    return OK;
}

static bool is_exact(const Study *s, const StudyCell *c)
{
    int64_t exact = study_exact(s);
    return exact >= 0 && c == study_cell(s, 0, exact);
}

/* Tokens that need not be run over again. */
static Status skip(Scorer *sc, int64_t n_tokens)
{
    sc->done += n_tokens;
    progress_step(sc->progress, sc->done, sc->total, sc->what);
    return OK;
}

static Status run_file(const Study *s, StudyCell *c, Scorer *sc, int64_t f)
{
    const Retrieval *r = &s->o.files[f];
    if (!s->given[f] || !is_exact(s, c))
        return retrieval_run(r, sc, c->correct[f]);
    memcpy(c->correct[f], s->given[f], (size_t)r->n);
    sc->n_nan += s->given_nan[f];
    return skip(sc, r->seq.start[r->n]);
}

static Status run_tasks(const Study *s, StudyCell *c, Scorer *sc)
{
    int64_t source = 0;
    sc->n_nan = 0;   // a text's show in its perplexity
    for (int64_t f = 0; f < s->o.n_files; f++)
        TRY(run_file(s, c, sc, source++));
    for (int64_t f = 0; f < s->o.n_choices; f++) {
        const Choice *choice = &s->o.choices[f];
        uint8_t      *norm = choice->has_norm ? c->correct[source + 1] : NULL;
        TRY(run_choice(choice, sc, c->correct[source], norm));
        source += 1 + choice->has_norm;
    }
    if (s->o.orders)
        TRY(shots_run(s->o.orders, sc, c->correct[source], NULL));
    c->n_nan = sc->n_nan;
    study_score(s, c);
    return OK;
}

/* --- cells --- */

/* Hidden states of the reference are kept for all cells, up to a quarter of what its weights
 * take: no more for a longer text. */
static Status open_reference(Study *s, Model *m)
{
    size_t room = m->n_bytes / 4;
    Scorer sc = {.model = m, .quant = model_run(m, (RunQuant){.bits = STUDY_EXACT_BITS}),
                 .batch_tokens = s->o.batch_tokens};
    if (s->reference.sc.model)
        return OK;
    return reference_open(&s->reference, &sc, s->o.text,
                          room > KEPT_BYTES ? room : KEPT_BYTES);
}

static Status run_text(Study *s, StudyCell *c, Scorer *sc)
{
    bool exact = is_exact(s, c);
    if (exact && s->given_text) {
        c->text = *s->given_text;
        return skip(sc, s->o.text->n_tokens);
    }
    if (!s->o.divergence)
        return perplexity_run_windows(&c->text, s->arena, sc, s->o.text);
    if (exact)
        return reference_run(&s->reference, &c->text, s->arena, sc);
    return divergence_run(&c->divergence, &c->text, s->arena, sc, &s->reference);
}

static Status run_cell(Study *s, int64_t weights, int64_t bits, Model *m)
{
    StudyCell *c = study_cell(s, weights, bits);
    RunQuant   quant = s->o.runs ? s->o.runs[weights] : (RunQuant){0};
    quant.bits = s->o.bits[bits];
    quant.scale = s->o.scale;
    Scorer sc = {
        .model = m,
        .quant = model_run(m, quant),
        .batch_tokens = s->o.batch_tokens,
        .progress = s->o.progress,
        .done = s->done,
        .total = s->total,
    };
    sc.what = arena_printf(s->arena, "%s, logits of %d bits", s->o.weights[weights],
                           s->o.bits[bits]);
    if (!sc.what)
        FAIL(ERR_MEMORY, "out of memory for a study");
    if (s->o.text)
        TRY(run_text(s, c, &sc));
    TRY(run_tasks(s, c, &sc));
    c->done = true;
    return s->o.folder ? study_save(s, weights, bits) : OK;
}

Status study_weights(Study *s, int64_t i, Model *m, Model *reference)
{
    if (s->o.divergence && !study_finished(s, i)) {
        CHECK(reference != NULL);
        TRY(open_reference(s, reference));
    }
    for (int64_t b = 0; b < s->o.n_bits; b++) {
        if (!study_cell(s, i, b)->done)
            TRY(run_cell(s, i, b, m));
        s->done += s->cell_tokens;
    }
    return OK;
}
