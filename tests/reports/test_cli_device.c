/* test_cli_device.c - where the program computes: what --device takes, and what it says where
 * there is no GPU. With one: tests/cuda/test_cuda_cli.c. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "reports/cli/session.h"
#include "tests/check.h"
#include "tests/reports/ref_program.h"

#define TINY "golden/models/diff_gqa"
/* However the machine is: neither a GPU nor a simulator of one shows itself. The first of
 * these is what users hide theirs with. */
#define NO_GPU "CUDA_VISIBLE_DEVICES=-1 CUSIM_DEVICES=0"
#define HIDDEN "CUDA_VISIBLE_DEVICES= CUSIM_DEVICES=0"

static Outcome *analyze(const char *environment, const char *options)
{
    char text[512];
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
    snprintf(text, sizeof text, "analyze %%s --tokens ids.txt %s", options);
    return run_after(environment, with_model(text, TINY));
}

TEST(names_of_devices)
{
    T_OK(fails(analyze(NO_GPU, "--device gpu"), 2, "gpu", "auto|cpu|cuda|cuda:N"));
    T_OK(fails(analyze(NO_GPU, "--device cuda:"), 2, "cuda:", "none of"));
    T_OK(fails(analyze(NO_GPU, "--device cuda:1x"), 2, "cuda:1x", "none of"));
    T_OK(fails(analyze(NO_GPU, "--device cud"), 2, "\"cud\"", "none of"));
    T_OK(fails(analyze(NO_GPU, "--device cuda:-1"), 2, "cuda:-1", "none of"));
    T_OK(fails(analyze(NO_GPU, "--device CPU"), 2, "CPU", "none of"));
    T_OK(fails(run("inspect x --device cpu"), 2, "--device", "inspect"));
}

TEST(a_gpu_that_is_not_there_is_3_and_leaves_what_was)
{
    write_text("old.h5", "old");
    write_text("copy.h5", "old");
    T_OK(fails(analyze(NO_GPU, "--device cuda -o old.h5"), 3, "no CUDA device", "--device cpu"));
    T_OK(fails(analyze(NO_GPU, "--device cuda:12 -o old.h5"), 3, "no CUDA device",
               "--device cpu"));
    T_OK(same("old.h5", "copy.h5"));
    T_OK(fails(run_after(NO_GPU, with_model("generate %s --prompt a --device cuda", TINY)), 3,
               "no CUDA device", "--device cpu"));
    T_OK(fails(run_after(NO_GPU, with_model("quantize %s -o q --device cuda", TINY)), 3,
               "no CUDA device", "--device cpu"));
    T_OK(!exists("q"));
}

/* A program that could use one says that it does not, once; others have nothing to say. */
TEST(auto_takes_the_cpu_and_says_so)
{
    const char *said = DQ_PROGRAM_CUDA ? "Running on the CPU: no CUDA device: " : "";
    Outcome    *o = analyze(NO_GPU, "");
    T_OK(o->code == 0 && strstr(o->out, "tokens/s on cpu."));
    T_OK(strncmp(o->err, said, strlen(said)) == 0);
    T_OK(DQ_PROGRAM_CUDA ? strchr(o->err, '\n') == strrchr(o->err, '\n') && !strstr(o->err, ";")
                         : !*o->err);
    o = analyze(NO_GPU, "--device auto --quiet");
    T_OK(o->code == 0 && !*o->err);
    o = analyze(NO_GPU, "--device cpu");
    T_OK(o->code == 0 && !*o->err);
    o = analyze(HIDDEN, "");
    T_OK(o->code == 0 && !*o->err);
}

/* The table's first cells and the checkpoints between them open the device more than once. */
TEST(it_is_said_once)
{
    Outcome *o = run_after(NO_GPU, with_model("eval %s -o e.h5 --text t.txt --context 16 "
                                              "--logit-bits 16 --weights fp,w8,w4:g32",
                                              "pair/diff"));
    T_OK(o->code == 1 && strstr(o->err, "t.txt"));
    write_text("t.txt", "The command reads a file and writes what it found. The file is read.");
    o = run_after(NO_GPU, with_model("eval %s -o e.h5 --text t.txt --context 16 "
                                     "--logit-bits 16 --weights fp,w8,w4:g32", "pair/diff"));
    T_OK(o->code == 0);
    const char *first = strstr(o->err, "Running on the CPU");
    T_OK(DQ_PROGRAM_CUDA ? first && !strstr(first + 1, "Running on the CPU") : !first);
}

TEST(memory_of_the_device_is_a_size)
{
    T_OK(fails(analyze(NO_GPU, "--device-memory much"), 2, "--device-memory", "700M or 4.5G"));
    T_OK(fails(analyze(NO_GPU, "--device-memory 0"), 2, "--device-memory", "700M or 4.5G"));
    T_OK(fails(analyze(NO_GPU, "--device-memory 8Gi"), 2, "--device-memory", "8Gi"));
    T_OK(fails(analyze(NO_GPU, "--device-memory 1e30"), 2, "--device-memory", "1e30"));
    T_OK(analyze(NO_GPU, "--device cpu --device-memory 1k")->code == 0);  // the CPU has none
}

/* Of the work that has a Backend, and of reading, packing and rounding, that have none. */
TEST(threads_are_those_asked_for)
{
    const char *words[] = {"diffquant", "quantize", "m", "-o", "q", "--threads", "3", NULL};
    int         before = omp_get_max_threads();
    Session     se;
    Backend     be;
    T_OK(session_open(&se, 7, (char **)words) == OK);
    T_OK(omp_get_max_threads() == 3);
    T_OK(session_backend(&be, &se) == OK && be.n_threads == 3);
    backend_close(&be);
    T_OK(backend_open(&be, "cpu", 0) == OK && be.n_threads == 3);
    backend_close(&be);
    session_close(&se);
    omp_set_num_threads(before);
}
