#include "api/auth.h"

#include "api/problem.h"

static struct str presented_key(const struct http_request *req, struct str in_body)
{
	struct str bearer = http_request_field(req, STR("authorization"));
	if (bearer.len > 7 && str_eq_nocase(str_n(bearer.ptr, 7), STR("bearer ")))
		return str_trim(str_n(bearer.ptr + 7, bearer.len - 7));
	struct str header = http_request_field(req, STR("x-api-key"));
	return header.ptr ? header : in_body;
}

bool auth_in_header(const struct http_request *req)
{
	return presented_key(req, STR_NULL).len > 0;
}

bool auth_require(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                  struct str in_body, struct api_key *ret)
{
	static const struct http_field challenge[] = {
	    {STR("WWW-Authenticate"), STR("Bearer realm=\"curt\"")}};
	static const struct problem p = {
	    .status = 401, .code = "key-required", .fields = challenge, .field_count = 1};
	struct str presented = presented_key(req, in_body);
	if (presented.len == 0) {
		problem_reply(
		    c, &p,
		    "This needs an API key: send it as 'Authorization: Bearer KEY', as 'X-Api-Key: KEY', "
		    "or in the field api_dev_key where there is one.");
		return false;
	}
	if (!keyring_find(w->api->keyring, presented, ret)) {
		problem_reply(c, &p,
		              "The API key is unknown or has been revoked. Make one with 'curt key create'.");
		return false;
	}
	return true;
}

bool auth_require_admin(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                        struct api_key *ret)
{
	if (!auth_require(w, c, req, STR_NULL, ret))
		return false;
	if (!ret->admin) {
		static const struct problem p = {.status = 403, .code = "admin-only"};
		problem_reply(c, &p, "This needs an admin's API key.");
		return false;
	}
	return true;
}
