/* The sampler against distributions computed from the papers' definitions in float64
 * (shared/sampling, which is not part of the repository): one filter at a time, over five
 * vectors of logits. Every token that is drawn is one of those kept, and each is drawn as often
 * as it should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/engine/sampler/sampler.h"

enum { N = 1000, N_DRAWS = 4000, CHUNKS = (N + WEFT_CHUNK - 1) / WEFT_CHUNK, SKIPPED = 77 };

struct file { /* safetensors: a length, a header in JSON, then the data */
    char *bytes;
    json_t *header;
    uint64_t data_at;
};

static char path[4096];

static const char *shared(const char *name) {
    (void)snprintf(path, sizeof path, "%s/sampling/%s", getenv("WEFT_SHARED_DIR"), name);
    return path;
}

static struct file read_tensors(void) {
    struct file file = {0};
    FILE *in = fopen(shared("sampling.safetensors"), "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    size_t len = (size_t)ftell(in);
    rewind(in);
    file.bytes = malloc(len);
    assert_non_null(file.bytes);
    assert_int_equal(fread(file.bytes, 1, len, in), len);
    (void)fclose(in);
    memcpy(&file.data_at, file.bytes, sizeof file.data_at);
    file.header = json_loadb(file.bytes + 8, file.data_at, 0, NULL);
    assert_non_null(file.header);
    file.data_at += 8;
    return file;
}

static void copy_tensor(const struct file *file, const char *name, void *out, size_t n_bytes) {
    const json_t *offsets = json_object_get(json_object_get(file->header, name), "data_offsets");
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
    uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
    assert_int_equal(end - begin, n_bytes);
    memcpy(out, file->bytes + file->data_at + begin, n_bytes);
}

/* The parameter that a case's only step sets; false: another's. */
static bool set_parameter(const json_t *test, struct weft_sampling *s) {
    const char *name = json_string_value(json_object_get(test, "name"));
    const char *variant = json_string_value(json_object_get(test, "variant"));
    const json_t *step = json_array_get(json_object_get(test, "steps"), 0);
    const json_t *args = json_array_get(step, 1);
    float value =
        (float)json_number_value(json_object_iter_value(json_object_iter((json_t *)args)));
    if (json_array_size(json_object_get(test, "steps")) != 1) return false;
    if (variant && strcmp(variant, "llama.cpp") != 0) return false;
    weft_sampling_init(s);
    s->variant = WEFT_VARIANT_LLAMA_CPP;
    s->temperature = 1.0f;
    if (strcmp(name, "temperature") == 0) {
        s->temperature = value;
    } else if (strcmp(name, "top_n_sigma") == 0) {
        s->top_n_sigma = value;
    } else if (strcmp(name, "top_k") == 0) {
        s->top_k = (uint32_t)value;
    } else if (strcmp(name, "top_p") == 0 && value > 0.0f) {
        s->top_p = value;
    } else if (strcmp(name, "min_p") == 0) {
        s->min_p = value;
    } else {
        return false;
    }
    return true;
}

/* Frequencies within five standard deviations of their own; the rare ones pooled by themselves. */
static void check_draws(const char *what, const struct weft_sampling *s, const float *logits,
                        const double *p) {
    static _Alignas(64) float work[N], scratch_work[N];
    static uint32_t counts[N], hist_n[WEFTI_SAMPLER_BUCKETS], ids[N], tokens[N_DRAWS], drawn[N];
    static double hist_mass[WEFTI_SAMPLER_BUCKETS], sums[CHUNKS];
    static float maxima[CHUNKS], best[CHUNKS];
    struct wefti_sampler_scratch scratch = {scratch_work, counts, hist_n, hist_mass, ids,
                                            maxima,       best,   sums,   NULL};
    struct wefti_sampler_input sample = {.sampling = s, .tokens = tokens};
    const struct weft_kern_table *kern = NULL;
    assert_int_equal(weft_kern_select(&kern, NULL), WEFT_OK);
    memset(drawn, 0, sizeof drawn);
    for (uint32_t i = 0; i < N_DRAWS; i++) {
        memcpy(work, logits, sizeof work);
        sample.n_known = i;
        uint32_t token = wefti_sampler_choose(kern, &sample, work, N, &scratch);
        if (!(p[token] > 0.0)) fail_msg("%s: token %u was drawn", what, token);
        drawn[token]++;
    }
    for (uint32_t i = 0; i < N; i++) {
        double wanted = p[i] * N_DRAWS, sigma = sqrt(wanted * (1.0 - p[i])) + 1.0;
        if (fabs(drawn[i] - wanted) > 5.0 * sigma)
            fail_msg("%s: token %u was drawn %u times, not %g", what, i, drawn[i], wanted);
    }
}

static void every_filter_leaves_what_its_paper_says(void **state) {
    (void)state;
    struct file file = read_tensors();
    json_t *all = json_load_file(shared("sampling.json"), 0, NULL), *test;
    assert_non_null(all);
    size_t idx, n_sigma = 0;
    json_array_foreach(json_object_get(all, "cases"), idx, test) {
        struct weft_sampling s;
        static float logits[N];
        static double p[N];
        char name[64];
        if (!set_parameter(test, &s)) continue;
        s.seed = idx;
        n_sigma += s.top_n_sigma > 0.0f;
        (void)snprintf(name, sizeof name, "logits.%s",
                       json_string_value(json_object_get(test, "vector")));
        copy_tensor(&file, name, logits, sizeof logits);
        const char *expected = json_string_value(json_object_get(test, "expected"));
        copy_tensor(&file, expected, p, sizeof p);
        check_draws(expected, &s, logits, p);
    }
    assert_true(n_sigma >= 10);
    json_decref(all);
    json_decref(file.header);
    free(file.bytes);
}

int main(void) {
    FILE *there = getenv("WEFT_SHARED_DIR") ? fopen(shared("sampling.json"), "rb") : NULL;
    if (!there) {
        print_message("SKIPPED: no shared/sampling\n");
        return SKIPPED;
    }
    (void)fclose(there);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_filter_leaves_what_its_paper_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
