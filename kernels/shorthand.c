/* The shorthand of a quantizer, read and written: see shorthand.h.
 *
 * One table of options: the rows of stages.h (transforms, ranges) and the own rows below, in the
 * order in which the canonical text prints them. What settings mean together with a tensor's shape
 * is kv_quantizer_check's business; here only what a text can say is judged. */
#include "kernels/shorthand.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/memory.h"
#include "kernels/text.h"

enum { LONGEST = 255, MAX_NAMES = 64, LIST_ROOM = 640 };

/* ---- lists of names, for messages ---- */

typedef struct {
    const char *names[MAX_NAMES];
    size_t count;
} name_list;

static void add_name(name_list *list, const char *name)
{
    if (list->count < MAX_NAMES) list->names[list->count++] = name;
}

static void add_stage_names(name_list *list, const kv_stage_row *(*at)(size_t))
{
    for (size_t i = 0; at(i); i++) add_name(list, at(i)->name);
}

/* `unknown WHAT "x", did you mean "y"? WHATs: a, b, c` */
static kv_status unknown_name(const char *what, const char *found, const name_list *list,
                              const char *more, kv_error *err)
{
    char all[LIST_ROOM] = "";
    size_t used = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t const length = strlen(list->names[i]);
        if (used + length + 3 > sizeof all) break;
        if (i) memcpy(all + used, ", ", 2), used += 2;
        memcpy(all + used, list->names[i], length + 1), used += length;
    }
    const char *const closest = kv_closest_name(found, list->names, list->count);
    return KV_FAIL(err, KV_EREQUEST, "unknown %s \"%s\"%s%s%s %ss: %s%s", what, found,
                   closest ? ", did you mean \"" : ";", closest ? closest : "",
                   closest ? "\"?" : "", what, all, more);
}

/* ---- tiles ---- */

static bool parse_extent(const char *text, int64_t *extent)
{
    if (strcmp(text, "all") == 0) return *extent = 0, true;
    return kv_parse_int(text, extent) && *extent >= 1;
}

/* allxall, allx1 and 1xall are the tiles that have a name: one canonical text for one meaning. */
static void name_block(kv_quantizer *q)
{
    int64_t const tokens = q->tile_tokens, channels = q->tile_channels;
    if (tokens == 0 && channels == 0) q->tile = KV_TILE_HEAD;
    if (tokens == 0 && channels == 1) q->tile = KV_TILE_CHANNEL;
    if (tokens == 1 && channels == 0) q->tile = KV_TILE_TOKEN;
    if (q->tile != KV_TILE_BLOCK) q->tile_tokens = q->tile_channels = 0;
}

static kv_status parse_tile(kv_quantizer *q, const char *text, kv_error *err)
{
    name_list list = {.count = 0};
    for (size_t i = 0; i < KV_TILE_BLOCK; i++) {
        add_name(&list, kv_tile_at(i)->name);
        if (strcmp(text, kv_tile_at(i)->name) == 0) return q->tile = (kv_tile)i, KV_OK;
    }
    char tokens[LONGEST + 1];
    const char *const by = strchr(text, 'x');
    if (by) {
        memcpy(tokens, text, (size_t)(by - text));
        tokens[by - text] = '\0';
        if (parse_extent(tokens, &q->tile_tokens) && parse_extent(by + 1, &q->tile_channels)) {
            q->tile = KV_TILE_BLOCK;
            return name_block(q), KV_OK;
        }
    }
    return unknown_name("tile", text, &list, ", or TOKENSxCHANNELS like 32x1, with \"all\" allowed",
                        err);
}

/* ---- values ---- */

static kv_status parse_count(int64_t *out, const char *option, const char *value, kv_error *err)
{
    if (!value) return KV_FAIL(err, KV_EREQUEST, "%s needs a whole number: %s=128", option, option);
    if (!kv_parse_int(value, out) || *out < 1)
        return KV_FAIL(err, KV_EREQUEST, "%s=%s: expected a whole number of at least 1", option,
                       value);
    return KV_OK;
}

static kv_status parse_number(double *out, const kv_stage_row *row, const char *value,
                              kv_error *err)
{
    double found;
    if (!kv_parse_real(value, &found) || found < row->minimum || found > row->maximum)
        return KV_FAIL(err, KV_EREQUEST, "%s=%s: expected a number from %g to %g", row->name, value,
                       row->minimum, row->maximum);
    *out = found;
    return KV_OK;
}

static kv_status refuse_value(const char *option, const char *value, kv_error *err)
{
    if (!value) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "%s takes no value, found \"%s\"", option, value);
}

/* ---- the own options ---- */

static kv_status set_zero(kv_quantizer *q, const char *value, kv_error *err)
{
    q->is_asymmetric = true;
    return refuse_value("zero", value, err);
}

static kv_status set_pre_rope(kv_quantizer *q, const char *value, kv_error *err)
{
    q->is_pre_rope = true;
    return refuse_value("pre-rope", value, err);
}

static kv_status set_outliers(kv_quantizer *q, const char *value, kv_error *err)
{
    double percent;
    if (!value || !kv_parse_real(value, &percent) || percent <= 0 || percent >= 100)
        return KV_FAIL(err, KV_EREQUEST,
                       "outliers=%s: expected a percentage above 0 and below 100, as outliers=1",
                       value ? value : "");
    q->outliers_percent = percent;
    return KV_OK;
}

static kv_status set_static(kv_quantizer *q, const char *value, kv_error *err)
{
    bool const from_seeds = value && strncmp(value, "seed:", 5) == 0;
    int64_t *const count = from_seeds ? &q->static_seeds : &q->static_tokens;
    if (!value || !kv_parse_int(from_seeds ? value + 5 : value, count) || *count < 1)
        return KV_FAIL(err, KV_EREQUEST,
                       "static=%s: expected static=N (ranges from the first N tokens) or "
                       "static=seed:K (from K other seeds)",
                       value ? value : "");
    return KV_OK;
}

static kv_status set_scale(kv_quantizer *q, const char *value, kv_error *err)
{
    for (size_t i = 0; value && kv_scale_at(i); i++)
        if (strcmp(value, kv_scale_at(i)->name) == 0)
            return q->scale_storage = (kv_scale_storage)i, KV_OK;
    name_list list = {.count = 0};
    add_stage_names(&list, kv_scale_at);
    return unknown_name("scale", value ? value : "", &list, "", err);
}

static kv_status set_sinks(kv_quantizer *q, const char *value, kv_error *err)
{
    return parse_count(&q->sinks, "sinks", value, err);
}

static kv_status set_window(kv_quantizer *q, const char *value, kv_error *err)
{
    return parse_count(&q->window, "window", value, err);
}

static kv_status set_flush(kv_quantizer *q, const char *value, kv_error *err)
{
    return parse_count(&q->flush, "flush", value, err);
}

typedef struct {
    const char *name, *value, *about; /* `value` is what follows the name in listings */
    bool needs_scale; /* means nothing for formats that have no scale of their own */
    kv_status (*set)(kv_quantizer *q, const char *value, kv_error *err);
} option_row;

/* clang-format off */
static const option_row options[] = {
    {"zero", "", "asymmetric: a scale and a minimum (integer formats)", true, set_zero},
    {"outliers", "=P", "P % of each vector, its two tails, stay at f16 with a 16-bit index each",
     true, set_outliers},
    {"pre-rope", "", "keys are quantized before RoPE", false, set_pre_rope},
    {"static", "=N | seed:K", "ranges from the first N tokens, or from K other draws of the heads",
     true, set_static},
    {"scale", "=NAME", "how scales and minima are stored; default f32", true, set_scale},
    {"sinks", "=N", "the first N tokens stay at f16", false, set_sinks},
    {"window", "=N", "the last N tokens stay at f16", false, set_window},
    {"flush", "=N", "the last T mod N tokens stay at f16 (KIVI's keys)", false, set_flush},
};
/* clang-format on */
enum { N_OPTIONS = sizeof options / sizeof options[0] };

void kv_shorthand_list(FILE *out)
{
    fputs("A scheme: format[/tile][:option[=value]]..., for example int4/32x1:zero:scale=f16\n"
          "\ntiles: what shares a scale\n",
          out);
    for (size_t i = 0; kv_tile_at(i); i++)
        fprintf(out, "  %-20s %s\n", kv_tile_at(i)->name, kv_tile_at(i)->about);
    fputs("\noptions\n", out);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        int const width = 20 - (int)strlen(options[i].name);
        fprintf(out, "  %s%-*s %s\n", options[i].name, width, options[i].value, options[i].about);
    }
    kv_stages_list(out);
}

/* ---- transforms and ranges ---- */

static kv_status set_transform(kv_quantizer *q, size_t id, char *value, kv_error *err)
{
    const kv_stage_row *const row = kv_transform_at(id);
    kv_transform_setting *const t = &q->transforms[id];
    t->is_on = true;
    if (!value) {
        if (row->value == KV_VALUE_REQUIRED)
            return KV_FAIL(err, KV_EREQUEST, "%s needs a value", row->name);
        return KV_OK;
    }
    if (row->value == KV_VALUE_NONE) return refuse_value(row->name, value, err);
    kv_status const status = parse_number(&t->value, row, value, err);
    if (status != KV_OK) return status;
    if (t->value == 0) /* stands for the preset inside */
        return KV_FAIL(err, KV_EREQUEST, "%s=%s: expected a number above 0", row->name, value);
    if (id == KV_TRANSFORM_HADAMARD) {
        int64_t const n = (int64_t)t->value;
        if ((double)n != t->value || (n & (n - 1)) != 0)
            return KV_FAIL(err, KV_EREQUEST, "%s=%s: expected a power of two", row->name, value);
    }
    if (t->value == row->preset) t->value = 0; /* the preset has one spelling */
    return KV_OK;
}

static kv_status set_range(kv_quantizer *q, size_t id, const char *value, kv_error *err)
{
    const kv_stage_row *const row = kv_range_at(id);
    q->range = (kv_range)id;
    if (row->value == KV_VALUE_NONE) return refuse_value(row->name, value, err);
    if (!value) return KV_FAIL(err, KV_EREQUEST, "%s needs a value: %s=99.9", row->name, row->name);
    return parse_number(&q->range_value, row, value, err);
}

/* ---- parsing ---- */

/* Why a format without a scale takes neither a tile nor options of ranges. */
static const char *own_range(const kv_format *f, const char *of_block)
{
    return f->kind == KV_KIND_BLOCK ? of_block : "has no scale";
}

static kv_status parse_format(kv_quantizer *q, char *text, kv_error *err)
{
    char *const slash = strchr(text, '/');
    if (slash) *slash = '\0';
    const kv_format *f = NULL;
    for (size_t i = 0; !f && kv_format_at(i); i++)
        if (strcmp(kv_format_at(i)->name, text) == 0) {
            f = kv_format_at(i);
            q->format = (kv_format_id)i;
        }
    if (!f) {
        name_list list = {.count = 0};
        for (size_t i = 0; kv_format_at(i); i++) add_name(&list, kv_format_at(i)->name);
        return unknown_name("format", text, &list, "", err);
    }
    if (!slash) return KV_OK;
    if (!kv_format_has_scale(f))
        return KV_FAIL(err, KV_EREQUEST, "%s %s and takes no tile, found \"%s\"", f->name,
                       own_range(f, "owns its blocks of 32 channels"), slash + 1);
    return parse_tile(q, slash + 1, err);
}

/* Which options were given, one bit each: own rows, then transforms, then one for all ranges. */
typedef struct {
    uint32_t own, transforms;
    const char *range;
} given_options;

static kv_status given_twice(const char *name, kv_error *err)
{
    return KV_FAIL(err, KV_EREQUEST, "%s is given twice", name);
}

static kv_status needs_scale(const kv_quantizer *q, const char *option, kv_error *err)
{
    const kv_format *const f = kv_format_at(q->format);
    if (kv_format_has_scale(f)) return KV_OK;
    return KV_FAIL(err, KV_EREQUEST, "%s does not go with %s, which %s", option, f->name,
                   own_range(f, "fixes its own range and scale"));
}

static kv_status parse_option(kv_quantizer *q, char *text, given_options *given, kv_error *err)
{
    kv_status status = KV_OK;
    char *value = strchr(text, '=');
    char *const plus = strchr(text, '+');
    bool const has_signs = plus && strcmp(plus, "+signs") == 0;
    if (has_signs) *plus = '\0';
    if (value) *value++ = '\0';
    name_list list = {.count = 0};

    for (size_t i = 0; kv_transform_at(i); i++) {
        add_name(&list, kv_transform_at(i)->name);
        if (strcmp(text, kv_transform_at(i)->name)) continue;
        if (given->transforms & (1u << i)) return given_twice(text, err);
        given->transforms |= 1u << i;
        if (has_signs && i != KV_TRANSFORM_HADAMARD)
            return KV_FAIL(err, KV_EREQUEST, "%s takes no +signs, only hadamard does", text);
        q->transforms[i].has_signs = has_signs;
        return set_transform(q, i, value, err);
    }
    if (has_signs) *plus = '+';
    for (size_t i = 0; kv_range_at(i); i++) {
        if (i != KV_RANGE_EXTREMES) add_name(&list, kv_range_at(i)->name);
        if (i == KV_RANGE_EXTREMES || strcmp(text, kv_range_at(i)->name)) continue;
        if (given->range && strcmp(given->range, kv_range_at(i)->name) == 0)
            return given_twice(text, err);
        if (given->range)
            return KV_FAIL(err, KV_EREQUEST, "%s and %s are both range rules: give one",
                           given->range, text);
        given->range = kv_range_at(i)->name;
        KV_TRY(needs_scale(q, text, err));
        return set_range(q, i, value, err);
    }
    for (size_t i = 0; i < N_OPTIONS; i++) {
        add_name(&list, options[i].name);
        if (strcmp(text, options[i].name)) continue;
        if (given->own & (1u << i)) return given_twice(text, err);
        given->own |= 1u << i;
        if (options[i].needs_scale) KV_TRY(needs_scale(q, text, err));
        return options[i].set(q, value, err);
    }
    if (!*text) return KV_FAIL(err, KV_EREQUEST, "an option is missing after \":\"");
    return unknown_name("option", text, &list, "", err);
done:
    return status;
}

/* Cuts the next part off *rest, up to a ':' (the one of static=seed:K is part of the value). */
static char *next_part(char **rest)
{
    char *const part = *rest;
    if (!part) return NULL;
    size_t const skip = strncmp(part, "static=seed:", 12) == 0 ? 12 : 0;
    char *const colon = strchr(part + skip, ':');
    if (colon) *colon = '\0';
    *rest = colon ? colon + 1 : NULL;
    return part;
}

kv_status kv_quantizer_parse(kv_quantizer *out, const char *text, bool is_key, kv_error *err)
{
    kv_status status = KV_OK;
    kv_quantizer q = {0};
    given_options given = {0};
    char buffer[LONGEST + 1], *rest = buffer;
    size_t const length = strlen(text);
    if (length > LONGEST)
        return KV_FAIL(err, KV_EREQUEST, "a quantizer's text is at most %d bytes long, found %zu",
                       LONGEST, length);
    memcpy(buffer, text, length + 1);
    KV_TRY(parse_format(&q, next_part(&rest), err));
    for (char *part; (part = next_part(&rest));) KV_TRY(parse_option(&q, part, &given, err));
    if (q.is_pre_rope && !is_key)
        KV_TRY(KV_FAIL(err, KV_EREQUEST, "pre-rope is for keys, values are not rotated"));
    *out = q;
done:
    if (status != KV_OK) kv_error_prepend(err, "\"%s\"", text);
    return status;
}

/* ---- printing ---- */

static kv_status print_count(kv_text *t, const char *name, int64_t count, kv_error *err)
{
    return count ? kv_text_add(t, err, ":%s=%" PRId64, name, count) : KV_OK;
}

static kv_status print_extent(kv_text *t, int64_t extent, kv_error *err)
{
    return extent ? kv_text_add(t, err, "%" PRId64, extent) : kv_text_add(t, err, "all");
}

static kv_status print_tile(kv_text *t, const kv_quantizer *q, kv_error *err)
{
    kv_status status = KV_OK;
    KV_TRY(kv_text_add(t, err, "/"));
    if (q->tile != KV_TILE_BLOCK) return kv_text_add(t, err, "%s", kv_tile_at(q->tile)->name);
    KV_TRY(print_extent(t, q->tile_tokens, err));
    KV_TRY(kv_text_add(t, err, "x"));
    KV_TRY(print_extent(t, q->tile_channels, err));
done:
    return status;
}

static kv_status print_stages(kv_text *t, const kv_quantizer *q, bool has_scale, kv_error *err)
{
    kv_status status = KV_OK;
    char number[KV_REAL_TEXT];
    for (size_t i = 0; kv_transform_at(i); i++) {
        const kv_transform_setting *const set = &q->transforms[i];
        if (!set->is_on) continue;
        KV_TRY(kv_text_add(t, err, ":%s", kv_transform_at(i)->name));
        if (set->value != 0 && set->value != kv_transform_at(i)->preset)
            KV_TRY(kv_text_add(t, err, "=%s", kv_real_text(number, set->value)));
        if (set->has_signs) KV_TRY(kv_text_add(t, err, "+signs"));
    }
    if (!has_scale) goto done;
    if (q->outliers_percent > 0)
        KV_TRY(kv_text_add(t, err, ":outliers=%s", kv_real_text(number, q->outliers_percent)));
    if (q->is_asymmetric) KV_TRY(kv_text_add(t, err, ":zero"));
    if (q->range != KV_RANGE_EXTREMES) {
        KV_TRY(kv_text_add(t, err, ":%s", kv_range_at(q->range)->name));
        if (kv_range_at(q->range)->value != KV_VALUE_NONE)
            KV_TRY(kv_text_add(t, err, "=%s", kv_real_text(number, q->range_value)));
    }
    KV_TRY(print_count(t, "static", q->static_tokens, err));
    if (q->static_seeds) KV_TRY(kv_text_add(t, err, ":static=seed:%" PRId64, q->static_seeds));
    if (q->scale_storage != KV_SCALE_F32)
        KV_TRY(kv_text_add(t, err, ":scale=%s", kv_scale_at(q->scale_storage)->name));
done:
    return status;
}

kv_status kv_quantizer_text(char **out, const kv_quantizer *q, kv_error *err)
{
    kv_status status = KV_OK;
    kv_text t = {0};
    const kv_format *const f = kv_format_at(q->format);
    KV_TRY(kv_text_add(&t, err, "%s", f->name));
    if (kv_format_has_scale(f)) KV_TRY(print_tile(&t, q, err));
    if (q->is_pre_rope) KV_TRY(kv_text_add(&t, err, ":pre-rope"));
    KV_TRY(print_stages(&t, q, kv_format_has_scale(f), err));
    KV_TRY(print_count(&t, "sinks", q->sinks, err));
    KV_TRY(print_count(&t, "window", q->window, err));
    KV_TRY(print_count(&t, "flush", q->flush, err));
    *out = kv_text_take(&t);
done:
    kv_text_free(&t);
    return status;
}

kv_status kv_scheme_canonical(char **out, const char *text, bool is_key, kv_error *err)
{
    kv_quantizer q;
    kv_error why = {0};
    kv_status const status = kv_quantizer_parse(&q, text, is_key, &why);
    if (status == KV_OK) return kv_quantizer_text(out, &q, err);
    if (status == KV_EREQUEST) return kv_duplicate(out, text, err);
    return KV_FAIL(err, status, "%s", why.message);
}
