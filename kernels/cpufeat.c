/* cpufeat.c - cpuid and xgetbv: what the processor has and the system saves. */
#include "kernels/cpufeat.h"

#include "kernels/status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

/* Registers whose contents the system keeps for a process (XCR0). */
static uint64_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_all(uint64_t have, uint64_t want)
{
    return (have & want) == want;
}

static CpuIsa detect(void)
{
    const uint64_t state_avx = 0x6, state_avx512 = 0xe6;  // xmm ymm; k zmm zmm16+
    const uint64_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, bit_OSXSAVE | bit_FMA | bit_F16C))
        return CPU_PLAIN;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        !has_all(b, bit_AVX2 | bit_BMI))
        return CPU_PLAIN;
    uint64_t state = saved_state();
    if (!has_all(state, state_avx))
        return CPU_PLAIN;
    return has_all(b, avx512) && has_all(state, state_avx512) ? CPU_AVX512 : CPU_AVX2;
}

static CpuBf16 detect_bf16(void)
{
    const uint64_t state_tiles = 0x60000;
    const uint32_t tiles = bit_AMX_BF16 | bit_AMX_TILE;
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & bit_AVX512BF16))
        return CPU_BF16_NONE;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    return has_all(d, tiles) && has_all(saved_state(), state_tiles) ? CPU_BF16_TILES
                                                                     : CPU_BF16_DOTS;
}
#else
static CpuIsa detect(void)
{
    return CPU_PLAIN;
}

static CpuBf16 detect_bf16(void)
{
    return CPU_BF16_NONE;
}
#endif

/* Kept: cpuid leaves a virtual machine and costs tens of microseconds there.
 * Threads that meet here find the same. */
static _Atomic CpuIsa best = N_CPU_ISAS, forced = N_CPU_ISAS;

static CpuIsa best_isa(void)
{
    CpuIsa isa = best;
    if (isa == N_CPU_ISAS)
        best = isa = detect();
    return isa;
}

CpuIsa cpu_isa(void)
{
    CpuIsa isa = forced;
    return isa == N_CPU_ISAS ? best_isa() : isa;
}

static _Atomic CpuBf16 best_kind = N_CPU_BF16, forced_kind = N_CPU_BF16;

static CpuBf16 best_bf16(void)
{
    CpuBf16 kind = best_kind;
    if (kind == N_CPU_BF16)
        best_kind = kind = detect_bf16();
    return kind;
}

CpuBf16 cpu_bf16(void)
{
    CpuBf16 kind = forced_kind;
    if (cpu_isa() != CPU_AVX512)
        return CPU_BF16_NONE;
    return kind == N_CPU_BF16 ? best_bf16() : kind;
}

bool cpu_has_bf16_dot(void)
{
    return cpu_bf16() >= CPU_BF16_DOTS;
}

bool cpu_bf16_force(CpuBf16 kind)
{
    if (kind != N_CPU_BF16 && kind > CPU_BF16_NONE && best_bf16() == CPU_BF16_NONE)
        return false;
    forced_kind = kind;
    return true;
}

bool cpu_isa_force(CpuIsa isa)
{
    if (isa != N_CPU_ISAS && isa > best_isa())
        return false;
    forced = isa;
    return true;
}

const char *cpu_isa_name(CpuIsa isa)
{
    static const char *const NAMES[N_CPU_ISAS] = {"plain", "avx2", "avx512"};
    CHECK((unsigned)isa < N_CPU_ISAS);
    return NAMES[isa];
}
