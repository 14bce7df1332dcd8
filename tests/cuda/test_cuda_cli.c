/* test_cuda_cli.c - the program on a GPU, as a user meets it: tiny models, few tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/cuda/ref_cuda.h"
#include "tests/reports/ref_program.h"

#define DIFF "golden/models/diff_gqa"

#define T_PROGRAM()                         \
    do {                                    \
        if (!ref_cuda_there())              \
            T_SKIP(status_text());          \
    } while (0)

static Outcome *analyze(const char *options)
{
    char text[512];
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12 90 80 70 60 50 40 30 20");
    snprintf(text, sizeof text, "analyze %%s --tokens ids.txt --maps-layer 0 %s", options);
    return run(with_model(text, DIFF));
}

/* The number after a word; NaN where it is not there. */
static double after(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    return at ? strtod(at + strlen(word), NULL) : NAN;
}

TEST(analyze_tells_the_same_on_both)
{
    T_PROGRAM();
    Outcome *o = analyze("--device cpu --json -o cpu.h5");
    T_OK(o->code == 0 && strstr(o->out, "\"device\": \"cpu\""));
    double perplexity = after(o->out, "\"perplexity\": ");
    double top = after(o->out, "\"top-1\": ");
    o = analyze("--device cuda --json -o gpu.h5");
    T_OK(o->code == 0 && strstr(o->out, "\"device\": \"cuda:0 ") && exists("gpu.h5"));
    T_NEAR(after(o->out, "\"perplexity\": "), perplexity, 1e-4 * perplexity);
    T_OK(isnan(top) || fabs(after(o->out, "\"top-1\": ") - top) <= 1e-4 * top);
}

TEST(auto_takes_the_gpu_without_a_word)
{
    T_PROGRAM();
    Outcome *o = analyze("--no-record");
    T_OK(o->code == 0 && strstr(o->out, "tokens/s on cuda:0 ") && !*o->err);
}

TEST(a_device_too_many)
{
    T_PROGRAM();
    T_OK(fails(analyze("--device cuda:99"), 3, "no CUDA device 99", "there"));
}

/* Lost in the middle: 3, and what was there stays. */
TEST(a_gpu_that_is_lost)
{
    T_PROGRAM();
    write_text("old.h5", "old");
    write_text("copy.h5", "old");
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
    for (int after = 1;; after *= 3) {   // until it is lost too late
        char before[512];
        snprintf(before, sizeof before, "LD_PRELOAD=%s LOSE_AFTER=%d "
                 "ASAN_OPTIONS=verify_asan_link_order=0", DQ_LOSE, after);
        Outcome *o = run_after(before, with_model("analyze %s --tokens ids.txt --maps-layer 0 "
                                                  "--device cuda -o old.h5", DIFF));
        if (o->code == 0) {
            T_OK(after > 20 && !same("old.h5", "copy.h5"));
            return;
        }
        T_OK(fails(o, 3, "cuda: cudaStreamSynchronize", "unspecified launch failure"));
        T_OK(same("old.h5", "copy.h5"));
    }
}

/* ERR_MEMORY of the GPU is 1, says what would help, and leaves what was. */
TEST(little_memory)
{
    T_PROGRAM();
    Outcome *o = analyze("--device cpu --json");
    double   perplexity = after(o->out, "\"perplexity\": ");
    write_text("old.h5", "old");
    write_text("copy.h5", "old");
    o = analyze("--device cuda --device-memory 20k -o old.h5");
    T_OK(fails(o, 1, "out of memory on the GPU", "of --device-memory are held; a larger"));
    T_OK(same("old.h5", "copy.h5"));
    o = analyze("--device cuda --device-memory 4M --json");
    T_OK(o->code == 0);
    T_NEAR(after(o->out, "\"perplexity\": "), perplexity, 1e-4 * perplexity);
}
