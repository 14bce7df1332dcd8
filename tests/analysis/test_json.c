/* test_json.c - what is refused, what comes out, and large texts. */
#include "analysis/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

static Arena arena;

static Status parse(const Json **out, const char *text)
{
    arena_close(&arena);
    *out = NULL;
    return json_parse(out, &arena, "f.json", text, strlen(text));
}

TEST(json_kinds)
{
    const Json *v;
    T_STATUS_OK(parse(&v, " {\"a\": [1, -2.5, true, false, null, \"x\\u00e9\\ud83d\\ude00\"],"
                          " \"\": {}, \"b\": []}\r\n\t"));
    T_OK(v->kind == JSON_OBJECT && v->n == 3);
    const Json *a = json_member(v, "a");
    T_OK(a && a->kind == JSON_LIST && a->n == 6);
    T_OK(a->at[0].kind == JSON_NUMBER && a->at[0].whole && a->at[0].integer == 1);
    T_OK(a->at[1].kind == JSON_NUMBER && !a->at[1].whole && a->at[1].number == -2.5);
    T_OK(a->at[2].kind == JSON_BOOL && a->at[2].truth);
    T_OK(a->at[3].kind == JSON_BOOL && !a->at[3].truth);
    T_OK(a->at[4].kind == JSON_NULL);
    T_TEXT(a->at[5].text, "x\xc3\xa9\xf0\x9f\x98\x80");
    T_TEXT(v->at[0].key, "a");
    T_OK(json_member(v, "") && json_member(v, "")->n == 0);
    T_OK(!json_member(v, "c") && !json_member(a, "a") && !json_member(NULL, "a"));
    T_TEXT(json_kind_name(a->kind), "a list");
}

TEST(json_whole_numbers_are_exact)
{
    static const struct {
        const char *text;
        bool        whole;
        int64_t     value;
    } ROWS[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"9007199254740993", true, 9007199254740993},  // 2^53 + 1 is no double
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999", false, 0},
        {"2.0", false, 0},
        {"2e3", false, 0},
        {"1E+2", false, 0},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char        text[80];
        const Json *v;
        /* a text with digits before it: the exact number must be the right one */
        snprintf(text, sizeof text, "[\"7\\\"8\", 3, {\"5\": %s}]", ROWS[i].text);
        T_STATUS_OK(parse(&v, text));
        const Json *n = json_member(&v->at[2], "5");
        T_OK(n->whole == ROWS[i].whole && n->integer == ROWS[i].value);
        T_NEAR(n->number, atof(ROWS[i].text), 0);
        T_OK(v->at[1].integer == 3);
    }
}

TEST(json_says_why_a_number_is_not_whole)
{
    static const char *const ROWS[][2] = {
        {"[1.5]", "a fraction"}, {"[1.0]", "a fraction"}, {"[1e3]", "a fraction"},
        {"[9223372036854775808]", "too large a number"}, {"[-1e30]", "too large a number"},
        {"[true]", "true or false"}, {"[\"1\"]", "a text"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const Json *v;
        T_STATUS_OK(parse(&v, ROWS[i][0]));
        T_OK(!v->at[0].whole);
        T_TEXT(json_not_whole(&v->at[0]), ROWS[i][1]);
    }
}

TEST(json_refuses)
{
    static const char *const ROWS[][2] = {
        {"", "empty"},
        {"  ", "not JSON"},
        {"{\"a\":1} x", ": column 9: unexpected character"},
        {"{\"a\":1} 2", "something follows"},
        {"[1]\n\n]", "line 3, column 1: something follows"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "key \"a\" appears twice"},
        {"[[{\"k\":1,\"k\":1}]]", "key \"k\" appears twice"},
        {"{\"a\":1,}", "not JSON"},
        {"[1,]", "not JSON"},
        {"{\"a\"}", "not JSON"},
        {"{a:1}", "not JSON"},
        {"[1 2]", "not JSON"},
        {"[01]", "malformed number"},
        {"[+1]", "unexpected character"},
        {"[1.]", "malformed number"},
        {"[.5]", "unexpected character"},
        {"[1e]", "malformed number"},
        {"[-]", "malformed number"},
        {"[nan]", "not JSON"},
        {"[NaN]", "unexpected character"},
        {"[tru]", "not JSON"},
        {"[\"a]", "text without an end"},
        {"[\"\\", "text without an end"},
        {"[\"a\nb\"]", "control character"},
        {"[\"\\u0000\"]", "\\u0000"},
        {"[\"\\ud800\"]", "not JSON"},
        {"[\"\\x\"]", "not JSON"},
        {"[\"\xff\"]", "column 3: not UTF-8"},
        {"[\"\xc0\x80\"]", "not UTF-8"},
        {"[\"\xed\xa0\x80\"]", "not UTF-8"},
        {"[\"\xe2\x82\"]", "not UTF-8"},
        {"[\"\xf4\x90\x80\x80\"]", "not UTF-8"},
        {"\xef\xbb\xbf[]", ": column 1: a byte order mark"},
    };
    const Json *v;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        T_FAILS(parse(&v, ROWS[i][0]), ERR_FORMAT, ROWS[i][1]);
        T_OK(strncmp(status_text(), "f.json: ", 8) == 0);
    }
    arena_close(&arena);
    T_FAILS(json_parse(&v, &arena, "f.json", "[1]\0", 4), ERR_FORMAT, "unexpected character");
    T_FAILS(json_parse(&v, &arena, "f.json", NULL, 0), ERR_FORMAT, "empty");
}

TEST(json_utf8_accepts_every_length)
{
    static const char *const GOOD = "a\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80"
                                    "\xf4\x8f\xbf\xbf";
    size_t n = strlen(GOOD);
    T_OK(json_utf8_prefix((const unsigned char *)GOOD, n) == n);
    T_OK(json_utf8_prefix((const unsigned char *)GOOD, n - 1) == n - 4);
    T_OK(json_utf8_prefix((const unsigned char *)"ab\x80", 3) == 2);
}

TEST(json_depth_ends_at_the_limit)
{
    char        text[2 * JSON_MAX_DEPTH + 3];
    const Json *v;
    memset(text, '[', JSON_MAX_DEPTH);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    text[2 * JSON_MAX_DEPTH] = 0;
    T_STATUS_OK(parse(&v, text));
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    text[2 * JSON_MAX_DEPTH + 2] = 0;
    T_FAILS(parse(&v, text), ERR_FORMAT, "nested too deeply");
}

TEST(json_reads_only_its_bytes)
{
    /* On the heap and without a closing 0, so that a sanitizer sees one too many. */
    const char *whole = "[12345, \"text\", true]";
    for (size_t n = 0; n <= strlen(whole); n++) {
        char *part = malloc(n + 1);
        memcpy(part, whole, n);
        char *tight = realloc(part, n ? n : 1);
        const Json *v;
        arena_close(&arena);
        Status s = json_parse(&v, &arena, "f.json", tight, n);
        free(tight);
        T_OK((s == OK) == (n == strlen(whole)));
    }
}

/* A tokenizer has 128k names: lookups and the search for duplicates must not
 * be quadratic (that took minutes), which the test's time limit would show. */
TEST(json_large_object)
{
    enum { N = 200000 };
    char  *text = malloc(N * 24), *p = text;
    *p++ = '{';
    for (int i = 0; i < N; i++)
        p += sprintf(p, "%s\"k%d\":%d", i ? "," : "", (int)((i * 7919LL) % N), i);
    *p++ = '}';
    const Json *v;
    arena_close(&arena);
    Status s = json_parse(&v, &arena, "f.json", text, (size_t)(p - text));
    free(text);
    T_OK(s == OK && v->n == N);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", (int)((i * 7919LL) % N));
        const Json *m = json_member(v, name);
        T_OK(m && m->integer == i && m == &v->at[i]);
    }
}

TEST(json_every_allocation_may_fail)
{
    const Json *v;
    int64_t     k = 1;
    for (;; k++) {
        arena_close(&arena);
        arena_fail_at(k);
        Status s = json_parse(&v, &arena, "f.json", "{\"a\":[1,\"x\"]}", 13);
        arena_fail_at(0);
        if (s == OK)
            break;
        T_OK(s == ERR_MEMORY);
    }
    T_OK(k > 1);
    T_OK(json_member(v, "a")->n == 2);
}

TEST(json_read_names_the_file)
{
    char        path[256];
    const Json *v;
    snprintf(path, sizeof path, "%s/none.json", check_tmp());
    T_FAILS(json_read(&v, &arena, path), ERR_IO, "none.json");
    FILE *f = fopen(path, "w");
    fputs("[1, 2", f);
    fclose(f);
    T_FAILS(json_read(&v, &arena, path), ERR_FORMAT, "none.json: column 5");
    f = fopen(path, "w");
    fputs("[1, 2]", f);
    fclose(f);
    T_STATUS_OK(json_read(&v, &arena, path));
    T_OK(v->n == 2 && v->at[1].integer == 2);
}

/* Any byte changed: an error or a value, never a crash (run with sanitizers). */
TEST(json_survives_changed_bytes)
{
    static const char WHOLE[] = "{\"a\\n\":[1,-2.5e3,true,null,\"\\u00e9\xc3\xa9\"],"
                                "\"b\":{\"c\":{}}}";
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof WHOLE];
        memcpy(text, WHOLE, sizeof WHOLE);
        for (int i = 0; i <= round % 3; i++) {
            size_t at = (size_t)((check_uniform(&seed) + 1) / 2 * (sizeof WHOLE - 1));
            text[at] = (char)(int)(check_uniform(&seed) * 128);
        }
        const Json *v;
        arena_close(&arena);
        if (json_parse(&v, &arena, "f.json", text, sizeof WHOLE - 1) == OK)
            T_OK(v->kind <= JSON_OBJECT);
    }
    arena_close(&arena);
}
