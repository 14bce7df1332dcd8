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

static bool detect_bf16(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16);
}
#else
static CpuIsa detect(void)
{
    return CPU_PLAIN;
}

static bool detect_bf16(void)
{
    return false;
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

bool cpu_has_bf16_dot(void)
{
    static _Atomic int has;  // 0: not asked yet, 1: no, 2: yes
    if (has == 0)
        has = detect_bf16() ? 2 : 1;
    return has == 2 && cpu_isa() == CPU_AVX512;
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
