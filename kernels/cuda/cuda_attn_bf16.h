/* cuda_attn_bf16.h - what the files of attention in tensor cores share: a plan of one call.
 *
 * cuda_attn_bf16.cu          one call: packs K and V, chooses sizes, softmax(q k^T) V
 * cuda_attn_bf16_measure.cu  a pass over the logits alone: largest magnitudes, recording
 * cuda_attn_bf16_rows.cu     chosen rows of logits, in memory
 * cuda_attn_bf16_plain.cu    any widths, by whole rows of logits in memory: slow
 * cuda_attn_mma.cuh          tiles in shared memory and registers */
#ifndef DQ_CUDA_ATTN_BF16_H
#define DQ_CUDA_ATTN_BF16_H

#include "kernels/cuda/cuda_attention.h"

enum {
    MMA_WARPS = 8,       // most of a block
    MMA_ODD_KEYS = 64,   // keys a flag stands for
    MMA_WIDEST_KEY = 128, MMA_WIDEST_VALUE = 256  // of tiles; wider ones go by rows
};

/* By value into the kernels. */
typedef struct {
    const uint16_t *k;      // [G*K, n_keys, D] bf16, 0 from d to D
    const uint16_t *v;      // [G, n_keys, DV] bf16, 0 from dv to DV and where not finite
    const uint32_t *odd;    // [1 + G * n_odd] not 0: some of these values are not finite
    int64_t         n_odd;  // flags a group; flag 0 is of all
    const AttnTile *tiles;
    int64_t         n_tiles;
    int32_t         width_k, width_v;  // D, DV
    int32_t         chunks, chunk;  // pieces of a block of heads, and signals of a piece
    int32_t         groups;         // of 16 queries
    int32_t         warps;          // (chunk + noise) * groups
} MmaPlan;

#ifdef __cplusplus
extern "C" {
#endif

/* Fill p->k, and p->v, odd, n_odd; width_k and width_v are set. */
MUST_USE Status cuda_attn_pack_keys(Backend *be, const AttnCall *c, MmaPlan *p);
MUST_USE Status cuda_attn_pack_values(Backend *be, const AttnCall *c, MmaPlan *p);
/* Nothing but each row's largest magnitude, into row_scale; else all that is recorded. */
MUST_USE Status cuda_attn_measure(Backend *be, const AttnCall *c, const MmaPlan *p,
                                  bool only_scale);
AttnRun cuda_attn_bf16_plain;

#ifdef __cplusplus
}
#endif
#endif
