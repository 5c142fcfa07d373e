#include "client/redis_wire.h"

#include "os/clock.h"
#include "os/sys.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { READ_BYTES = 16384, REST_BYTES_MAX = 65536 };

int wire_fail(struct redis_conn *c, const char *fmt, ...)
{
	if (!c->failed) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(c->why.text, sizeof(c->why.text), fmt, ap);
		va_end(ap);
	}
	c->failed = true;
	return ERR_UNAVAILABLE;
}

/* --- replies: hiredis parses, and what it finds goes into the connection's arena --- */

struct reply_node {
	struct redis_reply reply;
	struct reply_node *items[];
};

/* Puts a value where its array wants it. NULL makes the reader fail. */
static void *node_add(const redisReadTask *task, struct redis_reply reply, size_t room)
{
	struct redis_conn *c = task->privdata;
	struct reply_node *n = arena_zalloc(&c->replies, sizeof(*n) + room * sizeof(struct reply_node *));
	if (!n)
		return NULL;
	n->reply = reply;
	n->reply.vendor = n;
	if (task->parent) {
		struct reply_node *parent = task->parent->obj;
		parent->items[task->idx] = n;
	}
	return n;
}

static void *node_string(const redisReadTask *task, char *text, size_t len)
{
	struct redis_conn *c = task->privdata;
	struct str copy = arena_str(&c->replies, str_n(text, len));
	if (!copy.ptr)
		return NULL;
	enum redis_type type = REDIS_STR;
	if (task->type == REDIS_REPLY_STATUS)
		type = REDIS_STATUS;
	else if (task->type == REDIS_REPLY_ERROR)
		type = REDIS_ERROR;
	return node_add(task, (struct redis_reply){.type = type, .text = copy}, 0);
}

static void *node_array(const redisReadTask *task, int count)
{
	if (count < 0 || count > REDIS_REPLY_COUNT_MAX)
		return NULL;
	return node_add(task, (struct redis_reply){.type = REDIS_ARRAY, .count = (size_t)count},
	                (size_t)count);
}

static void *node_integer(const redisReadTask *task, long long number)
{
	return node_add(task, (struct redis_reply){.type = REDIS_INT, .number = number}, 0);
}

static void *node_nil(const redisReadTask *task)
{
	return node_add(task, (struct redis_reply){.type = REDIS_NIL}, 0);
}

static void node_free(void *node)
{
	(void)node; /* freed with the arena */
}

static redisReplyObjectFunctions node_functions = {
    .createString = node_string,
    .createArray = node_array,
    .createInteger = node_integer,
    .createNil = node_nil,
    .freeObject = node_free,
};

struct redis_reply redis_reply_at(const struct redis_reply *array, size_t i)
{
	ASSERT(array->type == REDIS_ARRAY && i < array->count);
	const struct reply_node *n = array->vendor;
	return n->items[i]->reply;
}

/* --- connecting --- */

/* Waits for `events` until the deadline: 0, or ERR_BUSY. */
static int wait_for(int fd, short events, int64_t deadline_ms)
{
	for (;;) {
		int64_t left_ms = deadline_ms - clock_mono_ms();
		struct pollfd p = {.fd = fd, .events = events};
		int ready = poll(&p, 1, (int)MAX(left_ms, 0));
		if (ready > 0)
			return 0;
		if (ready == 0 && left_ms <= 0)
			return ERR_BUSY;
	}
}

/* The socket's error once connecting has ended; 0 when it is connected. */
static int connect_one(int fd, const struct addrinfo *a, int64_t deadline_ms)
{
	if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	if (wait_for(fd, POLLOUT, deadline_ms) != 0)
		return ETIMEDOUT;
	int error = 0;
	socklen_t len = sizeof(error);
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
}

static int connect_any(const struct addrinfo *list, int64_t deadline_ms, int *ret_error)
{
	*ret_error = EADDRNOTAVAIL;
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
		if (fd < 0) {
			*ret_error = errno;
			continue;
		}
		*ret_error = connect_one(fd, a, deadline_ms);
		if (*ret_error == 0) {
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
			return fd;
		}
		close(fd);
	}
	return -1;
}

static int connect_host(const struct redis_host *host, int64_t deadline_ms, struct err *e)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	char port[8];
	snprintf(port, sizeof(port), "%u", host->port);
	int bad = getaddrinfo(host->host, port, &hints, &list);
	if (bad != 0) {
		err_set(e, ERR_UNAVAILABLE, "%s port %s: %s", host->host, port, gai_strerror(bad));
		return -1;
	}
	int error;
	int fd = connect_any(list, deadline_ms, &error);
	freeaddrinfo(list);
	if (fd < 0)
		err_set(e, ERR_UNAVAILABLE, "%s port %s: %s", host->host, port, strerrordesc_np(error));
	return fd;
}

struct redis_conn *wire_new(int fd, struct err *e)
{
	struct redis_conn *c = calloc(1, sizeof(*c));
	redisReader *reader = redisReaderCreateWithFunctions(&node_functions);
	if (!c || !reader) {
		err_set(e, ERR_NOMEM, "memory ran out");
		free(c);
		if (reader)
			redisReaderFree(reader);
		close(fd);
		return NULL;
	}
	reader->privdata = c;
	c->reader = reader;
	c->fd = fd;
	return c;
}

struct redis_conn *wire_open(const struct redis_host *host, int64_t deadline_ms, struct err *e)
{
	int fd = connect_host(host, deadline_ms, e);
	return fd < 0 ? NULL : wire_new(fd, e);
}

void wire_close(void *conn)
{
	struct redis_conn *c = conn;
	if (!c)
		return;
	close(c->fd);
	redisReaderFree(c->reader);
	arena_release(&c->replies);
	buf_release(&c->out);
	free(c);
}

void wire_rest(struct redis_conn *c)
{
	arena_release(&c->replies);
	c->reply_whole = false;
	if (c->out.cap > REST_BYTES_MAX)
		buf_release(&c->out);
}

bool wire_is_quiet(const void *conn)
{
	const struct redis_conn *c = conn;
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	return poll(&p, 1, 0) == 0;
}

/* --- sending and reading --- */

static int send_some(struct redis_conn *c, int64_t deadline_ms)
{
	ssize_t n = os_sys.send(c->fd, c->out.data + c->out_sent, c->out.len - c->out_sent, MSG_NOSIGNAL);
	if (n > 0)
		c->out_sent += (size_t)n;
	else if (n < 0 && errno == EAGAIN && wait_for(c->fd, POLLOUT, deadline_ms) != 0)
		return wire_fail(c, "it takes nothing more");
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		return wire_fail(c, "%s", strerrordesc_np(errno));
	return 0;
}

int wire_send(struct redis_conn *c, int64_t deadline_ms)
{
	if (c->failed)
		return ERR_UNAVAILABLE;
	if (c->out.failed)
		return wire_fail(c, "memory ran out");
	if (c->out.len == 0)
		return 0;
	c->deadline_ms = deadline_ms;
	while (c->out_sent < c->out.len) {
		int r = send_some(c, deadline_ms);
		if (r)
			return r;
	}
	c->out.len = c->out_sent = 0;
	return 0;
}

/* More bytes for the reader: 0, ERR_BUSY when none came in time. */
static int receive(struct redis_conn *c, int64_t deadline_ms)
{
	char data[READ_BYTES];
	for (;;) {
		ssize_t n = os_sys.recv(c->fd, data, sizeof(data), 0);
		if (n > 0)
			return redisReaderFeed(c->reader, data, (size_t)n) == REDIS_OK
			           ? 0
			           : wire_fail(c, "its answer cannot be read: %s", c->reader->errstr);
		if (n == 0)
			return wire_fail(c, "it closed the connection");
		if (errno != EAGAIN && errno != EINTR)
			return wire_fail(c, "%s", strerrordesc_np(errno));
		if (errno == EAGAIN && wait_for(c->fd, POLLIN, deadline_ms) != 0)
			return ERR_BUSY;
	}
}

int wire_read(struct redis_conn *c, int64_t deadline_ms, struct redis_reply *ret)
{
	if (c->reply_whole) /* otherwise the reader has begun the next one there */
		arena_release(&c->replies);
	c->reply_whole = false;
	for (;;) {
		if (c->failed)
			return ERR_UNAVAILABLE;
		void *found = NULL;
		if (redisReaderGetReply(c->reader, &found) != REDIS_OK)
			return wire_fail(c, "its answer cannot be read: %s", c->reader->errstr);
		if (found) {
			*ret = ((struct reply_node *)found)->reply;
			c->reply_whole = true;
			return 0;
		}
		if (c->reader->len > REDIS_REPLY_BYTES_MAX)
			return wire_fail(c, "its answer is too long");
		int r = receive(c, deadline_ms);
		if (r)
			return r;
	}
}
