/* status.h - how a function says that it failed.
 * A Status is a code; the sentence that explains it is kept per thread
 * until the next failure on that thread. */
#ifndef DQ_STATUS_H
#define DQ_STATUS_H

#define MUST_USE __attribute__((warn_unused_result))

typedef enum {
    OK = 0,
    ERR_USAGE,        // the command line is wrong                    exit 2
    ERR_IO,           // a file cannot be opened, read or written     exit 1
    ERR_FORMAT,       // a file breaks its own format                 exit 1
    ERR_SHAPE,        // sizes that do not fit together               exit 1
    ERR_RANGE,        // a value outside what is allowed, NaN, Inf    exit 1
    ERR_UNSUPPORTED,  // well formed, but not something we know       exit 1
    ERR_MEMORY,       // no memory                                    exit 1
    ERR_DEVICE        // no such device, or it failed                 exit 3
} Status;

/* Records the sentence and returns code. Texts past 1023 bytes are cut. */
Status status_make(Status code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The sentence of the last failure on this thread, "" if there was none. */
const char *status_text(void);

/* Ends the program: a CHECK failed, which is our own mistake. */
__attribute__((noreturn)) void status_panic(const char *file, int line, const char *what);

#define STATUS(code, ...) status_make((code), __VA_ARGS__)
/* Returns the code itself, so that the compiler sees that it is not OK. */
#define FAIL(code, ...)                        \
    do {                                       \
        status_make((code), __VA_ARGS__);      \
        return (code);                         \
    } while (0)
#define TRY(call)                              \
    do {                                       \
        Status try_status_ = (call);           \
        if (try_status_ != OK)                 \
            return try_status_;                \
    } while (0)
/* Needs `Status s` and the label `out:` in the function. */
#define GUARD(call)                            \
    do {                                       \
        s = (call);                            \
        if (s != OK)                           \
            goto out;                          \
    } while (0)
/* For our own mistakes only, never for input. Stays on in release builds. */
#define CHECK(x) ((x) ? (void)0 : status_panic(__FILE__, __LINE__, #x))

#endif
