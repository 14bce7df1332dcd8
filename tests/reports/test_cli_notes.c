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
