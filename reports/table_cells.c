/* table_cells.c - the makings of a Table. */
#include <math.h>

#include "reports/tables.h"

Cell table_text_cell(const char *text)
{
    return (Cell){.kind = text ? CELL_TEXT : CELL_NONE, .text = text};
}

/* NaN says that it was not measured. */
Cell table_value_cell(double value)
{
    return (Cell){.kind = isnan(value) ? CELL_NONE : CELL_VALUE, .value = value};
}

Cell table_int_cell(int64_t value)
{
    return (Cell){.kind = CELL_INT, .integer = value};
}

Status table_new(Table *t, Arena *a, int64_t n_rows, int n_columns)
{
    const char **columns, **keys;
    *t = (Table){.n_columns = n_columns};
    ARENA_NEW(columns, a, n_columns);
    ARENA_NEW(keys, a, n_columns);
    ARENA_NEW(t->cells, a, n_rows * n_columns);
    t->columns = columns;
    t->keys = keys;
    return OK;
}

void table_name(Table *t, int i, const char *column, const char *key)
{
    ((const char **)t->columns)[i] = column;
    ((const char **)t->keys)[i] = key;
}
