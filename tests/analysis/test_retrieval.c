/* test_retrieval.c - episodes from JSON lines, and who answers them. */
#include "analysis/retrieval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/analysis/ref_tiny.h"
#include "tests/check.h"

/* 12 tokens: a b _ c3 a9 _ x 1 7 | _ 42 !   The space before the bar moves to
 * the answer, as do its two digits into one token. */
#define LINE(id) "{\"id\":\"" id "\",\"n\":2,\"context\":\"ab \\u00e9 x17 \"," \
                 "\"answer\":\"42!\",\"span\":[5,8]}\n"

typedef struct {
    Arena      arena;
    Tokenizer *t;
    Retrieval  r;
} Loaded;

static Status load(Loaded *l, const char *text, int64_t context, bool no_bos)
{
    *l = (Loaded){0};
    TRY(tiny_tokenizer(&l->t, &l->arena, true));
    return retrieval_load(&l->r, &l->arena, l->t, tiny_file("retrieval.jsonl", text), context,
                          no_bos);
}

static void unload(Loaded *l)
{
    tokenizer_close(l->t);
    arena_close(&l->arena);
}

/* Rows, first scored row and span of the one episode, or false. */
static bool lies(int64_t context, bool no_bos, int64_t rows, int64_t first, Span span)
{
    static const int32_t WHOLE[] = {'a' - 29, 'b' - 29, 3,        98, 99, 3,
                                    'x' - 29, '1' - 29, '7' - 29, 3,  100, '!' - 29};
    Loaded  l;
    bool    ok = load(&l, LINE("a"), context, no_bos) == OK && l.r.seq.start[1] == rows;
    int64_t bos = !no_bos, drop = 11 + bos - rows;
    for (int64_t t = 0; ok && t < rows; t++) {
        int64_t at = t - bos + drop;  // of the whole text
        ok = l.r.seq.ids[t] == (bos && t == 0 ? TINY_BOS : WHOLE[at]) &&
             l.r.seq.targets[t] == (t < first ? -1 : WHOLE[at + 1]);
    }
    ok = ok && rows - first == 3 && l.r.seq.spans[0].first == span.first &&
         l.r.seq.spans[0].end == span.end && l.r.truncated[0] == (drop > 0) &&
         l.r.tasks[0].n_truncated == (drop > 0);
    unload(&l);
    return ok;
}

TEST(tokens_targets_and_span)
{
    T_OK(lies(100, false, 12, 9, (Span){7, 10}));
    T_OK(lies(12, false, 12, 9, (Span){7, 10}));
    T_OK(lies(100, true, 11, 8, (Span){6, 9}));
}

TEST(long_contexts_lose_their_left)
{
    T_OK(lies(11, false, 11, 8, (Span){6, 9}));
    T_OK(lies(8, false, 8, 5, (Span){3, 6}));
    T_OK(lies(5, false, 5, 2, (Span){1, 3}));   // the span loses its first token
    T_OK(lies(3, false, 3, 0, (Span){1, 1}));   // and all of them: none
    T_OK(lies(3, true, 3, 0, (Span){0, 1}));
    Loaded l;
    T_FAILS(load(&l, LINE("a"), 2, false), ERR_RANGE,
            "retrieval.jsonl:1: an answer of 3 tokens does not fit a context of 2");
    unload(&l);
    T_FAILS(load(&l, LINE("a"), 2, true), ERR_RANGE, "an answer of 3 tokens");
    unload(&l);
    T_FAILS(load(&l, LINE("a"), 1, false), ERR_RANGE, "a context of 1 tokens");
    unload(&l);
}

#define GIVEN(parts) "{\"id\":\"g\",\"n\":1,\"context\":\"ab \"," \
                     "\"answer\":\"42! x\\u00e9y 7.\"," \
                     "\"span\":[0,1],\"given\":" parts "}\n"

/* " 42! xey 7." after "ab": tokens _ 42 ! _ x c3 a9 y _ 7 . */
TEST(given_parts_of_an_answer_are_read_but_not_scored)
{
    static const int32_t ANSWER_IDS[] = {3, 100, '!' - 29, 3, 'x' - 29, 98, 99, 'y' - 29, 3,
                                         '7' - 29, '.' - 29};
    static const char *const SCORED[] = {"11100000111", "11111000111", "11111111111"};
    static const char *const PARTS[] = {"[[3,7]]", "[[5,6],[6,7]]", "[]"};
    for (int i = 0; i < 3; i++) {
        char   line[300];
        Loaded l;
        snprintf(line, sizeof line, GIVEN("%s"), PARTS[i]);
        T_STATUS_OK(load(&l, line, 100, false));
        T_OK(l.r.seq.start[1] == 13);
        for (int t = 0; t < 11; t++) {
            int32_t want = SCORED[i][t] == '1' ? ANSWER_IDS[t] : -1;
            T_OK(l.r.seq.targets[2 + t] == want);
            T_OK(t == 10 || l.r.seq.ids[3 + t] == ANSWER_IDS[t]);
        }
        unload(&l);
    }
}

#define SHORT(id, n) "{\"n\":" n ",\"more\":null,\"id\":\"" id "\",\"span\":[0,1]," \
                     "\"answer\":\"b\",\"context\":\"a\"}"

TEST(tasks_by_needles)
{
    static const int64_t SIX[] = {1, 4}, ONE[] = {0, 2, 3};
    Loaded l;
    T_STATUS_OK(load(&l, SHORT("p", "1") "\r\n" SHORT("q", "6") "\n\n" SHORT("r", "1") "\n"
                     SHORT("s", "1") "\n" SHORT("t", "6"), 100, false));
    const Retrieval *r = &l.r;
    T_OK(r->n == 5 && r->n_tasks == 2);
    T_TEXT(r->tasks[0].name, "retrieval-n1");
    T_TEXT(r->tasks[1].name, "retrieval-n6");
    T_OK(r->tasks[0].n == 3 && memcmp(r->tasks[0].items, ONE, sizeof ONE) == 0);
    T_OK(r->tasks[1].n == 2 && memcmp(r->tasks[1].items, SIX, sizeof SIX) == 0);
    T_TEXT(r->ids[2], "r");
    T_OK(r->needles[4] == 6 && r->tasks[0].n_truncated == 0);
    unload(&l);
}

TEST(bad_lines_are_named)
{
    static const struct {
        const char *text;
        Status      code;
        const char *says;
    } ROWS[] = {
        {"", ERR_RANGE, "retrieval.jsonl: holds no episodes"},
        {" \n\n", ERR_RANGE, "holds no episodes"},
        {LINE("a") "{\"id\":", ERR_FORMAT, "retrieval.jsonl:2: "},
        {LINE("a") "\n" LINE("b") "{} x\n", ERR_FORMAT, "retrieval.jsonl:4: "},
        {LINE("a") "[1]\n", ERR_FORMAT, ":2: expected an object, got a list"},
        {LINE("a") "{}\n", ERR_FORMAT, ":2: key \"id\" is missing"},
        {LINE("a") LINE("b") LINE("a"), ERR_FORMAT, ":3: id \"a\" was used in line 1"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"a\",\"answer\":\"b\"}", ERR_FORMAT,
         ":1: key \"span\" is missing"},
        {"{\"id\":7,\"n\":1,\"context\":\"a\",\"answer\":\"b\",\"span\":[0,1]}", ERR_FORMAT,
         "\"id\" is a number, expected a text"},
        {"{\"id\":\"a\",\"n\":1.5,\"context\":\"a\",\"answer\":\"b\",\"span\":[0,1]}",
         ERR_FORMAT, "\"n\" is a fraction"},
        {"{\"id\":\"a\",\"n\":9223372036854775808,\"context\":\"a\",\"answer\":\"b\","
         "\"span\":[0,1]}", ERR_FORMAT, "\"n\" is too large a number"},
        {"{\"id\":\"a\",\"n\":0,\"context\":\"a\",\"answer\":\"b\",\"span\":[0,1]}", ERR_RANGE,
         "\"n\" is 0"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"\",\"answer\":\"b\",\"span\":[0,1]}", ERR_FORMAT,
         "\"context\" is empty"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"  \",\"answer\":\"b\",\"span\":[0,1]}",
         ERR_FORMAT, "\"context\" is blank"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"a\",\"answer\":\"\",\"span\":[0,1]}", ERR_FORMAT,
         "\"answer\" is empty"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"a\",\"answer\":\"b\",\"span\":[0,2]}", ERR_RANGE,
         "\"span\" is [0, 2], expected start below end within the 1 characters"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"abc\",\"answer\":\"b\",\"span\":[2,2]}",
         ERR_RANGE, "\"span\" is [2, 2]"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"abc\",\"answer\":\"b\",\"span\":[-1,2]}",
         ERR_RANGE, "\"span\" is [-1, 2]"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"abc\",\"answer\":\"b\",\"span\":[0,1,2]}",
         ERR_FORMAT, "list of another length"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"abc\",\"answer\":\"b\",\"span\":\"0:1\"}",
         ERR_FORMAT, "\"span\" is a text"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"abc\",\"answer\":\"b\",\"span\":[0,\"1\"]}",
         ERR_FORMAT, "\"span\" is a text, expected a whole number"},
        {GIVEN("7"), ERR_FORMAT, ":1: \"given\" is a number, expected a list"},
        {GIVEN("[7]"), ERR_FORMAT, "\"given\" is a number, expected a list [start, end]"},
        {GIVEN("[[1,9.5]]"), ERR_FORMAT, "\"given\" is a fraction"},
        {GIVEN("[[1,11]]"), ERR_RANGE, "\"given\" is [1, 11], expected start below end within "
                                       "the 10 characters of the answer"},
        {GIVEN("[[1,3],[2,4]]"), ERR_RANGE, "parts that overlap"},
        {GIVEN("[[3,4],[1,2]]"), ERR_RANGE, "parts that overlap or are out of order"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"x\",\"answer\":\"y\",\"span\":[0,1],"
         "\"given\":[[0,1]]}", ERR_RANGE, ":1: all of the answer is given"},
        {"{\"id\":\"a\",\"n\":1,\"context\":\"x4\",\"answer\":\"2\",\"span\":[0,1]}", ERR_RANGE,
         ":1: the answer adds no token"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        Loaded l;
        T_FAILS(load(&l, ROWS[i].text, 100, false), ROWS[i].code, ROWS[i].says);
        unload(&l);
    }
    Loaded l;
    char   text[12000] = "", line[128];
    for (int i = 0; i < 100; i++) {  // as many tasks as there may be
        snprintf(line, sizeof line, SHORT("%d", "%d") "\n", 100 + i, i);
        strcat(text, line);
    }
    T_STATUS_OK(load(&l, text, 100, false));
    T_OK(l.r.n_tasks == 100 && strcmp(l.r.tasks[99].name, "retrieval-n199") == 0);
    unload(&l);
    strcat(text, SHORT("x", "99"));
    T_FAILS(load(&l, text, 100, false), ERR_RANGE, "more than 100 different numbers");
    unload(&l);
}

TEST(a_missing_file_is_named)
{
    Arena      a = {0};
    Tokenizer *t;
    Retrieval  r;
    T_STATUS_OK(tiny_tokenizer(&t, &a, true));
    T_FAILS(retrieval_load(&r, &a, t, "/nowhere/x.jsonl", 9, false), ERR_IO,
            "/nowhere/x.jsonl");
    tokenizer_close(t);
    arena_close(&a);
}

/* --- answers --- */
enum { EPISODES = 24, ANSWER = 3, LONGEST = 40 };

typedef struct {
    char text[LONGEST + 1];  // context, then what greedy decoding writes
    int  context;
} Greedy;

/* The model's first choice after text; -1 if that is no plain character. */
static int next_character(Model *m, const char *text)
{
    int32_t ids[LONGEST + 1] = {TINY_BOS}, targets[LONGEST + 1], best[LONGEST + 1];
    double  logprob[LONGEST + 1];
    int64_t n = 1 + (int64_t)strlen(text), start[2] = {0, n};
    for (int64_t i = 1; i < n; i++)
        ids[i] = tiny_id(text[i - 1]);
    for (int64_t i = 0; i < n; i++)
        targets[i] = -1;
    Sequences s = {.n = 1, .start = start, .ids = ids, .targets = targets};
    if (tiny_score(m, (RunQuant){.bits = 16}, &s, logprob, best) != OK)
        return -1;
    int c = best[n - 1] + 29;
    return c > ' ' && c <= '~' && !strchr("42\"\\", c) ? c : -1;
}

/* Lets the model write answer characters from number first on. */
static bool write_on(Greedy *g, Model *m, int first)
{
    for (int i = g->context + first; i < g->context + ANSWER; i++) {
        g->text[i] = 0;
        int c = next_character(m, g->text);
        if (c < 0)
            return false;
        g->text[i] = (char)c;
        g->text[i + 1] = 0;
    }
    return true;
}

/* wrong: the character that the model would not write, -1 for none. All others
 * are what it writes after those before them. */
static bool continues(Greedy *g, Model *m, uint64_t *seed, int wrong)
{
    g->context = 5 + (int)(14 * (1 + check_uniform(seed)));
    for (int i = 0; i < g->context; i++)
        g->text[i] = (char)('n' + 9 * check_uniform(seed));
    if (!write_on(g, m, 0))
        return false;
    if (wrong < 0)
        return true;
    char *c = &g->text[g->context + wrong];
    *c = *c == 'k' ? 'm' : 'k';
    return write_on(g, m, wrong + 1);
}

/* Episode i is answered unless i % 3 == 0: then one character is another. Spans
 * differ, so that one that goes to another episode shows. */
static void write_episodes(char *text, Model *m)
{
    uint64_t seed = 4;
    Greedy   g;
    for (int i = 0; i < EPISODES; i++) {
        while (!continues(&g, m, &seed, i % 3 ? -1 : i / 3 % ANSWER))
            ;
        text += sprintf(text, "{\"id\":\"%d\",\"n\":%d,\"context\":\"%.*s\",\"answer\":\"%s\","
                        "\"span\":[%d,%d]}\n", i, 1 + i % 2, g.context, g.text,
                        g.text + g.context, i % 4, i % 4 + 1);
    }
}

TEST(correct_is_what_greedy_decoding_writes)
{
    static char text[EPISODES * 200];
    TinyModel   m;
    Loaded      l;
    uint8_t     correct[EPISODES + 1];
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    write_episodes(text, &m.model);
    T_STATUS_OK(load(&l, text, 128, false));
    for (int turn = 0; turn < 3; turn++) {
        Scorer sc = {.model = &m.model, .quant = {.bits = 16},
                     .batch_tokens = (const int[]){1, 70, 5000}[turn]};
        memset(correct, 9, sizeof correct);
        T_STATUS_OK(retrieval_run(&l.r, &sc, correct));
        for (int i = 0; i < EPISODES; i++)
            T_NEAR(correct[i], i % 3 != 0, 0);
        T_OK(correct[EPISODES] == 9);
    }
    for (int k = 0; k < 2; k++) {
        TaskScore s = retrieval_score(&l.r.tasks[k], correct);
        T_OK(s.n == 12 && s.n_correct == 8);
        T_NEAR(s.accuracy, 2.0 / 3, 1e-15);
        /* sample variance of eight ones and four zeros: 12 (2/9) / 11 */
        T_NEAR(s.error, sqrt(12 * (2.0 / 9) / 11 / 12), 1e-15);
    }
    unload(&l);
    tiny_close(&m);
}

TEST(spans_reach_the_probe_whatever_the_batch)
{
    static char text[EPISODES * 200];
    TinyModel   m;
    Loaded      l;
    uint8_t     correct[EPISODES];
    ShareRecord shares[2][3 * 8] = {0};  // at least layers x heads
    T_STATUS_OK(tiny_open(&m, "diff_gqa"));
    write_episodes(text, &m.model);
    T_STATUS_OK(load(&l, text, 128, false));
    int n = (int)(m.model.config.n_layers * m.model.config.n_heads);
    for (int turn = 0; turn < 2; turn++) {
        Probe  probe = {.shares = shares[turn]};
        Scorer sc = {.model = &m.model, .quant = {.bits = 16}, .probe = &probe,
                     .batch_tokens = turn ? 5000 : 1};
        T_STATUS_OK(retrieval_run(&l.r, &sc, correct));
    }
    for (int i = 0; i < n; i++) {
        T_OK(shares[0][i].span_rows > 0);
        T_OK(shares[0][i].span_rows == shares[1][i].span_rows);
        T_OK(shares[0][i].span[0] > 0);
        T_NEAR(shares[0][i].span[0], shares[1][i].span[0], 1e-12 * shares[0][i].span[0]);
    }
    unload(&l);
    tiny_close(&m);
}

TEST(one_episode_has_no_error)
{
    int64_t       item = 0;
    uint8_t       right = 1;
    RetrievalTask t = {.n = 1, .items = &item};
    TaskScore     s = retrieval_score(&t, &right);
    T_OK(s.accuracy == 1 && isnan(s.error));
}

TEST(every_allocation_may_fail)
{
    Arena       tokens = {0};
    Tokenizer  *t;
    Retrieval   r;
    Status      s = ERR_MEMORY;
    int64_t     k = 0;
    const char *path = tiny_file("fail.jsonl", LINE("a") LINE("b") SHORT("c", "1"));
    T_STATUS_OK(tiny_tokenizer(&t, &tokens, true));
    while (s != OK) {
        Arena a = {0};
        arena_fail_at(++k);
        s = retrieval_load(&r, &a, t, path, 20, false);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        arena_close(&a);
    }
    T_OK(k > 40);
    tokenizer_close(t);
    arena_close(&tokens);
}
