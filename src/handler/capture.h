/*
 * Turns requests into records of the event log. Each worker has its own capture.
 *
 * Records are buffered during a turn of the loop and written by a turn hook, before the turn's responses are
 * sent. That is enough for most redirects. A response to /event promises that the event is logged, and a
 * redirect of a link with a click limit must be logged: they wait until the write has succeeded, and with
 * events.durability = sync until the disk has it.
 */
#pragma once

#include "base/list.h"
#include "event/log.h"
#include "event/salt.h"
#include "http/conn.h"
#include "http/forwarded.h"
#include "obs/metrics.h"

/* The same for all workers. */
struct capture_rules {
	struct event_log *log;
	struct salts *salts;
	const struct event_settings *settings;
	const struct proxies *proxies; /* NULL: none */
};

/*
 * Totals for other threads, under a seqlock. The worker makes `sequence` odd, stores the totals (release),
 * and makes it even again. A reader loads them (acquire) between two loads of `sequence`, and retries unless
 * both gave the same even number.
 */
struct capture_totals {
	_Atomic uint64_t sequence;
	_Atomic uint64_t served, clicks, orphans, impressions, rejected, dropped;
};

struct capture {
	const struct capture_rules *rules;
	struct event_writer *writer;
	struct metrics *metrics;
	struct loop *loop;
	int64_t salt_day; /* -1: none yet */
	uint8_t salt[SALT_BYTES];
	struct str country_header;
	uint64_t served; /* redirects, with HEAD and prefetch, without those of limited links */
	uint64_t served_published;
	struct event_counts published; /* to the metrics and the totals */
	struct capture_totals totals;
	struct list turn_waits; /* responses that wait for the turn's write */
	struct list sync_waits; /* responses that wait for the disk */
	struct mail synced_mail;
	_Atomic bool synced_posted;
};

/* `number` is the writer's. Registers the turn hook. */
void capture_init(struct capture *c, const struct capture_rules *rules, unsigned number, struct loop *l,
                  struct metrics *m);

/* A visit before its outcome is known. */
struct capture_draft {
	struct event_visit visit;
	struct event_visitor visitor;
};

/* Fills the draft; its strings point into the request. */
void capture_read(struct capture *c, struct http_conn *conn, const struct http_request *req,
                  struct capture_draft *ret);

/* Copies the draft's strings, so that they outlive the request. False: out of memory. */
bool capture_draft_copy(struct capture_draft *d, struct arena *arena);

/* Logs a redirect. */
void capture_redirect(struct capture *c, struct capture_draft *d, uint64_t link, struct str key);

/*
 * Logs a redirect of a link with a click limit, whatever its method and events.visits: limits are counted
 * from the log. Between capture_wait_begin and capture_wait_end. False: not logged, so it must not be served.
 */
bool capture_limited(struct capture *c, struct capture_draft *d, uint64_t link, struct str key);

/* Logs a request for a key without a link, or for the root (an empty key). */
void capture_orphan(struct capture *c, struct capture_draft *d, struct str key);

/* A response that waits until its events are logged. Lives in the arena of the connection, which is
 * deferred. */
struct capture_wait {
	struct list link;
	struct http_conn *conn;
	uint64_t failures; /* of the writer, before the request's first event */
	uint64_t written;
	/* Replies; `err` is 0, or why the events are not logged. */
	void (*done)(struct capture_wait *, int err);
};

/* Before the first event of a request. 0, or why no event can be logged now: ERR_LIMIT, ERR_UNAVAILABLE. */
int capture_wait_begin(struct capture *c, struct capture_wait *wait);

/* After the last event: defers the connection. `done` is called in this turn, or after the sync. */
void capture_wait_end(struct capture *c, struct http_conn *conn, struct capture_wait *wait);

/* The disk has more of this worker's events: replies to those that wait. Any thread. */
void capture_synced(struct capture *c);

/* This worker's totals at the end of a turn: served = clicks + dropped. Any thread. */
struct capture_counts {
	uint64_t served;
	struct event_counts counts;
};
struct capture_counts capture_counts_read(const struct capture *c);
