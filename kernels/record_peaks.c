/* record_peaks.c - the largest magnitudes seen, with their places.
 * A sorted array: a kernel compares a whole tile with the threshold first, so
 * insertions are rare once the list is full. */
#include <math.h>
#include <string.h>

#include "kernels/record.h"

#define ORDER(field)                                  \
    if (a->field != b->field)                         \
        return a->field < b->field;

/* true where a stands before b. */
static bool before(const Peak *a, const Peak *b)
{
    float va = fabsf(a->value), vb = fabsf(b->value);
    if (va != vb)
        return va > vb;
    ORDER(sequence)
    ORDER(layer)
    ORDER(head)
    ORDER(map)
    ORDER(position)
    ORDER(key)
    ORDER(channel)
    return false;
}

float peaks_threshold(const Peaks *p)
{
    return p->n == N_PEAKS ? fabsf(p->at[N_PEAKS - 1].value) : 0;
}

void peaks_add(Peaks *p, const Peak *peak)
{
    int first = 0, last = p->n;  // the place lies in [first, last]
    if (p->n == N_PEAKS && !before(peak, &p->at[N_PEAKS - 1]))
        return;
    while (first < last) {
        int middle = (first + last) / 2;
        if (before(peak, &p->at[middle]))
            last = middle;
        else
            first = middle + 1;
    }
    if (p->n < N_PEAKS)
        p->n++;
    memmove(&p->at[first + 1], &p->at[first],
            (size_t)(p->n - 1 - first) * sizeof *peak);
    p->at[first] = *peak;
}

void peaks_merge(Peaks *into, const Peaks *from)
{
    for (int i = 0; i < from->n; i++)
        peaks_add(into, &from->at[i]);
}
