/* Responses that are kept: bounded in bytes and time, each for its tenant alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside/api/store/store.h"

static struct weft_str str(const char *text) {
    return (struct weft_str){text, strlen(text)};
}

static bool put(weft_api_store *store, uint64_t tenant, const char *id, const char *text,
                uint64_t now_ms) {
    const struct kept_response kept = {tenant, str(id), str(text), str("[]")};
    return wefti_api_store_put(store, &kept, now_ms);
}

/* True: it is there, with this text. */
static bool has(weft_api_store *store, uint64_t tenant, const char *id, const char *text,
                uint64_t now_ms) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    bool is_there = wefti_api_store_get(store, tenant, str(id), KEPT_RESPONSE, now_ms, &out);
    if (is_there) assert_string_equal(weft_buf_cstr(&out), text);
    assert_true(is_there || out.len == 0);
    weft_buf_fini(&out);
    return is_there;
}

static void each_tenant_finds_its_own(void **state) {
    (void)state;
    weft_api_store *store = wefti_api_store_new(1 << 20, 1000);
    assert_true(put(store, 1, "a", "one", 0) && put(store, 2, "a", "two", 0));
    assert_true(put(store, 0, "b", "nobody's", 0));
    assert_true(has(store, 1, "a", "one", 0) && has(store, 2, "a", "two", 0));
    assert_false(has(store, 3, "a", "", 0) || has(store, 1, "b", "", 0));
    assert_false(wefti_api_store_drop(store, 3, str("a"), 0));
    assert_true(wefti_api_store_drop(store, 1, str("a"), 0));
    assert_false(has(store, 1, "a", "", 0) || wefti_api_store_drop(store, 1, str("a"), 0));
    assert_true(has(store, 2, "a", "two", 0));
    assert_true(put(store, 2, "a", "three", 0)); /* in its place */
    assert_true(has(store, 2, "a", "three", 0));
    assert_int_equal(wefti_api_store_figures(store).n, 2);
    wefti_api_store_free(store);
}

static void what_is_over_is_gone(void **state) {
    (void)state;
    weft_api_store *store = wefti_api_store_new(1 << 20, 1000);
    assert_true(put(store, 1, "a", "one", 0) && put(store, 1, "b", "two", 500));
    assert_true(has(store, 1, "a", "one", 999));
    assert_false(has(store, 1, "a", "", 1000));
    assert_true(has(store, 1, "b", "two", 1499));
    assert_false(has(store, 1, "b", "", 1500));
    const struct store_figures figures = wefti_api_store_figures(store);
    assert_true(figures.n == 0 && figures.bytes == 0);
    wefti_api_store_free(store);
}

static void the_oldest_make_room(void **state) {
    (void)state;
    char text[1001], id[16];
    weft_api_store *store = wefti_api_store_new(8000, 1000);
    memset(text, 'x', 1000);
    text[1000] = '\0';
    for (uint32_t i = 0; i < 100; i++) {
        (void)snprintf(id, sizeof id, "%u", i);
        assert_true(put(store, 1, id, text, i));
        assert_true(wefti_api_store_figures(store).bytes <= 8000);
        assert_true(has(store, 1, id, text, i));
    }
    assert_true(has(store, 1, "95", text, 100) && !has(store, 1, "90", "", 100));
    wefti_api_store_free(store);
}

static void one_takes_a_quarter_at_most(void **state) {
    (void)state;
    char text[2101];
    weft_api_store *store = wefti_api_store_new(8000, 1000);
    memset(text, 'x', 2100);
    text[2100] = '\0';
    assert_true(put(store, 1, "a", "one", 0));
    assert_false(put(store, 1, "b", text, 0));
    assert_true(has(store, 1, "a", "one", 0) && !has(store, 1, "b", "", 0));
    wefti_api_store_free(store);
}

/* Random requests of several tenants against a plain array. */
#define N_IDS 12
#define N_TENANTS 4

static void no_tenant_ever_sees_anothers(void **state) {
    (void)state;
    uint64_t until[N_TENANTS][N_IDS] = {{0}};
    const char *seed = getenv("WEFT_SEED");
    uint64_t dice = seed ? strtoull(seed, NULL, 10) : 42, now_ms = 0;
    weft_api_store *store = wefti_api_store_new(1 << 20, 50);
    for (uint32_t i = 0; i < 200000; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        uint64_t tenant = (dice >> 33) % N_TENANTS, id = (dice >> 40) % N_IDS;
        char name[16], text[32];
        (void)snprintf(name, sizeof name, "resp_%u", (unsigned)id);
        (void)snprintf(text, sizeof text, "of %u: %u", (unsigned)tenant, (unsigned)id);
        now_ms += (dice >> 60) == 0;
        bool is_there = until[tenant][id] > now_ms;
        switch ((dice >> 50) % 4) {
        case 0:
            assert_true(put(store, tenant, name, text, now_ms));
            until[tenant][id] = now_ms + 50;
            break;
        case 1:
            assert_int_equal(wefti_api_store_drop(store, tenant, str(name), now_ms), is_there);
            until[tenant][id] = 0;
            break;
        default:
            assert_int_equal(has(store, tenant, name, text, now_ms), is_there);
        }
    }
    wefti_api_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tenant_finds_its_own),
        cmocka_unit_test(what_is_over_is_gone),
        cmocka_unit_test(the_oldest_make_room),
        cmocka_unit_test(one_takes_a_quarter_at_most),
        cmocka_unit_test(no_tenant_ever_sees_anothers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
