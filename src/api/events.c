/*
 * POST /event: impressions. The body is one object, an array of objects, or one object per line (NDJSON). An
 * event that is answered with 204, or counted as accepted, is in the event log.
 *
 * Unknown fields are ignored, because senders add their own; a misspelt field is reported as missing.
 */
#include "api/handlers.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/rfc3339.h"
#include "handler/jobs.h"
#include "handler/problem.h"
#include "handler/reply.h"

enum {
	FUTURE_MS = 3600 * 1000, /* how far a sender's clock may be ahead */
	EVENTS_MAX = 50000,      /* in a body, because it is parsed on the event loop */
	REJECTED_MAX = 1000,     /* listed in the response */
};

struct event_request {
	struct capture_wait wait;
	struct api_worker *worker;
	int64_t now_ms;
	uint64_t accepted;
	uint64_t rejected;
	bool is_batch;
	bool failed;       /* an event could not be logged */
	struct buf errors; /* the items of "rejected" */
};

/* Parsing one event */

enum event_field { FIELD_ID, FIELD_USER, FIELD_AD, FIELD_TS, FIELDS };
static const char *const field_names[FIELDS] = {"id", "userId", "adId", "ts"};

struct event_text {
	struct event_impression impression;
	bool given[FIELDS];
	char scratch[3][EVENT_FIELD_BYTES_MAX]; /* for strings with escapes */
};

static int read_text(struct json_in *in, struct event_text *ev, enum event_field field, struct err *e)
{
	struct str *const to[] = {&ev->impression.id, &ev->impression.user, &ev->impression.ad};
	const char *name = field_names[field];
	struct str text;
	bool whole;
	if (json_in_peek(in) != JSON_IN_STRING) {
		json_in_skip(in);
		return err_set(e, ERR_INVALID, "The field %s must be a string.", name);
	}
	if (!json_in_string(in, ev->scratch[field], EVENT_FIELD_BYTES_MAX, &text, &whole))
		return ERR_INVALID;
	if (!whole || text.len > EVENT_FIELD_BYTES_MAX)
		return err_set(e, ERR_INVALID, "The field %s is longer than %d bytes.", name,
		               EVENT_FIELD_BYTES_MAX);
	if (text.len == 0)
		return err_set(e, ERR_INVALID, "The field %s must not be empty.", name);
	if (memchr(text.ptr, '\0', text.len))
		return err_set(e, ERR_INVALID, "The field %s must not contain a NUL character.", name);
	*to[field] = text;
	return 0;
}

static int read_time(const struct event_request *q, struct json_in *in, int64_t *ret, struct err *e)
{
	char scratch[64]; /* for a time with escapes; a longer text is no time */
	struct str text = STR("");
	int64_t ts;
	bool is_time = false, whole;
	switch (json_in_peek(in)) {
	case JSON_IN_NUMBER:
		is_time = json_in_number(in, &ts) == JSON_IN_INTEGER && time_from_number(ts, &ts);
		break;
	case JSON_IN_STRING:
		is_time = json_in_string(in, scratch, sizeof(scratch), &text, &whole) && whole &&
		          time_parse(text, &ts);
		break;
	default: json_in_skip(in);
	}
	if (!is_time)
		return err_set(e, ERR_INVALID, "The field ts is not a time; " TIME_HINT ".");
	if (ts > q->now_ms + FUTURE_MS)
		return err_set(e, ERR_INVALID,
		               "The field ts is more than an hour in the future; check the sender's clock.");
	uint64_t kept_ms = q->worker->api->impressions_ms;
	if (q->now_ms - ts > (int64_t)kept_ms)
		return err_set(
		    e, ERR_INVALID,
		    "The field ts is older than %llu hours, which is as long as impressions are kept "
		    "(sink.impressions_time).",
		    (unsigned long long)(kept_ms / 3600000));
	*ret = ts;
	return 0;
}

static int read_member(const struct event_request *q, struct json_in *in, struct event_text *ev,
                       struct err *e)
{
	char scratch[16];
	struct str name;
	if (!json_in_name(in, scratch, sizeof(scratch), &name))
		return ERR_INVALID;
	for (enum event_field field = 0; field < FIELDS; field++) {
		if (!str_eq(name, str_of(field_names[field])))
			continue;
		if (ev->given[field]) {
			json_in_skip(in);
			return err_set(e, ERR_INVALID, "The field %s appears twice.", field_names[field]);
		}
		ev->given[field] = true;
		return field == FIELD_TS ? read_time(q, in, &ev->impression.time_ms, e)
		                         : read_text(in, ev, field, e);
	}
	return json_in_skip(in) ? 0 : ERR_INVALID;
}

/* Reads one value. ERR_INVALID with the first error of the event; in->wrong is set if the text is not
 * JSON. */
static int read_event(const struct event_request *q, struct json_in *in, struct event_text *ev, struct err *e)
{
	bool first = true;
	int r = 0;
	memset(ev->given, 0, sizeof(ev->given));
	ev->impression.received_ms = q->now_ms;
	if (json_in_peek(in) != JSON_IN_OBJECT) {
		json_in_skip(in);
		return err_set(e, ERR_INVALID, "An event must be a JSON object {id, ts, userId, adId}.");
	}
	json_in_enter(in, '{');
	while (json_in_more(in, '{', &first)) {
		struct err later;
		int wrong = read_member(q, in, ev, r == 0 ? e : &later);
		if (r == 0)
			r = wrong;
	}
	for (enum event_field field = 0; r == 0 && field < FIELDS; field++) {
		if (!ev->given[field])
			r = err_set(e, ERR_INVALID,
			            "The field %s is missing; an event is {id, ts, userId, adId}.",
			            field_names[field]);
	}
	return in->wrong ? ERR_INVALID : r;
}

/* Accepting events */

static void reject(struct event_request *q, size_t index, const char *reason)
{
	if (q->rejected++ >= REJECTED_MAX)
		return;
	json_out_begin(&q->errors, NULL, '{');
	json_out_name_u64(&q->errors, "index", index);
	json_out_name_str(&q->errors, "error", str_of(reason));
	buf_char(&q->errors, '}');
}

/* The next value of a batch. */
static void accept_item(struct event_request *q, size_t index, struct json_in *in)
{
	struct event_text ev;
	struct err e;
	if (read_event(q, in, &ev, &e) < 0)
		reject(q, index, in->wrong ? "The event is not JSON." : e.text);
	else if (event_writer_impression(q->worker->capture.writer, &ev.impression))
		q->accepted++;
	else
		q->failed = true;
}

/* The next line that is not blank; STR_NULL at the end. */
static struct str next_line(struct str *body)
{
	while (body->ptr) {
		struct str line = str_cut(body, '\n');
		struct json_in in = json_in_begin(line);
		if (!json_in_at_end(&in))
			return line;
	}
	return STR_NULL;
}

static bool has_type(const struct http_request *req, struct str type)
{
	struct str given = http_request_field(req, STR("content-type"));
	return given.len >= type.len && str_eq_nocase(str_n(given.ptr, type.len), type);
}

/* By its type; or because the first line is a whole object and another line follows. */
static bool is_ndjson(const struct http_request *req)
{
	if (has_type(req, STR("application/x-ndjson")) || has_type(req, STR("application/ndjson")) ||
	    has_type(req, STR("application/jsonl")))
		return true;
	struct str rest = req->body;
	struct str first = next_line(&rest);
	struct json_in in = json_in_begin(first.ptr ? first : STR(""));
	return json_in_peek(&in) == JSON_IN_OBJECT && json_in_skip(&in) && json_in_at_end(&in) &&
	       next_line(&rest).ptr;
}

/* Responses */

static void reply_refused(struct event_request *q, struct http_conn *c, int err)
{
	const struct http_field retry = {STR("Retry-After"), STR("5")};
	const struct problem p = {.status = 503,
	                          .code = err == ERR_LIMIT ? "spool-full" : "event-log-unavailable",
	                          .fields = &retry,
	                          .field_count = 1};
	metric_add(&q->worker->metrics->events_requests_refused, 1);
	problem_reply_with(
	    c, &p, "%s",
	    err == ERR_LIMIT ? "Too many events wait for the statistics. Send the body again in 5 seconds."
	                     : "The event log cannot be written. Send the body again in 5 seconds, with the "
	                       "same ids: events that were logged before are not counted twice.");
}

static void reply_logged(struct capture_wait *wait, int err)
{
	struct event_request *q = container_of(wait, struct event_request, wait);
	struct http_conn *c = wait->conn;
	struct buf CLEANUP(buf_release) errors = q->errors; /* the reply releases the arena of q */
	if (err < 0) {
		reply_refused(q, c, err);
		return;
	}
	if (!q->is_batch) {
		static const struct http_response taken = {.status = 204};
		http_reply(c, &taken);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_printf(&body, "{\"accepted\":%llu,\"rejected\":[", (unsigned long long)q->accepted);
	buf_str(&body, buf_view(&errors));
	buf_char(&body, ']');
	if (q->rejected > REJECTED_MAX)
		json_out_name_u64(&body, "rejected_count", q->rejected);
	buf_char(&body, '}');
	body.failed |= errors.failed;
	reply_json(c, 200, &body, NULL, 0);
}

static void reply_too_many(struct http_conn *c, size_t count)
{
	problem_reply(c, 413, "too-many-events",
	              "The body has %zu events; it may have at most %d. Send them in several requests.",
	              count, EVENTS_MAX);
}

static void reply_rejected(struct event_request *q, struct http_conn *c, const struct json_in *in,
                           const char *reason)
{
	event_writer_rejected(q->worker->capture.writer, 1);
	struct err e;
	if (in->wrong)
		json_in_err(in, "the body", &e);
	problem_reply(c, 400, "bad-event", "%s", in->wrong ? e.text : reason);
}

/* One object: 204, or 400 with the reason. False: the request has been answered. */
static bool accept_single(struct event_request *q, struct http_conn *c, struct json_in *in)
{
	struct event_text ev;
	struct err e;
	int r = read_event(q, in, &ev, &e);
	if (r == 0 && !json_in_finish(in))
		r = ERR_INVALID;
	if (r < 0) {
		reply_rejected(q, c, in, e.text);
		return false;
	}
	q->failed = !event_writer_impression(q->worker->capture.writer, &ev.impression);
	return true;
}

/* Two passes, so that nothing is accepted from a body that is not JSON. */
static bool accept_array(struct event_request *q, struct http_conn *c, struct json_in *in)
{
	struct json_in whole = *in;
	bool first = true;
	size_t count = 0;
	json_in_enter(&whole, '[');
	while (json_in_more(&whole, '[', &first) && json_in_skip(&whole))
		count++;
	if (!json_in_finish(&whole)) {
		reply_rejected(q, c, &whole, NULL);
		return false;
	}
	if (count > EVENTS_MAX) {
		reply_too_many(c, count);
		return false;
	}
	q->is_batch = true;
	first = true;
	json_in_enter(in, '[');
	for (size_t index = 0; !q->failed && json_in_more(in, '[', &first); index++)
		accept_item(q, index, in);
	return true;
}

static bool accept_lines(struct event_request *q, struct http_conn *c, struct str body)
{
	size_t count = 0;
	for (struct str rest = body; next_line(&rest).ptr;)
		count++;
	if (count > EVENTS_MAX) {
		reply_too_many(c, count);
		return false;
	}
	q->is_batch = true;
	for (size_t index = 0; !q->failed && index < count; index++) {
		struct json_in in = json_in_begin(next_line(&body)), whole = in;
		if (json_in_skip(&whole) && json_in_at_end(&whole))
			accept_item(q, index, &in);
		else
			reject(q, index, "The line is not a JSON object.");
	}
	return true;
}

static bool accept_body(struct event_request *q, const struct api_call *call)
{
	struct str body = call->req->body;
	struct json_in in = json_in_begin(body.ptr ? body : STR(""));
	if (is_ndjson(call->req))
		return accept_lines(q, call->c, body);
	return json_in_peek(&in) == JSON_IN_ARRAY ? accept_array(q, call->c, &in)
	                                          : accept_single(q, call->c, &in);
}

void event_post(struct api_call *call)
{
	struct event_request *q = request_zalloc(call->c, sizeof(*q));
	if (!q)
		return;
	q->worker = call->w;
	q->now_ms = loop_real_ms(http_conn_loop(call->c));
	q->wait.done = reply_logged;
	int r = capture_wait_begin(&call->w->capture, &q->wait);
	if (r < 0) {
		reply_refused(q, call->c, r);
		return;
	}
	if (!accept_body(q, call))
		return;
	if (q->failed) { /* events that were logged do no harm: they come again with the same ids */
		buf_release(&q->errors);
		reply_refused(q, call->c,
		              event_log_is_full(call->w->api->event_log) ? ERR_LIMIT : ERR_UNAVAILABLE);
		return;
	}
	if (q->is_batch)
		event_writer_rejected(call->w->capture.writer, q->rejected);
	capture_wait_end(&call->w->capture, call->c, &q->wait);
}
