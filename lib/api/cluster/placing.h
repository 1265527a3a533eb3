/* placing — jobs of several schedulers: where each goes, and what becomes of those that nobody can
 * take, that are refused, or whose scheduler is lost.
 */
#ifndef WEFT_API_CLUSTER_PLACING_H
#define WEFT_API_CLUSTER_PLACING_H

#include <stdbool.h>
#include <stdint.h>

#include "api/upstream.h"
#include "cluster/cluster.h"

/* The job's attempt has its answer, or needs none any more. */
void wefti_api_set_answered(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job);

/* Takes a job that was sent off its scheduler's list. */
void wefti_api_take_off(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job);

/* Whether the scheduler is linked, and more may be under way to it without an answer. */
bool wefti_api_has_window(const struct weft_api_scheduler *scheduler);

/* The scheduler that gets the job, which is counted there. NOBODY: none does now; where it is only
 * that their windows are full the job stays, and *is_full_out says so, else it is set apart, or has
 * failed. With one scheduler it is that one. */
uint32_t wefti_api_place_job(struct weft_api_state *api, struct weft_api_upstream_job *job,
                             const struct weft_submit *submit, uint64_t now_us, bool *is_full_out);

/* Whether another one is asked after this refusal; else *msg is what the client is to hear. */
bool wefti_api_place_refused(struct weft_api_upstream *upstream, struct weft_api_upstream_job *job,
                             struct weft_rejection *msg, uint64_t now_us);

/* All jobs that were sent to this scheduler are sent again, before those that never were. */
void wefti_api_place_again(struct weft_api_upstream *upstream, uint32_t scheduler);

/* The scheduler lacks the adapter, which others have: jobs that need it are sent to these. */
void wefti_api_place_elsewhere(struct weft_api_state *api, uint32_t scheduler, uint64_t adapter_id);

/* A moment has passed: jobs that were set apart are looked at again, and schedulers that cannot serve
 * lose theirs. `stood_still`: nobody called for so long that no silence tells anything. */
void wefti_api_place_tick(struct weft_api_state *api, uint64_t now_us, bool stood_still);

/* Works out anew what the schedulers are as one; the same of the counts of experts. */
void wefti_api_see_together(struct weft_api_upstream *upstream, uint64_t now_ms);
void wefti_api_sum_experts(const struct weft_api_upstream *upstream,
                           struct weft_expert_rows *rows_out);

#endif
