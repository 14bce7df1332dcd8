/* settings_table.c - every verb and every option, one row each. */
#include "reports/cli/settings_table.h"

const VerbRow settings_verbs[] = {
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
    {VERB_EVAL, "eval", "MODEL", 1, 1,
     "Score one model: perplexity, distance from the unquantized model, multiple choice and\n"
     "retrieval, for each kind of weights and each number of bits of the attention logits.",
     "diffquant eval tests/pair/diff --task tests/pair/retrieval.jsonl --weights w8,w4:g64 \\\n"
     "      --text tests/pair/heldout.txt --kl"},
    {VERB_QUANTIZE, "quantize", "MODEL", 1, 1,
     "Write a checkpoint of 4, 6 or 8 bits that transformers, vLLM or llama.cpp loads, and\n"
     "say what that did to each matrix and to the perplexity.",
     "diffquant quantize tests/pair/diff --bits 4 --group 64 --text book.txt -o diff-w4"},
    {VERB_CONVERT, "convert", "MODEL", 1, 1,
     "Write weights of microsoft/unilm's differential attention as a DiffLlama checkpoint, "
     "which\ntransformers loads: the same numbers in another order.",
     "diffquant convert unilm@weights -o weights-hf"},
    {VERB_REPORT, "report", "S.h5...", 1, 8,
     "Draw the pictures and write the page again from stored statistics, without the "
     "models.",
     "diffquant report diff.h5 base.h5 -o page"},
    {VERB_GENERATE, "generate", "MODEL", 1, 1,
     "Continue a prompt with the likeliest tokens, to see that a checkpoint speaks.",
     "diffquant generate tests/pair/diff --prompt \"The command\""},
};

#define AT(field) offsetof(Settings, field)
enum {
    GRID = VERB_EVAL | VERB_COMPARE,
    RUN = VERB_ANALYZE | GRID | VERB_GENERATE,
    MEASURE = VERB_ANALYZE | GRID,
    TEXT = MEASURE | VERB_QUANTIZE,
    WRITE = VERB_ANALYZE | GRID | VERB_REPORT | VERB_QUANTIZE | VERB_CONVERT,
    READ = VERB_INSPECT | RUN | VERB_QUANTIZE | VERB_CONVERT
};

const OptionRow settings_options[] = {
    {"layout", 0, READ, OPT_TEXT, AT(layout), "unilm[:...]", 0, 0,
     "how weights without a config.json lie: microsoft/unilm's differential attention, with\n"
     "what no file tells as unilm:theta=10000,eps=1e-5,context=2048,bos=1,eos=2 (these are\n"
     "assumed; no bos, no eos). For every MODEL that needs it; for one: unilm:theta=5e5@MODEL"},
    {"bits", 'b', VERB_QUANTIZE, OPT_CHOICE, AT(bits), "4|6|8|16", 0, 0,
     "bits of a weight (default 4; 16: floats, for --rotate and the like alone)"},
    {"group", 0, VERB_QUANTIZE, OPT_CHOICE, AT(group), "channel|32|64|128", 0, 0,
     "weights of a row that share a scale (default: for 8 bits and int8 the channel,\n"
     "else the largest of 128, 64, 32 that divides all rows)"},
    {"asym", 0, VERB_QUANTIZE, OPT_FLAG, AT(asym), NULL, 0, 0,
     "codes from least to largest weight, with zero points, not around zero"},
    {"method", 0, VERB_QUANTIZE, OPT_CHOICE, AT(method), "rtn|clip|gptq", 0, 0,
     "how codes are chosen: nearest, with the range of the weights; nearest, with the range\n"
     "of least error (default without --text); GPTQ (default with --text)"},
    {"scheme", 0, VERB_QUANTIZE, OPT_LIST, AT(schemes), "PATTERN=SPEC", 0, 0,
     "another scheme for matrices whose name matches, as '*down_proj*=w8:g64:gptq' or\n"
     "'*.layers.0.*=fp'; may be given several times, the last that matches holds"},
    {"target-bits", 0, VERB_QUANTIZE, OPT_REAL, AT(target_bits), "X", 0, 32,
     "4, 6 or 8 bits for each matrix so that weights take X bits in the mean, scales\n"
     "included, and the measured error is least"},
    {"target-size", 0, VERB_QUANTIZE, OPT_SIZE, AT(size), "SIZE", 0, 0,
     "the same for a size of all tensors: bytes, or 700M, 4.5G"},
    {"awq", 0, VERB_QUANTIZE, OPT_FLAG, AT(awq), NULL, 0, 0,
     "first move scale from weights to norms where that lowers the error (AWQ)"},
    {"smooth", 0, VERB_QUANTIZE, OPT_REAL, AT(smooth), "ALPHA", 0, 1,
     "first move outliers from activations to weights (SmoothQuant; 0.5 is usual)"},
    {"rotate", 0, VERB_QUANTIZE, OPT_FLAG, AT(rotate), NULL, 0, 0,
     "first turn hidden states and values by random orthogonal matrices (unties the head)"},
    {"seed", 0, VERB_QUANTIZE | GRID, OPT_INT, AT(seed), "N", 0, INT32_MAX,
     "of the random matrices, of needles, examples and orders (default 0)"},
    {"damp", 0, VERB_QUANTIZE, OPT_REAL, AT(damp), "X", 0, 1,
     "GPTQ's damping, as a share of the mean diagonal (default 0.01)"},
    {"format", 0, VERB_QUANTIZE, OPT_CHOICE, AT(format), "compressed-tensors|gptq|int8|gguf",
     0, 0,
     "of the checkpoint (default compressed-tensors, or gguf where --out ends in .gguf);\n"
     "int8: compressed-tensors with 8-bit activations"},
    {"gguf-type", 0, VERB_QUANTIZE, OPT_TEXT, AT(gguf_type), "TYPE", 0, 0,
     "Q4_K_M, Q4_K_S, Q4_0, Q4_1, Q5_K_M, Q6_K, Q8_0, F16 ... (default: as --bits says)"},
    {"wide6", 0, VERB_QUANTIZE, OPT_FLAG, AT(wide6), NULL, 0, 0,
     "6-bit codes in 8 bits each, for readers older than compressed-tensors 0.18"},
    {"floats", 0, VERB_QUANTIZE | VERB_CONVERT, OPT_CHOICE, AT(floats), "f16|bf16|f32", 0, 0,
     "how scales and what is not coded are stored (default: as in MODEL; convert: f32 where\n"
     "nothing less holds the products with subln.weight)"},
    {"text", 0, TEXT, OPT_LIST, AT(texts), "FILE", 0, 0,
     "UTF-8 text to run over; may be given several times (analyze, compare, eval: the\n"
     "example text by default, software documentation; quantize: calibrates on it)"},
    {"windows", 0, VERB_QUANTIZE | GRID, OPT_INT, AT(windows), "N", 1, INT32_MAX,
     "windows of the text to calibrate on (default 128; eval, compare: half of the text if\n"
     "that is less, where --calibrate is not given)"},
    {"calibrate", 0, GRID, OPT_TEXT, AT(calibrate), "FILE", 0, 0,
     "text that gptq, awq and smooth are fitted to (default: the first --windows of --text,\n"
     "which are then not scored)"},
    {"check", 0, VERB_QUANTIZE, OPT_TEXT, AT(check), "FILE", 0, 0,
     "text for the perplexity before and after (default: what follows the windows)"},
    {"tokens", 0, VERB_ANALYZE, OPT_TEXT, AT(tokens), "FILE", 0, 0,
     "token ids to run over, in decimal, instead of text"},
    {"task", 0, GRID, OPT_LIST, AT(tasks), "FILE", 0, 0,
     "questions to score, JSON lines: HellaSwag, ARC, PIQA, WinoGrande, BoolQ, OpenBookQA as\n"
     "they are published, {context, choices, answer}, or {id, n, context, answer, span}\n"
     "for retrieval; told apart by their keys; may be given several times"},
    {"shots", 0, GRID, OPT_INT, AT(shots), "N", 0, 100000,
     "worked examples before each question of multiple choice (default 0), or before each\n"
     "item of --order (default: as many as fit)"},
    {"shots-from", 0, GRID, OPT_TEXT, AT(shots_from), "FILE", 0, 0,
     "where the examples come from: the training split (default: the task's own file)"},
    {"kl", 0, GRID, OPT_FLAG, AT(kl), NULL, 0, 0,
     "KL divergence from the unquantized model's predictions of the text, and how often the\n"
     "first choice stays"},
    {"needles", 0, GRID, OPT_TEXT, AT(needles), "N,R", 0, 0,
     "hide N needles in the text and ask for R of them: a column of the table; attention by\n"
     "depth, of the unquantized model"},
    {"needle-form", 0, GRID, OPT_CHOICE, AT(needle_form), "question|statement", 0, 0,
     "ask for the numbers (default), or let the text end where one must come, as the example\n"
     "pair was trained"},
    {"samples", 0, GRID, OPT_INT, AT(samples), "N", 1, 100000,
     "of --needles, at each depth (default 50)"},
    {"order", 0, GRID, OPT_TEXT, AT(order), "FILE", 0, 0,
     "many-shot classification, JSON lines of text and label, as a column of the table: does\n"
     "accuracy hang on the order of the examples?"},
    {"orders", 0, GRID, OPT_INT, AT(orders), "N", 1, 1000,
     "orders tried (default 10)"},
    {"out", 'o', WRITE, OPT_TEXT, AT(out), "PATH", 0, 0,
     "where results go: a file for analyze, a folder for compare and report, either for\n"
     "eval (FILE.h5 or a folder); for quantize the checkpoint's folder, or the GGUF file;\n"
     "for convert a folder"},
    {"stats", 0, VERB_QUANTIZE, OPT_TEXT, AT(stats), "FILE", 0, 0,
     "the report of the run as an HDF5 file as well"},
    {"resume", 0, VERB_QUANTIZE | GRID, OPT_FLAG, AT(resume), NULL, 0, 0,
     "go on with a run that was broken off, after its last finished layer, or cell of the\n"
     "table"},
    {"force", 'f', VERB_QUANTIZE | VERB_CONVERT, OPT_FLAG, AT(force), NULL, 0, 0,
     "replace what is at --out"},
    {"requantize", 0, VERB_QUANTIZE, OPT_FLAG, AT(requantize), NULL, 0, 0,
     "take a MODEL that is quantized already"},
    {"context", 0, TEXT | VERB_INSPECT, OPT_INT, AT(context), "N", 2, INT32_MAX,
     "tokens in a window (default 512, or what the model allows if that is less;\n"
     "more than it allows is run with a warning)"},
    {"max-tokens", 0, TEXT | VERB_INSPECT, OPT_INT, AT(max_tokens), "N", 2, INT32_MAX,
     "stop after so many tokens of text"},
    {"bos", 0, TEXT, OPT_CHOICE, AT(bos), "auto|none", 0, 0,
     "begin each window with the BOS token where the tokenizer does (default), or not"},
    {"convention", 0, MEASURE, OPT_CHOICE, AT(convention),
     "disjoint|strided|llama.cpp|lm-eval|gptq", 0, 0,
     "how the text is cut into windows and which tokens are scored: as this program does\n"
     "(default), or as other tools do, to compare with their perplexities"},
    {"stride", 0, MEASURE, OPT_INT, AT(stride), "N", 1, INT32_MAX,
     "with --convention strided: tokens that each window scores (default: half of --context)"},
    {"logit-bits", 0, MEASURE, OPT_SPLIT, AT(logit_bits), "LIST", 0, 0,
     "bits of the attention logits, of 16,8,6,4; 16 leaves them as they are; analyze\n"
     "takes one of them "
     "(default 16; eval, compare: all four)"},
    {"logit-scale", 0, MEASURE, OPT_CHOICE, AT(logit_scale), "tensor|head|row", 0, 0,
     "what shares one scale: all logits of a layer (default), a head's map, a row"},
    {"weights", 0, MEASURE, OPT_SPLIT, AT(weights), "LIST", 0, 0,
     "kinds of quantized models: fp, w8, w4:g64, w4:g128:asym:clip, rounded in memory; eval\n"
     "and compare also w4:g64:gptq, w4:awq, w4:rotate:gptq, w8a8:smooth, w4a8kv4 (bits of\n"
     "weights, of inputs, of keys and values); analyze takes one (default fp)"},
    {"maps-layer", 0, VERB_ANALYZE | VERB_COMPARE, OPT_INT, AT(maps_layer), "L", 0, INT32_MAX,
     "layer whose whole maps are kept for one passage (default: that of the largest logit)"},
    {"color", 0, GRID | VERB_REPORT, OPT_CHOICE, AT(color), "auto|linear|log", 0, 0,
     "how the heatmaps' colours follow magnitude (default: as suits each picture)"},
    {"no-record", 0, VERB_ANALYZE, OPT_FLAG, AT(no_record), NULL, 0, 0,
     "run without recording, to time it"},
    {"no-loss", 0, VERB_ANALYZE, OPT_FLAG, AT(no_loss), NULL, 0, 0,
     "leave the perplexity out, and with it the product with the vocabulary: a fifth less work\n"
     "in a small model"},
    {"prompt", 0, VERB_GENERATE, OPT_TEXT, AT(prompt), "TEXT", 0, 0, "text to continue"},
    {"n-tokens", 'n', VERB_GENERATE, OPT_INT, AT(n_tokens), "N", 1, INT32_MAX,
     "tokens to add (default 64)"},
    {"device", 0, RUN | VERB_QUANTIZE, OPT_CHOICE, AT(device), "auto|cpu|cuda|cuda:N",
     0, 0, "where to compute (default auto: the first GPU, the CPU where there is none)"},
    {"device-memory", 0, RUN | VERB_QUANTIZE, OPT_SIZE, AT(device_memory), "SIZE", 0, 0,
     "most of a GPU's memory to use, as 8G; weights that find no room come from the host's as\n"
     "they are needed (default: all that is free)"},
    {"dtype", 0, RUN | VERB_QUANTIZE, OPT_CHOICE, AT(dtype), "f32|bf16", 0, 0,
     "numbers in products (default f32, exact; bf16 is faster on GPUs, and CPUs that have it)"},
    {"tf32", 0, RUN | VERB_QUANTIZE, OPT_FLAG, AT(tf32), NULL, 0, 0,
     "let a GPU round what --dtype f32 multiplies to TF32, 11 bits: faster, not exact"},
    {"stream", 0, MEASURE, OPT_FLAG, AT(stream), NULL, 0, 0,
     "hold only the weights at work, a layer's or the head's, and read the file again for each\n"
     "batch of the text: the same results in the memory that inspect states"},
    {"threads", 0, RUN | VERB_QUANTIZE | VERB_INSPECT, OPT_INT, AT(threads), "N", 1, 4096,
     "threads to use (default: all cores, or OMP_NUM_THREADS)"},
    {"json", 0, 0, OPT_FLAG, AT(json), NULL, 0, 0, "print results as JSON"},
    {"quiet", 'q', 0, OPT_FLAG, AT(quiet), NULL, 0, 0, "no progress, no messages"},
    {"help", 'h', 0, OPT_FLAG, AT(help), NULL, 0, 0, "show this help"},
};
const NeedRow settings_needs[] = {
    {"shots-from", "shots"},
    {"needle-form", "needles"},
    {"samples", "needles"},
    {"orders", "order"},
};

const int settings_n_verbs = sizeof settings_verbs / sizeof settings_verbs[0];
const int settings_n_options = sizeof settings_options / sizeof settings_options[0];
const int settings_n_needs = sizeof settings_needs / sizeof settings_needs[0];
