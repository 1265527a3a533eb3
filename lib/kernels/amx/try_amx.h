/* kernels/try_amx — whether AMX may be used, and computes what it should.
 *
 * Machines with AMX are few, so nothing is taken on trust: where its kernels are to be used, products of
 * every kind that they have, and attention, are compared once, to the bit. Threads: any; several at once of all but
 * permitted. Memory: the stack, some 100 KiB beside a product's. */
#ifndef WEFT_KERNELS_TRY_AMX_H
#define WEFT_KERNELS_TRY_AMX_H

#include "kernels/kernels.h"

/* Linux saves tiles only of processes that asked for it: all threads of this one may use them if it
 * says true. Asking twice does no harm. Source: the kernel's Documentation/arch/x86/xstate.rst. */
bool wefti_kern_amx_permitted(void);

/* Whether products of all kinds with activations of 8 bits, of few rows and of many, and attention over int8 are
 * those of `known`, which has the same group_rows. */
bool wefti_kern_agree(const struct weft_kern_table *table, const struct weft_kern_table *known);

/* Whether products of bf16, of few rows and of many, are the sums of bf16_order.h. Attention over it takes
 * the same instructions. */
bool wefti_kern_amx_bf16_holds(const struct weft_kern_table *table);

#endif
