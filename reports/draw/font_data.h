/* font_data.h - DejaVu Sans as it stands in its files. */
#ifndef DQ_FONT_DATA_H
#define DQ_FONT_DATA_H

extern const unsigned char font_data_regular_begin[], font_data_regular_end[];
extern const unsigned char font_data_bold_begin[], font_data_bold_end[];

#endif
