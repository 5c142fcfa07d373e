/*
 * The loop on epoll, level-triggered. Reading: one recv a stream and turn into a buffer that the whole loop
 * shares; only what the owner leaves unconsumed is copied into the stream, so an idle connection has no
 * buffers. Writing: output gathers in a buffer borrowed from the loop and goes out in one send at the turn's
 * end.
 *
 * A stream that is paused is not taken out of epoll at once: most pauses (a lookup in the store) end before
 * the peer sends more. Only when bytes do arrive meanwhile does it cost an epoll_ctl.
 *
 * Nothing is freed while a turn runs: closed streams wait in the graveyard until its end, so an event that
 * epoll returned earlier in the turn never meets freed memory.
 */
#include "loop/loop.h"

#include "base/list.h"
#include "base/rfc3339.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/reclaim.h"
#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	READ_BYTES = 64 * 1024,
	EVENTS_MAX = 256,
	ACCEPTS_PER_TURN = 64,
	ACCEPT_PAUSE_MS = 100,
	FLUSH_MS = 30000, /* to a peer that does not read, unless its owner set a deadline */
	LINGER_MS = 2000,
	LINGER_READS_PER_TURN = 16,
	SPARE_BUFFERS_MAX = 256,
	SPARE_BUFFER_BYTES_MAX = 64 * 1024,
};

enum stream_state {
	STREAM_OPEN,
	STREAM_FLUSHING,  /* stream_close was called, output is still queued */
	STREAM_LINGERING, /* our side is shut: reading until the peer has seen it */
	STREAM_CLOSED,    /* in the graveyard, or beyond */
};

struct turn_hook {
	void (*fn)(void *ctx);
	void *ctx;
};

struct loop {
	int epoll_fd;
	int spare_fd; /* given up for a moment when descriptors run out, so that the queue can be shed */
	struct mailbox mailbox;
	struct loop_source mailbox_source;
	struct mail stop_mail;
	bool stopping;

	int listen_fd;
	struct loop_source listen_source;
	bool listen_armed;
	struct timer listen_timer;
	struct stream *(*open)(void *ctx, const struct net_addr *peer);
	void *open_ctx;

	struct list streams;
	struct list dirty;
	struct list resumed;
	struct list graveyard;
	size_t stream_count;
	size_t streams_max;

	struct timers timers;
	struct turn_hook hooks[LOOP_HOOKS_MAX];
	size_t hook_count;

	int64_t mono_ns;
	int64_t mono_ms;
	int64_t real_ms;
	int64_t date_second;
	char date[HTTP_DATE_BYTES];

	struct metrics *metrics;
	struct buf spare_buffers[SPARE_BUFFERS_MAX];
	size_t spare_buffer_count;
	struct epoll_event events[EVENTS_MAX];
	char read_buffer[READ_BYTES];
};

/* Buffers */

static void buffer_borrow(struct loop *l, struct buf *b)
{
	if (!b->data && l->spare_buffer_count > 0)
		*b = l->spare_buffers[--l->spare_buffer_count];
}

static void buffer_return(struct loop *l, struct buf *b)
{
	if (!b->data)
		return;
	if (b->cap > SPARE_BUFFER_BYTES_MAX || l->spare_buffer_count == SPARE_BUFFERS_MAX || b->failed) {
		buf_release(b);
		return;
	}
	b->len = 0;
	l->spare_buffers[l->spare_buffer_count++] = *b;
	*b = (struct buf){0};
}

/* Streams */

static void stream_interest(struct stream *s, unsigned events)
{
	if (s->interest == events)
		return;
	struct epoll_event ev = {.events = events, .data.ptr = &s->source};
	int r = epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev);
	ASSERT(r == 0);
	s->interest = events;
}

bool stream_is_open(const struct stream *s)
{
	return s->state == STREAM_OPEN;
}

void stream_abort(struct stream *s)
{
	if (s->state == STREAM_CLOSED)
		return;
	struct loop *l = s->loop;
	s->state = STREAM_CLOSED;
	timer_cancel(&l->timers, &s->timer);
	os_sys.close(s->fd); /* leaves epoll by itself: nobody else holds the description */
	s->fd = -1;
	if (s->dirty) {
		s->dirty = false;
		list_remove(&s->dirty_link);
	}
	if (s->resumed) {
		s->resumed = false;
		list_remove(&s->resumed_link);
	}
	list_remove(&s->all_link);
	list_push(&l->graveyard, &s->all_link);
}

static void stream_mark_dirty(struct stream *s)
{
	if (s->dirty || s->state == STREAM_CLOSED)
		return;
	s->dirty = true;
	list_push(&s->loop->dirty, &s->dirty_link);
}

struct buf *stream_out_begin(struct stream *s)
{
	buffer_borrow(s->loop, &s->out);
	return &s->out;
}

void stream_written(struct stream *s)
{
	if (UNLIKELY(s->out.failed)) {
		stream_abort(s);
		return;
	}
	stream_mark_dirty(s);
}

void stream_write(struct stream *s, const void *data, size_t len)
{
	if (s->state != STREAM_OPEN)
		return;
	buf_append(stream_out_begin(s), data, len);
	stream_written(s);
}

void stream_ask_drained(struct stream *s)
{
	s->drained_asked = true;
	stream_mark_dirty(s);
}

void stream_pause(struct stream *s)
{
	s->paused = true;
}

static void stream_queue_delivery(struct stream *s)
{
	if (s->resumed)
		return;
	s->resumed = true;
	list_push(&s->loop->resumed, &s->resumed_link);
}

void stream_resume(struct stream *s)
{
	if (!s->paused || s->state != STREAM_OPEN)
		return;
	s->paused = false;
	if (!s->eof)
		stream_interest(s, s->interest | EPOLLIN);
	if (s->in.len > 0 || (s->eof && !s->eof_said))
		stream_queue_delivery(s);
}

void stream_set_deadline(struct stream *s, int64_t at_ms)
{
	/* The timer is only ever moved closer here; when it fires too early for the present deadline, it is
	 * set again. So the common case, a deadline that moves away with each request, is one store. */
	if (s->state == STREAM_CLOSED)
		return;
	s->deadline_ms = at_ms;
	if (at_ms != 0 && (!s->timer.armed || s->timer.at_ms > at_ms))
		timer_set(&s->loop->timers, &s->timer, at_ms);
}

static void stream_timer_fire(struct timer *t)
{
	struct stream *s = container_of(t, struct stream, timer);
	if (s->deadline_ms == 0)
		return;
	if (s->deadline_ms > s->loop->mono_ms) {
		timer_set(&s->loop->timers, t, s->deadline_ms);
		return;
	}
	s->deadline_ms = 0;
	metric_add(&s->loop->metrics->conns_timed_out, 1);
	if (s->state == STREAM_OPEN)
		s->ops->deadline(s);
	else
		stream_abort(s);
}

static void stream_shut(struct stream *s)
{
	if (s->eof || shutdown(s->fd, SHUT_WR) != 0) {
		stream_abort(s);
		return;
	}
	s->state = STREAM_LINGERING;
	stream_interest(s, EPOLLIN | EPOLLRDHUP);
	stream_set_deadline(s, s->loop->mono_ms + LINGER_MS);
}

void stream_close(struct stream *s)
{
	if (s->state != STREAM_OPEN)
		return;
	s->state = STREAM_FLUSHING;
	s->in.len = 0;
	if (stream_backlog(s) == 0) {
		stream_shut(s);
		return;
	}
	if (s->deadline_ms == 0)
		stream_set_deadline(s, s->loop->mono_ms + FLUSH_MS);
	stream_mark_dirty(s);
}

/* Sends what is queued. */
static void stream_flush(struct stream *s)
{
	struct loop *l = s->loop;
	while (stream_backlog(s) > 0) {
		ssize_t n = os_sys.send(s->fd, s->out.data + s->out_sent, stream_backlog(s), MSG_NOSIGNAL);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN || errno == EWOULDBLOCK) {
				s->sending = true;
				stream_interest(s, s->interest | EPOLLOUT);
				/* A queue that never empties must not keep what has left. */
				if (s->out_sent > s->out.len / 2) {
					buf_consume(&s->out, s->out_sent);
					s->out_sent = 0;
				}
				return;
			}
			stream_abort(s);
			return;
		}
		s->out_sent += (size_t)n;
	}
	s->out_sent = 0;
	s->out.len = 0;
	buffer_return(l, &s->out);
	if (s->sending) {
		s->sending = false;
		stream_interest(s, s->interest & ~(unsigned)EPOLLOUT);
	}
	if (s->state == STREAM_FLUSHING)
		stream_shut(s);
	if (UNLIKELY(s->drained_asked) && s->state == STREAM_OPEN) {
		s->drained_asked = false;
		s->ops->drained(s);
	}
}

static void stream_say_eof(struct stream *s)
{
	if (s->eof_said || s->state != STREAM_OPEN || s->paused)
		return;
	s->eof_said = true;
	s->ops->eof(s);
}

/* Hands the stream's own buffer to the owner. */
static void stream_deliver_kept(struct stream *s)
{
	size_t used = s->ops->bytes(s, s->in.data, s->in.len);
	if (s->state != STREAM_OPEN)
		return;
	buf_consume(&s->in, used);
	if (s->in.len == 0)
		buffer_return(s->loop, &s->in);
}

static void stream_keep(struct stream *s, const char *data, size_t len)
{
	buffer_borrow(s->loop, &s->in);
	buf_append(&s->in, data, len);
	if (s->in.failed)
		stream_abort(s);
}

/* One recv; true when it gave bytes. */
static bool stream_recv(struct stream *s, char *to, size_t room, size_t *ret_len)
{
	for (;;) {
		ssize_t n = os_sys.recv(s->fd, to, room, 0);
		if (n > 0) {
			*ret_len = (size_t)n;
			return true;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return false;
		if (n < 0) {
			stream_abort(s);
			return false;
		}
		s->eof = true;
		stream_interest(s, s->interest & ~(unsigned)(EPOLLIN | EPOLLRDHUP));
		return false;
	}
}

static void stream_read(struct stream *s)
{
	struct loop *l = s->loop;
	size_t got;
	if (!stream_recv(s, l->read_buffer, sizeof(l->read_buffer), &got)) {
		stream_say_eof(s);
		return;
	}
	if (LIKELY(s->in.len == 0)) {
		size_t used = s->ops->bytes(s, l->read_buffer, got);
		if (used < got && s->state == STREAM_OPEN)
			stream_keep(s, l->read_buffer + used, got - used);
		return;
	}
	stream_keep(s, l->read_buffer, got);
	if (s->state == STREAM_OPEN)
		stream_deliver_kept(s);
}

/* Throws input away until the peer closes too: closing with unread input would reset the connection, and the
 * peer might lose our last answer. */
static void stream_linger(struct stream *s, bool peer_is_gone)
{
	size_t got;
	for (int i = 0; i < LINGER_READS_PER_TURN; i++) {
		if (!stream_recv(s, s->loop->read_buffer, sizeof(s->loop->read_buffer), &got)) {
			if (s->eof || peer_is_gone)
				stream_abort(s);
			return;
		}
	}
}

static void stream_ready(struct loop_source *source, unsigned events)
{
	struct stream *s = container_of(source, struct stream, source);
	if (s->state == STREAM_CLOSED)
		return;
	if (UNLIKELY(s->state == STREAM_LINGERING)) {
		stream_linger(s, (events & (EPOLLERR | EPOLLHUP)) != 0);
		return;
	}
	if (UNLIKELY(events & (EPOLLERR | EPOLLHUP))) {
		/* Both directions are gone; there is nobody left to answer. */
		stream_abort(s);
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP)) {
		if (s->state == STREAM_OPEN && s->resumed)
			; /* what is here already is delivered first, later in this turn; epoll will say it
			     again */
		else if (s->state == STREAM_OPEN && !s->paused)
			stream_read(s);
		else
			stream_interest(s, s->interest & ~(unsigned)(EPOLLIN | EPOLLRDHUP));
	}
	if ((events & EPOLLOUT) && s->state != STREAM_CLOSED)
		stream_mark_dirty(s);
}

static void deliver_resumed(struct loop *l)
{
	struct list now;
	list_init(&now);
	list_splice(&now, &l->resumed); /* a stream that is resumed again meanwhile waits for the next turn */
	struct list *node;
	while ((node = list_pop(&now))) {
		struct stream *s = container_of(node, struct stream, resumed_link);
		s->resumed = false;
		if (s->state != STREAM_OPEN || s->paused)
			continue;
		if (s->in.len > 0)
			stream_deliver_kept(s);
		if (s->eof)
			stream_say_eof(s);
	}
}

/* Accepting */

static void listen_arm(struct loop *l, bool armed)
{
	if (l->listen_fd < 0 || l->listen_armed == armed)
		return;
	struct epoll_event ev = {.events = armed ? EPOLLIN : 0, .data.ptr = &l->listen_source};
	int r = epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->listen_fd,
	                  &ev); /* needs no memory, so it cannot fail */
	ASSERT(r == 0);
	l->listen_armed = armed;
}

static void listen_pause(struct loop *l)
{
	listen_arm(l, false);
	timer_set(&l->timers, &l->listen_timer, l->mono_ms + ACCEPT_PAUSE_MS);
}

static void listen_timer_fire(struct timer *t)
{
	struct loop *l = container_of(t, struct loop, listen_timer);
	if (l->spare_fd < 0)
		l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (l->stream_count >= l->streams_max)
		timer_set(&l->timers, t, l->mono_ms + ACCEPT_PAUSE_MS);
	else
		listen_arm(l, true);
}

/* Out of descriptors: the spare one takes the oldest waiting connection and drops it, so that its client
 * learns at once; then we pause instead of spinning on a listener that stays readable. */
static void listen_shed(struct loop *l)
{
	if (l->spare_fd >= 0) {
		os_sys.close(l->spare_fd);
		int fd = os_sys.accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			os_sys.close(fd);
		l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	metric_add(&l->metrics->conns_refused, 1);
	log_warn("loop",
	         "out of descriptors: new connections wait; raise the limit of open files (ulimit -n)");
	listen_pause(l);
}

static void stream_start(struct loop *l, struct stream *s, int fd, const struct net_addr *peer)
{
	const struct stream_ops *ops = s->ops;
	*s = (struct stream){
	    .source.ready = stream_ready,
	    .ops = ops,
	    .loop = l,
	    .fd = fd,
	    .state = STREAM_OPEN,
	    .interest = EPOLLIN | EPOLLRDHUP,
	    .deadline_ms = s->deadline_ms,
	    .peer = *peer,
	};
	list_init(&s->dirty_link);
	list_init(&s->resumed_link);
	list_push(&l->streams, &s->all_link);
	l->stream_count++;
	timer_init(&s->timer, stream_timer_fire);
	if (s->deadline_ms)
		stream_set_deadline(s, s->deadline_ms);
	struct epoll_event ev = {.events = s->interest, .data.ptr = &s->source};
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0)
		stream_abort(s);
	metric_add(&l->metrics->conns_accepted, 1);
}

static void listen_ready(struct loop_source *source, unsigned events)
{
	(void)events;
	struct loop *l = container_of(source, struct loop, listen_source);
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		if (l->stream_count >= l->streams_max) {
			listen_pause(l);
			return;
		}
		struct net_addr peer = {.len = sizeof(peer.v6)};
		int fd = os_sys.accept4(l->listen_fd, &peer.any, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
				listen_shed(l);
			else if (errno == EINTR || errno == ECONNABORTED)
				continue;
			return;
		}
		int one = 1;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		struct stream *s = l->open(l->open_ctx, &peer);
		if (!s) {
			metric_add(&l->metrics->conns_refused, 1);
			os_sys.close(fd);
			continue;
		}
		stream_start(l, s, fd, &peer);
	}
}

int loop_listen(struct loop *l, int fd, struct stream *(*open)(void *ctx, const struct net_addr *peer),
                void *ctx, struct err *e)
{
	ASSERT(l->listen_fd < 0);
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->listen_source};
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0)
		return err_set(e, ERR_UNAVAILABLE, "cannot wait for connections: %s", strerror(errno));
	l->listen_fd = fd;
	l->listen_armed = true;
	l->open = open;
	l->open_ctx = ctx;
	return 0;
}

void loop_unlisten(struct loop *l)
{
	if (l->listen_fd < 0)
		return;
	timer_cancel(&l->timers, &l->listen_timer);
	os_sys.close(l->listen_fd); /* leaves epoll by itself */
	l->listen_fd = -1;
}

/* The loop itself */

static void mailbox_ready(struct loop_source *source, unsigned events)
{
	(void)events;
	/* The mail is opened after all of the turn's events: it may close streams whose event is still to
	 * come. */
	mailbox_clear(&container_of(source, struct loop, mailbox_source)->mailbox);
}

static void stop_open(struct mail *m)
{
	container_of(m, struct loop, stop_mail)->stopping = true;
}

static void take_time(struct loop *l)
{
	l->mono_ns = clock_mono_ns();
	l->mono_ms = l->mono_ns / 1000000;
	l->real_ms = clock_real_ms();
	int64_t second = l->real_ms / 1000;
	if (UNLIKELY(second != l->date_second)) {
		l->date_second = second;
		http_date_format(l->real_ms, l->date);
	}
}

int loop_new(const struct loop_config *config, struct loop **ret, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory for an event loop");
	l->listen_fd = l->epoll_fd = l->spare_fd = l->mailbox.fd = -1;
	l->streams_max = config->streams_max;
	l->metrics = config->metrics;
	l->mailbox_source.ready = mailbox_ready;
	l->listen_source.ready = listen_ready;
	l->stop_mail.open = stop_open;
	list_init(&l->streams);
	list_init(&l->dirty);
	list_init(&l->resumed);
	list_init(&l->graveyard);
	take_time(l);
	timers_init(&l->timers, l->mono_ms);
	timer_init(&l->listen_timer, listen_timer_fire);

	int r = mailbox_init(&l->mailbox, e);
	if (r < 0)
		goto fail;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->mailbox_source};
	if (l->epoll_fd < 0 || l->spare_fd < 0 ||
	    epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->mailbox.fd, &ev) != 0) {
		r = err_set(e, ERR_UNAVAILABLE, "cannot set up an event loop: %s", strerror(errno));
		goto fail;
	}
	*ret = l;
	return 0;
fail:
	loop_free(l);
	return r;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	ASSERT(l->stream_count == 0);
	loop_unlisten(l);
	for (size_t i = 0; i < l->spare_buffer_count; i++)
		buf_release(&l->spare_buffers[i]);
	mailbox_release(&l->mailbox);
	if (l->epoll_fd >= 0)
		os_sys.close(l->epoll_fd);
	if (l->spare_fd >= 0)
		os_sys.close(l->spare_fd);
	free(l);
}

void loop_add_turn_hook(struct loop *l, void (*hook)(void *ctx), void *ctx)
{
	ASSERT(l->hook_count < LOOP_HOOKS_MAX);
	l->hooks[l->hook_count++] = (struct turn_hook){hook, ctx};
}

static void flush_dirty(struct loop *l)
{
	struct list now;
	list_init(&now);
	list_splice(&now, &l->dirty);
	struct list *node;
	while ((node = list_pop(&now))) {
		struct stream *s = container_of(node, struct stream, dirty_link);
		s->dirty = false;
		stream_flush(s);
	}
}

static void bury(struct loop *l)
{
	struct list *node;
	while ((node = list_pop(&l->graveyard))) {
		struct stream *s = container_of(node, struct stream, all_link);
		buffer_return(l, &s->in);
		buffer_return(l, &s->out);
		l->stream_count--;
		metric_add(&l->metrics->conns_closed, 1);
		s->ops->closed(s);
	}
}

static int wait_for_events(struct loop *l)
{
	int timeout_ms = 0;
	if (list_empty(&l->resumed) && list_empty(&l->dirty) && mailbox_sleep(&l->mailbox))
		timeout_ms = timers_sleep_ms(&l->timers, l->mono_ms);
	if (timeout_ms != 0)
		reclaim_reader_offline();
	int n = os_sys.epoll_wait(l->epoll_fd, l->events, EVENTS_MAX, timeout_ms);
	if (timeout_ms != 0)
		reclaim_reader_online();
	mailbox_wake(&l->mailbox);
	ASSERT(n >= 0 || errno == EINTR);
	return MAX(n, 0);
}

static void turn(struct loop *l)
{
	int n = wait_for_events(l);
	take_time(l);
	for (int i = 0; i < n; i++) {
		struct loop_source *source = l->events[i].data.ptr;
		source->ready(source, l->events[i].events);
	}
	mailbox_open_all(&l->mailbox);
	deliver_resumed(l);
	timers_run(&l->timers, l->mono_ms); /* last: what is here is not late, however long we stood still */
	for (size_t i = 0; i < l->hook_count; i++)
		l->hooks[i].fn(l->hooks[i].ctx);
	flush_dirty(l);
	bury(l);
	metric_add(&l->metrics->loop_turns, 1);
	reclaim_reader_quiescent();
}

void loop_run(struct loop *l)
{
	reclaim_reader_register();
	while (!l->stopping)
		turn(l);
	reclaim_reader_unregister();
}

void loop_stop(struct loop *l)
{
	mailbox_post(&l->mailbox, &l->stop_mail);
}

void loop_post(struct loop *l, struct mail *m)
{
	mailbox_post(&l->mailbox, m);
}

void loop_each_stream(struct loop *l, void (*fn)(struct stream *s, void *ctx), void *ctx)
{
	struct list *node = l->streams.next;
	while (node != &l->streams) {
		struct list *next = node->next; /* fn may close the stream */
		fn(container_of(node, struct stream, all_link), ctx);
		node = next;
	}
}

struct timers *loop_timers(struct loop *l)
{
	return &l->timers;
}

int64_t loop_mono_ns(const struct loop *l)
{
	return l->mono_ns;
}

int64_t loop_mono_ms(const struct loop *l)
{
	return l->mono_ms;
}

int64_t loop_real_ms(const struct loop *l)
{
	return l->real_ms;
}

const char *loop_http_date(const struct loop *l)
{
	return l->date;
}
