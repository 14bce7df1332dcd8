/* test_cpufeat.c - what the compiler's own detection says, and forcing. */
#include "kernels/cpufeat.h"
#include "tests/check.h"

TEST(cpu_isa_agrees_with_the_compiler)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    T_OK(cpu_isa() == (avx512 ? CPU_AVX512 : avx2 ? CPU_AVX2 : CPU_PLAIN));
#else
    T_OK(cpu_isa() == CPU_PLAIN);
#endif
}

TEST(cpu_bf16_dot_agrees_with_the_compiler)
{
#if defined(__x86_64__)
    T_OK(cpu_has_bf16_dot() ==
         (cpu_isa() == CPU_AVX512 && __builtin_cpu_supports("avx512bf16")));
    T_OK(cpu_isa_force(CPU_PLAIN) && !cpu_has_bf16_dot());
    cpu_isa_force(N_CPU_ISAS);
#else
    T_OK(!cpu_has_bf16_dot());
#endif
}

TEST(cpu_bf16_can_be_forced)
{
    CpuBf16 best = cpu_bf16();
    bool    dots = cpu_has_bf16_dot();
    T_OK(cpu_bf16_force(CPU_BF16_NONE) && cpu_bf16() == CPU_BF16_NONE && !cpu_has_bf16_dot());
    T_OK(cpu_bf16_force(CPU_BF16_DOTS) == dots && cpu_has_bf16_dot() == dots);
    T_OK(cpu_bf16_force(CPU_BF16_TILES) == dots && cpu_has_bf16_dot() == dots);
    T_OK(cpu_bf16_force(N_CPU_BF16) && cpu_bf16() == best);
    T_OK(best != CPU_BF16_TILES || dots);
}

TEST(cpu_isa_can_be_forced_down_only)
{
    CpuIsa best = cpu_isa();
    for (int isa = 0; isa < N_CPU_ISAS; isa++) {
        bool can = isa <= (int)best;
        T_OK(cpu_isa_force((CpuIsa)isa) == can);
        T_OK(cpu_isa() == (can ? (CpuIsa)isa : best));
        T_OK(cpu_isa_force(N_CPU_ISAS) && cpu_isa() == best);
    }
}

TEST(cpu_isa_names)
{
    T_TEXT(cpu_isa_name(CPU_PLAIN), "plain");
    T_TEXT(cpu_isa_name(CPU_AVX2), "avx2");
    T_TEXT(cpu_isa_name(CPU_AVX512), "avx512");
}
