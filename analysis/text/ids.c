/* ids.c - see ids.h. */
#include "analysis/text/ids.h"

#include <string.h>

Status ids_reserve(Ids *ids, int64_t n)
{
    if (n <= ids->room - ids->n)
        return OK;
    int64_t  room = ids->room + ids->room / 2 + n + 64;
    int32_t *id = arena_raw(ids->arena, room, sizeof *id);
    int64_t *begin = ids->track ? arena_raw(ids->arena, room, sizeof *begin) : NULL;
    if (!id || (ids->track && !begin))
        FAIL(ERR_MEMORY, "out of memory: %lld token ids", (long long)room);
    if (ids->n) {
        memcpy(id, ids->id, (size_t)ids->n * sizeof *id);
        if (begin)
            memcpy(begin, ids->begin, (size_t)ids->n * sizeof *begin);
    }
    ids->id = id;
    ids->begin = begin;
    ids->room = room;
    return OK;
}
