#include "conn_double.h"
#include "handler/caller.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "os/clock.h"
#include "store/backends.h"

#include <sodium.h>

/* A request that is held remembers what it waits for. */
static struct account_ref held;
static int holds;

struct parked_request *parked_request_new(struct api_worker *w, struct http_conn *c,
                                          const struct http_request *req, const struct account_ref *want)
{
	held = *want;
	return (struct parked_request *)&held;
}

void parked_request_submit(struct parked_request *h)
{
	assert_ptr_equal(h, &held);
	holds++;
}

static struct store *store;
static struct budgets *budgets;
static struct arena arena;
static struct api api;
static struct api_worker worker = {.api = &api};
static struct http_conn conn;
static uint64_t ada; /* an editor with a key */
static char token[SESSION_TEXT_BYTES], csrf[CSRF_TEXT_BYTES];

static void apply(struct registry_write *w)
{
	w->now_ms = 1;
	w->arena = &arena;
	assert_int_equal(registry_apply(store->registry, w, 1), 0);
	assert_int_equal(w->result, 0);
}

static void add_key(const char *text, unsigned rights)
{
	struct registry_write w = {.kind = REGISTRY_KEY_CREATE,
	                           .key = {.user = ada, .name = STR("key"), .rights = rights}};
	api_key_digest(str_of(text), w.key.digest);
	apply(&w);
}

static int start(void **state)
{
	struct registry_write user = {.kind = REGISTRY_USER_CREATE};
	store = kit_store_new();
	budgets = budgets_new();
	user.user = (struct user_record){
	    .email = STR("ada@example.com"), .role = ROLE_EDITOR, .enabled = true};
	apply(&user);
	ada = user.user.id;
	add_key("full", RIGHTS_ALL);
	add_key("reading", RIGHT_READ);
	const struct accounts_config config = {
	    .store = store, .budgets = budgets, .cache_bytes = 1 << 20, .stale_ms = 60000};
	assert_int_equal(accounts_new(&config, &api.accounts, NULL), 0);
	accounts_set_local(api.accounts, STR("local"));
	struct registry_write session = {.kind = REGISTRY_SESSION_CREATE,
	                                 .session = {.id = {7},
	                                             .user = ada,
	                                             .generation = user.user.generation,
	                                             .expires_ms = clock_real_ms() + 3600000}};
	apply(&session);
	accounts_session_token(api.accounts, &session.session, token);
	accounts_csrf_token(api.accounts, session.session.id, csrf);
	holds = 0;
	double_mono_ms = 0;
	double_real_ms = clock_real_ms();
	conn = (struct http_conn){0};
	return 0;
}

static int stop(void **state)
{
	accounts_free(api.accounts);
	budgets_free(budgets);
	store_free(store);
	arena_release(&arena);
	arena = (struct arena){0};
	return 0;
}

static void add_field(struct http_request *req, const char *name, const char *value)
{
	req->fields[req->field_count++] = (struct http_field){str_of(name), str_of(value)};
}

static const char *cookie_with(const char *format, const char *value)
{
	return arena_printf(&arena, format, value).ptr;
}

static struct http_request session_request(enum http_method method)
{
	struct http_request req = {.method = method};
	add_field(&req, "Cookie", cookie_with("curt_session=%s", token));
	return req;
}

static struct http_request key_request(enum http_method method, const char *key)
{
	struct http_request req = {.method = method};
	add_field(&req, "X-Api-Key", key);
	return req;
}

static void read_held(void)
{
	const struct account_ref *const wants[] = {&held};
	assert_int_equal(accounts_read(api.accounts, wants, 1), 0);
}

/* The handler runs again when what it waited for was read. */
static bool requires_in(const struct http_request *req, struct str in_body, unsigned rights,
                        struct caller *ret)
{
	conn = (struct http_conn){0};
	int held_before = holds;
	bool may = caller_require(&worker, &conn, req, in_body, rights, ret);
	if (holds == held_before)
		return may;
	assert_false(may);
	assert_int_equal(conn.replies, 0);
	read_held();
	return requires_in(req, in_body, rights, ret);
}

static bool finds(const struct http_request *req, struct caller *ret)
{
	struct parked_request *parked;
	enum account_found found;
	while ((found = caller_find(&worker, &conn, req, ret, &parked)) == ACCOUNT_UNCACHED) {
		assert_non_null(parked);
		read_held();
	}
	assert_null(parked);
	return found == ACCOUNT_FOUND;
}

static bool requires(const struct http_request *req, unsigned rights, struct caller *ret)
{
	bool may = requires_in(req, STR_NULL, rights, ret);
	assert_int_equal(conn.replies, may ? 0 : 1);
	return may;
}

static void assert_refused(const struct http_request *req, unsigned rights, int status, const char *word)
{
	struct caller caller;
	assert_false(requires(req, rights, &caller));
	assert_int_equal(conn.status, status);
	assert_non_null(strstr(conn.body, word));
}

/* Cookies */

static struct str cookie(const char *value)
{
	struct http_request req = {0};
	add_field(&req, "cookie", value);
	return caller_session_cookie(&req);
}

static void assert_cookie(const char *value, const char *wanted)
{
	struct str got = cookie(value);
	if (!wanted) {
		assert_null(got.ptr);
		return;
	}
	assert_non_null(got.ptr);
	assert_true(str_eq(got, str_of(wanted)));
}

TEST(the_session_is_found_among_other_cookies)
{
	assert_cookie("curt_session=abc", "abc");
	assert_cookie("a=b; curt_session=a-B_9; c=d", "a-B_9");
	assert_cookie("a=b;curt_session=abc", "abc");
	assert_cookie("  curt_session=abc  ;;; ", "abc");
	assert_cookie("junk; =; ==; \"x\"=y; curt_session=abc", "abc");
	assert_cookie("a=\"b; curt_session=abc", "abc");
}

TEST(what_only_looks_like_a_session_is_ignored)
{
	assert_cookie("", NULL);
	assert_cookie("curt_session", NULL);
	assert_cookie("curt_session=", NULL);
	assert_cookie("Curt_session=abc", NULL);
	assert_cookie("xcurt_session=abc", NULL);
	assert_cookie("curt_session2=abc", NULL);
	assert_cookie("curt_session =abc", NULL);
	assert_cookie("curt_session= abc", NULL);
	assert_cookie("curt_session=\"abc\"", NULL);
	assert_cookie("curt_session=a.b", NULL);
	assert_cookie("curt_session=abc=", NULL);
	assert_cookie("x=curt_session=abc", NULL);
	char too_long[SESSION_TEXT_BYTES + 1];
	memset(too_long, 'a', SESSION_TEXT_BYTES);
	too_long[SESSION_TEXT_BYTES] = '\0';
	assert_cookie(cookie_with("curt_session=%s", too_long), NULL);
	assert_cookie(cookie_with("curt_session=%s", too_long + 1), too_long + 1);
	struct http_request none = {0};
	assert_null(caller_session_cookie(&none).ptr);
}

TEST(two_sessions_are_refused_and_the_same_twice_is_one)
{
	assert_cookie("curt_session=abc; curt_session=def", NULL);
	assert_cookie("curt_session=abc; curt_session=", NULL);
	assert_cookie("curt_session=abc; curt_session=abc", "abc");
	struct http_request req = {0};
	add_field(&req, "Cookie", "curt_session=abc");
	add_field(&req, "Cookie", "other=1; curt_session=def");
	assert_null(caller_session_cookie(&req).ptr);
	req.fields[1].value = STR("other=1");
	assert_true(str_eq(caller_session_cookie(&req), STR("abc")));
}

/* Who asks */

TEST(nobody_is_asked_for_a_key_or_to_sign_in)
{
	struct http_request req = {.method = HTTP_GET};
	assert_refused(&req, 0, 401, "urn:curt:key-required");
	assert_non_null(strstr(conn.body, "API key"));
	assert_non_null(strstr(conn.body, "/api/v1/session"));
	struct caller caller;
	memset(&caller, 1, sizeof(caller));
	assert_false(finds(&req, &caller));
	assert_int_equal(caller.rights, 0);
	assert_int_equal(caller.user, 0);
	assert_null(caller.budget);
}

TEST(a_key_comes_in_any_of_three_places)
{
	struct caller caller;
	struct http_request bearer = {.method = HTTP_POST}, header = key_request(HTTP_POST, "full"),
	                    none = {.method = HTTP_POST};
	add_field(&bearer, "Authorization", "bearer  full");
	assert_true(requires(&bearer, RIGHT_CREATE, &caller));
	assert_int_equal(caller.user, ada);
	assert_true(requires(&header, RIGHT_CREATE, &caller));
	assert_true(requires_in(&none, STR("full"), RIGHT_CREATE, &caller));
	assert_true(str_eq(caller_header_key(&bearer), STR("full")));
	assert_true(str_eq(caller_header_key(&header), STR("full")));
	assert_int_equal(caller_header_key(&none).len, 0);
}

TEST(a_key_that_is_presented_decides)
{
	struct caller caller;
	struct http_request req = session_request(HTTP_GET);
	add_field(&req, "X-Api-Key", "wrong");
	assert_refused(&req, 0, 401, "urn:curt:key-required");
	assert_false(finds(&req, &caller));
	req.fields[1].value = STR("reading");
	assert_true(requires(&req, RIGHT_READ, &caller));
	assert_false(caller.by_session);
	assert_int_equal(caller.rights, RIGHT_READ);
}

TEST(a_session_reads_with_its_cookie_alone)
{
	struct caller caller;
	for (enum http_method m = HTTP_GET; m <= HTTP_HEAD; m++) {
		struct http_request req = session_request(m);
		assert_true(requires(&req, RIGHT_READ, &caller));
		assert_true(caller.by_session);
		assert_int_equal(caller.user, ada);
	}
	struct http_request over = {.method = HTTP_GET};
	add_field(&over, "Cookie", "curt_session=abc");
	assert_refused(&over, 0, 401, "session has ended");
}

TEST(a_session_changes_things_with_its_token_only)
{
	static const enum http_method changing[] = {HTTP_POST, HTTP_PUT, HTTP_PATCH, HTTP_DELETE};
	struct caller caller;
	for (size_t i = 0; i < ARRAY_LEN(changing); i++) {
		struct http_request req = session_request(changing[i]);
		assert_refused(&req, 0, 403, "urn:curt:csrf-token-required");
		assert_true(finds(&req, &caller));
		add_field(&req, "X-CSRF-Token", "wrong");
		assert_refused(&req, 0, 403, "urn:curt:csrf-token-required");
		req.fields[1].value = str_of(csrf);
		assert_true(requires(&req, 0, &caller));
	}
}

/* Rights */

TEST(a_missing_right_is_named)
{
	struct http_request req = key_request(HTTP_POST, "reading");
	assert_refused(&req, RIGHT_CREATE, 403, "urn:curt:right-missing");
	assert_non_null(strstr(conn.body, "(right 'create')"));
	assert_null(strstr(conn.body, "(right 'read')"));
	assert_refused(&req, RIGHT_READ | RIGHT_STATS | RIGHT_DELETE, 403,
	               "(right 'stats') or delete links (right 'delete')");
}

TEST(only_an_admin_is_one)
{
	struct caller caller;
	struct http_request req = key_request(HTTP_GET, "full"), local = key_request(HTTP_GET, "local");
	assert_refused(&req, RIGHT_ADMIN, 403, "urn:curt:admin-only"); /* its user is an editor */
	conn = (struct http_conn){0};
	assert_false(caller_require(&worker, &conn, &req, STR_NULL, RIGHT_ADMIN, &caller));
	assert_int_equal(conn.status, 403);
	assert_true(caller_require(&worker, &conn, &local, STR_NULL, RIGHT_ADMIN, &caller));
	assert_int_equal(caller.rights, RIGHTS_ALL);
}

/* Accounts that are not at hand */

TEST(who_is_not_at_hand_is_waited_for_once_and_not_answered)
{
	struct caller caller;
	struct http_request req = key_request(HTTP_GET, "full");
	assert_false(caller_require(&worker, &conn, &req, STR_NULL, RIGHT_READ, &caller));
	assert_int_equal(holds, 1);
	assert_int_equal(conn.replies, 0);
	read_held();
	assert_true(caller_require(&worker, &conn, &req, STR_NULL, RIGHT_READ, &caller));
	assert_int_equal(holds, 1);
}

TEST(whom_somebody_names_is_waited_for)
{
	struct account user;
	struct http_request req = {.method = HTTP_GET};
	assert_false(
	    caller_resolve_user(&(struct api_call){&worker, &conn, &req}, STR("Ada@example.com"), &user));
	assert_int_equal(holds, 1);
	read_held();
	assert_true(
	    caller_resolve_user(&(struct api_call){&worker, &conn, &req}, STR("Ada@example.com"), &user));
	assert_int_equal(user.id, ada);
	assert_true(caller_resolve_user_id(&(struct api_call){&worker, &conn, &req}, ada, &user));
	assert_int_equal(user.id, ada);
	assert_int_equal(holds, 1);
}

TEST(nobody_is_taken_for_unknown_when_nobody_can_tell)
{
	struct caller caller;
	struct account user;
	struct parked_request *parked;
	struct http_request key = key_request(HTTP_GET, "full"), none = {.method = HTTP_GET};
	assert_true(requires(&key, 0, &caller));
	store->is_shared = true;
	assert_int_equal(accounts_poll_feed(api.accounts), 0);
	double_mono_ms = INT64_MAX;
	assert_refused(&key, 0, 503, "urn:curt:accounts-unavailable");
	assert_refused(&none, 0, 401, "urn:curt:key-required");
	assert_int_equal(caller_find(&worker, &conn, &key, &caller, &parked), ACCOUNT_STALE);
	assert_null(parked);
	conn = (struct http_conn){0};
	assert_false(
	    caller_resolve_user(&(struct api_call){&worker, &conn, &none}, STR("ada@example.com"), &user));
	assert_int_equal(conn.status, 503);
	store->is_shared = false;
}

/* Answers of several steps */

static void change_ada(struct user_record to, unsigned fields)
{
	to.id = ada;
	struct registry_write w = {.kind = REGISTRY_USER_UPDATE, .user = to, .user_fields = fields};
	apply(&w);
	accounts_update_cache(api.accounts, &w);
}

static bool still_holds(const struct caller *caller)
{
	bool ended = true;
	assert_int_equal(caller_recheck(&api, caller, &ended), 0);
	return !ended;
}

TEST(who_lost_a_right_since_they_asked_does_not_hold_any_more)
{
	struct caller by_key, by_session, reading, local;
	struct http_request key = key_request(HTTP_GET, "full"), few = key_request(HTTP_GET, "reading"),
	                    session = session_request(HTTP_GET), own = key_request(HTTP_GET, "local");
	assert_true(requires(&key, 0, &by_key) && requires(&session, 0, &by_session) &&
	            requires(&few, 0, &reading) && requires(&own, 0, &local));
	assert_true(still_holds(&by_key) && still_holds(&by_session));
	change_ada((struct user_record){.role = ROLE_VIEWER}, USER_ROLE);
	assert_false(still_holds(&by_key));
	assert_false(still_holds(&by_session));
	assert_true(still_holds(&reading));
	change_ada((struct user_record){.enabled = false}, USER_ENABLED);
	assert_false(still_holds(&reading));
	assert_true(still_holds(&local));
	assert_int_equal(conn.replies, 0);
}

TEST(who_does_not_hold_any_more_is_told_that_nothing_was_done)
{
	caller_reply_ended(&conn, &(struct caller){.by_session = true});
	assert_int_equal(conn.status, 401);
	assert_non_null(strstr(conn.body, "urn:curt:key-required"));
	assert_non_null(strstr(conn.body, "Your session ended"));
	assert_non_null(strstr(conn.body, "nothing was changed"));
	caller_reply_ended(&conn, &(struct caller){.key = 1});
	assert_int_equal(conn.status, 401);
	assert_non_null(strstr(conn.body, "The API key was revoked"));
	assert_non_null(strstr(conn.body, "nothing was changed"));
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.setup = start, .teardown = stop);
}
