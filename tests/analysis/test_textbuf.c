/* test_textbuf.c - growing text and its escapes. */
#include "analysis/textbuf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/check.h"

TEST(text_grows_over_many_blocks)
{
    Arena a = {0};
    TextBuf b;
    textbuf_init(&b, &a);
    T_TEXT(b.at, "");
    for (int i = 0; i < 20000; i++)
        textbuf_printf(&b, "%05d,", i);
    T_STATUS_OK(textbuf_status(&b));
    T_OK(b.n == 120000 && strlen(b.at) == b.n);
    T_OK(strncmp(b.at + 6 * 12345, "12345,", 6) == 0);
    arena_close(&a);
}

TEST(html_and_json_escapes)
{
    Arena a = {0};
    TextBuf b;
    textbuf_init(&b, &a);
    textbuf_html(&b, "<a href='x'>\"&\x01\xff\xc3\xa9\n");
    T_TEXT(b.at, "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\n");
    textbuf_init(&b, &a);
    textbuf_json(&b, "a\"\\\n\xed\xa0\x80\xf0\x9f\x98\x80");
    T_TEXT(b.at, "\"a\\\"\\\\\\u000a\\ufffd\\ufffd\\ufffd\xf0\x9f\x98\x80\"");
    arena_close(&a);
}

TEST(json_numbers_read_back)
{
    Arena a = {0};
    static const double x[] = {0, 1, -0.1, 1.0 / 3, 1e300, 5e-324, 123456789.25};
    for (int i = 0; i < 7; i++) {
        TextBuf b;
        double back;
        textbuf_init(&b, &a);
        textbuf_json_real(&b, x[i]);
        T_OK(sscanf(b.at, "%lf", &back) == 1 && back == x[i]);
    }
    TextBuf b;
    textbuf_init(&b, &a);
    textbuf_json_real(&b, 0.1);
    textbuf_json_real(&b, NAN);
    textbuf_json_real(&b, -INFINITY);
    T_TEXT(b.at, "0.1nullnull");
    arena_close(&a);
}

TEST(base64_of_rfc_4648)
{
    static const char *const want[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=",
                                       "Zm9vYmFy"};
    Arena a = {0};
    for (size_t n = 0; n <= 6; n++) {
        TextBuf b;
        textbuf_init(&b, &a);
        textbuf_base64(&b, (const unsigned char *)"foobar", n);
        T_TEXT(b.at, want[n]);
        T_OK(b.n == strlen(want[n]));
    }
    TextBuf b;
    textbuf_init(&b, &a);
    textbuf_base64(&b, (const unsigned char *)"\xff\xfb\x00", 3);
    T_TEXT(b.at, "//sA");
    arena_close(&a);
}

TEST(values_for_people)
{
    char t[32];
    T_TEXT(textbuf_value(t, 3608.63), "3608.6");
    T_TEXT(textbuf_value(t, -318), "-318.0");
    T_TEXT(textbuf_value(t, 99.996), "100.0");
    T_TEXT(textbuf_value(t, 12.344), "12.34");
    T_TEXT(textbuf_value(t, 0.6), "0.600");
    T_TEXT(textbuf_value(t, 0.9996), "1.00");
    T_TEXT(textbuf_value(t, 0.00123), "0.00123");
    T_TEXT(textbuf_value(t, 4.2e-7), "4.20e-07");
    T_TEXT(textbuf_value(t, 0), "0");
    T_TEXT(textbuf_value(t, 3.1e8), "3.1e+08");
    T_TEXT(textbuf_value(t, NAN), "NaN");
    T_TEXT(textbuf_value(t, -INFINITY), "-inf");
    T_TEXT(textbuf_count(t, 0), "0");
    T_TEXT(textbuf_count(t, 999), "999");
    T_TEXT(textbuf_count(t, -1000), "-1,000");
    T_TEXT(textbuf_count(t, INT64_MAX), "9,223,372,036,854,775,807");
}

TEST(failed_memory_is_remembered)
{
    Arena a = {0};
    TextBuf b;
    textbuf_init(&b, &a);
    arena_fail_at(1);
    textbuf_add(&b, "x");
    arena_fail_at(0);
    textbuf_printf(&b, "%d", 1);
    textbuf_html(&b, "<");
    textbuf_base64(&b, (const unsigned char *)"x", 1);
    T_TEXT(b.at, "");
    T_FAILS(textbuf_status(&b), ERR_MEMORY, "out of memory");
    arena_close(&a);
}
