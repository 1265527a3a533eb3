/* schema_forms — JSON Schemas as clients send them, made the schemas that they mean. */
#ifndef WEFT_API_SCHEMA_FORMS_H
#define WEFT_API_SCHEMA_FORMS_H

#include <jansson.h>
#include <stdbool.h>

/* The schema in OpenAI's wrapper {"name", "description", "strict", "schema"}, or `value` itself.
 * Borrowed. *is_empty_out: it is a wrapper without a schema. */
const json_t *wefti_api_schema_unwrap(const json_t *value, bool *is_empty_out);

/* The text of the schema, which may itself be a text, in which objects that say which members they have and nothing of
 * others take no others: vLLM's "disable_additional_properties". The caller frees; NULL: no memory. */
char *wefti_api_schema_closed(const json_t *value);

#endif
