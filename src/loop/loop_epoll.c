/* The loop on epoll, level-triggered: the turn, the listener and the clock. */
#include "loop/loop_private.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/reclaim.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>

enum { ACCEPTS_PER_TURN = 64, ACCEPT_PAUSE_MS = 100 };

/* Accepting */

static void listen_arm(struct loop *l, bool armed)
{
	if (l->listen_fd < 0 || l->listen_armed == armed)
		return;
	struct epoll_event ev = {.events = armed ? EPOLLIN : 0, .data.ptr = &l->listen_source};
	int r = epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->listen_fd, &ev); /* needs no memory: cannot fail */
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
 * knows at once. Then the listener pauses: it stays readable, and the loop would spin. */
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
	log_warn("loop", "out of descriptors, new connections wait; raise ulimit -n: connections=%zu",
	         l->stream_count);
	listen_pause(l);
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
		l->listen_accepted = true;
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
		return err_set(e, ERR_UNAVAILABLE, "cannot wait for connections (epoll_ctl): %s",
		               strerror(errno));
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
	os_sys.close(l->listen_fd); /* leaves epoll too */
	l->listen_fd = -1;
}

void loop_listen_end(struct loop *l)
{
	if (l->listen_fd >= 0)
		net_listen_end(l->listen_fd);
}

bool loop_listen_is_empty(struct loop *l)
{
	if (l->listen_fd < 0)
		return true;
	if (l->listen_armed)
		listen_ready(&l->listen_source, EPOLLIN);
	bool empty = !l->listen_accepted && l->listen_armed; /* not armed: some wait for a descriptor */
	l->listen_accepted = false;
	return empty;
}

/* The loop itself */

static void mailbox_ready(struct loop_source *source, unsigned events)
{
	(void)events;
	/* The mail is opened after all events of the turn: it may close streams whose event is still to come. */
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
		r = err_set(e, ERR_UNAVAILABLE, "cannot set up an event loop (epoll): %s", strerror(errno));
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
	streams_deliver_resumed(l);
	timers_run(&l->timers,
	           l->mono_ms); /* last: what has arrived is not late, however long the turn took */
	for (size_t i = 0; i < l->hook_count; i++)
		l->hooks[i].fn(l->hooks[i].ctx);
	streams_flush(l);
	streams_bury(l);
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
