/* cpu_ssm.h - what the convolution and the scan share with their *_isa.c. */
#ifndef DQ_CPU_SSM_H
#define DQ_CPU_SSM_H

#include <stdint.h>

/* One row of a convolution, from some channel on. Its first n_old taps look at rows before
 * the sequence, the others at rows of it. */
typedef struct {
    int64_t      n_taps, n_old;
    int64_t      stride, old_stride;  // floats from a row of w and x to the next; of old
    const float *w, *b;               // [n_taps], rows of channels; one row
    const float *old, *x;             // the rows of the first tap of each kind
} ConvolveRow;

/* y [n] */
typedef void ConvolveIsa(float *y, const ConvolveRow *c, int64_t n);
ConvolveIsa  convolve_plain, convolve_avx2, convolve_avx512;

/* Channels whose h stays in the nearest cache: 64 of 16 states take 12 KiB with A. */
enum { SCAN_CHANNELS = 64 };

/* One sequence, some of its channels. */
typedef struct {
    int64_t      rows, channels, n_states;
    int64_t      stride;              // of u, dt and y
    const float *u, *dt, *bc;         // first row, first channel of the block
    float       *y;
    float       *a, *d, *dt_bias;     // [N,SCAN_CHANNELS], [SCAN_CHANNELS] twice
    float       *h, *lost;            // [N,SCAN_CHANNELS]: h is their sum
} ScanBlock;

typedef void ScanIsa(const ScanBlock *s);
ScanIsa      scan_plain, scan_avx2, scan_avx512;

#endif
