/* fit.c - what several families settle alike. */
#include <string.h>

#include "analysis/model/archs/archs.h"

Status fit_refuse(bool is_so, const char *path, const char *key, const char *why)
{
    if (is_so)
        FAIL(ERR_UNSUPPORTED, "%s: %s: %s", path, key, why);
    return OK;
}

/* One kind a layer: "full_attention" or "sliding_attention". */
static Status read_types(Config *c, const Json *list, int64_t reach, const char *path)
{
    int64_t n = c->model.n_layers;
    if (list->kind != JSON_LIST || list->n != n)
        FAIL(ERR_SHAPE, "%s: layer_types is not a list of num_hidden_layers, %lld", path,
             (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const Json *type = &list->at[i];
        bool        slides = type->kind == JSON_TEXT &&
                      strcmp(type->text, "sliding_attention") == 0;
        if (!slides && (type->kind != JSON_TEXT || strcmp(type->text, "full_attention") != 0))
            FAIL(ERR_UNSUPPORTED, "%s: layer_types[%lld] is \"%.80s\", expected full_attention "
                 "or sliding_attention", path, (long long)i,
                 type->kind == JSON_TEXT ? type->text : json_kind_name(type->kind));
        if (slides && !reach)
            FAIL(ERR_FORMAT, "%s: layer_types[%lld] is sliding_attention, but there is no "
                 "sliding_window", path, (long long)i);
        c->layers[i].reach = slides ? reach : 0;
    }
    return OK;
}

Status fit_windows(Config *c, Arena *a, const Json *root, const char *path)
{
    const ConfigKeys *k = &c->keys;
    const Json       *types = json_member(root, "layer_types");
    const Json       *width = json_member(root, "sliding_window");
    int64_t           reach = width && width->kind == JSON_NULL ? 0 : k->sliding_window;
    (void)a;
    if (!k->use_sliding_window)
        reach = 0;
    else if (width && width->kind != JSON_NULL)
        TRY(fit_refuse(!reach, path, "sliding_window", "0 keys, expected null for none"));
    if (types && types->kind != JSON_NULL)
        return read_types(c, types, reach, path);
    for (int64_t i = k->max_window_layers; i < c->model.n_layers; i++)
        c->layers[i].reach = reach;
    return OK;
}
