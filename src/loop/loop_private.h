/* The insides of a loop, for loop_epoll.c (the turn, accepting) and stream.c (connections). */
#pragma once

#include "base/list.h"
#include "base/rfc3339.h"
#include "loop/loop.h"
#include "os/sys.h"

enum {
	READ_BYTES = 64 * 1024,
	EVENTS_MAX = 256,
	SPARE_BUFFERS_MAX = 256,
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
	bool listen_accepted; /* since the last loop_listen_is_empty */
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

/* stream.c */
void stream_start(struct loop *l, struct stream *s, int fd, const struct net_addr *peer);
void streams_deliver_resumed(struct loop *l);
void streams_flush(struct loop *l); /* sends what the turn queued */
void streams_bury(struct loop *l);  /* gives those that were closed back to their owners */
