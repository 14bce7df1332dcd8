/* textbuf.c - growing text, and the escapes of HTML, JSON and base64. */
#include "analysis/textbuf.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char empty_text[1];

void textbuf_init(TextBuf *b, Arena *a)
{
    *b = (TextBuf){.arena = a, .at = empty_text};
}

/* Room for n more bytes and the closing 0. Doubles: the old copies stay in the
 * arena, together at most as large as the text. */
static bool grow(TextBuf *b, size_t n)
{
    if (b->failed)
        return false;
    if (b->capacity > b->n + n)
        return true;
    size_t wanted = 2 * (b->n + n) + 256;
    char *p = arena_raw(b->arena, (int64_t)wanted, 1);
    if (!p) {
        b->failed = true;
        return false;
    }
    memcpy(p, b->at, b->n + 1);
    b->at = p;
    b->capacity = wanted;
    return true;
}

void textbuf_bytes(TextBuf *b, const char *text, size_t n)
{
    if (!grow(b, n))
        return;
    memcpy(b->at + b->n, text, n);
    b->n += n;
    b->at[b->n] = 0;
}

void textbuf_add(TextBuf *b, const char *text)
{
    textbuf_bytes(b, text, strlen(text));
}

void textbuf_printf(TextBuf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n >= 0 && grow(b, (size_t)n)) {
        vsnprintf(b->at + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

/* Length of the UTF-8 sequence at p, 0 if it is not valid. */
static size_t utf8_length(const unsigned char *p)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (n > 1 && (p[0] < 0xc2 || p[0] > 0xf4))
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, past U+10FFFF. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

/* What stands for the byte in HTML; NULL: itself. */
static const char *html_escape(unsigned char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\n':
    case '\t':
        return NULL;
    default:
        return c < 0x20 || c == 0x7f ? "\xef\xbf\xbd" : NULL;
    }
}

void textbuf_html(TextBuf *b, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        size_t n = utf8_length(p);
        const char *escape = n == 0 ? "\xef\xbf\xbd" : html_escape(*p);
        if (escape)
            textbuf_add(b, escape);
        else
            textbuf_bytes(b, (const char *)p, n);
        p += n ? n : 1;
    }
}

void textbuf_utf8(TextBuf *b, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        size_t n = utf8_length(p);
        if (n == 0)
            textbuf_add(b, "\xef\xbf\xbd");
        else
            textbuf_bytes(b, (const char *)p, n);
        p += n ? n : 1;
    }
}

void textbuf_json(TextBuf *b, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    textbuf_add(b, "\"");
    while (*p) {
        size_t n = utf8_length(p);
        if (n == 0)
            textbuf_add(b, "\\ufffd");
        else if (*p == '"' || *p == '\\')
            textbuf_printf(b, "\\%c", *p);
        else if (*p < 0x20)
            textbuf_printf(b, "\\u%04x", *p);
        else
            textbuf_bytes(b, (const char *)p, n);
        p += n ? n : 1;
    }
    textbuf_add(b, "\"");
}

void textbuf_json_real(TextBuf *b, double x)
{
    if (!isfinite(x)) {
        textbuf_add(b, "null");
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    textbuf_add(b, text);
}

void textbuf_base64(TextBuf *b, const unsigned char *data, size_t n)
{
    static const char code[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = (n + 2) / 3 * 4;
    if (!grow(b, length))
        return;
    char *out = b->at + b->n;
    for (size_t i = 0; i < n; i += 3, out += 4) {
        uint32_t v = (uint32_t)data[i] << 16;
        v |= i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0;
        v |= i + 2 < n ? data[i + 2] : 0;
        out[0] = code[v >> 18];
        out[1] = code[v >> 12 & 63];
        out[2] = i + 1 < n ? code[v >> 6 & 63] : '=';
        out[3] = i + 2 < n ? code[v & 63] : '=';
    }
    *out = 0;
    b->n += length;
}

Status textbuf_status(const TextBuf *b)
{
    if (b->failed)
        FAIL(ERR_MEMORY, "out of memory: text of more than %zu bytes", b->n);
    return OK;
}

const char *textbuf_value(char *text, double x)
{
    double size = fabs(x);
    const char *format = size >= 1e6 ? "%.4g" : size >= 99.995 ? "%.1f" : "%.2f";
    if (size < 0.9995)
        format = size >= 0.01 ? "%.3f" : size >= 1e-4 ? "%.5f" : "%.2e";
    if (isnan(x))
        snprintf(text, 32, "NaN");
    else if (isinf(x))
        snprintf(text, 32, x > 0 ? "inf" : "-inf");
    else if (x == 0)
        snprintf(text, 32, "0");
    else
        snprintf(text, 32, format, x);
    return text;
}

const char *textbuf_count(char *text, int64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    int first = digits[0] == '-', used = 0;
    for (int i = 0; i < length; i++) {
        if (i > first && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}
