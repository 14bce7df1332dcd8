/* ref_packed.h - golden checkpoints of few bits, written again with one thing wrong. */
#ifndef DQ_REF_PACKED_H
#define DQ_REF_PACKED_H

#include <stddef.h>

typedef enum {
    KEEP_ALL,
    DROP,       // the tensor is not there
    RENAME,     // it is called text
    DTYPE,      // it is of dtype text; its bytes stay as far as they go, then 0
    SHAPE,      // it has shape text ("3,4"); likewise
    FILL,       // all its bytes are text, in hex ("0000c07f"), over and over
    ADD         // one more, of dtype F32 and shape [1], as text
} PackedChange;

typedef struct {
    PackedChange change;
    const char  *tensor, *text;
    const char  *from, *to;  // config.json with the first `from` replaced; NULL: as it is
} PackedEdit;

/* tests/golden/packed/<name>, edited, into folder. */
void ref_packed_write(const char *folder, const char *name, const PackedEdit *edit);

#endif
