/* settings.c - reads a command line by the tables of verbs and options. */
#include "reports/cli/settings_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/textbuf.h"

static const VerbRow *verb_row(Verb v)
{
    for (int i = 0; i < settings_n_verbs; i++)
        if (settings_verbs[i].verb == v)
            return &settings_verbs[i];
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
    for (bool more = true; more;) {
        size_t      n = strcspn(value, ",");
        const char *part = arena_text(a, value, n);
        if (!part)
            FAIL(ERR_MEMORY, "out of memory for --%s", name);
        if (n == 0)
            FAIL(ERR_USAGE, "--%s: an empty item in the list", name);
        TRY(add_to_list(list, name, part));
        more = value[n] == ',';
        value += n + more;
    }
    return OK;
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

static Status parse_real(double *out, const OptionRow *o, const char *value)
{
    char  *end;
    double x = strtod(value, &end);
    if (end == value || *end || !(x > (double)o->min && x < (double)o->max))
        FAIL(ERR_USAGE, "--%s: \"%s\" is not a number between %lld and %lld", o->name, value,
             (long long)o->min, (long long)o->max);
    *out = x;
    return OK;
}

/* "700M" and "4.5G" are powers of 1000, as disks count; no letter: bytes. */
static Status parse_size(double *out, const OptionRow *o, const char *value)
{
    char  *end;
    double x = strtod(value, &end), unit = 1;
    if (*end && strchr("kKMGT", *end))
        unit = *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : *end == 'T' ? 1e12 : 1e3;
    if (end == value || (*end && (unit == 1 || end[1])) || !(x > 0 && x * unit < 1e18))
        FAIL(ERR_USAGE, "--%s: \"%s\" is not a size as 700M or 4.5G", o->name, value);
    *out = x * unit;
    return OK;
}

/* Is value the choice [n], or, where that ends in N, as it but for a number there? */
static bool is_choice(const char *choice, size_t n, const char *value)
{
    bool   counted = n > 1 && choice[n - 1] == 'N';
    size_t same = n - counted, rest = strlen(value) - strnlen(value, same);
    if (strncmp(choice, value, same) != 0)
        return false;
    return counted ? rest > 0 && rest < 10 && strspn(value + same, "0123456789") == rest
                   : rest == 0;
}

static Status parse_choice(const char **out, const OptionRow *o, const char *value)
{
    for (const char *c = o->argument; *c;) {
        size_t length = strcspn(c, "|");
        if (is_choice(c, length, value)) {
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
    if (value && !*value && o->offset != offsetof(Settings, prompt))
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
    case OPT_REAL:
        return parse_real(field, o, value);
    case OPT_SIZE:
        return parse_size(field, o, value);
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
    for (int i = 0; i < settings_n_options; i++) {
        const OptionRow *o = &settings_options[i];
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
    for (int i = 0; i < settings_n_verbs; i++)
        if (strcmp(word, settings_verbs[i].name) == 0) {
            s->verb = settings_verbs[i].verb;
            return OK;
        }
    FAIL(ERR_USAGE, "\"%s\" is not a verb of diffquant; see diffquant --help", word);
}

static Status check_inputs(const Settings *s)
{
    const VerbRow *v = verb_row(s->verb);
    char           range[32] = "one";
    if (s->inputs.n >= v->min_inputs && s->inputs.n <= v->max_inputs)
        return OK;
    if (v->max_inputs > 1)
        snprintf(range, sizeof range, "%d to %d:", v->min_inputs, v->max_inputs);
    FAIL(ERR_USAGE, "%s takes %s %s, %d came; see diffquant %s --help", v->name, range,
         v->inputs, s->inputs.n, v->name);
}

static bool was_given(const Settings *s, const char *name)
{
    for (int i = 0; i < settings_n_options; i++) {
        const OptionRow *o = &settings_options[i];
        const void      *field = (const char *)s + o->offset;
        if (strcmp(o->name, name) == 0)
            return o->kind == OPT_INT ? *(const int64_t *)field != 0
                                      : *(const char *const *)field != NULL;
    }
    return false;
}

static Status check_needs(const Settings *s)
{
    for (int i = 0; i < settings_n_needs; i++) {
        const NeedRow *n = &settings_needs[i];
        if (was_given(s, n->name) && !was_given(s, n->needs))
            FAIL(ERR_USAGE, "--%s says nothing without --%s", n->name, n->needs);
    }
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
    if (s->help)
        return OK;
    TRY(check_inputs(s));
    return check_needs(s);
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
    for (int i = 0; i < settings_n_verbs; i++) {
        printf("  %-9s %-15s ", settings_verbs[i].name, settings_verbs[i].inputs);
        print_about(settings_verbs[i].about, 28);
    }
    printf("\nMODEL is a Hugging Face folder (config.json, safetensors, tokenizer.json), a .gguf "
           "file,\nor unilm@FOLDER: weights of microsoft/unilm without a config.json.\n"
           "Results go to stdout, progress and messages to stderr.\n"
           "Exit status: 0 done, 1 bad input, 2 wrong usage, 3 no such device, or it failed.\n");
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
    for (int i = 0; i < settings_n_options; i++)
        if (applies(&settings_options[i], s->verb))
            help_option(&settings_options[i]);
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
        if (strcmp(argv[i], "--resume") == 0)
            continue;
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
