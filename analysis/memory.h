/* memory.h - what an instrumented run takes at its peak, before it is run.
 * The run itself says so: model, batches of windows and records go the way they go in
 * analyze_run, on a backend that computes nothing and counts (backend_open_measure). */
#ifndef DQ_MEMORY_H
#define DQ_MEMORY_H

#include "analysis/model.h"

typedef struct {
    Dtype   dtype;       // F32 or BF16: of the products
    bool    stream;      // ModelOptions.stream
    int     n_threads;   // 0: all, as backend_open
    int64_t context;     // tokens in a window, >= 1
    int64_t n_tokens;    // of the text; 0: as many as a batch of windows takes, and more
} MemoryAsk;

/* What the program and its libraries take for themselves: 7 to 13 MiB in 64 runs. */
enum { MEMORY_PROGRAM = 10 << 20 };

/* Bytes. MEMORY_PROGRAM comes on top. */
typedef struct {
    size_t  weights;   // packed, all the time; where they are streamed, what stays of them
    size_t  pass;      // a batch of windows on its way: buffers, hidden states; where they are
                       //   streamed, the weights at work too
    size_t  scratch;   // of the operation that needs most
    size_t  records;   // the statistics, whatever the length of the text
    size_t  peak;      // together
    int64_t batch;     // tokens of a batch
    size_t  token;     // and for each token of the text: its id, what is predicted of it
} Memory;

/* On the CPU. Reads the tables of the checkpoint, hardly of its weights. Fails like
 * model_load. */
MUST_USE Status memory_measure(Memory *out, const char *path, const MemoryAsk *ask);

#endif
