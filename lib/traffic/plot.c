#include "plot.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum {
    WIDTH = 880,
    LEFT = 72, /* of a panel's axes, room for its numbers */
    RIGHT = 24,
    TOP = 56,
    PANEL = 170, /* a panel's height, and the gap below it */
    GAP = 66,
    N_PANELS = 3,
    HEIGHT = TOP + N_PANELS * (PANEL + GAP),
    SLICES_MAX = 60,
    SAMPLES_PER_SLICE = 20, /* fewer have no 95th percentile */
    N_CURVES = 3,
    TICKS_ABOUT = 5,
};

struct curve {
    const char *name, *css;
    double y[SLICES_MAX]; /* NAN: nothing there */
};

struct panel {
    const char *title;
    int top;
    int n_slices, n_curves;
    double seconds; /* at the right edge, > 0 */
    double bound;   /* a line that values should stay below; 0: none */
    struct curve curves[N_CURVES];
};

/* ---------------------------------------------------------------------------------- values --- */

static int slice_of(double at_s, double seconds, int n_slices) {
    return (int)fmax(0, fmin(at_s / seconds * n_slices, n_slices - 1));
}

static int slices_for(size_t n_samples) {
    size_t n = n_samples / SAMPLES_PER_SLICE;
    return n < 1 ? 1 : n > SLICES_MAX ? SLICES_MAX : (int)n;
}

static void count_slices(const struct weft_traffic_times *times, const struct panel *p,
                         size_t n_out[SLICES_MAX]) {
    memset(n_out, 0, SLICES_MAX * sizeof *n_out);
    for (size_t i = 0; i < times->n; i++)
        n_out[slice_of((double)times->samples[i].at_s, p->seconds, p->n_slices)]++;
}

/* Samples are walked from the shortest to the longest: the one that is a slice's rank-th is its
 * percentile. */
static void take_percentiles(struct weft_traffic_times *times, struct panel *p) {
    static const struct {
        const char *name, *css;
        double share;
    } kinds[N_CURVES] = {{"median", "a", 0.5}, {"95 %", "b", 0.95}, {"99 %", "c", 0.99}};
    size_t n[SLICES_MAX], seen[SLICES_MAX] = {0};
    (void)weft_traffic_percentile(times, 1); /* sorts */
    p->n_slices = slices_for(times->n);
    p->n_curves = N_CURVES;
    count_slices(times, p, n);
    for (int k = 0; k < N_CURVES; k++) {
        p->curves[k].name = kinds[k].name;
        p->curves[k].css = kinds[k].css;
        for (int i = 0; i < p->n_slices; i++)
            p->curves[k].y[i] = NAN;
    }
    for (size_t i = 0; i < times->n; i++) {
        int slice = slice_of((double)times->samples[i].at_s, p->seconds, p->n_slices);
        seen[slice]++;
        for (int k = 0; k < N_CURVES; k++) {
            if (seen[slice] == (size_t)ceil(kinds[k].share * (double)n[slice]))
                p->curves[k].y[slice] = (double)times->samples[i].ms;
        }
    }
}

static void take_rate(const struct weft_traffic_times *times, struct panel *p, const char *name,
                      const char *css) {
    size_t n[SLICES_MAX];
    struct curve *curve = &p->curves[p->n_curves++];
    count_slices(times, p, n);
    curve->name = name;
    curve->css = css;
    for (int i = 0; i < p->n_slices; i++)
        curve->y[i] = (double)n[i] * p->n_slices / p->seconds;
}

static double top_of(const struct panel *p) {
    double top = 0;
    for (int k = 0; k < p->n_curves; k++) {
        for (int i = 0; i < p->n_slices; i++)
            top = fmax(top, p->curves[k].y[i]); /* fmax passes over NAN */
    }
    if (p->bound > 0 && p->bound < 2 * top) top = fmax(top, p->bound);
    return top > 0 ? top : 1;
}

/* 1, 2 or 5 times a power of ten, so that some five of them make `top`. */
static double tick_of(double top) {
    double unit = pow(10, floor(log10(top / TICKS_ABOUT)));
    double times = top / TICKS_ABOUT / unit;
    return unit * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* ------------------------------------------------------------------------------------- SVG --- */

static void add_escaped(struct weft_buf *out, const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&')
            weft_buf_add_str(out, "&amp;");
        else if (c == '<')
            weft_buf_add_str(out, "&lt;");
        else if (c == '>')
            weft_buf_add_str(out, "&gt;");
        else
            weft_buf_add_char(out, c < 0x20 || c > 0x7e ? '?' : (char)c);
    }
}

static void add_head(struct weft_buf *out, const char *title) {
    weft_buf_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                    "viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title\">\n"
                    "<title id=\"title\">",
                    WIDTH, HEIGHT, WIDTH, HEIGHT);
    add_escaped(out, title);
    weft_buf_add_str(
        out,
        "</title>\n<style>\n"
        "svg { color-scheme: light dark; --paper: #ffffff; --ink: #1c1c1c; --soft: #6a6a6a; "
        "--grid: #dddddd;\n      --a: #0060a8; --b: #c8500a; --c: #8a3ea8; --bad: #b00020; }\n"
        "@media (prefers-color-scheme: dark) { svg { --paper: #16181c; --ink: #e8e8e8; --soft: "
        "#a0a0a0;\n      --grid: #3a3d42; --a: #5cb0ff; --b: #ff9a52; --c: #d79bf0; --bad: "
        "#ff7a85; "
        "} }\n"
        "text { font: 13px system-ui, sans-serif; fill: var(--ink); }\n"
        "text.soft { fill: var(--soft); font-size: 12px; }\n"
        "text.right { text-anchor: end; }\ntext.middle { text-anchor: middle; }\n"
        ".grid { stroke: var(--grid); }\n.bound { stroke: var(--bad); stroke-dasharray: 2 4; }\n"
        ".curve { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }\n"
        ".a { stroke: var(--a); }\n.b { stroke: var(--b); stroke-dasharray: 7 4; }\n"
        ".c { stroke: var(--c); stroke-dasharray: 2 4; }\n.bad { stroke: var(--bad); }\n"
        "</style>\n<rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>\n");
    weft_buf_printf(out, "<text x=\"%d\" y=\"24\" font-weight=\"bold\">", LEFT);
    add_escaped(out, title);
    weft_buf_add_str(out, "</text>\n");
}

static double x_of(const struct panel *p, double s) {
    return LEFT + s / p->seconds * (WIDTH - LEFT - RIGHT);
}

static void add_axes(const struct panel *p, double top, struct weft_buf *out) {
    double tick = tick_of(top), tick_s = tick_of(p->seconds);
    for (int i = 0; i * tick <= top * 1.0001; i++) {
        double y = p->top + PANEL - i * tick / top * PANEL;
        weft_buf_printf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT);
        weft_buf_printf(out, "<text class=\"soft right\" x=\"%d\" y=\"%.1f\">%g</text>\n", LEFT - 8,
                        y + 4, i * tick);
    }
    for (int i = 0; i * tick_s <= p->seconds * 1.0001; i++)
        weft_buf_printf(out, "<text class=\"soft middle\" x=\"%.1f\" y=\"%d\">%g s</text>\n",
                        x_of(p, i * tick_s), p->top + PANEL + 18, i * tick_s);
}

static void add_curve(const struct panel *p, const struct curve *curve, double top,
                      struct weft_buf *out) {
    bool is_drawing = false;
    weft_buf_printf(out, "<path class=\"curve %s\" d=\"", curve->css);
    for (int i = 0; i < p->n_slices; i++) {
        if (isnan(curve->y[i])) {
            is_drawing = false;
            continue;
        }
        double x = x_of(p, (i + 0.5) * p->seconds / p->n_slices);
        double y = p->top + PANEL - curve->y[i] / top * PANEL;
        /* A line of no length is a dot, so that a slice without neighbours shows. */
        weft_buf_printf(out, is_drawing ? "L%.1f %.1f" : "M%.1f %.1fh0", x, y);
        is_drawing = true;
    }
    weft_buf_add_str(out, "\"/>\n");
}

static void add_legend(const struct panel *p, struct weft_buf *out) {
    int x = WIDTH - RIGHT - p->n_curves * 110;
    weft_buf_printf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT, p->top - 10, p->title);
    for (int k = 0; k < p->n_curves; k++, x += 110)
        weft_buf_printf(out,
                        "<path class=\"curve %s\" d=\"M%d %dh24\"/>"
                        "<text class=\"soft\" x=\"%d\" y=\"%d\">%s</text>\n",
                        p->curves[k].css, x, p->top - 14, x + 32, p->top - 10, p->curves[k].name);
}

static void add_panel(const struct panel *p, struct weft_buf *out) {
    WEFT_ASSERT(p->n_slices > 0 && p->n_slices <= SLICES_MAX && p->n_curves <= N_CURVES);
    double top = top_of(p);
    add_legend(p, out);
    add_axes(p, top, out);
    if (p->bound > 0 && p->bound <= top)
        weft_buf_printf(out, "<path class=\"bound\" d=\"M%d %.1fH%d\"/>\n", LEFT,
                        p->top + PANEL - p->bound / top * PANEL, WIDTH - RIGHT);
    for (int k = 0; k < p->n_curves; k++)
        add_curve(p, &p->curves[k], top, out);
}

void weft_traffic_plot(struct weft_traffic_tally *tally, double seconds, const char *title,
                       struct weft_buf *out) {
    struct panel p = {.title = "time to the first token, ms",
                      .top = TOP + 12,
                      .seconds = seconds > 0 ? seconds : 1,
                      .bound = tally->goal->ttft_ms};
    add_head(out, title);
    take_percentiles(&tally->first, &p);
    add_panel(&p, out);
    p.title = "time between tokens, ms";
    p.top += PANEL + GAP;
    p.bound = tally->goal->itl_ms;
    take_percentiles(&tally->between, &p);
    add_panel(&p, out);
    p.title = "requests per second, by when they began";
    p.top += PANEL + GAP;
    p.bound = 0;
    p.n_curves = 0;
    p.n_slices = slices_for(tally->whole.n + tally->failed.n);
    take_rate(&tally->whole, &p, "answered", "a");
    take_rate(&tally->failed, &p, "failed", "bad");
    add_panel(&p, out);
    weft_buf_add_str(out, "</svg>\n");
}
