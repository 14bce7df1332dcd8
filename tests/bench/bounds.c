/* bounds.c - what this machine can do at most, for the figures of bench.py to be measured
 * against: bytes copied and read from memory, arithmetic of registers alone. One line of JSON.
 *   bounds [threads]
 * Each figure is the best of several runs: a bound is what was reached, not what was usual. */
#include <cpuid.h>
#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 7, MOVED = 256 << 20, LOOPS = 20 * 1000 * 1000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- memory --- */

typedef struct {
    char  *from, *to;
    size_t bytes;     // of each thread
    int    n_threads;
} Memory;

static double copy_rate(const Memory *m)
{
    double begin = now();
#pragma omp parallel num_threads(m->n_threads)
    {
        size_t at = (size_t)omp_get_thread_num() * m->bytes;
        memcpy(m->to + at, m->from + at, m->bytes);
    }
    return (double)m->bytes * m->n_threads / (now() - begin);
}

__attribute__((target("avx2"))) static uint64_t read_all(const char *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 128) {
        a = _mm256_xor_si256(a, _mm256_load_si256((const __m256i *)(p + i)));
        b = _mm256_xor_si256(b, _mm256_load_si256((const __m256i *)(p + i + 32)));
        c = _mm256_xor_si256(c, _mm256_load_si256((const __m256i *)(p + i + 64)));
        d = _mm256_xor_si256(d, _mm256_load_si256((const __m256i *)(p + i + 96)));
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    return (uint64_t)_mm256_extract_epi64(a, 0);
}

static double read_rate(const Memory *m)
{
    uint64_t all = 0;
    double   begin = now();
#pragma omp parallel num_threads(m->n_threads) reduction(^ : all)
    all ^= read_all(m->from + (size_t)omp_get_thread_num() * m->bytes, m->bytes);
    double rate = (double)m->bytes * m->n_threads / (now() - begin);
    return all == 1 ? 0 : rate;   // the sum must not be thrown away
}

/* --- arithmetic: eight chains, so that none waits for itself --- */

#define CHAINS(instruction, acc, rest)                                   \
    for (long i = 0; i < LOOPS / 8; i++)                                 \
        __asm__ volatile(                                                \
            instruction " " rest ", " acc "0\n" instruction " " rest ", " acc "1\n" \
            instruction " " rest ", " acc "2\n" instruction " " rest ", " acc "3\n" \
            instruction " " rest ", " acc "4\n" instruction " " rest ", " acc "5\n" \
            instruction " " rest ", " acc "6\n" instruction " " rest ", " acc "7\n" \
            ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7")

static void fma_avx2(void)    { CHAINS("vfmadd231ps", "%%ymm", "%%ymm8, %%ymm9"); }
static void fma_avx512(void)  { CHAINS("vfmadd231ps", "%%zmm", "%%zmm8, %%zmm9"); }
static void dot_bf16(void)    { CHAINS("vdpbf16ps", "%%zmm", "%%zmm8, %%zmm9"); }
static void dot_int8(void)    { CHAINS("vpdpbusd", "%%zmm", "%%zmm8, %%zmm9"); }

/* Tiles 0 to 3 are sums, 4 and 5, 6 and 7 what is multiplied. The configuration is a constant:
 * gcc 12 drops stores to one that was just filled in. */
static const struct {
    uint8_t  palette, start_row, zero[14];
    uint16_t bytes[16];
    uint8_t  rows[16];
} TILES __attribute__((aligned(64))) = {
    1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

#define TILE_LOOP(instruction)                                           \
    __asm__ volatile("ldtilecfg %0" ::"m"(TILES));                       \
    for (long i = 0; i < LOOPS / 64; i++)                                \
        __asm__ volatile(instruction " %%tmm6, %%tmm4, %%tmm0\n"         \
                         instruction " %%tmm7, %%tmm4, %%tmm1\n"         \
                         instruction " %%tmm6, %%tmm5, %%tmm2\n"         \
                         instruction " %%tmm7, %%tmm5, %%tmm3\n" :::);   \
    __asm__ volatile("tilerelease")

static void tile_bf16(void) { TILE_LOOP("tdpbf16ps"); }
static void tile_int8(void) { TILE_LOOP("tdpbssd"); }

/* The system saves tiles only of processes that asked (arch_prctl's ARCH_REQ_XCOMP_PERM). */
static int has_tiles(void)
{
    unsigned a, b, c, d;
    enum { ASK = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_TILE) || !(d & AMX_BF16))
        return 0;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

static int has_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5);
}

static double operation_rate(void (*run)(void), double operations, int n_threads)
{
    double begin = now();
#pragma omp parallel num_threads(n_threads)
    run();
    return operations * n_threads / (now() - begin);
}

static void print_rate(const char *name, int there, void (*run)(void), double operations, int n)
{
    double best = 0;
    for (int i = 0; there && i < RUNS; i++) {
        double rate = operation_rate(run, operations, n);
        best = rate > best ? rate : best;
    }
    if (there)
        printf(", \"%s\": %.4g", name, best);
}

static void print_memory(const char *name, double (*rate)(const Memory *), const Memory *m)
{
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        double r = rate(m);
        best = r > best ? r : best;
    }
    printf(", \"%s\": %.4g", name, best);
}

int main(int argc, char **argv)
{
    int    n = argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
    int    wide = __builtin_cpu_supports("avx512f");
    Memory m = {.bytes = (size_t)(MOVED / n / 128 * 128), .n_threads = n};
    m.from = aligned_alloc(128, MOVED);
    m.to = aligned_alloc(128, MOVED);
    if (n < 1 || !m.from || !m.to || !__builtin_cpu_supports("avx2"))
        return 1;
    memset(m.from, 1, MOVED);
    memset(m.to, 2, MOVED);
    printf("{\"threads\": %d", n);
    print_memory("copy", copy_rate, &m);
    print_memory("read", read_rate, &m);
    print_rate("f32", 1, wide ? fma_avx512 : fma_avx2, LOOPS * (wide ? 32.0 : 16.0), n);
    print_rate("bf16", wide && has_bf16(), dot_bf16, LOOPS * 64.0, n);
    print_rate("int8", wide && __builtin_cpu_supports("avx512vnni"), dot_int8, LOOPS * 128.0, n);
    if (has_tiles()) {   // 16 x 16 x 32 and 16 x 16 x 64 multiplications and additions
        print_rate("amx_bf16", 1, tile_bf16, LOOPS / 64 * 4 * 16384.0, n);
        print_rate("amx_int8", 1, tile_int8, LOOPS / 64 * 4 * 32768.0, n);
    }
    printf("}\n");
    free(m.from);
    free(m.to);
    return 0;
}
