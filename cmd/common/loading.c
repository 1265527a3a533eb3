#include "common/loading.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/parse.h"
#include "common/status.h"

#define QUICK_MS 1000 /* so long nobody wonders */
#define LINE_MS 5000
#define BAR_MS 100
#define BAR_CELLS 24

/* Leaves the cursor where the line begins: what another process logs meanwhile goes over it. */
static void draw_bar(const struct weft_eng_loading *loading, unsigned percent) {
    char bar[BAR_CELLS + 1], line[256], done[WEFT_SIZE_TEXT_BYTES], all[WEFT_SIZE_TEXT_BYTES];
    for (unsigned i = 0; i < BAR_CELLS; i++)
        bar[i] = i < percent * BAR_CELLS / 100 ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    int n = snprintf(line, sizeof line, "loading %.32s [%s] %3u %%, %s of %s\x1b[K\r",
                     loading->model_name, bar, percent, weft_size_text(loading->done_bytes, done),
                     weft_size_text(loading->weight_bytes, all));
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
    (void)ignored;
}

static void tell_needs(const struct weft_loading *to, const struct weft_eng_loading *loading) {
    char need[WEFT_ENG_NEED_TEXT_BYTES], limit[WEFT_SIZE_TEXT_BYTES],
        text[WEFT_ENG_NEED_TEXT_BYTES + 32];
    uint64_t most = loading->limit.bytes > 0 ? loading->limit.bytes : loading->limit_bytes;
    (void)snprintf(text, sizeof text, "%s, limit %s", weft_eng_need_text(loading, need),
                   weft_size_text(most, limit));
    weft_status_write(to->status_fd, "needs", text);
}

static void on_loading(void *ctx, const struct weft_eng_loading *loading) {
    struct weft_loading *to = ctx;
    uint64_t now_ms = to->now_ms();
    if (!to->has_begun && (loading->limit_bytes > 0 || loading->limit.bytes > 0))
        tell_needs(to, loading);
    to->has_begun = true;
    if (now_ms - to->begin_ms < QUICK_MS) return;
    uint64_t pause_ms = to->on_terminal ? BAR_MS : LINE_MS;
    if (to->told_ms > 0 && now_ms - to->told_ms < pause_ms) return;
    to->told_ms = now_ms;
    uint64_t all = loading->weight_bytes > 0 ? loading->weight_bytes : 1;
    unsigned percent = (unsigned)(100.0 * (double)loading->done_bytes / (double)all);
    char size[WEFT_SIZE_TEXT_BYTES];
    if (to->on_terminal)
        draw_bar(loading, percent);
    else
        weft_info("loading %s, %s: %u %%", loading->model_name,
                  weft_size_text(loading->weight_bytes, size), percent);
}

void weft_loading_begin(struct weft_loading *loading, const struct weft_config *config,
                        struct weft_eng_options *options) {
    *loading = (struct weft_loading){.status_fd = config->status_fd, .now_ms = weft_now_ms};
    loading->begin_ms = loading->now_ms();
    loading->on_terminal = isatty(STDERR_FILENO) && !weft_log_is_json();
    options->on_loading = on_loading;
    options->loading_ctx = loading;
}

void weft_loading_end(const struct weft_loading *loading) {
    static const char erase[] = "\x1b[K";
    if (!loading->on_terminal || loading->told_ms == 0) return;
    ssize_t ignored = write(STDERR_FILENO, erase, sizeof erase - 1);
    (void)ignored;
}

void weft_loading_log(const struct weft_loading *loading, const struct weft_eng_info *info) {
    char size[WEFT_SIZE_TEXT_BYTES], of_draft[WEFT_SIZE_TEXT_BYTES], windowed[64] = "";
    char draft[48] = "";
    if (info->draft_bytes > 0)
        (void)snprintf(draft, sizeof draft, " with a draft of %s",
                       weft_size_text(info->draft_bytes, of_draft));
    if (info->window > 0)
        (void)snprintf(windowed, sizeof windowed, " and %u for windows of %u",
                       info->n_window_blocks, info->window);
    weft_info("loaded %s, %s%s%s, in %.1f s: %s, %s, %u KV blocks of %u tokens%s, %u thread%s, %s",
              info->model_name, weft_size_text(info->weight_bytes, size),
              info->weights_inherited ? " (mapped as they were)" : "", draft,
              (double)(loading->now_ms() - loading->begin_ms) / 1000, info->arch, info->isa,
              info->n_blocks, info->block_size, windowed, info->n_threads,
              info->n_threads == 1 ? "" : "s", info->fingerprint);
}
