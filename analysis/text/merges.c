/* merges.c - see merges.h. */
#include "analysis/text/merges.h"

#include <string.h>

#include "analysis/text/utf8.h"

static uint64_t edges_of(const char *text, int32_t n)
{
    int32_t last = n - 1;
    int     step;
    if (n == 0)
        return 0;
    while (last > 0 && (text[last] & 0xc0) == 0x80)
        last--;
    uint64_t first = utf8_get(text, &step);
    return first << 32 | utf8_get(text + last, &step);
}

Status merges_init(Merges *m, Arena *a, const Vocab *v, int64_t n)
{
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    m->mask = slots - 1;
    ARENA_NEW(m->joins, a, MERGES_JOIN_BITS / 64);
    ARENA_NEW(m->edge, a, v->size);
    ARENA_NEW(m->slot, a, (int64_t)slots);
    for (uint64_t i = 0; i < slots; i++)
        m->slot[i].pair = UINT64_MAX;
    for (int32_t i = 0; i < v->size; i++)
        m->edge[i] = v->text[i] ? edges_of(v->text[i], v->length[i]) : 0;
    return OK;
}

static Merge *find_slot(const Merges *m, uint64_t pair)
{
    uint64_t i = merges_mix(pair) & m->mask;
    while (m->slot[i].pair != UINT64_MAX && m->slot[i].pair != pair)
        i = (i + 1) & m->mask;
    return &m->slot[i];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

void merges_add(Merges *m, int32_t left, int32_t right, int32_t rank, int32_t result)
{
    uint64_t pair = pair_of(left, right);
    *find_slot(m, pair) = (Merge){pair, rank, result};
    uint64_t bit =
        merges_mix(m->edge[left] << 32 | m->edge[right] >> 32) & (MERGES_JOIN_BITS - 1);
    m->joins[bit / 64] |= (uint64_t)1 << bit % 64;
}

const Merge *merges_find(const Merges *m, int32_t left, int32_t right)
{
    const Merge *slot = find_slot(m, pair_of(left, right));
    return slot->pair == UINT64_MAX ? NULL : slot;
}
