/* logits.c - logits of a model for a list of token ids, as raw f32 [T,V]: what the
 * Python checks beside compare with other libraries. Inputs are rounded as the
 * checkpoint asks (W8A8).
 *   logits MODEL IDS.txt OUT.f32 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/probe.h"
#include "kernels/outfile.h"

enum { MOST = 4096 };

static int32_t read_ids(int32_t *ids, const char *path)
{
    FILE *f = fopen(path, "r");
    int   n = 0;
    while (f && n < MOST && fscanf(f, "%d", &ids[n]) == 1)
        n++;
    if (f)
        fclose(f);
    return n;
}

static Status run(const char *model, const int32_t *ids, int32_t T, const char *out)
{
    static Backend be;
    Arena          a = {0};
    Model          m;
    Tensor         hidden, logits;
    ModelOptions   o = {.dtype = DTYPE_F32};
    int32_t        start[2] = {0, T};
    int64_t        number = 0;
    Batch          batch = {1, start, &number};
    TRY(backend_open(&be, "cpu", 0));
    TRY(model_load(&m, &a, &be, model, &o));
    TRY(backend_tensor(&be, &hidden, 2, (int64_t[]){T, m.config.hidden}));
    TRY(backend_tensor(&be, &logits, 2, (int64_t[]){T, m.config.vocab}));
    TRY(model_forward(&m, &hidden, ids, &batch, m.run, NULL, NULL));
    TRY(op_linear(&be, &logits, &hidden, &m.head));
    TRY(outfile_save(&a, out, logits.data, tensor_bytes(&logits)));
    arena_close(&a);
    backend_close(&be);
    return OK;
}

int main(int argc, char **argv)
{
    static int32_t ids[MOST];
    if (argc != 4) {
        fprintf(stderr, "usage: logits MODEL IDS.txt OUT.f32\n");
        return 2;
    }
    int32_t T = read_ids(ids, argv[2]);
    if (T < 1 || run(argv[1], ids, T, argv[3]) != OK) {
        fprintf(stderr, "logits: %s\n", T < 1 ? "no ids" : status_text());
        return 1;
    }
    return 0;
}
