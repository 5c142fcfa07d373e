#include "handler/link_param.h"

#include "handler/problem.h"

void link_param_reply_failed(struct http_conn *c, int err)
{
	if (err == ERR_NOT_FOUND)
		problem_say(c, 404, "no-such-link", "There is no link of that key, or it is not yours.");
	else
		problem_reply_store(c, err);
}

struct str link_param_take(struct api_worker *w, struct http_conn *c, struct str text)
{
	char folded[KEY_BYTES_MAX];
	if (!key_is_wellformed(text)) {
		link_param_reply_failed(c, ERR_NOT_FOUND);
		return STR_NULL;
	}
	struct str key = arena_str(http_conn_arena(c), key_fold(links_cipher(w->api->links), text, folded));
	if (!key.ptr)
		problem_reply_store(c, ERR_NOMEM);
	return key;
}

uint64_t link_param_owner(const struct caller *caller)
{
	return caller_is_admin(caller) ? 0 : caller->user;
}
