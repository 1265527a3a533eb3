/* In place of mpi.c, in builds without it. */
#include "collective/collective.h"

weft_err weft_coll_open_mpi(uint32_t wait_ms_max, weft_coll **coll_out, uint32_t *rank_out,
                            struct weft_errmsg *why) {
    (void)wait_ms_max;
    *coll_out = NULL;
    *rank_out = 0;
    return weft_err_set(why, WEFT_E_UNSUPPORTED,
                        "this program was built without MPI (-DWEFT_MPI=ON)");
}
