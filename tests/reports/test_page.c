/* test_page.c - the whole report: files, words, escapes, and every failure. */
#include "reports/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/filemap.h"
#include "reports/draw/page.h"
#include "tests/check.h"
#include "tests/reports/ref_study.h"

static const ReportOptions OPTIONS = {.command = "diffquant compare \"<a>\" b",
                                      .h5_name = "study.h5", .map_head = -1};

static const char *tmp(const char *name)
{
    static char text[4][256];
    static int turn;
    char *p = text[turn++ % 4];
    snprintf(p, sizeof text[0], "%s/%s", check_tmp(), name);
    return p;
}

/* The page as text in the arena. */
static const char *read_page(Arena *a, const char *folder)
{
    FileMap map;
    char path[300];
    snprintf(path, sizeof path, "%s/index.html", folder);
    if (filemap_open(&map, path) != OK)
        return "";
    const char *text = arena_text(a, (const char *)map.data, map.size);
    filemap_close(&map);
    return text;
}

TEST(two_models_give_all_pictures_and_a_page)
{
    static const char *const names[] = {
        "index.html", "logits-heads.png", "tails.png", "hidden-channels.png",
        "hidden-positions.png", "attention-maps.png", "accuracy.png", "perplexity.png"};
    Arena a = {0};
    SeriesSet sets[2];
    ReportFiles files;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(report_write(&a, tmp("deep/two"), sets, 2, &OPTIONS, &files));
    T_OK(files.n == 8);
    for (int i = 0; i < 8; i++) {
        T_OK(strstr(files.paths[i], names[i]));
        T_OK(access(files.paths[i], R_OK) == 0);
    }
    const char *page = read_page(&a, tmp("deep/two"));
    T_OK(strstr(page, "<b>Base-Tiny</b> has the larger attention logit outliers, by a factor of "
                      "<b>8.2</b>: 318.0 (59 times the median) in Base-Tiny, 38.80"));
    T_OK(strstr(page, "4-bit attention logits cost <b>Base-Tiny</b>: <b>27.3\u00a0points</b> on "
                      "needles-1 (94.0 → 66.7\u00a0%, beyond noise"));
    T_OK(strstr(page, "<b>Diff-Tiny</b>: <b>5.6\u00a0points</b> on needles-1"));
    T_OK(strstr(page, "on needles-4 (61.0 → 57.3\u00a0%, within noise"));
    T_OK(strstr(page, "<b>Diff-Tiny</b> keeps more at 4 bits"));
    T_OK(strstr(page, "f = h5py.File(\"study.h5\")"));
    T_OK(strstr(page, "Diff-Tiny: λ</th>"));
    arena_close(&a);
}

/* Nothing is fetched, nothing runs, nothing of a file is markup. */
TEST(the_page_stands_alone_and_is_escaped)
{
    Arena a = {0};
    SeriesSet sets[2];
    T_STATUS_OK(ref_study(&a, sets));
    sets[1].model = "<i>\"x\"&";
    T_STATUS_OK(report_write(&a, tmp("alone"), sets, 2, &OPTIONS, NULL));
    const char *page = read_page(&a, tmp("alone"));
    T_OK(!strstr(page, "<script") && !strstr(page, "http:") && !strstr(page, "https:"));
    T_OK(!strstr(page, "<link") && !strstr(page, "@import") && !strstr(page, "url("));
    T_OK(!strstr(page, "<i>") && strstr(page, "&lt;i&gt;&quot;x&quot;&amp;"));
    T_OK(!strstr(page, "<a>") && strstr(page, "&lt;a&gt;"));
    T_OK(!strstr(page, "<b>test") && strstr(page, "models/pair &amp; &lt;b&gt;test"));
    T_OK(!strstr(page, "<x>"));
    int n = 0;
    for (const char *p = page; (p = strstr(p, "src=\"")); p++)
        n += strncmp(p, "src=\"data:image/png;base64,iVBOR", 32) == 0 ? 1 : 100;
    T_OK(n == 7);
    arena_close(&a);
}

TEST(one_model_leaves_out_what_it_has_not)
{
    Arena a = {0};
    SeriesSet set;
    ReportFiles files;
    ReportOptions bare = {.map_head = -1};
    T_STATUS_OK(ref_study_one(&a, &set));
    T_STATUS_OK(report_write(&a, tmp("one"), &set, 1, &bare, &files));
    T_OK(files.n == 5);
    const char *page = read_page(&a, tmp("one"));
    T_OK(strstr(page, "The largest attention logit of <b>Base-Tiny</b> is 318.0 (59 times"));
    T_OK(!strstr(page, "What fewer bits cost") && !strstr(page, "Inside one head"));
    T_OK(!strstr(page, "h5py") && !strstr(page, "Command line") && !strstr(page, "λ"));
    arena_close(&a);
}

TEST(a_set_of_nothing_still_gives_a_page)
{
    Arena a = {0};
    SeriesSet set;
    ReportFiles files;
    series_set_init(&set, &a, "m");
    T_STATUS_OK(report_write(&a, tmp("none"), &set, 1, &OPTIONS, &files));
    T_OK(files.n == 1 && strstr(read_page(&a, tmp("none")), "</html>"));
    T_FAILS(report_write(&a, tmp("none"), &set, 0, &OPTIONS, NULL), ERR_RANGE, "0 models");
    arena_close(&a);
}

TEST(equal_models_and_gains_are_called_so)
{
    Arena a = {0};
    SeriesSet sets[2];
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    sets[1] = sets[0];
    sets[1].model = "Twin";
    textbuf_init(&b, &a);
    page_outlier_words(&b, sets, 2);
    T_OK(strstr(b.at, "The largest attention logits are about equal"));
    T_OK(!strstr(b.at, "factor"));
    double *accuracy = series_find(&sets[0], "eval/accuracy")->data;
    accuracy[3] = 0.96;  // needles-1 at 4 bits, above the 0.94 of 16
    T_STATUS_OK(page_cost_words(&b, &a, sets, 2));
    T_OK(strstr(b.at, "a gain of <b>2.0\u00a0points</b> on needles-1"));
    arena_close(&a);
}

TEST(medians_may_turn_the_order_round)
{
    Arena a = {0};
    SeriesSet sets[2];
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    textbuf_init(&b, &a);
    page_outlier_words(&b, sets, 2);
    T_OK(!strstr(b.at, "other way round"));
    *(double *)series_find(&sets[0], "logits/median")->data = 0.1;  // was 0.66
    page_outlier_words(&b, sets, 2);
    T_OK(strstr(b.at, "38.80 (388 times the median) in Diff-Tiny. Counted in medians it is the "
                      "other way round."));
    arena_close(&a);
}

TEST(no_right_answer_is_no_loss)
{
    Arena a = {0};
    SeriesSet sets[2];
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    double *accuracy = series_find(&sets[0], "eval/accuracy")->data;
    for (int i = 0; i < REF_BITS; i++)
        accuracy[i] = 0;
    textbuf_init(&b, &a);
    T_STATUS_OK(page_cost_words(&b, &a, sets, 1));
    T_OK(strstr(b.at, "<b>Diff-Tiny</b>: <b>3.7 points</b> on needles-4"));
    T_OK(strstr(b.at, "; nothing on needles-1, where no answer was right before either; perp"));
    arena_close(&a);
}

/* What changed, what did not, what was gained: each said once. */
TEST(gains_and_what_stayed_are_told_apart)
{
    Arena a = {0};
    Series *s, *p;
    SeriesSet sets[2];
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    double *accuracy = series_find(&sets[0], "eval/accuracy")->data;
    accuracy[3] = accuracy[0];   // needles-1
    textbuf_init(&b, &a);
    T_STATUS_OK(page_cost_words(&b, &a, sets, 1));
    T_OK(strstr(b.at, "noise: ±") && strstr(b.at, "; nothing on needles-1; perplexity"));
    T_OK(!strstr(b.at, "0.0\u00a0points</b>"));
    accuracy[REF_BITS + 3] = accuracy[REF_BITS] + 0.1;
    textbuf_init(&b, &a);
    T_STATUS_OK(page_cost_words(&b, &a, sets, 1));
    T_OK(strstr(b.at, "</b>: nothing on needles-1; a gain of <b>10.0\u00a0points</b> on "
                      "needles-4"));
    accuracy[3] = accuracy[0] + 0.01;
    textbuf_init(&b, &a);
    T_STATUS_OK(page_cost_words(&b, &a, sets, 1));
    T_OK(strstr(b.at, "</b>: no points, but a gain of <b>1.0\u00a0points</b> on needles-1"));
    T_OK(strstr(b.at, "), of <b>10.0\u00a0points</b> on needles-4"));
    const char *dims[] = {"task", "weights", "logit_bits"};
    T_STATUS_OK(series_add(&sets[0], &p, SERIES_F64, "paired/accuracy_p", "", "", 3, dims,
                           (int64_t[]){REF_TASKS, 1, REF_BITS}));
    T_STATUS_OK(series_add(&sets[0], &s, SERIES_F64, "paired/accuracy_stderr", "", "", 3, dims,
                           (int64_t[]){REF_TASKS, 1, REF_BITS}));
    ((double *)p->data)[3] = 1e-4;
    ((double *)s->data)[3] = 0.004;
    textbuf_init(&b, &a);
    T_STATUS_OK(page_cost_words(&b, &a, sets, 1));
    T_OK(strstr(b.at, "beyond noise: ± 0.4, p &lt; 0.001)"));
    arena_close(&a);
}

/* The example names a series that the file has; one model compares nothing. */
TEST(the_page_promises_what_is_there)
{
    Arena a = {0};
    SeriesSet sets[2];
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(report_write(&a, tmp("both"), sets, 2, &OPTIONS, NULL));
    const char *page = read_page(&a, tmp("both"));
    T_OK(strstr(page, "print(f[\"Diff-Tiny/logits/absmax\"][:].max(axis=(1, 2)))"));
    T_OK(strstr(page, "whether that holds for the models here"));
    T_STATUS_OK(report_write(&a, tmp("single"), sets, 1, &OPTIONS, NULL));
    page = read_page(&a, tmp("single"));
    T_OK(!strstr(page, "models here") && strstr(page, "diffquant compare</code>"));
    int64_t n = 0;   // eval alone
    for (int64_t i = 0; i < sets[0].n; i++)
        if (strncmp(sets[0].at[i].name, "logits/", 7) != 0)
            sets[0].at[n++] = sets[0].at[i];
    sets[0].n = n;
    T_STATUS_OK(report_write(&a, tmp("scores"), sets, 1, &OPTIONS, NULL));
    page = read_page(&a, tmp("scores"));
    T_OK(!strstr(page, "absmax") && strstr(page, "print(f[\"Diff-Tiny/eval/accuracy\"][:])"));
    T_OK(strstr(page, "print(d.accuracy)"));
    arena_close(&a);
}

/* Two kinds of weights, two widths: what each costs by itself. */
TEST(weights_have_their_own_sentence)
{
    Arena a = {0};
    SeriesSet set;
    Series *s;
    TextBuf b;
    const char *bits[] = {"logit_bits"}, *dims[] = {"weights", "logit_bits"};
    series_set_init(&set, &a, "m");
    T_STATUS_OK(series_add(&set, &s, SERIES_I32, "logit_bits", "", "", 1, bits,
                           (int64_t[]){2}));
    memcpy(s->data, (int32_t[]){16, 4}, 8);
    T_STATUS_OK(series_add(&set, &s, SERIES_F64, "eval/perplexity", "", "", 2, dims,
                           (int64_t[]){2, 2}));
    memcpy(s->data, (double[]){10, 12, 11, 15}, 32);
    T_STATUS_OK(series_attr_text(&set, "eval_weights", "fp,w4"));
    textbuf_init(&b, &a);
    T_STATUS_OK(page_cost_words(&b, &a, &set, 1));
    T_TEXT(b.at, "<li>4-bit attention logits cost <b>m</b>: perplexity 10.00 → 12.00 "
                 "(+20.0 %).</li>\n<li>Weights as w4, with exact logits, cost <b>m</b>: "
                 "perplexity 10.00 → 11.00 (+10.0 %).</li>\n");
    T_STATUS_OK(report_write(&a, tmp("weights"), &set, 1, &OPTIONS, NULL));
    arena_close(&a);
}

TEST(nan_is_mentioned_first_thing)
{
    Arena a = {0};
    SeriesSet sets[2];
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    ((int64_t *)series_find(&sets[0], "logits/nan")->data)[3] = 1200;
    ((double *)series_find(&sets[0], "logits/absmax")->data)[0] = NAN;
    textbuf_init(&b, &a);
    page_outlier_words(&b, sets, 2);
    T_OK(strstr(b.at, "Diff-Tiny produced 1,200 values not a number or infinite"));
    T_STATUS_OK(report_write(&a, tmp("nan"), sets, 2, &OPTIONS, NULL));
    arena_close(&a);
}

TEST(folders_that_cannot_be_written_are_named)
{
    Arena a = {0};
    SeriesSet set;
    T_STATUS_OK(ref_study_one(&a, &set));
    T_FAILS(report_write(&a, "/proc/none", &set, 1, &OPTIONS, NULL), ERR_IO, "/proc/none");
    FILE *f = fopen(tmp("file"), "w");
    T_OK(f != NULL);
    fclose(f);
    T_FAILS(report_write(&a, tmp("file"), &set, 1, &OPTIONS, NULL), ERR_IO, "expected a folder");
    arena_close(&a);
}

/* Late failures cost a whole drawing each: every place at first, then leaps. */
TEST(failed_allocations_are_errors_and_leave_no_page)
{
    Arena a = {0};
    SeriesSet sets[2];
    T_STATUS_OK(ref_study(&a, sets));
    int64_t last = 0;
    for (int64_t k = 1; k < 20000; k += k < 12 ? 1 : k / 3) {
        ArenaMark mark = arena_mark(&a);
        arena_fail_at(k);
        Status s = report_write(&a, tmp("fail"), sets, 2, &OPTIONS, NULL);
        arena_fail_at(0);
        arena_rewind(&a, mark);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK((access(tmp("fail/index.html"), F_OK) == 0) == (s == OK));
        if (s == OK)
            break;
        last = k;
    }
    T_OK(last > 100);
    arena_close(&a);
}
