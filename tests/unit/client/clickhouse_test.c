#include "client/clickhouse.h"
#include "client/clickhouse_url.h"
#include "client/rowbinary.h"
#include "lib/clickhouse_kit.h"
#include "lib/test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

/* --- URLs --- */

static void parse(const char *url, struct clickhouse_url *ret)
{
	struct err e = {""};
	if (clickhouse_url_parse(str_of(url), ret, &e) != 0)
		fail_msg("%s: %s", url, e.text);
}

static struct test_list with_server;

TEST(a_host_alone_has_the_usual_port_and_database)
{
	struct clickhouse_url u;
	parse("clickhouse://stats.example", &u);
	assert_string_equal(u.endpoint, "http://stats.example:8123/");
	assert_string_equal(u.address, "stats.example:8123");
	assert_string_equal(u.database, "curt");
	assert_null(u.user);
	assert_null(u.password);
	assert_true(u.is_packed);
	clickhouse_url_release(&u);
}

TEST(all_parts_of_a_url_are_read)
{
	struct clickhouse_url u;
	parse("clickhouse://me:p%40ss%3A%2F@[::1]:9000/other_1?secure=1&compress=0", &u);
	assert_string_equal(u.endpoint, "https://[::1]:9000/");
	assert_string_equal(u.address, "[::1]:9000");
	assert_string_equal(u.database, "other_1");
	assert_string_equal(u.user, "me");
	assert_string_equal(u.password, "p@ss:/");
	assert_false(u.is_packed);
	clickhouse_url_release(&u);
}

TEST(what_is_wrong_with_a_url_is_said_without_repeating_it)
{
	static const char *const wrong[] = {
	    "http://hidden@host",
	    "clickhouse:/hidden",
	    "clickhouse://me:hidden@",
	    "clickhouse://me:hidden@host:0port/db",
	    "clickhouse://me:hidden@host:99999/db",
	    "clickhouse://me:hidden@host/data-base",
	    "clickhouse://me:hidden@host/1db",
	    "clickhouse://me:hidden@host/a/b",
	    "clickhouse://me:hidden@host/db?secure=yes",
	    "clickhouse://me:hidden@host/db?password=hidden",
	    "clickhouse://me:hid%0aden@host/db",
	    "clickhouse://me:hidden@host/"
	    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct clickhouse_url u;
		struct err e = {""};
		if (clickhouse_url_parse(str_of(wrong[i]), &u, &e) != ERR_INVALID)
			fail_msg("%s was taken", wrong[i]);
		assert_true(strlen(e.text) > 20);
		assert_null(strstr(e.text, "hid"));
	}
}

/* --- a server that says what a test wants: real ones do not fail on demand --- */

static struct {
	int fd;
	pthread_t thread;
	atomic_bool stops;
	atomic_int requests;
	const char *answer; /* the whole of it; NULL: none, ever */
	size_t answer_len;
	struct clickhouse *client;
} puppet;

static void puppet_answer(int fd)
{
	char request[4096];
	ssize_t len = recv(fd, request, sizeof(request), 0);
	atomic_fetch_add(&puppet.requests, 1);
	while (len > 0 && !puppet.answer && !atomic_load(&puppet.stops))
		poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, 10);
	if (len > 0 && puppet.answer)
		(void)!send(fd, puppet.answer, puppet.answer_len, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	while (recv(fd, request, sizeof(request), 0) > 0)
		continue;
	close(fd);
}

static void *puppet_run(void *arg)
{
	(void)arg;
	while (!atomic_load(&puppet.stops)) {
		if (poll(&(struct pollfd){.fd = puppet.fd, .events = POLLIN}, 1, 10) != 1)
			continue;
		int fd = accept(puppet.fd, NULL, NULL);
		if (fd >= 0)
			puppet_answer(fd);
	}
	return NULL;
}

static int puppet_start(void **state)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	char url[96];
	puppet.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(puppet.fd, (struct sockaddr *)&address, len) != 0 || listen(puppet.fd, 8) != 0 ||
	    getsockname(puppet.fd, (struct sockaddr *)&address, &len) != 0)
		return -1;
	atomic_store(&puppet.stops, false);
	snprintf(url, sizeof(url), "clickhouse://me:hidden@127.0.0.1:%u/db", ntohs(address.sin_port));
	return clickhouse_new(str_of(url), &puppet.client, NULL) ||
	       pthread_create(&puppet.thread, NULL, puppet_run, NULL);
}

static int puppet_stop(void **state)
{
	atomic_store(&puppet.stops, true);
	pthread_join(puppet.thread, NULL);
	clickhouse_free(puppet.client);
	close(puppet.fd);
	return 0;
}

/* What a call comes to when the server says that. */
static int told(struct str answer, bool insert, struct buf *ret, struct err *e)
{
	static const struct buf rows = {.data = (char *)"x", .len = 1};
	struct clickhouse_call call = {.sql = STR("SELECT 1"),
	                               .rows = insert ? &rows : NULL,
	                               .timeout_ms = answer.ptr ? 10000 : 200,
	                               .is_quiet = true};
	puppet.answer = answer.ptr;
	puppet.answer_len = answer.len;
	return clickhouse_run(puppet.client, &call, ret, e);
}

#define HEAD(status)   "HTTP/1.1 " status "\r\nConnection: close\r\n\r\n"
#define OLD(code)      "Code: " code ", e.displayText() = DB::Exception: it is so, e.what() = DB::Exception\n"
#define NEW_HEAD(code) "HTTP/1.1 500 Oh\r\nX-ClickHouse-Exception-Code: " code "\r\nConnection: close\r\n\r\n"
#define NEW(code)      "Code: " code ". DB::Exception: it is so. (SOME_NAME) (version 24.8.1.1)\n"

TEST(codes_are_translated_whichever_server_says_them, puppet_start, puppet_stop)
{
	static const struct {
		struct str answer;
		int expected;
	} cases[] = {
	    {STR(HEAD("500 Oh") OLD("252")), ERR_LIMIT},
	    {STR(NEW_HEAD("252") NEW("252")), ERR_LIMIT},
	    {STR(HEAD("500 Oh") OLD("241")), ERR_UNAVAILABLE},
	    {STR(NEW_HEAD("202") NEW("202")), ERR_UNAVAILABLE},
	    {STR(HEAD("500 Oh") OLD("216")), ERR_BUSY},
	    {STR(HEAD("404 Oh") OLD("60")), ERR_NOT_FOUND},
	    {STR(NEW_HEAD("81") NEW("81")), ERR_NOT_FOUND},
	    {STR(HEAD("502 Oh") "a proxy's page"), ERR_UNAVAILABLE},
	    {STR(HEAD("503 Oh")), ERR_UNAVAILABLE},
	    {STR(NEW_HEAD("252")), ERR_LIMIT},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = {""};
		assert_int_equal(told(cases[i].answer, i % 2, NULL, &e), cases[i].expected);
		assert_non_null(strstr(e.text, "127.0.0.1:"));
		assert_null(strchr(e.text, '\n'));
	}
}

TEST(a_failure_in_the_body_of_a_200_is_noticed, puppet_start, puppet_stop)
{
	struct err e = {""};
	assert_int_equal(told(STR(HEAD("200 OK") OLD("252")), true, NULL, &e), ERR_LIMIT);
	assert_int_equal(told(STR(HEAD("200 OK") "anything\0"), true, NULL, &e), ERR_UNAVAILABLE);
	struct buf answer = {0};
	struct str cut = STR(HEAD("200 OK") "\x07\0\0\0\0\0\0\0\0\x08\0" OLD("241"));
	assert_int_equal(told(cut, false, &answer, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "it is so"));
	assert_int_equal(answer.len, 0);
	assert_int_equal(told(STR(NEW_HEAD("241") "\0"), false, &answer, &e), ERR_UNAVAILABLE);
}

/* A visitor can write that into a header, and it comes out of a table again. */
TEST(a_text_that_looks_like_a_failure_is_an_answer, puppet_start, puppet_stop)
{
	struct buf answer = {0};
	assert_int_equal(told(STR(HEAD("200 OK") OLD("241") "\0"), false, &answer, NULL), 0);
	assert_int_equal(answer.len, sizeof(OLD("241") "\0") - 1);
	buf_release(&answer);
}

TEST(a_truncated_answer_is_an_error, puppet_start, puppet_stop)
{
	struct buf answer = {0};
	struct str cut = STR("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc\0");
	assert_int_equal(told(cut, false, &answer, NULL), ERR_UNAVAILABLE);
	assert_int_equal(answer.len, 0);
	assert_int_equal(told(STR("gibberish\r\n\r\n"), false, &answer, NULL), ERR_UNAVAILABLE);
	buf_release(&answer);
}

TEST(a_server_that_says_nothing_is_not_waited_for_for_ever, puppet_start, puppet_stop)
{
	struct err e = {""};
	assert_int_equal(told(STR_NULL, false, NULL, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "in time"));
}

TEST(passwords_are_in_no_sentence, puppet_start, puppet_stop)
{
	struct err e = {""};
	assert_int_equal(told(STR(HEAD("500 Oh") OLD("193")), false, NULL, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "put the right user and password"));
	assert_null(strstr(e.text, "hidden"));
	assert_int_equal(told(STR(NEW_HEAD("497") NEW("497")), false, NULL, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "needs the right"));
}

static void *wait_for_ever(void *arg)
{
	struct clickhouse_call call = {.sql = STR("SELECT 1"), .timeout_ms = 3600000, .is_quiet = true};
	return (void *)(intptr_t)clickhouse_run(puppet.client, &call, NULL, arg);
}

TEST(a_call_ends_when_it_is_let_go, puppet_start, puppet_stop)
{
	struct err e = {""};
	pthread_t thread;
	void *r;
	puppet.answer = NULL;
	atomic_store(&puppet.requests, 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &e), 0);
	UNTIL(atomic_load(&puppet.requests) == 1);
	clickhouse_let_go(puppet.client);
	pthread_join(thread, &r);
	assert_int_equal((intptr_t)r, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "as curt stops"));
	assert_int_equal((intptr_t)wait_for_ever(&e), ERR_UNAVAILABLE);
}

TEST(a_server_that_is_down_is_reported)
{
	struct clickhouse *c;
	struct err e = {""};
	struct clickhouse_call call = {.sql = STR("SELECT 1"), .timeout_ms = 5000, .is_quiet = true};
	assert_int_equal(clickhouse_new(STR("clickhouse://me:hidden@127.0.0.1:1/db"), &c, &e), 0);
	assert_int_equal(clickhouse_run(c, &call, NULL, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "127.0.0.1:1 cannot be reached"));
	assert_null(strstr(e.text, "hidden"));
	clickhouse_free(c);
}

/* --- RowBinary --- */

TEST(what_is_written_is_read)
{
	char out[512], text[300];
	memset(text, 'x', sizeof(text));
	char *end = row_put_u8(out, 7);
	end = row_put_u16(end, 60000);
	end = row_put_u32(end, UINT32_MAX);
	end = row_put_u64(end, UINT64_MAX - 1);
	end = row_put_i64(end, INT64_MIN);
	end = row_put_length(end, sizeof(text));
	end = row_put_bytes(end, text, sizeof(text));
	end = row_put_u8(end, 0);
	struct buf b = {.data = out, .len = (size_t)(end - out)};
	for (size_t len = 0; len <= b.len; len++) {
		struct row_reader r = row_reader_of(&(struct buf){.data = out, .len = len});
		uint64_t sum = row_u8(&r) == 7;
		sum += row_u16(&r) == 60000;
		sum += row_u32(&r) == UINT32_MAX;
		sum += row_u64(&r) == UINT64_MAX - 1;
		sum += row_i64(&r) == INT64_MIN;
		sum += row_text(&r).len == sizeof(text);
		row_end(&r);
		assert_int_equal(r.bad, len < b.len);
		assert_true(r.bad || (sum == 6 && !row_more(&r)));
	}
}

TEST(a_length_without_end_is_refused)
{
	char bytes[16];
	memset(bytes, 0xff, sizeof(bytes));
	struct row_reader r = row_reader_of(&(struct buf){.data = bytes, .len = sizeof(bytes)});
	assert_int_equal(row_text(&r).len, 0);
	assert_true(r.bad);
}

/* --- a real server --- */

static struct clickhouse *client;

static int open_client(const char *options)
{
	char url[CLICKHOUSE_KIT_BYTES], with[CLICKHOUSE_KIT_BYTES + 16];
	clickhouse_kit_url(url);
	snprintf(with, sizeof(with), "%s%s", url, options);
	struct clickhouse_call call = {.timeout_ms = 30000, .without_database = true};
	char sql[128];
	if (clickhouse_new(str_of(with), &client, NULL) != 0)
		return -1;
	snprintf(sql, sizeof(sql), "CREATE DATABASE %s", clickhouse_database(client));
	call.sql = str_of(sql);
	return clickhouse_run(client, &call, NULL, NULL);
}

static int setup(void **state)
{
	return open_client("");
}

static int setup_plain(void **state)
{
	return open_client("?compress=0");
}

static int teardown(void **state)
{
	clickhouse_free(client);
	clickhouse_kit_drop();
	return 0;
}

static int run(const char *sql, struct buf *ret_answer, struct err *e)
{
	struct clickhouse_call call = {.sql = str_of(sql), .timeout_ms = 30000, .is_quiet = true};
	return clickhouse_run(client, &call, ret_answer, e);
}

/* More than one piece of them. */
TEST_IN(with_server, rows_arrive_as_they_were)
{
	enum { ROWS = 100000 };
	struct clickhouse_rows rows = {0};
	struct buf answer = {0};
	assert_int_equal(run("CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n", NULL, NULL),
	                 0);
	for (int again = 0; again < 2; again++) {
		clickhouse_rows_begin(client, &rows);
		for (uint64_t i = 0; i < ROWS; i++) {
			char *out = buf_reserve(&rows.raw, 32);
			char *end = row_put_u64(out, i);
			end = row_put_length(end, 16);
			memset(end, 'a' + (int)(i * i % 26), 16);
			rows.raw.len += (size_t)(end + 16 - out);
			clickhouse_rows_step(&rows);
		}
		assert_int_equal(clickhouse_rows_end(&rows), 0);
		struct clickhouse_call call = {.sql = STR("INSERT INTO t FORMAT RowBinary"),
		                               .rows = &rows.done,
		                               .query_id = "a query's name & more",
		                               .timeout_ms = 30000};
		assert_int_equal(clickhouse_run(client, &call, NULL, NULL), 0);
	}
	assert_int_equal(run("SELECT count(), sum(n), sum(substring(s, 16) = "
	                     "substring('abcdefghijklmnopqrstuvwxyz', 1 + n * n % 26, 1)), toUInt8(0) FROM t"
	                     " FORMAT RowBinary",
	                     &answer, NULL),
	                 0);
	struct row_reader r = row_reader_of(&answer);
	assert_int_equal(row_u64(&r), 2 * ROWS);
	assert_int_equal(row_u64(&r), 2ULL * ROWS * (ROWS - 1) / 2);
	assert_int_equal(row_u64(&r), 2 * ROWS);
	row_end(&r);
	assert_false(r.bad);
	buf_release(&answer);
	clickhouse_rows_release(&rows);
}

TEST_IN(with_server, rows_that_are_not_packed_arrive_as_they_were, setup_plain, teardown)
{
	rows_arrive_as_they_were(state);
}

TEST_IN(with_server, a_failing_statement_has_a_reason)
{
	struct err e = {""};
	assert_int_equal(run("SELECT * FROM nothing", NULL, &e), ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, "nothing"));
	assert_int_equal(run("SELECT nonsense", NULL, &e), ERR_UNAVAILABLE);
	/* One that fails when most of the answer has been made. */
	struct buf answer = {0};
	assert_int_equal(run("SELECT number, throwIf(number = 3000000), toUInt8(0) FROM numbers(4000000)"
	                     " FORMAT RowBinary",
	                     &answer, &e),
	                 ERR_UNAVAILABLE);
	assert_int_equal(answer.len, 0);
	struct clickhouse_call call = {.sql = STR("INSERT INTO nothing FORMAT RowBinary"),
	                               .rows = &(struct buf){0},
	                               .timeout_ms = 30000,
	                               .is_quiet = true};
	assert_int_equal(clickhouse_run(client, &call, NULL, &e), ERR_NOT_FOUND);
}

static void *ask_on(void *arg)
{
	(void)arg;
	size_t bad = 0;
	for (int i = 0; i < 20; i++) {
		struct buf answer = {0};
		bad += run("SELECT number, toUInt8(0) FROM numbers(1000) FORMAT RowBinary", &answer, NULL) !=
		           0 ||
		       answer.len != 9000;
		buf_release(&answer);
	}
	return (void *)(uintptr_t)bad;
}

TEST_IN(with_server, more_threads_than_connections_are_served)
{
	pthread_t threads[CLICKHOUSE_CALLS_MAX + 4];
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_on, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		void *bad;
		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
}

int main(void)
{
	int failed = RUN_TESTS();
	if (clickhouse_kit_is_there())
		failed += RUN_LIST(with_server, .setup = setup, .teardown = teardown);
	return failed;
}
