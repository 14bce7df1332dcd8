/* quant_match.c - targets and exceptions of compressed-tensors against module names:
 * a name itself, "re:" and a pattern of Python's re.match (it must begin where the
 * name does, and may end before), or the module's class. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "analysis/model/quant_config.h"

#include <string.h>

struct QuantPattern {
    const char       *text;
    pcre2_code       *code;   // NULL: no pattern but a name
    pcre2_match_data *match;
    const QuantGroup *group;  // NULL: ignored
};

static Status compile(QuantPattern *p, const char *path)
{
    int        error;
    PCRE2_SIZE place;
    if (strncmp(p->text, "re:", 3) != 0)
        return OK;
    p->code = pcre2_compile((PCRE2_SPTR)(p->text + 3), PCRE2_ZERO_TERMINATED,
                            PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
                            &place, NULL);
    if (!p->code) {
        char why[256];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        FAIL(ERR_FORMAT, "%s: quantization_config: pattern \"%.200s\": %s", path, p->text, why);
    }
    p->match = pcre2_match_data_create(1, NULL);
    if (!p->match)
        FAIL(ERR_MEMORY, "out of memory: pattern \"%.200s\"", p->text);
    return OK;
}

static Status add_patterns(QuantMatcher *m, const Json *texts, const QuantGroup *group,
                           const char *path)
{
    for (int64_t i = 0; texts && i < texts->n; i++) {
        m->patterns[m->n] = (QuantPattern){.text = texts->at[i].text, .group = group};
        TRY(compile(&m->patterns[m->n++], path));
    }
    return OK;
}

static Status open_all(QuantMatcher *m, const QuantConfig *q, const char *path)
{
    TRY(add_patterns(m, q->ignore, NULL, path));
    for (int64_t i = 0; i < q->n_groups; i++)
        TRY(add_patterns(m, q->groups[i].targets, &q->groups[i], path));
    return OK;
}

Status quant_match_open(QuantMatcher *m, Arena *a, const QuantConfig *q, const char *path)
{
    int64_t room = q->ignore ? q->ignore->n : 0;
    *m = (QuantMatcher){0};
    for (int64_t i = 0; i < q->n_groups; i++)
        room += q->groups[i].targets->n;
    ARENA_NEW(m->patterns, a, room);
    Status s = open_all(m, q, path);
    if (s != OK)
        quant_match_close(m);
    return s;
}

void quant_match_close(QuantMatcher *m)
{
    for (int64_t i = 0; i < m->n; i++) {
        pcre2_match_data_free(m->patterns[i].match);
        pcre2_code_free(m->patterns[i].code);
    }
    *m = (QuantMatcher){0};
}

enum { RANK_NAME, RANK_PATTERN, RANK_CLASS, RANK_NONE };

static Status rank_of(int *rank, const QuantPattern *p, const char *module, const char *kind)
{
    *rank = strcmp(p->text, module) == 0 ? RANK_NAME
            : strcmp(p->text, kind) == 0 ? RANK_CLASS
                                         : RANK_NONE;
    if (!p->code)
        return OK;
    int found = pcre2_match(p->code, (PCRE2_SPTR)module, strlen(module), 0, 0, p->match, NULL);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
        char why[256];
        pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
        FAIL(ERR_RANGE, "quantization_config: pattern \"%.200s\" failed on %.200s: %s", p->text,
             module, why);
    }
    *rank = found < 0 ? RANK_NONE : RANK_PATTERN;
    return OK;
}

Status quant_match(const QuantGroup **out, const QuantMatcher *m, const char *module,
                   const char *kind)
{
    const QuantPattern *best = NULL;
    int                 best_rank = RANK_NONE;
    *out = NULL;
    for (const QuantPattern *p = m->patterns; p < m->patterns + m->n; p++) {
        int rank;
        TRY(rank_of(&rank, p, module, kind));
        if (rank != RANK_NONE && !p->group)
            return OK;
        /* Of several of a rank the first by byte order counts; of the same text in two
         * groups the later, as in a Python dict. */
        if (rank < best_rank || (rank == best_rank && rank != RANK_NONE &&
                                 strcmp(p->text, best->text) <= 0)) {
            best = p;
            best_rank = rank;
        }
    }
    *out = best ? best->group : NULL;
    return OK;
}
