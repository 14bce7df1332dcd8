/* test_valuemap.c - pairs of v heads, from the table and from real checkpoints: whole
 * models in turned coordinates run like the models as they are. */
#include "quant/methods/valuemap.h"

#include <math.h>
#include <string.h>

#include "analysis/calibrate.h"
#include "quant/methods/rotate.h"
#include "tests/check.h"

enum { TOKENS = 48 };

TEST(wide_heads_by_hand)
{
    /* four output heads of two maps, two to a pair: v heads j and j + 2 */
    static const int64_t GROUPED[8] = {0, 2, 0, 2, 1, 3, 1, 3};
    Arena    a = {0};
    ValueMap map = {.n_heads = 4, .n_parts = 2, .head_dim = 5, .n_values = 4, .head = GROUPED};
    T_STATUS_OK(valuemap_pair(&map, &a));
    T_OK(map.paired && map.n_wide == 2);
    T_OK(map.wide[0] == 0 && map.wide[1] == 2 && map.wide[2] == 1 && map.wide[3] == 3);
    /* swapped is another wide head: then no v head has one place */
    static const int64_t SWAPPED[4] = {0, 1, 1, 0};
    map = (ValueMap){.n_heads = 2, .n_parts = 2, .head_dim = 5, .n_values = 2, .head = SWAPPED};
    T_STATUS_OK(valuemap_pair(&map, &a));
    T_OK(!map.paired && map.n_wide == 2);
    /* one that nobody reads */
    map = (ValueMap){.n_heads = 2, .n_parts = 1, .head_dim = 5, .n_values = 3, .head = SWAPPED};
    T_STATUS_OK(valuemap_pair(&map, &a));
    T_OK(!map.paired);
    arena_close(&a);
}

typedef struct {
    Arena    a;
    Backend  be;
    Layers   l;
    ValueMap map;
    int64_t  C;
    float   *hidden[2];  // [TOKENS,C] as it is; in turned coordinates
} Pass;

/* Hidden states after all layers; with rotations, of the turned model. */
static Status run(Pass *p, const Rotation *r1, const Rotation *r2, float **out)
{
    static const int64_t START[3] = {0, 31, TOKENS};
    static int32_t       ids[TOKENS];
    Sequences            text = {.n = 2, .start = START, .ids = ids};
    Calibration          c;
    Model                m;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 37 + 11) % (int32_t)p->l.info.config.vocab;
    TRY(layers_model(&m, &p->a, &p->be, &p->l, DTYPE_F32));
    TRY(calibration_open(&c, &p->a, &m, &text));
    if (r1)
        TRY(rotate_embed(c.hidden, TOKENS, r1, &p->a));
    for (int64_t i = 0; i < p->l.info.config.n_layers; i++) {
        LayerWeights w;
        TRY(layers_read(&w, &p->a, &p->l, i));
        if (r1)
            TRY(rotate_layer(&w, &p->map, r1, r2, &p->a));
        TRY(layers_place(&m, &p->l, &w));
        TRY(calibration_advance(&c, i));
    }
    *out = c.hidden;
    return OK;
}

/* Largest difference of the two models' hidden states, over the largest; paired: what
 * the map is expected to say. */
static Status pass_error(double *out, Pass *p, const char *path, bool paired)
{
    Rotation r1, r2;
    double   error = 0, most = 0;
    TRY(backend_open(&p->be, "cpu", 1));
    TRY(layers_open(&p->l, &p->a, path));
    TRY(valuemap_of(&p->map, &p->a, &p->l));
    if (p->map.paired != paired)
        FAIL(ERR_FORMAT, "%s: paired is %d", path, p->map.paired);
    p->C = p->l.info.config.hidden;
    TRY(rotation_init(&r1, &p->a, p->C, 7));
    TRY(rotation_init(&r2, &p->a, p->map.head_dim * p->map.n_parts, rotate_seed(7, 0)));
    TRY(run(p, NULL, NULL, &p->hidden[0]));
    TRY(run(p, &r1, paired ? &r2 : NULL, &p->hidden[1]));
    TRY(rotation_rows(&r1, p->hidden[0], TOKENS, NULL, &p->a));
    for (int64_t i = 0; i < TOKENS * p->C; i++) {
        double a = (double)p->hidden[0][i], b = (double)p->hidden[1][i];
        error = isnan(a) || isnan(b) ? NAN : fmax(error, fabs(a - b));
        most = fmax(most, fabs(a));
        if (isnan(error))
            break;
    }
    *out = error / most;
    return OK;
}

TEST(turned_models_run_like_the_models)
{
    static const struct {
        const char *path;
        bool        paired;
    } MODELS[] = {
        {"golden/models/llama_gqa_three", true},  {"golden/models/llama_bias_gelu_tanh", true},
        {"golden/models/diff_mha", true},         {"golden/models/diff_bias_gelu", true},
        {"golden/models/diff_gqa", true},         {"golden/models/diff_gqa_six", true},
        {"golden/models/diff_d20", true},         {"golden/models/diff_wide", true},
        {"golden/models/diff_odd_kv", false},     {"golden/models/diff_mqa", false},
        {"pair/diff", true},                      {"pair/base", true},
    };
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        Pass   p = {0};
        double error = NAN;
        T_STATUS_OK(pass_error(&error, &p, check_path(MODELS[i].path), MODELS[i].paired));
        /* f32 sums in another order, through up to four layers */
        if (!(error <= 2e-5))
            check_fail(__FILE__, __LINE__, "%s: off by %g", MODELS[i].path, error);
        layers_close(&p.l);
        backend_close(&p.be);
        arena_close(&p.a);
    }
}
