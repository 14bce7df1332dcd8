/* h5file.h - the ids of one open HDF5 file, and its errors as one sentence.
 * Every id goes into the list and is closed by it, newest first. Private to
 * the HDF5 files of this floor. */
#ifndef DQ_H5FILE_H
#define DQ_H5FILE_H

#include <hdf5.h>

#include "kernels/status.h"

enum { H5FILE_IDS = 64 };  // open at once; deepest use is about 20

typedef struct {
    const char *path;
    int         n;
    hid_t       ids[H5FILE_IDS];
} H5File;

/* Also stops HDF5 from printing its error stack. */
void h5file_init(H5File *f, const char *path);
/* *out = id, which is now the list's. A negative id is the failure of `what`,
 * as "reading logits/max": ERR_IO with HDF5's own innermost reason. */
MUST_USE Status h5file_keep(H5File *f, hid_t *out, hid_t id, const char *what);
/* The same for calls that return herr_t, htri_t or sizes: fails if negative. */
MUST_USE Status h5file_check(H5File *f, int64_t result, const char *what);
/* Closes all ids after the first n; 0 closes everything. */
void h5file_release(H5File *f, int n);
/* HDF5's innermost reason for the last failure, "unknown reason" without one. */
const char *h5file_reason(void);

#endif
