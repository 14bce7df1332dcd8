/* left_over.c - see left_over.h. */
#include "analysis/model/left_over.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is name the pattern, with any numbers for its stars? */
static bool matches(const char *pattern, const char *name)
{
    const char *star;
    for (; (star = strchr(pattern, '*')); pattern = star + 1) {
        size_t before = (size_t)(star - pattern), digits;
        if (strncmp(pattern, name, before) != 0)
            return false;
        name += before;
        digits = strspn(name, "0123456789");
        if (!digits)
            return false;
        name += digits;
    }
    return strcmp(pattern, name) == 0;
}

static bool rule_matches(const Arch *arch, const TensorRule *rule, const char *name)
{
    return matches(rule->name, name) || matches(arch_bare_name(arch, rule->name), name);
}

/* The same tensor with the first part of its name, which files may leave out: then it is that
 * one that was taken (source.c). */
static const ModelTensor *find_double(const Source *s, const char *name)
{
    const char *prefix = s->config.arch->prefix;
    char        whole[SOURCE_NAME];
    if (!prefix)
        return NULL;
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return checkpoint_find(s->checkpoint, whole);
}

/* Known, and yet not asked for: twice there, or of a layer that has no such tensor. */
static Status refuse_known(const Source *s, const ModelTensor *t)
{
    const ModelTensor *other = find_double(s, t->name);
    long long n = (long long)s->config.model.n_layers;
    long long layer = strtoll(t->name + strcspn(t->name, "0123456789"), NULL, 10);
    if (other)
        FAIL(ERR_FORMAT, "%s/%s: tensor %s is there once more, as %s", s->folder, t->file,
             t->name, other->name);
    if (layer < n)
        FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s is not part of layer %lld", s->folder, t->file,
             t->name, layer);
    FAIL(ERR_SHAPE, "%s/%s: tensor %s, but %s has num_hidden_layers %lld", s->folder, t->file,
         t->name, s->described, n);
}

/* A tensor that nobody asked for: harmless, or another model than we think. */
Status left_over_check(const Source *s, const ModelTensor *t)
{
    const Arch *arch = s->config.arch;
    const TensorRule *known = NULL;
    if (arch_ignores(t->name))
        return OK;
    for (const TensorRule *r = arch->rules; r < arch->rules + arch->n_rules; r++) {
        if (!rule_matches(arch, r, t->name))
            continue;
        if (r->when == WHEN_UNTIED)
            return OK;  // a copy of the embedding: tied models may ship it
        known = r;
    }
    if (known && arch_present(known, &s->config.keys))
        return refuse_known(s, t);
    if (known)
        FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s, but %s has no %s", s->folder, t->file,
             t->name, s->described, arch_reason(known->when));
    FAIL(ERR_UNSUPPORTED, "%s/%s: tensor %s is not part of %s", s->folder, t->file, t->name,
         arch->architecture);
}
