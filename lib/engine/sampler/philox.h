/* engine, private: Philox 4x32-10, the counter-based generator of Salmon et al. (SC 2011).
 *
 * A number is a pure function of key and counter, so what a sequence draws at a position does not
 * depend on batch, preemption or restart. Known answers in tests/unit/test_sampler.c. */
#ifndef WEFT_ENGINE_PHILOX_H
#define WEFT_ENGINE_PHILOX_H

#include <stdint.h>

#define WEFTI_PHILOX_ROUNDS 10

static inline void wefti_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < WEFTI_PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Uniform in [0, 1) with 53 bits: for the token at `position` of choice `choice` of a request, from
 * a stream of its own for each use. */
static inline double wefti_philox_stream(uint64_t seed, uint32_t choice, uint32_t position,
                                         uint32_t stream) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t counter[4] = {position, stream, choice, 0}, out[4];
    wefti_philox(key, counter, out);
    uint64_t bits = (uint64_t)out[1] << 32 | out[0];
    return (double)(bits >> 11) * 0x1p-53;
}

/* That draws the token. */
static inline double wefti_philox_unit(uint64_t seed, uint32_t choice, uint32_t position) {
    return wefti_philox_stream(seed, choice, position, 0);
}

/* That decides whether XTC takes part. */
static inline double wefti_philox_chance(uint64_t seed, uint32_t choice, uint32_t position) {
    return wefti_philox_stream(seed, choice, position, 1);
}

#endif
