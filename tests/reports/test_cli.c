/* test_cli.c - the program as a user meets it: what it prints, how it fails. Of eval and
 * compare: test_grid.c. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/check.h"
#include "tests/reports/ref_program.h"

#define TINY "golden/models/diff_gqa"
#define PAIR "pair/diff"
#define UNILM "golden/variants/unilm_v1_gqa"

TEST(help_names_every_verb)
{
    Outcome *o = run("--help");
    T_OK(o->code == 0);
    const char *verbs[] = {"inspect", "analyze", "compare", "report", "generate", "eval",
                           "quantize", "convert"};
    for (int i = 0; i < 8; i++)
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
    static const char *const IDLE[] = {"--windows 3", "--damp 0.1", "--max-tokens 100",
                                       "--context 16", "--bos none"};
    for (int i = 0; i < 5; i++) {
        char text[64];
        snprintf(text, sizeof text, "quantize %%s -o q %s", IDLE[i]);
        T_OK(fails(run(with_model(text, TINY)), 2, "says nothing without --text", "--"));
    }
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

TEST(inspect_states_the_memory_of_analyze)
{
    Outcome *o = run(with_model("inspect --context 40 --threads 1 %s", TINY));
    T_OK(o->code == 0 && strstr(o->out, "windows of 40 tokens"));
    T_OK(strstr(o->out, "\n  f32 --stream ") && strstr(o->out, "\n  bf16 "));
    T_OK(!*o->err);
    o = run(with_model("inspect --context 100000 %s", TINY));
    T_OK(o->code == 0 && strstr(o->err, "a context of 100000 is more than the "));
    o = run(with_model("inspect --json --context 40 --max-tokens 120 %s", TINY));
    T_OK(o->code == 0 && strstr(o->out, "\"memory\": {\"context\": 40, \"bytes_per_token\": "));
    T_OK(strstr(o->out, "\"bf16_stream\": {\"peak\": "));
    T_OK(strstr(o->out, "\"batch_tokens\": 120"));
}

TEST(a_stream_writes_the_same_statistics)
{
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20");
    T_OK(run(with_model("analyze %s -q --tokens ids.txt --context 8 -o held.h5",
                        TINY))->code == 0);
    T_OK(run("report held.h5 -o held")->code == 0);
    T_OK(run(with_model("analyze %s -q --tokens ids.txt --context 8 --stream -o held.h5",
                        TINY))->code == 0);
    T_OK(run("report held.h5 -o stream")->code == 0);
    T_OK(same("held/logits-heads.png", "stream/logits-heads.png"));
    T_OK(same("held/hidden-channels.png", "stream/hidden-channels.png"));
    T_OK(fails(run("generate a --prompt x --stream"), 2, "--stream", "generate"));
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

/* Weights without a config.json: by path, by option, converted; and those that have one. */
TEST(layouts)
{
    write_text("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20");
    T_OK(fails(run(with_model("inspect %s", UNILM)), 1, "config.json", "--layout unilm"));
    Outcome *o = run(with_model("inspect unilm@%s", UNILM));
    T_OK(o->code == 0 && strstr(o->out, "assumed: theta 10000") && !strstr(o->out, "unilm@"));
    o = run(with_model("inspect --json --layout unilm:theta=5e5 %s", UNILM));
    T_OK(o->code == 0 && strstr(o->out, "\"layout\": \"unilm, as given: theta 500000;"));
    o = run(with_model("inspect --layout unilm %s", TINY));
    T_OK(o->code == 0 && strstr(o->err, "--layout changes nothing"));
    T_OK(fails(run(with_model("inspect --layout foo %s", TINY)), 2, "\"foo\"", "unilm"));
    T_OK(fails(run("inspect foo@bar"), 2, "no such folder", "\"foo\""));
    T_OK(fails(run("report --layout unilm x.h5"), 2, "--layout", "report"));
    T_OK(fails(run(with_model("convert unilm@%s", UNILM)), 2, "convert", "--out"));
    T_OK(fails(run(with_model("convert %s -o c", TINY)), 1, "already", "transformers"));
    o = run(with_model("convert --layout unilm %s -o c", UNILM));
    T_OK(o->code == 0 && strstr(o->out, "DiffLlamaForCausalLM") && exists("c/config.json"));
    T_OK(strstr(o->err, "assumed") && strstr(o->err, "--floats bf16"));
    T_OK(fails(run(with_model("convert unilm@%s -o c", UNILM)), 2, "there already", "--force"));
    o = run(with_model("convert unilm@%s -o c -f --floats bf16 --json -q", UNILM));
    T_OK(o->code == 0 && strstr(o->out, "\"dtype\": \"BF16\"") && !*o->err);
    o = run(with_model("eval c unilm@%s", UNILM));
    T_OK(fails(o, 2, "one MODEL", "2 came"));
    o = run(with_model("analyze --layout unilm %s -q --json --tokens ids.txt", UNILM));
    T_OK(o->code == 0 && strstr(o->out, "\"outliers\": ["));
}

TEST(generate_speaks)
{
    Outcome *o = run(with_model("generate %s --prompt 'The command' -n 8", PAIR));
    T_OK(o->code == 0);
    T_OK(strncmp(o->out, "The command", 11) == 0 && strlen(o->out) > 13);
    o = run(with_model("generate --json %s --prompt 'The command' -n 8", PAIR));
    T_OK(o->code == 0 && strstr(o->out, "\"text\""));
    cJSON *said = cJSON_Parse(o->out);
    T_OK(said && cJSON_GetArraySize(cJSON_GetObjectItem(said, "ids")) == 8);
    T_OK(cJSON_GetNumberValue(cJSON_GetObjectItem(said, "prompt_tokens")) >= 2);
    T_OK(cJSON_GetNumberValue(cJSON_GetObjectItem(said, "prompt_seconds")) > 0);
    T_OK(cJSON_GetNumberValue(cJSON_GetObjectItem(said, "step_seconds")) > 0);
    cJSON_Delete(said);
}

/* A model whose last norm overflows has nothing to say. */
TEST(generate_refuses_logits_of_nan)
{
    char text[1024];
    snprintf(text, sizeof text, "cp -r %s nan && head -c 512 /dev/zero | "
             "tr '\\0' '\\177' | dd bs=1 conv=notrunc status=none of=nan/model.safetensors "
             "seek=$(($(stat -c %%s nan/model.safetensors) - 512))", check_path(PAIR));
    T_OK(system_in_tmp(text));
    T_OK(fails(run("generate -q nan --prompt 'The command' -n 3"), 1, "some logits are NaN", ""));
}

/* A vocabulary of 101 in the model and of 3 in the tokenizer: padding speaks no word. */
TEST(generate_passes_over_ids_without_a_text)
{
    T_OK(system_in_tmp(with_model("cp -r %s padded", TINY)));
    write_text("padded/tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": "
               "{\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}");
    Outcome *o = run("generate padded --prompt ab -n 8");
    T_OK(o->code == 0);
    T_TEXT(o->out, "ab\n");
    o = run("generate padded --prompt ab -n 2 --json");
    T_OK(o->code == 0 && strstr(o->out, "\"text\": \"\"") && !strstr(o->out, "[]"));
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
