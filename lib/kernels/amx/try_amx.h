/* kernels/try_amx — whether AMX may be used, and computes what it should.
 *
 * No machine with AMX was there when its kernels were written, so nothing is taken on trust: where
 * they are to be used, products of every kind that they have are compared with those of AVX-512
 * once, to the bit. Threads: any; of agree several at once. Memory: the stack, some 70 KiB beside a
 * product's. */
#ifndef WEFT_KERNELS_TRY_AMX_H
#define WEFT_KERNELS_TRY_AMX_H

#include "kernels/kernels.h"

/* Linux saves tiles only of processes that asked for it: all threads of this one may use them if it
 * says true. Asking twice does no harm. Source: the kernel's Documentation/arch/x86/xstate.rst. */
bool wefti_kern_amx_permitted(void);

/* Whether products of all kinds with activations of 8 bits, of few rows and of many, are those of
 * `known`, which has the same group_rows. */
bool wefti_kern_agree(const struct weft_kern_table *table, const struct weft_kern_table *known);

#endif
