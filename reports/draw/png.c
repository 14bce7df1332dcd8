/* png.c - libpng into memory of the arena. */
#include "reports/draw/png.h"

#include <setjmp.h>
#include <string.h>

#include <png.h>

typedef struct {
    PngImage *out;
    size_t    capacity;
    char      reason[128];
} Sink;

static void on_error(png_structp png, png_const_charp text)
{
    Sink *sink = png_get_error_ptr(png);
    strncpy(sink->reason, text, sizeof sink->reason - 1);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_bytes(png_structp png, png_bytep data, size_t n)
{
    Sink *sink = png_get_io_ptr(png);
    if (n > sink->capacity - sink->out->size)
        png_error(png, "longer than it can be");
    memcpy(sink->out->data + sink->out->size, data, n);
    sink->out->size += n;
}

static void on_flush(png_structp png)
{
    (void)png;
}

/* Apart from its caller: longjmp leaves the caller's locals as they are. */
static int encode(png_structp png, png_infop info, const Canvas *c)
{
    if (setjmp(png_jmpbuf(png)))
        return 0;
    png_set_IHDR(png, info, (png_uint_32)c->width, (png_uint_32)c->height, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_pHYs(png, info, 7559, 7559, PNG_RESOLUTION_METER);
    png_set_compression_level(png, 6);
    png_write_info(png, info);
    for (int y = 0; y < c->height; y++)
        png_write_row(png, c->rgb + (int64_t)y * c->width * 3);
    png_write_end(png, info);
    return 1;
}

Status png_encode(PngImage *out, Arena *a, const Canvas *c)
{
    /* Deflate never grows its input by more than a few bytes in 16 KiB. */
    size_t raw = ((size_t)c->width * 3 + 1) * (size_t)c->height;
    Sink sink = {.out = out, .capacity = raw + raw / 64 + 4096};
    *out = (PngImage){0};
    out->data = arena_raw(a, (int64_t)sink.capacity, 1);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink, on_error,
                                              on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int done = 0;
    if (out->data && info) {
        png_set_write_fn(png, &sink, on_bytes, on_flush);
        done = encode(png, info, c);
    }
    png_destroy_write_struct(&png, &info);
    if (!done)
        FAIL(ERR_MEMORY, "picture of %d x %d pixels cannot be encoded: %s", c->width, c->height,
             sink.reason[0] ? sink.reason : "out of memory");
    return OK;
}
