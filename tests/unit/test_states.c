/* Where states of recurrent layers lie in memory: apart from each other, one place in one piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inside/engine/recurrent/states.h"

enum { LAYERS = 5, PLACES = 4 };

/* Mamba-2, attention, a convolution alone, the delta rule, and matrices alone. */
static const struct wefti_state_shape shapes[LAYERS] = {
    {4, 37, 3, 16, 24}, {0}, {3, 20, 0, 0, 0}, {4, 100, 2, 20, 37}, {0, 0, 1, 7, 16}};

static void open_some(struct wefti_states *states) {
    struct weft_errmsg why = {""};
    if (wefti_states_open(states, shapes, LAYERS, PLACES, 0, &why)) fail_msg("%s", why.text);
    assert_int_equal(states->place_bytes, wefti_states_place_bytes(shapes, LAYERS));
    assert_int_equal(states->map_bytes, PLACES * states->place_bytes);
}

/* Adds 1 to every byte of a part. */
static size_t mark(void *part, size_t n_floats) {
    uint8_t *bytes = part;
    for (size_t i = 0; i < n_floats * sizeof(float); i++)
        bytes[i]++;
    assert_int_equal((uintptr_t)part % 64, 0);
    return n_floats * sizeof(float);
}

static size_t mark_place(const struct wefti_states *states, uint32_t place) {
    size_t n_marked = 0;
    for (uint32_t i = 0; i < LAYERS; i++) {
        const struct wefti_state_shape *s = &shapes[i];
        if (s->conv_width > 0)
            n_marked += mark(wefti_states_conv(states, place, i),
                             (size_t)(s->conv_width - 1) * s->n_channels);
        for (uint32_t head = 0; head < s->n_heads; head++)
            n_marked += mark(wefti_states_matrix(states, place, i, head),
                             weft_kern_state_floats(s->n_rows, s->n_columns));
    }
    return n_marked;
}

static void parts_share_no_byte_and_stay_within_their_place(void **state) {
    struct wefti_states states;
    (void)state;
    open_some(&states);
    for (uint32_t place = 0; place < PLACES; place++) {
        size_t n_marked = mark_place(&states, place), n_found = 0;
        const uint8_t *bytes = wefti_states_place(&states, place);
        for (size_t i = 0; i < states.place_bytes; i++) {
            assert_true(bytes[i] <= 1);
            n_found += bytes[i];
        }
        assert_int_equal(n_found, n_marked);
        assert_true(states.place_bytes - n_marked < (size_t)64 * LAYERS);
    }
    wefti_states_close(&states);
    wefti_states_close(&states);
}

static void copies_in_parts_are_copies(void **state) {
    struct wefti_states states;
    (void)state;
    open_some(&states);
    for (uint32_t place = 0; place < PLACES; place++) {
        uint8_t *bytes = wefti_states_place(&states, place);
        for (size_t i = 0; i < states.place_bytes; i++)
            bytes[i] = (uint8_t)(i * 7 + place);
    }
    for (uint32_t n_parts = 1; n_parts < 200; n_parts += 33) {
        uint8_t *to = wefti_states_place(&states, 1);
        memset(to, 0, states.place_bytes);
        for (uint32_t part = n_parts; part-- > 0;)
            wefti_states_copy(&states, 2, 1, part, n_parts);
        assert_memory_equal(to, wefti_states_place(&states, 2), states.place_bytes);
        assert_int_equal(wefti_states_place(&states, 0)[states.place_bytes - 1],
                         (uint8_t)((states.place_bytes - 1) * 7));
        assert_int_equal(to[states.place_bytes], 2);
    }
    wefti_states_copy(&states, 3, 3, 0, 1);
    assert_int_equal(wefti_states_place(&states, 3)[1], 10);
    wefti_states_close(&states);
}

static size_t resident_bytes(const struct wefti_states *states) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n_pages = (states->map_bytes + page - 1) / page, n = 0;
    unsigned char *is_there = test_calloc(n_pages, 1);
    assert_int_equal(mincore(states->map, states->map_bytes, is_there), 0);
    for (size_t i = 0; i < n_pages; i++)
        n += is_there[i] & 1u;
    test_free(is_there);
    return n * page;
}

static void places_take_memory_when_they_are_used(void **state) {
    const struct wefti_state_shape large = {4, 1024, 16, 128, 128};
    struct wefti_states states;
    struct weft_errmsg why = {""};
    (void)state;
    assert_int_equal(wefti_states_open(&states, &large, 1, 64, 0, &why), 0);
    assert_int_equal(resident_bytes(&states), 0);
    memset(wefti_states_place(&states, 5), 1, states.place_bytes);
    assert_true(resident_bytes(&states) >= states.place_bytes);
    assert_true(resident_bytes(&states) <= states.place_bytes + ((size_t)4 << 20)); /* huge pages */
    wefti_states_close(&states);
}

static void too_many_are_refused_in_words(void **state) {
    const struct wefti_state_shape large[] = {{0, 0, 1024, 512, 512}, {0, 0, 1024, 512, 512}};
    struct wefti_states states;
    struct weft_errmsg why = {""};
    (void)state;
    assert_int_equal(wefti_states_open(&states, large, 2, UINT32_MAX, 0, &why), WEFT_E_NOMEM);
    assert_string_equal(why.text, "no memory for 4294967295 recurrent states of 2147483648 bytes");
    wefti_states_close(&states);
    assert_int_equal(wefti_states_place_bytes(&shapes[1], 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_share_no_byte_and_stay_within_their_place),
        cmocka_unit_test(copies_in_parts_are_copies),
        cmocka_unit_test(places_take_memory_when_they_are_used),
        cmocka_unit_test(too_many_are_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
