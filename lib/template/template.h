/* template — chat templates: from a conversation to the text of a prompt.
 *
 * Model    A template is compiled once and then const; each rendering has a state of its own.
 * Input    Templates come with models and are as untrusted: their time, memory and depth are
 *          bounded, and they reach nothing but their variables.
 * Threads  A compiled template may be shared by any number of threads.
 * Rooms    syntax/ compiles a source to flat arrays; values/ has what templates compute with, and
 *          the state and bounds of a rendering; builtins/ has filters, tests, functions, methods
 *          and members; run/ evaluates expressions and runs statements. Each knows those before it.
 * Source   Jinja 3, as transformers sets it up for chat templates.
 */
#ifndef WEFT_TEMPLATE_H
#define WEFT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

typedef struct weft_tmpl weft_tmpl;

struct weft_tmpl_message {
    const char *role, *content; /* not NULL */
    size_t role_len, content_len;
};

/* Finds the template of a model: folder/chat_template.jinja, "chat_template" (a string, or the
 * entry named "default" of a list) of tokenizer_config.json or chat_template.json, GGUF's
 * tokenizer.chat_template. *text_out: malloc'd and terminated; NULL (and WEFT_OK) when the model
 * has none. */
WEFT_MUST_CHECK weft_err weft_tmpl_find(const char *model_path, char **text_out,
                                        struct weft_errmsg *why);

/* The text of special tokens that a template may write; data NULL: none. */
struct weft_tmpl_specials {
    struct weft_str bos_token, eos_token;
};

/* Compiles a template: Jinja as models' templates use it, with trim_blocks and lstrip_blocks
 * (docs/chat-templates.md lists it). WEFT_E_UNSUPPORTED names what is not supported, and its line.
 * The texts of `specials` are borrowed and must outlive the result; NULL: there are none. */
WEFT_MUST_CHECK weft_err weft_tmpl_new(const char *source, size_t len,
                                       const struct weft_tmpl_specials *specials,
                                       weft_tmpl **tmpl_out, struct weft_errmsg *why);
void weft_tmpl_free(weft_tmpl *tmpl); /* accepts NULL */
/* Whether its source has `text`, terminated, anywhere. */
bool weft_tmpl_mentions(const weft_tmpl *tmpl, const char *text);

/* Renders messages; a chat prompt gets no BOS beyond what the template writes. TOOBIG: over the
 * buffer's ceiling, or over the bound of steps, memory or recursion; INVAL: a fault of the template
 * with its line, or only the message that it raises. */
WEFT_MUST_CHECK weft_err weft_tmpl_render(const weft_tmpl *tmpl,
                                          const struct weft_tmpl_message *messages, size_t n,
                                          bool add_generation_prompt, struct weft_buf *out,
                                          struct weft_errmsg *why);

struct json_t; /* jansson's */
struct tm;

/* The same with any variables: the members of the object `vars`, as transformers names them. Absent
 * tools and documents are null; absent bos_token and eos_token are those of weft_tmpl_new. `now` is
 * what strftime_now writes; NULL: the clock, in local time. *line_out (which may be NULL): where the
 * template was when it failed. */
WEFT_MUST_CHECK weft_err weft_tmpl_render_json(const weft_tmpl *tmpl, const struct json_t *vars,
                                               const struct tm *now, struct weft_buf *out,
                                               uint32_t *line_out, struct weft_errmsg *why);

#endif
