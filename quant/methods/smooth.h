/* smooth.h - SmoothQuant: moves the range of an input's outlier channels into the
 * weights, so that both fit in 8 bits (Xiao et al. 2023; formats.md 5.5). */
#ifndef DQ_SMOOTH_H
#define DQ_SMOOTH_H

#include "analysis/calibrate.h"

/* s_j = max|x_j|^alpha / max|W_j|^(1 - alpha), at least 1e-5; W_j: column j of all
 * quantizable matrices that read norm 0 (q, k, v) or 1 (gate, up; both sets where the
 * halves share norm 0). The norm is divided by s, its bias too, the columns of all that
 * read it are multiplied, in becomes what was gathered of the new inputs. Channels that
 * were always 0 stay as they are. alpha in (0,1), in->absmax is looked at. Scratch is
 * given back; ERR_MEMORY leaves all as it was. */
MUST_USE Status smooth_norm(LayerWeights *w, int norm, InputStats *in, double alpha,
                            Arena *scratch);

#endif
