/* font_data.c - the bytes of the two typefaces, taken in by the assembler. */
#include "reports/draw/font_data.h"

#ifndef DQ_FONT_FOLDER  // set by font.cmake
#define DQ_FONT_FOLDER "/usr/share/fonts/truetype/dejavu"
#endif

#define TAKE_IN(name, file)                                                  \
    __asm__(".section .rodata\n"                                             \
            ".balign 16\n"                                                   \
            ".global " name "_begin\n"                                       \
            name "_begin:\n"                                                 \
            ".incbin \"" DQ_FONT_FOLDER "/" file "\"\n"                      \
            ".global " name "_end\n"                                         \
            name "_end:\n"                                                   \
            ".byte 0\n"                                                      \
            ".previous\n")

TAKE_IN("font_data_regular", "DejaVuSans.ttf");
TAKE_IN("font_data_bold", "DejaVuSans-Bold.ttf");
