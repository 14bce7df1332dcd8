/* test_golden_pair.c - the pair that ships, real text and trained weights, against
 * transformers. After a new export: tests/golden/make_golden.py --pair. */
#include "tests/check.h"

#include "tests/analysis/ref_golden.h"

static void compare_pair(Dtype dtype)
{
    golden_compare("pair diff", check_path("pair/diff"),
                   check_path("golden/pair/diff.safetensors"), dtype, true);
    golden_compare("pair base", check_path("pair/base"),
                   check_path("golden/pair/base.safetensors"), dtype, true);
}

TEST(pair_in_f32)
{
    compare_pair(DTYPE_F32);
}

TEST(pair_in_bf16)
{
    compare_pair(DTYPE_BF16);
}
