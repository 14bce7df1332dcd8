/* ref_shares.h - shares of attention from whole maps in double. */
#ifndef REF_SHARES_H
#define REF_SHARES_H

#include "tests/kernels/ref_attention.h"

/* shares [n_heads] of c's sequences, on the rows that c->a asks for; spans as there. */
Status ref_shares(ShareRecord *shares, const Case *c, const Span *spans);
/* Counts equal, sums over rows as near as weights known to a few ulp of f32 let them be. */
bool   ref_shares_close(const ShareRecord *a, const ShareRecord *ref);

#endif
