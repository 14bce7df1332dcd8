/* test_config_write.c - config.json with some values exchanged. */
#include "quant/formats/config_write.h"

#include <stdio.h>
#include <string.h>

#include "analysis/json.h"
#include "tests/check.h"

static const ConfigEdit EDITS[] = {
    {"dtype", "\"float16\"", true},
    {"quantization_config", "{\n    \"bits\": 4\n  }", true},
    {"tie", "false", false},
};

static Status edit(const char **out, Arena *a, const char *text)
{
    TextBuf b;
    textbuf_init(&b, a);
    TRY(config_write(&b, a, "x/config.json", text, EDITS, 3));
    *out = b.at;
    return OK;
}

TEST(all_else_stays_byte_for_byte)
{
    static const struct {
        const char *from, *to;
    } ROWS[] = {
        {"{\n  \"rms_norm_eps\": 1e-05,\n  \"theta\": 10000.0,\n  \"big\": 9007199254740993,\n"
         "  \"x\": 500000\n}\n",
         "{\n  \"rms_norm_eps\": 1e-05,\n  \"theta\": 10000.0,\n  \"big\": 9007199254740993,\n"
         "  \"x\": 500000,\n  \"dtype\": \"float16\",\n  \"quantization_config\": {\n"
         "    \"bits\": 4\n  }\n}\n"},
        {"{\n  \"dtype\": \"bfloat16\",\n  \"z\": null,\n  \"tie\": true, "
         "\"a\": [1, {\"dtype\": 2}]\n}",
         "{\n  \"dtype\": \"float16\",\n  \"z\": null,\n  \"tie\": false, "
         "\"a\": [1, {\"dtype\": 2}]"
         ",\n  \"quantization_config\": {\n    \"bits\": 4\n  }\n}"},
        /* the old value goes whatever is in it: braces in texts, escaped quotes */
        {"{\"quantization_config\" : {\"a\": [\"}\\\"{\", {}], \"b\": []} , \"c\":-1.50E+3}",
         "{\"quantization_config\" : {\n    \"bits\": 4\n  } , \"c\":-1.50E+3, \"dtype\": "
         "\"float16\"}"},
        {" { } ",
         " { \"dtype\": \"float16\", \"quantization_config\": {\n    \"bits\": 4\n  } } "},
        {"{}", "{ \"dtype\": \"float16\", \"quantization_config\": {\n    \"bits\": 4\n  }}"},
        /* a key is what it means, however it is spelled; a nested one is another */
        {"{\"\\u0064type\":\"x\",\"y\":{\"tie\":true}}",
         "{\"\\u0064type\":\"float16\",\"y\":{\"tie\":true}, \"quantization_config\": {\n"
         "    \"bits\": 4\n  }}"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Arena       a = {0};
        const char *got;
        const Json *root;
        T_STATUS_OK(edit(&got, &a, ROWS[i].from));
        T_TEXT(got, ROWS[i].to);
        T_STATUS_OK(json_parse(&root, &a, "out", got, strlen(got)));
        T_TEXT(json_member(root, "dtype")->text, "float16");
        arena_close(&a);
    }
}

TEST(members_go)
{
    static const struct {
        const char *from, *to;
    } ROWS[] = {
        {"{\n \"x\": 1,\n \"b\": 2.50,\n \"c\": 3\n}\n",
         "{\n \"b\": 2.50,\n \"c\": 3\n}\n"},
        {"{\n \"b\": {\"x\": 1} ,\n \"x\": 1 ,\n \"c\": 3\n}",
         "{\n \"b\": {\"x\": 1} ,\n \"c\": 3\n}"},
        {"{\n \"b\": [],\n \"x\": {\"q\": [1]}\n}", "{\n \"b\": []\n}"},
        {"{\"x\":1}", "{}"},
        {"{\"b\":1,\"y\":2,\"x\":3}", "{\"b\":1}"},
        {"{\"b\":1}", "{\"b\":1}"},
    };
    static const ConfigEdit GONE[] = {{"x", NULL, true}, {"y", NULL, false}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Arena   a = {0};
        TextBuf b;
        textbuf_init(&b, &a);
        T_STATUS_OK(config_write(&b, &a, "c", ROWS[i].from, GONE, 2));
        T_TEXT(b.at, ROWS[i].to);
        arena_close(&a);
    }
}

TEST(what_is_no_object_is_refused)
{
    Arena       a = {0};
    const char *got = NULL;
    T_FAILS(edit(&got, &a, "[1]"), ERR_FORMAT, "x/config.json is a list, expected an object");
    T_FAILS(edit(&got, &a, "{\"a\": 1"), ERR_FORMAT, "x/config.json: column ");
    T_FAILS(edit(&got, &a, ""), ERR_FORMAT, "x/config.json");
    T_FAILS(edit(&got, &a, "{\"dtype\": 1, \"dtype\": 2}"), ERR_FORMAT, "twice");
    arena_close(&a);
}

TEST(every_allocation_may_fail)
{
    Status s = ERR_MEMORY;
    for (int64_t k = 1; s != OK; k++) {
        Arena       a = {0};
        const char *got;
        arena_fail_at(k);
        s = edit(&got, &a, "{\"a\": [1, 2, {\"b\": \"c\"}], \"tie\": true}");
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        arena_close(&a);
    }
}
