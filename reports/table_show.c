/* table_show.c - a Table as aligned text, HTML and JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reports/tables.h"

enum { CELL_BYTES = 256 };

/* "-7.0 ± 2.6  p=0.008", "+1.0 ± 1.0  noise" */
static void difference_text(char *text, const Cell *c)
{
    char error[32], p[32];
    snprintf(error, sizeof error, isnan(c->error) ? "" : " ± %.1f", 100 * c->error);
    if (!(c->p <= TABLE_NOISE))
        snprintf(p, sizeof p, "noise");
    else if (c->p < 0.001)
        snprintf(p, sizeof p, "p<0.001");
    else
        snprintf(p, sizeof p, "p=%.3f", c->p);
    snprintf(text, CELL_BYTES, "%+.1f%s  %s", 100 * c->value, error, p);
}

/* What a person reads in the cell. */
static const char *cell_text(char *text, const Cell *c)
{
    char number[32];
    switch (c->kind) {
    case CELL_TEXT:
        snprintf(text, CELL_BYTES, "%s", c->text);
        return text;
    case CELL_INT:
        return textbuf_count(text, c->integer);
    case CELL_VALUE:
        return textbuf_value(text, c->value);
    case CELL_PERCENT:
        snprintf(number, sizeof number, isnan(c->error) ? "" : " ± %.1f", 100 * c->error);
        snprintf(text, CELL_BYTES, "%.1f%s", 100 * c->value, number);
        return text;
    case CELL_DIFFERENCE:
        difference_text(text, c);
        return text;
    case CELL_NONE:
        break;
    }
    snprintf(text, CELL_BYTES, "–");
    return text;
}

/* Columns on a terminal: characters, not bytes. */
static int width(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

/* Numbers stand at the right of a column, words at the left. */
static bool is_text_column(const Table *t, int column)
{
    for (int64_t row = 0; row < t->n_rows; row++)
        if (t->cells[row * t->n_columns + column].kind == CELL_TEXT)
            return true;
    return false;
}

static int column_width(const Table *t, int column)
{
    char text[CELL_BYTES];
    int widest = width(t->columns[column]);
    for (int64_t row = 0; row < t->n_rows; row++) {
        int w = width(cell_text(text, &t->cells[row * t->n_columns + column]));
        widest = w > widest ? w : widest;
    }
    return widest;
}

static void pad(TextBuf *b, const char *text, int to, bool left)
{
    int n = to - width(text);
    if (left)
        textbuf_add(b, text);
    textbuf_printf(b, "%*s", n > 0 ? n : 0, "");
    if (!left)
        textbuf_add(b, text);
}

void table_text(TextBuf *b, const Table *t)
{
    char text[CELL_BYTES];
    if (t->n_rows == 0)
        return;
    textbuf_printf(b, "%s\n", t->title);
    for (int64_t row = -1; row < t->n_rows; row++) {
        for (int i = 0; i < t->n_columns; i++) {
            const char *cell = row < 0 ? t->columns[i]
                                       : cell_text(text, &t->cells[row * t->n_columns + i]);
            textbuf_add(b, i ? "  " : "");
            bool left = is_text_column(t, i);
            pad(b, cell, left && i + 1 == t->n_columns ? 0 : column_width(t, i), left);
        }
        textbuf_add(b, "\n");
    }
    textbuf_add(b, t->warning ? t->warning : "");
}

static bool begins_group(const Table *t, int64_t row)
{
    const Cell *c = t->cells + row * t->n_columns + t->group;
    return row > 0 && c->kind == CELL_TEXT && c[-t->n_columns].kind == CELL_TEXT &&
           strcmp(c->text, c[-t->n_columns].text) != 0;
}

void table_html(TextBuf *b, const Table *t)
{
    char text[CELL_BYTES];
    if (t->n_rows == 0)
        return;
    textbuf_add(b, "<div class=\"scroll\"><table>\n<caption>");
    textbuf_html(b, t->title);
    textbuf_add(b, "</caption>\n<thead><tr>");
    for (int i = 0; i < t->n_columns; i++) {
        textbuf_add(b, is_text_column(t, i) ? "<th scope=\"col\" class=\"word\">"
                                            : "<th scope=\"col\">");
        textbuf_html(b, t->columns[i]);
        textbuf_add(b, "</th>");
    }
    textbuf_add(b, "</tr></thead>\n<tbody>\n");
    for (int64_t row = 0; row < t->n_rows; row++) {
        const Cell *cells = t->cells + row * t->n_columns;
        textbuf_add(b, begins_group(t, row) ? "<tr class=\"group\">" : "<tr>");
        for (int i = 0; i < t->n_columns; i++) {
            textbuf_add(b, is_text_column(t, i) ? "<td class=\"word\">" : "<td>");
            textbuf_html(b, cell_text(text, &cells[i]));
            textbuf_add(b, "</td>");
        }
        textbuf_add(b, "</tr>\n");
    }
    textbuf_add(b, "</tbody></table></div>\n");
}

static void cell_json(TextBuf *b, const Cell *c)
{
    switch (c->kind) {
    case CELL_TEXT:
        textbuf_json(b, c->text);
        return;
    case CELL_INT:
        textbuf_printf(b, "%lld", (long long)c->integer);
        return;
    case CELL_VALUE:
        textbuf_json_real(b, c->value);
        return;
    case CELL_PERCENT:
        textbuf_add(b, "{\"value\":");
        textbuf_json_real(b, c->value);
        textbuf_add(b, ",\"stderr\":");
        textbuf_json_real(b, c->error);
        textbuf_add(b, "}");
        return;
    case CELL_DIFFERENCE:
        textbuf_add(b, "{\"difference\":");
        textbuf_json_real(b, c->value);
        textbuf_add(b, ",\"stderr\":");
        textbuf_json_real(b, c->error);
        textbuf_add(b, ",\"p\":");
        textbuf_json_real(b, c->p);
        textbuf_printf(b, ",\"within_noise\":%s}", c->p <= TABLE_NOISE ? "false" : "true");
        return;
    case CELL_NONE:
        break;
    }
    textbuf_add(b, "null");
}

void table_json(TextBuf *b, const Table *t)
{
    textbuf_add(b, "[");
    for (int64_t row = 0; row < t->n_rows; row++) {
        textbuf_add(b, row ? ",{" : "{");
        for (int i = 0; i < t->n_columns; i++) {
            textbuf_add(b, i ? "," : "");
            textbuf_json(b, t->keys[i]);
            textbuf_add(b, ":");
            cell_json(b, &t->cells[row * t->n_columns + i]);
        }
        textbuf_add(b, "}");
    }
    textbuf_add(b, "]");
}
