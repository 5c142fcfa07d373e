/*
 * What visitors leave behind: from a request to a record of the event log. One capture belongs to one worker.
 *
 * Records are gathered during a turn of the loop and written before the turn's answers leave (capture_turn, a
 * turn hook). A redirect needs no more than that. An answer to /event promises that the event is on record,
 * and the redirect of a link with a click limit must be: these are held back until the write has worked, and
 * with durability = sync until the disk has it.
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
 * A capture's books, for other threads. The owner makes `turn` odd, releases the numbers, and makes it even
 * again; a reader acquires them in between two looks at `turn`, and begins again unless it found the same
 * even number twice.
 */
struct capture_ledger {
	_Atomic uint64_t turn;
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
	uint64_t served; /* redirects answered, HEAD and prefetch included; not those of limited links */
	uint64_t served_reported;
	struct event_counts reported; /* to the metrics and the ledger */
	struct capture_ledger ledger;
	struct list turn_waits; /* answers that wait for the turn's write */
	struct list sync_waits; /* ... for the disk */
	struct mail synced_mail;
	_Atomic bool synced_posted;
};

/* `number` is the writer's. Registers the turn hook. */
void capture_init(struct capture *c, const struct capture_rules *rules, unsigned number, struct loop *l,
                  struct metrics *m);

/* A visit whose answer comes later: what the request says, copied to the connection's arena. */
struct capture_draft {
	struct event_visit visit;
	struct event_visitor visitor;
};

/* Fills the draft; its strings point into the request. */
void capture_read(struct capture *c, struct http_conn *conn, const struct http_request *req,
                  struct capture_draft *ret);

/* Makes the draft's strings outlive the request. False when memory ran out. */
bool capture_keep(struct capture_draft *d, struct arena *arena);

/* A redirect was answered. */
void capture_redirect(struct capture *c, struct capture_draft *d, uint64_t link, struct str key);

/*
 * A redirect that is answered only if it is on record, whatever its method and the setting events.visits: the
 * record is what a click limit rests on. Between capture_wait_begin and capture_wait_end. False: it was not
 * taken.
 */
bool capture_limited(struct capture *c, struct capture_draft *d, uint64_t link, struct str key);

/* Somebody asked for a key that is none, or for the root (an empty key). */
void capture_orphan(struct capture *c, struct capture_draft *d, struct str key);

/* An answer that waits for its record: to /event, or of a limited link. Lives in the connection's arena; the
 * connection is deferred. */
struct capture_wait {
	struct list link;
	struct http_conn *conn;
	uint64_t failures; /* of the writer, before the first event was taken */
	uint64_t written;
	/* Replies; `err` is 0, or why the events are not on record. */
	void (*done)(struct capture_wait *, int err);
};

/* Before the first event of a request. 0, or why none can be taken now: ERR_LIMIT, ERR_UNAVAILABLE. */
int capture_wait_begin(struct capture *c, struct capture_wait *wait);

/* After the last one: defers the connection; `done` is called in this turn, or when the disk has it. */
void capture_wait_end(struct capture *c, struct http_conn *conn, struct capture_wait *wait);

/* The disk has more of this worker's events. Any thread. */
void capture_synced(struct capture *c);

/* This worker's books as of the end of a turn: served = clicks + dropped. Any thread. */
struct capture_counts {
	uint64_t served;
	struct event_counts counts;
};
struct capture_counts capture_counts_read(const struct capture *c);
