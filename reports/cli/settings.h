/* settings.h - the command line, read by one table.
 * A verb takes the options whose rows name it; help is printed from those rows. */
#ifndef DQ_SETTINGS_H
#define DQ_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/arena.h"

typedef enum {
    VERB_NONE = 0, VERB_INSPECT = 1, VERB_ANALYZE = 2, VERB_COMPARE = 4, VERB_REPORT = 8,
    VERB_GENERATE = 16, VERB_QUANTIZE = 32, VERB_EVAL = 64, VERB_CONVERT = 128
} Verb;

enum { MAX_LIST = 32 };

typedef struct {
    int         n;
    const char *at[MAX_LIST];
} TextList;

typedef struct {
    Verb        verb;
    TextList    inputs;        // MODEL... or S.h5...
    TextList    texts, tasks, weights, logit_bits, schemes;
    const char *tokens, *out, *device, *dtype, *logit_scale, *bos, *prompt, *color;
    const char *calibrate, *shots_from, *convention, *needles, *needle_form, *order;
    const char *layout;
    const char *bits, *group, *method, *format, *gguf_type, *floats, *check, *stats;
    int64_t     threads, context, max_tokens, maps_layer, n_tokens;
    int64_t     windows, seed, shots, stride, samples, orders;
    double      smooth, damp, target_bits, size, device_memory;
    bool        json, quiet, no_record, no_loss, tf32, help, version;
    bool        asym, rotate, awq, wide6, resume, force, requantize;
    bool        kl, stream;
} Settings;

/* Reads argv[1..]; texts point into argv or the arena. ERR_USAGE says what is
 * wrong and what would be right. --help and --version end the reading. */
MUST_USE Status settings_parse(Settings *s, Arena *a, int argc, char **argv);

/* Prints the help of the program, or of s->verb where one was named. */
void settings_help(const Settings *s);

/* The command line as one line, words quoted where a shell needs it. --resume is left
 * out: what a resumed run writes is what the whole one would have written. */
MUST_USE Status settings_command(const char **out, Arena *a, int argc, char **argv);

#endif
