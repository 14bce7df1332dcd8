/* test_packed.c - matrices of few bits against what the packages that write them make of
 * them (golden/make_packed_golden.py), to the bit. */
#include "analysis/model/packed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/model/packed_join.h"
#include "analysis/model/source.h"
#include "kernels/half.h"
#include "tests/analysis/ref_checkpoint.h"
#include "tests/analysis/ref_packed.h"
#include "tests/check.h"

static const char *const LOOSE[] = {"compressed",     "gptq_4_v1",    "gptq_4_asym_v1",
                                    "gptq_4_asym_v2", "gptq_8_order", "gptq_4_row",
                                    "gptq_3_v1",      "gptq_2_short"};
enum { N_LOOSE = sizeof LOOSE / sizeof *LOOSE };

/* A folder of loose matrices. */
typedef struct {
    Arena       arena;
    Checkpoint  checkpoint;
    QuantConfig q;
} Loose;

static Status open_parts(Loose *l, const char *folder)
{
    const Json *root;
    char       *config = arena_printf(&l->arena, "%s/config.json", folder);
    if (!config)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    TRY(json_read(&root, &l->arena, config));
    TRY(quant_config_read(&l->q, &l->arena, json_member(root, "quantization_config"), config));
    TRY(checkpoint_open(&l->checkpoint, &l->arena, folder));
    return packed_join(&l->checkpoint, &l->arena, &l->q, folder, config);
}

static void loose_close(Loose *l)
{
    checkpoint_close(&l->checkpoint);
    arena_close(&l->arena);
}

/* Opens, reads every matrix whole, both ways, and closes where it fails. */
static Status loose_open(Loose *l, const char *folder)
{
    Status s;
    *l = (Loose){0};
    GUARD(open_parts(l, folder));
    for (int64_t i = 0; i < l->checkpoint.n; i++) {
        const Packed *p = l->checkpoint.tensors[i].packed;
        Codes         codes;
        float        *w;
        if (!p)
            continue;
        GUARD(packed_check(p, folder));
        w = arena_alloc(&l->arena, p->n * p->k, sizeof *w);
        if (!w)
            GUARD(STATUS(ERR_MEMORY, "out of memory: a test's matrix"));
        packed_rows(w, p, 0, p->n);
        if (packed_has_codes(p))
            GUARD(packed_codes(&codes, &l->arena, p));
    }
out:
    if (s != OK)
        loose_close(l);
    return s;
}

static const char *golden(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "golden/packed/%s", name);
    return check_path(path);
}

static const ModelTensor *loose_find(const Loose *l, const char *name)
{
    const ModelTensor *t = checkpoint_find(&l->checkpoint, name);
    if (!t)
        fprintf(stderr, "no tensor %s\n", name);
    return t;
}

/* x as the package has it: its numbers are rounded to the dtype of the scales. */
static bool same_as(const Tensor *want, int64_t i, float x)
{
    uint16_t half;
    float    single;
    if (want->dtype == DTYPE_F32) {
        memcpy(&single, (const char *)want->data + 4 * i, sizeof single);
        return single == x;
    }
    memcpy(&half, (const char *)want->data + 2 * i, sizeof half);
    single = want->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
    return single == (want->dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(x)) : bf16_round(x));
}

TEST(packed_numbers_are_those_of_the_packages)
{
    for (int f = 0; f < N_LOOSE; f++) {
        Loose       l;
        SafeTensors want;
        char        path[128];
        snprintf(path, sizeof path, "golden/packed/%s/decoded.safetensors", LOOSE[f]);
        T_STATUS_OK(loose_open(&l, golden(LOOSE[f])));
        T_STATUS_OK(safetensors_open(&want, &l.arena, check_path(path)));
        for (int64_t i = 0; i < want.n; i++) {
            const Tensor      *w = &want.tensors[i].view;
            const ModelTensor *t = loose_find(&l, want.tensors[i].name);
            T_OK(t && t->packed && !t->view.data);
            T_OK(t->view.shape[0] == w->shape[0] && t->view.shape[1] == w->shape[1]);
            int64_t n = tensor_count(w);
            float  *x = malloc((size_t)n * sizeof *x);
            packed_rows(x, t->packed, 0, t->packed->n);
            for (int64_t k = 0; k < n; k++)
                if (!same_as(w, k, x[k])) {
                    check_fail(__FILE__, __LINE__, "%s %s[%lld] is %.9g", LOOSE[f], t->name,
                               (long long)k, (double)x[k]);
                    break;
                }
            free(x);
        }
        safetensors_close(&want);
        loose_close(&l);
    }
}

/* Any rows alone are as among all. */
TEST(packed_rows_from_anywhere)
{
    for (int f = 0; f < N_LOOSE; f++) {
        Loose l;
        T_STATUS_OK(loose_open(&l, golden(LOOSE[f])));
        for (int64_t i = 0; i < l.checkpoint.n; i++) {
            const Packed *p = l.checkpoint.tensors[i].packed;
            if (!p)
                continue;
            float *all = malloc((size_t)(p->n * p->k) * sizeof *all);
            float *part = malloc((size_t)(p->n * p->k + 1) * sizeof *part);
            packed_rows(all, p, 0, p->n);
            for (int64_t first = 0; first < p->n; first += 3) {
                int64_t n = p->n - first < 17 ? p->n - first : 17;
                part[n * p->k] = 12345;
                packed_rows(part, p, first, n);
                T_OK(memcmp(part, all + first * p->k, (size_t)(n * p->k) * sizeof *all) == 0);
                T_OK(part[n * p->k] == 12345);
            }
            free(all);
            free(part);
        }
        loose_close(&l);
    }
}

/* More groups than are looked up at once, in an order of their own. */
TEST(packed_rows_of_many_groups)
{
    enum { N = 3, K = 300 };
    int8_t  codes[N * K];
    float   scales[N * K], out[N * K];
    int32_t index[K];
    for (int i = 0; i < N * K; i++) {
        codes[i] = (int8_t)(i % 255 - 127);
        scales[i] = 0.5f + (float)i;
    }
    for (int k = 0; k < K; k++)
        index[k] = (7 * k + 1) % K;
    ModelTensor s = {.view = tensor_2d(DTYPE_F32, scales, N, K)};
    ModelTensor g = {.view = tensor_1d(DTYPE_I32, index, K)};
    Packed p = {.kind = PACKED_BYTES, .n = N, .k = K, .data = codes, .bits = 8, .group = 1,
                .n_groups = K, .scales = &s, .index = &g};
    packed_rows(out, &p, 0, N);
    for (int i = 0; i < N * K; i++)
        T_NEAR(out[i], scales[i / K * K + index[i % K]] * (float)codes[i], 0.0);
}

/* --- codes --- */

/* Largest difference of codes and numbers, over the largest number. */
static double codes_error(const Codes *c, const float *w)
{
    double  most = 0, error = 0;
    int64_t G = c->k / c->group;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t k = 0; k < c->k; k++) {
            int64_t at = n * G + k / c->group, to = c->order ? c->order[k] : k;
            float   x = c->scales[at] * (float)c->codes[n * c->k + k];
            x += c->offsets ? c->offsets[at] : 0;
            most = fmax(most, fabs((double)w[n * c->k + to]));
            error = fmax(error, fabs((double)x - (double)w[n * c->k + to]));
        }
    return error / most;
}

TEST(packed_codes_are_the_same_numbers)
{
    int seen = 0;
    for (int f = 0; f < N_LOOSE; f++) {
        Loose l;
        T_STATUS_OK(loose_open(&l, golden(LOOSE[f])));
        for (int64_t i = 0; i < l.checkpoint.n; i++) {
            const ModelTensor *t = &l.checkpoint.tensors[i];
            const Packed      *p = t->packed;
            Codes              c;
            if (!p || !packed_has_codes(p))
                continue;
            T_STATUS_OK(packed_codes(&c, &l.arena, p));
            bool uneven = strcmp(t->name, "m.uneven.weight") == 0;
            T_OK(!c.codes == uneven);
            if (uneven)
                continue;
            seen++;
            T_OK(c.n == p->n && c.k == p->k && c.group == p->group);
            T_OK(c.bits >= p->bits && c.bits < p->bits + 3 && c.bits % 2 == 0);
            T_OK(!c.order == !p->index);
            T_OK(!c.offsets == p->symmetric);
            for (int64_t k = 0; k < c.n * c.k; k++)
                T_OK(c.codes[k] >= -(1 << (c.bits - 1)) && c.codes[k] < 1 << (c.bits - 1));
            float *w = malloc((size_t)(p->n * p->k) * sizeof *w);
            packed_rows(w, p, 0, p->n);
            /* Scales of 16 bits: exact. Else code and zero point are multiplied apart and
             * rounded, each up to 2^8 scales large, as is the difference at most. */
            double tolerance = t->view.dtype == DTYPE_F32 && c.offsets ? 3 * 0x1p-24 : 0;
            T_NEAR(codes_error(&c, w), 0, tolerance);
            free(w);
        }
        loose_close(&l);
    }
    T_OK(seen == 26);
}

TEST(packed_groups_that_products_do_not_take)
{
    Loose l;
    T_STATUS_OK(loose_open(&l, golden("compressed")));
    T_OK(!packed_has_codes(loose_find(&l, "m.n6_group8.weight")->packed));
    T_OK(packed_has_codes(loose_find(&l, "m.n4_group16_asym.weight")->packed));
    T_OK(packed_has_codes(loose_find(&l, "m.p7_channel.weight")->packed));
    loose_close(&l);
    T_STATUS_OK(loose_open(&l, golden("gptq_2_short")));
    T_OK(!packed_has_codes(loose_find(&l, "m.x.weight")->packed));
    loose_close(&l);
}

static Status edited_open(Loose *l, const char *name, const char *from, const char *to)
{
    PackedEdit edit = {KEEP_ALL, 0, 0, from, to};
    ref_packed_write(ref_path("edited"), name, &edit);
    return loose_open(l, ref_path("edited"));
}

/* A group larger than a row is the row. */
TEST(packed_gptq_of_short_rows)
{
    Loose l;
    T_STATUS_OK(edited_open(&l, "gptq_4_row", "\"group_size\": -1", "\"group_size\": 128"));
    const Packed *p = loose_find(&l, "m.x.weight")->packed;
    T_OK(p->group == 64 && p->n_groups == 1 && packed_has_codes(p));
    loose_close(&l);
}

/* gptqmodel's "dynamic" gives some modules other bits and groups: shapes tell which. */
TEST(packed_gptq_with_exceptions)
{
    Loose l;
    T_STATUS_OK(edited_open(&l, "gptq_8_order", "\"bits\": 8,\n  \"group_size\": 16",
                            "\"bits\": 4, \"dynamic\": {\"+:m\": {\"bits\": 8}}, "
                            "\"group_size\": 128"));
    const Packed *p = loose_find(&l, "m.x.weight")->packed;
    T_OK(p->bits == 8 && p->group == 16 && p->k == 96 && p->index);
    loose_close(&l);
}

/* --- what inspect says --- */

TEST(packed_formats_in_words)
{
    static const char *const ROWS[][2] = {
        {"m.p4_group32.weight", "4-bit g32"},     {"m.p4_channel_asym.weight",
                                                   "4-bit channel asym"},
        {"m.p4_tensor.weight", "4-bit tensor"},   {"m.padded6.weight", "6-bit g32 asym"},
        {"m.i8_channel.weight", "8-bit channel"}, {"m.plain.weight", "F32"}};
    char  text[MODEL_FORMAT];
    Loose l;
    T_STATUS_OK(loose_open(&l, golden("compressed")));
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        T_TEXT(model_tensor_format(loose_find(&l, ROWS[i][0]), text), ROWS[i][1]);
    /* words, scales, shape; words, zero points, scales, shape; codes, scales; as it is */
    T_OK(model_tensor_bytes(loose_find(&l, ROWS[0][0])) == 24 * 12 * 4 + 24 * 3 * 2 + 16);
    T_OK(model_tensor_bytes(loose_find(&l, ROWS[1][0])) == 9 * 6 * 4 + 2 * 4 + 9 * 2 + 16);
    T_OK(model_tensor_bytes(loose_find(&l, ROWS[4][0])) == 12 * 40 + 12 * 2);
    T_OK(model_tensor_bytes(loose_find(&l, ROWS[5][0])) == 3 * 5 * 4);
    T_TEXT(l.q.summary, "compressed-tensors, mixed-precision");
    loose_close(&l);
    T_STATUS_OK(loose_open(&l, golden("gptq_8_order")));
    T_TEXT(model_tensor_format(loose_find(&l, "m.x.weight"), text), "8-bit g16 asym");
    T_OK(model_tensor_bytes(loose_find(&l, "m.x.weight")) ==
         24 * 32 * 4 + 6 * 8 * 4 + 6 * 32 * 2 + 96 * 4);
    T_TEXT(l.q.summary, "GPTQ, gptq_v2");
    loose_close(&l);
}

/* --- bad input --- */

#define CT "compressed"
#define V1 "gptq_4_v1"
#define ORDER "gptq_8_order"

static const struct {
    const char *folder;
    PackedEdit  edit;
    Status      code;
    const char *sentence;
} BAD[] = {
    /* parts */
    {CT, {DROP, "m.p4_group32.weight_scale", 0, 0, 0}, ERR_FORMAT,
     "bad/model.safetensors: tensor m.p4_group32.weight_packed needs m.p4_group32.weight_scale, "
     "which is missing"},
    {CT, {DROP, "m.p4_group32.weight_shape", 0, 0, 0}, ERR_FORMAT,
     "tensor m.p4_group32.weight_packed needs m.p4_group32.weight_shape, which is missing"},
    {CT, {DROP, "m.p4_group32_asym.weight_zero_point", 0, 0, 0}, ERR_FORMAT,
     "needs m.p4_group32_asym.weight_zero_point, which is missing"},
    {CT, {DROP, "m.indexed.weight_g_idx", 0, 0, 0}, ERR_FORMAT,
     "needs m.indexed.weight_g_idx, which is missing"},
    {CT, {DROP, "m.p4_group32.weight_packed", 0, 0, 0}, ERR_FORMAT,
     "tensor m.p4_group32.weight_scale belongs to no matrix: weight_packed or an I8 weight is "
     "missing beside it"},
    {CT, {DROP, "m.i8_channel.weight", 0, 0, 0}, ERR_FORMAT,
     "tensor m.i8_channel.weight_scale belongs to no matrix"},
    {CT, {RENAME, "m.p4_tensor.weight_packed", "m.other.weight_packed", 0, 0}, ERR_FORMAT,
     "tensor m.other.weight_packed, but"},
    {CT, {ADD, 0, "m.p4_group32.weight", 0, 0}, OK, ""},  // a vector of that name: see below
    {V1, {DROP, "m.x.scales", 0, 0, 0}, ERR_FORMAT,
     "tensor m.x.qweight needs m.x.scales, which is missing"},
    {V1, {DROP, "m.x.qzeros", 0, 0, 0}, ERR_FORMAT,
     "tensor m.x.qweight needs m.x.qzeros, which is missing"},
    {V1, {DROP, "m.x.qweight", 0, 0, 0}, ERR_FORMAT,
     "tensor m.x.g_idx belongs to no matrix: qweight is missing beside it"},
    {ORDER, {DROP, "m.x.g_idx", 0, 0, 0}, ERR_FORMAT,
     "tensor m.x.qweight needs m.x.g_idx, which is missing"},
    {V1, {DROP, "m.x.g_idx", 0, 0, 0}, OK, ""},
    /* dtypes */
    {CT, {DTYPE, "m.p4_group32.weight_packed", "F32", 0, 0}, ERR_UNSUPPORTED,
     "tensor m.p4_group32.weight_packed is F32, expected I32"},
    {CT, {DTYPE, "m.p4_group32.weight_scale", "I16", 0, 0}, ERR_UNSUPPORTED,
     "tensor m.p4_group32.weight_scale is I16, expected F32, F16 or BF16"},
    {CT, {DTYPE, "m.p4_group32.weight_shape", "I32", 0, 0}, ERR_UNSUPPORTED,
     "tensor m.p4_group32.weight_shape is I32, expected I64"},
    {CT, {DTYPE, "m.p4_group32_asym.weight_zero_point", "F32", 0, 0}, ERR_UNSUPPORTED,
     "tensor m.p4_group32_asym.weight_zero_point is F32, expected I32"},
    {CT, {DTYPE, "m.n8_channel_asym.weight_zero_point", "U8", 0, 0}, ERR_UNSUPPORTED,
     "tensor m.n8_channel_asym.weight_zero_point is U8, expected I8"},
    {CT, {DTYPE, "m.indexed.weight_g_idx", "U32", 0, 0}, ERR_UNSUPPORTED,
     "tensor m.indexed.weight_g_idx is U32, expected I32"},
    {CT, {DTYPE, "m.i8_channel.weight", "F32", 0, 0}, ERR_FORMAT,
     "tensor m.i8_channel.weight is F32, but group_13 of"},
    {V1, {DTYPE, "m.x.qweight", "F32", 0, 0}, ERR_UNSUPPORTED, "m.x.qweight is F32, expected I32"},
    {V1, {DTYPE, "m.x.scales", "I16", 0, 0}, ERR_UNSUPPORTED,
     "m.x.scales is I16, expected F32, F16 or BF16"},
    {V1, {DTYPE, "m.x.qzeros", "F32", 0, 0}, ERR_UNSUPPORTED, "m.x.qzeros is F32, expected I32"},
    {V1, {DTYPE, "m.x.g_idx", "F32", 0, 0}, ERR_UNSUPPORTED, "m.x.g_idx is F32, expected I32"},
    /* shapes */
    {CT, {SHAPE, "m.p4_group32.weight_packed", "24,11", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32.weight_packed has shape [24,11], expected [24,12]"},
    {CT, {SHAPE, "m.p6_group32.weight_packed", "24,19", 0, 0}, ERR_SHAPE,
     "tensor m.p6_group32.weight_packed has shape [24,19], expected [24,18]"},
    {CT, {SHAPE, "m.p4_group32.weight_packed", "288", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32.weight_packed has shape [288], expected"},
    {CT, {SHAPE, "m.p4_group32.weight_packed", "25,12", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32.weight_shape is 24, 96, expected 25 rows as m.p4_group32."
     "weight_packed has"},
    {CT, {FILL, "m.p4_group32.weight_shape", "ffffffffffffffff", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32.weight_shape is -1, -1, expected 24 rows"},
    {CT, {FILL, "m.p4_group32.weight_shape", "1800000000000000ffffffffffffff7f", 0, 0},
     ERR_SHAPE, "m.p4_group32.weight_shape is 24, 9223372036854775807, expected"},
    {CT, {SHAPE, "m.p4_group32.weight_shape", "3", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32.weight_shape has shape [3], expected [2]"},
    {CT, {SHAPE, "m.p4_group32.weight_scale", "24,1", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32.weight_scale has shape [24,1], expected [24,3]"},
    {CT, {SHAPE, "m.p4_channel.weight_scale", "17", 0, 0}, ERR_SHAPE,
     "tensor m.p4_channel.weight_scale has shape [17], expected [17,1]"},
    {CT, {SHAPE, "m.p4_tensor.weight_scale", "5,1", 0, 0}, ERR_SHAPE,
     "tensor m.p4_tensor.weight_scale has shape [5,1], expected [1]"},
    {CT, {SHAPE, "m.p4_tensor.weight_scale", "1,1", 0, 0}, OK, ""},
    {CT, {SHAPE, "m.p4_group32_asym.weight_zero_point", "21,3", 0, 0}, ERR_SHAPE,
     "tensor m.p4_group32_asym.weight_zero_point has shape [21,3], expected [3,3]"},
    {CT, {SHAPE, "m.padded6.weight_zero_point", "4,3", 0, 0}, ERR_SHAPE,
     "tensor m.padded6.weight_zero_point has shape [4,3], expected [5,3]"},
    {CT, {SHAPE, "m.indexed.weight_g_idx", "63", 0, 0}, ERR_SHAPE,
     "tensor m.indexed.weight_g_idx has shape [63], expected [64]"},
    {CT, {SHAPE, "m.i8_channel.weight", "12,40,1", 0, 0}, ERR_SHAPE,
     "tensor m.i8_channel.weight has shape [12,40,1], expected"},
    {CT, {SHAPE, "m.n6_group8.weight", "10,41", 0, 0}, ERR_SHAPE,
     "tensor m.n6_group8.weight has rows of 41 weights, expected a multiple of group_size, 8"},
    {CT, {SHAPE, "m.n6_group8.weight", "10,0", 0, 0}, ERR_SHAPE, "has rows of 0 weights"},
    {V1, {SHAPE, "m.x.qweight", "11,32", 0, 0}, ERR_SHAPE,
     "tensor m.x.qweight has shape [11,32], expected [12,32]"},
    {V1, {SHAPE, "m.x.qweight", "384", 0, 0}, ERR_SHAPE, "m.x.qweight has shape [384], expected"},
    {V1, {SHAPE, "m.x.qweight", "0,32", 0, 0}, ERR_SHAPE, "m.x.qweight has shape [0,32]"},
    {V1, {SHAPE, "m.x.scales", "2,32", 0, 0}, ERR_SHAPE,
     "tensor m.x.scales has shape [2,32], expected [3,32]"},
    {V1, {SHAPE, "m.x.qzeros", "3,3", 0, 0}, ERR_SHAPE,
     "tensor m.x.qzeros has shape [3,3], expected [3,4]"},
    {V1, {SHAPE, "m.x.g_idx", "0", 0, 0}, ERR_SHAPE, "m.x.g_idx has 0 inputs, expected 1 to"},
    {V1, {SHAPE, "m.x.g_idx", "96,1", 0, 0}, ERR_SHAPE, "m.x.g_idx has shape [96,1], expected"},
    /* values */
    {CT, {FILL, "m.p4_channel.weight_scale", "0000c07f", 0, 0}, ERR_RANGE,
     "tensor m.p4_channel.weight_scale[0,0] is nan, expected a number whose products with codes "
     "are finite"},
    {CT, {FILL, "m.p4_channel.weight_scale", "000000000000807f", 0, 0}, ERR_RANGE,
     "tensor m.p4_channel.weight_scale[1,0] is inf"},
    {CT, {FILL, "m.p4_tensor.weight_scale", "807f", 0, 0}, ERR_RANGE,
     "tensor m.p4_tensor.weight_scale[0] is "},
    {CT, {FILL, "m.p4_channel.weight_scale", "0000007f", 0, 0}, ERR_RANGE,
     "tensor m.p4_channel.weight_scale[0,0] is 1.70141e+38"},
    {CT, {FILL, "m.p4_channel.weight_scale", "00000080", 0, 0}, OK, ""},
    {CT, {FILL, "m.n6_group8.weight", "1fe020", 0, 0}, ERR_RANGE,
     "tensor m.n6_group8.weight[0,2] is 32, expected a code of 6 bits, -32 to 31"},
    {V1, {FILL, "m.x.scales", "003c007c", 0, 0}, ERR_RANGE, "tensor m.x.scales[0,1] is inf"},
    {V1, {FILL, "m.x.g_idx", "03000000", 0, 0}, ERR_RANGE,
     "tensor m.x.g_idx[0] is 3, expected a group from 0 to 2"},
    {V1, {FILL, "m.x.g_idx", "00000000ffffffff", 0, 0}, ERR_RANGE,
     "tensor m.x.g_idx[1] is -1, expected a group from 0 to 2"},
    {CT, {FILL, "m.indexed.weight_g_idx", "04000000", 0, 0}, ERR_RANGE,
     "tensor m.indexed.weight_g_idx[0] is 4, expected a group from 0 to 3"},
    {CT, {FILL, "m.indexed.weight_g_idx", "04000000ffffffff", 0, 0}, OK, ""},
    /* the config says another thing */
    {CT, {KEEP_ALL, 0, 0, "\"num_bits\": 4", "\"num_bits\": 8"}, ERR_SHAPE,
     "tensor m.p4_group32.weight_packed has shape [24,12], expected [24,24]"},
    {CT, {KEEP_ALL, 0, 0, "\"group_size\": 32", "\"group_size\": 16"}, ERR_SHAPE,
     "tensor m.p4_group32.weight_scale has shape [24,3], expected [24,6]"},
    {CT, {KEEP_ALL, 0, 0, "\"group_size\": 32", "\"group_size\": 33"}, ERR_SHAPE,
     "has rows of 96 weights, expected a multiple of group_size, 33"},
    {CT, {KEEP_ALL, 0, 0, "\"symmetric\": true", "\"symmetric\": false"}, ERR_FORMAT,
     "needs m.p4_group32.weight_zero_point"},
    {CT, {KEEP_ALL, 0, 0, "\"pack-quantized\"", "\"naive-quantized\""}, ERR_FORMAT,
     "tensor m.p4_group32.weight_packed, but group_0 of"},
    {CT, {KEEP_ALL, 0, 0, "\"int-quantized\"", "\"pack-quantized\""}, ERR_FORMAT,
     "tensor m.i8_channel.weight, but group_13 of"},
    {CT, {KEEP_ALL, 0, 0, "\"m.plain\"", "\"m.p4_tensor\""}, ERR_FORMAT,
     "does not quantize m.p4_tensor"},
    {CT, {KEEP_ALL, 0, 0, "\"m.p4_group32\"", "\"m.p4_group32\", \"m.plain\""}, OK, ""},
    {CT, {RENAME, "m.plain.weight", "m.plain2.weight", "\"m.p4_group32\"",
          "\"m.p4_group32\", \"m.plain2\""}, ERR_FORMAT,
     "tensor m.plain2.weight is F32, but group_0 of"},
    {CT, {KEEP_ALL, 0, 0, "\"actorder\": \"group\"", "\"actorder\": null"}, ERR_FORMAT,
     "tensor m.indexed.weight_g_idx, but group_20 of"},
    {CT, {KEEP_ALL, 0, 0, "\"quantization_config\"", "\"quantization\""}, ERR_FORMAT,
     "config.json has no quantization_config"},
    {V1, {KEEP_ALL, 0, 0, "\"bits\": 4", "\"bits\": 8"}, ERR_SHAPE,
     "tensor m.x.qweight has shape [12,32], expected [24,32]"},
    {V1, {KEEP_ALL, 0, 0, "\"group_size\": 32", "\"group_size\": 48"}, ERR_SHAPE,
     "tensor m.x.scales has shape [3,32], expected [2,32]"},
};

TEST(packed_bad_checkpoints_are_told_of)
{
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Loose l;
        ref_packed_write(ref_path("bad"), BAD[i].folder, &BAD[i].edit);
        if (strcmp(BAD[i].sentence, "") == 0 && BAD[i].edit.change != ADD) {
            T_STATUS_OK(loose_open(&l, ref_path("bad")));
            loose_close(&l);
        } else if (BAD[i].edit.change == ADD) {
            T_FAILS(loose_open(&l, ref_path("bad")), ERR_FORMAT,
                    "tensor m.p4_group32.weight is there twice, as m.p4_group32.weight_packed");
        } else {
            T_FAILS(loose_open(&l, ref_path("bad")), BAD[i].code, BAD[i].sentence);
        }
    }
}

TEST(packed_without_memory)
{
    static const char *const FOLDERS[] = {"compressed", "gptq_8_order"};
    for (int f = 0; f < 2; f++) {
        Loose l;
        for (int64_t k = 1;; k++) {
            arena_fail_at(k);
            Status s = loose_open(&l, golden(FOLDERS[f]));
            arena_fail_at(0);
            if (s == OK)
                break;
            T_OK(s == ERR_MEMORY && strstr(status_text(), "out of memory"));
            T_OK(k < 10000);
        }
        loose_close(&l);
    }
}

/* A byte changed anywhere in the header or the config: refused or read, no more. */
TEST(packed_flipped_bytes)
{
    static const char *const FOLDERS[] = {"compressed", "gptq_8_order", "gptq_3_v1"};
    static const char *const FILES[] = {"config.json", "model.safetensors"};
    uint64_t                 seed = 1;
    for (int turn = 0; turn < 900; turn++) {
        const char *name = FOLDERS[turn % 3], *file = FILES[turn / 3 % 2];
        char        path[600];
        size_t      n;
        Loose       l;
        PackedEdit  none = {KEEP_ALL, 0, 0, 0, 0};
        if (turn < 6)  // the folders are there then
            ref_packed_write(ref_path("flip%d", turn % 3), name, &none);
        snprintf(path, sizeof path, "%s/%s", ref_path("flip%d", turn % 3), file);
        unsigned char *data = ref_read(path, &n);
        size_t         room = n < 9000 ? n : 9000;
        size_t at = (size_t)((check_uniform(&seed) + 1) / 2 * (float)(room - 1));
        unsigned char  old = data[at];
        data[at] = (unsigned char)(old ^ 1 << turn % 8);
        ref_write(path, data, n);
        if (loose_open(&l, ref_path("flip%d", turn % 3)) == OK)
            loose_close(&l);
        data[at] = old;
        ref_write(path, data, n);
        free(data);
    }
}
