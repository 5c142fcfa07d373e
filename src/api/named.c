#include "api/named.h"

#include "api/problem.h"

void named_reply_no_such_link(struct http_conn *c)
{
	static const struct problem p = {.status = 404, .code = "no-such-link"};
	problem_reply(c, &p, "There is no link of that key, or it is not yours.");
}

struct str named_take_key(struct api_worker *w, struct http_conn *c, struct str text)
{
	char folded[KEY_BYTES_MAX];
	if (!key_is_wellformed(text)) {
		named_reply_no_such_link(c);
		return STR_NULL;
	}
	struct str key = arena_str(http_conn_arena(c), key_fold(links_cipher(w->api->links), text, folded));
	if (!key.ptr)
		problem_reply_store(c, ERR_NOMEM);
	return key;
}

uint64_t named_sees_only(const struct caller *caller)
{
	return caller_is_admin(caller) ? 0 : caller->user;
}
