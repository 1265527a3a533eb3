/* traffic/arrivals — when the requests of an open loop come, decided before the first is sent.
 *
 * Gaps are drawn from a gamma distribution whose mean is 1 / rate and whose shape is the burstiness,
 * as in vLLM's benchmark: 1 is a Poisson process, below 1 requests come in bursts, and the larger
 * it is, the more even the gaps. Pure: the same seed gives the same moments.
 * Source: Marsaglia and Tsang 2000 (gamma), Box and Muller 1958 (normal). */
#ifndef WEFT_TRAFFIC_ARRIVALS_H
#define WEFT_TRAFFIC_ARRIVALS_H

#include <stdint.h>

/* Of a gamma distribution with mean 1 and this shape (> 0). */
double weft_traffic_gamma(double shape, uint64_t *seed);

/* Fills in `n` moments in nanoseconds, ascending from 0. `rate` is per second, > 0; a `burstiness`
 * of 0 makes all gaps equal. */
void weft_traffic_arrivals(double rate, double burstiness, uint64_t seed, uint32_t n,
                           uint64_t *at_ns_out);

#endif
