/* choices.c - scores multiple-choice files as JSON, for compare_items.py.
 *   choices MODEL SHOTS FILE...
 * With SHOTS above 0, FILE x.jsonl takes its examples from x.train.jsonl beside it, as
 * the harness takes them with its own seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/choice.h"

enum { HARNESS_SEED = 1234 };

static void print_items(const Choice *c, const double *loglik, const uint8_t *greedy)
{
    for (int64_t i = 0; i < c->n; i++) {
        printf("%s[", i ? ",\n" : "");
        for (int64_t r = c->first[i]; r < c->first[i + 1]; r++)
            printf("%s[%.17g,%s]", r > c->first[i] ? "," : "", loglik[r],
                   greedy[r] ? "true" : "false");
        printf("]");
    }
}

static double mean(const uint8_t *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

static Status score(Arena *a, Model *m, Tokenizer *t, const char *path, int64_t shots)
{
    Choice        c;
    ChoiceOptions o = {.context = m->config.max_positions, .shots = shots,
                       .seed = HARNESS_SEED};
    Scorer        sc = {.model = m, .quant.bits = 16};
    double       *loglik;
    uint8_t      *greedy, *acc, *norm;
    if (shots)
        o.shots_path = arena_printf(a, "%.*s.train.jsonl", (int)strlen(path) - 6, path);
    TRY(choice_load(&c, a, t, path, &o));
    ARENA_NEW(loglik, a, c.n_requests);
    ARENA_NEW(greedy, a, c.n_requests);
    ARENA_NEW(acc, a, c.n);
    ARENA_NEW(norm, a, c.n);
    TRY(choice_run(&c, &sc, loglik, greedy));
    choice_correct(acc, norm, &c, loglik);
    printf("\"%s\": {\"acc\": %.17g, \"truncated\": %lld,\n", c.name, mean(acc, c.n),
           (long long)c.n_truncated);
    if (c.has_norm)
        printf("\"acc_norm\": %.17g,\n", mean(norm, c.n));
    printf("\"items\": [");
    print_items(&c, loglik, greedy);
    printf("],\n\"correct\": [");
    for (int64_t i = 0; i < c.n; i++)
        printf("%s[%d,%d]", i ? "," : "", acc[i], norm[i]);
    printf("]}");
    return OK;
}

static Status run(const char *model, int64_t shots, char **files, int n)
{
    static Backend be;
    Arena          a = {0};
    Model          m;
    ModelOptions   o = {.dtype = DTYPE_F32};
    Tokenizer     *t;
    TRY(backend_open(&be, "cpu", 0));
    TRY(model_load(&m, &a, &be, model, &o));
    TRY(tokenizer_open(&t, &a, model));
    printf("{\"shots\": %lld, \"tasks\": {\n", (long long)shots);
    for (int i = 0; i < n; i++) {
        printf("%s", i ? ",\n" : "");
        TRY(score(&a, &m, t, files[i], shots));
    }
    printf("}}\n");
    tokenizer_close(t);
    arena_close(&a);
    backend_close(&be);
    return OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: choices MODEL SHOTS FILE...\n");
        return 2;
    }
    if (run(argv[1], atoi(argv[2]), argv + 3, argc - 3) != OK) {
        fprintf(stderr, "choices: %s\n", status_text());
        return 1;
    }
    return 0;
}
