/*
 * A request, and its strict parser (RFC 9112). What a proxy in front might read in another way is refused:
 * 400, and the connection closes.
 *
 * http_parse_head is a pure function over a buffer that holds the bytes so far. Its verdict does not depend
 * on how the bytes arrived. It never looks at the body.
 */
#pragma once

#include "base/arena.h"
#include "base/str.h"
#include "http/limits.h"

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
	HTTP_POST,
	HTTP_PUT,
	HTTP_PATCH,
	HTTP_DELETE,
	HTTP_OPTIONS,
	HTTP_METHOD_OTHER, /* a well-formed token that we do not know; the handler says 405 */
	HTTP_METHOD_COUNT,
};

struct http_field {
	struct str name;
	struct str value; /* without the white space around it */
};

/* All strings point into the parsed buffer, except the path that an absolute-form target leaves out. */
struct http_request {
	enum http_method method;
	uint8_t minor_version; /* 0 or 1 */
	bool keep_alive;       /* from the version and the Connection field */
	bool expect_continue;
	bool chunked;
	bool has_body;           /* chunked, or a content_length above 0 */
	uint64_t content_length; /* 0 when there is none */
	struct str target;       /* as sent */
	struct str path;         /* from the first '/' up to '?', not decoded; "*" for OPTIONS * */
	struct str query;        /* behind '?'; STR_NULL without one */
	struct str host;         /* the Host field, or the authority of an absolute-form target */
	struct str body;         /* filled in by the connection */
	bool body_stays;         /* until the reply; otherwise only until the handler returns */
	bool is_copy;            /* by http_request_copy */
	size_t field_count;
	struct http_field fields[HTTP_FIELDS_MAX];
};

enum { HTTP_PARSE_MORE = 0 };

/*
 * >0: the head is whole and this many bytes long; `req` is filled (all but `body`).
 *  0: HTTP_PARSE_MORE.
 * <0: the negated status to answer with before closing (-400, -405, -414, -417, -431, -501, -505), and *ret_reason
 * is a static sentence for the client. No later byte may change it.
 *
 * A few empty lines (CRLF) in front of the request line are skipped and counted in the length.
 */
int http_parse_head(const char *data, size_t len, const struct http_limits *limits, struct http_request *req,
                    const char **ret_reason);

/* The field's value, STR_NULL when absent, the first when there are several. `name` in lower case. */
struct str http_request_field(const struct http_request *req, struct str name);

/* A copy that outlives the handler's call. Strings go to the arena, except a body that stays. False when
 * memory ran out. */
bool http_request_copy(const struct http_request *req, struct arena *arena, struct http_request *ret);

const char *http_method_name(enum http_method m);

/* Looks a parameter up in a query string; STR_NULL when absent. The value is still encoded. */
struct str http_query_param(struct str query, struct str name);
