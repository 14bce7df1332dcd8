/* ticks.c - steps of 1, 2 and 5. */
#include "reports/draw/ticks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Decimals that a step needs: 0.05 has 2. */
static int decimals(double step)
{
    int n = (int)ceil(-log10(step) - 1e-9);
    return n < 0 ? 0 : n > 12 ? 12 : n;
}

static void put(Ticks *t, double at, const char *format, int precision)
{
    if (t->n == TICKS_MAX)
        return;
    t->at[t->n] = at;
    snprintf(t->text[t->n], sizeof t->text[0], format, precision, at);
    if (strcmp(t->text[t->n], "-0") == 0)
        strcpy(t->text[t->n], "0");
    t->n++;
}

static double nice_step(double rough)
{
    double power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part <= 1 + 1e-9 ? 1 : part <= 2 + 1e-9 ? 2 : part <= 5 + 1e-9 ? 5 : 10);
}

void ticks_linear(Ticks *t, double lo, double hi, int most)
{
    t->n = 0;
    if (!(hi > lo) || !isfinite(hi - lo) || most < 2) {
        put(t, lo, "%.*g", 3);
        return;
    }
    double step = nice_step((hi - lo) / most);
    double first = ceil(lo / step - 1e-9), last = floor(hi / step + 1e-9);
    if (last - first + 1 > most) {
        step = nice_step(step * 1.5);
        first = ceil(lo / step - 1e-9);
        last = floor(hi / step + 1e-9);
    }
    double size = fmax(fabs(lo), fabs(hi));
    for (double i = first; i <= last; i++) {
        double at = i == 0 ? 0 : i * step;
        if (size >= 1e6 || size < 1e-3)
            put(t, at, "%.*g", 4);
        else
            put(t, at, "%.*f", decimals(step));
    }
}

/* "10⁻⁵", "3·10⁶": powers of ten too long to write out. */
static void put_power(Ticks *t, double at, double part, int exponent)
{
    static const char *const digit[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    if (t->n == TICKS_MAX)
        return;
    char *text = t->text[t->n], plain[16];
    int n = part == 1 ? 0 : snprintf(text, 8, "%.0f·", part);
    n += snprintf(text + n, 8, exponent < 0 ? "10⁻" : "10");
    snprintf(plain, sizeof plain, "%d", exponent < 0 ? -exponent : exponent);
    for (const char *p = plain; *p && n < 18; p++)
        n += snprintf(text + n, sizeof t->text[0] - (size_t)n, "%s", digit[*p - '0']);
    t->at[t->n++] = at;
}

static void put_decades(Ticks *t, double lo, double hi, int first, int last, int stride,
                        const double *parts, int n_parts)
{
    for (int e = first; e <= last; e++)
        for (int i = 0; i < n_parts; i++) {
            double at = parts[i] * pow(10, e);
            if (at < lo * (1 - 1e-9) || at > hi * (1 + 1e-9) || (e - first) % stride != 0)
                continue;
            if (e >= 5 || e <= -4)
                put_power(t, at, parts[i], e);
            else
                put(t, at, "%.*f", e < 0 ? -e : 0);
        }
}

static int count_decades(double lo, double hi, const double *parts, int n_parts)
{
    int n = 0;
    for (int e = (int)floor(log10(lo)); e <= (int)ceil(log10(hi)); e++)
        for (int i = 0; i < n_parts; i++) {
            double at = parts[i] * pow(10, e);
            n += at >= lo * (1 - 1e-9) && at <= hi * (1 + 1e-9);
        }
    return n;
}

void ticks_log(Ticks *t, double lo, double hi, int most)
{
    static const double five[] = {1, 2, 5}, three[] = {1, 3}, one[] = {1};
    int first = (int)floor(log10(lo)), last = (int)ceil(log10(hi));
    t->n = 0;
    most = most < 2 ? 2 : most > TICKS_MAX ? TICKS_MAX : most;
    if (count_decades(lo, hi, five, 3) < 3) {
        ticks_linear(t, lo, hi, most);
        return;
    }
    if (count_decades(lo, hi, five, 3) <= most)
        put_decades(t, lo, hi, first, last, 1, five, 3);
    else if (count_decades(lo, hi, three, 2) <= most)
        put_decades(t, lo, hi, first, last, 1, three, 2);
    else {
        first = (int)ceil(log10(lo) - 1e-9);
        int n = count_decades(lo, hi, one, 1);
        put_decades(t, lo, hi, first, last, (n + most - 1) / most, one, 1);
    }
}

void ticks_index(Ticks *t, int64_t n, int most)
{
    t->n = 0;
    most = most < 1 ? 1 : most > TICKS_MAX ? TICKS_MAX : most;
    double step = n <= most ? 1 : fmax(1, nice_step((double)n / most));
    for (double i = 0; i < (double)n; i += step)
        put(t, i, "%.*f", 0);
}
