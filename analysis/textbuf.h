/* textbuf.h - a text that grows in an arena: pages, tables, JSON.
 * Failure to allocate is remembered and told once, by textbuf_status. */
#ifndef DQ_TEXTBUF_H
#define DQ_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/arena.h"

typedef struct {
    Arena *arena;
    char  *at;         // 0-terminated; "" at first
    size_t n, capacity;
    bool   failed;
} TextBuf;

void textbuf_init(TextBuf *b, Arena *a);
void textbuf_add(TextBuf *b, const char *text);
void textbuf_bytes(TextBuf *b, const char *text, size_t n);
void textbuf_printf(TextBuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* text with what is not UTF-8 replaced by U+FFFD. */
void textbuf_utf8(TextBuf *b, const char *text);
/* text with & < > " ' and control characters made safe for HTML, in text and
 * in quoted attributes. */
void textbuf_html(TextBuf *b, const char *text);
/* text as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void textbuf_json(TextBuf *b, const char *text);
/* x as a JSON number, shortest that reads back; null for NaN and infinities. */
void textbuf_json_real(TextBuf *b, double x);
void textbuf_base64(TextBuf *b, const unsigned char *data, size_t n);
/* ERR_MEMORY if any call could not allocate. */
MUST_USE Status textbuf_status(const TextBuf *b);

/* A magnitude for people: "3608.6", "12.34", "0.0312", "4.1e-07", "NaN". Four
 * or so digits. Into text[32]; returns text. */
const char *textbuf_value(char *text, double x);
/* "12,345,678" into text[32]; returns text. */
const char *textbuf_count(char *text, int64_t n);

#endif
