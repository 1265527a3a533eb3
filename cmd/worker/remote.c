#include "remote.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/numa.h"
#include "proto/proto.h"

static uint64_t pages_of(const struct wefti_remote *r, uint32_t region) {
    return (r->regions[region].bytes + r->page_bytes - 1) / r->page_bytes;
}

void wefti_remote_init(struct wefti_remote *r, uint64_t home, const struct weft_eng_region *regions,
                       uint32_t n_regions, wefti_remote_locate_fn *locate) {
    WEFT_ASSERT(n_regions <= WEFT_ENG_REGIONS);
    *r = (struct wefti_remote){.home = home,
                               .locate = locate,
                               .n_regions = n_regions,
                               .page_bytes = (size_t)sysconf(_SC_PAGESIZE),
                               .n_remote = home ? WEFT_PAGES_UNKNOWN : 0};
    memcpy(r->regions, regions, n_regions * sizeof *regions);
    for (uint32_t i = 0; i < n_regions; i++)
        r->n_pages += pages_of(r, i);
    r->stride = (r->n_pages + WEFTI_REMOTE_PAGES_MAX - 1) / WEFTI_REMOTE_PAGES_MAX;
    if (r->stride == 0) r->stride = 1;
}

/* The page of this number, counted through all regions. */
static void *page_at(const struct wefti_remote *r, uint64_t page) {
    uint32_t i = 0;
    for (; page >= pages_of(r, i); i++)
        page -= pages_of(r, i);
    WEFT_ASSERT(i < r->n_regions);
    return (uint8_t *)(uintptr_t)r->regions[i].base + page * r->page_bytes;
}

/* Each pass over every n-th page begins at another one of the first n. */
static void begin(struct wefti_remote *r, uint64_t now_ms) {
    r->is_counting = true;
    r->next_page = r->n_passes++ % r->stride;
    r->n_seen = 0;
    r->pass_at_ms = now_ms;
}

static void count_slice(struct wefti_remote *r) {
    void *pages[WEFTI_REMOTE_SLICE];
    int nodes[WEFTI_REMOTE_SLICE];
    size_t n = 0;
    for (; n < WEFTI_REMOTE_SLICE && r->next_page < r->n_pages; r->next_page += r->stride)
        pages[n++] = page_at(r, r->next_page);
    int error = n > 0 ? r->locate(pages, n, nodes) : 0;
    if (error) {
        weft_warn("pages on other NUMA nodes are not counted: %s", strerror(error));
        r->home = 0;
        r->n_remote = WEFT_PAGES_UNKNOWN;
        return;
    }
    for (size_t i = 0; i < n; i++) /* negative: not resident */
        r->n_seen += nodes[i] >= 0 && (nodes[i] >= 64 || !(r->home >> nodes[i] & 1));
    if (r->next_page < r->n_pages) return;
    r->n_remote = r->n_seen * r->stride;
    r->is_counting = false;
}

void wefti_remote_tick(struct wefti_remote *r, uint64_t n_steps, uint64_t now_ms) {
    if (r->home == 0) return;
    bool is_first_step = n_steps > 0 && !r->has_stepped;
    if (r->n_passes == 0 || is_first_step || now_ms - r->pass_at_ms >= WEFTI_REMOTE_PAUSE_MS) {
        r->has_stepped = n_steps > 0;
        begin(r, now_ms);
    } else if (!r->is_counting || now_ms - r->slice_at_ms < WEFTI_REMOTE_SLICE_MS) {
        return;
    }
    r->slice_at_ms = now_ms;
    count_slice(r);
}

uint64_t wefti_remote_wait_ms(const struct wefti_remote *r, uint64_t wait_ms) {
    bool is_busy = r->home != 0 && r->is_counting;
    return is_busy && wait_ms > WEFTI_REMOTE_SLICE_MS ? WEFTI_REMOTE_SLICE_MS : wait_ms;
}
