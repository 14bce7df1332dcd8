/* bytemap.h - GPT-2's spelling of bytes: every byte as one printable character.
 * Printable bytes of Latin-1 stand for themselves, the others for U+0100 on. */
#ifndef DQ_TEXT_BYTEMAP_H
#define DQ_TEXT_BYTEMAP_H

#include <stdint.h>

uint32_t bytemap_char(unsigned char byte);
/* -1 where c stands for no byte. */
int bytemap_byte(uint32_t c);

#endif
