#include "lib/os_fault.h"
#include "lib/test.h"
#include "loop/loop.h"
#include "os/clock.h"
#include "os/net.h"
#include "os/sys.h"

#include <poll.h>

/*
 * A loop in a thread of its own, serving a small language over real sockets. Every line is a command:
 *   e TEXT   echo the line            h        hold: pause until another connection says "r"
 *   r        resume who holds         q        answer "bye" and close
 *   x        abort                    d        set a deadline of 50 ms (then it says "late" and closes)
 *   b        a large answer           o        echo, and let the turn's hook look at it
 *   s        echo, and say when it has left    w    answer with a chunk
 * What is not a whole line stays with the loop.
 */
struct fixture {
	struct loop *loop;
	struct net_addr addr;
	pthread_t thread;
	struct metrics *metrics;
	struct stream *holder;
	struct stream *watched;
	_Atomic bool hook_saw_output; /* queued, and not yet sent */
	_Atomic int open_conns;
	_Atomic int closed_conns;
	_Atomic bool refuse;
	_Atomic size_t largest_out;
};

static struct fixture fx;
enum { LARGE = 32 * 1024 * 1024 }; /* more than a socket's buffers ever grow to */
enum { CHUNK = 64 * 1024 };

static void obey(struct stream *s, const char *line, size_t len)
{
	switch (line[0]) {
	case 'e': stream_write(s, line, len); break;
	case 'h':
		fx.holder = s;
		stream_pause(s);
		break;
	case 'r':
		stream_write(fx.holder, "resumed\n", 8);
		stream_resume(fx.holder);
		break;
	case 'q':
		stream_write(s, "bye\n", 4);
		stream_close(s);
		break;
	case 'x': stream_abort(s); break;
	case 'd': stream_set_deadline(s, loop_mono_ms(s->loop) + 50); break;
	case 'b': {
		char *large = calloc(1, LARGE);
		stream_write(s, large, LARGE);
		stream_ask_drained(s);
		free(large);
		break;
	}
	case 'w': {
		static char chunk[CHUNK];
		stream_write(s, chunk, sizeof(chunk));
		fx.largest_out = MAX(fx.largest_out, s->out.cap);
		break;
	}
	case 's':
		stream_write(s, line, len);
		stream_ask_drained(s);
		break;
	case 'o':
		stream_write(s, line, len);
		fx.watched = s;
		break;
	default: abort();
	}
}

static size_t on_bytes(struct stream *s, const char *data, size_t len)
{
	size_t used = 0;
	while (used < len && stream_is_open(s) && !s->paused) {
		const char *end = memchr(data + used, '\n', len - used);
		if (!end)
			break;
		size_t line = (size_t)(end + 1 - (data + used));
		obey(s, data + used, line);
		used += line;
	}
	return used;
}

static void on_eof(struct stream *s)
{
	stream_write(s, "eof\n", 4);
	stream_close(s);
}

static void on_drained(struct stream *s)
{
	stream_write(s, "drained\n", 8);
}

static void on_deadline(struct stream *s)
{
	stream_write(s, "late\n", 5);
	stream_close(s);
}

static void on_closed(struct stream *s)
{
	fx.closed_conns++;
	free(s);
}

static const struct stream_ops ops = {on_bytes, on_eof, on_drained, on_deadline, on_closed};

static struct stream *on_open(void *ctx, const struct net_addr *peer)
{
	(void)ctx;
	if (!net_addr_is_loopback(peer) || fx.refuse)
		return NULL;
	struct stream *s = calloc(1, sizeof(*s));
	s->ops = &ops;
	fx.open_conns++;
	return s;
}

static void hook(void *ctx)
{
	(void)ctx;
	if (fx.watched)
		fx.hook_saw_output = stream_backlog(fx.watched) > 0;
	fx.watched = NULL;
}

static void *loop_thread(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void start(size_t streams_max)
{
	int fd;
	fx = (struct fixture){.metrics = metrics_register()};
	struct loop_config config = {.streams_max = streams_max, .metrics = fx.metrics};
	assert_int_equal(net_addr_parse(STR("127.0.0.1:0"), &fx.addr, NULL), 0);
	assert_int_equal(net_listen(&fx.addr, 128, &fd, NULL), 0);
	assert_int_equal(loop_new(&config, &fx.loop, NULL), 0);
	assert_int_equal(loop_listen(fx.loop, fd, on_open, NULL, NULL), 0);
	loop_add_turn_hook(fx.loop, hook, NULL);
	assert_int_equal(pthread_create(&fx.thread, NULL, loop_thread, fx.loop), 0);
}

static void abort_one(struct stream *s, void *ctx)
{
	(void)ctx;
	stream_abort(s);
}

static void stop_mail(struct mail *m)
{
	(void)m;
	loop_unlisten(fx.loop);
	loop_each_stream(fx.loop, abort_one, NULL);
	loop_stop(fx.loop); /* opened in the next turn: the streams are buried by then */
}

static void stop(void)
{
	struct mail m = {.open = stop_mail};
	loop_post(fx.loop, &m);
	pthread_join(fx.thread, NULL);
	assert_int_equal(fx.open_conns, fx.closed_conns);
	loop_free(fx.loop);
	os_fault_reset();
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, &fx.addr.any, fx.addr.len), 0);
	struct timeval limit = {.tv_sec = 20};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void say(int fd, const char *text)
{
	size_t len = strlen(text);
	assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
}

static void expect(int fd, const char *text)
{
	char got[256] = "";
	size_t have = 0, want = strlen(text);
	while (have < want) {
		ssize_t n = recv(fd, got + have, want - have, 0);
		assert_true(n > 0);
		have += (size_t)n;
	}
	assert_string_equal(got, text);
}

static void expect_end(int fd)
{
	char byte;
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

static void take(int fd, size_t want)
{
	static char sink[65536];
	while (want > 0) {
		ssize_t n = recv(fd, sink, MIN(sizeof(sink), want), 0);
		assert_true(n > 0);
		want -= (size_t)n;
	}
}

TEST(bytes_come_and_go)
{
	start(16);
	int fd = dial();
	say(fd, "e hello\n");
	expect(fd, "e hello\n");
	close(fd);
	stop();
}

TEST(what_was_not_consumed_comes_again_with_the_rest)
{
	start(16);
	int fd = dial();
	const char *text = "e one two three\ne four\n";
	for (size_t i = 0; text[i]; i++) {
		char byte[2] = {text[i], 0};
		say(fd, byte);
	}
	expect(fd, text);
	close(fd);
	stop();
}

TEST(a_paused_stream_delivers_nothing_until_it_is_resumed)
{
	start(16);
	int held = dial(), other = dial();
	say(held, "h\ne kept\n");
	say(other, "e other\n");
	expect(other, "e other\n");
	say(held, "e later\n");
	struct pollfd quiet = {.fd = held, .events = POLLIN};
	assert_int_equal(poll(&quiet, 1, 0), 0);
	say(other, "r\n");
	expect(held, "resumed\ne kept\ne later\n");
	close(held);
	close(other);
	stop();
}

TEST(the_end_of_input_is_told_after_the_bytes_also_to_a_paused_stream)
{
	start(16);
	int held = dial(), other = dial();
	say(held, "h\ne last\n");
	shutdown(held, SHUT_WR);
	say(other, "e x\n");
	expect(other, "e x\n");
	say(other, "r\n");
	expect(held, "resumed\ne last\neof\n");
	expect_end(held);
	close(other);
	stop();
}

TEST(closing_sends_everything_first_and_survives_unread_input)
{
	start(16);
	int fd = dial();
	say(fd, "e a\nq\ne ignored\ne ignored\n");
	expect(fd, "e a\nbye\n");
	say(fd, "e more after the close\n"); /* must not reset the connection */
	expect_end(fd);
	stop();
}

TEST(an_abort_ends_the_stream_at_once)
{
	start(16);
	int fd = dial();
	say(fd, "x\n");
	char byte;
	assert_true(recv(fd, &byte, 1, 0) <= 0);
	close(fd);
	stop();
}

TEST(a_deadline_passes_without_any_traffic)
{
	start(16);
	int fd = dial();
	say(fd, "d\n");
	expect(fd, "late\n");
	expect_end(fd);
	stop();
}

TEST(an_answer_larger_than_the_socket_takes_arrives_whole_and_then_it_says_drained)
{
	start(16);
	int fd = dial(), other = dial();
	say(fd, "b\n");
	for (int i = 0; i < 2; i++) { /* by then the large answer has met a full socket */
		say(other, "e x\n");
		expect(other, "e x\n");
	}
	close(other);
	take(fd, LARGE);
	expect(fd, "drained\n");
	close(fd);
	stop();
}

/* The peer reads, and asks for as much again: something is always queued, and what was sent must not stay. */
TEST(a_queue_that_never_empties_does_not_grow)
{
	enum { QUEUED = 256, EXCHANGES = 1600 }; /* 16 MiB, then 100 MiB */
	start(16);
	int fd = dial(), small = CHUNK;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)); /* else it might take all of it */
	for (int i = 0; i < QUEUED; i++)
		say(fd, "w\n");
	for (int i = 0; i < EXCHANGES; i++) {
		take(fd, CHUNK);
		say(fd, "w\n");
	}
	assert_true(fx.largest_out <= 4UL * QUEUED * CHUNK);
	close(fd);
	stop();
}

TEST(a_small_answer_that_leaves_at_once_has_drained_too)
{
	start(16);
	int fd = dial();
	say(fd, "s\n");
	expect(fd, "s\ndrained\n");
	say(fd, "e x\n"); /* said once */
	expect(fd, "e x\n");
	close(fd);
	stop();
}

TEST(hooks_run_before_the_output_of_their_turn)
{
	start(16);
	int fd = dial();
	say(fd, "o\n");
	expect(fd, "o\n");
	assert_true(fx.hook_saw_output);
	close(fd);
	stop();
}

TEST(beyond_the_bound_new_connections_wait_their_turn)
{
	start(2);
	int a = dial(), b = dial();
	say(a, "e a\n");
	expect(a, "e a\n");
	say(b, "e b\n");
	expect(b, "e b\n");
	int c = dial(); /* in the backlog */
	say(c, "e c\n");
	struct pollfd quiet = {.fd = c, .events = POLLIN};
	assert_int_equal(poll(&quiet, 1, 0), 0);
	close(a);
	expect(c, "e c\n");
	close(b);
	close(c);
	stop();
}

TEST(a_refused_connection_is_closed_and_counted)
{
	start(16);
	fx.refuse = true;
	int fd = dial();
	char byte;
	assert_true(recv(fd, &byte, 1, 0) <= 0);
	close(fd);
	stop();
	assert_int_equal(fx.metrics->conns_refused, 1);
}

TEST(out_of_descriptors_it_sheds_pauses_and_recovers)
{
	os_fault_fail(OS_ACCEPT4, 1, EMFILE, OS_ONCE);
	start(16);
	int first = dial(); /* accept fails; the spare descriptor takes it and drops it */
	char byte;
	assert_true(recv(first, &byte, 1, 0) <= 0);
	close(first);
	int second = dial();
	say(second, "e again\n");
	expect(second, "e again\n");
	close(second);
	stop();
	assert_int_equal(fx.metrics->conns_refused, 1);
}

TEST(interrupted_and_short_system_calls_change_nothing)
{
	os_fault_fail(OS_RECV, 1, EINTR, OS_ONCE);
	os_fault_fail(OS_SEND, 1, EINTR, OS_ONCE);
	os_fault_fail(OS_EPOLL_WAIT, 3, EINTR, OS_ONCE);
	os_fault_short(OS_SEND, 2, 1, OS_FOR_GOOD);
	os_fault_short(OS_RECV, 2, 3, OS_FOR_GOOD);
	start(16);
	int fd = dial();
	say(fd, "e hello\n");
	expect(fd, "e hello\n");
	close(fd);
	stop();
}

TEST(a_send_that_fails_ends_only_that_stream)
{
	os_fault_fail(OS_SEND, 1, EPIPE, OS_ONCE);
	start(16);
	int a = dial(), b = dial();
	say(a, "e a\n");
	char byte;
	assert_true(recv(a, &byte, 1, 0) <= 0);
	say(b, "e b\n");
	expect(b, "e b\n");
	close(a);
	close(b);
	stop();
}

TEST_MAIN()
