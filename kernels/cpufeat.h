/* cpufeat.h - which of the compiled instruction sets this machine may run.
 * Files named *_isa.c exist three times; each use chooses by cpu_isa(). */
#ifndef DQ_CPUFEAT_H
#define DQ_CPUFEAT_H

#include <stdbool.h>

typedef enum {
    CPU_PLAIN,   // what every x86-64 has
    CPU_AVX2,    // avx2, fma, f16c
    CPU_AVX512,  // avx512 f, bw, dq, vl
    N_CPU_ISAS
} CpuIsa;

/* The best set that both the processor and the system's saved state allow, or
 * the one forced. */
CpuIsa cpu_isa(void);

/* For tests: cpu_isa() gives `isa` from now on; N_CPU_ISAS ends that. False,
 * and nothing changes, where this machine cannot run it. Not while threads of
 * ours run. */
bool cpu_isa_force(CpuIsa isa);

/* How the processor multiplies bf16, where cpu_isa() is CPU_AVX512. */
typedef enum {
    CPU_BF16_NONE,
    CPU_BF16_DOTS,   // sums of products of pairs (avx512_bf16)
    CPU_BF16_TILES,  // that and tiles (amx_bf16)
    N_CPU_BF16
} CpuBf16;

CpuBf16 cpu_bf16(void);
bool    cpu_has_bf16_dot(void);   // of pairs

/* For tests, as cpu_isa_force(). Tiles can be claimed wherever there are dots: only oneDNN is to
 * know better. */
bool cpu_bf16_force(CpuBf16 kind);

const char *cpu_isa_name(CpuIsa isa);  // "plain", "avx2", "avx512"

#endif
