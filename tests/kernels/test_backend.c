/* test_backend.c - opening, memory, and what attention and record refuse. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/kernels/ref_ops.h"

TEST(backend_opens_by_name)
{
    Backend be;
    T_STATUS_OK(backend_open(&be, "cpu", 0));
    T_TEXT(be.ops->name, "cpu");
    T_OK(be.n_threads >= 1);
    backend_close(&be);
    T_OK(!be.ops && !be.state && be.arena.used == 0);
    backend_close(&be);
    T_STATUS_OK(backend_open(&be, "auto", 3));
    T_OK(be.n_threads == 3);
    backend_close(&be);
    T_FAILS(backend_open(&be, "gpu", 1), ERR_USAGE,
            "unknown device \"gpu\", expected cpu, cuda, cuda:N or auto");
    T_FAILS(backend_open(&be, "cuda:", 1), ERR_USAGE, "unknown device \"cuda:\"");
    T_FAILS(backend_open(&be, "cuda:1x", 1), ERR_USAGE, "unknown device \"cuda:1x\"");
    T_FAILS(backend_open(&be, "cpu", -1), ERR_RANGE, "-1 threads");
}

TEST(backend_cuda_opens_or_says_why_not)
{
    Backend be;
    Status  s = backend_open(&be, "cuda", 1);
    T_OK(s == OK || (s == ERR_DEVICE && strstr(status_text(), "CUDA")));
    backend_close(&be);
}

TEST(backend_open_survives_every_failed_allocation)
{
    for (int k = 1; k < 10; k++) {
        Backend be;
        arena_fail_at(k);
        Status s = backend_open(&be, "cpu", 1);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && !be.ops && !be.arena.top));
        backend_close(&be);
        if (s == OK) {
            T_OK(k == 3);
            return;
        }
    }
    T_OK(!"the loop should end by success");
}

TEST(backend_tensor_up_down_and_back)
{
    Backend be;
    Tensor  t, huge, scalar;
    float   in[6] = {1, 2, 3, 4, 5, NAN}, out[6] = {0};
    T_STATUS_OK(backend_open(&be, "cpu", 1));
    ArenaMark mark = backend_mark(&be);
    size_t    used = be.arena.used;
    T_STATUS_OK(backend_tensor(&be, &t, 2, (int64_t[]){2, 3}));
    T_OK(t.dtype == DTYPE_F32 && t.n_dims == 2 && t.shape[1] == 3);
    T_STATUS_OK(backend_upload(&be, &t, in));
    T_STATUS_OK(backend_download(&be, out, &t));
    T_OK(memcmp(in, out, sizeof in) == 0);
    T_STATUS_OK(backend_tensor(&be, &scalar, 0, NULL));
    T_OK(scalar.data && tensor_count(&scalar) == 1);
    T_FAILS(backend_tensor(&be, &huge, 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}), ERR_RANGE,
            "dim 1 is 1073741824");
    T_FAILS(backend_tensor(&be, &huge, 2, (int64_t[]){3, -1}), ERR_RANGE, "dim 1 is -1");
    arena_fail_at(1);
    T_FAILS(backend_tensor(&be, &huge, 2, (int64_t[]){7, 8}), ERR_MEMORY,
            "out of memory: a tensor [7,8] of F32");
    arena_fail_at(0);
    backend_rewind(&be, mark);
    T_OK(be.arena.used == used);
    backend_close(&be);
}

/* --- attention --- */

typedef struct {
    Arena     arena;
    Backend   be;
    Tensor    q, k, v, out;
    Attention a;
    int32_t   start[3], key_start[3];
} Case;

/* Two sequences of 3 and 2 rows, 4 heads in 2 groups, 2 maps, d = 8. */
static Status case_open(Case *c)
{
    *c = (Case){.start = {0, 3, 5}, .key_start = {0, 3, 6}};
    c->q = ref_normal(&c->arena, 5, 4 * 2 * 8, 1);
    c->k = ref_normal(&c->arena, 5, 2 * 2 * 8, 2);
    c->v = ref_normal(&c->arena, 5, 2 * 2 * 8, 3);
    c->out = ref_empty(&c->arena, 5, 4 * 2 * 8);
    c->a = (Attention){.n_heads = 4, .n_groups = 2, .n_maps = 2, .head_dim = 8, .scale = 0.5f,
                       .lambda = 0.3f, .norm_eps = -1, .out_scale = 1, .logit_bits = 16,
                       .batch = {.n_sequences = 2, .number = (int64_t[]){0, 1}}};
    c->a.batch.start = c->start;
    return backend_open(&c->be, "cpu", 1);
}

static void case_close(Case *c)
{
    backend_close(&c->be);
    arena_close(&c->arena);
}

static Status attend(Case *c, Attention a)
{
    return op_attention(&c->be, &c->out, &c->q, &c->k, &c->v, &a);
}

/* Attention as c's, but for one member. */
#define WITH(c, member, value) ({ Attention a_ = (c)->a; a_.member = (value); attend(c, a_); })

TEST(attention_checks_heads_and_numbers)
{
    Case c;
    T_STATUS_OK(case_open(&c));
    T_FAILS(WITH(&c, n_groups, 3), ERR_SHAPE, "attention: 4 heads in 3 groups");
    T_FAILS(WITH(&c, n_groups, 0), ERR_SHAPE, "attention: 4 heads in 0 groups");
    T_FAILS(WITH(&c, n_maps, 3), ERR_UNSUPPORTED, "3 maps a head, expected 1 or 2");
    T_FAILS(WITH(&c, head_dim, 0), ERR_SHAPE, "head_dim is 0");
    T_FAILS(WITH(&c, scale, NAN), ERR_RANGE, "scale nan");
    T_FAILS(WITH(&c, lambda, INFINITY), ERR_RANGE, "lambda is inf");
    T_FAILS(WITH(&c, dtype, DTYPE_F16), ERR_UNSUPPORTED, "products in F16");
    T_FAILS(WITH(&c, logit_bits, 5), ERR_UNSUPPORTED,
            "logits of 5 bits, expected 16, 8, 6 or 4");
    T_FAILS(WITH(&c, logit_scale, N_SCALES), ERR_UNSUPPORTED, "unknown logit scale 3");
    T_TEXT(logit_scale_name(SCALE_HEAD), "head");
    case_close(&c);
}

TEST(attention_checks_blocks_of_heads)
{
    Case c;
    T_STATUS_OK(case_open(&c));
    T_FAILS(WITH(&c, n_signals, 4), ERR_SHAPE,
            "4 heads to a noise map, expected a divisor of the 2 heads of a group");
    T_FAILS(WITH(&c, n_signals, -1), ERR_SHAPE, "-1 heads to a noise map");
    T_FAILS(WITH(&c, n_signals, 2), ERR_SHAPE,
            "q is F32 [5,64], expected F32 with 5 rows of 48");
    T_FAILS(WITH(&c, shared_keys, true), ERR_SHAPE,
            "k is F32 [5,32], expected F32 with 5 rows of 16");
    T_FAILS(WITH(&c, value_dim, 8), ERR_SHAPE,
            "v is F32 [5,32], expected F32 with 5 rows of 16");
    T_FAILS(WITH(&c, value_dim, -1), ERR_SHAPE, "head_dim is 8, value_dim -1");
    T_FAILS(WITH(&c, reach, -1), ERR_RANGE, "a reach of -1 keys");
    T_STATUS_OK(WITH(&c, reach, 1));
    c.a.lambda = NAN;
    T_STATUS_OK(WITH(&c, lambda_rows, c.q.data));   // lambda is not looked at
    c.q.shape[1] = 48;
    c.v.shape[1] = 16;
    c.out.shape[1] = 32;
    c.k.shape[1] = 16;
    c.a.lambda = 0.5f;
    c.a.n_signals = 2;
    c.a.value_dim = 8;
    c.a.shared_keys = true;
    T_STATUS_OK(attend(&c, c.a));
    c.out.shape[1] = 64;
    T_FAILS(attend(&c, c.a), ERR_SHAPE, "out is F32 [5,64], expected F32 with 5 rows of 32");
    case_close(&c);
}

TEST(attention_checks_tensors)
{
    Case c;
    T_STATUS_OK(case_open(&c));
    T_FAILS(WITH(&c, head_dim, 9), ERR_SHAPE,
            "attention: q is F32 [5,64], expected F32 with 5 rows of 72");
    c.k.shape[0] = 4;
    T_FAILS(attend(&c, c.a), ERR_SHAPE, "k is F32 [4,32], expected F32 with 5 rows of 32");
    c.k.shape[0] = 5;
    c.v.shape[1] = 31;
    T_FAILS(attend(&c, c.a), ERR_SHAPE, "v is F32 [5,31]");
    c.v.shape[1] = 32;
    c.out.dtype = DTYPE_BF16;
    T_FAILS(attend(&c, c.a), ERR_SHAPE, "out is BF16");
    case_close(&c);
}

TEST(attention_checks_sequences)
{
    Case c;
    T_STATUS_OK(case_open(&c));
    c.start[0] = 1;
    T_FAILS(attend(&c, c.a), ERR_SHAPE, "2 sequences, the first from row 1");
    c.start[0] = 0;
    T_FAILS(WITH(&c, batch.n_sequences, 0), ERR_SHAPE, "0 sequences");
    c.key_start[1] = 2;
    T_FAILS(WITH(&c, key_start, c.key_start), ERR_SHAPE,
            "sequence 0 has 3 queries and 2 keys");
    LogitRecord record = {.n_heads = 4, .n_maps = 1, .n_positions = 2};
    T_FAILS(WITH(&c, record, &record), ERR_SHAPE, "a record of 4 heads with 1 maps");
    record.n_maps = 2;
    T_FAILS(WITH(&c, record, &record), ERR_SHAPE, "has 3 positions, its record 2");
    T_FAILS(WITH(&c, spans, ((Span[]){{0, 3}, {1, 3}})), ERR_RANGE,
            "span 1 to 3 of sequence 1 with 2 keys");
    MapWindow window = {.sequence = 2};
    T_FAILS(WITH(&c, window, &window), ERR_RANGE, "maps of sequence 2 wanted, there are 2");
    window = (MapWindow){.sequence = 1, .n_positions = 3};
    T_FAILS(WITH(&c, window, &window), ERR_RANGE, "maps of 3 positions wanted");
    case_close(&c);
}

TEST(record_checks_shapes)
{
    Case        c;
    ValueRecord r = {.n_channels = 64, .n_positions = 3};
    int32_t     positions[5] = {0, 1, 2, 0, 3};
    T_STATUS_OK(case_open(&c));
    T_FAILS(op_record(&c.be, &c.k, &c.a.batch, positions, &r), ERR_SHAPE,
            "record: x is F32 [5,32], expected F32 [any,64]");
    T_FAILS(op_record(&c.be, &c.q, &c.a.batch, positions, &r), ERR_RANGE,
            "record: position 4 is 3, expected 0 to 2");
    c.start[2] = 4;
    T_FAILS(op_record(&c.be, &c.q, &c.a.batch, positions, &r), ERR_SHAPE,
            "record: 2 sequences, expected them to cover rows 0 to 5");
    c.start[1] = 6;
    c.start[2] = 5;
    T_FAILS(op_record(&c.be, &c.q, &c.a.batch, positions, &r), ERR_SHAPE,
            "sequence 1 ends before it starts");
    case_close(&c);
}
