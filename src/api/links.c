/* Links over HTTP: /api/v1/links, and createURL and deleteURL, which say the same in other words. */
#include "api/handlers.h"
#include "api/link_json.h"
#include "auth/passwords.h"
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
	USER_NAME_BYTES_MAX = 128,
	IDEMPOTENCY_KEY_BYTES_MAX = 255,
	PAGE_DEFAULT = 50,
	PAGE_MAX = 1000,
	PAGE_BYTES_MAX = 1 << 20, /* a page of many long notes ends early */
	GUESS_BODY_BYTES_MAX = 64 * 1024,
};
static const int64_t default_life_ms = 2LL * 365 * 24 * 3600 * 1000;

static void reply_link(struct http_conn *c, const struct api *api, const struct link_record *link)
{
	struct buf CLEANUP(buf_release) body = {0};
	link_json(&body, api, link);
	api_reply_json(c, 200, &body, NULL, 0);
}

/* What requests say about a link */

static int check_times(int64_t not_before_ms, int64_t expires_ms, struct err *e)
{
	if (not_before_ms == 0 || expires_ms == 0 || not_before_ms < expires_ms)
		return 0;
	return err_set(e, ERR_INVALID,
	               "the link would end before it begins; give a 'not_before' earlier than 'expires_at'");
}

static int check_expiry(int64_t expires_ms, int64_t now_ms, struct err *e)
{
	if (expires_ms == 0 || expires_ms > now_ms)
		return 0;
	return err_set(e, ERR_INVALID, "the expiry lies in the past; give a later time, or null for none");
}

/* Puts the canonical form into the arena. */
static int canonical_url(struct api *api, struct str in, struct arena *arena, struct str *ret, struct err *e)
{
	struct buf CLEANUP(buf_release) canonical = {0};
	int r = url_canonicalize(in, &api->url_rules, &canonical, e);
	if (r < 0)
		return r;
	*ret = arena_str(arena, buf_view(&canonical));
	return ret->ptr ? 0 : ERR_NOMEM;
}

/* The rules of the fields that were given: the canonical form replaces what came. */
static int check_fields(struct write_job *j, unsigned bits, struct str password, struct err *e,
                        const char **ret_code)
{
	struct link_record *link = &j->write.link;
	const unsigned times = LINK_EXPIRES | LINK_NOT_BEFORE;
	int r = 0;
	*ret_code = "invalid-url";
	if (bits & LINK_URL)
		r = canonical_url(j->worker->api, link->url, j->write.arena, &link->url, e);
	if (r == 0 && link->expired_url.ptr)
		r = canonical_url(j->worker->api, link->expired_url, j->write.arena, &link->expired_url, e);
	if (r < 0)
		return r;
	*ret_code = "invalid-field";
	if (bits & LINK_EXPIRES)
		r = check_expiry(link->expires_ms, j->write.now_ms, e);
	if (r == 0 && (bits & times) == times)
		r = check_times(link->not_before_ms, link->expires_ms, e);
	if (r == 0 && password.ptr)
		r = password_check(password, LINK_PASSWORD_BYTES_MIN, e);
	return r;
}

/* Creating */

/* What the two ways of creating say beside the link's own fields. */
struct create_input {
	struct str alias, password, owner;
};

static int take_alias(struct write_job *j, struct str alias, struct err *e)
{
	char folded[KEY_BYTES_MAX];
	struct link_record *link = &j->write.link;
	int r = alias_check(alias, e);
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
	                 "This API key, or its user, has made as many links as the limit allows.");
}

static void create_reply(struct write_job *j);

static void created_show(struct read_job *show)
{
	struct write_job *j = show->ctx;
	j->write.link = show->lookup.link;
	create_reply(j);
}

/* True: the answer comes when the owner's name is read, for it is not at hand. */
static bool owner_is_read(struct write_job *j, enum read_kind kind, void (*done)(struct read_job *))
{
	struct link_record *link = &j->write.link;
	struct loop *l = http_conn_loop(j->conn);
	struct account owner;
	struct account_want want;
	if (kind == READ_OWNER && link->user_name.len > 0)
		return false;
	if (kind == READ_OWNER && link->owner == 0) {
		link->user_name = STR("local");
		return false;
	}
	if (kind == READ_OWNER && accounts_user(j->worker->api->accounts, link->owner,
	                                        (struct account_time){loop_real_ms(l), loop_mono_ms(l)},
	                                        &owner, &want) == ACCOUNT_FOUND) {
		link->user_name = owner.name; /* the answer is made in this turn */
		return false;
	}
	struct read_job *show = read_job_new(j->worker, j->conn, kind, done);
	if (!show)
		return true;
	show->ctx = j;
	show->lookup.link = *link;
	if (offload_submit(j->worker->api->readers, &show->job) < 0)
		done(show);
	return true;
}

/* A failure of the store, or a source of keys that has none. */
static void create_failed(struct write_job *j)
{
	static const struct http_field later = {STR("Retry-After"), STR("5")};
	static const struct problem dry = {
	    .status = 503, .code = "no-keys", .fields = &later, .field_count = 1};
	struct err why;
	if (j->write.result == ERR_BUSY && links_source_trouble(j->worker->api->links, &why))
		problem_reply(j->conn, &dry, "%s", why.text);
	else
		problem_reply_store(j->conn, j->write.result);
}

static void create_done(struct write_job *j)
{
	const struct store_write *w = &j->write;
	/* Who made it may have given it away since, and then must not see what became of it. */
	bool is_theirs = w->owner == 0 || w->owner == w->link.owner;
	if (w->result == ERR_CONFLICT)
		problem_say(j->conn, 409, "alias-taken", "The alias '%.*s' is taken; choose another.",
		            STR_ARG(w->link.key));
	else if (w->result == ERR_INVALID)
		problem_say(
		    j->conn, 422, "idempotency-key-reused",
		    "This Idempotency-Key was used for another request; use a new one for each link.");
	else if (w->result == ERR_NOT_FOUND || (w->result == 0 && w->replayed && !is_theirs))
		problem_say(j->conn, 409, "idempotent-link-gone",
		            "The link that this Idempotency-Key made is gone; use a new key.");
	else if (w->result == ERR_LIMIT && w->replay_only)
		refuse_create(j);
	else if (w->result == ERR_LIMIT)
		problem_say(j->conn, 503, "keys-used-up",
		            "All keys of this length have been given out; use a store with longer keys.");
	else if (w->result < 0)
		create_failed(j);
	else if (j->plain || !owner_is_read(j, READ_OWNER, created_show))
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
	api_reply_json(j->conn, 201, &body, fields, n);
}

/* False: it was wrong, and that has been said. */
static bool take_idempotency_key(struct write_job *j, const struct http_request *req)
{
	struct str key = http_request_field(req, STR("idempotency-key"));
	if (!key.ptr)
		return true;
	if (key.len == 0 || key.len > IDEMPOTENCY_KEY_BYTES_MAX) {
		problem_say(j->conn, 400, "invalid-idempotency-key",
		            "Idempotency-Key must have 1 to %d bytes.", IDEMPOTENCY_KEY_BYTES_MAX);
		return false;
	}
	j->write.idempotency_key = arena_str(j->write.arena, key);
	if (!j->write.idempotency_key.ptr) {
		problem_reply_store(j->conn, ERR_NOMEM);
		return false;
	}
	crypto_generichash(j->write.fingerprint, FINGERPRINT_BYTES, (const unsigned char *)req->body.ptr,
	                   req->body.len, NULL, 0);
	return true;
}

/* A create that waits for something beside the loop before it is submitted. */
struct create_wait {
	struct ask_job ask;
	struct write_job *write;
	struct caller caller;
	bool ended; /* they are nobody any more */
	struct str password;
};

/* Takes it from the caller's budget, and goes on. Where it is not known yet what other servers have used of
 * it, that is waited for first, beside the loop. */
static void charge(struct write_job *j, const struct caller *caller, struct str password, bool has_waited);

static void limit_refresh_run(struct ask_job *ask)
{
	struct create_wait *j = container_of(ask, struct create_wait, ask);
	meter_needs_refresh(&j->caller.budget->creates, clock_mono_ms() + LIMIT_REFRESH_MS_MAX);
	ask->result = auth_check(ask->worker->api, &j->caller, &j->ended);
}

static void limit_refresh_done(struct ask_job *ask)
{
	struct create_wait *j = container_of(ask, struct create_wait, ask);
	if (ask->result < 0)
		problem_reply_store(ask->conn, ask->result);
	else if (j->ended)
		auth_refuse_ended(ask->conn, &j->caller);
	else
		charge(j->write, &j->caller, j->password, true);
}

static void charge(struct write_job *j, const struct caller *caller, struct str password, bool has_waited)
{
	if (meter_take(&caller->budget->creates, loop_mono_ms(http_conn_loop(j->conn)), &j->reading)) {
		j->refund = &caller->budget->creates;
	} else if (j->reading.unheard && !has_waited) {
		struct create_wait *wait = ask_job_new(j->worker, j->conn, sizeof(*wait), limit_refresh_run,
		                                       limit_refresh_done);
		if (!wait)
			return;
		wait->write = j;
		wait->caller = *caller;
		wait->password = password;
		ask_job_submit(&wait->ask);
		return;
	} else if (j->write.idempotency_key.ptr) {
		j->write.replay_only = true; /* the limit is used up, but the answer may be known already */
	} else {
		refuse_create(j);
		return;
	}
	ask_submit_hashed(j, caller, password, &j->write.link.password);
}

/* Whose the link shall be. Only admins give links to others. False: the request is held, or has been
 * answered. */
static bool take_owner(const struct api_call *call, struct str text, uint64_t *ret)
{
	struct account owner;
	if (!auth_user_named(call, text, &owner))
		return false;
	bool may = caller_is_admin(&call->caller) || (owner.id != 0 && owner.id == call->caller.user);
	if (!may)
		auth_refuse(call->c, RIGHT_ADMIN);
	else if (owner.id == 0)
		problem_say(call->c, 400, "no-such-user",
		            "The field 'owner' names nobody; give a user's email address or id.");
	else
		*ret = owner.id;
	return may && owner.id != 0;
}

/* NULL: that has been said. The link has what nobody needs to say. */
static struct write_job *create_new(const struct api_call *call)
{
	struct write_job *j = write_job_new(call, STORE_LINK_CREATE, create_done);
	if (!j)
		return NULL;
	j->write.link = (struct link_record){
	    .owner = call->caller.user,
	    .api_key = call->caller.limit_key,
	    .created_ms = j->write.now_ms,
	    .updated_ms = j->write.now_ms,
	    .expires_ms = j->write.now_ms + default_life_ms,
	    .redirect_status = 302,
	    .enabled = true,
	};
	j->write.owner = link_param_owner(&call->caller);
	j->write.idempotency_owner = call->caller.user;
	return j;
}

/* The rest of a create, whose link has all that was given. */
static void create_submit(struct write_job *j, const struct api_call *call, const struct create_input *in)
{
	struct err e;
	const char *code;
	if (in->owner.ptr && !take_owner(call, in->owner, &j->write.link.owner))
		return;
	int r = check_fields(j, ~0U, in->password, &e, &code);
	if (r == 0 && in->alias.ptr) {
		code = "invalid-alias";
		r = take_alias(j, in->alias, &e);
	}
	if (r < 0)
		api_reply_failed(j->conn, r, code, &e);
	else if (take_idempotency_key(j, call->req))
		charge(j, &call->caller, in->password, false);
}

void links_post(struct api_call *call)
{
	struct err e;
	struct create_input in = {0};
	const struct input_field own[] = {{"alias", FIELD_STRING, &in.alias, .may_be_null = true}};
	struct input CLEANUP(input_release) body = {0};
	struct write_job *j = create_new(call);
	if (!j)
		return;
	struct input_record record = {&link_fields, FIELD_CREATE, &j->write.link, own, 1};
	int r = input_record_read(call->req->body, &body, &record, j->write.arena, &e);
	in.password = record.secret;
	in.owner = record.user;
	if (r < 0)
		api_reply_failed(call->c, r, "invalid-body", &e);
	else
		create_submit(j, call, &in);
}

static bool require(struct api_call *call, struct str in_body, unsigned rights)
{
	return auth_require(call->w, call->c, call->req, in_body, rights, &call->caller);
}

/*
 * For routes whose API key may stand in the body: parses it and finds out who is asking, in the order that
 * costs a stranger most and the server least. False: it has been answered. `in` is to be released in any
 * case.
 */
static bool body_and_key(struct api_call *call, struct input *in, unsigned rights)
{
	struct http_conn *c = call->c;
	const struct http_request *req = call->req;
	struct err e;
	bool known_already = auth_in_header(req);
	if (known_already && !require(call, STR_NULL, rights))
		return false;
	if (!known_already && req->body.len > GUESS_BODY_BYTES_MAX) {
		problem_say(c, 413, "body-too-large",
		            "A body over %d bytes is read only when the API key stands in the header.",
		            GUESS_BODY_BYTES_MAX);
		return false;
	}
	int r = input_parse(req->body, in, &e);
	if (r < 0) {
		api_reply_failed(c, r, "invalid-body", &e);
		return false;
	}
	return known_already || require(call, input_peek(in, "api_dev_key"), rights);
}

void create_url_post(struct api_call *call)
{
	struct err e;
	struct str api_dev_key;
	struct create_input in = {0};
	struct input CLEANUP(input_release) body = {0};
	struct write_job *j = body_and_key(call, &body, RIGHT_CREATE) ? create_new(call) : NULL;
	if (!j)
		return;
	j->plain = true;
	j->plain_text = str_starts(http_request_field(call->req, STR("accept")), STR("text/plain"));
	struct link_record *link = &j->write.link;
	const struct input_field fields[] = {
	    {"api_dev_key", FIELD_STRING, &api_dev_key},
	    {"original_url", FIELD_STRING, &link->url, .required = true},
	    {"custom_alias", FIELD_STRING, &in.alias, .may_be_null = true},
	    {"user_name", FIELD_TEXT, &link->user_name, .may_be_null = true,
	     .bytes_max = USER_NAME_BYTES_MAX},
	    {"expire_date", FIELD_TIME, &link->expires_ms},
	};
	int r = input_fields(&body, fields, ARRAY_LEN(fields), j->write.arena, &e);
	if (r < 0)
		api_reply_failed(call->c, r, "invalid-body", &e);
	else
		create_submit(j, call, &in);
}

/* Reading */

static void link_get_done(struct read_job *j)
{
	const struct store_lookup *found = &j->lookup;
	bool is_others = found->result == 0 && j->owner && found->link.owner != j->owner;
	if (found->result < 0 || is_others)
		link_param_reply_failed(j->conn, is_others ? ERR_NOT_FOUND : found->result);
	else
		reply_link(j->conn, j->worker->api, &found->link);
}

void link_get(struct api_call *call)
{
	struct str name = link_param_take(call->w, call->c, call->params[0]);
	struct read_job *j = name.ptr ? read_job_new(call->w, call->c, READ_LINK, link_get_done) : NULL;
	if (!j)
		return;
	j->owner = link_param_owner(&call->caller);
	j->shows_clicks = true;
	j->lookup.ref = links_ref(call->w->api->links, name);
	j->lookup.arena = http_conn_arena(call->c);
	read_job_submit(j);
}

static void links_list_done(struct read_job *j)
{
	const struct store_list *page = &j->list;
	if (j->result == ERR_INVALID) {
		problem_say(j->conn, 400, "invalid-cursor",
		            "The cursor is not one that this list gave; start again without it.");
		return;
	}
	if (j->result < 0) {
		problem_reply_store(j->conn, j->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{\"links\":["));
	for (size_t i = 0; i < page->count; i++) {
		if (i)
			buf_char(&body, ',');
		link_json(&body, j->worker->api, &page->links[i]);
	}
	buf_str(&body, STR("],\"next\":"));
	if (page->next.ptr)
		buf_printf(&body, "\"%.*s\"}", STR_ARG(page->next));
	else
		buf_str(&body, STR("null}"));
	api_reply_json(j->conn, 200, &body, NULL, 0);
}

void links_list_get(struct api_call *call)
{
	uint64_t limit;
	if (!input_limit(call->c, call->req->query, PAGE_DEFAULT, PAGE_MAX, &limit))
		return;
	struct read_job *j = read_job_new(call->w, call->c, READ_LIST, links_list_done);
	if (!j)
		return;
	j->list.owner = link_param_owner(&call->caller);
	j->list.limit = limit;
	j->list.bytes_max = PAGE_BYTES_MAX;
	j->list.arena = http_conn_arena(call->c);
	j->list.cursor = arena_str(j->list.arena, http_query_param(call->req->query, STR("cursor")));
	read_job_submit(j);
}

/* Changing */

static void patched_show(struct read_job *j)
{
	reply_link(j->conn, j->worker->api, &j->lookup.link);
}

/* Not by the writer: others' changes do not wait for the live counts. */
static void patched_reply(struct write_job *j)
{
	struct api *api = j->worker->api;
	if (!owner_is_read(j, api->counters ? READ_CLICKS : READ_OWNER, patched_show))
		reply_link(j->conn, api, &j->write.link);
}

static void patch_done(struct write_job *j)
{
	const struct http_response done = {.status = 204};
	if (j->write.result < 0)
		link_param_reply_failed(j->conn, j->write.result);
	else if (j->ctx)
		patched_reply(j);
	else
		http_reply(j->conn, &done);
}

void link_patch(struct api_call *call)
{
	struct write_job *j = link_job_new(call, call->params[0], STORE_LINK_UPDATE, patch_done);
	if (!j)
		return;
	struct err e;
	const char *code;
	struct input CLEANUP(input_release) body = {0};
	struct input_record in = {&link_fields, FIELD_PATCH, &j->write.link};
	int r = input_record_read(call->req->body, &body, &in, j->write.arena, &e);
	if (r == 0 && in.bits == 0)
		r = err_set(&e, ERR_INVALID, "the body changes nothing; name at least one field");
	if (r == 0)
		r = check_fields(j, in.bits, in.secret, &e, &code);
	if (r < 0) {
		api_reply_failed(call->c, r, "invalid-body", &e);
		return;
	}
	if (in.user.ptr && !take_owner(call, in.user, &j->write.link.owner))
		return;
	j->write.fields = in.bits;
	j->ctx = call->caller.rights & RIGHT_READ ? j
	                                          : NULL; /* who may not read links is not shown this one */
	ask_submit_hashed(j, &call->caller, in.secret, &j->write.link.password);
}

static void delete_done(struct write_job *j)
{
	const struct http_response done = {.status = 204};
	const struct http_response success = {
	    .status = 200, .content_type = STR("text/plain; charset=utf-8"), .body = STR("SUCCESS")};
	if (j->write.result < 0)
		link_param_reply_failed(j->conn, j->write.result);
	else
		http_reply(j->conn, j->plain ? &success : &done);
}

static void delete_submit(const struct api_call *call, struct str key, bool plain)
{
	struct write_job *j = link_job_new(call, key, STORE_LINK_DELETE, delete_done);
	if (!j)
		return;
	j->plain = plain;
	write_job_submit(j);
}

void link_delete(struct api_call *call)
{
	delete_submit(call, call->params[0], false);
}

/* A query parameter, decoded into the arena; STR_NULL when absent or malformed. */
static struct str query_text(const struct api_call *call, struct str name)
{
	struct str raw = http_query_param(call->req->query, name);
	char *text = raw.ptr ? arena_alloc(http_conn_arena(call->c), raw.len + 1) : NULL;
	size_t len;
	return text && http_percent_decode(raw, text, &len) ? str_n(text, len) : STR_NULL;
}

void delete_url_delete(struct api_call *call)
{
	struct err e;
	struct str api_dev_key, url_key = STR_NULL;
	const struct input_field fields[] = {
	    {"api_dev_key", FIELD_STRING, &api_dev_key},
	    {"url_key", FIELD_STRING, &url_key, .required = true},
	};
	struct input CLEANUP(input_release) body = {0};
	int r = 0;
	if (call->req->body.len > 0) {
		if (!body_and_key(call, &body, RIGHT_DELETE))
			return;
		r = input_fields(&body, fields, ARRAY_LEN(fields), http_conn_arena(call->c), &e);
	} else {
		if (!require(call, query_text(call, STR("api_dev_key")), RIGHT_DELETE))
			return;
		url_key = query_text(call, STR("url_key"));
		if (!url_key.ptr)
			r = err_set(&e, ERR_INVALID,
			            "the field 'url_key' is missing; give it in a JSON body or in the query");
	}
	if (r < 0)
		api_reply_failed(call->c, r, "invalid-body", &e);
	else
		delete_submit(call, url_key, true);
}
