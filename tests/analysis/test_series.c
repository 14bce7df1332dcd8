/* test_series.c - sets of named arrays. */
#include "analysis/series.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"

TEST(series_are_zeroed_and_found_by_name)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    Series *s;
    const char *dims[] = {"layer", "head"};
    int64_t shape[] = {3, 5};
    T_STATUS_OK(series_add(&set, &s, SERIES_F32, "logits/max", "", "Largest.", 2, dims, shape));
    T_OK(series_count(s) == 15);
    for (int64_t i = 0; i < 15; i++)
        T_OK(series_at(s, i) == 0);
    ((float *)s->data)[14] = 2.5f;
    T_OK(series_at(series_find(&set, "logits/max"), 14) == 2.5);
    T_OK(!series_find(&set, "logits/ma"));
    arena_close(&a);
}

TEST(every_type_reads_as_a_double)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    static const SeriesType types[] = {SERIES_F64, SERIES_F32, SERIES_I64, SERIES_U64,
                                       SERIES_I32};
    static const char *names[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++) {
        Series *s;
        T_STATUS_OK(series_add(&set, &s, types[i], names[i], "", "", 0, NULL, NULL));
        T_OK(series_count(s) == 1);
    }
    *(double *)set.at[0].data = -0.25;
    *(float *)set.at[1].data = NAN;
    *(int64_t *)set.at[2].data = -7;
    *(uint64_t *)set.at[3].data = UINT64_C(1) << 63;
    *(int32_t *)set.at[4].data = INT32_MIN;
    T_OK(series_at(&set.at[0], 0) == -0.25);
    T_OK(isnan(series_at(&set.at[1], 0)));
    T_OK(series_at(&set.at[2], 0) == -7);
    T_OK(series_at(&set.at[3], 0) == 0x1p63);
    T_OK(series_at(&set.at[4], 0) == -0x1p31);
    arena_close(&a);
}

TEST(lists_grow_and_keep_what_they_had)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    for (int i = 0; i < 100; i++) {
        Series *s;
        char *name = arena_printf(&a, "s%d", i);
        T_OK(name != NULL);
        T_STATUS_OK(series_add(&set, &s, SERIES_I32, name, "", "", 0, NULL, NULL));
        *(int32_t *)s->data = i;
        T_STATUS_OK(series_attr_int(&set, name, i));
    }
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        T_OK(series_at(series_find(&set, name), 0) == i);
        T_OK(series_attr(&set, name)->integer == i);
    }
    arena_close(&a);
}

TEST(places_and_dimensions_are_checked)
{
    Arena a = {0};
    SeriesSet set;
    Series *s;
    const char *dims[] = {"layer", "head"};
    series_set_init(&set, &a, "m");
    T_STATUS_OK(series_add(&set, &s, SERIES_I32, "x", "", "", 2, dims, (int64_t[]){2, 3}));
    for (int i = 0; i < 6; i++)
        ((int32_t *)s->data)[i] = i;
    T_OK(series_get(s, 1, 0, 0) == 3 && series_get(s, 1, 2, 0) == 5);
    T_OK(isnan(series_get(s, 2, 0, 0)) && isnan(series_get(s, 0, 3, 0)));
    T_OK(isnan(series_get(s, 0, 0, 1)) && isnan(series_get(s, -1, 0, 0)));
    T_OK(isnan(series_get(NULL, 0, 0, 0)));
    T_OK(series_find_dims(&set, "x", "layer,head") == s);
    static const char *const wrong[] = {"", "layer", "layer,", "layer,head,map", "head,layer",
                                        "layer,heads", "layers,head"};
    for (int i = 0; i < 7; i++)
        T_OK(!series_find_dims(&set, "x", wrong[i]));
    T_STATUS_OK(series_add(&set, &s, SERIES_I32, "y", "", "", 0, NULL, NULL));
    T_OK(series_find_dims(&set, "y", "") == s && !series_find_dims(&set, "y", "layer"));
    T_OK(series_get(s, 0, 0, 0) == 0 && isnan(series_get(s, 1, 0, 0)));
    arena_close(&a);
}

TEST(an_attribute_set_again_takes_the_new_value)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    T_STATUS_OK(series_attr_int(&set, "tokens", 1));
    T_STATUS_OK(series_attr_text(&set, "arch", "x"));
    T_STATUS_OK(series_attr_real(&set, "tokens", 2.5));
    T_OK(set.n_attrs == 2);
    T_OK(series_attr(&set, "tokens")->kind == ATTR_REAL);
    T_OK(series_attr(&set, "tokens")->real == 2.5);
    T_OK(!series_attr(&set, "none"));
    arena_close(&a);
}

TEST(empty_dimensions_hold_nothing)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    Series *s;
    const char *dims[] = {"bin"};
    T_STATUS_OK(series_add(&set, &s, SERIES_F64, "x", "", "", 1, dims, (int64_t[]){0}));
    T_OK(series_count(s) == 0 && s->data);
    arena_close(&a);
}

TEST(absurd_shapes_and_no_memory_are_errors)
{
    Arena a = {0};
    SeriesSet set;
    series_set_init(&set, &a, "m");
    Series *s;
    const char *dims[] = {"a", "b", "c"};
    int64_t big[] = {1 << 30, 1 << 30, 1 << 30};
    T_FAILS(series_add(&set, &s, SERIES_F64, "x/y", "", "", 3, dims, big), ERR_SHAPE, "x/y");
    int64_t negative[] = {-1};
    T_FAILS(series_add(&set, &s, SERIES_F64, "x", "", "", 1, dims, negative), ERR_SHAPE, "-1");
    T_OK(set.n == 0);
    for (int64_t k = 1; k <= 3; k++) {
        series_set_init(&set, &a, "m");
        arena_fail_at(k);
        Status one = series_add(&set, &s, SERIES_F64, "x", "", "", 1, dims, (int64_t[]){3});
        Status two = series_attr_int(&set, "k", 1);
        arena_fail_at(0);
        T_OK(k > 2 ? one == OK : one == ERR_MEMORY);
        T_OK(two == ERR_MEMORY);  // the list of attributes is a third allocation
    }
    arena_close(&a);
}
