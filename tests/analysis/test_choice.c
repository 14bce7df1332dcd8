/* test_choice.c - lines of each task as token sequences, and who is right. */
#include "analysis/choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/tasks/choice_item.h"
#include "analysis/tasks/choice_shots.h"
#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

typedef struct {
    Arena      arena;
    Tokenizer *t;
    Choice     c;
} Loaded;

static Status load_task(Loaded *l, const char *text, ChoiceOptions o)
{
    if (o.context == 0)
        o.context = 10000;
    return choice_load(&l->c, &l->arena, l->t, tiny_file("task.jsonl", text), &o);
}

static Status load(Loaded *l, const char *text, ChoiceOptions o)
{
    *l = (Loaded){0};
    TRY(tiny_tokenizer(&l->t, &l->arena, true));
    return load_task(l, text, o);
}

/* With a tokenizer that knows all characters. */
static Status load_any(Loaded *l, const char *text, ChoiceOptions o)
{
    *l = (Loaded){0};
    TRY(tokenizer_open(&l->t, &l->arena, check_path("pair/base")));
    return load_task(l, text, o);
}

static void unload(Loaded *l)
{
    tokenizer_close(l->t);
    arena_close(&l->arena);
}

/* The text of request r: rows, a bar before what is scored, the last target. BOS, which
 * comes first, is "^". */
static const char *shown(const Loaded *l, int64_t r)
{
    static char      out[4][2048];
    static int       turn;
    const Sequences *s = &l->c.seq;
    char            *text = out[turn++ % 4], *at = text;
    bool             scored = false;
    for (int64_t t = s->start[r]; t < s->start[r + 1]; t++) {
        int32_t next = s->targets[t];
        int32_t id = s->ids[t];
        const char *piece = tokenizer_piece(l->t, id);
        if (id == TINY_BOS)
            *at++ = '^';
        else if (id == 3)
            *at++ = ' ';
        else
            at += sprintf(at, "%s", piece);
        if (!scored && next >= 0)
            *at++ = '|';
        scored = scored || next >= 0;
        if (scored && next < 0)
            return "a target is missing";
        if (scored && t + 1 < s->start[r + 1] && s->ids[t + 1] != next)
            return "a target is not the next token";
        if (t + 1 == s->start[r + 1])
            at += sprintf(at, "%s", next == 3 ? " " : tokenizer_piece(l->t, next));
    }
    *at = 0;
    return text;
}

#define ITEM(id) "{\"id\":\"" id "\",\"context\":\"one\",\"choices\":[\"a\",\"bc\"]," \
                 "\"answer\":1}\n"

TEST(a_plain_task)
{
    Loaded l;
    T_STATUS_OK(load(&l, ITEM("x") "\n" ITEM("y"), (ChoiceOptions){0}));
    T_TEXT(l.c.name, "task");
    T_OK(l.c.kind == CHOICE_GENERIC && l.c.n == 2 && l.c.n_requests == 4 && l.c.has_norm);
    T_OK(l.c.first[1] == 2 && l.c.first[2] == 4 && l.c.gold[0] == 1);
    T_TEXT(shown(&l, 0), "^one| a");
    T_TEXT(shown(&l, 1), "^one| bc");
    T_OK(l.c.requests[3].item == 1 && l.c.requests[3].choice == 1 &&
         l.c.requests[3].length == 2);
    unload(&l);
}

/* --- what each layout asks --- */

/* One item of a file: its choices as "context|continuation", its kind and answer. */
typedef struct {
    const char *line;
    ChoiceKind  kind;
    int64_t     n, gold;
    const char *asked[4];
    int64_t     length[4];
} Layout;

#define CHOICES4 "\"choices\":{\"text\":[\"a\",\"bc\",\"d\",\"\\u00e9f\"]," \
                 "\"label\":[\"A\",\"B\",\"C\",\"D\"]}"

static const Layout LAYOUTS[] = {
    {"{\"ind\":4,\"activity_label\":\" Pets\",\"ctx_a\":\"[header] Cats [title] sit  [a]\","
     "\"ctx_b\":\"THE Cat[ x\",\"endings\":[\" sits  down \",\"is [title] [b] \\u00e9\","
     "\"[ open\\n]\"],\"label\":\"1\"}", CHOICE_HELLASWAG, 3, 1,
     {"Pets: Cats. sit  The cat[ x|sits down", "Pets: Cats. sit  The cat[ x|is.  \u00e9",
      "Pets: Cats. sit  The cat[ x|[ open\n]"}, {9, 6, 8}},
    {"{\"id\":\"x\",\"question\":\"Why? \"," CHOICES4 ",\"answerKey\":\"C\"}", CHOICE_ARC, 4, 2,
     {"Question: Why? \nAnswer:|a", "Question: Why? \nAnswer:|bc", "Question: Why? \nAnswer:|d",
      "Question: Why? \nAnswer:|\u00e9f"}, {1, 2, 1, 2}},
    {"{\"question\":\"Q\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"1\",\"2\"]},"
     "\"answerKey\":\"1\"}", CHOICE_ARC, 2, 0, {"Question: Q\nAnswer:|a",
     "Question: Q\nAnswer:|b"}, {1, 1}},
    {"{\"goal\":\"Go\",\"sol1\":\"left\",\"sol2\":\" right\",\"label\":1}", CHOICE_PIQA, 2, 1,
     {"Question: Go\nAnswer:|left", "Question: Go\nAnswer:| right"}, {4, 6}},
    {"{\"qID\":\"a-1\",\"sentence\":\"So _ won _ it. \",\"option1\":\"Al\",\"option2\":"
     "\"Bo B\",\"answer\":\"2\"}", CHOICE_WINOGRANDE, 2, 1,
     {"So Al|won _ it.", "So Bo B|won _ it."},
     {5, 7}},
    {"{\"passage\":\"P.\",\"question\":\"is it\",\"idx\":3,\"label\":true}", CHOICE_BOOLQ, 2, 1,
     {"P.\nQuestion: is it?\nAnswer:|no", "P.\nQuestion: is it?\nAnswer:|yes"}, {2, 3}},
    {"{\"passage\":\"P.\",\"question\":\"is it\",\"answer\":0}", CHOICE_BOOLQ, 2, 0,
     {"P.\nQuestion: is it?\nAnswer:|no", "P.\nQuestion: is it?\nAnswer:|yes"}, {2, 3}},
    {"{\"question_stem\":\"The sun\"," CHOICES4 ",\"answerKey\":\" D\"}", CHOICE_OPENBOOKQA, 4,
     3, {"The sun|a", "The sun|bc", "The sun|d", "The sun|\u00e9f"}, {1, 2, 1, 2}},
    {"{\"context\":\"C \",\"choices\":[\"x\"],\"answer\":0}", CHOICE_GENERIC, 1, 0, {"C |x"},
     {1}},
};

static bool asks(const ChoiceItem *it, const Layout *want)
{
    bool same = it->n == want->n && it->gold == want->gold;
    for (int64_t j = 0; same && j < it->n; j++) {
        char text[256];
        snprintf(text, sizeof text, "%s|%s", it->context[j], it->continuation[j]);
        same = strcmp(text, want->asked[j]) == 0;
        if (!same)
            printf("choice %d: \"%s\"\n", (int)j, text);
    }
    return same;
}

TEST(layouts)
{
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++) {
        Arena       a = {0};
        ChoiceItem *items;
        int64_t     n;
        ChoiceKind  kind, found;
        const char *path = tiny_file("layout.jsonl", LAYOUTS[i].line);
        T_STATUS_OK(choice_kind(&kind, path));
        T_STATUS_OK(choice_items(&items, &n, &found, &a, path));
        T_OK(kind == LAYOUTS[i].kind && found == kind && n == 1);
        T_OK(asks(&items[0], &LAYOUTS[i]));
        arena_close(&a);
    }
    T_TEXT(choice_kind_name(CHOICE_OPENBOOKQA), "openbookqa");
}

TEST(lengths_and_norms)
{
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++) {
        Loaded l;
        T_STATUS_OK(load_any(&l, LAYOUTS[i].line, (ChoiceOptions){0}));
        for (int64_t j = 0; j < LAYOUTS[i].n; j++)
            T_OK(l.c.requests[j].length == LAYOUTS[i].length[j]);
        T_OK(l.c.has_norm == (LAYOUTS[i].kind != CHOICE_WINOGRANDE &&
                              LAYOUTS[i].kind != CHOICE_BOOLQ));
        unload(&l);
    }
}

/* --- tokens --- */

#define PLAIN(context, choice) \
    "{\"context\":\"" context "\",\"choices\":[\"" choice "\"],\"answer\":0}\n"

TEST(tokens_by_the_harness)
{
    static const struct {
        const char   *line;
        ChoiceOptions o;
        const char   *shows;
        bool          truncated;
    } ROWS[] = {
        {PLAIN("ab", "cd"), {0}, "^ab| cd", false},
        {PLAIN("ab", "cd"), {.no_bos = true}, "ab| cd", false},
        {PLAIN("ab  ", "cd"), {0}, "^ab|   cd", false},        // spaces move over
        {PLAIN("x4", "2"), {0}, "^x4| 2", false},
        {PLAIN("", "cd"), {0}, "^| cd", false},                // BOS stands for nothing
        {PLAIN("", "cd"), {.no_bos = true}, "^| cd", false},
        {PLAIN(" ", "cd"), {0}, "^|  cd", false},
        {PLAIN("<s>ab", "cd"), {0}, "^ab| cd", false},         // BOS is there already
        {PLAIN("abcdef", "gh"), {.context = 9}, "^abcdef| gh", false},
        {PLAIN("abcdef", "gh"), {.context = 8}, "abcdef| gh", true},
        {PLAIN("abcdef", "gh"), {.context = 3}, "f| gh", true},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Loaded l;
        T_STATUS_OK(load(&l, ROWS[i].line, ROWS[i].o));
        T_TEXT(shown(&l, 0), ROWS[i].shows);
        T_OK(l.c.requests[0].truncated == ROWS[i].truncated);
        T_OK(l.c.n_truncated == ROWS[i].truncated);
        unload(&l);
    }
}

/* --- examples --- */

#define P(text, answer) \
    "{\"context\":\"" text "\",\"choices\":[\"0\",\"1\"],\"answer\":" answer "}\n"
#define POOL P("a", "0") P("b", "1") P("c", "0") P("d", "1") P("e", "0")
#define A(text) \
    "{\"question\":\"" text "\",\"choices\":{\"text\":[\"x\"],\"label\":[\"1\"]}," \
    "\"answerKey\":\"1\"}\n"

/* What stands before the questions of a file; false on failure. */
static bool before(const char *questions, const char *pool, int64_t k, uint64_t seed,
                   int64_t n, const char *const *want)
{
    Arena         a = {0};
    ChoiceItem   *items;
    ChoiceShots   s;
    ChoiceKind    kind;
    int64_t       found;
    const char   *path = tiny_file("questions.jsonl", questions), *text = "";
    ChoiceOptions o = {.shots = k, .seed = seed};
    if (pool)
        o.shots_path = tiny_file("pool.jsonl", pool);
    bool ok = choice_items(&items, &found, &kind, &a, path) == OK &&
              choice_shots_init(&s, &a, path, items, found, kind, &o) == OK;
    for (int64_t i = 0; ok && i < n; i++) {
        ok = choice_shots_text(&text, &a, &s, &items[i]) == OK && strcmp(text, want[i]) == 0;
        if (!ok)
            printf("before %d: \"%s\"\n", (int)i, text);
    }
    arena_close(&a);
    return ok;
}

/* The drawings are those of Python's random.Random(seed).sample. */
TEST(examples_are_drawn_as_the_harness_draws)
{
    /* sample(range(5), 3): 3 0 4, 0 4 2, 0 4 1, without the question itself */
    static const char *const OWN[] = {"d 1\n\ne 0\n\n", "a 0\n\ne 0\n\n", "a 0\n\ne 0\n\n"};
    T_OK(before(POOL, NULL, 2, 1234, 3, OWN));
    /* The same from another file, with none of its lines a question. */
    static const char *const OTHER[] = {"d 1\n\na 0\n\n", "a 0\n\ne 0\n\n"};
    T_OK(before(P("x", "0") P("y", "0"), POOL, 2, 1234, 2, OTHER));
    /* Two questions of three lines: the second drawing is without them. */
    static const char *const AGAIN[] = {"b 1\n\nc 0\n\n", "c 0\n\na 0\n\n"};
    T_OK(before(P("a", "0") P("b", "1"), P("a", "0") P("a", "0") P("a", "0") P("b", "1")
                P("c", "0"), 2, 1, 2, AGAIN));
    /* ARC has a test split: sample(range(5), 2) gives 3 0, then 0 4, all of it. */
    static const char *const ARC[] = {
        "Question: d\nAnswer: x\n\nQuestion: a\nAnswer: x\n\n",
        "Question: a\nAnswer: x\n\nQuestion: e\nAnswer: x\n\n"};
    T_OK(before(A("a") A("q"), A("a") A("b") A("c") A("d") A("e"), 2, 1234, 2, ARC));
    static const char *const NONE[] = {""};
    T_OK(before(POOL, NULL, 0, 1234, 1, NONE));
}

/* All that request r reads: the space before an answer is a token of its own. */
static const char *text_of(Loaded *l, int64_t r)
{
    const Sequences *s = &l->c.seq;
    char            *text;
    int64_t          first = s->start[r];
    return tokenizer_decode(l->t, &l->arena, s->ids + first, s->start[r + 1] - first, &text) ==
                   OK ? text : "";
}

TEST(examples_come_before_the_context)
{
    Loaded        l;
    ChoiceOptions o = {.shots = 2, .seed = 1234};
    T_STATUS_OK(load_any(&l, POOL, o));
    T_TEXT(text_of(&l, 0), "d 1\n\ne 0\n\na ");
    T_TEXT(text_of(&l, 3), "a 0\n\ne 0\n\nb ");
    unload(&l);
    o.shots = 5;
    T_FAILS(load(&l, POOL, o), ERR_RANGE, "task.jsonl: 5 examples before each question are "
            "more than its 5 lines allow");
    unload(&l);
    o.shots = -1;
    T_FAILS(load(&l, POOL, o), ERR_RANGE, "-1 examples");
    unload(&l);
    o = (ChoiceOptions){.shots = 1, .shots_path = tiny_file("arc.jsonl", A("a") A("b"))};
    T_FAILS(load(&l, POOL, o), ERR_FORMAT, "arc.jsonl: examples of arc, expected those of "
            "generic");
    unload(&l);
    o.shots_path = tiny_file("few.jsonl", P("a", "0") P("a", "0"));
    T_FAILS(load_any(&l, POOL, o), ERR_RANGE, "few.jsonl: 1 examples before each question "
            "are more than the 0 lines that differ");
    unload(&l);
    o.shots_path = "/nowhere/x.jsonl";
    T_FAILS(load(&l, POOL, o), ERR_IO, "/nowhere/x.jsonl");
    unload(&l);
}

/* --- bad input --- */

#define HS(label, endings) "{\"activity_label\":\"a\",\"ctx_a\":\"b\",\"ctx_b\":\"c\"," \
                           "\"endings\":" endings ",\"label\":" label "}"
#define ARC_(choices, key) "{\"question\":\"q\",\"choices\":" choices ",\"answerKey\":" key "}"
#define AB "{\"text\":[\"a\",\"b\"],\"label\":[\"A\",\"B\"]}"

TEST(bad_lines_are_named)
{
    static const struct {
        const char *text;
        Status      code;
        const char *says;
    } ROWS[] = {
        {"", ERR_RANGE, "task.jsonl: holds no items"},
        {" \n\n", ERR_RANGE, "holds no items"},
        {"{\"context\":", ERR_FORMAT, "task.jsonl:1"},
        {ITEM("a") "\n{\"id\" 3}", ERR_FORMAT, "task.jsonl:3"},
        {ITEM("a") "[1]", ERR_FORMAT, ":2: expected an object, got a list"},
        {ITEM("a") "\n{}", ERR_FORMAT, ":3: key \"context\" is missing"},
        {"{\"text\":\"a\"}", ERR_FORMAT, ":1: the keys are those of no task: \"text\"; a"},
        {"{}", ERR_FORMAT, "of no task: none; a plain line"},
        {"{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,"
         "\"an endless key, cut short\":1,\"9\":1}", ERR_FORMAT,
         "\"7\", \"an endless key, \"...; a"},
        {ITEM("a") ITEM("b") ITEM("a"), ERR_FORMAT, ":3: id \"a\" was used in line 1"},
        {"{\"id\":7,\"context\":\"a\",\"choices\":[\"b\"],\"answer\":0}\n"
         "{\"id\":7,\"context\":\"a\",\"choices\":[\"b\"],\"answer\":0}", ERR_FORMAT,
         ":2: id \"7\" was used in line 1"},
        {"{\"id\":[],\"context\":\"a\",\"choices\":[\"b\"],\"answer\":0}", ERR_FORMAT,
         "\"id\" is a list"},
        {"{\"context\":1,\"choices\":[\"b\"],\"answer\":0}", ERR_FORMAT,
         "\"context\" is a number, expected a text"},
        {"{\"context\":\"a\",\"choices\":\"b\",\"answer\":0}", ERR_FORMAT,
         "\"choices\" is a text, expected a list of texts"},
        {"{\"context\":\"a\",\"choices\":[\"b\",1],\"answer\":0}", ERR_FORMAT,
         "\"choices\" has a number among its items"},
        {"{\"context\":\"a\",\"choices\":[],\"answer\":0}", ERR_RANGE,
         ":1: \"choices\" is an empty list"},
        {HS("0", "[]"), ERR_RANGE, "\"endings\" is an empty list"},
        {"{\"context\":\"a\",\"choices\":[\"b\"],\"answer\":1}", ERR_RANGE,
         ":1: \"answer\" is 1, expected 0 to 0"},
        {"{\"context\":\"a\",\"choices\":[\"b\"],\"answer\":-1}", ERR_RANGE,
         "\"answer\" is -1"},
        {"{\"context\":\"a\",\"choices\":[\"b\"],\"answer\":0.5}", ERR_FORMAT,
         "\"answer\" is a fraction, expected a whole number"},
        {"{\"context\":\"a\",\"choices\":[\"b\"],\"answer\":-1e30}", ERR_FORMAT,
         "\"answer\" is too large a number"},
        {"{\"id\":1.5,\"context\":\"a\",\"choices\":[\"b\"],\"answer\":0}", ERR_FORMAT,
         "\"id\" is a fraction, expected a text or a whole number"},
        {"{\"context\": 1]", ERR_FORMAT, "task.jsonl:1: column "},
        {"{\"context\":\"a\",\"choices\":[\"b\"],\"answer\":\"B\"}", ERR_FORMAT,
         "\"answer\" is the text \"B\", expected a whole number"},
        {"{\"context\":\"a\",\"choices\":[\"b\",\"\"],\"answer\":0}", ERR_RANGE,
         ":1: choice 1 is empty"},
        {HS("\"\"", "[\"a\"]"), ERR_FORMAT, "\"label\" is the text \"\""},
        {HS("null", "[\"a\"]"), ERR_FORMAT, "\"label\" is null"},
        {HS("\"4\"", "[\"a\",\"b\",\"c\",\"d\"]"), ERR_RANGE,
         "\"label\" is 4, expected 0 to 3"},
        {HS("0", "[\"a\",\" [b] \"]"), ERR_RANGE, "choice 1 is empty"},
        {ARC_("[\"a\"]", "\"A\""), ERR_FORMAT, "\"choices\" is a list, expected an object"},
        {ARC_("{\"text\":[\"a\"]}", "\"A\""), ERR_FORMAT, "key \"label\" is missing"},
        {ARC_("{\"text\":[\"a\"],\"label\":[]}", "\"A\""), ERR_RANGE,
         "\"label\" is an empty list"},
        {ARC_("{\"text\":[\"a\"],\"label\":[\"A\",\"B\"]}", "\"A\""), ERR_FORMAT,
         "1 texts and 2 labels"},
        {ARC_("{\"text\":[\"a\",\"b\"],\"label\":[\"A\",\"A\"]}", "\"A\""), ERR_FORMAT,
         "\"answerKey\" is \"A\", which 2 labels are"},
        {ARC_(AB, "\"C\""), ERR_RANGE,
         "\"answerKey\" is \"C\", which is none of the 2 labels"},
        {ARC_(AB, "\" A\""), ERR_RANGE, "\"answerKey\" is \" A\""},
        {ARC_(AB, "1"), ERR_FORMAT, "\"answerKey\" is a number"},
        {"{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\"}", ERR_FORMAT,
         "key \"label\" is missing"},
        {"{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":2}", ERR_RANGE,
         "\"label\" is 2"},
        {"{\"sentence\":\"s\",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"1\"}",
         ERR_FORMAT, "\"sentence\" has no \"_\""},
        {"{\"sentence\":\"s _ \",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"1\"}",
         ERR_RANGE, "nothing follows \"_\" in \"sentence\""},
        {"{\"sentence\":\"s _ x\",\"option1\":\"a\",\"option2\":\"\",\"answer\":\"1\"}",
         ERR_RANGE, ":1: \"option2\" is empty"},
        {"{\"sentence\":\"s _ x\",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"3\"}",
         ERR_RANGE, "\"answer\" is 3, expected 1 to 2"},
        {"{\"passage\":\"p\",\"question\":\"q\"}", ERR_FORMAT, "key \"label\" is missing"},
        {"{\"passage\":\"p\",\"question\":\"q\",\"label\":\"yes\"}", ERR_FORMAT,
         "\"label\" is the text \"yes\""},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Loaded l;
        T_FAILS(load(&l, ROWS[i].text, (ChoiceOptions){0}), ROWS[i].code, ROWS[i].says);
        unload(&l);
    }
}

TEST(what_does_not_fit_is_named)
{
    Loaded l;
    T_FAILS(load(&l, ITEM("a") PLAIN("ab", "cdefg"), (ChoiceOptions){.context = 5}), ERR_RANGE,
            "task.jsonl:2: a choice of 6 tokens does not fit a context of 5");
    unload(&l);
    T_FAILS(load(&l, ITEM("a"), (ChoiceOptions){.context = 1}), ERR_RANGE, "a context of 1");
    unload(&l);
    T_FAILS(load(&l, PLAIN(" ", "c"), (ChoiceOptions){.no_bos = true}), ERR_RANGE,
            ":1: the context is blank");
    unload(&l);
    ChoiceKind k;
    T_FAILS(choice_kind(&k, "/nowhere/x.jsonl"), ERR_IO, "/nowhere/x.jsonl");
    T_FAILS(choice_kind(&k, tiny_file("odd.jsonl", "\n{\"a\":1}")), ERR_FORMAT,
            "odd.jsonl:2: the keys are those of no task");
}

TEST(every_allocation_may_fail)
{
    static const char TEXT[] = POOL;
    int64_t k = 0;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        Loaded        l = {0};
        ChoiceOptions o = {.context = 100, .shots = 2, .seed = 1};
        const char   *path = tiny_file("task.jsonl", TEXT);
        T_STATUS_OK(tokenizer_open(&l.t, &l.arena, check_path("pair/base")));
        arena_fail_at(k + 1);
        s = choice_load(&l.c, &l.arena, l.t, path, &o);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && status_text()[0]));
        unload(&l);
    }
    T_OK(k > 20);
}

/* --- who is right --- */

TEST(first_of_the_largest)
{
    static const int64_t       GOLD[] = {0, 1, 1, 1, 2}, FIRST[] = {0, 2, 4, 6, 8, 11};
    static const ChoiceRequest R[11] = {{.length = 4}, {.length = 2}, {.length = 1},
        {.length = 2}, {.length = 2}, {.length = 2}, {.length = 2}, {.length = 2},
        {.length = 2}, {.length = 1}, {.length = 4}};
    const double LOGLIK[] = {-3, -2, -1, -1.5, -2, -2, -1, NAN, -6, -2, -6};
    /* -.75 -1 | -1 -.75 | a tie | NaN first | -3 -2 -1.5 */
    static const uint8_t PLAIN_[] = {0, 0, 0, 1, 0}, NORM[] = {1, 1, 0, 1, 1};
    Choice  c = {.n = 5, .gold = GOLD, .first = FIRST, .n_requests = 11, .requests = R};
    uint8_t correct[5], norm[5];
    choice_correct(correct, norm, &c, LOGLIK);
    T_OK(memcmp(correct, PLAIN_, 5) == 0 && memcmp(norm, NORM, 5) == 0);
    memset(correct, 9, 5);
    choice_correct(correct, NULL, &c, LOGLIK);
    T_OK(memcmp(correct, PLAIN_, 5) == 0);
}
