/* font.c - glyphs one after another, blended onto the canvas. */
#include "reports/draw/font.h"

#include <ft2build.h>
#include FT_FREETYPE_H

#include "reports/draw/font_data.h"

Status font_open(Font *f)
{
    FT_Library library;
    FT_Face face[2] = {NULL, NULL};
    *f = (Font){0};
    if (FT_Init_FreeType(&library) != 0)
        FAIL(ERR_MEMORY, "FreeType cannot be started");
    f->library = library;
    int wrong = FT_New_Memory_Face(library, font_data_regular_begin,
                                   font_data_regular_end - font_data_regular_begin, 0, &face[0]);
    f->face[0] = face[0];
    if (!wrong)
        wrong = FT_New_Memory_Face(library, font_data_bold_begin,
                                   font_data_bold_end - font_data_bold_begin, 0, &face[1]);
    f->face[1] = face[1];
    if (wrong) {
        font_close(f);
        FAIL(ERR_FORMAT, "the typeface built into the program cannot be read: FreeType error %d",
             wrong);
    }
    return OK;
}

void font_close(Font *f)
{
    if (f->library)
        FT_Done_FreeType(f->library);  // with its faces
    *f = (Font){0};
}

/* Next character of UTF-8; a byte that is none counts as U+FFFD. */
static unsigned long next_char(const char **text)
{
    const unsigned char *p = (const unsigned char *)*text;
    int more = *p < 0x80 ? 0 : *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : *p >= 0xc0 ? 1 : -1;
    unsigned long c = more <= 0 ? *p : *p & (0x3fu >> more);
    *text += 1;
    for (int i = 0; i < more; i++) {
        if ((**text & 0xc0) != 0x80)
            return 0xfffd;
        c = c << 6 | (**text & 0x3f);
        *text += 1;
    }
    return more < 0 ? 0xfffd : c;
}

static FT_GlyphSlot load(FT_Face face, unsigned long c, int flags)
{
    if (FT_Load_Glyph(face, FT_Get_Char_Index(face, c), flags) != 0)
        return NULL;
    return face->glyph;
}

int font_width(const Font *f, const char *text, TextStyle style)
{
    FT_Face face = f->face[style.bold];
    int64_t pen = 0;  // in 64ths
    FT_Set_Pixel_Sizes(face, 0, (FT_UInt)style.size);
    while (*text) {
        FT_GlyphSlot glyph = load(face, next_char(&text), FT_LOAD_TARGET_LIGHT);
        pen += glyph ? glyph->advance.x : 0;
    }
    return (int)((pen + 32) / 64);
}

static void draw_glyph(Canvas *c, const FT_GlyphSlot glyph, int x, int y, int pen,
                       const TextStyle *style)
{
    const FT_Bitmap *map = &glyph->bitmap;
    for (int row = 0; row < (int)map->rows; row++)
        for (int col = 0; col < (int)map->width; col++) {
            int across = pen + glyph->bitmap_left + col, up = glyph->bitmap_top - row;
            int cover = map->buffer[row * map->pitch + col];
            if (style->vertical)
                canvas_blend(c, x - up, y - across - 1, style->color, cover);
            else
                canvas_blend(c, x + across, y - up, style->color, cover);
        }
}

void font_draw(const Font *f, Canvas *c, int x, int y, const char *text, TextStyle style)
{
    FT_Face face = f->face[style.bold];
    int width = font_width(f, text, style);
    int64_t pen = 64 * (style.align == TEXT_LEFT     ? 0
                        : style.align == TEXT_CENTER ? -width / 2
                                                     : -width);
    while (*text) {
        FT_GlyphSlot glyph =
            load(face, next_char(&text), FT_LOAD_RENDER | FT_LOAD_TARGET_LIGHT);
        if (!glyph)
            continue;
        draw_glyph(c, glyph, x, y, (int)((pen + 32) >> 6), &style);
        pen += glyph->advance.x;
    }
}
