/* test_tables.c - the right figure in the right cell, in three forms. */
#include "reports/tables.h"

#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "tests/reports/ref_study.h"

TEST(outliers_have_the_columns_of_the_paper)
{
    Arena a = {0};
    SeriesSet sets[2];
    Table t;
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(table_outliers(&t, &a, sets, 2));
    T_OK(t.n_columns == 8 && t.n_rows == 4);
    static const char *const names[] = {"model", "activation", "top-1", "top-2", "top-3",
                                        "top-10", "top-100", "median"};
    for (int i = 0; i < 8; i++)
        T_TEXT(t.columns[i], names[i]);
    const Cell *row = t.cells + 2 * 8;  // the plain model's logits are row 1
    T_TEXT(row[0].text, "Diff-Tiny");
    T_TEXT(row[1].text, "hidden states");
    row = t.cells + 8;
    T_TEXT(row[0].text, "Base-Tiny");
    T_NEAR(row[2].value, 318, 1e-4);  // stored as -318: magnitudes are shown
    const float *top = series_find(&sets[1], "logits/top/value")->data;
    T_NEAR(row[5].value, fabs((double)top[9]), 0);
    T_NEAR(row[6].value, fabs((double)top[99]), 0);
    T_NEAR(row[7].value, 318 * 0.017, 1e-9);
    textbuf_init(&b, &a);
    table_text(&b, &t);
    T_STATUS_OK(textbuf_status(&b));
    T_OK(strstr(b.at, "\nBase-Tiny  attention logits   318.0   292.6   278.7   241.2    183.0"
                      "    5.41\n"));
    arena_close(&a);
}

TEST(fewer_than_a_hundred_values_leave_dashes)
{
    Arena a = {0};
    SeriesSet set;
    Series *s;
    Table t;
    TextBuf b;
    const char *dims[] = {"rank"};
    series_set_init(&set, &a, "<m>");
    T_STATUS_OK(series_add(&set, &s, SERIES_F32, "logits/top/value", "", "", 1, dims,
                           (int64_t[]){2}));
    ((float *)s->data)[0] = 9;
    ((float *)s->data)[1] = NAN;
    T_STATUS_OK(table_outliers(&t, &a, &set, 1));
    T_OK(t.n_rows == 1 && t.cells[2].value == 9);
    for (int i = 3; i < 8; i++)
        T_OK(t.cells[i].kind == CELL_NONE);
    textbuf_init(&b, &a);
    table_json(&b, &t);
    T_TEXT(b.at, "[{\"model\":\"<m>\",\"activation\":\"attention logits\",\"top_1\":9,"
                 "\"top_2\":null,\"top_3\":null,\"top_10\":null,\"top_100\":null,"
                 "\"median\":null}]");
    textbuf_init(&b, &a);
    table_html(&b, &t);
    T_OK(strstr(b.at, "<td class=\"word\">&lt;m&gt;</td>") && !strstr(b.at, "<m>"));
    T_OK(strstr(b.at, "<td>9.00</td><td>–</td>"));
    arena_close(&a);
}

TEST(what_is_not_finite_has_a_column)
{
    Arena a = {0};
    SeriesSet sets[2];
    Table t;
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    int64_t *nan = series_find(&sets[1], "logits/nan")->data;
    nan[0] += 3;
    nan[1] += 4;
    T_STATUS_OK(table_outliers(&t, &a, sets, 2));
    T_OK(t.n_columns == 9 && t.n_rows == 4);
    T_TEXT(t.keys[8], "not_finite");
    T_NEAR((double)t.cells[9 + 8].integer - table_not_finite(&sets[1]), 0, 0);
    T_OK(t.cells[9 + 8].integer >= 7);
    /* A perplexity that is NaN was measured. */
    ((double *)series_find(&sets[0], "eval/perplexity")->data)[0] = NAN;
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    textbuf_init(&b, &a);
    table_text(&b, &t);
    T_OK(strstr(b.at, " NaN\n"));
    arena_close(&a);
}

TEST(layers_without_attention_are_named)
{
    Arena     a = {0};
    SeriesSet sets[2];
    Table     t;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(table_outliers(&t, &a, sets, 2));
    T_OK(!table_silent_layers(&sets[0]) && !strstr(t.note, "no attention"));
    T_STATUS_OK(series_attr_text(&sets[0], "layers_without_logits", "0, 2"));
    T_STATUS_OK(table_outliers(&t, &a, sets, 2));
    T_OK(strstr(t.note, " Diff-Tiny has no attention, and so no logits, in layers 0, 2."));
    T_TEXT(table_silent_layers(&sets[0]), "0, 2");
    arena_close(&a);
}

TEST(accuracy_has_a_row_for_every_width)
{
    Arena a = {0};
    SeriesSet sets[2];
    Table t;
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    /* The second model names its tasks in another order. */
    T_STATUS_OK(series_attr_text(&sets[1], "eval_tasks", "needles-4,needles-1"));
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    T_OK(t.n_rows == 8 && t.n_columns == 6);
    T_TEXT(t.columns[3], "needles-1");
    T_TEXT(t.columns[5], "perplexity");
    T_OK(t.cells[2].integer == 16 && t.cells[3 * 6 + 2].integer == 4);
    T_NEAR(t.cells[3].value, 0.94, 1e-12);
    T_NEAR(t.cells[4 * 6 + 3].value, 0.61, 1e-12);
    T_NEAR(t.cells[4 * 6 + 4].value, 0.94, 1e-12);
    T_NEAR(t.cells[5].value, 17.3, 1e-12);
    textbuf_init(&b, &a);
    table_text(&b, &t);
    T_OK(strstr(b.at, "\nDiff-Tiny  f32              16  94.0 ± 1.5  61.0 ± 3.1       17.30\n"));
    arena_close(&a);
}

/* Only where there is something to tell. */
TEST(what_misleads_is_told)
{
    Arena     a = {0};
    SeriesSet sets[2];
    Series   *s;
    Table     t;
    TextBuf   b;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(series_add(&sets[1], &s, SERIES_I64, "eval/truncated", "", "", 1,
                           (const char *const[]){"task"}, (int64_t[]){REF_TASKS}));
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    T_OK(t.n_columns == 6 && !t.warning);
    ((int64_t *)s->data)[1] = 9;
    T_STATUS_OK(series_add(&sets[1], &s, SERIES_I64, "eval/nan", "", "", 2,
                           (const char *const[]){"weights", "logit_bits"},
                           (int64_t[]){1, REF_BITS}));
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    T_OK(t.n_columns == 6 && t.warning);
    T_TEXT(t.warning, "Base-Tiny: 9 of 250 items of needles-4 are longer than the context and "
           "lost tokens on the left.\n");
    ((int64_t *)s->data)[3] = 12;
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    T_OK(t.n_columns == 7 && strstr(t.warning, "the accuracy says nothing.\nBase-Tiny: 9"));
    T_TEXT(t.keys[6], "nan");
    T_OK(t.cells[6].kind == CELL_NONE && t.cells[6 * 7 + 6].integer == 0);
    T_OK(t.cells[7 * 7 + 6].integer == 12);
    textbuf_init(&b, &a);
    table_text(&b, &t);
    T_OK(strstr(b.at, "the accuracy says nothing.\nBase-Tiny: 9 of 250 items"));
    arena_close(&a);
}

/* A series of the cells of ref_study's sets, all NaN but one. */
static Status add_one(SeriesSet *set, const char *name, bool tasks, int64_t at, double value)
{
    const char *dims[] = {"task", "weights", "logit_bits"};
    int64_t     shape[] = {REF_TASKS, 1, REF_BITS};
    Series     *s;
    TRY(series_add(set, &s, SERIES_F64, name, "", "", tasks ? 3 : 2, tasks ? dims : dims + 1,
                   tasks ? shape : shape + 1));
    for (int64_t i = 0; i < series_count(s); i++)
        ((double *)s->data)[i] = i == at ? value : NAN;
    return OK;
}

TEST(differences_say_what_is_noise)
{
    Arena a = {0};
    SeriesSet sets[2];
    Table t;
    TextBuf b;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(table_paired(&t, &a, sets, 2));
    T_OK(t.n_rows == 0);
    /* needles-4 at 4 bits of the second model; the text at 6 of it. */
    T_STATUS_OK(add_one(&sets[1], "paired/accuracy", true, 7, -0.07));
    T_STATUS_OK(add_one(&sets[1], "paired/accuracy_stderr", true, 7, 0.026));
    T_STATUS_OK(add_one(&sets[1], "paired/accuracy_p", true, 7, 0.008));
    T_STATUS_OK(add_one(&sets[1], "paired/nll", false, 2, log(1.01)));
    T_STATUS_OK(add_one(&sets[1], "paired/nll_stderr", false, 2, 0.02));
    T_STATUS_OK(add_one(&sets[1], "paired/nll_p", false, 2, 0.3));
    T_STATUS_OK(table_paired(&t, &a, sets, 2));
    T_OK(t.n_rows == 2 && t.n_columns == 6);
    T_OK(t.cells[2].integer == 6 && t.cells[6 + 2].integer == 4);
    T_NEAR(t.cells[5].value, 0.01, 1e-15);   // of the perplexity itself
    T_NEAR(t.cells[5].error, 1.01 * 0.02, 1e-15);
    textbuf_init(&b, &a);
    table_text(&b, &t);
    T_OK(strstr(b.at, "+1.0 ± 2.0  noise\n") && strstr(b.at, "-7.0 ± 2.6  p=0.008"));
    textbuf_init(&b, &a);
    table_json(&b, &t);
    T_OK(strstr(b.at, "\"needles-4\":{\"difference\":-0.07,\"stderr\":0.026,\"p\":0.008,"
                      "\"within_noise\":false}"));
    T_OK(strstr(b.at, "\"p\":0.3,\"within_noise\":true}"));
    T_STATUS_OK(table_versus(&t, &a, sets, 2));
    T_OK(t.n_rows == 0);
    arena_close(&a);
}

TEST(divergence_has_columns_where_it_was_asked_for)
{
    Arena a = {0};
    SeriesSet sets[2];
    Table t;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(add_one(&sets[0], "eval/kl", false, 3, 0.07));
    T_STATUS_OK(add_one(&sets[0], "eval/top1", false, 3, 0.84));
    T_STATUS_OK(add_one(&sets[0], "eval/top1_stderr", false, 3, 0.005));
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    T_OK(t.n_columns == 8 && t.n_rows == 8);
    T_TEXT(t.columns[6], "KL");
    T_TEXT(t.keys[7], "top_1_agreement");
    T_STATUS_OK(add_one(&sets[1], "eval/kl", false, 2, NAN));    // compared, not a number
    T_STATUS_OK(add_one(&sets[1], "eval/top1", false, 2, 0.5));
    T_STATUS_OK(table_accuracy(&t, &a, sets, 2));
    T_OK(t.cells[6 * 8 + 6].kind == CELL_VALUE && isnan(t.cells[6 * 8 + 6].value));
    T_NEAR(t.cells[3 * 8 + 6].value, 0.07, 0);
    T_NEAR(t.cells[3 * 8 + 7].error, 0.005, 0);
    T_OK(t.cells[6].kind == CELL_NONE && t.cells[7 * 8 + 7].kind == CELL_NONE);
    arena_close(&a);
}

/* Depths are columns; all is of all episodes, with the error that the accuracy table has. */
TEST(needles_by_depth)
{
    Arena a = {0};
    SeriesSet set;
    Series *s;
    Table t;
    const char *depth[] = {"depth"}, *layers[] = {"layer", "depth"};
    const char *samples[] = {"depth", "sample"};
    series_set_init(&set, &a, "m");
    T_STATUS_OK(table_needles(&t, &a, &set, 1));
    T_OK(t.n_rows == 0);
    T_STATUS_OK(series_add(&set, &s, SERIES_F64, "needles/n6_r2/accuracy", "", "", 1, depth,
                           (int64_t[]){5}));
    for (int i = 0; i < 5; i++)
        ((double *)s->data)[i] = 0.5 + 0.1 * i;
    T_STATUS_OK(series_add(&set, &s, SERIES_F64, "needles/n6_r2/stderr", "", "", 1, depth,
                           (int64_t[]){5}));
    for (int i = 0; i < 5; i++)
        ((double *)s->data)[i] = 0.05;
    T_STATUS_OK(series_add(&set, &s, SERIES_F64, "needles/n6_r2/span", "", "", 2, layers,
                           (int64_t[]){2, 5}));
    for (int i = 0; i < 10; i++)
        ((double *)s->data)[i] = 0.01 * i;
    T_STATUS_OK(table_needles(&t, &a, &set, 1));
    T_OK(t.cells[6].kind == CELL_NONE);
    T_STATUS_OK(series_add(&set, &s, SERIES_I32, "needles/n6_r2/correct", "", "", 2, samples,
                           (int64_t[]){5, 10}));
    for (int i = 0; i < 50; i++)
        ((int32_t *)s->data)[i] = i % 10 < 5 + i / 10;
    T_STATUS_OK(table_needles(&t, &a, &set, 1));
    T_OK(t.n_rows == 1 && t.n_columns == 7);
    T_TEXT(t.columns[2], "depth 25 %");
    T_NEAR(t.cells[6].value, 0.7, 1e-12);
    T_NEAR(t.cells[6].error, sqrt(0.7 * 0.3 / 49), 1e-12);
    T_STATUS_OK(table_needle_shares(&t, &a, &set, 1));
    T_OK(t.n_rows == 1 && t.n_columns == 7);   // no series for the rest
    T_NEAR(t.cells[2 + 4].value, (0.04 + 0.09) / 2, 1e-12);
    T_STATUS_OK(table_needle_layers(&t, &a, &set, 1));
    T_OK(t.n_rows == 2 && t.cells[7 + 1].integer == 1);
    T_NEAR(t.cells[7 + 2].value, 0.05, 1e-12);
    arena_close(&a);
}

TEST(layers_show_the_largest_of_all_heads)
{
    Arena a = {0};
    SeriesSet sets[2];
    Table t;
    T_STATUS_OK(ref_study(&a, sets));
    T_STATUS_OK(table_layers(&t, &a, sets, 2));
    T_OK(t.n_rows == REF_LAYERS && t.n_columns == 6);
    T_TEXT(t.columns[3], "Diff-Tiny: λ");
    double largest = 0;
    for (int64_t i = 0; i < REF_LAYERS; i++)
        largest = fmax(largest, t.cells[i * 6 + 4].value);
    T_NEAR(largest, 318, 0);
    T_NEAR(t.cells[3].value, 0.2, 1e-12);
    arena_close(&a);
}

TEST(sets_without_figures_give_no_rows)
{
    Arena a = {0};
    SeriesSet set;
    Series *s;
    Table t;
    TextBuf b;
    const char *wrong[] = {"layer", "rank"};
    series_set_init(&set, &a, "m");
    /* Of the right name, but not of the shape it should have. */
    T_STATUS_OK(series_add(&set, &s, SERIES_F32, "logits/top/value", "", "", 2, wrong,
                           (int64_t[]){2, 3}));
    textbuf_init(&b, &a);
    T_STATUS_OK(table_outliers(&t, &a, &set, 1));
    table_text(&b, &t);
    T_STATUS_OK(table_accuracy(&t, &a, &set, 1));
    table_text(&b, &t);
    T_STATUS_OK(table_layers(&t, &a, &set, 1));
    table_text(&b, &t);
    T_STATUS_OK(table_paired(&t, &a, &set, 1));
    table_text(&b, &t);
    T_STATUS_OK(table_needle_layers(&t, &a, &set, 1));
    table_text(&b, &t);
    T_STATUS_OK(table_orders(&t, &a, &set, 1));
    table_text(&b, &t);
    T_TEXT(b.at, "");
    table_json(&b, &t);
    T_TEXT(b.at, "[]");
    arena_close(&a);
}

TEST(parts_of_an_attribute)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    T_STATUS_OK(series_attr_text(&set, "k", "one,,three"));
    T_STATUS_OK(series_attr_int(&set, "n", 3));
    T_TEXT(table_attr_part(&a, &set, "k", ',', 0), "one");
    T_TEXT(table_attr_part(&a, &set, "k", ',', 1), "");
    T_TEXT(table_attr_part(&a, &set, "k", ',', 2), "three");
    T_OK(!table_attr_part(&a, &set, "k", ',', 3) && !table_attr_part(&a, &set, "n", ',', 0));
    T_OK(!table_attr_part(&a, &set, "none", ',', 0) && !table_attr_part(&a, &set, "k", ',', -1));
    arena_close(&a);
}
