/*
 * The event loop of one worker thread. It delivers bytes and takes writes. Nothing above it sees a readiness
 * event or a descriptor, so epoll could be replaced.
 *
 * One turn:
 *
 *   1. wait
 *   2. deliver what arrived, and accept connections
 *   3. open the mail
 *   4. deliver to streams that were resumed
 *   5. run the timers
 *   6. run the turn hooks
 *   7. send all output that the turn queued
 *   8. give closed streams back to their owners
 *
 * So what a hook does, such as writing the turn's events to the log, is done before any response leaves.
 *
 * Only loop_post and loop_stop may be called by other threads.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "loop/mailbox.h"
#include "loop/timer.h"
#include "obs/metrics.h"
#include "os/net.h"

struct loop;
struct stream;

struct stream_ops {
	/*
	 * Bytes arrived. `data` holds everything delivered earlier and not consumed, followed by the new
	 * bytes: contiguous, valid until the call returns. Returns how many were consumed.
	 */
	size_t (*bytes)(struct stream *s, const char *data, size_t len);

	/* The peer sends no more. It may still read. */
	void (*eof)(struct stream *s);

	/* All queued output has left; called once for each stream_ask_drained. */
	void (*drained)(struct stream *s);

	/* The deadline has passed; it is cleared. */
	void (*deadline)(struct stream *s);

	/* The last call: the memory belongs to the owner again. */
	void (*closed)(struct stream *s);
};

/* epoll's data points at it. */
struct loop_source {
	void (*ready)(struct loop_source *, unsigned events);
};

/* One connection. Embedded in its owner's object; the fields are the loop's. */
struct stream {
	struct loop_source source;
	const struct stream_ops *ops;
	struct loop *loop;
	int fd;
	uint8_t state;
	bool paused;
	bool dirty;   /* on the loop's list of streams with output */
	bool resumed; /* on the loop's list of streams to deliver to */
	bool eof;     /* the peer sends no more */
	bool eof_delivered;
	bool sending; /* output did not leave at once: waits for room */
	bool drained_asked;
	unsigned interest; /* events asked of epoll */
	struct buf in;     /* delivered, not consumed */
	struct buf out;    /* queued */
	size_t out_sent;
	struct timer timer;
	int64_t deadline_ms; /* 0: none */
	struct list dirty_link;
	struct list resumed_link;
	struct list all_link;
	struct net_addr peer;
};

/* Queues output; it leaves at the end of the turn. A stream that runs out of memory is aborted. */
void stream_write(struct stream *s, const void *data, size_t len);

/* The queue itself, for writing in place: append to it, then call stream_written. */
struct buf *stream_out_begin(struct stream *s);
void stream_written(struct stream *s);

static inline size_t stream_backlog(const struct stream *s)
{
	return s->out.len - s->out_sent;
}

/* Asks for `drained`, once; at the end of this turn at the earliest. */
void stream_ask_drained(struct stream *s);

/* A paused stream delivers nothing, and reads no more from the peer. Resuming delivers what is there, later
 * in the same turn or in the next one. */
void stream_pause(struct stream *s);
void stream_resume(struct stream *s);

/* An absolute time on the monotonic clock; 0 clears. Cheap enough for every request. */
void stream_set_deadline(struct stream *s, int64_t at_ms);

/* Sends what is queued, then closes so that the peer can read it all: unread input causes no reset. */
void stream_close(struct stream *s);
void stream_abort(struct stream *s); /* at once */
bool stream_is_open(const struct stream *s);
bool stream_has_input(const struct stream *s); /* that was not delivered yet */

struct loop_config {
	size_t streams_max;
	struct metrics *metrics;
};

int loop_new(const struct loop_config *config, struct loop **ret, struct err *e);
void loop_free(struct loop *l); /* all streams must be gone */

/*
 * Takes over a listening descriptor. `open` gets each new connection's address and returns the stream to run
 * it on, with its ops set, or NULL to refuse it.
 */
int loop_listen(struct loop *l, int fd, struct stream *(*open)(void *ctx, const struct net_addr *peer),
                void *ctx, struct err *e);
void loop_unlisten(struct loop *l);

/*
 * Before loop_unlisten: connections that the system has established are lost when their listener closes. After
 * loop_listen_end no new one begins, and loop_listen_is_empty accepts those that wait. It is true when none has
 * come since the last call; a handshake takes as long as a packet to the client and back.
 */
void loop_listen_end(struct loop *l);
bool loop_listen_is_empty(struct loop *l);

/* Called once every turn before output leaves, in the order of registration. At most LOOP_HOOKS_MAX. */
enum { LOOP_HOOKS_MAX = 4 };
void loop_add_turn_hook(struct loop *l, void (*hook)(void *ctx), void *ctx);

void loop_run(struct loop *l);  /* until loop_stop; registers the thread as a reclaim reader */
void loop_stop(struct loop *l); /* any thread */
void loop_post(struct loop *l, struct mail *m); /* any thread */

void loop_each_stream(struct loop *l, void (*fn)(struct stream *s, void *ctx), void *ctx);
struct timers *loop_timers(struct loop *l);

/* The turn's time: taken once a turn. */
int64_t loop_mono_ns(const struct loop *l);
int64_t loop_mono_ms(const struct loop *l);
int64_t loop_real_ms(const struct loop *l);
const char *loop_http_date(const struct loop *l); /* HTTP_DATE_BYTES bytes */
