/* traffic/plot — a load test's run as a picture: SVG that a browser shows in its own light or dark.
 *
 * Three panels: percentiles of the times to the first token, over when requests began; of the times
 * between tokens, over when each came; and the rates of requests that were answered and that
 * failed. Time is cut into slices, fewer where there is little to count. No script, no font, nothing fetched. */
#ifndef WEFT_TRAFFIC_PLOT_H
#define WEFT_TRAFFIC_PLOT_H

#include "base/buf.h"
#include "traffic/tally.h"

/* Appends the picture; `title` may be any text. `seconds` is the run's length. Sorts the tally's
 * times. A failure is the buffer's. */
void weft_traffic_plot(struct weft_traffic_tally *tally, double seconds, const char *title,
                       struct weft_buf *out);

#endif
