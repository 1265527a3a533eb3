/* kernels/lanes_neon — multiply-adds by a lane, which must be a constant by itself: a switch is one once
 * loops are unrolled. */
#ifndef WEFT_KERNELS_LANES_NEON_H
#define WEFT_KERNELS_LANES_NEON_H

#include <arm_neon.h>
#include <stdint.h>

/* sum + w * a[lane] */
static inline __attribute__((always_inline)) float32x4_t fma_lane(float32x4_t sum, float32x4_t w,
                                                                  float32x4_t a, uint32_t lane) {
    switch (lane) {
    case 0:
        return vfmaq_laneq_f32(sum, w, a, 0);
    case 1:
        return vfmaq_laneq_f32(sum, w, a, 1);
    case 2:
        return vfmaq_laneq_f32(sum, w, a, 2);
    default:
        return vfmaq_laneq_f32(sum, w, a, 3);
    }
}

#endif
