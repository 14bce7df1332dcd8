/* test_packbits.c - the goldens of the formats, and all widths bit by bit. */
#include <string.h>

#include "kernels/packbits.h"
#include "tests/check.h"

enum { MOST = 70 * 70 * 8, GUARD_BYTES = 16 };

static int8_t   codes[MOST], back[MOST + GUARD_BYTES];
static uint8_t  words[4 * MOST], want[4 * MOST];
static uint64_t seed = 1;

static uint32_t word_at(int64_t i)
{
    uint32_t u;
    memcpy(&u, words + 4 * i, sizeof u);
    return u;
}

static void fill(int64_t n, int bits)
{
    for (int64_t i = 0; i < n; i++) {
        int q = (int)((check_uniform(&seed) + 1) * (float)(1 << (bits - 1)));
        codes[i] = (int8_t)(q - (1 << (bits - 1)));
    }
}

TEST(four_and_eight_bits_of_compressed_tensors)
{
    static const int8_t EIGHT[4] = {-128, -1, 0, 127};
    for (int layout = PACK_DENSE; layout <= PACK_PADDED; layout++) {
        for (int i = 0; i < 16; i++)
            codes[i] = (int8_t)(i - 8);
        packbits_rows(words, codes, 1, 16, layout, 4);
        T_OK(word_at(0) == 0x76543210 && word_at(1) == 0xfedcba98);
        packbits_rows(words, EIGHT, 1, 4, layout, 8);
        T_OK(word_at(0) == 0xff807f00);
    }
}

TEST(six_bits_dense_and_padded)
{
    static const uint32_t DENSE[] = {0x544d2450, 0xa6585d65, 0x7de75c6d,
                                     0x648e2860, 0xaa689e69, 0xbeeb6cae};
    static const uint32_t PADDED[] = {0x144d2450, 0x19617595, 0x1e75c6da, 0x238a181f,
                                      0x289e6964, 0x2db2baa9, 0x00000bee};
    for (int i = 0; i < 32; i++)
        codes[i] = (int8_t)(i - 16);
    packbits_rows(words, codes, 1, 32, PACK_DENSE, 6);
    for (int i = 0; i < 6; i++)
        T_OK(word_at(i) == DENSE[i]);
    packbits_rows(words, codes, 1, 32, PACK_PADDED, 6);
    for (int i = 0; i < 7; i++)
        T_OK(word_at(i) == PADDED[i]);
    /* one column of 32 is the same bits as one row */
    packbits_columns(words, codes, 32, 1, PACK_DENSE, 6);
    for (int i = 0; i < 6; i++)
        T_OK(word_at(i) == DENSE[i]);
}

/* GPTQ stores u = z - 1 (v1) or z (v2), z = 2^(b-1), along the outputs. */
TEST(symmetric_zeros_of_gptq)
{
    memset(codes, -1, 32);
    packbits_rows(words, codes, 1, 32, PACK_DENSE, 4);
    T_OK(word_at(0) == 0x77777777 && word_at(3) == 0x77777777);
    packbits_rows(words, codes, 1, 32, PACK_DENSE, 8);
    T_OK(word_at(0) == 0x7f7f7f7f && word_at(7) == 0x7f7f7f7f);
    memset(codes, 0, 32);
    packbits_rows(words, codes, 1, 32, PACK_DENSE, 4);
    T_OK(word_at(0) == 0x88888888);
    packbits_rows(words, codes, 1, 32, PACK_DENSE, 8);
    T_OK(word_at(0) == 0x80808080);
}

/* Word r of output o holds inputs 8 r .. 8 r + 7. */
TEST(weights_of_gptq_lie_down_the_columns)
{
    for (int k = 0; k < 16; k++)
        for (int o = 0; o < 3; o++)
            codes[3 * k + o] = (int8_t)((k + o) % 16 - 8);
    packbits_columns(words, codes, 16, 3, PACK_DENSE, 4);
    T_OK(word_at(0) == 0x76543210 && word_at(1) == 0x87654321 && word_at(2) == 0x98765432);
    T_OK(word_at(3) == 0xfedcba98 && word_at(4) == 0x0fedcba9 && word_at(5) == 0x10fedcba);
}

/* Bit k of a row of codes, set or asked for, by the definition alone. */
static int64_t bit_place(int layout, int bits, int64_t i, int bit)
{
    int64_t per = 32 / bits;
    return layout == PACK_DENSE ? i * bits + bit : i / per * 32 + i % per * bits + bit;
}

/* codes[i * step] of a row into the row of words whose w-th is at want[w * stride]. */
static void pack_bits(int64_t first_code, int64_t step, int64_t first_word, int64_t stride,
                      int64_t n, int layout, int bits)
{
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < bits; k++) {
            int     u = codes[first_code + i * step] + (1 << (bits - 1));
            int64_t at = bit_place(layout, bits, i, k), word = first_word + at / 32 * stride;
            if (u >> k & 1)
                want[4 * word + at % 32 / 8] |= (uint8_t)(1 << at % 8);
        }
}

/* As wide as a row of words of unaligned files: one byte in. */
static bool same_bytes(int64_t n_words)
{
    return memcmp(words + 1, want, (size_t)(4 * n_words)) == 0 &&
           words[1 + 4 * n_words] == 0xa5;
}

static bool same_codes(int64_t n)
{
    return memcmp(back, codes, (size_t)n) == 0 && back[n] == 99;
}

TEST(rows_of_all_widths_bit_by_bit)
{
    for (int64_t n = 0; n < 70; n++)
        for (int bits = 1; bits <= 8; bits++)
            for (int layout = PACK_DENSE; layout <= PACK_PADDED; layout++) {
                int64_t per = packbits_words(layout, bits, n), rows = 3;
                fill(rows * n, bits);
                memset(want, 0, sizeof want);
                memset(words, 0xa5, sizeof words);
                memset(back, 99, sizeof back);
                for (int64_t r = 0; r < rows; r++)
                    pack_bits(r * n, 1, r * per, 1, n, layout, bits);
                packbits_rows(words + 1, codes, rows, n, layout, bits);
                T_OK(same_bytes(rows * per));
                packbits_unpack_rows(back, words + 1, rows, n, layout, bits);
                T_OK(same_codes(rows * n));
            }
}

TEST(columns_of_all_widths_bit_by_bit)
{
    static const int64_t WIDTHS[] = {1, 2, 7, 33, 1023, 1024, 1025};
    for (int w = 0; w < 7; w++)
        for (int64_t rows = 1; rows < 40; rows += w < 4 ? 1 : 31)
            for (int bits = 1; bits <= 8; bits++)
                for (int layout = PACK_DENSE; layout <= PACK_PADDED; layout++) {
                    int64_t n = WIDTHS[w], per = packbits_words(layout, bits, rows);
                    fill(rows * n, bits);
                    memset(want, 0, (size_t)(4 * n * per));
                    memset(words, 0xa5, (size_t)(4 * n * per) + 8);
                    memset(back, 99, sizeof back);
                    for (int64_t j = 0; j < n; j++)
                        pack_bits(j, n, j, n, rows, layout, bits);
                    packbits_columns(words + 1, codes, rows, n, layout, bits);
                    T_OK(same_bytes(n * per));
                    packbits_unpack_columns(back, words + 1, rows, n, layout, bits);
                    T_OK(same_codes(rows * n));
                }
}

TEST(words_that_n_codes_take)
{
    T_OK(packbits_words(PACK_DENSE, 6, 32) == 6 && packbits_words(PACK_PADDED, 6, 32) == 7);
    T_OK(packbits_words(PACK_DENSE, 6, 33) == 7 && packbits_words(PACK_PADDED, 6, 35) == 7);
    T_OK(packbits_words(PACK_DENSE, 3, 0) == 0 && packbits_words(PACK_PADDED, 3, 1) == 1);
    T_OK(packbits_words(PACK_DENSE, 4, 9) == 2 && packbits_words(PACK_PADDED, 8, 5) == 2);
}

/* Bits past what a layout uses may be anything in a foreign file. */
TEST(padding_bits_are_ignored)
{
    fill(11, 6);
    packbits_rows(words, codes, 1, 11, PACK_PADDED, 6);
    for (int w = 0; w < 3; w++)
        words[4 * w + 3] |= 0xc0;
    words[4 * 2 + 2] |= 0xff;
    packbits_unpack_rows(back, words, 1, 11, PACK_PADDED, 6);
    T_OK(memcmp(back, codes, 11) == 0);
}
