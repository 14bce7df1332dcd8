/* h5.h - SeriesSets to and from one HDF5 file (layout: DESIGN 5 and README).
 * One group a model; in it one dataset a series ('/' in a name makes a group)
 * and one dimension scale a dimension, so that h5py, xarray and HDFView show
 * names without help. The same sets give the same bytes. */
#ifndef DQ_H5_H
#define DQ_H5_H

#include "analysis/series.h"

enum { H5_SCHEMA = 1 };  // of the layout; a reader takes its own and older ones

/* Writes path whole or not at all (outfile.h). root: attributes of the run
 * (program, version, command, device, seed; its series are ignored), may be
 * NULL; the schema number is added here. Scratch comes from a and is given
 * back. ERR_SHAPE where two series of a set give one dimension two lengths,
 * ERR_RANGE for a name of a model or series that cannot be a group or dataset
 * or is there twice, ERR_IO, ERR_MEMORY. */
MUST_USE Status h5_write(Arena *a, const char *path, const SeriesSet *sets, int n_sets,
                         const SeriesSet *root);

/* Reads a file of h5_write into a. root may be NULL. ERR_IO where it cannot be
 * opened; ERR_FORMAT for what is not HDF5, truncated, or not ours;
 * ERR_UNSUPPORTED for a newer schema or a type that is none of Series'. */
MUST_USE Status h5_read(Arena *a, const char *path, SeriesSet **sets, int *n_sets,
                        SeriesSet *root);

#endif
