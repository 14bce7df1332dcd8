/* choice_shots.c - see choice_shots.h. Of lm-evaluation-harness 0.4.13: ContextSampler
 * (lm_eval/api/samplers.py), ConfigurableTask.fewshot_context and build_qa_turn. */
#include "analysis/tasks/choice_shots.h"

#include "analysis/textbuf.h"

/* A task with neither test split nor fewshot_split draws one example more and leaves out
 * the question, though its examples come from the training split: the harness compares
 * None with None. ARC and OpenBookQA have a test split and draw k. */
static bool draws_one_more(ChoiceKind k)
{
    return k != CHOICE_ARC && k != CHOICE_OPENBOOKQA;
}

static Status read_pool(ChoiceShots *s, Arena *a, ChoiceKind kind)
{
    ChoiceItem *pool;
    ChoiceKind  found;
    TRY(choice_items(&pool, &s->n, &found, a, s->path));
    if (found != kind)
        FAIL(ERR_FORMAT, "%s: examples of %s, expected those of %s", s->path,
             choice_kind_name(found), choice_kind_name(kind));
    s->pool = pool;
    return OK;
}

Status choice_shots_init(ChoiceShots *s, Arena *a, const char *path, const ChoiceItem *items,
                         int64_t n, ChoiceKind kind, const ChoiceOptions *o)
{
    *s = (ChoiceShots){.k = o->shots, .path = path, .pool = items, .n = n, .exclude = true};
    if (s->k == 0)
        return OK;
    if (o->shots_path) {
        s->path = o->shots_path;
        s->exclude = draws_one_more(kind);
        TRY(read_pool(s, a, kind));
    }
    if (s->k + s->exclude > s->n)
        FAIL(ERR_RANGE, "%s: %lld examples before each question are more than its %lld lines "
             "allow", s->path, (long long)s->k, (long long)s->n);
    ARENA_NEW(s->drawn, a, s->k + 1);
    pyrandom_seed(&s->random, o->seed);
    return OK;
}

/* drawn[0 .. k) of the pool without the items like `it`: the harness does this where
 * leaving those out of the first drawing left too few. */
static Status draw_others(ChoiceShots *s, const ChoiceItem *it)
{
    Arena    tmp = {0};
    Status   status = OK;
    int64_t  n = 0, *others = arena_alloc(&tmp, s->n, sizeof *others);
    if (!others)
        FAIL(ERR_MEMORY, "%s: out of memory for a drawing", s->path);
    for (int64_t i = 0; i < s->n; i++)
        if (!choice_item_same(&s->pool[i], it))
            others[n++] = i;
    if (n < s->k)
        status = STATUS(ERR_RANGE, "%s: %lld examples before each question are more than the "
                        "%lld lines that differ from it", s->path, (long long)s->k,
                        (long long)n);
    else
        status = pyrandom_sample(&s->random, s->drawn, s->k, n);
    for (int64_t i = 0; status == OK && i < s->k; i++)
        s->drawn[i] = others[s->drawn[i]];
    arena_close(&tmp);
    return status;
}

static Status draw(ChoiceShots *s, const ChoiceItem *it)
{
    int64_t kept = 0;
    TRY(pyrandom_sample(&s->random, s->drawn, s->k + s->exclude, s->n));
    if (!s->exclude)
        return OK;
    for (int64_t i = 0; i <= s->k; i++)
        if (!choice_item_same(&s->pool[s->drawn[i]], it))
            s->drawn[kept++] = s->drawn[i];
    return kept < s->k ? draw_others(s, it) : OK;
}

Status choice_shots_text(const char **out, Arena *a, ChoiceShots *s, const ChoiceItem *it)
{
    TextBuf b;
    *out = "";
    if (s->k == 0)
        return OK;
    TRY(draw(s, it));
    textbuf_init(&b, a);
    for (int64_t i = 0; i < s->k; i++) {
        const ChoiceItem *e = &s->pool[s->drawn[i]];
        textbuf_add(&b, e->context[e->gold]);
        textbuf_add(&b, CHOICE_DELIMITER);
        textbuf_add(&b, e->continuation[e->gold]);
        textbuf_add(&b, "\n\n");
    }
    *out = b.at;
    return textbuf_status(&b);
}
