/* ref_isa.h - the instruction sets that this machine has, one after another. */
#ifndef DQ_REF_ISA_H
#define DQ_REF_ISA_H

#include "kernels/cpufeat.h"

/* From N_CPU_ISAS on; false, and the machine's best again, after the last. */
static inline bool ref_each_isa(CpuIsa *isa)
{
    *isa = *isa == N_CPU_ISAS ? CPU_PLAIN : (CpuIsa)(*isa + 1);
    if (*isa < N_CPU_ISAS && cpu_isa_force(*isa))
        return true;
    cpu_isa_force(N_CPU_ISAS);
    return false;
}

#endif
