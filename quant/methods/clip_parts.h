/* clip_parts.h - the search of clip.c for one instruction set; private to it. */
#ifndef DQ_CLIP_PARTS_H
#define DQ_CLIP_PARTS_H

#include "quant/methods/rtn.h"

/* The best grid for n weights, all finite; weight: importance of each, or NULL. whole: the
 * grid of rtn.h, with all codes. */
typedef struct {
    RtnGrid (*search)(const float *w, const float *weight, int64_t n, const Scheme *s,
                      RtnGrid whole);
} ClipIsa;
extern const ClipIsa clip_plain, clip_avx2, clip_avx512;

#endif
