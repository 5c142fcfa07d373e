#include "client/postgres.h"
#include "lib/database_kit.h"
#include "lib/test.h"
#include "obs/log.h"

#include <arpa/inet.h>
#include <sys/socket.h>

static const char *const url = database_kit_urls[0];

static struct pg_pool *pool_of(const char *text, size_t max)
{
	struct pg_pool *p = NULL;
	MUST(pg_pool_new(str_of(text), max, NULL, NULL, &p, &why));
	return p;
}

static struct pg_conn *take(struct pg_pool *p)
{
	struct err e = {""};
	struct pg_conn *c = pg_take(p, &e);
	if (!c)
		fail_msg("%s", e.text);
	return c;
}

/* --- URLs --- */

TEST(a_url_that_cannot_be_read_is_refused_without_its_password)
{
	static const char *const bad[] = {
	    "mysql://u:geheim@h/d",
	    "postgres://u:geheim@h:port:1/d?x",
	    "postgres://u:geheim@h/d?nonsense=1",
	    "postgres://u:gehe%im@h/d",
	    "host=h password=geheim",
	    "",
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct pg_pool *p = NULL;
		struct err e = {""};
		assert_int_equal(pg_pool_new(str_of(bad[i]), 1, NULL, NULL, &p, &e), ERR_INVALID);
		assert_null(p);
		assert_true(strlen(e.text) > 0);
		assert_null(strstr(e.text, "geheim"));
	}
}

TEST(an_address_names_host_port_and_database_only)
{
	struct pg_pool *p = pool_of("postgres://me:geheim@db.example:6000/links?connect_timeout=1", 1);
	assert_string_equal(pg_pool_address(p).ptr, "db.example:6000/links");
	pg_pool_free(p);
	p = pool_of("postgresql://me@/", 1);
	assert_string_equal(pg_pool_address(p).ptr, "localhost:5432/me");
	pg_pool_free(p);
}

static const struct pg_statement name_get = {"name_get", "SELECT current_setting('application_name')"};

TEST(a_url_overrides_our_defaults)
{
	database_kit_need();
	char own[2 * POSTGRES_KIT_URL_BYTES];
	snprintf(own, sizeof(own), "%s%sfallback_application_name=own", url, strchr(url, '?') ? "&" : "?");
	for (int i = 0; i < 2; i++) {
		struct pg_pool *p = pool_of(i ? own : url, 1);
		struct pg_conn *c = take(p);
		struct pg_query q = pg_query(c, &name_get);
		struct pg_result r;
		assert_int_equal(pg_ask(&q, &r, NULL), 0);
		assert_true(str_eq(pg_get_text(&r, 0, 0), i ? STR("own") : STR("curt")));
		pg_result_end(&r);
		pg_return(c);
		pg_pool_free(p);
	}
}

/* --- values --- */

static const struct pg_statement echo = {
    "echo", "SELECT $1::bigint, $2::bool, $3::text, $4::bytea, $5::bigint, $6::int2, $7::int4"};

TEST(values_come_back_as_they_were_sent)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	struct pg_query q = pg_query(c, &echo);
	pg_int(&q, INT64_MIN + 5);
	pg_bool(&q, true);
	pg_text(&q, STR("J\xc3\xbcrgen"));
	pg_bytes(&q, "a\0\xff", 3);
	pg_text(&q, STR_NULL);
	pg_bytes(&q, "\xff\xfe", 2);
	pg_bytes(&q, "\x00\x01\x00\x00", 4);
	pg_send(&q);
	pg_flush(c);
	struct pg_result r;
	assert_int_equal(pg_next(c, &r, NULL), 0);
	assert_int_equal(r.rows, 1);
	assert_int_equal(pg_get_int(&r, 0, 0), INT64_MIN + 5);
	assert_int_equal(pg_get_int(&r, 0, 1), 1);
	assert_true(str_eq(pg_get_text(&r, 0, 2), STR("J\xc3\xbcrgen")));
	assert_true(str_eq(pg_get_text(&r, 0, 3), STR("a\0\xff")));
	assert_true(pg_is_null(&r, 0, 4));
	assert_null(pg_get_text(&r, 0, 4).ptr);
	assert_int_equal(pg_get_int(&r, 0, 5), -2);
	assert_int_equal(pg_get_int(&r, 0, 6), 65536);
	pg_result_end(&r);
	assert_int_equal(pg_sync(c, NULL), 0);
	pg_return(c);
	pg_pool_free(p);
}

static const struct pg_statement unnest = {"unnest",
                                           "SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])"};

TEST(arrays_travel_with_their_nulls)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	const int64_t ints[] = {-1, INT64_MAX, 0};
	const struct str texts[] = {STR("eins"), STR_NULL, STR("")};
	const struct str blobs[] = {STR(""), STR("\0"), STR_NULL};
	for (size_t n = 0; n <= 3; n += 3) {
		struct pg_query q = pg_query(c, &unnest);
		pg_ints(&q, ints, n);
		pg_texts(&q, texts, n);
		pg_blobs(&q, blobs, n);
		pg_send(&q);
	}
	pg_flush(c);
	struct pg_result r;
	assert_int_equal(pg_next(c, &r, NULL), 0);
	assert_int_equal(r.rows, 0);
	pg_result_end(&r);
	assert_int_equal(pg_next(c, &r, NULL), 0);
	assert_int_equal(r.rows, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pg_get_int(&r, i, 0), ints[i]);
		assert_int_equal(pg_get_text(&r, i, 1).ptr != NULL, texts[i].ptr != NULL);
		assert_true(str_eq(pg_get_text(&r, i, 1), texts[i]));
		assert_int_equal(pg_get_text(&r, i, 2).ptr != NULL, blobs[i].ptr != NULL);
		assert_true(str_eq(pg_get_text(&r, i, 2), blobs[i]));
	}
	pg_result_end(&r);
	assert_int_equal(pg_sync(c, NULL), 0);
	pg_return(c);
	pg_pool_free(p);
}

/* --- pipelines --- */

static const struct pg_statement one_over = {"one_over", "SELECT 1 / $1::bigint"};

static void one_over_send(struct pg_conn *c, int64_t v)
{
	struct pg_query q = pg_query(c, &one_over);
	pg_int(&q, v);
	pg_send(&q);
}

TEST(after_an_error_the_rest_is_skipped_up_to_the_sync)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	struct err e = {""};
	struct pg_result r;
	one_over_send(c, 1);
	one_over_send(c, 0);
	one_over_send(c, 1);
	pg_flush(c);
	one_over_send(c, 1);
	pg_flush(c);
	assert_int_equal(pg_next(c, &r, NULL), 0);
	pg_result_end(&r);
	assert_int_equal(pg_next(c, &r, &e), ERR_NOT_FOUND);
	assert_string_equal(e.text, "division by zero");
	assert_int_equal(pg_next(c, &r, &e), ERR_UNAVAILABLE);
	assert_int_equal(pg_sync(c, &e), ERR_NOT_FOUND);
	assert_string_equal(e.text, "division by zero");
	assert_int_equal(pg_next(c, &r, NULL), 0); /* what stands behind the sync is not touched */
	assert_int_equal(pg_get_int(&r, 0, 0), 1);
	pg_result_end(&r);
	assert_int_equal(pg_sync(c, NULL), 0);
	assert_false(pg_conn_failed(c));
	pg_return(c);
	pg_pool_free(p);
}

TEST(a_statement_whose_preparation_was_skipped_is_prepared_later)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	struct pg_result r;
	one_over_send(c, 0);
	struct pg_query q = pg_query(c, &unnest);
	for (int i = 0; i < 3; i++)
		pg_text(&q, STR_NULL);
	pg_send(&q);
	pg_flush(c);
	assert_int_equal(pg_sync(c, NULL), ERR_NOT_FOUND);
	q = pg_query(c, &unnest);
	for (int i = 0; i < 3; i++)
		pg_text(&q, STR_NULL);
	pg_send(&q);
	pg_flush(c);
	assert_int_equal(pg_next(c, &r, NULL), 0);
	pg_result_end(&r);
	assert_int_equal(pg_sync(c, NULL), 0);
	pg_return(c);
	pg_pool_free(p);
}

static const struct pg_statement mirror = {"mirror", "SELECT $1::bytea, repeat('x', 100000)"};

/* Each side has more to say than the sockets hold: a side that only writes waits for ever. */
TEST(a_large_pipeline_does_not_wait_for_itself)
{
	database_kit_need();
	enum { STATEMENTS = 300, BYTES = 100000 };
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	char *bytes = malloc(BYTES);
	memset(bytes, 'y', BYTES);
	for (int i = 0; i < STATEMENTS; i++) {
		struct pg_query q = pg_query(c, &mirror);
		pg_bytes(&q, bytes, BYTES);
		pg_send(&q);
	}
	pg_flush(c);
	for (int i = 0; i < STATEMENTS; i++) {
		struct pg_result r;
		assert_int_equal(pg_next(c, &r, NULL), 0);
		assert_true(str_eq(pg_get_text(&r, 0, 0), str_n(bytes, BYTES)));
		pg_result_end(&r);
	}
	assert_int_equal(pg_sync(c, NULL), 0);
	free(bytes);
	pg_return(c);
	pg_pool_free(p);
}

TEST(errors_are_distinguished)
{
	database_kit_need();
	static const struct {
		const char *sql;
		int error;
	} cases[] = {
	    {"CREATE TABLE twice (n int PRIMARY KEY); INSERT INTO twice VALUES (1), (1)", ERR_CONFLICT},
	    {"SELECT nothing_like_that", ERR_INVALID},
	    {"DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$", ERR_BUSY},
	    {"DO $$ BEGIN RAISE SQLSTATE '53100'; END $$", ERR_LIMIT},
	    {"DO $$ BEGIN RAISE SQLSTATE 'XX001'; END $$", ERR_CORRUPT},
	    {"SET statement_timeout = 1; SELECT pg_sleep(10)", ERR_UNAVAILABLE},
	};
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(pg_run(c, cases[i].sql, NULL), cases[i].error);
		assert_false(pg_conn_failed(c));
	}
	pg_return(c);
	pg_pool_free(p);
}

/* --- the pool --- */

static const struct pg_statement backend = {"backend", "SELECT pg_backend_pid()::bigint"};

static int64_t backend_of(struct pg_conn *c)
{
	struct pg_result r;
	struct pg_query q = pg_query(c, &backend);
	MUST(pg_ask(&q, &r, &why));
	int64_t pid = pg_get_int(&r, 0, 0);
	pg_result_end(&r);
	return pid;
}

static int64_t backend_once(struct pg_pool *p)
{
	struct pg_conn *c = take(p);
	int64_t pid = backend_of(c);
	pg_return(c);
	return pid;
}

TEST(a_connection_inside_a_transaction_is_not_used_again)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	int64_t pid = backend_of(c);
	assert_int_equal(pg_run(c, "BEGIN", NULL), 0);
	pg_return(c);
	assert_int_not_equal(backend_once(p), pid);
	pg_pool_free(p);
}

TEST(an_idle_connection_that_the_server_closed_is_replaced)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	char sql[128];
	int64_t pid = backend_once(p);
	snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%lld, 5000)", (long long)pid);
	postgres_kit_run(url, sql);
	assert_int_not_equal(backend_once(p), pid);
	assert_false(pg_is_failing(p));
	pg_pool_free(p);
}

TEST(a_connection_that_fails_tells_it_and_the_next_one_works)
{
	database_kit_need();
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	struct pg_result r;
	char sql[128];
	snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%lld, 5000)", (long long)backend_of(c));
	postgres_kit_run(url, sql);
	one_over_send(c, 1);
	pg_flush(c);
	assert_int_equal(pg_next(c, &r, NULL), ERR_UNAVAILABLE);
	assert_int_equal(pg_sync(c, NULL), ERR_UNAVAILABLE);
	assert_true(pg_conn_failed(c));
	pg_return(c);
	assert_true(backend_once(p) > 0);
	pg_pool_free(p);
}

/* A socket that listens (or, when `refuses`, does not) and never says anything. */
static int silent_server(bool refuses, char ret_url[POSTGRES_KIT_URL_BYTES], const char *options)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	if (!refuses)
		assert_int_equal(listen(fd, 8), 0);
	snprintf(ret_url, POSTGRES_KIT_URL_BYTES, "postgres://me:geheim@127.0.0.1:%u/db%s",
	         ntohs(at.sin_port), options);
	return fd;
}

TEST(a_server_that_refuses_or_never_answers_is_given_up)
{
	for (int refuses = 0; refuses < 2; refuses++) {
		char away[POSTGRES_KIT_URL_BYTES];
		int fd = silent_server(refuses, away, "?connect_timeout=2");
		struct pg_pool *p = pool_of(away, 1);
		struct err e = {""};
		assert_null(pg_take(p, &e));
		assert_true(pg_is_failing(p));
		assert_non_null(strstr(e.text, refuses ? "127.0.0.1" : "timeout expired"));
		assert_null(strstr(e.text, "geheim"));
		close(fd);
		pg_pool_free(p);
	}
}

TEST(a_slow_statement_is_ended_by_the_server_and_its_connection_stays)
{
	database_kit_need();
	struct err e = {""};
	struct pg_pool *p = pool_of(url, 1);
	pg_pool_timeout(p, 2000);
	struct pg_conn *c = take(p);
	int64_t pid = backend_of(c);
	assert_int_equal(pg_run(c, "SELECT pg_sleep(60)", &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "statement timeout"));
	assert_false(pg_conn_failed(c));
	pg_return(c);
	assert_false(pg_is_failing(p));
	assert_int_equal(backend_once(p), pid);
	pg_pool_free(p);
}

/* Frozen, and back. */
TEST(a_late_answer_costs_its_own_connection_only)
{
	database_kit_need();
	char through[2 * POSTGRES_KIT_URL_BYTES];
	struct err e = {""};
	struct relay *relay = database_kit_relay(url, through);
	struct pg_pool *p = pool_of(through, 2);
	struct pg_conn *late = take(p), *other = take(p);
	int64_t late_pid = backend_of(late), pid = backend_of(other);
	pg_return(other);
	relay_set(relay, RELAY_HOLD);
	assert_int_equal(pg_timeout(late, 100, &e), ERR_UNAVAILABLE);
	assert_string_equal(e.text, "the server did not answer in time");
	assert_true(pg_conn_failed(late));
	pg_return(late);
	assert_true(pg_is_failing(p)); /* until a new connection has proved that the server is well */
	relay_set(relay, RELAY_PASS);
	UNTIL(!pg_is_failing(p));
	struct pg_conn *a = take(p), *b = take(p);
	assert_true(backend_of(a) == pid || backend_of(b) == pid);
	assert_true(backend_of(a) != late_pid && backend_of(b) != late_pid);
	pg_return(a);
	pg_return(b);
	pg_pool_free(p);
	relay_stop(relay);
}

static int setup_refuses(struct pg_conn *c, void *ctx, struct err *e)
{
	assert_int_equal(pg_run(c, "SELECT 1", e), 0);
	return err_set(e, ERR_INVALID, "%s", (const char *)ctx);
}

TEST(a_row_that_somebody_holds_makes_nobody_sick)
{
	database_kit_need();
	struct err e = {""};
	postgres_kit_run(url, "CREATE TABLE held (id int); INSERT INTO held VALUES (1)");
	struct pg_pool *p = pool_of(url, 2);
	struct pg_conn *holder = take(p), *waiter = take(p);
	assert_int_equal(pg_run(holder, "BEGIN; SELECT id FROM held FOR UPDATE", &e), 0);
	assert_int_equal(pg_timeout(waiter, 2000, &e), 0);
	assert_false(pg_lock_timed_out(waiter));
	assert_int_equal(pg_run(waiter, "SELECT id FROM held FOR UPDATE", &e), ERR_BUSY);
	assert_true(pg_lock_timed_out(waiter));
	assert_false(pg_conn_failed(waiter));
	pg_return(waiter);
	assert_false(pg_is_failing(p));
	waiter = take(p);
	assert_false(pg_lock_timed_out(waiter));
	pg_return(waiter);
	pg_return(holder);
	pg_pool_free(p);
}

TEST(a_transaction_whose_owner_stands_still_is_ended)
{
	database_kit_need();
	struct err e = {""};
	struct pg_pool *p = pool_of(url, 1);
	struct pg_conn *c = take(p);
	const struct pg_statement limit = {"limit_get",
	                                   "SELECT setting::bigint FROM pg_settings"
	                                   " WHERE name = 'idle_in_transaction_session_timeout'"};
	struct pg_query q = pg_query(c, &limit);
	struct pg_result row;
	assert_int_equal(pg_ask(&q, &row, &e), 0);
	assert_int_equal(pg_get_int(&row, 0, 0), PG_IDLE_TXN_MS);
	pg_result_end(&row);
	assert_int_equal(
	    pg_run(c, "SET idle_in_transaction_session_timeout = 1; SET application_name = 'still'", &e), 0);
	assert_int_equal(pg_run(c, "BEGIN", &e), 0);
	UNTIL(postgres_kit_ask(
	          url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'still'") == 0);
	assert_int_equal(pg_run(c, "SELECT 1", &e), ERR_UNAVAILABLE);
	assert_true(pg_conn_failed(c));
	pg_return(c);
	assert_false(pg_is_failing(p));
	pg_pool_free(p);
}

TEST(the_log_says_what_the_server_said_and_no_password)
{
	database_kit_need();
	char path[] = "/tmp/curt-postgres-log-XXXXXX", with_password[2 * POSTGRES_KIT_URL_BYTES];
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	const char *at = strchr(url, '@');
	assert_non_null(at);
	snprintf(with_password, sizeof(with_password), "%.*s:geheim%s", (int)(at - url), url, at);
	const struct log_settings settings = {.level = LOG_INFO, .file = path};
	assert_int_equal(log_start(&settings, NULL), 0);
	struct pg_pool *p = pool_of(with_password, 1);
	for (int i = 0; i < 2; i++) { /* the second time is too soon to be told */
		struct pg_conn *c = take(p);
		assert_int_equal(pg_run(c, "SELECT no_such_thing", NULL), ERR_INVALID);
		pg_return(c);
	}
	pg_pool_free(p);
	log_stop();
	char text[4096];
	ssize_t n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	close(fd);
	unlink(path);
	const char *said = strstr(text, "no_such_thing");
	assert_non_null(said);
	assert_null(strstr(said + 1, "no_such_thing"));
	assert_null(strstr(text, "geheim"));
}

TEST(a_setup_that_fails_closes_the_connection)
{
	database_kit_need();
	struct pg_pool *p = NULL;
	struct err e = {""};
	assert_int_equal(pg_pool_new(str_of(url), 1, setup_refuses, "not this one", &p, &e), 0);
	assert_null(pg_take(p, &e));
	assert_string_equal(e.text, "not this one");
	pg_pool_free(p);
}

TEST_MAIN(.group_setup = database_kit_one, .group_teardown = database_kit_down)
