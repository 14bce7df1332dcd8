/* test_grid.c - eval and compare as a user meets them: every cell of the table, columns of
 * all kinds, kinds of models with roundings of their own, runs that are killed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reports/h5.h"
#include "tests/check.h"
#include "tests/reports/ref_program.h"

#define TINY "golden/models/diff_gqa"
#define PAIR "pair/diff"
#define EPISODE(id, n) "{\"id\":\"" id "\",\"n\":" n ",\"context\":\"The key is 42. The key is\"," \
                       "\"answer\":\" 42\",\"span\":[11,13]}\n"
#define PICK(answer) "{\"context\":\"To list the\",\"choices\":[\"files\",\"moon\",\"a b c\"]," \
                     "\"answer\":" answer "}\n"
#define KIND(text, label) "{\"text\":\"" text "\",\"label\":\"" label "\"}\n"

static void write_tasks(void)
{
    write_text("ep.jsonl", EPISODE("a", "1") EPISODE("b", "2") EPISODE("c", "2"));
    write_text("pick.jsonl", PICK("0") PICK("1") PICK("2") PICK("0"));
    write_text("kinds.jsonl", KIND("the files of", "file") KIND("the host of", "net")
               KIND("remove a", "file") KIND("connect to", "net") KIND("copy it to", "file"));
}

/* Arguments of a small grid over the pair. */
static const char *small_grid(const char *verb, const char *more)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "%s -q %s %s --task ep.jsonl --task pick.jsonl --text %s --max-tokens 400 "
             "--context 80 --logit-bits 16,4 %s %s",
             verb, check_path(PAIR), strcmp(verb, "compare") == 0 ? check_path("pair/base") : "",
             check_path("pair/heldout.txt"), strstr(more, "gptq") ? "--windows 3" : "", more);
    write_tasks();
    return text;
}

#define COLUMNS "--needles 2,1 --needle-form statement --samples 1 --order kinds.jsonl " \
                "--orders 3 --shots 2 "

/* The same without files of tasks, all of it given. */
static const char *bare_grid(const char *model, const char *more)
{
    static char text[2048];
    snprintf(text, sizeof text, "eval -q %s --text %s --max-tokens 200 --context 128 %s", model,
             check_path("pair/heldout.txt"), more);
    write_tasks();
    return text;
}

/* --- what a file holds --- */

typedef struct {
    Arena      arena;
    SeriesSet *sets;
    int        n;
} Results;

static Results read_results(const char *name)
{
    Results   r = {0};
    SeriesSet root;
    char      path[300];
    snprintf(path, sizeof path, "%s/%s", check_tmp(), name);
    if (h5_read(&r.arena, path, &r.sets, &r.n, &root) != OK)
        r.n = 0;
    return r;
}

/* A figure of a set's cell. Items of tasks are [task, weights, logit_bits]. */
static double cell_of(const SeriesSet *set, const char *name, int w, int b)
{
    return series_get(series_find_dims(set, name, "weights,logit_bits"), w, b, 0);
}

static double task_of(const SeriesSet *set, const char *name, int task, int w, int b)
{
    return series_get(series_find_dims(set, name, "task,weights,logit_bits"), task, w, b);
}

static const char *text_of(const SeriesSet *set, const char *key)
{
    const Attr *a = series_attr(set, key);
    return a && a->kind == ATTR_TEXT ? a->text : "";
}

/* --- cells --- */

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

/* Kinds are run once each, "fp" first, whatever the list; a cell's figures do not hang on
 * its neighbours, and each kind rounds what its name says. */
TEST(kinds_have_roundings_of_their_own)
{
    static const char *const KINDS[] = {"fp", "w16a4", "w16kv4", "w4a4kv4:g64:atensor"};
    char more[200];
    T_OK(run(bare_grid(check_path(PAIR), "--logit-bits 4,16 --weights w16a4,fp,w16a4,w16a16 "
                       "--weights w16kv4,w4a4kv4:g64:atensor -o all.h5"))->code == 0);
    Results all = read_results("all.h5");
    T_OK(all.n == 1);
    T_TEXT(text_of(&all.sets[0], "eval_weights"), "fp,w16a4,w16kv4,w4a4kv4:g64:atensor");
    double nll[4];
    for (int w = 0; w < 4; w++) {
        nll[w] = cell_of(&all.sets[0], "eval/nll", w, 0);
        for (int k = 0; k < w; k++)
            T_OK(fabs(nll[w] - nll[k]) > 0);
    }
    for (int w = 2; w < 4; w++) {   // alone, at one width
        snprintf(more, sizeof more, "--logit-bits 4 --weights %s -o alone.h5", KINDS[w]);
        T_OK(run(bare_grid(check_path(PAIR), more))->code == 0);
        Results alone = read_results("alone.h5");
        T_OK(alone.n == 1);
        T_NEAR(cell_of(&alone.sets[0], "eval/nll", 1, 0), nll[w], 0);
        T_NEAR(cell_of(&alone.sets[0], "eval/nll", 0, 0), nll[0], 0);
        arena_close(&alone.arena);
    }
    arena_close(&all.arena);
}

/* --- columns --- */

static int64_t items_before(const SeriesSet *set, int task)
{
    const Series *items = series_find_dims(set, "eval/items", "task");
    int64_t       n = 0;
    for (int i = 0; i < task; i++)
        n += (int64_t)series_at(items, i);
    return n;
}

/* Needles and orders stand in every cell, beside the tasks of files, with all that belongs to
 * a column; attention is the unquantized model's. */
TEST(needles_and_orders_are_columns)
{
    enum { NEEDLES = 2, ORDERS = 5 };   // among ep-n1, ep-n2, pick, pick norm
    Outcome *o = run(small_grid("eval", COLUMNS "--weights w4:g64 -o columns.h5"));
    T_OK(o->code == 0 && strstr(o->out, "needles-n2r1") && strstr(o->out, "kinds orders"));
    T_OK(strstr(o->out, "Accuracy over orders") && strstr(o->out, "stddev"));
    T_OK(strstr(o->out, "Attention to the answer's needle"));
    Results r = read_results("columns.h5");
    T_OK(r.n == 1);
    const SeriesSet *s = &r.sets[0];
    T_TEXT(text_of(s, "eval_tasks"), "ep-n1,ep-n2,needles-n2r1,pick,pick norm,kinds orders");
    T_TEXT(text_of(s, "order_task"), "kinds orders");
    const Series *correct = series_find_dims(s, "eval/correct", "weights,logit_bits,item");
    const Series *found = series_find_dims(s, "needles/n2_r1/correct", "depth,sample");
    T_OK(correct && found && series_count(found) == 5);
    for (int i = 0; i < 5; i++)
        T_OK(series_get(correct, 0, 0, items_before(s, NEEDLES) + i) == series_at(found, i));
    const Series *order =
        series_find_dims(s, "order/accuracy", "weights,logit_bits,permutation");
    T_OK(order && order->shape[2] == 3);
    for (int c = 0; c < 4; c++) {
        double sum = 0;
        for (int p = 0; p < 3; p++)
            sum += series_get(order, c / 2, c % 2, p);
        T_NEAR(task_of(s, "eval/accuracy", ORDERS, c / 2, c % 2), sum / 3, 1e-15);
        T_NEAR(cell_of(s, "order/mean", c / 2, c % 2), sum / 3, 1e-15);
        T_OK(cell_of(s, "order/lowest", c / 2, c % 2) <= cell_of(s, "order/highest", c / 2,
                                                                 c % 2));
        for (int k = NEEDLES; k <= ORDERS; k += ORDERS - NEEDLES) {
            T_OK(task_of(s, "eval/stderr", k, c / 2, c % 2) >= 0);
            T_OK(isnan(task_of(s, "paired/accuracy_p", k, c / 2, c % 2)) == (c == 0));
        }
    }
    arena_close(&r.arena);
    o = run("report columns.h5 -o page-of-columns");
    T_OK(o->code == 0 && strstr(o->out, "kinds orders"));
    T_OK(system_in_tmp("grep -q 'The order of examples' page-of-columns/index.html"));
}

/* Without a text the pass has only the columns; without 16 bits the unquantized model, whose
 * attention is told, is none of the cells. */
TEST(columns_alone)
{
    Outcome *o = run(bare_grid(check_path(PAIR), COLUMNS "--logit-bits 4 -o alone.h5"));
    T_OK(o->code == 0 && strstr(o->out, "Needles found"));
    Results r = read_results("alone.h5");
    T_OK(r.n == 1);
    T_TEXT(text_of(&r.sets[0], "eval_tasks"), "needles-n2r1,kinds orders");
    T_OK(isfinite(task_of(&r.sets[0], "eval/accuracy", 0, 0, 0)));
    T_OK(!series_find(&r.sets[0], "paired/accuracy"));
    arena_close(&r.arena);
    char orders[600];
    snprintf(orders, sizeof orders, "eval -q %s --context 80 --order kinds.jsonl --shots 2 "
             "--logit-bits 16 -o orders.h5", check_path(PAIR));
    o = run(orders);
    T_OK(o->code == 0 && !strstr(o->out, "Needles"));
    r = read_results("orders.h5");
    T_OK(r.n == 1 && !series_find(&r.sets[0], "eval/nll"));
    T_TEXT(text_of(&r.sets[0], "eval_tasks"), "kinds orders");
    T_OK(series_find_dims(&r.sets[0], "order/demonstrations", "permutation,shot"));
    arena_close(&r.arena);
}

/* --- models --- */

TEST(models_are_compared_cell_by_cell)
{
    T_OK(run(small_grid("compare", COLUMNS "--weights w4:g64 -o both"))->code == 0);
    T_OK(exists("both/index.html") && exists("both/accuracy.png"));
    Results r = read_results("both/study.h5");
    T_OK(r.n == 2);
    T_TEXT(text_of(&r.sets[1], "versus"), "diff");
    T_OK(!series_find(&r.sets[0], "versus/accuracy"));
    for (int k = 0; k < 6; k++)
        for (int c = 0; c < 4; c++)
            T_NEAR(task_of(&r.sets[1], "versus/accuracy", k, c / 2, c % 2),
                   task_of(&r.sets[1], "eval/accuracy", k, c / 2, c % 2) -
                       task_of(&r.sets[0], "eval/accuracy", k, c / 2, c % 2), 1e-14);
    /* Windows are of one length but the last: means of means, not of tokens. */
    T_NEAR(cell_of(&r.sets[1], "versus/nll", 1, 1),
           cell_of(&r.sets[1], "eval/nll", 1, 1) - cell_of(&r.sets[0], "eval/nll", 1, 1), 0.3);
    T_OK(cell_of(&r.sets[1], "versus/nll", 1, 1) != cell_of(&r.sets[1], "versus/nll", 0, 1));
    arena_close(&r.arena);
}

TEST(a_model_against_itself)
{
    char text[1024];
    write_tasks();
    snprintf(text, sizeof text, "compare -q %s %s --task pick.jsonl --text %s --max-tokens 200 "
             "--context 80 --logit-bits 16,4 -o twice", check_path(PAIR), check_path(PAIR),
             check_path("pair/heldout.txt"));
    T_OK(run(text)->code == 0);
    Results r = read_results("twice/study.h5");
    T_OK(r.n == 2);
    T_TEXT(r.sets[1].model, "diff (2)");
    for (int b = 0; b < 2; b++) {
        T_NEAR(task_of(&r.sets[1], "versus/accuracy", 0, 0, b), 0, 0);
        T_NEAR(task_of(&r.sets[1], "versus/accuracy_p", 0, 0, b), 1, 0);
        T_NEAR(cell_of(&r.sets[1], "versus/nll", 0, b), 0, 0);
    }
    arena_close(&r.arena);
}

/* A checkpoint with 8-bit inputs, and two others: with 4, and as if it said nothing. */
static bool make_rounded(void)
{
    return run(with_model("quantize -q %s --format int8 -o a8", PAIR))->code == 0 &&
           system_in_tmp("cp -r a8 a4 && cp -r a8 a16 && "
                         "sed -i '/\"input_activations\"/,/}/s/\"num_bits\": 8/\"num_bits\": 4/'"
                         " a4/config.json && "
                         "sed -i '/\"input_activations\"/,/}/c \"input_activations\": null,' "
                         "a16/config.json");
}

/* Is the checkpoint's way of rounding that of every verb? */
TEST(a_checkpoint_is_run_as_it_says)
{
    static const char *const NAMES[] = {"a8", "a4", "a16"};
    double nll[3];
    char   said[3][300], text[300];
    T_OK(make_rounded());
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "analyze -q %s --no-record --json --max-tokens 200 "
                 "--context 128 --text %s", NAMES[i], check_path("pair/heldout.txt"));
        Outcome *o = run(text);
        double   perplexity = 0;
        const char *at = strstr(o->out, "\"perplexity\": ");
        T_OK(o->code == 0 && at && sscanf(at + 14, "%lf", &perplexity) == 1);
        T_OK(run(bare_grid(NAMES[i], "--logit-bits 16 --weights w16a6 -o a.h5"))->code == 0);
        Results r = read_results("a.h5");
        T_OK(r.n == 1);
        nll[i] = cell_of(&r.sets[0], "eval/nll", 0, 0);
        T_NEAR(log(perplexity), nll[i], 1e-9);
        T_OK(cell_of(&r.sets[0], "eval/nll", 1, 0) != nll[i]);   // what is asked comes first
        arena_close(&r.arena);
        snprintf(text, sizeof text, "generate %s --prompt 'The command' -n 12", NAMES[i]);
        o = run(text);
        T_OK(o->code == 0);
        snprintf(said[i], sizeof said[i], "%.290s", o->out);
    }
    T_OK(nll[0] != nll[2] && fabs(nll[1] - nll[2]) > 4 * fabs(nll[0] - nll[2]));
    T_OK(strcmp(said[1], said[2]) != 0);
}

/* --- what goes wrong --- */

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
    T_OK(fails(run(bare_grid(check_path(PAIR), "--weights w4:gptq --max-tokens 100 -o g")), 2,
               "one window", "smaller --context"));
    T_OK(fails(run(small_grid("eval", "--needles 99999999999999999999,1")), 2,
               "99999999999999999999,1", "1 to 128 needles"));
}

TEST(options_that_go_unheard_are_refused)
{
    char text[600];
    T_OK(fails(run(small_grid("eval", "--windows 3")), 2, "--windows", "gptq, awq or smooth"));
    T_OK(fails(run(small_grid("compare", "--calibrate ep.jsonl -o u")), 2, "--calibrate",
               "gptq, awq or smooth"));
    T_OK(!exists("u"));
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "eval -q %s --task ep.jsonl --logit-bits 16 %s",
                 check_path(PAIR), i ? "--convention strided --stride 9" : "--stride 9");
        T_OK(fails(run(text), 2, i ? "--convention" : "--stride", "without --text"));
    }
    snprintf(text, sizeof text, "eval -q %s --task ep.jsonl --logit-bits 16 --convention "
             "llama.cpp --weights w4:gptq --max-tokens 900 --context 80 -o u", check_path(PAIR));
    T_OK(run(text)->code == 0);   // it cuts the windows to calibrate on
}

TEST(bad_tasks_are_told)
{
    char text[600];
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
    T_OK(fails(run(small_grid("eval", "--order gone.jsonl")), 1, "gone.jsonl", "No such file"));
    T_OK(fails(run(small_grid("eval", "--order pick.jsonl")), 1, "pick.jsonl:1", "\"text\""));
    T_OK(fails(run(bare_grid(check_path(PAIR), "--order kinds.jsonl --shots 5")), 1,
               "kinds.jsonl", "5 demonstrations"));
    T_OK(fails(run(small_grid("eval", "--needles 200,1")), 1, "200 needles", "128"));
    T_OK(system_in_tmp("yes '' | head -5000 > lines.txt"));
    snprintf(text, sizeof text, "eval -q %s --text lines.txt --needles 1,1", check_path(PAIR));
    T_OK(fails(run(text), 1, "lines.txt", "white space, expected sentences"));
}

TEST(blank_lines_come_before_a_task)
{
    write_text("blank.jsonl", "\n \t\r\n" EPISODE("a", "1"));
    Outcome *o = run(small_grid("eval", "--task blank.jsonl"));
    T_OK(o->code == 0 && strstr(o->out, "blank-n1"));
}

/* --- what is wrong with figures --- */

/* A file of two episodes or questions, of which the second fills no context. */
static void write_long(const char *name, const char *first, const char *end)
{
    enum { TIMES = 3000 };
    static char text[TIMES * 16 + 1000];
    char       *at = stpcpy(text, first);
    at = stpcpy(at, "{\"id\":\"z\",\"n\":1,\"context\":\"The key is 42.");
    for (int i = 0; i < TIMES; i++)
        at = stpcpy(at, " The key is 7.");
    stpcpy(at, end);
    write_text(name, text);
}

TEST(what_was_cut_is_counted_and_told)
{
    write_long("long.jsonl", EPISODE("a", "1"), "\",\"answer\":\" 42\",\"span\":[0,4]}\n");
    write_long("wide.jsonl", PICK("0"), "\",\"choices\":[\"a\",\"b\"],\"answer\":1}\n");
    Outcome *o = run(small_grid("eval", "--task long.jsonl --task wide.jsonl --logit-bits 16 "
                                "-o cut"));
    T_OK(o->code == 0 && strstr(o->out, "diff: 1 of 2 items of long-n1 are longer"));
    T_OK(strstr(o->out, "diff: 1 of 2 items of wide are") && !strstr(o->out, "of pick are"));
    T_OK(system_in_tmp("grep -q '1 of 2 items of wide norm are longer' cut/index.html"));
    Results r = read_results("cut/study.h5");
    T_OK(r.n == 1);
    T_TEXT(text_of(&r.sets[0], "eval_tasks"),
           "ep-n1,ep-n2,long-n1,pick,pick norm,wide,wide norm");
    const Series *cut = series_find_dims(&r.sets[0], "eval/truncated", "task");
    T_OK(cut && series_count(cut) == 7);
    for (int i = 0; i < 7; i++)
        T_OK(series_at(cut, i) == (i == 2 || i > 4));
    arena_close(&r.arena);
}

/* A model whose last norm overflows: its answers are none, whatever stands in the table. A file
 * and needles that another pass has scored are counted as well, resumed or not. */
TEST(answers_of_nan_are_counted_and_told)
{
    char text[1024];
    write_tasks();
    snprintf(text, sizeof text, "cp -r %s nan && head -c 512 /dev/zero | "
             "tr '\\0' '\\177' | dd bs=1 conv=notrunc status=none of=nan/model.safetensors "
             "seek=$(($(stat -c %%s nan/model.safetensors) - 512))", check_path(PAIR));
    T_OK(system_in_tmp(text));
    snprintf(text, sizeof text, "compare -q %s nan --task ep.jsonl --task pick.jsonl --text %s "
             "--max-tokens 200 --context 128 --logit-bits 16,4 --needles 1,1 --samples 1 "
             "--needle-form statement --order kinds.jsonl --orders 2 --shots 2 -o n",
             check_path(PAIR), check_path("pair/heldout.txt"));
    Outcome *o = run(text);
    T_OK(o->code == 0 && strstr(o->out, "the accuracy says nothing"));
    T_OK(system_in_tmp("grep -q 'the accuracy says nothing' n/index.html"));
    Results r = read_results("n/study.h5");
    T_OK(r.n == 2);
    for (int b = 0; b < 2; b++) {
        T_OK(cell_of(&r.sets[0], "eval/nan", 0, b) == 0);
        T_OK(cell_of(&r.sets[1], "eval/nan", 0, b) > 30);
    }
    /* Of both cells the same: what was taken from the other pass is among them. */
    T_NEAR(cell_of(&r.sets[1], "eval/nan", 0, 0), cell_of(&r.sets[1], "eval/nan", 0, 1), 0);
    arena_close(&r.arena);
    T_OK(system_in_tmp("mv n/study.h5 nan.h5 && rm n/cells/nan-fp-16.cell"));
    snprintf(text + strlen(text), sizeof text - strlen(text), " --resume");
    T_OK(run(text)->code == 0 && same("nan.h5", "n/study.h5"));
}

/* A model of 101 tokens with the tokenizer of another. */
TEST(a_tokenizer_of_another_model)
{
    char command[1024], tiny[400];
    snprintf(tiny, sizeof tiny, "%s", check_path(TINY));
    snprintf(command, sizeof command, "mkdir mixed && cp %s/config.json %s/model.safetensors "
             "mixed && cp %s/tokenizer.json mixed", tiny, tiny, check_path(PAIR));
    T_OK(system_in_tmp(command));
    T_OK(fails(run("eval mixed -q --logit-bits 16"), 1, "mixed", "tokenizer has ids up to"));
    snprintf(command, sizeof command, "compare %s mixed -q --max-tokens 200 --logit-bits 16 "
             "-o late", check_path(PAIR));
    T_OK(fails(run(command), 1, "mixed", "tokenizer has ids up to"));
    T_OK(!exists("late"));   // the first model was not run
}

/* --- runs that are broken off --- */

/* Whatever of a finished run is gone, what is left is taken up, and the rest is as it was. */
TEST(any_part_may_be_missing)
{
    static const char *const GONE[] = {"cells/*.cell", "cells/diff.h5",
                                       "cells/diff-fp-16.cell cells/diff.h5"};
    char command[200];
    T_OK(run(small_grid("eval", COLUMNS "-o parts"))->code == 0);
    T_OK(system_in_tmp("cp parts/study.h5 first.h5"));
    for (size_t i = 0; i < sizeof GONE / sizeof *GONE; i++) {
        snprintf(command, sizeof command, "cd parts && rm %s", GONE[i]);
        T_OK(system_in_tmp(command));
        T_OK(run(small_grid("eval", COLUMNS "-o parts --resume"))->code == 0);
        T_OK(same("first.h5", "parts/study.h5"));
    }
    T_OK(run(small_grid("eval", COLUMNS "-o parts"))->code == 0);   // and anew
    T_OK(same("first.h5", "parts/study.h5"));
}

TEST(other_settings_are_refused)
{
    static const char *const OTHERS[][3] = {
        {"--needles 1,1 --needle-form statement --samples 2", "2,1", "1,1"},
        {"--needles 2,1 --needle-form question --samples 2", "statement", "question"},
        {"--needles 2,1 --needle-form statement --samples 1", "--samples 2", "--samples 1"},
        {"--needles 2,1 --needle-form statement --samples 2 --seed 1", "--seed 0", "--seed 1"},
        {"--needles 2,1 --needle-form statement --samples 2 --order kinds.jsonl",
         "windows to calibrate", "now it is \"--order kinds.jsonl"},
        {"", "2,1", "now it is"},
    };
    char more[300];
    T_OK(run(bare_grid(check_path(PAIR), "--needles 2,1 --needle-form statement --samples 2 "
                       "--logit-bits 16 -o other"))->code == 0);
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        snprintf(more, sizeof more, "%s --logit-bits 16 -o other --resume", OTHERS[i][0]);
        T_OK(fails(run(bare_grid(check_path(PAIR), more)), 2, OTHERS[i][1], OTHERS[i][2]));
    }
    T_OK(run(bare_grid(check_path(PAIR), "--logit-bits 16 -o other"))->code == 0);   // anew
}

/* Killed again and again, then finished: the same bytes as in one go. */
TEST(a_killed_grid_goes_on)
{
    static const char MORE[] = COLUMNS "--weights w4:g64,w4:g64:gptq --kl -o grid";
    char before[64], again[300];
    snprintf(again, sizeof again, "%s --resume", MORE);
    T_OK(run(small_grid("compare", MORE))->code == 0);
    T_OK(system_in_tmp("mv grid/study.h5 whole.h5") && !exists("grid/study.h5"));
    T_OK(run(small_grid("compare", again))->code == 0);      // all is there
    T_OK(same("whole.h5", "grid/study.h5") && exists("grid/checkpoints"));
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
    T_OK(same("whole.h5", "grid/study.h5"));
    T_OK(fails(run(small_grid("compare", COLUMNS "--weights w4:g64:gptq -o grid --resume")), 2,
               "--kl given", "--kl not given"));
}
