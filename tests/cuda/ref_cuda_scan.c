/* ref_cuda_scan.c - selective scans on the GPU. */
#include "tests/cuda/ref_cuda_scan.h"

#include <math.h>

#include "tests/kernels/ref_ops.h"

static void fill_rates(ScanCase *c)
{
    uint64_t seed = 9;
    for (int64_t i = 0; i < c->E * c->N; i++)
        both_values(&c->a)[i] = -(float)(1 + i % c->N) * (1 + 0.1f * check_uniform(&seed));
    for (int64_t i = 0; i < c->E; i++) {
        double delta = exp(log(1e-2) + log(10.0) * (double)check_uniform(&seed));
        both_values(&c->dt_bias)[i] = (float)log(expm1(delta));
    }
}

Status scan_case_send(ScanCase *c)
{
    Both *all[] = {&c->u, &c->dt, &c->bc, &c->a, &c->d, &c->dt_bias};
    for (int i = 0; i < 6; i++)
        TRY(both_send(c->be, all[i]));
    return OK;
}

Status scan_case_open(ScanCase *c, Backend *be, int64_t T, int64_t E, int64_t N)
{
    *c = (ScanCase){.be = be, .T = T, .E = E, .N = N};
    TRY(both_normal(be, &c->arena, &c->u, T, E, 1));
    TRY(both_normal(be, &c->arena, &c->dt, T, E, 2));
    TRY(both_normal(be, &c->arena, &c->bc, T, 2 * N, 3));
    TRY(both_normal(be, &c->arena, &c->y, T, E, 6));
    TRY(both_normal(be, &c->arena, &c->a, E, N, 7));
    TRY(both_normal(be, &c->arena, &c->d, 1, E, 4));
    TRY(both_normal(be, &c->arena, &c->dt_bias, 1, E, 5));
    fill_rates(c);
    return scan_case_send(c);
}

Scan scan_of(ScanCase *c, bool gpu)
{
    Tensor d = gpu ? c->d.gpu : c->d.host, bias = gpu ? c->dt_bias.gpu : c->dt_bias.host;
    return (Scan){.n_states = c->N, .a = gpu ? c->a.gpu : c->a.host, .d = ref_vector(&d),
                  .dt_bias = ref_vector(&bias)};
}

Status scan_to(ScanCase *c, Both *to, int64_t first, int64_t end, const Batch *batch,
               Tensor *state)
{
    Tensor  u = ref_part(&c->u.gpu, first, end), dt = ref_part(&c->dt.gpu, first, end);
    Tensor  bc = ref_part(&c->bc.gpu, first, end), y = ref_part(&to->gpu, first, end);
    Scan    s = scan_of(c, true);
    int32_t start[2] = {0, (int32_t)(end - first)};
    Batch   one = {1, start, (int64_t[]){0}};
    return op_scan(c->be, &y, &u, &dt, &bc, &s, batch ? batch : &one, state);
}

Status scan(ScanCase *c, int64_t first, int64_t end, Tensor *state)
{
    return scan_to(c, &c->y, first, end, NULL, state);
}
