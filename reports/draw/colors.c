/* colors.c - viridis (Smith and van der Walt 2015; ten of its points, as R's
 * viridisLite publishes them) and red-blue (ColorBrewer RdBu, 11 classes), each
 * joined by a Catmull-Rom curve. Lines: Okabe and Ito 2008. */
#include "reports/draw/colors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const Color COLOR_ZERO = {0xdc, 0xdc, 0xdc}, COLOR_NOT_FINITE = {0xff, 0x00, 0xc8};

static const uint32_t VIRIDIS[] = {0x440154, 0x482878, 0x3e4a89, 0x31688e, 0x26828e,
                                   0x1f9e89, 0x35b779, 0x6dcd59, 0xb4de2c, 0xfde725};
static const uint32_t BLUE_RED[] = {0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xd1e5f0, 0xf7f7f7,
                                    0xfddbc7, 0xf4a582, 0xd6604d, 0xb2182b, 0x67001f};
static const uint32_t LINES[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9};

static Color from_hex(uint32_t hex)
{
    return (Color){(uint8_t)(hex >> 16), (uint8_t)(hex >> 8), (uint8_t)hex};
}

Color colors_line(int i)
{
    return from_hex(LINES[i % 6]);
}

/* One channel of the curve through points n at place t in [0,1]. */
static uint8_t channel(const uint32_t *points, int n, double t, int shift)
{
    double x = t * (n - 1);
    int i = (int)x > n - 2 ? n - 2 : (int)x;
    double p[4], u = x - i;
    for (int k = 0; k < 4; k++) {
        int at = i + k - 1;
        p[k] = points[at < 0 ? 0 : at >= n ? n - 1 : at] >> shift & 255;
    }
    double y = p[1] + 0.5 * u * (p[2] - p[0] + u * (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3] +
                                                    u * (3 * (p[1] - p[2]) + p[3] - p[0])));
    return (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y + 0.5);
}

static bool is_signed(const ColorScale *s)
{
    return s->kind == COLORS_SIGNED || s->kind == COLORS_SIGNED_LOG;
}

static bool is_log(const ColorScale *s)
{
    return s->kind == COLORS_LOG || s->kind == COLORS_SIGNED_LOG;
}

Color colors_ramp(const ColorScale *s, double place)
{
    const uint32_t *points = is_signed(s) ? BLUE_RED : VIRIDIS;
    int n = is_signed(s) ? 11 : 10;
    return (Color){channel(points, n, place, 16), channel(points, n, place, 8),
                   channel(points, n, place, 0)};
}

double colors_place(const ColorScale *s, double value)
{
    double size = fabs(value);
    if (!isfinite(value) || (value == 0 && is_log(s)))
        return NAN;
    double part = is_log(s) ? log(size / s->lo) / log(s->hi / s->lo) : size / s->hi;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    if (is_signed(s))
        return value < 0 ? 0.5 - part / 2 : 0.5 + part / 2;
    return part;
}

Color colors_of(const ColorScale *s, double value)
{
    if (!isfinite(value))
        return COLOR_NOT_FINITE;
    double place = colors_place(s, value);
    return isnan(place) ? COLOR_ZERO : colors_ramp(s, place);
}

void colors_range(ColorRange *r, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)x[i]);
        if (!isfinite(size)) {
            r->not_finite = true;
            continue;
        }
        r->negative |= x[i] < 0;
        r->zero |= size == 0;
        r->most = size > r->most ? size : r->most;
        if (size > 0 && (r->least == 0 || size < r->least))
            r->least = size;
    }
}

ColorScale colors_fit(const ColorRange *r, bool log_scale, bool choose, double decades)
{
    ColorScale s = {COLORS_LINEAR, 0, r->most > 0 ? r->most : 1};
    if (choose)
        log_scale = r->most > 30 * r->least;
    if (log_scale) {
        s.lo = fmax(r->least, s.hi * pow(10, -decades));
        if (!(s.lo > 0) || s.lo > 0.5 * s.hi)  // one value only: a bar all the same
            s.lo = s.hi / 10;
    }
    s.kind = r->negative ? (log_scale ? COLORS_SIGNED_LOG : COLORS_SIGNED)
                         : (log_scale ? COLORS_LOG : COLORS_LINEAR);
    return s;
}

/* Both sides of zero, whose place stays free for its own tick. */
static void mirror(const ColorScale *s, Ticks *t)
{
    Ticks up = {.n = 1, .text = {"0"}};
    for (int i = 0; i < t->n && up.n < TICKS_MAX; i++) {
        if (colors_place(s, t->at[i]) < 0.53)
            continue;
        up.at[up.n] = t->at[i];
        memcpy(up.text[up.n++], t->text[i], sizeof t->text[0]);
    }
    t->n = 0;
    for (int i = up.n - 1; i > 0; i--) {
        if (t->n == TICKS_MAX)
            break;
        t->at[t->n] = -up.at[i];
        snprintf(t->text[t->n], sizeof t->text[0], "−%.20s", up.text[i]);
        t->n++;
    }
    for (int i = 0; i < up.n && t->n < TICKS_MAX; i++) {
        t->at[t->n] = up.at[i];
        memcpy(t->text[t->n++], up.text[i], sizeof t->text[0]);
    }
}

void colors_ticks(const ColorScale *s, Ticks *t, int most)
{
    most = is_signed(s) ? most / 2 : most;
    if (is_log(s))
        ticks_log(t, s->lo, s->hi, most);
    else
        ticks_linear(t, 0, s->hi, most);
    if (is_signed(s))
        mirror(s, t);
}
