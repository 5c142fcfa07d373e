/*
 * POST /event: impressions. One object, an array of them, or one object a line (NDJSON). What is answered
 * with 204, or counted as accepted, is on record in the event log.
 *
 * Fields beyond the four are passed over: senders add their own, and a misspelt one is missed anyway.
 */
#include "api/handlers.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "handler/problem.h"
#include "handler/reply.h"

enum {
	FUTURE_MS = 3600 * 1000, /* how far clocks may be ahead of ours */
	RETRY_SECONDS = 5,
	EVENTS_MAX = 50000,  /* in a body: they are read on the event loop */
	REJECTED_MAX = 1000, /* that the answer lists */
};
#define SECONDS_BELOW 100000000000LL /* a smaller `ts` is in seconds */

struct event_request {
	struct capture_wait wait;
	struct api_worker *worker;
	int64_t now_ms;
	uint64_t accepted;
	uint64_t rejected;
	bool is_batch;
	bool failed;       /* an event could not be taken */
	struct buf errors; /* the items of "rejected" */
};

/* Reading one event */

enum event_field { FIELD_ID, FIELD_USER, FIELD_AD, FIELD_TS, FIELDS };
static const char *const field_names[FIELDS] = {"id", "userId", "adId", "ts"};

struct event_text {
	struct event_impression impression;
	bool given[FIELDS];
	char scratch[3][EVENT_FIELD_BYTES_MAX]; /* for strings with escapes in them */
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
	*to[field] = text;
	return 0;
}

static int read_time(const struct event_request *q, struct json_in *in, int64_t *ret, struct err *e)
{
	int64_t ts;
	bool is_number = json_in_peek(in) == JSON_IN_NUMBER;
	if (!is_number)
		json_in_skip(in);
	if (!is_number || json_in_number(in, &ts) != JSON_IN_INTEGER)
		return err_set(e, ERR_INVALID,
		               "The field ts must be an integer: milliseconds since 1970, or seconds.");
	if (ts <= 0)
		return err_set(e, ERR_INVALID, "The field ts must be above zero.");
	if (ts < SECONDS_BELOW)
		ts *= 1000;
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
			return err_set(e, ERR_INVALID, "The field %s stands there twice.",
			               field_names[field]);
		}
		ev->given[field] = true;
		return field == FIELD_TS ? read_time(q, in, &ev->impression.time_ms, e)
		                         : read_text(in, ev, field, e);
	}
	return json_in_skip(in) ? 0 : ERR_INVALID;
}

/* Takes one value. ERR_INVALID with what is wrong with the event first; when the text itself is no JSON,
 * in->wrong is set. */
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

static int not_json(const struct json_in *in, struct err *e)
{
	return err_set(e, ERR_INVALID, "The body is not JSON: %s (at byte %zu).", in->wrong,
	               (size_t)(in->at - in->start));
}

/* Taking events */

static void reject(struct event_request *q, size_t index, const char *why)
{
	if (q->rejected++ >= REJECTED_MAX)
		return;
	if (q->rejected > 1)
		buf_char(&q->errors, ',');
	buf_printf(&q->errors, "{\"index\":%zu,\"error\":", index);
	json_out_str(&q->errors, str_of(why));
	buf_char(&q->errors, '}');
}

/* The next value of a batch. */
static void take(struct event_request *q, size_t index, struct json_in *in)
{
	struct event_text ev;
	struct err e;
	if (read_event(q, in, &ev, &e) < 0)
		reject(q, index, in->wrong ? "This is not JSON." : e.text);
	else if (event_writer_impression(q->worker->capture.writer, &ev.impression))
		q->accepted++;
	else
		q->failed = true;
}

static void take_line(struct event_request *q, size_t index, struct str line)
{
	struct json_in whole = json_in_begin(line), in = whole;
	if (json_in_skip(&whole) && json_in_at_end(&whole))
		take(q, index, &in);
	else
		reject(q, index, "This line is not a JSON object.");
}

static void take_lines(struct event_request *q, struct str body)
{
	size_t index = 0;
	while (body.ptr && !q->failed) {
		struct str line = str_cut(&body, '\n');
		struct json_in blank = json_in_begin(line);
		if (!json_in_at_end(&blank))
			take_line(q, index++, line);
	}
}

static size_t lines_in(struct str body)
{
	size_t count = 0;
	while (body.ptr) {
		struct str line = str_cut(&body, '\n');
		struct json_in blank = json_in_begin(line);
		count += !json_in_at_end(&blank);
	}
	return count;
}

static bool has_type(const struct http_request *req, struct str type)
{
	struct str given = http_request_field(req, STR("content-type"));
	return given.len >= type.len && str_eq_nocase(str_n(given.ptr, type.len), type);
}

/* Is something left behind the first value, and does that value begin a line of its own? */
static bool is_lines(const struct http_request *req)
{
	struct json_in in = json_in_begin(req->body);
	if (has_type(req, STR("application/x-ndjson")) || has_type(req, STR("application/ndjson")) ||
	    has_type(req, STR("application/jsonl")))
		return true;
	struct str rest = req->body;
	struct str first = str_cut(&rest, '\n');
	while (rest.ptr && (in = json_in_begin(first), json_in_at_end(&in)))
		first = str_cut(&rest, '\n');
	in = json_in_begin(first);
	struct json_in behind = json_in_begin(rest);
	return rest.ptr && json_in_peek(&in) == JSON_IN_OBJECT && json_in_skip(&in) && json_in_at_end(&in) &&
	       !json_in_at_end(&behind);
}

/* Answers */

static void answer_refused(struct event_request *q, struct http_conn *c, int err)
{
	const struct http_field retry = {STR("Retry-After"), STR("5")};
	_Static_assert(RETRY_SECONDS == 5, "as the field says");
	const struct problem p = {.status = 503,
	                          .code = err == ERR_LIMIT ? "spool-full" : "event-log-unavailable",
	                          .fields = &retry,
	                          .field_count = 1};
	metric_add(&q->worker->metrics->events_requests_refused, 1);
	if (err == ERR_LIMIT)
		problem_reply(c, &p, "Too many events wait to be analysed; send this again in %d seconds.",
		              RETRY_SECONDS);
	else
		problem_reply(c, &p,
		              "The event log cannot be written at present; send this again in %d seconds, "
		              "with the same ids: "
		              "what was taken before is not counted twice.",
		              RETRY_SECONDS);
}

static void answer(struct capture_wait *wait, int err)
{
	struct event_request *q = container_of(wait, struct event_request, wait);
	struct http_conn *c = wait->conn;
	struct buf CLEANUP(buf_release) errors = q->errors; /* the reply frees what q lies in */
	if (err < 0) {
		answer_refused(q, c, err);
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
		buf_printf(&body, ",\"rejected_count\":%llu", (unsigned long long)q->rejected);
	buf_char(&body, '}');
	body.failed |= errors.failed;
	api_reply_json(c, 200, &body, NULL, 0);
}

static void answer_too_many(struct http_conn *c)
{
	problem_say(c, 413, "too-many-events", "A body may hold at most %d events; send them in several.",
	            EVENTS_MAX);
}

static void answer_wrong(struct event_request *q, struct http_conn *c, const char *why)
{
	event_writer_rejected(q->worker->capture.writer, 1);
	problem_say(c, 400, "bad-event", "%s", why);
}

/* One object: 204, or 400 with the reason. False: it was answered. */
static bool take_single(struct event_request *q, struct http_conn *c, struct json_in *in)
{
	struct event_text ev;
	struct err e;
	int r = read_event(q, in, &ev, &e);
	if (r == 0 && !json_in_at_end(in)) {
		in->wrong = "something stands behind it";
		r = ERR_INVALID;
	}
	if (r < 0) {
		if (in->wrong)
			not_json(in, &e);
		answer_wrong(q, c, e.text);
		return false;
	}
	q->failed = !event_writer_impression(q->worker->capture.writer, &ev.impression);
	return true;
}

/* Looked through first: of a body that is no JSON nothing is taken. */
static bool take_array(struct event_request *q, struct http_conn *c, struct json_in *in)
{
	struct json_in whole = *in;
	bool first = true;
	size_t count = 0;
	json_in_enter(&whole, '[');
	while (json_in_more(&whole, '[', &first) && json_in_skip(&whole))
		count++;
	if (!json_in_at_end(&whole)) {
		struct err e;
		if (!whole.wrong)
			whole.wrong = "something stands behind it";
		not_json(&whole, &e);
		answer_wrong(q, c, e.text);
		return false;
	}
	if (count > EVENTS_MAX) {
		answer_too_many(c);
		return false;
	}
	q->is_batch = true;
	first = true;
	json_in_enter(in, '[');
	for (size_t index = 0; !q->failed && json_in_more(in, '[', &first); index++)
		take(q, index, in);
	return true;
}

static bool take_json(struct event_request *q, struct http_conn *c, struct str body)
{
	struct json_in in = json_in_begin(body.ptr ? body : STR(""));
	return json_in_peek(&in) == JSON_IN_ARRAY ? take_array(q, c, &in) : take_single(q, c, &in);
}

void event_post(struct api_call *call)
{
	struct event_request *q = arena_zalloc(http_conn_arena(call->c), sizeof(*q));
	if (!q) {
		problem_reply_store(call->c, ERR_NOMEM);
		return;
	}
	q->worker = call->w;
	q->now_ms = loop_real_ms(http_conn_loop(call->c));
	q->wait.done = answer;
	int r = capture_wait_begin(&call->w->capture, &q->wait);
	if (r < 0) {
		answer_refused(q, call->c, r);
		return;
	}
	if (is_lines(call->req)) {
		if (lines_in(call->req->body) > EVENTS_MAX) {
			answer_too_many(call->c);
			return;
		}
		q->is_batch = true;
		take_lines(q, call->req->body);
	} else if (!take_json(q, call->c, call->req->body)) {
		return;
	}
	if (q->failed) { /* those that were taken are harmless: they come again with the same ids */
		buf_release(&q->errors);
		answer_refused(q, call->c,
		               event_log_is_full(call->w->api->event_log) ? ERR_LIMIT : ERR_UNAVAILABLE);
		return;
	}
	if (q->is_batch)
		event_writer_rejected(call->w->capture.writer, q->rejected);
	capture_wait_end(&call->w->capture, call->c, &q->wait);
}
