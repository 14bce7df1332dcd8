/* check.h - a test program: TEST functions that register themselves.
 * main() runs them all (or those whose name contains argv[1]) and ends with
 * "N passed, M failed"; exit 77 when T_SKIP was called and nothing failed. */
#ifndef DQ_CHECK_H
#define DQ_CHECK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct CheckCase {
    const char       *name;
    void            (*run)(void);
    struct CheckCase *next;
} CheckCase;

void check_register(CheckCase *c);
void check_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void check_skip(const char *why);
/* Path of a file beside the tests: check_path("golden/x.json"). Static buffers,
 * eight in turn. The root is DQ_TESTS, set by CMake. */
const char *check_path(const char *relative);
/* A fresh empty folder for this test program's files; removed at exit. */
const char *check_tmp(void);
/* Deterministic pseudo-random numbers: uniform in [-1,1), and normal. */
float check_uniform(uint64_t *state);
float check_normal(uint64_t *state);

#define TEST(name)                                                       \
    static void test_##name(void);                                       \
    __attribute__((constructor)) static void register_##name(void)       \
    {                                                                    \
        static CheckCase c = {#name, test_##name, 0};                    \
        check_register(&c);                                              \
    }                                                                    \
    static void test_##name(void)

/* Each ends the test function on failure. */
#define T_OK(x)                                                          \
    do {                                                                 \
        if (!(x)) {                                                      \
            check_fail(__FILE__, __LINE__, "%s", #x);                    \
            return;                                                      \
        }                                                                \
    } while (0)
/* |a - b| <= tol, false for NaN */
#define T_NEAR(a, b, tol)                                                \
    do {                                                                 \
        double a_ = (a), b_ = (b), e_ = a_ > b_ ? a_ - b_ : b_ - a_;     \
        if (!(e_ <= (tol))) {                                            \
            check_fail(__FILE__, __LINE__, "%s = %.17g, %s = %.17g",     \
                       #a, a_, #b, b_);                                  \
            return;                                                      \
        }                                                                \
    } while (0)
#define T_TEXT(a, b)                                                     \
    do {                                                                 \
        const char *a_ = (a), *b_ = (b);                                 \
        if (__builtin_strcmp(a_, b_) != 0) {                             \
            check_fail(__FILE__, __LINE__, "\"%s\" is not \"%s\"", a_, b_); \
            return;                                                      \
        }                                                                \
    } while (0)
/* The call succeeds; prints its sentence if not (include status.h). */
#define T_STATUS_OK(call)                                                \
    do {                                                                 \
        if ((call) != OK) {                                              \
            check_fail(__FILE__, __LINE__, "%s: %s", #call, status_text()); \
            return;                                                      \
        }                                                                \
    } while (0)
/* The call fails with that code and a sentence that contains text. */
#define T_FAILS(call, code, text)                                        \
    do {                                                                 \
        Status c_ = (call);                                              \
        if (c_ != (code) || !__builtin_strstr(status_text(), (text))) {  \
            check_fail(__FILE__, __LINE__, "%s gave %d \"%s\", wanted %d " \
                       "with \"%s\"", #call, (int)c_, status_text(),     \
                       (int)(code), (text));                             \
            return;                                                      \
        }                                                                \
    } while (0)
#define T_SKIP(why)                                                      \
    do {                                                                 \
        check_skip(why);                                                 \
        return;                                                          \
    } while (0)

#endif
