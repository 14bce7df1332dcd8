/* ref_written.h - writes a GGUF file from a folder and reads it back strictly. */
#ifndef DQ_REF_WRITTEN_H
#define DQ_REF_WRITTEN_H

#include "quant/formats/gguf.h"
#include "tests/quant/ref_container.h"

/* What one run wrote. {0} is one that wrote nothing. */
typedef struct {
    Arena       arena;
    GgufOptions o;
    RefGguf     file;
} Written;

/* check_tmp()/name.gguf; static buffers, four in turn. */
const char *written_path(const char *name);
/* Files in check_tmp() that begin with name. */
int written_files(const char *name);
/* gguf_write; rows are in the arena, o.source is closed again. */
MUST_USE Status written_write(Written *r, const char *folder, GgufType type, const char *path,
                              const double **importance);
/* The same to written_path(name), read back: what is wrong, or NULL. */
const char *written_run(Written *r, const char *folder, GgufType type, const char *name);
void        written_close(Written *r);

/* Ends the test function unless the call gives NULL. */
#define T_RUNS(call)                                                     \
    do {                                                                 \
        const char *wrong_ = (call);                                     \
        if (wrong_) {                                                    \
            check_fail(__FILE__, __LINE__, "%s: %s", #call, wrong_);     \
            return;                                                      \
        }                                                                \
    } while (0)

#endif
