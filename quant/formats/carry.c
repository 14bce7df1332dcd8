/* carry.c - copies the files that make weights a complete model folder. */
#include "quant/formats/carry.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/filemap.h"
#include "kernels/outfile.h"

static bool is_carried(const char *name)
{
    static const char *const NAMES[] = {
        "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
        "added_tokens.json", "generation_config.json", "vocab.json", "vocab.txt", "merges.txt",
    };
    static const char *const STARTS[] = {"chat_template", "README", "LICENSE", "LICENCE",
                                         "NOTICE"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof STARTS / sizeof *STARTS; i++)
        if (strncmp(name, STARTS[i], strlen(STARTS[i])) == 0)
            return true;
    return false;
}

bool carry_is_known(const char *name)
{
    static const char *const ENDS[] = {".safetensors", ".safetensors.index.json", ".part"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++)
        if (n > strlen(ENDS[i]) && strcmp(name + n - strlen(ENDS[i]), ENDS[i]) == 0)
            return true;
    return is_carried(name) || strcmp(name, "config.json") == 0 ||
           strcmp(name, "quantize_config.json") == 0 || strncmp(name, "diffquant.", 10) == 0;
}

static Status carry_file(Arena *scratch, const char *from, const char *to, const char *name)
{
    struct stat st;
    FileMap     map = {0};
    Status      s = OK;
    ArenaMark   mark = arena_mark(scratch);
    const char *source = arena_printf(scratch, "%s/%s", from, name);
    const char *target = arena_printf(scratch, "%s/%s", to, name);
    if (!source || !target)
        FAIL(ERR_MEMORY, "out of memory: a file name");
    if (stat(source, &st) == 0 && !S_ISREG(st.st_mode))
        goto out;  // a folder of that name
    GUARD(filemap_open(&map, source));
    s = outfile_save(scratch, target, map.data, map.size);
out:
    filemap_close(&map);
    arena_rewind(scratch, mark);
    return s;
}

Status carry_files(Arena *scratch, const char *from, const char *to)
{
    DIR *folder = opendir(from);
    if (!folder)
        FAIL(ERR_IO, "%s: %s", from, strerror(errno));
    Status s = OK;
    errno = 0;
    for (struct dirent *e; (e = readdir(folder)); errno = 0)
        if (is_carried(e->d_name))
            GUARD(carry_file(scratch, from, to, e->d_name));
    if (errno)
        s = STATUS(ERR_IO, "%s: cannot be listed: %s", from, strerror(errno));
out:
    closedir(folder);
    return s;
}
