#include "store/tags.h"

#include "base/json_in.h"

#include <stdlib.h>

/* A tag that is skipped for lack of memory would be missing from the index for ever, or never be removed from
 * it. So that is an error, and invalid text is none. */
int tags_each(struct str tags, int (*fn)(void *ctx, struct str name), void *ctx)
{
	if (tags.len <= STR("[]").len) /* most links have no tags */
		return 0;
	char *scratch = malloc(tags.len); /* a name is never longer decoded */
	struct json_in in = json_in_begin(tags);
	struct str name;
	bool first = true, whole;
	int r = scratch ? 0 : ERR_NOMEM;
	json_in_enter(&in, '[');
	while (r == 0 && json_in_more(&in, '[', &first) &&
	       json_in_string(&in, scratch, tags.len, &name, &whole))
		r = fn(ctx, name);
	free(scratch);
	return r;
}
