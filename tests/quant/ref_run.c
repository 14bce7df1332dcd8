/* ref_run.c - see ref_run.h. */
#include "tests/quant/ref_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

enum { TOKENS = REF_RUN_TOKENS, VOCAB = REF_RUN_VOCAB };

void ref_run_text(RefRun *f, int64_t n, int64_t length)
{
    uint64_t seed = 77;
    int64_t *start = arena_alloc(&f->arena, n + 1, sizeof *start);
    int32_t *ids = arena_alloc(&f->arena, n * length, sizeof *ids);
    for (int64_t i = 0; i <= n; i++)
        start[i] = i * length;
    for (int64_t i = 0; i < n * length; i++)
        ids[i] = (int32_t)((1 + (double)check_uniform(&seed)) / 2 * VOCAB);
    f->text = (Sequences){.n = n, .start = start, .ids = ids};
}

void ref_run_calibrate(RefRun *f)
{
    f->o.text = &f->text;
    f->o.text_name = "random";
}

/* Some have no config: what their folders are called tells the layout. */
static void find_model(RefRun *f, const char *model)
{
    char config[700];
    snprintf(f->model, sizeof f->model, "%s/%s",
             check_path(strchr(model, '/') ? "golden" : "golden/models"), model);
    snprintf(config, sizeof config, "%s/config.json", f->model);
    if (access(config, F_OK) != 0)
        snprintf(f->model, sizeof f->model, "unilm@%s/%s", check_path("golden"), model);
}

Status ref_run_open(RefRun *f, const char *model, Scheme scheme)
{
    *f = (RefRun){0};
    TRY(backend_open(&f->be, "cpu", 2));
    ref_run_text(f, 8, 38);
    find_model(f, model);
    snprintf(f->out, sizeof f->out, "%s/out", check_tmp());
    f->o = (QuantizeOptions){.model = f->model, .out = f->out, .format = "compressed-tensors",
                             .scheme = scheme, .dtype = DTYPE_F32, .overwrite = true,
                             .backend = &f->be};
    return OK;
}

void ref_run_close(RefRun *f)
{
    backend_close(&f->be);
    arena_close(&f->arena);
}

Scheme ref_scheme(int bits, int group, bool asym, Method method)
{
    return (Scheme){.bits = bits, .group = group, .asym = asym, .scale = DTYPE_F32,
                    .method = method};
}

Status ref_run_logits(float **out, RefRun *f, const char *path, WeightEdit edit, void *plan)
{
    ModelOptions o = {.dtype = DTYPE_F32, .edit = edit, .edit_context = plan};
    Model        m;
    Tensor       hidden, logits;
    int32_t      ids[TOKENS], start[3] = {0, TOKENS / 2, TOKENS};
    int64_t      numbers[2] = {0, 1};
    Batch        batch = {2, start, numbers};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)(i * 37 % VOCAB);
    TRY(model_load(&m, &f->arena, &f->be, path, &o));
    TRY(backend_tensor(&f->be, &hidden, 2, (int64_t[]){TOKENS, m.config.hidden}));
    TRY(backend_tensor(&f->be, &logits, 2, (int64_t[]){TOKENS, m.config.vocab}));
    TRY(model_forward(&m, &hidden, ids, &batch, (RunQuant){.bits = 16}, NULL, NULL));
    TRY(op_linear(&f->be, &logits, &hidden, &m.head));
    *out = logits.data;
    return OK;
}

double ref_run_difference(const float *a, const float *b)
{
    double most = 0, worst = 0;
    for (int i = 0; i < TOKENS * VOCAB; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = fmax(most, fabs((double)a[i]));
        worst = d <= worst ? worst : d == d ? d : INFINITY;
    }
    return worst / most;
}

double ref_run_loss(const float *a, const float *b)
{
    double error = 0, sum = 0;
    for (int i = 0; i < TOKENS * VOCAB; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        sum += (double)a[i] * (double)a[i];
    }
    return isfinite(error) && sum > 0 ? sqrt(error / sum) : INFINITY;
}
