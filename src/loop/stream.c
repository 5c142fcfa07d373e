/*
 * Connections on epoll.
 *
 * Reading: one recv a stream and turn, into a buffer that the whole loop shares. Only what the owner does not
 * consume is copied into the stream, so an idle connection has no buffers. Writing: output gathers in a
 * buffer borrowed from the loop, and leaves in one send at the turn's end.
 *
 * A paused stream stays in epoll at first: most pauses (a lookup in the store) end before the peer sends
 * more. Only when bytes do arrive meanwhile does it cost an epoll_ctl.
 *
 * Nothing is freed while a turn runs: closed streams wait in the graveyard until its end. So an event that
 * epoll returned earlier in the turn never meets freed memory.
 */
#include "loop/loop_private.h"

#include <errno.h>

enum {
	FLUSH_MS = 30000, /* to a peer that does not read, unless its owner set a deadline */
	LINGER_MS = 2000,
	LINGER_READS_PER_TURN = 16,
	SPARE_BUFFER_BYTES_MAX = 64 * 1024,
};

enum stream_state {
	STREAM_OPEN,
	STREAM_FLUSHING,  /* stream_close was called, output is still queued */
	STREAM_LINGERING, /* our side is shut: reading until the peer has seen it */
	STREAM_CLOSED,    /* in the graveyard, or beyond */
};

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

static void stream_interest(struct stream *s, unsigned events)
{
	if (s->interest == events)
		return;
	struct epoll_event ev = {.events = events, .data.ptr = &s->source};
	int r = epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev);
	ASSERT(r == 0);
	s->interest = events;
}

bool stream_has_input(const struct stream *s)
{
	char byte;
	return s->resumed || os_sys.recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
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
	os_sys.close(s->fd); /* leaves epoll too: this was the only descriptor */
	s->fd = -1;
	s->dirty = s->resumed = false;
	list_remove(&s->dirty_link); /* harmless when it is on no list */
	list_remove(&s->resumed_link);
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

void stream_resume(struct stream *s)
{
	if (!s->paused || s->state != STREAM_OPEN)
		return;
	s->paused = false;
	if (!s->eof)
		stream_interest(s, s->interest | EPOLLIN);
	if (!s->resumed && (s->in.len > 0 || (s->eof && !s->eof_delivered))) {
		s->resumed = true;
		list_push(&s->loop->resumed, &s->resumed_link);
	}
}

void stream_set_deadline(struct stream *s, int64_t at_ms)
{
	/* The timer only moves closer here. When it fires before the deadline, it is set again. So the common
	 * case, a deadline that moves away with each request, is one store. */
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
				/* A queue that never empties must drop what has left. */
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

static void stream_deliver_eof(struct stream *s)
{
	if (s->eof_delivered || s->state != STREAM_OPEN || s->paused)
		return;
	s->eof_delivered = true;
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
		stream_deliver_eof(s);
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
 * peer might lose our last response. */
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
		stream_abort(s);
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP)) {
		if (s->state == STREAM_OPEN && s->resumed)
			; /* what is kept is delivered first, later in this turn; epoll reports this again */
		else if (s->state == STREAM_OPEN && !s->paused)
			stream_read(s);
		else
			stream_interest(s, s->interest & ~(unsigned)(EPOLLIN | EPOLLRDHUP));
	}
	if ((events & EPOLLOUT) && s->state != STREAM_CLOSED)
		stream_mark_dirty(s);
}

void streams_deliver_resumed(struct loop *l)
{
	struct list now;
	list_init(&now);
	list_splice(&now, &l->resumed); /* one that is resumed again waits for the next turn */
	struct list *node;
	while ((node = list_pop(&now))) {
		struct stream *s = container_of(node, struct stream, resumed_link);
		s->resumed = false;
		if (s->state != STREAM_OPEN || s->paused)
			continue;
		if (s->in.len > 0)
			stream_deliver_kept(s);
		if (s->eof)
			stream_deliver_eof(s);
	}
}

void streams_flush(struct loop *l)
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

void streams_bury(struct loop *l)
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

void stream_start(struct loop *l, struct stream *s, int fd, const struct net_addr *peer)
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
