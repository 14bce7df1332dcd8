/* once.h - what a model has once: the embedding, positions, the norm before the head; and
 * the matrices between an embedding and hidden states of different widths (OPT-350m), which
 * are multiplied into the embedding and the head, so that no one else sees them. */
#ifndef DQ_ONCE_H
#define DQ_ONCE_H

#include "analysis/model/source.h"

/* m->positions and norm, and m->embed, but where the model can read its rows from the file
 * as it needs them (m->loader) and nothing would be nearer: in the host's memory, of a table
 * that is not multiplied. */
MUST_USE Status once_load(Model *m, Arena *scratch, const Source *s);

/* Does the head read another width than the hidden states have? */
bool once_projects(const Source *s);
/* *w [V,E], the head as stored, becomes [V,C] in scratch where it does. */
MUST_USE Status once_head(const float **w, Arena *scratch, Backend *be, const Source *s);

#endif
