// needs: src/http/form.c src/http/request.c
// flags: -max_len=512
/* A form's field is never longer than the body, has no NUL in it, and does not depend on what follows it. */
#include "http/form.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What is found in a body is found as well when more fields follow. */
static void check_more(struct str body, struct str name, struct str found, struct arena *arena)
{
	char *more = malloc(body.len + 3);
	ASSERT(more);
	if (body.len > 0)
		memcpy(more, body.ptr, body.len);
	memcpy(more + body.len, "&z=", 3);
	struct str again = http_form_field(str_n(more, body.len + 3), name, arena);
	ASSERT((again.ptr != NULL) == (found.ptr != NULL) && str_eq(again, found));
	free(more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const struct str names[] = {STR("email"), STR("password"), STR("a"), STR("a b"), STR("")};
	struct arena arena = {0};
	/* An exact copy, so that a read behind it is seen. */
	char *copy = malloc(len + !len);
	ASSERT(copy);
	if (len > 0)
		memcpy(copy, data, len);
	struct str body = str_n(copy, len);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct str found = http_form_field(body, names[i], &arena);
		if (found.ptr)
			ASSERT(found.len <= len && strlen(found.ptr) == found.len);
		if (names[i].len > 0)
			check_more(body, names[i], found, &arena);
	}
	struct http_request req = {.field_count = 1, .fields = {{STR("content-type"), body}}};
	(void)http_is_form(&req);
	arena_release(&arena);
	free(copy);
	return 0;
}
