/* ref_attention.h - attention in double that stores whole maps, and cases to
 * run it on. Slow and obvious: what the kernel is held against. */
#ifndef REF_ATTENTION_H
#define REF_ATTENTION_H

#include "kernels/backend.h"

typedef struct {
    int64_t n_heads, n_groups, n_maps, head_dim;
    int64_t n_sequences;
    int64_t queries[8], keys[8];  // of each sequence
} CaseShape;

/* As Attention's of these names; {0}: a noise map a head, all keys. */
typedef struct {
    int64_t n_signals, value_dim, reach;
    bool    shared_keys;
} CaseWide;

/* Inputs and outputs of one call. Close the arena when done. */
typedef struct {
    Arena     arena;
    CaseShape shape;
    Tensor    q, k, v, out;
    int32_t   start[9], key_start[9];
    int64_t   number[8];
    Attention a;
} Case;

/* Normal q, k, v. out is NaN with a guard behind it. Sequences are numbered 10,
 * 11, ...; norm on with lambda 0.4 where there are two maps. */
Status case_init(Case *c, const CaseShape *shape, uint64_t seed);
Status case_init_wide(Case *c, const CaseShape *shape, const CaseWide *wide, uint64_t seed);
/* Small whole numbers in q and k and a scale of 1/4: exact logits in f32. */
void   case_make_exact(Case *c, uint64_t seed);
/* Sequence b alone; shares memory with c but for its output. */
Status case_one_sequence(Case *one, const Case *c, int64_t b);
Status case_run(Case *c, int n_threads);
bool   case_guard_intact(const Case *c);
/* Rows of q a query, the one of a head's map among them, and dv. */
int64_t case_q_rows(const Attention *a);
int64_t case_q_row(const Attention *a, int64_t h, int64_t m);
int64_t case_value_dim(const Attention *a);

/* Sequence b: [H,M,T,S], -inf and 0 where masked. */
typedef struct {
    int64_t T, S;
    double *logits, *weights;
    double *diff;   // [H,T,S]
    double *out;    // [T,H,dv]
} RefMaps;

/* May query t of the sequence see key s? */
bool ref_sees(const Case *c, const RefMaps *r, int64_t t, int64_t s);
/* Of query t of all. */
double ref_lambda(const Case *c, int64_t t, int64_t h);
/* Reads c's inputs and options; its logits quantized as asked, in f32. */
Status ref_attention(RefMaps *r, Arena *arena, const Case *c, int64_t b);
/* Largest |out - ref| of sequence b over the largest |ref|; NaN if any is. */
double ref_error(const Case *c, const RefMaps *r, int64_t b);
/* The largest of all sequences. */
double ref_case_error(const Case *c);
/* Are heads first .. end of rows from .. to NaN, and all else that of ref bit for bit? */
bool ref_nan_within(const Case *c, const Case *ref, int64_t from, int64_t to, int64_t first,
                    int64_t end);

#endif
