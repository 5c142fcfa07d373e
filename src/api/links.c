/* The routes /api/v1/links. */
#include "api/handlers.h"
#include "api/link_json.h"
#include "api/link_writes.h"
#include "auth/passwords.h"
#include "base/json_out.h"
#include "handler/caller.h"
#include "handler/input.h"
#include "handler/jobs.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/ratelimit.h"
#include "handler/reply.h"
#include "os/clock.h"

#include <sodium.h>

enum {
	IDEMPOTENCY_KEY_BYTES_MAX = 255,
	PAGE_DEFAULT = 50,
	PAGE_MAX = 1000,
	PAGE_BYTES_MAX = 1 << 20, /* a page with many long notes ends early */
};
static const int64_t expires_by_default = -1; /* no request gives a negative time */

static void reply_link(struct http_conn *c, const struct api *api, const struct link_record *link)
{
	struct buf CLEANUP(buf_release) body = {0};
	link_json(&body, api, link);
	reply_json(c, 200, &body, NULL, 0);
}

/* Checks the given URL and replaces it by its canonical form. */
static int canonical_url(struct write_job *j, const char *field, struct str *url, struct input_err *e)
{
	struct buf CLEANUP(buf_release) canonical = {0};
	struct err wrong;
	int r = url_canonicalize(*url, &j->worker->api->url_rules, &canonical, &wrong);
	if (r == ERR_INVALID) {
		bool is_target = url == &j->write.link.url; /* "the URL" says enough */
		input_wrong_field(e, field, is_target ? "%s" : "in 'expired_url', %s", wrong.text);
		e->code = "invalid-url";
	}
	if (r < 0)
		return r;
	*url = arena_str(j->write.arena, buf_view(&canonical));
	return url->ptr ? 0 : ERR_NOMEM;
}

/* Rules for single fields, of a create and of a PATCH. */
static int check_fields(struct write_job *j, unsigned bits, struct input_err *e)
{
	struct link_record *link = &j->write.link;
	int r = 0;
	if (bits & LINK_URL)
		r = canonical_url(j, "original_url", &link->url, e);
	if (r == 0 && link->expired_url.ptr)
		r = canonical_url(j, "expired_url", &link->expired_url, e);
	if (r == 0 && bits & LINK_EXPIRES && link->expires_ms > 0 && link->expires_ms <= j->write.now_ms)
		r = input_wrong_field(e, j->plain ? "expire_date" : "expires_at",
		                      "the expiry is in the past; send a later time, or null for none");
	return r;
}

/* A rule for two fields. A PATCH may give one of them, so the store decides there. */
static void reply_never_opens(struct write_job *j)
{
	bool by_end = j->write.kind == STORE_LINK_UPDATE && !(j->write.fields & LINK_NOT_BEFORE);
	problem_reply_field(j->conn, "invalid-field", by_end ? "expires_at" : "not_before",
	                    "The link would expire before it begins; send a 'not_before' earlier than "
	                    "'expires_at'.");
}

/* Creating */

static int take_alias(struct write_job *j, struct str alias, struct input_err *e)
{
	char folded[KEY_BYTES_MAX];
	struct link_record *link = &j->write.link;
	struct err wrong;
	int r = alias_check(alias, &wrong);
	if (r == ERR_INVALID) {
		input_wrong_field(e, j->plain ? "custom_alias" : "alias", "%s", wrong.text);
		e->code = "invalid-alias";
	}
	if (r < 0)
		return r;
	link->is_alias = true;
	link->key = arena_str(j->write.arena, key_fold(links_cipher(j->worker->api->links), alias, folded));
	return link->key.ptr ? 0 : ERR_NOMEM;
}

static void refuse_create(struct write_job *j)
{
	metric_add(&j->worker->metrics->http_requests_limited, 1);
	ratelimit_refuse(j->conn, &j->reading, false,
	                 "This API key, or its user, has used up the limit on new links.");
}

static void create_reply(struct write_job *j);

static void created_read_done(struct read_job *read)
{
	struct write_job *j = read->ctx;
	j->write.link = read->lookup.link;
	create_reply(j);
}

/* Completes the link of the response: with its owner's name, and for READ_CLICKS with its live clicks. True:
 * a read is under way, and `done` replies. */
static bool link_read_submit(struct write_job *j, enum read_kind kind, void (*done)(struct read_job *))
{
	struct link_record *link = &j->write.link;
	struct loop *l = http_conn_loop(j->conn);
	struct account owner;
	struct account_ref ref;
	if (kind == READ_OWNER && link->user_name.len > 0)
		return false;
	if (kind == READ_OWNER && link->owner == 0) {
		link->user_name = STR("local");
		return false;
	}
	if (kind == READ_OWNER && accounts_find_user(j->worker->api->accounts, link->owner,
	                                             (struct account_time){loop_real_ms(l), loop_mono_ms(l)},
	                                             &owner, &ref) == ACCOUNT_FOUND) {
		link->user_name = owner.name; /* valid in this turn; the reply is written now */
		return false;
	}
	struct read_job *read = read_job_new(j->worker, j->conn, kind, done);
	if (!read)
		return true;
	read->ctx = j;
	read->lookup.link = *link;
	if (offload_submit(j->worker->api->readers, &read->job) < 0)
		done(read);
	return true;
}

static void create_done(struct write_job *j)
{
	static const struct http_field retry = {STR("Retry-After"), STR("5")};
	static const struct problem no_keys = {
	    .status = 503, .code = "no-keys", .fields = &retry, .field_count = 1};
	const struct store_write *w = &j->write;
	struct err why;
	/* The creator may have given the link away since, and then must not see it. */
	bool is_theirs = w->owner == 0 || w->owner == w->link.owner;
	if (w->result == ERR_CONFLICT)
		problem_reply(j->conn, 409, "alias-taken", "The alias '%.*s' is taken; choose another.",
		              STR_ARG(w->link.key));
	else if (w->result == ERR_INVALID)
		problem_reply(j->conn, 422, "idempotency-key-reused",
		              "This Idempotency-Key was used for a different request; use a new one for each "
		              "link.");
	else if (w->result == ERR_NOT_FOUND || (w->result == 0 && w->replayed && !is_theirs))
		problem_reply(j->conn, 409, "idempotent-link-gone",
		              "The link that was created with this Idempotency-Key is gone; use a new one.");
	else if (w->result == ERR_LIMIT && w->replay_only)
		refuse_create(j);
	else if (w->result == ERR_LIMIT)
		problem_reply(j->conn, 503, "keys-used-up",
		              "All keys of this length are in use; the operator must use a store with longer "
		              "keys.");
	else if (w->result == ERR_BUSY && links_source_trouble(j->worker->api->links, &why))
		problem_reply_with(j->conn, &no_keys, "%s", why.text);
	else if (w->result < 0)
		problem_reply_store(j->conn, w->result);
	else if (j->plain || !link_read_submit(j, READ_OWNER, created_read_done))
		create_reply(j);
}

static void create_reply(struct write_job *j)
{
	struct api *api = j->worker->api;
	const struct store_write *w = &j->write;
	struct buf CLEANUP(buf_release) body = {0}, location = {0};
	struct ratelimit_text text;
	struct http_field fields[RATELIMIT_FIELDS + 2];
	size_t n = ratelimit_fields(&j->reading, &text, fields);
	link_short_url(&location, api, &w->link);
	if (!location.failed)
		fields[n++] = (struct http_field){STR("Location"), buf_view(&location)};
	if (w->replayed)
		fields[n++] = (struct http_field){STR("Idempotency-Replayed"), STR("true")};
	if (j->plain_text) {
		const struct http_response r = {
		    .status = 201,
		    .content_type = STR("text/plain; charset=utf-8"),
		    .body = buf_view(&location),
		    .fields = fields,
		    .field_count = n,
		};
		http_reply(j->conn, &r);
		return;
	}
	if (j->plain)
		link_json_created(&body, api, &w->link);
	else
		link_json(&body, api, &w->link);
	reply_json(j->conn, 201, &body, fields, n);
}

/* False: the request has been answered. */
static bool take_idempotency_key(struct write_job *j, const struct http_request *req)
{
	struct str key = http_request_field(req, STR("idempotency-key"));
	if (!key.ptr)
		return true;
	if (key.len == 0 || key.len > IDEMPOTENCY_KEY_BYTES_MAX) {
		problem_reply(j->conn, 400, "invalid-idempotency-key",
		              "The header Idempotency-Key has %zu bytes; it must have 1 to %d.", key.len,
		              IDEMPOTENCY_KEY_BYTES_MAX);
		return false;
	}
	j->write.idempotency_key = request_str(j->conn, key);
	if (!j->write.idempotency_key.ptr)
		return false;
	crypto_generichash(j->write.fingerprint, FINGERPRINT_BYTES, (const unsigned char *)req->body.ptr,
	                   req->body.len, NULL, 0);
	return true;
}

/* A create that waits until the use of its limit by other servers is known. */
struct create_wait {
	struct query_job base;
	struct write_job *write;
	struct caller caller;
	bool ended; /* as caller_recheck */
	struct str password;
};

/* Takes one create from the caller's budget, and submits. If the use by other servers is not known yet, waits
 * for it first, on a pool thread. */
static void charge(struct write_job *j, const struct caller *caller, struct str password, bool has_waited);

static void limit_refresh_run(struct query_job *base)
{
	struct create_wait *j = container_of(base, struct create_wait, base);
	meter_wait_for_grant(&j->caller.budget->creates, clock_mono_ms() + LIMIT_REFRESH_MS_MAX);
	base->result = caller_recheck(base->worker->api, &j->caller, &j->ended);
}

static void limit_refresh_done(struct query_job *base)
{
	struct create_wait *j = container_of(base, struct create_wait, base);
	if (base->result < 0)
		problem_reply_store(base->conn, base->result);
	else if (j->ended)
		caller_reply_ended(base->conn, &j->caller);
	else
		charge(j->write, &j->caller, j->password, true);
}

static void charge(struct write_job *j, const struct caller *caller, struct str password, bool has_waited)
{
	if (meter_take(&caller->budget->creates, loop_mono_ms(http_conn_loop(j->conn)), &j->reading)) {
		j->refund = &caller->budget->creates;
	} else if (j->reading.unsynced && !has_waited) {
		struct create_wait *wait = query_job_new(j->worker, j->conn, sizeof(*wait), limit_refresh_run,
		                                         limit_refresh_done);
		if (!wait)
			return;
		wait->write = j;
		wait->caller = *caller;
		wait->password = password;
		query_job_submit(&wait->base);
		return;
	} else if (j->write.idempotency_key.ptr) {
		j->write.replay_only = true; /* the limit is used up, but this may be a repeated request */
	} else {
		refuse_create(j);
		return;
	}
	write_job_submit_hashed(j, caller, password, &j->write.link.password);
}

/* The owner that the request names. Only admins give links to others. False: the request was parked or
 * answered. */
static bool take_owner(const struct api_call *call, struct str text, uint64_t *ret)
{
	struct account owner;
	if (!caller_resolve_user(call, text, &owner))
		return false;
	bool may = caller_is_admin(&call->caller) || (owner.id != 0 && owner.id == call->caller.user);
	if (!may)
		caller_reply_forbidden(call->c, RIGHT_ADMIN);
	else if (owner.id == 0)
		caller_reply_no_such_user(call->c, "owner", text);
	else
		*ret = owner.id;
	return may && owner.id != 0;
}

/* What a create has without a field, and what null means in a PATCH. */
static struct link_record link_defaults(const struct api_call *call)
{
	return (struct link_record){.owner = call->caller.user, .redirect_status = 302, .enabled = true};
}

struct write_job *link_create_new(const struct api_call *call)
{
	struct write_job *j = write_job_new(call, STORE_LINK_CREATE, create_done);
	if (!j)
		return NULL;
	struct link_record *link = &j->write.link;
	*link = link_defaults(call);
	link->api_key = call->caller.limit_key;
	link->created_ms = link->updated_ms = j->write.now_ms;
	link->expires_ms = expires_by_default;
	j->write.owner = caller_owner_filter(&call->caller);
	j->write.idempotency_owner = call->caller.user;
	return j;
}

void link_create_submit(struct write_job *j, const struct api_call *call, const struct link_create_input *in)
{
	struct input_err e;
	if (in->owner.ptr && !take_owner(call, in->owner, &j->write.link.owner))
		return;
	int r = check_fields(j, ~0U, &e);
	if (r == 0 && in->alias.ptr)
		r = take_alias(j, in->alias, &e);
	if (j->write.link.expires_ms == expires_by_default)
		j->write.link.expires_ms = link_default_expiry_ms(&j->write.link);
	if (r < 0)
		input_reply_failed(j->conn, r, &e);
	else if (link_never_opens(&j->write.link))
		reply_never_opens(j);
	else if (take_idempotency_key(j, call->req))
		charge(j, &call->caller, in->password, false);
}

void links_post(struct api_call *call)
{
	struct input_err e;
	struct link_create_input in = {0};
	const struct input_field own[] = {{"alias", FIELD_STRING, &in.alias, .may_be_null = true}};
	struct write_job *j = link_create_new(call);
	if (!j)
		return;
	struct input_record record = {&link_fields, FIELD_CREATE, &j->write.link, own, 1};
	int r = input_record_read(call->req->body, &record, j->write.arena, &e);
	in.password = record.secret;
	in.owner = record.user;
	if (r < 0)
		input_reply_failed(call->c, r, &e);
	else
		link_create_submit(j, call, &in);
}

/* Reading */

static void link_get_done(struct read_job *j)
{
	if (j->lookup.result < 0)
		link_param_reply_failed(j->conn, j->lookup.result);
	else
		reply_link(j->conn, j->worker->api, &j->lookup.link);
}

void link_get(struct api_call *call)
{
	struct str name = link_param_key(call->w, call->c, call->params[0]);
	struct read_job *j = name.ptr ? read_job_new(call->w, call->c, READ_LINK, link_get_done) : NULL;
	if (!j)
		return;
	j->owner = caller_owner_filter(&call->caller);
	j->shows_clicks = true;
	j->lookup.ref = links_ref(call->w->api->links, name);
	j->lookup.arena = http_conn_arena(call->c);
	read_job_submit(j);
}

static void links_list_done(struct read_job *j)
{
	const struct store_list *page = &j->list;
	if (j->result == ERR_INVALID) {
		problem_reply_cursor(j->conn);
		return;
	}
	if (j->result < 0) {
		problem_reply_store(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"links\":["));
	for (size_t i = 0; i < page->count; i++) {
		json_out_next(&body);
		link_json(&body, j->worker->api, &page->links[i]);
	}
	buf_char(&body, ']');
	json_out_name_str(&body, "next", page->next);
	buf_char(&body, '}');
	reply_json(j->conn, 200, &body, NULL, 0);
}

void links_list_get(struct api_call *call)
{
	uint64_t limit;
	if (!input_limit(call->c, call->req->query, PAGE_DEFAULT, PAGE_MAX, &limit))
		return;
	struct read_job *j = read_job_new(call->w, call->c, READ_LIST, links_list_done);
	if (!j)
		return;
	j->list.owner = caller_owner_filter(&call->caller);
	j->list.limit = limit;
	j->list.bytes_max = PAGE_BYTES_MAX;
	j->list.arena = http_conn_arena(call->c);
	j->list.cursor = arena_str(j->list.arena, http_query_param(call->req->query, STR("cursor")));
	read_job_submit(j);
}

/* Changing */

static void patched_read_done(struct read_job *j)
{
	reply_link(j->conn, j->worker->api, &j->lookup.link);
}

/* The live clicks are read here and not by the writer, so that other writes do not wait for them. */
static void patch_done(struct write_job *j)
{
	struct api *api = j->worker->api;
	if (j->write.result == ERR_INVALID)
		reply_never_opens(j);
	else if (j->write.result < 0)
		link_param_reply_failed(j->conn, j->write.result);
	else if (!j->ctx)
		http_reply(j->conn, &(const struct http_response){.status = 204});
	else if (!link_read_submit(j, api->counters ? READ_CLICKS : READ_OWNER, patched_read_done))
		reply_link(j->conn, api, &j->write.link);
}

void link_patch(struct api_call *call)
{
	struct write_job *j = link_job_new(call, call->params[0], STORE_LINK_UPDATE, patch_done);
	if (!j)
		return;
	struct input_err e;
	j->write.link = link_defaults(call);
	struct input_record in = {&link_fields, FIELD_PATCH, &j->write.link};
	int r = input_record_read(call->req->body, &in, j->write.arena, &e);
	if (r == 0 && in.bits == 0)
		r = input_wrong_body(&e, "the body changes nothing; send at least one field");
	if (r == 0)
		r = check_fields(j, in.bits, &e);
	if (r < 0) {
		input_reply_failed(call->c, r, &e);
		return;
	}
	if (in.user.ptr && !take_owner(call, in.user, &j->write.link.owner))
		return;
	j->write.fields = in.bits;
	j->ctx = call->caller.rights & RIGHT_READ ? j : NULL; /* without this right, the reply has no link */
	write_job_submit_hashed(j, &call->caller, in.secret, &j->write.link.password);
}

static void delete_done(struct write_job *j)
{
	const struct http_response no_content = {.status = 204};
	const struct http_response plain = {
	    .status = 200, .content_type = STR("text/plain; charset=utf-8"), .body = STR("SUCCESS")};
	if (j->write.result < 0)
		link_param_reply_failed(j->conn, j->write.result);
	else
		http_reply(j->conn, j->plain ? &plain : &no_content);
}

void link_delete_submit(const struct api_call *call, struct str key, bool plain)
{
	struct write_job *j = link_job_new(call, key, STORE_LINK_DELETE, delete_done);
	if (!j)
		return;
	j->plain = plain;
	write_job_submit(j);
}

void link_delete(struct api_call *call)
{
	link_delete_submit(call, call->params[0], false);
}
