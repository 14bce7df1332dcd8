/* packbits.c - codes of 1 to 8 bits in 32-bit words.
 * Rows of 4 and 8 bits go eight codes at a time, in one 64-bit word; the others
 * through an accumulator. Columns go a row of codes at a time, which the compiler
 * turns into vectors: the words of one row of words stay in cache meanwhile.
 * cost    1 + b/8 bytes a code; 4 and 8 bits and all columns: memory bound
 * test    tests/kernels/test_packbits.c, every b, n on both sides of a word */
#include "kernels/packbits.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/size.h"
#include "kernels/status.h"

enum { WORD = 32, STRIP = 1024 };

static inline uint32_t load32(const void *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

static inline uint64_t load64(const void *p)
{
    uint64_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

int64_t packbits_words(PackLayout layout, int bits, int64_t n)
{
    CHECK(bits >= 1 && bits <= 8);
    return layout == PACK_DENSE ? ceil_div(n * bits, WORD) : ceil_div(n, WORD / bits);
}

/* --- rows --- */

/* Eight codes, one a byte, as eight nibbles: the halves move together step by step. */
static inline uint32_t pack8x4(uint64_t q)
{
    uint64_t u = (q & 0x0f0f0f0f0f0f0f0fu) ^ 0x0808080808080808u;
    u = (u | u >> 4) & 0x00ff00ff00ff00ffu;
    u = (u | u >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(u | u >> 16);
}

static inline uint64_t unpack8x4(uint32_t word)
{
    uint64_t u = word;
    u = (u | u << 16) & 0x0000ffff0000ffffu;
    u = (u | u << 8) & 0x00ff00ff00ff00ffu;
    u = (u | u << 4) & 0x0f0f0f0f0f0f0f0fu;
    /* u - 8 in each byte: the top bit lends, so that no byte borrows of the next */
    return ((u | 0x8080808080808080u) - 0x0808080808080808u) ^ 0x8080808080808080u;
}

static void pack4(uint8_t *out, const int8_t *codes, int64_t n)
{
    int64_t whole = n / 8;
    for (int64_t i = 0; i < whole; i++) {
        uint32_t word = pack8x4(load64(codes + 8 * i));
        memcpy(out + 4 * i, &word, sizeof word);
    }
    if (n % 8) {
        int8_t   rest[8];
        uint32_t word;
        memset(rest, -8, sizeof rest);  // stored as 0
        memcpy(rest, codes + 8 * whole, (size_t)(n % 8));
        word = pack8x4(load64(rest));
        memcpy(out + 4 * whole, &word, sizeof word);
    }
}

static void unpack4(int8_t *codes, const uint8_t *in, int64_t n)
{
    int64_t whole = n / 8;
    for (int64_t i = 0; i < whole; i++) {
        uint64_t q = unpack8x4(load32(in + 4 * i));
        memcpy(codes + 8 * i, &q, sizeof q);
    }
    if (n % 8) {
        uint64_t q = unpack8x4(load32(in + 4 * whole));
        memcpy(codes + 8 * whole, &q, (size_t)(n % 8));
    }
}

/* Bytes are bytes: only the sign moves. The last word is filled up with 0. */
static void pack8(uint8_t *out, const int8_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)codes[i] ^ 0x80;
    memset(out + n, 0, (size_t)(-n & 3));
}

static void unpack8(int8_t *codes, const uint8_t *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)(in[i] ^ 0x80);
}

/* Any width. A padded word is given out as soon as no further code fits. */
static void pack_any(uint8_t *out, const int8_t *codes, int64_t n, bool dense, int bits)
{
    uint64_t  held = 0;
    int       n_held = 0;
    const int full = dense ? WORD : WORD / bits * bits;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = ((uint32_t)codes[i] + (1u << (bits - 1))) & ((1u << bits) - 1);
        held |= (uint64_t)u << n_held;
        n_held += bits;
        if (n_held < full)
            continue;
        memcpy(out, &held, 4);
        out += 4;
        held = dense ? held >> WORD : 0;
        n_held -= full;
    }
    if (n_held)
        memcpy(out, &held, 4);
}

static void unpack_any(int8_t *codes, const uint8_t *in, int64_t n, bool dense, int bits)
{
    uint64_t  held = 0;
    int       n_held = 0;
    const int full = dense ? WORD : WORD / bits * bits;
    for (int64_t i = 0; i < n; i++) {
        if (n_held < bits) {
            held |= (uint64_t)load32(in) << n_held;
            in += 4;
            n_held += full;
        }
        codes[i] = (int8_t)((int)(held & ((1u << bits) - 1)) - (1 << (bits - 1)));
        n_held -= bits;
        held = dense || n_held ? held >> bits : 0;  // padding goes with the last code
    }
}

static void pack_row(uint8_t *out, const int8_t *codes, int64_t n, PackLayout layout, int bits)
{
    if (bits == 4)
        pack4(out, codes, n);
    else if (bits == 8)
        pack8(out, codes, n);
    else
        pack_any(out, codes, n, layout == PACK_DENSE, bits);
}

static void unpack_row(int8_t *codes, const uint8_t *in, int64_t n, PackLayout layout, int bits)
{
    if (bits == 4)
        unpack4(codes, in, n);
    else if (bits == 8)
        unpack8(codes, in, n);
    else
        unpack_any(codes, in, n, layout == PACK_DENSE, bits);
}

void packbits_rows(void *words, const int8_t *codes, int64_t rows, int64_t n, PackLayout layout,
                   int bits)
{
    int64_t stride = 4 * packbits_words(layout, bits, n);
    for (int64_t r = 0; r < rows; r++)
        pack_row((uint8_t *)words + r * stride, codes + r * n, n, layout, bits);
}

void packbits_unpack_rows(int8_t *codes, const void *words, int64_t rows, int64_t n,
                          PackLayout layout, int bits)
{
    int64_t stride = 4 * packbits_words(layout, bits, n);
    for (int64_t r = 0; r < rows; r++)
        unpack_row(codes + r * n, (const uint8_t *)words + r * stride, n, layout, bits);
}

/* --- columns --- */

/* Where code i of a column lies: row of words, and bit of it. */
typedef struct {
    int64_t word;
    int     shift;
} Place;

static Place place_of(PackLayout layout, int bits, int64_t i)
{
    if (layout == PACK_DENSE)
        return (Place){i * bits / WORD, (int)(i * bits % WORD)};
    return (Place){i / (WORD / bits), (int)(i % (WORD / bits)) * bits};
}

/* out[j] |= u[j] << shift, or >> -shift. */
static void put_strip(uint8_t *out, const int8_t *codes, int64_t n, int bits, int shift)
{
    const uint32_t half = 1u << (bits - 1), mask = (1u << bits) - 1;
    const int      left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    for (int64_t j = 0; j < n; j++) {
        uint32_t u = ((uint32_t)codes[j] + half) & mask;
        uint32_t word = load32(out + 4 * j) | u << left >> right;
        memcpy(out + 4 * j, &word, sizeof word);
    }
}

/* high: the words that hold the upper bits of a code that straddles; else low again. */
static void get_strip(int8_t *codes, const uint8_t *low, const uint8_t *high, int64_t n,
                      int bits, int shift)
{
    const uint32_t mask = (1u << bits) - 1;
    const int      half = 1 << (bits - 1);
    for (int64_t j = 0; j < n; j++) {
        uint64_t both = load32(low + 4 * j) | (uint64_t)load32(high + 4 * j) << WORD;
        codes[j] = (int8_t)((int)(both >> shift & mask) - half);
    }
}

void packbits_columns(void *words, const int8_t *codes, int64_t rows, int64_t n,
                      PackLayout layout, int bits)
{
    uint8_t *out = words;
    memset(out, 0, (size_t)(4 * n * packbits_words(layout, bits, rows)));
    for (int64_t j = 0; j < n; j += STRIP) {
        int64_t width = i64_min(STRIP, n - j);
        for (int64_t i = 0; i < rows; i++) {
            Place p = place_of(layout, bits, i);
            put_strip(out + 4 * (p.word * n + j), codes + i * n + j, width, bits, p.shift);
            if (p.shift + bits > WORD)
                put_strip(out + 4 * ((p.word + 1) * n + j), codes + i * n + j, width, bits,
                          p.shift - WORD);
        }
    }
}

void packbits_unpack_columns(int8_t *codes, const void *words, int64_t rows, int64_t n,
                             PackLayout layout, int bits)
{
    const uint8_t *in = words;
    for (int64_t j = 0; j < n; j += STRIP) {
        int64_t width = i64_min(STRIP, n - j);
        for (int64_t i = 0; i < rows; i++) {
            Place          p = place_of(layout, bits, i);
            const uint8_t *low = in + 4 * (p.word * n + j);
            get_strip(codes + i * n + j, low, p.shift + bits > WORD ? low + 4 * n : low, width,
                      bits, p.shift);
        }
    }
}
