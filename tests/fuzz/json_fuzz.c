// packages: jansson
// flags: -max_len=512
/* Our reader and jansson agree on what is JSON, but for nesting and numbers beyond their bounds, and names with a NUL. */
#include "base/json_in.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (memchr(data, 0, len))
		return 0; /* jansson takes a NUL for the end */
	struct json_in in = json_in_begin(str_n((const char *)data, len));
	bool ours = json_in_skip(&in) && json_in_at_end(&in);
	json_error_t e;
	json_t *theirs = json_loadb((const char *)data, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
	bool nested = in.wrong && strstr(in.wrong, "nested");
	if (ours)
		ASSERT(theirs || json_error_code(&e) == json_error_numeric_overflow ||
		       json_error_code(&e) == json_error_null_byte_in_key);
	else
		ASSERT(in.wrong || theirs == NULL);
	if (theirs)
		ASSERT(ours || nested);
	json_decref(theirs);
	return 0;
}
