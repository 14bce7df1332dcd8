/* keys.c - one member after another, by the table. */
#include "analysis/model/keys.h"

static Status check_range(const Key *k, double value, const char *where)
{
    if (value >= k->min && value <= k->max)
        return OK;
    FAIL(ERR_RANGE, "%s%s is %.15g, expected %.15g to %.15g", where, k->name, value, k->min,
         k->max);
}

static Status wrong_kind(const Key *k, const Json *v, const char *expected, const char *where)
{
    if (v->kind == JSON_NUMBER)
        FAIL(ERR_FORMAT, "%s%s is %.15g, expected %s", where, k->name, v->number, expected);
    FAIL(ERR_FORMAT, "%s%s is %s, expected %s", where, k->name, json_kind_name(v->kind),
         expected);
}

static Status read_member(void *field, const Key *k, const Json *v, const char *where)
{
    switch (k->kind) {
    case KEY_INT:
        if (v->kind != JSON_NUMBER || !v->whole)
            return wrong_kind(k, v, "a whole number", where);
        TRY(check_range(k, v->number, where));
        *(int64_t *)field = v->integer;
        return OK;
    case KEY_REAL:
        if (v->kind != JSON_NUMBER)
            return wrong_kind(k, v, "a number", where);
        TRY(check_range(k, v->number, where));
        *(double *)field = v->number;
        return OK;
    case KEY_BOOL:
        if (v->kind != JSON_BOOL)
            return wrong_kind(k, v, "true or false", where);
        *(bool *)field = v->truth;
        return OK;
    case KEY_TEXT:
        if (v->kind != JSON_TEXT)
            return wrong_kind(k, v, "a text", where);
        *(const char **)field = v->text;
        return OK;
    default:
        FAIL(ERR_UNSUPPORTED, "%s%s: unknown kind of key", where, k->name);
    }
}

Status keys_read(void *out, const Key *keys, int n, const Json *object, const char *where)
{
    for (const Key *k = keys; k < keys + n; k++) {
        const Json *v = json_member(object, k->name);
        if (v && v->kind != JSON_NULL)
            TRY(read_member((char *)out + k->offset, k, v, where));
        else if (k->required)
            FAIL(ERR_FORMAT, "%s%s is missing", where, k->name);
    }
    return OK;
}
