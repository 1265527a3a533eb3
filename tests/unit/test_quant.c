/* The points of lattices that some of GGUF's types have. The hashes were made from the coordinates that
 * GGML's definition gives. */
#include "kernels_test.h"

#include "inside/kernels/quant_grids.h"

static uint64_t fnv(uint64_t hash, const void *data, size_t n) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    }
    return hash;
}

static const uint64_t fnv_of_nothing = 0xcbf29ce484222325;

static void grids_are_the_formats(void **state) {
    (void)state;
    static const struct {
        const uint16_t *points;
        uint32_t n, bits; /* of a coordinate */
        uint64_t hash;
    } grids[] = {
        {wefti_kern_grid_iq1, 2048, 2, 0xec28b6368f0c62e0ull},
        {wefti_kern_grid_iq2_xxs, 256, 2, 0xab05d880babe6823ull},
        {wefti_kern_grid_iq2_xs, 512, 2, 0x6853eeeddb7ea013ull},
        {wefti_kern_grid_iq2_s, 1024, 2, 0x2c1955b62f3d75bdull},
        {wefti_kern_grid_iq3_xxs, 256, 3, 0xe94d0633d4024cd5ull},
        {wefti_kern_grid_iq3_s, 512, 3, 0x5d10ecbdf51ec43bull},
    };
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        const uint32_t bits = grids[g].bits, n_coordinates = bits == 2 ? 8 : 4;
        uint64_t hash = fnv_of_nothing;
        for (uint32_t i = 0; i < grids[g].n; i++) {
            const uint32_t point = grids[g].points[i];
            assert_true(i == 0 || point > grids[g].points[i - 1]);
            assert_true(point >> bits * n_coordinates == 0);
            for (uint32_t c = 0; c < n_coordinates; c++) {
                const uint8_t coordinate = (uint8_t)(point >> bits * c & ((1u << bits) - 1));
                hash = fnv(hash, &coordinate, 1);
            }
        }
        assert_true(hash == grids[g].hash);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(grids_are_the_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
