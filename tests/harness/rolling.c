/* rolling.c - perplexity of texts by lm-evaluation-harness's rolling windows, as JSON, for
 * run_rolling.py.
 *   rolling MODEL TEXT... */
#include <stdio.h>

#include "analysis/perplexity.h"
#include "kernels/filemap.h"

static Status score(Arena *a, Model *m, Tokenizer *t, const char *path)
{
    Status        s = OK;
    FileMap       map = {0};
    Windows       w;
    Perplexity    p;
    Scorer        sc = {.model = m, .quant.bits = 16};
    WindowOptions o = {.context = m->config.max_positions, .convention = WINDOWS_LM_EVAL};
    GUARD(filemap_open(&map, path));
    GUARD(windows_from_text(&w, a, t, path, (const char *)map.data, map.size, &o));
    GUARD(perplexity_run(&p, &sc, &w));
    printf("{\"word_perplexity\": %.17g, \"byte_perplexity\": %.17g, \"bits_per_byte\": %.17g}",
           p.word_perplexity, p.byte_perplexity, p.bits_per_byte);
out:
    filemap_close(&map);
    return s;
}

static Status run(const char *model, char **files, int n)
{
    static Backend be;
    Arena          a = {0};
    Model          m;
    ModelOptions   o = {.dtype = DTYPE_F32};
    Tokenizer     *t;
    TRY(backend_open(&be, "cpu", 0));
    TRY(model_load(&m, &a, &be, model, &o));
    TRY(tokenizer_open(&t, &a, model));
    for (int i = 0; i < n; i++) {
        printf("%s", i ? ",\n" : "[");
        TRY(score(&a, &m, t, files[i]));
    }
    printf("]\n");
    tokenizer_close(t);
    arena_close(&a);
    backend_close(&be);
    return OK;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: rolling MODEL TEXT...\n");
        return 2;
    }
    if (run(argv[1], argv + 2, argc - 2) != OK) {
        fprintf(stderr, "rolling: %s\n", status_text());
        return 1;
    }
    return 0;
}
