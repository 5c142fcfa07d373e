#include "http/body.h"
#include "http/conn.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/net.h"

#include <linux/sockios.h>
#include <malloc.h>
#include <poll.h>
#include <sys/ioctl.h>

/*
 * A server in a thread of its own. Paths: /now answers at once with its number; /hold defers until release();
 * /big has an answer of 64 KiB, /large one of 24 MiB, /larger one beyond the budget for such; /bad puts a
 * forbidden byte into a field; /stream begins an answer that tell() goes on with; /brief is one that ends at
 * once; /stream-bad cannot begin. A POST of / answers with its body, one of /count with its length.
 */
static struct {
	struct loop *loop;
	struct http_server *server;
	struct metrics *metrics;
	struct net_addr addr;
	pthread_t thread;
	struct http_conn *held;
	_Atomic bool holding;
	int requests; /* on the loop's thread */

	struct http_stream_owner owner; /* of the streaming response */
	struct http_conn *streaming;
	struct str told; /* what tell() writes */
	_Atomic int begun, closed, writes, refused;
	_Atomic int mails; /* of turn() */
} fx;

enum { LARGE_BYTES = 24 << 20, LARGER_BYTES = 65 << 20, HELD_ROUTE = 7 };
static char big[65536], large[LARGER_BYTES];

static void reply_text(struct http_conn *c, struct str text)
{
	const struct http_response r = {.status = 200, .content_type = STR("text/plain"), .body = text};
	http_reply(c, &r);
}

static void streaming_closed(struct http_stream_owner *owner)
{
	assert_ptr_equal(owner, &fx.owner);
	fx.streaming = NULL;
	fx.closed++;
}

static void begin_streaming(struct http_conn *c, struct str field)
{
	const struct http_field fields[] = {{STR("X-Field"), field}};
	const struct http_response head = {.status = 200,
	                                   .content_type = STR("text/event-stream"),
	                                   .body = STR("hello "),
	                                   .fields = fields,
	                                   .field_count = 1};
	fx.owner.closed = streaming_closed;
	fx.streaming = c;
	http_stream_begin(c, &head, &fx.owner);
	fx.begun++;
}

static void handle(void *ctx, struct http_conn *c, const struct http_request *req)
{
	(void)ctx;
	char text[32];
	fx.requests++;
	if (req->method == HTTP_POST && str_eq(req->path, STR("/"))) {
		reply_text(c, req->body);
	} else if (str_eq(req->path, STR("/count"))) {
		reply_text(c, str_n(text, (size_t)snprintf(text, sizeof(text), "%zu", req->body.len)));
	} else if (str_eq(req->path, STR("/hold"))) {
		fx.held = c;
		http_conn_set_route(c, HELD_ROUTE);
		http_conn_defer(c);
		fx.holding = true;
	} else if (str_eq(req->path, STR("/big"))) {
		reply_text(c, str_n(big, sizeof(big)));
	} else if (str_eq(req->path, STR("/large"))) {
		reply_text(c, str_n(large, LARGE_BYTES));
	} else if (str_eq(req->path, STR("/larger"))) {
		reply_text(c, str_n(large, LARGER_BYTES));
	} else if (str_eq(req->path, STR("/bad"))) {
		const struct http_field field = {STR("X-Evil"), STR("a\r\nSet-Cookie: b")};
		const struct http_response r = {.status = 200, .fields = &field, .field_count = 1};
		http_reply(c, &r);
	} else if (str_eq(req->path, STR("/stream"))) {
		begin_streaming(c, STR("v"));
	} else if (str_eq(req->path, STR("/stream-bad"))) {
		begin_streaming(c, STR("a\r\nb"));
	} else if (str_eq(req->path, STR("/brief"))) {
		begin_streaming(c, STR("v"));
		assert_true(http_stream_write(c, STR("and bye")));
		http_stream_end(c);
	} else {
		reply_text(c, str_n(text, (size_t)snprintf(text, sizeof(text), "%d", fx.requests)));
	}
}

static void refuse(void *ctx, struct http_conn *c, int status, const char *reason)
{
	(void)ctx;
	const struct http_response r = {.status = status, .body = str_of(reason)};
	http_reply(c, &r);
}

static void release_open(struct mail *m)
{
	fx.holding = false;
	reply_text(fx.held, STR("released"));
	free(m);
}

static void release_large_open(struct mail *m)
{
	fx.holding = false;
	reply_text(fx.held, str_n(large, LARGE_BYTES));
	free(m);
}

static void release_streaming_open(struct mail *m)
{
	fx.holding = false;
	begin_streaming(fx.held, STR("v"));
	free(m);
}

static void tell_open(struct mail *m)
{
	if (fx.streaming && !http_stream_write(fx.streaming, fx.told))
		fx.refused++;
	fx.writes++;
	free(m);
}

static void end_open(struct mail *m)
{
	http_stream_end(fx.streaming);
	fx.streaming = NULL;
	free(m);
}

static void turn_open(struct mail *m)
{
	fx.mails++;
	free(m);
}

static void drain_open(struct mail *m)
{
	http_server_drain(fx.server, 20000);
	free(m);
}

static void drained_open(struct mail *m)
{
	http_server_drained(fx.server, false);
	free(m);
}

static void abort_one(struct stream *s, void *ctx)
{
	(void)ctx;
	stream_abort(s);
}

static void stop_open(struct mail *m)
{
	http_server_drain(fx.server, 0);
	http_server_drained(fx.server, true);
	loop_each_stream(fx.loop, abort_one, NULL);
	loop_stop(fx.loop);
	free(m);
}

static void post(void (*open)(struct mail *))
{
	struct mail *m = calloc(1, sizeof(*m));
	m->open = open;
	loop_post(fx.loop, m);
}

static void *loop_thread(void *arg)
{
	loop_run(arg);
	return NULL;
}

static const struct http_settings usual = {
    .limits = {.line_bytes_max = 8192,
               .headers_bytes_max = 32768,
               .headers_max = 100,
               .body_bytes_max = 1 << 20},
    .head_ms = 20000,
    .idle_ms = 20000,
    .body_bytes_rate = 1024,
    .connections_max = 100,
};

static void start(struct http_settings settings)
{
	int fd;
	struct metrics *m = metrics_register();
	struct loop_config config = {.streams_max = 100, .metrics = m};
	const struct http_handler handler = {handle, refuse, NULL};
	memset(big, 'b', sizeof(big));
	fx.metrics = m;
	fx.requests = 0;
	fx.holding = false;
	fx.streaming = NULL;
	fx.begun = fx.closed = fx.writes = fx.refused = 0;
	assert_int_equal(net_addr_parse(STR("127.0.0.1:0"), &fx.addr, NULL), 0);
	assert_int_equal(net_listen(&fx.addr, 64, &fd, NULL), 0);
	assert_int_equal(loop_new(&config, &fx.loop, NULL), 0);
	assert_int_equal(http_server_new(fx.loop, &settings, &handler, m, &fx.server, NULL), 0);
	assert_int_equal(http_server_listen(fx.server, fd, NULL), 0);
	assert_int_equal(pthread_create(&fx.thread, NULL, loop_thread, fx.loop), 0);
}

static void stop(void)
{
	post(stop_open);
	pthread_join(fx.thread, NULL);
	assert_true(http_server_is_idle(fx.server));
	http_server_free(fx.server);
	loop_free(fx.loop);
}

static int serve(void **state)
{
	start(usual);
	return 0;
}

static int serve_no_more(void **state)
{
	stop();
	return 0;
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, &fx.addr.any, fx.addr.len), 0);
	struct timeval limit = {.tv_sec = 60};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Reads a response's head into `head`, and gives its status. */
static int hear_head(int fd, char head[4096])
{
	size_t len = 0;
	memset(head, 0, 4096);
	while (!strstr(head, "\r\n\r\n")) {
		assert_true(len < 4095);
		assert_int_equal(recv(fd, head + len++, 1, 0), 1);
	}
	return atoi(head + 9);
}

/* Reads one response; gives its status, and its body in `body`. */
static int hear(int fd, char *body, size_t room)
{
	char head[4096];
	size_t len = 0;
	int status = hear_head(fd, head);
	const char *field = strstr(head, "Content-Length: ");
	size_t want = field ? strtoul(field + 16, NULL, 10) : 0;
	assert_true(want < room);
	for (len = 0; len < want;) {
		ssize_t n = recv(fd, body + len, want - len, 0);
		assert_true(n > 0);
		len += (size_t)n;
	}
	body[want] = '\0';
	return status;
}

static void expect(int fd, int status, const char *text)
{
	static char body[70000];
	assert_int_equal(hear(fd, body, sizeof(body)), status);
	if (text)
		assert_string_equal(body, text);
}

static void expect_end(int fd)
{
	char byte;
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

static void wait_until_held(void)
{
	while (!fx.holding)
		sched_yield();
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

TEST(pipelined_requests_are_answered_in_order, serve, serve_no_more)
{
	int fd = dial();
	say(fd, GET("/now") GET("/now") GET("/now"));
	expect(fd, 200, "1");
	expect(fd, 200, "2");
	expect(fd, 200, "3");
	close(fd);
}

static uint64_t count_durations(int route)
{
	uint64_t count = 0;
	for (int i = 0; i <= HISTOGRAM_BOUNDS; i++)
		count += atomic_load(&fx.metrics->http_request_duration[route].buckets[i]);
	return count;
}

TEST(the_duration_of_a_request_ends_with_its_reply)
{
	os_fault_clock_set(1700000000000, 1000000);
	start(usual);
	int fd = dial();
	say(fd, GET("/now") GET("/now") "nonsense\r\n\r\n");
	expect(fd, 200, "1");
	expect(fd, 200, "2");
	expect(fd, 400, NULL);
	expect_end(fd);
	assert_int_equal(count_durations(0), 3);
	assert_int_equal(atomic_load(&fx.metrics->http_request_duration[0].sum_ns), 0);

	fd = dial();
	say(fd, GET("/hold"));
	wait_until_held();
	os_fault_clock_advance(3000);
	post(release_open);
	expect(fd, 200, "released");
	close(fd);
	stop();
	assert_int_equal(count_durations(0), 3);
	assert_int_equal(count_durations(HELD_ROUTE), 1);
	assert_int_equal(atomic_load(&fx.metrics->http_request_duration[HELD_ROUTE].sum_ns), 3000000000);
	os_fault_reset();
}

TEST(behind_a_deferred_request_the_next_ones_wait, serve, serve_no_more)
{
	int fd = dial();
	say(fd, GET("/now") GET("/hold") GET("/now"));
	expect(fd, 200, "1");
	wait_until_held();
	say(fd, GET("/now"));
	struct pollfd quiet = {.fd = fd, .events = POLLIN};
	assert_int_equal(poll(&quiet, 1, 0), 0);
	post(release_open);
	expect(fd, 200, "released");
	expect(fd, 200, "3");
	expect(fd, 200, "4");
	close(fd);
}

TEST(a_promise_to_a_peer_that_has_gone_is_kept_without_harm, serve, serve_no_more)
{
	int fd = dial(), other = dial();
	say(fd, GET("/hold"));
	wait_until_held();
	struct linger reset = {.l_onoff = 1};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(fd); /* a reset */
	for (int i = 0; i < 3; i++) {
		say(other, GET("/now"));
		expect(other, 200, NULL);
	}
	assert_false(http_server_is_idle(fx.server));
	post(release_open);
	say(other, GET("/now"));
	expect(other, 200, NULL);
	close(other);
}

TEST(a_half_closed_peer_still_gets_its_deferred_answer, serve, serve_no_more)
{
	int fd = dial();
	say(fd, GET("/hold"));
	shutdown(fd, SHUT_WR);
	wait_until_held();
	post(release_open);
	expect(fd, 200, "released");
	expect_end(fd);
}

TEST(a_body_arrives_in_pieces_and_whole, serve, serve_no_more)
{
	int fd = dial();
	say(fd, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n01234");
	say(fd, "56789" GET("/now"));
	expect(fd, 200, "0123456789");
	expect(fd, 200, "2");
	say(fd, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
	say(fd, "2\r\nde\r\n0\r\n\r\n" GET("/now"));
	expect(fd, 200, "abcde");
	expect(fd, 200, "4");
	close(fd);
}

TEST(continue_is_said_only_when_the_body_is_not_there_yet, serve, serve_no_more)
{
	int fd = dial();
	say(fd, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
	expect(fd, 100, "");
	say(fd, "ab");
	expect(fd, 200, "ab");
	say(fd, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\ncd");
	expect(fd, 200, "cd");
	close(fd);
}

TEST(after_a_refusal_no_later_byte_is_looked_at)
{
	start(usual);
	int fd = dial();
	say(fd, GET("/now") "BROKEN\r\n\r\n" GET("/now"));
	expect(fd, 200, "1");
	expect(fd, 400, NULL);
	expect_end(fd);
	stop();
	assert_int_equal(fx.requests, 1);
}

TEST(a_forbidden_byte_in_a_field_never_leaves, serve, serve_no_more)
{
	int fd = dial();
	say(fd, GET("/bad"));
	expect(fd, 500, "");
	expect_end(fd);
}

TEST(a_peer_that_does_not_read_is_not_worked_for, serve, serve_no_more)
{
	enum { REQUESTS = 1000 }; /* 64 MiB of answers: far beyond what sockets hold */
	int fd = dial(), other = dial();
	for (int i = 0; i < REQUESTS; i++)
		say(fd, GET("/big"));
	for (int i = 0; i < 3; i++) {
		say(other, GET("/now"));
		expect(other, 200, NULL);
	}
	for (int i = 0; i < REQUESTS; i++)
		expect(fd, 200, NULL);
	say(fd, GET("/now"));
	expect(fd, 200, NULL);
	close(fd);
	close(other);
}

TEST(all_that_was_asked_before_a_half_close_is_answered, serve, serve_no_more)
{
	enum { REQUESTS = 50 };
	int fd = dial();
	for (int i = 0; i < REQUESTS; i++)
		say(fd, GET("/big"));
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < REQUESTS; i++)
		expect(fd, 200, NULL);
	expect_end(fd);
}

/* What the allocator has given out. Sanitizers have one of their own, in a header that gcc does not bring. */
size_t __sanitizer_get_current_allocated_bytes(void);

static size_t allocated_bytes(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return __sanitizer_get_current_allocated_bytes();
#else
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
#endif
}

TEST(input_that_keeps_coming_does_not_pile_up, serve, serve_no_more)
{
	enum { ANSWERS = 400 };
	static char flood[32768];
	size_t flood_len = 0, sent = 0;
	while (flood_len + sizeof(GET("/big")) < sizeof(flood))
		flood_len += (size_t)sprintf(flood + flood_len, "%s", GET("/big"));
	size_t before = allocated_bytes();
	int fd = dial();
	for (int i = 0; i < ANSWERS; i++) {
		ssize_t n;
		while ((n = send(fd, flood + sent % flood_len, flood_len - sent % flood_len,
		                 MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
			sent += (size_t)n;
		expect(fd, 200, NULL);
		assert_true(allocated_bytes() < before + (2 << 20));
	}
	close(fd);
}

TEST(an_idle_connection_is_closed_without_a_word)
{
	struct http_settings s = usual;
	s.idle_ms = 100;
	start(s);
	int fd = dial();
	say(fd, GET("/now"));
	expect(fd, 200, "1");
	expect_end(fd);
	stop();
}

TEST(draining_closes_the_idle_and_finishes_the_busy, serve, serve_no_more)
{
	int idle = dial(), busy = dial();
	say(idle, GET("/now"));
	expect(idle, 200, "1");
	say(busy, GET("/hold"));
	wait_until_held();
	int fresh = dial(), asking = dial();
	say(asking, GET("/now"));
	post(drain_open);
	post(drained_open); /* some were accepted since */
	post(drained_open);
	expect_end(idle);
	expect(asking, 200, "3");
	expect_end(asking);
	say(fresh, GET("/now")); /* it had not sent anything */
	expect(fresh, 200, "4");
	expect_end(fresh);
	int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(late, &fx.addr.any, fx.addr.len), -1);
	close(late);
	post(release_open);
	expect(busy, 200, "released");
	expect_end(busy);
}

/* Large answers */

/* Asks, and reads no more than the head of the answer: the rest waits. */
static int ask_and_stop(int fd, const char *request)
{
	char head[4096];
	say(fd, request);
	return hear_head(fd, head);
}

static void read_on(int fd, size_t bytes)
{
	static char piece[1 << 20];
	while (bytes > 0) {
		ssize_t n = recv(fd, piece, MIN(bytes, sizeof(piece)), 0);
		assert_true(n > 0);
		bytes -= (size_t)n;
	}
}

static void expect_refused(int fd, const char *request)
{
	static const char problem[] = "{\"type\":\"urn:curt:unavailable\",\"title\":\"Service "
	                              "Unavailable\",\"status\":503,\"detail\":\"";
	char head[4096], body[1024] = "";
	say(fd, request);
	assert_int_equal(hear_head(fd, head), 503);
	assert_non_null(strstr(head, "\r\nRetry-After: 1\r\n"));
	assert_non_null(strstr(head, "\r\nContent-Type: application/problem+json\r\n"));
	assert_null(strstr(head, "\r\nConnection: "));
	size_t len = strtoul(strstr(head, "Content-Length: ") + 16, NULL, 10);
	assert_true(len < sizeof(body));
	assert_int_equal(recv(fd, body, len, MSG_WAITALL), len);
	assert_ptr_equal(strstr(body, problem), body);
	assert_string_equal(body + len - 4, ".\"}\n");
}

/* What a peer that left held comes free once the loop has seen it: asks until then. */
static void expect_room_soon(int fd)
{
	char head[4096];
	for (int tries = 0;; tries++) {
		assert_true(tries < 100000);
		say(fd, GET("/large"));
		int status = hear_head(fd, head);
		if (status == 200)
			break;
		assert_int_equal(status, 503);
		read_on(fd, strtoul(strstr(head, "Content-Length: ") + 16, NULL, 10));
	}
	read_on(fd, LARGE_BYTES);
}

static void close_with_reset(int fd)
{
	struct linger reset = {.l_onoff = 1};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(fd);
}

TEST(large_answers_that_nobody_reads_do_not_pile_up, serve, serve_no_more)
{
	enum { FULL = 2, OTHERS = 20 };
	int full[FULL], others[OTHERS];
	size_t before = allocated_bytes();
	for (int i = 0; i < FULL; i++)
		assert_int_equal(ask_and_stop(full[i] = dial(), GET("/large")), 200);
	for (int i = 0; i < OTHERS; i++) {
		others[i] = dial();
		expect_refused(others[i], GET("/large"));
		say(others[i], GET("/now")); /* the connection goes on */
		expect(others[i], 200, NULL);
		say(others[i], GET("/big")); /* and what is not large has no budget */
		expect(others[i], 200, NULL);
	}
	assert_true(allocated_bytes() < before + (80 << 20));
	read_on(full[0], LARGE_BYTES);
	assert_int_equal(ask_and_stop(others[0], GET("/large")), 200);
	expect_refused(full[0], GET("/large"));
	read_on(others[0], LARGE_BYTES);
	for (int i = 0; i < FULL; i++)
		close(full[i]);
	for (int i = 0; i < OTHERS; i++)
		close(others[i]);
}

TEST(a_peer_that_leaves_gives_back_what_it_held, serve, serve_no_more)
{
	static const char *const last[] = {GET("/large"),
	                                   "GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	                                   GET("/large") GET("/now")};
	int other = dial();
	for (size_t i = 0; i < ARRAY_LEN(last); i++) {
		int first = dial(), second = dial();
		assert_int_equal(ask_and_stop(first, last[i]), 200);
		assert_int_equal(ask_and_stop(second, GET("/large")), 200);
		expect_refused(other, GET("/large"));
		close_with_reset(first);
		expect_room_soon(other);
		close_with_reset(second);
		expect_room_soon(other);
	}
	close(other);
}

TEST(an_answer_beyond_the_budget_is_given_when_it_is_alone, serve, serve_no_more)
{
	int fd = dial(), other = dial();
	assert_int_equal(ask_and_stop(fd, GET("/larger")), 200);
	expect_refused(other, GET("/large"));
	read_on(fd, LARGER_BYTES);
	assert_int_equal(ask_and_stop(other, GET("/large")), 200);
	expect_refused(fd, GET("/larger"));
	read_on(other, LARGE_BYTES);
	assert_int_equal(ask_and_stop(fd, GET("/larger")), 200);
	read_on(fd, LARGER_BYTES);
	close(fd);
	close(other);
}

TEST(the_head_of_a_large_answer_alone_is_not_large, serve, serve_no_more)
{
	int full = dial(), fd = dial();
	assert_int_equal(ask_and_stop(full, GET("/larger")), 200);
	assert_int_equal(ask_and_stop(fd, "HEAD /large HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	say(fd, GET("/now"));
	expect(fd, 200, NULL);
	close(full);
	close(fd);
}

TEST(behind_a_large_answer_the_next_requests_wait_and_are_answered, serve, serve_no_more)
{
	int fd = dial();
	assert_int_equal(ask_and_stop(fd, GET("/large") GET("/large") GET("/now")), 200);
	for (int i = 0; i < 2; i++) { /* both would fit, but one connection holds one */
		char head[4096];
		read_on(fd, LARGE_BYTES);
		if (i == 0)
			assert_int_equal(hear_head(fd, head), 200);
	}
	expect(fd, 200, "3");
	say(fd, GET("/hold") GET("/large"));
	wait_until_held();
	post(release_large_open);
	for (int i = 0; i < 2; i++) {
		char head[4096];
		assert_int_equal(hear_head(fd, head), 200);
		read_on(fd, LARGE_BYTES);
	}
	close(fd);
}

/* The loop has seen the new time when it returns. */
static void pass_time(int64_t ms)
{
	os_fault_clock_advance(ms);
	int fd = dial();
	say(fd, GET("/now"));
	expect(fd, 200, NULL);
	close(fd);
}

TEST(an_answer_may_take_longer_to_read_than_a_connection_may_be_idle)
{
	enum { REQUESTS = 200 };
	struct http_settings s = usual;
	s.idle_ms = 100;
	os_fault_clock_set(1700000000000, 1000000);
	start(s);
	int fd = dial();
	for (int i = 0; i < REQUESTS; i++)
		say(fd, GET("/big"));
	pass_time(0); /* the first ones are answered */
	pass_time(10 * (int64_t)s.idle_ms);
	for (int i = 0; i < REQUESTS; i++)
		expect(fd, 200, NULL);
	close(fd);
	stop();
	os_fault_reset();
}

TEST(a_head_that_dawdles_gets_408_whatever_trickles_in)
{
	os_fault_clock_set(1700000000000, 1000000);
	start(usual);
	int fd = dial();
	say(fd, "GET /now HT");
	pass_time(0); /* its first bytes are read */
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (; poll(&p, 1, 0) == 0; pass_time(1000))
		send(fd, "T", 1, MSG_NOSIGNAL); /* an inactivity timer would never fire */
	expect(fd, 408, NULL);
	expect_end(fd);
	stop();
	os_fault_reset();
}

/* At the least rate of 1 KiB a second it would be hours. */
TEST(a_large_answer_must_be_read_within_minutes)
{
	enum { MINUTE_MS = 60000 };
	static const char *const requests[] = {GET("/large"),
	                                       "GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"};
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		os_fault_clock_set(1700000000000, 1000000);
		start(usual);
		int fd = dial(), room = sizeof(big); /* what is not read must not fit into the sockets */
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
		assert_int_equal(ask_and_stop(fd, requests[i]), 200);
		pass_time(MINUTE_MS);
		read_on(fd, LARGE_BYTES / 2); /* so far it was in time */
		pass_time(9 * MINUTE_MS);
		size_t heard = LARGE_BYTES / 2;
		for (ssize_t n; (n = recv(fd, big, sizeof(big), 0)) > 0;)
			heard += (size_t)n;
		assert_true(heard < LARGE_BYTES);
		close(fd);
		stop();
		os_fault_reset();
	}
}

/* Answers without an end */

static void hear_exactly(int fd, const char *text)
{
	char heard[256] = "";
	size_t want = strlen(text);
	assert_true(want < sizeof(heard));
	assert_int_equal(recv(fd, heard, want, MSG_WAITALL), want);
	assert_string_equal(heard, text);
}

/* The head, byte by byte, so that what follows stays in the socket. */
static void hear_streaming_head(int fd)
{
	char head[1024] = "";
	for (size_t len = 0; !strstr(head, "\r\n\r\n"); len++) {
		assert_true(len < sizeof(head) - 1);
		assert_int_equal(recv(fd, head + len, 1, 0), 1);
	}
	assert_ptr_equal(strstr(head, "HTTP/1.1 200 OK\r\n"), head);
	assert_non_null(strstr(head, "\r\nConnection: close\r\n"));
	assert_non_null(strstr(head, "\r\nContent-Type: text/event-stream\r\n"));
	assert_non_null(strstr(head, "\r\nX-Field: v\r\n"));
	assert_null(strstr(head, "Content-Length"));
	assert_null(strstr(head, "Transfer-Encoding"));
	hear_exactly(fd, "hello ");
}

static void tell(struct str bytes)
{
	int before = fx.writes;
	fx.told = bytes;
	post(tell_open);
	while (fx.writes == before)
		sched_yield();
}

static void wait_until_closed(void)
{
	while (fx.closed == 0)
		sched_yield();
}

TEST(a_streaming_response_goes_on_until_its_owner_ends_it)
{
	static const char *const requests[] = {GET("/stream"), "GET /stream HTTP/1.0\r\n\r\n"};
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		start(usual);
		int fd = dial();
		say(fd, requests[i]);
		hear_streaming_head(fd);
		tell(STR("one "));
		hear_exactly(fd, "one ");
		tell(STR(""));
		tell(STR("two"));
		hear_exactly(fd, "two");
		post(end_open);
		expect_end(fd);
		stop();
		assert_int_equal(fx.closed, 0);
		assert_int_equal(fx.refused, 0);
	}
}

TEST(a_streaming_response_may_end_where_it_began)
{
	start(usual);
	int fd = dial();
	say(fd, GET("/now") GET("/brief") GET("/now"));
	expect(fd, 200, "1");
	hear_streaming_head(fd);
	hear_exactly(fd, "and bye");
	expect_end(fd);
	stop();
	assert_int_equal(fx.requests, 2);
	assert_int_equal(fx.closed, 0);
}

TEST(what_a_peer_says_into_a_streaming_response_is_thrown_away)
{
	static char flood[65536];
	memset(flood, 'x', sizeof(flood));
	start(usual);
	int fd = dial();
	say(fd, GET("/stream") GET("/now"));
	hear_streaming_head(fd);
	size_t before = allocated_bytes();
	for (int i = 0; i < 100; i++) /* more than sockets hold: it is read */
		assert_int_equal(send(fd, flood, sizeof(flood), MSG_NOSIGNAL), sizeof(flood));
	say(fd, GET("/now"));
	tell(STR("still here"));
	hear_exactly(fd, "still here");
	assert_true(allocated_bytes() < before + (1 << 20));
	post(end_open);
	expect_end(fd);
	stop();
	assert_int_equal(fx.requests, 1);
}

TEST(the_owner_hears_once_that_the_peer_has_gone)
{
	for (int reset = 0; reset < 2; reset++) {
		start(usual);
		int fd = dial();
		say(fd, GET("/stream"));
		hear_streaming_head(fd);
		if (reset) {
			struct linger at_once = {.l_onoff = 1};
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
			close(fd);
		} else {
			shutdown(fd, SHUT_WR); /* it might still read, but nobody waits for events so */
			expect_end(fd);
		}
		wait_until_closed();
		tell(STR("to nobody"));
		stop();
		assert_int_equal(fx.closed, 1);
	}
}

TEST(a_streaming_response_may_be_idle_for_ever)
{
	struct http_settings s = usual;
	s.head_ms = s.idle_ms = 100;
	os_fault_clock_set(1700000000000, 1000000);
	start(s);
	int fd = dial();
	say(fd, GET("/stream"));
	hear_streaming_head(fd);
	for (int i = 0; i < 3; i++)
		pass_time(10000);
	tell(STR("awake"));
	hear_exactly(fd, "awake");
	post(end_open);
	expect_end(fd);
	stop();
	os_fault_reset();
	assert_int_equal(fx.closed, 0);
}

/* Writes until the sockets are full, and then until no more is taken. (They may find room for it later.) */
static void tell_until_refused(struct str bytes)
{
	fx.refused = 0;
	for (int i = 0; fx.refused == 0 && fx.closed == 0; i++) {
		assert_true(i < 10000);
		tell(bytes);
	}
}

/* The clock is the test's. */
static void tell_until_closed(struct str bytes)
{
	for (; fx.closed == 0; os_fault_clock_advance(10))
		tell(bytes);
}

TEST(a_peer_that_is_too_far_behind_gets_no_more_and_is_then_cut_off)
{
	struct http_settings s = usual;
	s.head_ms = 200;
	s.body_bytes_rate = 1 << 30;
	os_fault_clock_set(1700000000000, 1000000);
	start(s);
	int fd = dial();
	say(fd, GET("/stream"));
	hear_streaming_head(fd);
	size_t before = allocated_bytes();
	tell_until_refused(str_n(big, sizeof(big)));
	assert_int_equal(fx.closed, 0);
	assert_true(allocated_bytes() < before + 4 * HTTP_STREAM_BACKLOG_MAX);
	tell_until_closed(str_n(big, sizeof(big)));
	close(fd);
	stop();
	os_fault_reset();
	assert_int_equal(fx.closed, 1);
}

TEST(a_peer_that_reads_but_never_catches_up_is_kept_until_it_reads_no_more)
{
	enum { HEAD_MS = 300, STEP_MS = 2, LIVES = 3 };
	static char heard[sizeof(big)];
	struct http_settings s = usual;
	s.head_ms = HEAD_MS;
	s.body_bytes_rate = 1 << 20; /* of which a step is far less than what is read in it */
	os_fault_clock_set(1700000000000, 1000000);
	start(s);
	int fd = dial();
	say(fd, GET("/stream"));
	hear_streaming_head(fd);
	/* The time for a head, and for the backlog at that rate. */
	for (int ms = 0; ms < LIVES * (HEAD_MS + 250); ms += STEP_MS) {
		tell_until_refused(str_n(big, sizeof(big)));
		assert_int_equal(recv(fd, heard, sizeof(heard), MSG_WAITALL), sizeof(heard));
		os_fault_clock_advance(STEP_MS);
	}
	assert_int_equal(fx.closed, 0);
	tell_until_closed(str_n(big, sizeof(big)));
	close(fd);
	stop();
	os_fault_reset();
	assert_int_equal(fx.closed, 1);
}

TEST(draining_ends_streaming_responses_at_once)
{
	start(usual);
	int fd = dial();
	say(fd, GET("/stream"));
	hear_streaming_head(fd);
	tell(STR("last words"));
	post(drain_open);
	post(drained_open);
	hear_exactly(fd, "last words");
	expect_end(fd);
	stop();
	assert_int_equal(fx.closed, 1);
}

TEST(a_streaming_response_may_begin_after_a_deferral)
{
	start(usual);
	int fd = dial();
	say(fd, GET("/hold") GET("/now"));
	wait_until_held();
	post(release_streaming_open);
	hear_streaming_head(fd);
	tell(STR("deferred"));
	hear_exactly(fd, "deferred");
	shutdown(fd, SHUT_WR);
	expect_end(fd);
	wait_until_closed();
	stop();
	assert_int_equal(fx.closed, 1);
	assert_int_equal(fx.requests, 1);
}

TEST(a_streaming_response_to_a_peer_that_has_gone_is_over_at_once)
{
	start(usual);
	int fd = dial(), other = dial();
	say(fd, GET("/hold"));
	wait_until_held();
	struct linger reset = {.l_onoff = 1};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(fd);
	for (int i = 0; i < 3; i++) {
		say(other, GET("/now"));
		expect(other, 200, NULL);
	}
	post(release_streaming_open);
	wait_until_closed();
	close(other);
	stop();
	assert_int_equal(fx.closed, 1);
}

TEST(a_streaming_response_does_not_begin_while_the_server_drains)
{
	start(usual);
	int fd = dial();
	say(fd, GET("/hold"));
	wait_until_held();
	post(drain_open);
	post(release_streaming_open);
	hear_streaming_head(fd);
	expect_end(fd);
	stop();
	assert_int_equal(fx.closed, 1);
}

TEST(a_streaming_response_with_a_forbidden_byte_is_a_failure)
{
	start(usual);
	int fd = dial();
	say(fd, GET("/stream-bad"));
	expect(fd, 500, "");
	while (fx.begun == 0)
		sched_yield();
	tell(STR("into the void"));
	assert_int_equal(fx.refused + fx.closed, 1);
	expect_end(fd);
	wait_until_closed();
	stop();
	assert_int_equal(fx.closed, 1);
}

/* Large bodies */

enum { MIB = 1 << 20, HALF_BYTES = 17 * MIB }; /* in a buffer of 32 MiB: two of them use up the budget */

static struct http_settings with_bodies(size_t bytes_max)
{
	struct http_settings s = usual;
	s.limits.body_bytes_max = bytes_max;
	return s;
}

static void turn(void)
{
	int before = fx.mails;
	post(turn_open);
	while (fx.mails == before)
		sched_yield();
}

/* A part of a body. When it returns, the server has taken it: it has left this socket, and the loop, which
 * reads up to 64 KiB a turn, has turned often enough. */
static void say_bytes(int fd, size_t bytes)
{
	for (size_t left = bytes; left > 0;) {
		ssize_t n = send(fd, large, MIN(left, sizeof(large)), MSG_NOSIGNAL);
		assert_true(n > 0);
		left -= (size_t)n;
	}
	int waiting;
	do {
		assert_int_equal(ioctl(fd, SIOCOUTQ, &waiting), 0);
	} while (waiting > 0);
	uint64_t until = fx.metrics->loop_turns + bytes / 65536 + 4;
	while (fx.metrics->loop_turns < until)
		turn();
}

/* A whole body, and the status of the answer. */
static int offer(size_t bytes)
{
	char head[4096];
	int fd = dial();
	uint64_t refused = metrics_sum(offsetof(struct metrics, http_bodies_refused));
	size_t len = (size_t)snprintf(
	    head, sizeof(head), "POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", bytes);
	assert_int_equal(send(fd, head, len, MSG_NOSIGNAL), len);
	while (bytes > 0) {
		ssize_t n = send(fd, large, MIN(bytes, sizeof(large)), MSG_NOSIGNAL);
		assert_true(n > 0); /* what is refused is read all the same */
		bytes -= (size_t)n;
	}
	int status = hear_head(fd, head);
	bool is_refused = status == 503;
	assert_int_equal(metrics_sum(offsetof(struct metrics, http_bodies_refused)) - refused, is_refused);
	if (is_refused) {
		assert_non_null(strstr(head, "\r\nRetry-After: 1\r\n"));
		assert_non_null(strstr(head, "\r\nContent-Type: application/problem+json\r\n"));
		assert_non_null(strstr(head, "\r\nConnection: close\r\n"));
		read_on(fd, strtoul(strstr(head, "Content-Length: ") + 16, NULL, 10));
		expect_end(fd);
	} else {
		close(fd);
	}
	return status;
}

/* What a peer that left held comes free once the loop has seen it. */
static void expect_room_for_a_body_soon(void)
{
	for (int tries = 0; offer(MIB) != 200; tries++)
		assert_true(tries < 1000);
}

TEST(bodies_that_do_not_end_do_not_pile_up)
{
	enum { FULL = 16, OTHERS = 10 };
	start(with_bodies(4 * MIB));
	int full[FULL];
	size_t before = allocated_bytes();
	for (int i = 0; i < FULL; i++) {
		full[i] = dial();
		say(full[i], i % 2 ? "POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: 4194304\r\n\r\n"
		                   : "POST /count HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
		                     "400000\r\n");
		say_bytes(full[i], 4 * MIB - 1);
	}
	for (int i = 0; i < OTHERS; i++) {
		assert_int_equal(offer(2 * MIB), 503);
		assert_int_equal(offer(HTTP_LARGE_BYTES), 200); /* what is not large has no budget */
	}
	assert_true(allocated_bytes() < before + (80 << 20));
	say(full[1], "x");
	expect(full[1], 200, "4194304");
	assert_int_equal(offer(2 * MIB), 200);
	say(full[0], "x\r\n0\r\n\r\n" GET("/now"));
	expect(full[0], 200, "4194304");
	expect(full[0], 200, NULL); /* the connection goes on */
	for (int i = 0; i < FULL; i++)
		close(full[i]);
	stop();
}

/* How a body may end while the connection stays. */

static void end_whole(int fd)
{
	say(fd, "x");
	expect(fd, 200, "17825793");
}

static void end_whole_chunked(int fd)
{
	say(fd, "\r\n0\r\n\r\n");
	expect(fd, 200, "17825792");
}

static void end_in_a_bad_chunk(int fd)
{
	say(fd, "no");
	expect(fd, 400, NULL);
}

static void end_in_a_chunk_that_is_too_large(int fd)
{
	say(fd, "\r\n4000000\r\n");
	expect(fd, 413, NULL);
}

static void end_by_half_close(int fd)
{
	char byte;
	shutdown(fd, SHUT_WR);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	turn();
}

static void end_unread(int fd)
{
	char head[4096];
	say(fd, "x");
	assert_int_equal(hear_head(fd, head), 200);
}

static void end_streaming(int fd)
{
	say(fd, "x");
	hear_streaming_head(fd);
}

static void hold_whole(int fd)
{
	say(fd, "x");
	wait_until_held();
	assert_int_equal(offer(MIB), 503); /* the handler may still look at it */
}

static void end_deferred(int fd)
{
	hold_whole(fd);
	post(release_open);
	expect(fd, 200, "released");
}

static void end_deferred_unread(int fd)
{
	char head[4096];
	hold_whole(fd);
	post(release_large_open);
	assert_int_equal(hear_head(fd, head), 200);
}

static void end_deferred_streaming(int fd)
{
	hold_whole(fd);
	post(release_streaming_open);
	hear_streaming_head(fd);
}

#define POST_BEGUN(path, fields) \
	"POST " path " HTTP/1.1\r\nHost: h\r\n" fields "Content-Length: 17825793\r\n\r\n"
#define POST_CHUNKED                                                            \
	"POST /count HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" \
	"1100000\r\n"

TEST(a_body_gives_its_share_back_however_it_ends)
{
	static const struct {
		const char *head;
		void (*end)(int fd);
	} ways[] = {
	    {POST_BEGUN("/count", ""), end_whole},
	    {POST_CHUNKED, end_whole_chunked},
	    {POST_CHUNKED, end_in_a_bad_chunk},
	    {POST_CHUNKED, end_in_a_chunk_that_is_too_large},
	    {POST_BEGUN("/count", ""), end_by_half_close},
	    {POST_CHUNKED, end_by_half_close},
	    {POST_BEGUN("/large", "Connection: close\r\n"), end_unread},
	    {POST_BEGUN("/large", ""), end_unread},
	    {POST_BEGUN("/stream", ""), end_streaming},
	    {POST_BEGUN("/hold", ""), end_deferred},
	    {POST_BEGUN("/hold", "Connection: close\r\n"), end_deferred},
	    {POST_BEGUN("/hold", "Connection: close\r\n"), end_deferred_unread},
	    {POST_BEGUN("/hold", ""), end_deferred_streaming},
	};
	start(with_bodies(64 * MIB));
	int half = dial();
	say(half, POST_BEGUN("/count", ""));
	say_bytes(half, HALF_BYTES);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		int fd = dial();
		say(fd, ways[i].head);
		say_bytes(fd, HALF_BYTES);
		assert_int_equal(offer(MIB), 503);
		ways[i].end(fd);
		assert_int_equal(offer(MIB), 200);
		close(fd);
	}
	end_whole(half);
	close(half);
	stop();
}

TEST(a_peer_that_leaves_gives_back_the_share_of_its_body)
{
	start(with_bodies(64 * MIB));
	int half = dial(), gone = dial(), held = dial();
	say(half, POST_BEGUN("/count", ""));
	say_bytes(half, HALF_BYTES);

	say(gone, POST_CHUNKED);
	say_bytes(gone, HALF_BYTES);
	assert_int_equal(offer(MIB), 503);
	close_with_reset(gone);
	expect_room_for_a_body_soon();

	say(held, POST_BEGUN("/hold", ""));
	say_bytes(held, HALF_BYTES);
	say(held, "x");
	wait_until_held();
	close_with_reset(held);
	for (int i = 0; i < 10; i++)
		turn();
	assert_int_equal(offer(MIB), 503); /* its memory stays for the handler */
	post(release_open);
	expect_room_for_a_body_soon();
	close(half);
	stop();
}

/* While nothing can be sent, only the allocator can tell. */
TEST(half_a_body_is_not_kept_while_answers_before_it_wait)
{
	os_fault_clear(OS_SEND); /* threads start after the first arming */
	start(with_bodies(64 * MIB));
	int fd = dial();
	size_t before = allocated_bytes();
	os_fault_fail(OS_SEND, 1, EAGAIN, OS_FOR_GOOD);
	say(fd, GET("/now") POST_BEGUN("/count", ""));
	say_bytes(fd, HALF_BYTES);
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 10; i++)
		turn();
	assert_true(allocated_bytes() < before + 8 * MIB);
	os_fault_clear(OS_SEND);
	expect(fd, 200, "1");
	expect_end(fd);
	stop();
	os_fault_reset();
}

/* At the least rate of 1 KiB a second it would be hours. */
TEST(a_large_body_must_come_within_minutes)
{
	enum { MINUTE_MS = 60000 };
	os_fault_clock_set(1700000000000, 1000000);
	start(with_bodies(64 * MIB));
	int half = dial(), slow = dial(), steady = dial();
	say(half, POST_BEGUN("/count", ""));
	say(slow, POST_BEGUN("/count", ""));
	say(steady, "POST /count HTTP/1.1\r\nHost: h\r\nContent-Length: 16777217\r\n\r\n");
	say_bytes(half, HALF_BYTES);
	say_bytes(slow, HALF_BYTES);
	assert_int_equal(offer(MIB), 503);
	pass_time(5 *
	          MINUTE_MS); /* so far they are in time: 272 s at 64 KiB a second, and 84 s before that */
	expect(steady, 408, NULL); /* but nothing came here */
	expect_end(steady);
	say_bytes(half, 4 * MIB);
	pass_time(MINUTE_MS);
	expect(slow, 408, NULL);
	expect_end(slow);
	assert_int_equal(offer(MIB), 200);
	close(half);
	stop();
	os_fault_reset();
}

TEST_MAIN()
