/* honoured — which grammars were compiled lately, and so can be honoured.
 *
 * Agents send the same schema with every request: it is compiled by the first of them, here. A table
 * by digest, where newer ones take older ones' places; what is not in it is just compiled again.
 * Threads: any.
 */
#ifndef WEFT_API_HONOURED_H
#define WEFT_API_HONOURED_H

#include <stdbool.h>

#include "base/grammar.h"

bool wefti_api_is_honoured(const struct weft_grammar *grammar);
void wefti_api_note_honoured(const struct weft_grammar *grammar);

#endif
