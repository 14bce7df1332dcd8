/* settings.c - table of verbs, table of options, and the reader of both. */
#include "reports/cli/settings.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/textbuf.h"

typedef struct {
    Verb        verb;
    const char *name, *inputs;
    int         min_inputs, max_inputs;
    const char *about, *example;
} VerbRow;

static const VerbRow VERBS[] = {
    {VERB_INSPECT, "inspect", "MODEL", 1, 1,
     "Show what a checkpoint is: architecture, heads and their pairing, lambda of each "
     "layer,\ntensors, sizes, what would be quantized, and the memory an analysis needs.",
     "diffquant inspect tests/pair/diff"},
    {VERB_ANALYZE, "analyze", "MODEL", 1, 1,
     "Run the model over a text and record its attention logits and hidden states; print "
     "the\noutlier table and write all statistics to an HDF5 file.",
     "diffquant analyze tests/pair/diff --text tests/pair/heldout.txt -o diff.h5"},
    {VERB_COMPARE, "compare", "MODEL MODEL...", 2, 8,
     "The whole study on two or more models: outliers, accuracy and perplexity over the "
     "bits of\nthe attention logits, pictures, one HDF5 file and one page to read.",
     "diffquant compare tests/pair/diff tests/pair/base --text tests/pair/heldout.txt \\\n"
     "      --task tests/pair/retrieval.jsonl -o out"},
    {VERB_REPORT, "report", "S.h5...", 1, 8,
     "Draw the pictures and write the page again from stored statistics, without the "
     "models.",
     "diffquant report diff.h5 base.h5 -o page"},
    {VERB_GENERATE, "generate", "MODEL", 1, 1,
     "Continue a prompt with the likeliest tokens, to see that a checkpoint speaks.",
     "diffquant generate tests/pair/diff --prompt \"The command\""},
};

typedef enum { OPT_FLAG, OPT_TEXT, OPT_INT, OPT_CHOICE, OPT_LIST, OPT_SPLIT } OptionKind;

typedef struct {
    const char *name;        // without the dashes
    char        letter;      // 0: none
    int         verbs;       // 0: everywhere
    OptionKind  kind;        // LIST repeats, SPLIT is one text cut at commas
    size_t      offset;
    const char *argument;    // as help shows it; CHOICE: the choices, cut at '|'
    int64_t     min, max;
    const char *about;
} OptionRow;

#define AT(field) offsetof(Settings, field)
enum {
    RUN = VERB_ANALYZE | VERB_COMPARE | VERB_GENERATE,
    MEASURE = VERB_ANALYZE | VERB_COMPARE,
    WRITE = VERB_ANALYZE | VERB_COMPARE | VERB_REPORT
};

static const OptionRow OPTIONS[] = {
    {"text", 0, MEASURE, OPT_LIST, AT(texts), "FILE", 0, 0,
     "UTF-8 text to run over; may be given several times (default: the example text,\n"
     "software documentation)"},
    {"tokens", 0, VERB_ANALYZE, OPT_TEXT, AT(tokens), "FILE", 0, 0,
     "token ids to run over, in decimal, instead of text"},
    {"task", 0, VERB_COMPARE, OPT_LIST, AT(tasks), "FILE", 0, 0,
     "questions to score, JSON lines with context and answer; may be given several times"},
    {"out", 'o', WRITE, OPT_TEXT, AT(out), "PATH", 0, 0,
     "where results go: a file for analyze, a folder for compare and report"},
    {"context", 0, MEASURE | VERB_INSPECT, OPT_INT, AT(context), "N", 2, INT32_MAX,
     "tokens in a window (default 512, or what the model allows if that is less;\n"
     "more than it allows is run with a warning)"},
    {"max-tokens", 0, MEASURE, OPT_INT, AT(max_tokens), "N", 2, INT32_MAX,
     "stop after so many tokens of text"},
    {"bos", 0, MEASURE, OPT_CHOICE, AT(bos), "auto|none", 0, 0,
     "begin each window with the BOS token where the tokenizer does (default), or not"},
    {"logit-bits", 0, MEASURE, OPT_SPLIT, AT(logit_bits), "LIST", 0, 0,
     "bits of the attention logits, of 16,8,6,4; 16 leaves them as they are; analyze\n"
     "takes one of them "
     "(default 16; compare: all four)"},
    {"logit-scale", 0, MEASURE, OPT_CHOICE, AT(logit_scale), "tensor|head|row", 0, 0,
     "what shares one scale: all logits of a layer (default), a head's map, a row"},
    {"weights", 0, MEASURE, OPT_SPLIT, AT(weights), "LIST", 0, 0,
     "weights rounded to nearest in memory: fp, w8, w6, w4, w4:g64, w4:g128:asym ...;\n"
     "analyze takes one of them (default fp)"},
    {"maps-layer", 0, MEASURE, OPT_INT, AT(maps_layer), "L", 0, INT32_MAX,
     "layer whose whole maps are kept for one passage (default: that of the largest logit)"},
    {"color", 0, VERB_COMPARE | VERB_REPORT, OPT_CHOICE, AT(color), "auto|linear|log", 0, 0,
     "how the heatmaps' colours follow magnitude (default: as suits each picture)"},
    {"no-record", 0, VERB_ANALYZE, OPT_FLAG, AT(no_record), NULL, 0, 0,
     "run without recording, to time it"},
    {"prompt", 0, VERB_GENERATE, OPT_TEXT, AT(prompt), "TEXT", 0, 0, "text to continue"},
    {"n-tokens", 'n', VERB_GENERATE, OPT_INT, AT(n_tokens), "N", 1, INT32_MAX,
     "tokens to add (default 64)"},
    {"device", 0, RUN, OPT_CHOICE, AT(device), "auto|cpu|cuda", 0, 0,
     "where to compute (default auto: a GPU if there is one)"},
    {"dtype", 0, RUN, OPT_CHOICE, AT(dtype), "f32|bf16", 0, 0,
     "numbers in products (default f32, exact; bf16 is faster where the CPU has it)"},
    {"threads", 0, RUN, OPT_INT, AT(threads), "N", 1, 4096,
     "threads to use (default: all cores)"},
    {"json", 0, 0, OPT_FLAG, AT(json), NULL, 0, 0, "print results as JSON"},
    {"quiet", 'q', 0, OPT_FLAG, AT(quiet), NULL, 0, 0, "no progress, no messages"},
    {"help", 'h', 0, OPT_FLAG, AT(help), NULL, 0, 0, "show this help"},
};
enum { N_VERBS = sizeof VERBS / sizeof VERBS[0], N_OPTIONS = sizeof OPTIONS / sizeof *OPTIONS };

static const VerbRow *verb_row(Verb v)
{
    for (int i = 0; i < N_VERBS; i++)
        if (VERBS[i].verb == v)
            return &VERBS[i];
    return NULL;
}

static bool applies(const OptionRow *o, Verb v)
{
    return o->verbs == 0 || (o->verbs & (int)v);
}

/* --- values --- */

static Status add_to_list(TextList *list, const char *name, const char *value)
{
    if (list->n == MAX_LIST)
        FAIL(ERR_USAGE, "--%s: more than %d", name, MAX_LIST);
    list->at[list->n++] = value;
    return OK;
}

static Status add_parts(TextList *list, Arena *a, const char *name, const char *value)
{
    while (*value) {
        size_t      n = strcspn(value, ",");
        const char *part = arena_text(a, value, n);
        if (!part)
            FAIL(ERR_MEMORY, "out of memory for --%s", name);
        if (n == 0)
            FAIL(ERR_USAGE, "--%s: an empty item in the list", name);
        TRY(add_to_list(list, name, part));
        value += n;
        value += *value == ',';
    }
    return list->n ? OK : STATUS(ERR_USAGE, "--%s: an empty list", name);
}

static Status parse_int(int64_t *out, const OptionRow *o, const char *value)
{
    char *end;
    errno = 0;
    long long x = strtoll(value, &end, 10);
    if (errno || end == value || *end || x < o->min || x > o->max)
        FAIL(ERR_USAGE, "--%s: \"%s\" is not a whole number from %lld to %lld", o->name,
             value, (long long)o->min, (long long)o->max);
    *out = x;
    return OK;
}

static Status parse_choice(const char **out, const OptionRow *o, const char *value)
{
    size_t n = strlen(value);
    for (const char *c = o->argument; *c;) {
        size_t length = strcspn(c, "|");
        if (length == n && memcmp(c, value, n) == 0) {
            *out = value;
            return OK;
        }
        c += length;
        c += *c == '|';
    }
    FAIL(ERR_USAGE, "--%s: \"%s\" is none of %s", o->name, value, o->argument);
}

static Status set_option(Settings *s, Arena *a, const OptionRow *o, const char *value)
{
    void *field = (char *)s + o->offset;
    if (value && !*value && o->offset != AT(prompt))
        FAIL(ERR_USAGE, "--%s: an empty %s", o->name, o->argument);
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)field = true;
        return OK;
    case OPT_TEXT:
        *(const char **)field = value;
        return OK;
    case OPT_INT:
        return parse_int(field, o, value);
    case OPT_CHOICE:
        return parse_choice(field, o, value);
    case OPT_LIST:
        return add_to_list(field, o->name, value);
    case OPT_SPLIT:
        return add_parts(field, a, o->name, value);
    }
    FAIL(ERR_USAGE, "--%s is of an unknown kind", o->name);
}

/* --- words --- */

/* The row of the option that word names: "--name", "--name=value" or "-x". */
static const OptionRow *find_option(const char *word)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionRow *o = &OPTIONS[i];
        size_t           n = strlen(o->name);
        if (word[1] != '-' && o->letter && word[1] == o->letter && !word[2])
            return o;
        if (word[1] == '-' && strncmp(word + 2, o->name, n) == 0 &&
            (word[2 + n] == 0 || word[2 + n] == '='))
            return o;
    }
    return NULL;
}

static Status parse_option(Settings *s, Arena *a, int argc, char **argv, int *i)
{
    const char      *word = argv[*i], *value = strchr(word, '=');
    const OptionRow *o = find_option(word);
    const VerbRow   *verb = verb_row(s->verb);
    if (!o)
        FAIL(ERR_USAGE, "unknown option %s; see diffquant %s --help", word, verb->name);
    if (!applies(o, s->verb))
        FAIL(ERR_USAGE, "--%s does not go with %s; see diffquant %s --help", o->name,
             verb->name, verb->name);
    if (word[1] != '-')
        value = NULL;
    if (o->kind == OPT_FLAG) {
        if (value)
            FAIL(ERR_USAGE, "--%s takes no value", o->name);
        return set_option(s, a, o, NULL);
    }
    if (value)
        return set_option(s, a, o, value + 1);
    if (*i + 1 >= argc)
        FAIL(ERR_USAGE, "--%s needs %s after it", o->name, o->argument);
    return set_option(s, a, o, argv[++*i]);
}

static Status parse_verb(Settings *s, const char *word)
{
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(word, VERBS[i].name) == 0) {
            s->verb = VERBS[i].verb;
            return OK;
        }
    FAIL(ERR_USAGE, "\"%s\" is not a verb of diffquant; see diffquant --help", word);
}

static Status check_inputs(const Settings *s)
{
    const VerbRow *v = verb_row(s->verb);
    if (s->inputs.n < v->min_inputs || s->inputs.n > v->max_inputs)
        FAIL(ERR_USAGE, "%s takes %s%s, %d came; see diffquant %s --help", v->name,
             v->min_inputs > 1 ? "at least two: " : v->max_inputs == 1 ? "one " : "",
             v->inputs, s->inputs.n, v->name);
    return OK;
}

Status settings_parse(Settings *s, Arena *a, int argc, char **argv)
{
    *s = (Settings){.maps_layer = -1};
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        s->help = true;
        return argc > 2 ? parse_verb(s, argv[2]) : OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        s->version = true;
        return OK;
    }
    TRY(parse_verb(s, argv[1]));
    bool only_inputs = false;   // after "--"
    for (int i = 2; i < argc; i++) {
        if (!only_inputs && strcmp(argv[i], "--") == 0)
            only_inputs = true;
        else if (!only_inputs && argv[i][0] == '-' && argv[i][1])
            TRY(parse_option(s, a, argc, argv, &i));
        else if (!*argv[i])
            FAIL(ERR_USAGE, "%s: an empty argument, expected %s", argv[1],
                 verb_row(s->verb)->inputs);
        else
            TRY(add_to_list(&s->inputs, verb_row(s->verb)->inputs, argv[i]));
    }
    return s->help ? OK : check_inputs(s);
}

/* --- help --- */

static void print_about(const char *about, int indent)
{
    for (const char *c = about; *c; c++) {
        putchar(*c);
        if (*c == '\n')
            printf("%*s", indent, "");
    }
    putchar('\n');
}

static void help_program(void)
{
    printf("diffquant " DQ_VERSION ": activation outliers and low-bit accuracy of DIFF "
           "Transformers\nand of the transformers they are compared with.\n\n"
           "Usage: diffquant VERB ...      (diffquant VERB --help tells more)\n\n");
    for (int i = 0; i < N_VERBS; i++) {
        printf("  %-9s %-15s ", VERBS[i].name, VERBS[i].inputs);
        print_about(VERBS[i].about, 28);
    }
    printf("\nMODEL is a Hugging Face folder: config.json, safetensors, tokenizer.json.\n"
           "Results go to stdout, progress and messages to stderr.\n"
           "Exit status: 0 done, 1 bad input, 2 wrong usage, 3 no such device.\n");
}

static void help_option(const OptionRow *o)
{
    char left[64], dash[8] = "";
    if (o->letter)
        snprintf(dash, sizeof dash, "-%c, ", o->letter);
    snprintf(left, sizeof left, "%s--%s %s", dash, o->name, o->argument ? o->argument : "");
    printf("  %-31s ", left);
    print_about(o->about, 34);
}

void settings_help(const Settings *s)
{
    const VerbRow *v = verb_row(s->verb);
    if (!v) {
        help_program();
        return;
    }
    printf("Usage: diffquant %s %s [option...]\n\n%s\n\n", v->name, v->inputs, v->about);
    for (int i = 0; i < N_OPTIONS; i++)
        if (applies(&OPTIONS[i], s->verb))
            help_option(&OPTIONS[i]);
    printf("\nExample:\n  %s\n", v->example);
}

/* --- the command line, for the files --- */

static bool plain_word(const char *word)
{
    static const char SAFE[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_-+=./,:@%";
    return *word && word[strspn(word, SAFE)] == 0;
}

Status settings_command(const char **out, Arena *a, int argc, char **argv)
{
    TextBuf b;
    textbuf_init(&b, a);
    textbuf_add(&b, "diffquant");
    for (int i = 1; i < argc; i++) {
        textbuf_add(&b, " ");
        if (plain_word(argv[i])) {
            textbuf_add(&b, argv[i]);
            continue;
        }
        textbuf_add(&b, "'");
        for (const char *c = argv[i]; *c; c++)
            textbuf_printf(&b, *c == '\'' ? "'\\%c'" : "%c", *c);
        textbuf_add(&b, "'");
    }
    *out = b.at;
    return textbuf_status(&b);
}
