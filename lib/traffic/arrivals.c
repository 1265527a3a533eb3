#include "arrivals.h"

#include <math.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/rand.h"

#define NS_PER_S 1e9
#define AT_S_MAX 1e10 /* three centuries; in nanoseconds it fits 64 bits */

/* In (0, 1]: its logarithm is finite. */
static double draw_positive(uint64_t *seed) {
    return 1 - weft_rand_unit(seed);
}

static double draw_normal(uint64_t *seed) {
    double radius = sqrt(-2 * log(draw_positive(seed)));
    return radius * cos(2 * M_PI * weft_rand_unit(seed));
}

/* Shape at least 1, mean `shape`. */
static double draw_gamma(double shape, uint64_t *seed) {
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    while (true) { /* accepts 19 of 20 */
        double x = draw_normal(seed), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(draw_positive(seed)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

double weft_traffic_gamma(double shape, uint64_t *seed) {
    WEFT_ASSERT(shape > 0 && isfinite(shape));
    if (shape >= 1) return draw_gamma(shape, seed) / shape;
    double boosted = draw_gamma(shape + 1, seed);
    return boosted * pow(draw_positive(seed), 1 / shape) / shape;
}

void weft_traffic_arrivals(double rate, double burstiness, uint64_t seed, uint32_t n,
                           uint64_t *at_ns_out) {
    double at_s = 0;
    WEFT_ASSERT(rate > 0 && burstiness >= 0);
    for (uint32_t i = 0; i < n; i++) {
        at_ns_out[i] = (uint64_t)(fmin(at_s, AT_S_MAX) * NS_PER_S);
        if (burstiness > 0)
            at_s += weft_traffic_gamma(burstiness, &seed) / rate;
        else
            at_s = (i + 1) / rate; /* a sum would drift */
    }
}
