/* cpu_attention.h - the parts of attention on the CPU.
 *
 * A tile is TILE_ROWS queries of one block of heads (those that share a noise
 * map) of one sequence; threads take tiles. A tile walks over its keys,
 * TILE_KEYS at a time: logits, recording, fake quantization, softmax with a
 * running maximum, product with V. A query has R rows in a tile, as in q: one a
 * head of the block, then the noise (row i * R + m is map m of query i), so that
 * all maps run through the same product, share V's loads, and the noise is
 * worked out once for its heads.
 *
 * No figure depends on how rows fall into tiles: a logit is one chain over the
 * head's dims, a row's sums run in 16 fixed lanes. Statistics of logits are summed over
 * RECORD_ROWS queries of a sequence at a time, these then merged in order. */
#ifndef DQ_CPU_ATTENTION_H
#define DQ_CPU_ATTENTION_H

#include "kernels/backend.h"
#include "kernels/cpu/cpu_record.h"
#include "kernels/cpu/cpu_words.h"
#include "kernels/size.h"

enum {
    TILE_ROWS = 48,   // a multiple of GROUP_ROWS and of RECORD_ROWS
    RECORD_ROWS = 16, // that share sums: one set for each would not stay in cache
    TILE_PARTS = TILE_ROWS / RECORD_ROWS,
    TILE_KEYS = 128,  // a multiple of PANEL_KEYS
    PANEL_KEYS = WORDS_PANEL,  // 64 keys packed side by side, transposed: [d, PANEL_KEYS]
    GROUP_ROWS = 6,   // rows that go through one call of a product
    PAD = 16          // widths are padded to the widest vector
};

/* --- cpu_attn_isa.c, once an instruction set --- */

/* A softmax row in progress: exp(x - top) so far sums to sum. */
typedef struct {
    float  top;
    double sum;
} SoftmaxRow;

/* What a head's row goes through when its maps are summed up. */
typedef struct {
    int64_t      n_maps, dv;    // dv without padding
    float        weight[2];     // of each map's sum: 1/sum, lambda/sum
    float        norm_eps, out_scale;
    const float *norm_weight;   // padded, or NULL
} HeadFinish;

typedef void AttnProduct(const Product *p, int64_t rows, int64_t cols, int64_t depth,
                         const float *keep, float scale);

typedef struct {
    /* C = keep[row] * C + A B; keep NULL: C = scale * (A B). cols % PAD == 0.
     * Each output is one chain over depth, in order. Of words of f32, and of pairs of bf16:
     * dots and half are NULL where cpu_has_bf16_dot() is never true. */
    AttnProduct *product, *dots;
    /* C = keep[row] * C + A B, depth 1, of the half of words that mask leaves. */
    void (*half)(const Product *p, int64_t rows, int64_t cols, const float *keep, Word mask);
    /* x[0..n) -> exp(x - top), n >= 1, with room up to the next PAD. Returns
     * what older sums must be multiplied by. bf16 rounds the weights left in
     * x, not those summed; halves, not after x in memory, if not NULL takes them instead. */
    float (*softmax)(float *x, int64_t n, SoftmaxRow *row, bool bf16, uint16_t *halves);
    /* p = exp(x - top), both with room up to the next PAD. */
    void (*weights)(float *p, const float *x, int64_t n, float top);
    /* Bits of the largest magnitude; above those of infinity if NaN is there. */
    uint32_t (*absmax)(const float *x, int64_t n);
    /* x -> scale * round(x / scale), |codes| <= limit; room up to the next PAD.
     * scale 0 gives zeros, NaN or infinity NaN. */
    void (*quantize)(float *x, int64_t n, float scale, float limit);
    /* o [n_maps, padded dv] -> out [dv]; o is overwritten. */
    void (*finish)(float *out, float *o, int64_t ldo, const HeadFinish *f);
} AttnIsa;

extern const AttnIsa attn_plain, attn_avx2, attn_avx512;
const AttnIsa *attn_isa(void);  // of this machine (cpu_isa)

/* --- cpu_share_isa.c --- */

/* Some keys of one row: weights p * per_sum of logits x, -log(weight) = top_log - x. */
typedef struct {
    const float *p[2], *x[2];
    double       per_sum[2], top_log[2], lambda;
} ShareStrip;

typedef struct {
    double  weight[2], entropy[2];  // sums over keys, of each map
    double  diff_abs;               // of |A1 - lambda A2|
    int64_t negative;               // of A1 < lambda A2
} ShareSums;

typedef struct {
    /* Adds keys 0 .. n of the strip, n % SHARE_STRIDE == 0; p and x lie within
     * memory up to there, so that a shorter strip can be filled up with zeros. */
    void (*add)(ShareSums *sums, const ShareStrip *s, int64_t n, int64_t n_maps);
} ShareIsa;

extern const ShareIsa share_plain, share_avx2, share_avx512;
const ShareIsa *share_isa(void);

/* --- cpu_attention.c: one call, read-only while tiles run --- */

typedef struct {
    const Attention *a;
    const AttnIsa   *isa;
    const RecordIsa *record_isa;
    const ShareIsa  *share_isa;
    const int32_t   *key_start;     // [n_sequences + 1]
    AttnProduct     *product;       // of words that hold
    int64_t          per_word;      //   1 number or 2, along the head's dims and along keys
    int64_t          d, d_words, dv, dv_pad;
    int64_t          n_signals;     // heads of a block
    int64_t          n_blocks;      // B
    int64_t          n_rows;        // R: maps of a block, n_signals and the noise
    int64_t          n_key_maps;    // K
    int64_t          reach;         // at most `longest`
    const float     *q;             // [T,B*R,d]
    float           *out;           // [T,H,dv]
    float           *norm_weight;   // [dv_pad] or NULL

    /* Packed once a call (cpu_attention_pack.c). */
    Word            *k_panels;      // [panels,G,K,d_words,PANEL_KEYS]
    Word            *v_rows;        // [G,panels,PANEL_KEYS / per_word,dv_pad]
    int64_t         *panel_start;   // [n_sequences + 1]
    int64_t          n_keys;        // S of all sequences
    int64_t          longest;       // S of the longest

    /* Tiles of all sequences and blocks, and what they leave behind. */
    int64_t         *tile_start;    // [n_sequences + 1], tiles of one block
    float           *row_scale;     // [T,B,R] of the quantized logits, or NULL
    Moments         *moments;       // [parts of all tiles,B,R], or NULL
    uint32_t        *row_absmax;    // [T,B,R] bits, or NULL
    int64_t          n_samples;     // rows with shares
    int32_t         *sample;        // [T] its number among these, -1: none; or NULL
    ShareRecord     *row_shares;    // [n_samples,H], or NULL
} AttnCall;

/* One tile: queries row .. row + n_rows of all, at position .. in sequence. */
typedef struct {
    int64_t sequence, block, group;
    int64_t row, n_rows, position;
} AttnTile;

/* Some queries of a tile: first, first + step, ... */
typedef struct {
    int64_t first, n, step;
} TileRows;

/* A query of one head on its second pass (cpu_attention_share.c). */
typedef struct {
    int64_t     i, position;   // query of the tile, place in the sequence
    int64_t     head;          // of the block
    ShareStrip  strip;         // p and x change from keys to keys
    ShareSums   sums;
    Span        span;
    ShareRecord share;         // first and span shares so far
} ShareRow;

/* Memory of one thread. */
typedef struct {
    Word        *q;        // [R,TILE_ROWS,d_words]
    Word        *key_rows; // [PANEL_KEYS,d_words] on their way to a panel, of bf16
    float       *x;        // [TILE_ROWS*R,TILE_KEYS] logits, then words of weights
    float       *o;        // [TILE_ROWS*R,dv_pad]
    float       *keep;     // [TILE_ROWS*R]
    SoftmaxRow  *softmax;  // [TILE_ROWS*R]
    MomentLanes *lanes;    // [TILE_PARTS*R], or NULL
    RecordTally  tally;    // where there are lanes
    float       *p;        // [R,TILE_KEYS] weights of one query; where a second pass comes
    ShareRow    *shares;   // [TILE_ROWS*n_signals], likewise
} AttnScratch;

/* Keys that query i of the tile may see among those from `key` on; <= 0: none. */
static inline int64_t tile_allowed(const AttnTile *t, int64_t i, int64_t key)
{
    return t->position + i + 1 - key;
}

/* Of TILE_KEYS keys, those from .. end that a query sees; from >= end: none. */
typedef struct {
    int64_t from, end;
} TileKeys;

static inline TileKeys tile_keys(const AttnCall *c, const AttnTile *t, int64_t i, int64_t key)
{
    int64_t end = tile_allowed(t, i, key);
    return (TileKeys){i64_min(i64_max(end - c->reach, 0), TILE_KEYS), i64_min(end, TILE_KEYS)};
}

/* The first multiple of TILE_KEYS where query i of the tile sees a key. */
static inline int64_t tile_first_key(const AttnCall *c, const AttnTile *t, int64_t i)
{
    return i64_max(tile_allowed(t, i, 0) - c->reach, 0) / TILE_KEYS * TILE_KEYS;
}

/* Rows of words of a group's values of all sequences, and where those of one begin. */
static inline int64_t value_rows(const AttnCall *c, int64_t sequence)
{
    return c->panel_start[sequence] * (PANEL_KEYS / c->per_word);
}

/* The words of a row of weights. */
static inline Word *words_of(float *x)
{
    return (Word *)x;
}

/* The tile's row i, map m, among all rows of the call. */
static inline int64_t call_row(const AttnCall *c, const AttnTile *t, int64_t i, int64_t m)
{
    return ((t->row + i) * c->n_blocks + t->block) * c->n_rows + m;
}

/* Row m of a block is its noise map, or a signal. */
static inline int64_t map_of(const AttnCall *c, int64_t m)
{
    return m == c->n_signals;
}

/* The head whose records row m of a block goes to: the noise to the first. */
static inline int64_t head_of(const AttnCall *c, int64_t block, int64_t m)
{
    return block * c->n_signals + (map_of(c, m) ? 0 : m);
}

/* 0 where there is one map. */
static inline double lambda_of(const AttnCall *c, const AttnTile *t, int64_t i, int64_t head)
{
    const Attention *a = c->a;
    if (a->n_maps == 1)
        return 0;
    return (double)(a->lambda_rows ? a->lambda_rows[(t->row + i) * a->n_heads + head]
                                   : a->lambda);
}

/* cpu_attention.c: fills c->norm_weight, if there is one, from the caller's. */
void attn_pad_norm_weight(const AttnCall *c);

/* cpu_attention_pack.c */
/* A row of d numbers as words. */
void attn_pack_row(const AttnCall *c, Word *to, const float *x);
/* panel [d_words,PANEL_KEYS] of n <= PANEL_KEYS keys of one map of a group, the first at k; 0 for
 * those that are missing. rows [PANEL_KEYS,d_words]: they are rounded there, where they are. */
void attn_pack_keys(const AttnCall *c, Word *panel, Word *rows, const float *k, int64_t n);
/* rows [dv_pad] of words of n values of a group, the first at v, which stands at the beginning
 * of a word. */
void attn_pack_values(const AttnCall *c, Word *rows, const float *v, int64_t n);
/* All of the call. */
void attn_pack(const AttnCall *c, AttnScratch *threads, const float *k, const float *v,
               int n_threads);

/* cpu_attention_tile.c */
void attn_load_queries(const AttnCall *c, const AttnTile *t, AttnScratch *s);
/* Logits of chosen queries of the tile against keys key .. key + TILE_KEYS, to
 * their rows of s->x; entries outside their tile_keys are not meant. */
void attn_logits(const AttnCall *c, const AttnTile *t, AttnScratch *s, TileRows rows,
                 int64_t key);
void attn_tile(const AttnCall *c, const AttnTile *t, AttnScratch *s);

/* A row of the logits of TILE_KEYS keys to weights, of those keys that it sees; what lies before
 * and after them, up to the next PAD, is overwritten. Returns what older sums must be multiplied
 * by. */
float attn_weigh(const AttnCall *c, float *x, TileKeys k, SoftmaxRow *row);

/* o [rows,dv_pad] = keep o + weights v: rows of weights as attn_weigh leaves them, values of
 * the same keys. keep is then 1. */
typedef struct {
    float      *o, *keep, *x;
    const Word *v;
    int64_t     rows, ldx;
} AttnValues;

void attn_add_values(const AttnCall *c, const AttnValues *a, TileKeys k);

/* cpu_attention_step.c: calls with one query a sequence of which only `out` is wanted, a
 * step of generation. The bits are those of the tiles. */
bool            attn_is_step(const AttnCall *c);
MUST_USE Status attn_step(AttnCall *c, Backend *be, const Tensor *k, const Tensor *v);

/* cpu_attention_quant.c: row_scale holds each row's absmax after attn_absmax,
 * and its scale after attn_scales. */
void  attn_absmax(const AttnCall *c, const AttnTile *t, AttnScratch *s);
void  attn_scales(const AttnCall *c);
float attn_code_limit(int bits);  // 7 of 4 bits

/* cpu_attention_record.c */
/* Empties the threads' tallies. */
void attn_record_begin(const AttnCall *c, AttnScratch *threads, int n_threads);
/* Before the first and after the last keys of a tile. */
void attn_record_open(const AttnCall *c, const AttnTile *t, AttnScratch *s);
void attn_record_close(const AttnCall *c, const AttnTile *t, AttnScratch *s);
/* Row r of the tile: the logits of s->x that it sees of keys key .. key + TILE_KEYS. */
void attn_record_row(const AttnCall *c, const AttnTile *t, AttnScratch *s, int64_t r,
                     int64_t key, TileKeys seen);
/* After all tiles: everything into the call's LogitRecord. */
void attn_record_merge(const AttnCall *c, AttnScratch *threads, int n_threads);

/* cpu_attention_share.c: a second pass over chosen rows of a finished tile. */
void attn_second_pass(const AttnCall *c, const AttnTile *t, AttnScratch *s);
void attn_share_merge(const AttnCall *c);

#endif
