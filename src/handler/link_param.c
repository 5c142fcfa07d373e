#include "handler/link_param.h"

#include "handler/jobs.h"
#include "handler/problem.h"

void link_param_reply_failed(struct http_conn *c, int err)
{
	if (err == ERR_NOT_FOUND)
		problem_reply(c, 404, "no-such-link",
		              "There is no link with this key, or it is not yours. GET /api/v1/links lists "
		              "your links.");
	else
		problem_reply_store(c, err);
}

struct str link_param_key(struct api_worker *w, struct http_conn *c, struct str text)
{
	char folded[KEY_BYTES_MAX];
	if (!key_is_wellformed(text)) {
		link_param_reply_failed(c, ERR_NOT_FOUND);
		return STR_NULL;
	}
	return request_str(c, key_fold(links_cipher(w->api->links), text, folded));
}
