/* test_cli.c - the program as a user meets it: what it prints, how it fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

typedef struct {
    int  code;           // exit status, or 128 + signal
    char out[1 << 16];   // what came on stdout, cut
    char err[1 << 12];
} Outcome;

static void slurp(char *text, size_t size, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE  *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
}

/* Runs "diffquant <arguments>" through the shell, in the temporary folder. before: a
 * shell command in front, e.g. a limit. */
static Outcome *run_after(const char *before, const char *arguments)
{
    static Outcome o;
    char           command[4096];
    snprintf(command, sizeof command, "cd '%s' && %s '%s' %s >stdout 2>stderr </dev/null",
             check_tmp(), before, DQ_PROGRAM, arguments);
    int status = system(command);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp(o.out, sizeof o.out, "stdout");
    slurp(o.err, sizeof o.err, "stderr");
    return &o;
}

static Outcome *run(const char *arguments)
{
    return run_after("", arguments);
}

static void write_text(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    FILE *f = fopen(path, "wb");
    fputs(text, f);
    fclose(f);
}

static bool exists(const char *name)
{
    char        path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    return stat(path, &st) == 0;
}

static bool differ(const char *one, const char *other)
{
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && cmp -s %s %s", check_tmp(), one, other);
    int status = system(command);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static bool system_in_tmp(const char *command)
{
    char text[512];
    snprintf(text, sizeof text, "cd '%s' && %s", check_tmp(), command);
    return system(text) == 0;
}

/* Did it fail with that code, and one line that has both words? */
static bool fails(const Outcome *o, int code, const char *word, const char *other)
{
    const char *end = strchr(o->err, '\n');
    bool        one_line = end && end[1] == 0;
    if (o->code == code && one_line && strstr(o->err, word) && strstr(o->err, other))
        return true;
    fprintf(stderr, "exit %d, wanted %d with \"%s\" and \"%s\": %s\n", o->code, code, word,
            other, o->err);
    return false;
}

/* Arguments with the path of a golden model in place of %s. */
static const char *with_model(const char *format, const char *model)
{
    static char text[2048];
    snprintf(text, sizeof text, format, check_path(model));
    return text;
}

#define TINY "golden/models/diff_gqa"
#define PAIR "pair/diff"

TEST(help_names_every_verb)
{
    Outcome *o = run("--help");
    T_OK(o->code == 0);
    const char *verbs[] = {"inspect", "analyze", "compare", "report", "generate", "eval",
                           "quantize"};
    for (int i = 0; i < 7; i++)
        T_OK(strstr(o->out, verbs[i]));
    T_OK(run("analyze --help")->code == 0);
    T_OK(strstr(run("analyze --help")->out, "--no-record"));
    T_OK(!strstr(run("inspect --help")->out, "--no-record"));
}

TEST(wrong_usage_is_2)
{
    T_OK(fails(run("measure"), 2, "measure", "verb"));
    T_OK(fails(run("inspect"), 2, "inspect", "MODEL"));
    T_OK(fails(run("inspect a b"), 2, "one MODEL", "2 came"));
    T_OK(fails(run("analyze a --frobnicate"), 2, "--frobnicate", "unknown"));
    T_OK(fails(run("inspect a --task x"), 2, "--task", "inspect"));
    T_OK(fails(run("analyze a --context 1"), 2, "--context", "whole number"));
    T_OK(fails(run("analyze a --context 5x"), 2, "--context", "5x"));
    T_OK(fails(run("analyze a --dtype f17"), 2, "f17", "f32|bf16"));
    T_OK(fails(run("analyze a --text"), 2, "--text", "FILE"));
    T_OK(fails(run("compare a b"), 2, "--out", "compare"));
    T_OK(fails(run("compare a"), 2, "2 to 8: MODEL", "1 came"));
    T_OK(fails(run("compare a b c d e f g h i"), 2, "2 to 8: MODEL", "9 came"));
    T_OK(fails(run("eval a --weights w4,"), 2, "--weights", "empty item"));
    T_OK(fails(run("eval a --weights ,w4"), 2, "--weights", "empty item"));
    T_OK(fails(run("eval a --shots-from x"), 2, "--shots-from", "without --shots"));
    T_OK(fails(run("eval a --needle-form question"), 2, "--needle-form", "without --needles"));
    T_OK(fails(run("eval a --samples 3"), 2, "--samples", "without --needles"));
    T_OK(fails(run("eval a --orders 3"), 2, "--orders", "without --order"));
    T_OK(fails(run("generate a"), 2, "--prompt", "generate"));
    T_OK(fails(run(with_model("analyze %s --logit-bits 5", PAIR)), 2, "5", "16, 8, 6, 4"));
    T_OK(fails(run(with_model("analyze %s --weights w3", PAIR)), 2, "w3", "4"));
    T_OK(fails(run(with_model("compare %s x -o x --weights w4:g7", PAIR)), 2, "w4:g7", "g"));
}

TEST(a_missing_device_is_3)
{
    T_OK(fails(run(with_model("analyze %s --device cuda", PAIR)), 3, "CUDA", "cpu"));
}

TEST(bad_input_is_1_and_leaves_nothing)
{
    write_text("empty.txt", "");
    write_text("one.txt", "a");
    write_text("ids.txt", "[1, 2, 3, 99999999]");
    write_text("words.txt", "1 2 three");
    T_OK(fails(run("inspect nowhere"), 1, "nowhere", "No such file"));
    T_OK(fails(run(with_model("analyze %s --text gone.txt -o a.h5", PAIR)), 1, "gone.txt",
               "No such file"));
    T_OK(fails(run(with_model("analyze %s --text empty.txt -o a.h5", PAIR)), 1, "empty.txt",
               "empty"));
    T_OK(fails(run(with_model("analyze %s --bos none --text one.txt -o a.h5", PAIR)), 1,
               "one.txt", "token"));
    T_OK(fails(run(with_model("analyze %s --tokens ids.txt -o a.h5", TINY)), 1, "ids.txt",
               "not below"));
    T_OK(fails(run(with_model("analyze %s --tokens words.txt -o a.h5", TINY)), 1, "words.txt",
               "byte 4"));
    T_OK(fails(run(with_model("analyze %s -o a.h5", TINY)), 1, "tokenizer.json",
               "No such file"));
    T_OK(!exists("a.h5"));
}

TEST(output_that_cannot_be_written)
{
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
    write_text("file", "x");
    T_OK(fails(run(with_model("analyze %s -q --tokens ids.txt -o nowhere/a.h5", TINY)), 1,
               "nowhere", "No such file"));
    T_OK(fails(run(with_model("compare %s x -o file/out", TINY)), 1, "file", ""));
    /* A full disk: no file may grow past 4 KiB. */
    Outcome *o = run_after("trap '' XFSZ; ulimit -f 4;",
                           with_model("analyze %s -q --tokens ids.txt -o full.h5", TINY));
    T_OK(fails(o, 1, "full.h5", ""));
    T_OK(!exists("full.h5"));
}

TEST(report_refuses_what_is_not_ours)
{
    write_text("text.h5", "this is no HDF5 file");
    T_OK(fails(run("report text.h5 -o page"), 1, "text.h5", ""));
    T_OK(fails(run("report gone.h5 -o page"), 1, "gone.h5", ""));
    T_OK(!exists("page/index.html"));
}

/* What a file calls its things must not break the line or steer the terminal. */
TEST(a_failure_is_one_line_whatever_the_names)
{
    char path[256];
    snprintf(path, sizeof path, "%s/odd", check_tmp());
    T_OK(mkdir(path, 0777) == 0);
    write_text("odd/config.json", "{\"architectures\": [\"a\\nb\\u001b[31m\xc2\x9b" "2J\"]}");
    Outcome *o = run("inspect odd");
    T_OK(fails(o, 1, "a?b?[31m?2J", "config.json"));
    T_OK(!strchr(o->err, 27));
}

TEST(closed_streams_are_not_taken_for_files)
{
    static const char CLOSED[] = "sh -c 'exec \"$0\" \"$@\" <&- >&-'";
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
    Outcome *o = run_after(CLOSED, with_model("analyze %s -q --tokens ids.txt -o c.h5", TINY));
    T_OK(fails(o, 1, "standard output", ""));
    T_OK(o->out[0] == 0);
    T_OK(run("report c.h5 -o page-of-c")->code == 0);  // whole, nothing printed into it
}

/* Hours of work are not begun where their end is known. */
TEST(what_can_be_known_is_checked_first)
{
    T_OK(fails(run("analyze nowhere -o gone/a.h5"), 1, "gone/a.h5", "No such file"));
    T_OK(fails(run(with_model("analyze %s -q --tokens x --maps-layer 3", TINY)), 1,
               "--maps-layer 3", "0 to 2"));
    T_OK(fails(run(with_model("compare %s nowhere -q -o unmade", PAIR)), 1, "nowhere",
               "No such file"));
    T_OK(!exists("unmade"));
    T_OK(fails(run("inspect ''"), 2, "empty", "MODEL"));
    T_OK(fails(run("analyze a -o ''"), 2, "--out", "empty"));
}

/* "." cannot name a group of the file; the folder has a name. */
TEST(a_model_is_called_by_its_folder)
{
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
    Outcome *o = run(with_model("analyze %s/. -q --json --tokens ids.txt -o dot.h5", TINY));
    T_OK(o->code == 0 && exists("dot.h5"));
    T_OK(strstr(o->out, "\"model\":\"diff_gqa\""));
}

/* An option that would not be looked at, and one that would be for nothing. */
TEST(quantize_refuses_what_does_not_go_together)
{
    write_text("text.txt", "A few words to calibrate on.");
    T_OK(fails(run(with_model("quantize %s -o q --target-bits 5 --bits 8", TINY)), 2, "--bits",
               "--target-bits"));
    T_OK(fails(run(with_model("quantize %s -o q.gguf --asym", TINY)), 2, "--asym", "gguf"));
    T_OK(fails(run(with_model("quantize %s -o q.gguf --bits 8 --gguf-type Q4_0", TINY)), 2,
               "--bits", "--gguf-type"));
    T_OK(fails(run(with_model("quantize %s -o q --scheme '*=w8:f32'", TINY)), 2, "*=w8:f32",
               "--floats"));
    T_OK(fails(run("quantize gone -o q"), 1, "gone", "No such file"));
    /* before the text is looked at: there is no gone.txt */
    T_OK(fails(run(with_model("quantize %s -o q.gguf --text gone.txt", TINY)), 1, "GGUF",
               "--format compressed-tensors"));
    T_OK(!exists("q") && !exists("q.partial") && !exists("q.gguf"));
}

/* Ids of the text that the embedding has no rows for. */
TEST(quantize_refuses_a_tokenizer_of_another_model)
{
    char command[1024];
    snprintf(command, sizeof command, "cp -r '%s' small && cp '%s/tokenizer.json' small && ",
             check_path(TINY), check_path(PAIR));
    write_text("text.txt", "A few words to calibrate on.");
    T_OK(fails(run_after(command, "quantize small -o q --text text.txt"), 1, "small",
               "its tokenizer has ids up to"));
}

TEST(inspect_shows_heads_and_lambda)
{
    Outcome *o = run(with_model("inspect %s", TINY));
    T_OK(o->code == 0);
    T_OK(strstr(o->out, "DiffLlamaForCausalLM") && strstr(o->out, "Lambda"));
    o = run(with_model("inspect --json %s", TINY));
    T_OK(o->code == 0 && o->out[0] == '{');
    T_OK(strstr(o->out, "\"lambda_init\": [0.2"));
}

TEST(analyze_then_report)
{
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20");
    Outcome *o = run(with_model("analyze %s -q --tokens ids.txt -o tiny.h5", TINY));
    T_OK(o->code == 0 && exists("tiny.h5"));
    T_OK(strstr(o->out, "top-100") && strstr(o->out, "median"));
    o = run("report tiny.h5 -o page");
    T_OK(o->code == 0 && exists("page/index.html"));
    /* Room for each picture, not for the page that holds them all. */
    o = run_after("trap '' XFSZ; ulimit -f 200;", "report tiny.h5 -o full");
    T_OK(fails(o, 1, "full/index.html", "File too large"));
    T_OK(exists("page/logits-heads.png") && !exists("full/logits-heads.png"));
    T_OK(run("report tiny.h5 -o linear --color linear")->code == 0);
    T_OK(run("report tiny.h5 -o log --color log")->code == 0);
    T_OK(differ("linear/hidden-channels.png", "log/hidden-channels.png"));
    o = run(with_model("analyze %s -q --json --tokens ids.txt", TINY));
    T_OK(o->code == 0 && strstr(o->out, "\"outliers\": ["));
}

TEST(no_record_gives_the_same_perplexity)
{
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20");
    char     with[64] = "";
    Outcome *o = run(with_model("analyze %s -q --json --tokens ids.txt", TINY));
    const char *at = strstr(o->out, "\"perplexity\"");
    T_OK(at);
    snprintf(with, sizeof with, "%.32s", at);
    o = run(with_model("analyze %s -q --json --no-record --tokens ids.txt", TINY));
    T_OK(o->code == 0 && strstr(o->out, with));
}

TEST(generate_speaks)
{
    Outcome *o = run(with_model("generate %s --prompt 'The command' -n 8", PAIR));
    T_OK(o->code == 0);
    T_OK(strncmp(o->out, "The command", 11) == 0 && strlen(o->out) > 13);
    o = run(with_model("generate --json %s --prompt 'The command' -n 8", PAIR));
    T_OK(o->code == 0 && strstr(o->out, "\"text\""));
}

TEST(compare_makes_the_whole_study)
{
    char command[1024];
    snprintf(command, sizeof command, "compare -q %s %s -o study --max-tokens 600 --context "
             "128 --logit-bits 16,4 --text %s", check_path(PAIR), check_path("pair/base"),
             check_path("pair/heldout.txt"));
    Outcome *o = run(command);
    T_OK(o->code == 0);
    T_OK(exists("study/index.html") && exists("study/study.h5"));
    T_OK(strstr(o->out, "top-100") && strstr(o->out, "study/index.html"));
}

/* --- eval and the grid --- */

#define EPISODE(id, n) "{\"id\":\"" id "\",\"n\":" n ",\"context\":\"The key is 42. The key is\"," \
                       "\"answer\":\" 42\",\"span\":[11,13]}\n"
#define PICK(answer) "{\"context\":\"To list the\",\"choices\":[\"files\",\"moon\",\"a b c\"]," \
                     "\"answer\":" answer "}\n"

/* Arguments of a small grid over the pair. */
static const char *small_grid(const char *verb, const char *more)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "%s -q %s %s --task ep.jsonl --task pick.jsonl --text %s --max-tokens 400 "
             "--context 64 --windows 3 --logit-bits 16,4 %s",
             verb, check_path(PAIR), strcmp(verb, "compare") == 0 ? check_path("pair/base") : "",
             check_path("pair/heldout.txt"), more);
    if (!exists("ep.jsonl")) {   // their times are among the settings of a resumed run
        write_text("ep.jsonl", EPISODE("a", "1") EPISODE("b", "2") EPISODE("c", "2"));
        write_text("pick.jsonl", PICK("0") PICK("1") PICK("2") PICK("0"));
    }
    return text;
}

TEST(eval_scores_every_cell)
{
    Outcome *o = run(small_grid("eval", "--weights w4a8kv8:g64 --kl"));
    T_OK(o->code == 0 && !strstr(o->out, "top-100"));
    T_OK(strstr(o->out, "ep-n1") && strstr(o->out, "pick norm") && strstr(o->out, "KL"));
    T_OK(strstr(o->out, "w4a8kv8:g64") && strstr(o->out, "item by item"));
    o = run(small_grid("eval", "--json -o one.h5"));
    T_OK(o->code == 0 && exists("one.h5") && !exists("one.h5/cells"));
    T_OK(strstr(o->out, "\"accuracy\": [{") && strstr(o->out, "\"within_noise\":"));
    T_OK(strstr(o->out, "\"h5\": \"one.h5\""));
    o = run("report one.h5 -o page-of-one");
    T_OK(o->code == 0 && strstr(o->out, "pick norm") && exists("page-of-one/accuracy.png"));
}

/* The cells of either are found again: neither was written over. */
TEST(models_whose_files_would_be_called_alike)
{
    char command[1024];
    T_OK(system_in_tmp("mkdir 'a b' a-b"));
    snprintf(command, sizeof command, "cd '%s' && cp %s/* 'a b' && cp %s/* a-b", check_tmp(),
             check_path(PAIR), check_path("pair/base"));
    T_OK(system(command) == 0);
    snprintf(command, sizeof command, "compare -q 'a b' a-b -o alike --task pick.jsonl --text %s "
             "--max-tokens 100 --logit-bits 16", check_path("pair/heldout.txt"));
    T_OK(run(command)->code == 0);
    T_OK(exists("alike/cells/a-b-fp-16.cell") && exists("alike/cells/a-b-(2)-fp-16.cell"));
    strcat(command, " --resume");
    T_OK(run(command)->code == 0);
}

TEST(names_of_tasks_do_not_part_lists)
{
    write_text("one,two.jsonl", PICK("0") PICK("1"));
    Outcome *o = run(small_grid("eval", "--task one,two.jsonl"));
    T_OK(o->code == 0 && strstr(o->out, " one_two  one_two norm "));
}

TEST(bits_given_twice_are_scored_once)
{
    Outcome *o = run(small_grid("eval", "--logit-bits 16"));
    const char *row = strstr(o->out, " 16 ");
    T_OK(o->code == 0 && row && !strstr(row + 1, " 16 "));
}

TEST(other_conventions_give_other_perplexities)
{
    char first[64] = "";
    for (int i = 0; i < 2; i++) {
        Outcome *o = run(small_grid("eval", i ? "--json --convention llama.cpp" : "--json"));
        const char *at = strstr(o->out, "\"perplexity\":");
        T_OK(o->code == 0 && at);
        T_OK(i == 0 || strncmp(first, at, 24) != 0);
        snprintf(first, sizeof first, "%.40s", at);
    }
    T_OK(fails(run(small_grid("eval", "--stride 16")), 2, "--stride", "strided"));
}

TEST(what_a_grid_cannot_do_is_said_first)
{
    T_OK(fails(run(small_grid("eval", "--weights w4:gptq")), 2, "w4:gptq", "--out"));
    T_OK(fails(run(small_grid("eval", "--weights w4:gptq -o x.h5")), 2, "w4:gptq", "--out"));
    T_OK(fails(run(small_grid("eval", "--resume")), 2, "--resume", "--out"));
    T_OK(fails(run(small_grid("compare", "-o x.h5")), 2, "x.h5", "folder"));
    T_OK(fails(run(small_grid("eval", "--weights w5")), 2, "w5", "w4"));
    T_OK(fails(run(small_grid("eval", "--needles 2,3")), 2, "2,3", "N,R"));
    T_OK(fails(run(small_grid("eval", "--needles 6")), 2, "--needles", "6,2"));
    T_OK(fails(run(small_grid("eval", "--weights w4:gptq --windows 99 -o g")), 2, "99 windows",
               "--calibrate"));
}

TEST(bad_tasks_are_told)
{
    write_text("none.jsonl", "\n");
    write_text("odd.jsonl", "{\"question\":1}\n");
    write_text("half.jsonl", PICK("0") "{\"context\": \"x\"\n");
    write_text("far.jsonl", PICK("0") PICK("3"));
    T_OK(fails(run(small_grid("eval", "--task none.jsonl")), 1, "none.jsonl", "no items"));
    T_OK(fails(run(small_grid("eval", "--task odd.jsonl")), 1, "odd.jsonl:1", ""));
    T_OK(fails(run(small_grid("eval", "--task half.jsonl")), 1, "half.jsonl:2", ""));
    T_OK(fails(run(small_grid("eval", "--task far.jsonl")), 1, "far.jsonl:2", "answer"));
    T_OK(fails(run(small_grid("eval", "--task ./pick.jsonl")), 1, "two tasks", "pick"));
    T_OK(fails(run(small_grid("eval", "--task gone.jsonl")), 1, "gone.jsonl", "No such file"));
}

/* A model of 101 tokens with the tokenizer of another. */
TEST(a_tokenizer_of_another_model)
{
    char command[1024], tiny[400];
    snprintf(tiny, sizeof tiny, "%s", check_path(TINY));
    snprintf(command, sizeof command,
             "cd '%s' && mkdir mixed && cp %s/config.json %s/model.safetensors mixed && cp "
             "%s/tokenizer.json mixed", check_tmp(), tiny, tiny, check_path(PAIR));
    T_OK(system(command) == 0);
    T_OK(fails(run("eval mixed -q --logit-bits 16"), 1, "mixed", "tokenizer has ids up to"));
}

/* Killed again and again, then finished: the same bytes as in one go. */
TEST(a_killed_grid_goes_on)
{
    static const char MORE[] = "--weights w4:g64,w4:g64:gptq --kl -o grid";
    char before[64], again[128];
    snprintf(again, sizeof again, "%s --resume", MORE);
    T_OK(run(small_grid("compare", MORE))->code == 0);
    T_OK(system_in_tmp("mv grid/study.h5 whole.h5") && !exists("grid/study.h5"));
    T_OK(run(small_grid("compare", again))->code == 0);      // all is there
    T_OK(!differ("whole.h5", "grid/study.h5") && exists("grid/checkpoints"));
    T_OK(system_in_tmp("rm -r grid"));
    int code = 137, kills = 0;
    for (int i = 0; code == 137 && i < 200; i++) {
        snprintf(before, sizeof before, "timeout -s KILL 0.%d", 1 + (i * 7 + i / 5) % 9);
        if (i > 40)
            before[0] = 0;   // a machine too busy for any of these
        code = run_after(before, small_grid("compare", again))->code;
        kills += code == 137;
    }
    T_OK(code == 0 && kills > 0);
    T_OK(!differ("whole.h5", "grid/study.h5"));
    T_OK(fails(run(small_grid("compare", "--weights w4:g64:gptq -o grid --resume")), 2,
               "--kl given", "--kl not given"));
}
