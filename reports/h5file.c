/* h5file.c - the list of ids and the error stack of HDF5. */
#include "reports/h5file.h"

#include <stdio.h>

void h5file_init(H5File *f, const char *path)
{
    *f = (H5File){.path = path};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

/* Walked from the place of failure up to the API call: the first is the cause. */
static herr_t take_first(unsigned n, const H5E_error2_t *error, void *out)
{
    if (n == 0)
        snprintf(out, 256, "%s", error->desc ? error->desc : "unknown reason");
    return 0;
}

const char *h5file_reason(void)
{
    static _Thread_local char text[256];
    snprintf(text, sizeof text, "unknown reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, text);
    return text;
}

Status h5file_check(H5File *f, int64_t result, const char *what)
{
    if (result < 0)
        FAIL(ERR_IO, "%s: %s failed: %s (HDF5)", f->path, what, h5file_reason());
    return OK;
}

Status h5file_keep(H5File *f, hid_t *out, hid_t id, const char *what)
{
    TRY(h5file_check(f, id, what));
    CHECK(f->n < H5FILE_IDS);
    f->ids[f->n++] = id;
    *out = id;
    return OK;
}

void h5file_release(H5File *f, int n)
{
    while (f->n > n)
        H5Idec_ref(f->ids[--f->n]);  // closes an id of any kind
}
