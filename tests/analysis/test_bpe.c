/* test_bpe.c - merging against a plain version of the same rule, on random
 * vocabularies; the byte map; unknown characters. */
#include <string.h>

#include "analysis/text/bpe.h"
#include "analysis/text/bytemap.h"
#include "tests/check.h"

enum { N_LETTERS = 4, N_TOKENS = 60, MAX_WORD = 80 };

typedef struct {
    Arena   a;
    Vocab   vocab;
    Bpe     bpe;
    int32_t left[N_TOKENS], right[N_TOKENS], result[N_TOKENS];  // by rank
    int     n_merges;
} Model;

static int pick(uint64_t *seed, int n)
{
    int i = (int)((check_uniform(seed) * 0.5f + 0.5f) * (float)n);
    return i < n ? i : n - 1;
}

/* Letters, then tokens each made of two earlier ones. */
static Status random_model(Model *m, uint64_t *seed)
{
    *m = (Model){0};
    TRY(vocab_init(&m->vocab, &m->a, N_TOKENS, N_TOKENS));
    for (int i = 0; i < N_LETTERS; i++)
        TRY(vocab_add(&m->vocab, "test", arena_printf(&m->a, "%c", 'a' + i), i));
    for (int i = N_LETTERS; i < N_TOKENS;) {
        int   l = pick(seed, i), r = pick(seed, i);
        char *text = arena_printf(&m->a, "%s%s", m->vocab.text[l], m->vocab.text[r]);
        if (vocab_find(&m->vocab, text, (int64_t)strlen(text)) >= 0)
            continue;
        m->left[m->n_merges] = l;
        m->right[m->n_merges] = r;
        m->result[m->n_merges++] = i;
        TRY(vocab_add(&m->vocab, "test", text, i++));
    }
    TRY(merges_init(&m->bpe.merges, &m->a, &m->vocab, m->n_merges));
    /* Ranks in another order than ids. */
    for (int i = 0; i < m->n_merges; i++) {
        int j = pick(seed, m->n_merges);
        int32_t *const COLUMNS[] = {m->left, m->right, m->result};
        for (int k = 0; k < 3; k++) {
            int32_t x = COLUMNS[k][i];
            COLUMNS[k][i] = COLUMNS[k][j];
            COLUMNS[k][j] = x;
        }
    }
    for (int i = 0; i < m->n_merges; i++)
        merges_add(&m->bpe.merges, m->left[i], m->right[i], i, m->result[i]);
    m->bpe.name = "test";
    m->bpe.vocab = &m->vocab;
    m->bpe.unk = -1;
    return bpe_init(&m->bpe, &m->a);
}

/* The best merge of all, again and again. */
static int plain_bpe(const Model *m, const char *word, int n, int32_t *ids)
{
    for (int i = 0; i < n; i++)
        ids[i] = word[i] - 'a';
    for (;;) {
        int rank = m->n_merges, at = -1;
        for (int i = 0; i + 1 < n; i++)
            for (int k = 0; k < rank; k++)
                if (m->left[k] == ids[i] && m->right[k] == ids[i + 1]) {
                    rank = k;
                    at = i;
                }
        if (at < 0)
            return n;
        ids[at] = m->result[rank];
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}

TEST(merges_as_the_plain_version)
{
    uint64_t seed = 3;
    for (int round = 0; round < 40; round++) {
        Model m;
        T_STATUS_OK(random_model(&m, &seed));
        BpeSpace space = {.arena = &m.a};
        for (int k = 0; k < 200; k++) {
            char    word[MAX_WORD];
            int32_t want[MAX_WORD];
            int     n = 1 + pick(&seed, k % 2 ? MAX_WORD : 8);
            for (int i = 0; i < n; i++)
                word[i] = (char)('a' + pick(&seed, N_LETTERS));
            Ids   ids = {.arena = &m.a, .track = true};
            Piece p = {.text = word, .n = n};
            T_STATUS_OK(bpe_word(&m.bpe, &space, &p, &ids));
            T_OK(ids.n == plain_bpe(&m, word, n, want));
            for (int64_t i = 0, at = 0; i < ids.n; i++) {
                T_OK(ids.id[i] == want[i] && ids.begin[i] == at);
                at += m.vocab.length[ids.id[i]];
            }
        }
        arena_close(&m.a);
    }
}

/* Two merges of one token (ab+c, a+bc): a stale entry of the heap must not fire
 * with the other's rank. Hand-made: ranks b+c, a+b, ab+c, a+bc. */
TEST(two_ways_to_one_token)
{
    static const char *const TEXT[] = {"a", "b", "c", "ab", "bc", "abc"};
    Arena a = {0};
    Vocab v;
    Bpe   b = {.name = "test", .vocab = &v, .unk = -1};
    T_STATUS_OK(vocab_init(&v, &a, 6, 6));
    for (int32_t i = 0; i < 6; i++)
        T_STATUS_OK(vocab_add(&v, "test", TEXT[i], i));
    T_STATUS_OK(merges_init(&b.merges, &a, &v, 4));
    merges_add(&b.merges, 1, 2, 0, 4);
    merges_add(&b.merges, 0, 1, 1, 3);
    merges_add(&b.merges, 3, 2, 2, 5);
    T_STATUS_OK(bpe_init(&b, &a));
    BpeSpace space = {.arena = &a};
    Ids      ids = {.arena = &a};
    Piece    p = {.text = "abcab", .n = 5};
    T_STATUS_OK(bpe_word(&b, &space, &p, &ids));
    T_OK(ids.n == 3 && ids.id[0] == 0 && ids.id[1] == 4 && ids.id[2] == 3);
    b.cache[0] = (BpeCached){0};
    merges_add(&b.merges, 0, 4, 3, 5);
    memset(b.cache, 0, BPE_CACHE_SLOTS * sizeof *b.cache);
    ids.n = 0;
    T_STATUS_OK(bpe_word(&b, &space, &p, &ids));
    T_OK(ids.n == 2 && ids.id[0] == 5 && ids.id[1] == 3);
    arena_close(&a);
}

/* Unknown characters: one token each, or one for a run; bytes where they exist. */
TEST(unknown_characters)
{
    static const char *const TEXT[] = {"a", "<unk>", "<0xC3>", "<0xA9>"};
    Arena    a = {0};
    Vocab    v;
    Bpe      b = {.name = "test", .vocab = &v, .unk = 1};
    BpeSpace space = {.arena = &a};
    Ids      ids = {.arena = &a, .track = true};
    Piece    p = {.text = "xya\u00e9z", .n = 6};
    T_STATUS_OK(vocab_init(&v, &a, 4, 4));
    for (int32_t i = 0; i < 4; i++)
        T_STATUS_OK(vocab_add(&v, "test", TEXT[i], i));
    T_STATUS_OK(merges_init(&b.merges, &a, &v, 0));
    T_STATUS_OK(bpe_init(&b, &a));
    static const int32_t ONE[] = {1, 1, 0, 1, 1};
    T_STATUS_OK(bpe_word(&b, &space, &p, &ids));
    T_OK(ids.n == 5 && memcmp(ids.id, ONE, sizeof ONE) == 0 && ids.begin[4] == 5);
    ids.n = 0;
    b.fuse_unk = true;
    static const int32_t RUN[] = {1, 0, 1};
    T_STATUS_OK(bpe_word(&b, &space, &p, &ids));
    T_OK(ids.n == 3 && memcmp(ids.id, RUN, sizeof RUN) == 0);
    T_OK(ids.begin[1] == 2 && ids.begin[2] == 3);
    ids.n = 0;
    b.byte_fallback = true;
    static const int32_t BYTES[] = {1, 0, 2, 3, 1};
    T_STATUS_OK(bpe_word(&b, &space, &p, &ids));
    T_OK(ids.n == 5 && memcmp(ids.id, BYTES, sizeof BYTES) == 0);
    T_OK(ids.begin[2] == 3 && ids.begin[3] == 4 && ids.begin[4] == 5);
    arena_close(&a);
}

TEST(byte_map_is_one_to_one)
{
    for (int byte = 0; byte < 256; byte++)
        T_OK(bytemap_byte(bytemap_char((unsigned char)byte)) == byte);
    int n = 0;
    for (uint32_t c = 0; c < 0x1000; c++)
        n += bytemap_byte(c) >= 0;
    T_OK(n == 256);
    T_OK(bytemap_char(' ') == 0x120 && bytemap_char('\n') == 0x10a && bytemap_char('A') == 'A');
    T_OK(bytemap_char(0xa0) == 0x142 && bytemap_char(0xad) == 0x143 &&
         bytemap_char(0xff) == 0xff);
}
