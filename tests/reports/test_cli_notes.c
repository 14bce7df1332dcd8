/* test_cli_notes.c - sentences that tell what was guessed, left out or is missing, and the
 * way on from there. */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "tests/reports/ref_program.h"

#define TINY "golden/models/diff_gqa"
#define PAIR "pair/diff"
#define V1 "golden/variants/unilm_v1_gqa"
#define V2 "golden/variants/unilm_v2_gqa"

static const char WORDS[] = "A few words to calibrate on, and a few more of them after these.";

/* All windows went into the calibration: the perplexity is missing, and why is told. */
TEST(quantize_says_why_there_is_no_perplexity)
{
    static const char RUN[] = "quantize %s -f -o q --bits 6 --method rtn --smooth 0.5 "
                              "--text text.txt --context 8 --max-tokens 16";
    char more[128];
    write_text("text.txt", WORDS);
    Outcome *o = run(with_model(RUN, PAIR));
    T_OK(o->code == 0 && !strstr(o->out, "Perplexity"));
    T_OK(strstr(o->err, "No text is left after the 3 windows") && strstr(o->err, "--check FILE"));
    T_OK(strstr(o->err, "SmoothQuant leaves values and outputs as they are: a norm of each head"));
    T_OK(strstr(o->err, "compressed-tensors 0.18") && strstr(o->err, "(--wide6)"));
    snprintf(more, sizeof more, "%s --json", RUN);
    o = run(with_model(more, PAIR));
    T_OK(o->code == 0 && strstr(o->out, "No text is left after the 3 windows"));
    snprintf(more, sizeof more, "%s --windows 1", RUN);
    o = run(with_model(more, PAIR));
    T_OK(o->code == 0 && strstr(o->out, "Perplexity") && !strstr(o->err, "No text is left"));
}

/* Nothing is coded: it takes AWQ seconds to find its scales. */
TEST(awq_names_all_it_leaves_out)
{
    static const char RUN[] = "quantize %s -f -o q --awq --scheme '*=fp' --text text.txt "
                              "--context 8 --max-tokens 8";
    write_text("text.txt", WORDS);
    Outcome *o = run(with_model(RUN, PAIR));
    T_OK(o->code == 0 && strstr(o->err, "AWQ moves no scales between values and outputs"));
    o = run(with_model(RUN, "pair/base"));
    T_OK(o->code == 0 && !strstr(o->err, "values and outputs"));
}

/* The guesses stand in OUT's config.json like facts. */
TEST(quantize_tells_what_a_layout_assumed)
{
    Outcome *o = run(with_model("quantize unilm@%s -f -o q", V1));
    T_OK(o->code == 0 && strstr(o->err, "assumed: theta 10000"));
    T_OK(strstr(o->err, "transformers has no class for UnilmDiffForCausalLM") &&
         strstr(o->err, "convert first"));
    o = run(with_model("quantize --json -q unilm:theta=5e5@%s -f -o q", V1));
    T_OK(o->code == 0 && strstr(o->out, "as given: theta 500000"));
    o = run(with_model("quantize unilm@%s -f -o q", V2));
    T_OK(o->code == 0 && strstr(o->err, "UnilmDiff2ForCausalLM") &&
         !strstr(o->err, "convert first"));
    o = run(with_model("quantize %s -f -o q", TINY));
    T_OK(o->code == 0 && !strstr(o->err, "transformers has no class"));
}

/* A checkpoint of few bits is no "fp", in no table and no series, and is not rounded again. */
TEST(what_is_stored_in_few_bits_is_called_so)
{
    char command[1024];
    T_OK(run(with_model("quantize %s -q -f -o q4 --bits 4", PAIR))->code == 0);
    write_text("text.txt", WORDS);
    snprintf(command, sizeof command, "compare -q %s q4 -o both --logit-bits 16 --text text.txt "
             "--task %s --context 16 --max-tokens 32", check_path(PAIR), "task.jsonl");
    write_text("task.jsonl", "{\"context\": \"The\", \"choices\": [\" cat\", \" of\"], "
               "\"answer\": 0}\n");
    Outcome *o = run(command);
    T_OK(o->code == 0 && strstr(o->out, "diff   fp ") && strstr(o->out, "q4     stored "));
    T_OK(!strstr(o->out, "q4     fp"));
    T_OK(system_in_tmp("grep -q stored both/study.h5 && grep -q 'stored: weights of few bits' "
                       "both/index.html"));
    T_OK(fails(run("eval q4 -q --logit-bits 16 --text text.txt --weights w16a8,w4"), 2,
               "quantized already", "--weights w4"));
    T_OK(fails(run("eval q4 -q -o e --logit-bits 16 --text text.txt --weights w16:rotate"), 2,
               "quantized already", "rotate"));
    T_OK(fails(run("analyze q4 -q --text text.txt --weights w8"), 2, "quantized already", "w8"));
    o = run("eval q4 -q --json --logit-bits 16 --text text.txt --weights w16a8 --max-tokens 32");
    T_OK(o->code == 0 && strstr(o->out, "\"stored\"") && strstr(o->out, "w16a8"));
}

TEST(a_checkpoint_without_a_tokenizer)
{
    write_text("text.txt", WORDS);
    T_OK(fails(run(with_model("analyze %s", TINY)), 1, "No such file", "--tokens FILE"));
    T_OK(fails(run(with_model("eval %s", TINY)), 1, "needs a tokenizer.json", "No such file"));
    T_OK(fails(run(with_model("generate %s --prompt a", TINY)), 1, "needs a tokenizer.json", ""));
    Outcome *o = run(with_model("quantize %s -o none --text text.txt", TINY));
    T_OK(fails(o, 1, "needs a tokenizer.json", "") && !strstr(o->err, "--tokens"));
    T_OK(fails(run("generate nowhere --prompt a"), 1, "nowhere", "No such file"));
}

TEST(report_draws_no_figures_of_quantize)
{
    T_OK(run(with_model("quantize %s -q -f -o q --stats q.h5", TINY))->code == 0);
    T_OK(fails(run("report q.h5 -o page"), 1, "q.h5", "figures of quantize"));
    T_OK(!exists("page"));
}

TEST(a_short_file_leaves_few_questions)
{
    char lines[2048] = "", *at = lines;
    for (int i = 0; i < 24; i++)
        at += sprintf(at, "{\"text\": \"word %d\", \"label\": \"%s\"}\n", i, i % 2 ? "a" : "b");
    write_text("kinds.jsonl", lines);
    static const char RUN[] = "eval %s --order kinds.jsonl --orders 1 --shots ";
    char              arguments[128];
    snprintf(arguments, sizeof arguments, "%s5 --logit-bits 16", RUN);
    Outcome *o = run(with_model(arguments, PAIR));
    T_OK(o->code == 0 &&
         strstr(o->err, "diff: 19 questions are left of kinds.jsonl after 5 examples: too few"));
    snprintf(arguments, sizeof arguments, "%s4 --logit-bits 16", RUN);
    o = run(with_model(arguments, PAIR));
    T_OK(o->code == 0 && !strstr(o->err, "examples: too few"));
}
