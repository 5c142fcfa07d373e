/*
 * The role `sink`: stores analysed events and answers queries about them. The composition root opens the
 * backend; all other modules hold a `struct sink *`.
 *
 * Threads: the stats worker alone calls resume, commit, find_duplicates, sync, forget, retention and totals.
 * Queries (below the line in the ops) may come from any thread that may block, at any time.
 *
 * What counts. A visit is one answered redirect, or an orphan: a request for an unknown key or for the root.
 * Only VISIT_CLICK counts as a click; bots are clicks with a reason in DIM_BOT. HEAD and prefetch requests
 * are counted apart. An impression counts once for its fingerprint within the window of `seen`.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/position.h"

enum visit_kind { VISIT_CLICK, VISIT_HEAD, VISIT_PREFETCH, VISIT_UNKNOWN, VISIT_ROOT, VISIT_KINDS };

static inline bool visit_is_orphan(enum visit_kind k)
{
	return k == VISIT_UNKNOWN || k == VISIT_ROOT;
}

enum visit_dim {
	DIM_REFERRER, /* host */
	DIM_COUNTRY,
	DIM_BROWSER,
	DIM_OS,
	DIM_DEVICE,
	DIM_LANGUAGE,
	DIM_SOURCE, /* "link", "qr" */
	DIM_BOT,    /* why it is classified as a bot */
	DIM_COUNT,
};
/* "referrer", "country", …: the names in the API, and of columns. */
extern const char *const visit_dim_names[DIM_COUNT];

/* The kind of a visit and its dimensions: all that rollups are grouped by. Few sets are distinct, so each has
 * an id. */
struct dimension_set {
	enum visit_kind kind;
	struct str dims[DIM_COUNT]; /* STR_NULL: unknown */
};

enum { SINK_NO_TEXT = 0xffffffff, SINK_FINGERPRINT_BYTES = 12, ADDRESS_BYTES_MAX = 6, SINK_CLICKS_MAX = 512 };

struct sink_visit {
	struct event_id event;
	int64_t time_ms;
	uint64_t link;       /* row id in the store; 0 for orphans */
	uint64_t visitor;    /* hash with the day's salt; 0: none */
	uint64_t stream;     /* of the queue; for click counters outside the sink */
	uint32_t set;        /* index into the batch's dimension sets */
	uint32_t agent;      /* index into the batch's texts, or SINK_NO_TEXT; so are the next three */
	uint32_t referrer;   /* as sent */
	uint32_t place;      /* "region\ncity" */
	uint32_t path;       /* orphans: the requested path */
	uint8_t address_len; /* 0: none, 3: IPv4 /24, 6: IPv6 /48 */
	uint8_t address[ADDRESS_BYTES_MAX];
};

struct sink_impression {
	struct event_id event;
	int64_t time_ms;     /* the event's `ts` */
	int64_t received_ms; /* when this server received it; the window of `seen` is measured on it */
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	/* For the detection of duplicates: */
	uint64_t partition; /* of the queue */
	uint32_t same_as; /* 1 + index of the batch's first impression with this fingerprint; 0: this is it */
	bool in_doubt;    /* see struct queue_event */
	struct str id;
	struct str user;
	struct str ad;
};

/* Added to the reconciliation as they are. */
struct sink_tally {
	uint64_t clicks;               /* visits consumed except orphans; HEAD and prefetch included */
	uint64_t orphans;              /* consumed */
	uint64_t impressions;          /* consumed, duplicates included */
	uint64_t duplicates;           /* impressions that the worker found to be duplicates */
	uint64_t unusable_clicks;      /* consumed but not processable: in the dead-letter file */
	uint64_t unusable_impressions; /* likewise */
	uint64_t rejected;             /* events that the API refused */
	uint64_t dropped_clicks;       /* visits not recorded because of overload */
};

/* What else happened to events. A batch's visits, impressions and notes together account for every event
 * consumed with it. */
enum sink_note_kind {
	NOTE_DUPLICATE,           /* an impression counted before, or earlier in this batch */
	NOTE_UNUSABLE_CLICK,      /* not processable: in the dead-letter file */
	NOTE_UNUSABLE_ORPHAN,     /* likewise */
	NOTE_UNUSABLE_IMPRESSION, /* likewise */
	NOTE_REJECTED,            /* the API refused `count` events */
	NOTE_DROPPED,             /* `count` visits were not recorded because of overload */
	NOTE_KINDS,
};

struct sink_note {
	struct event_id event;
	enum sink_note_kind kind;
	int64_t time_ms;
	uint64_t count;
};

struct sink_batch {
	const struct sink_visit *visits;
	size_t visit_count;
	/* No two have the same fingerprint, unless both were counted before. */
	const struct sink_impression *impressions;
	size_t impression_count;
	const struct dimension_set *sets;
	size_t set_count;
	const struct str *texts;
	size_t text_count;
	const struct sink_note *notes;
	size_t note_count;
	uint64_t source; /* of the streams in `advances` */
	const struct advance *advances;
	size_t advance_count;
	struct sink_tally tally; /* sums over all of the above */
	int64_t now_ms;
};

/* Was another impression with this fingerprint counted that was received less than the window of `seen`
 * before or after this one? */
struct duplicate_query {
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	struct event_id event;
	int64_t received_ms;
	bool is_duplicate; /* out; false for a replay */
	bool is_replay;    /* out: this very event was counted before, and is read again */
};

struct sink_total {
	uint64_t link;
	uint64_t clicks;
};

/*
 * A sink shared by several servers keeps fingerprints this much longer than the window of `seen`: one server
 * may be cut off from the queue for days, and its impressions must still be recognised as duplicates. A sink
 * of one server gets its log nearly in order, and needs an hour.
 */
#define SINK_SEEN_SLACK_MS (7 * 86400000LL)

/* Queries */

enum stats_step { STEP_MINUTE, STEP_HOUR, STEP_DAY, STEP_WEEK, STEP_MONTH }; /* weeks begin on Monday; UTC */
enum stats_bots { BOTS_INCLUDED, BOTS_EXCLUDED, BOTS_ONLY };

struct stats_point {
	int64_t time_ms; /* start of the step */
	uint64_t clicks;
};

struct stats_share {
	struct str value; /* STR_NULL: unknown */
	uint64_t clicks;
};

struct stats_query {
	uint64_t link;          /* 0: all links together */
	int64_t from_ms, to_ms; /* from <= time < to */
	enum stats_step step;
	bool series_wanted;
	unsigned dims_wanted; /* bits 1 << visit_dim */
	size_t shares_max;    /* per dimension, the largest first (ties by value) */
	enum stats_bots bots;
	unsigned filtered;            /* bits 1 << visit_dim: `filter` applies; all filters must match */
	struct str filter[DIM_COUNT]; /* STR_NULL: matches unknown */
	struct arena *arena;

	/* out; everything but the series and shares is about the same visits */
	uint64_t clicks;            /* bots as `bots` says */
	uint64_t bot_clicks;        /* included in `clicks` */
	uint64_t heads, prefetches; /* not in `clicks` */
	uint64_t unknowns, roots;   /* orphans; only for link 0 */
	/* False with a filter; or without bots, or with bots only, if the range has days that were stored before
	 * bots were counted separately. */
	bool has_visitors;
	uint64_t visitors; /* estimate; bots as `bots` says; the sum over whole days of the range */
	/* Every step of the range, empty ones too; at most SINK_SERIES_MAX. Where only coarser rollups are
	 * left, their clicks are at the start of the rollup. */
	struct stats_point *series;
	size_t series_count;
	struct stats_share *shares[DIM_COUNT];
	size_t share_count[DIM_COUNT];
};
enum { SINK_SERIES_MAX = 10000 }; /* a longer series is ERR_LIMIT: the caller must ask for larger steps */

struct stats_visit {
	int64_t time_ms;
	uint64_t link;
	struct dimension_set set;
	struct str agent, referrer, region, city, path, address; /* address as text: "192.0.2.0/24" */
};

/* Newest minute first; within a minute the last recorded first. */
struct visits_query {
	uint64_t link;          /* 0: orphans */
	int64_t from_ms, to_ms; /* from <= time < to */
	struct str cursor; /* STR_NULL: from the newest; else an earlier `next`. A forged one: ERR_INVALID */
	size_t limit;
	struct arena *arena;
	struct stats_visit *visits; /* out */
	size_t count;
	struct str next; /* STR_NULL at the end */
};

struct ad_count {
	struct str ad;
	uint64_t count;
};

struct window_query {
	int64_t from_ms, to_ms; /* from < time <= to, exact to the millisecond at both edges */
	struct arena *arena;
	/* out, sorted by ad, without zero counts. Names are bounded (ads.h): at most 50,000, and "(other)"
	 * for the rest. Backends that number ads accept 10,000 new names a day; the others return the ads
	 * with the highest counts. */
	struct ad_count *ads;
	size_t count;
};

struct top_links_query {
	int64_t from_ms, to_ms; /* widened to whole days */
	size_t limit;
	struct arena *arena;
	struct sink_total *links; /* out, most clicks first */
	size_t count;
};

struct reconciliation {
	struct sink_tally tally;    /* of all batches, ever */
	uint64_t clicks_in_rollups; /* visits in rollups except orphans */
	uint64_t orphans_in_rollups;
	uint64_t impressions_counted;         /* in rollups */
	uint64_t duplicates;                  /* found by the worker and by the sink */
	uint64_t visit_rows, impression_rows; /* deep only */
};

struct sink {
	const struct sink_ops *ops;
};

struct sink_ops {
	void (*free)(struct sink *);

	/* For shutdown: calls under way end with ERR_UNAVAILABLE within about a second, later ones at once.
	 * Any thread. NULL: no call of this sink blocks for long. */
	void (*cancel)(struct sink *);

	/* Positions of all streams of the source that were read and not forgotten. NULL: this sink keeps no
	 * positions, so the queue must; events given twice are counted once, by their ids. */
	int (*resume)(struct sink *, uint64_t source, struct arena *arena, struct position **ret,
	              size_t *ret_count);

	/*
	 * Stores the whole batch or nothing of it: rows, rollups, fingerprints, positions and reconciliation
	 * change together. Impressions seen before are skipped and counted in *ret_duplicates. Takes some
	 * milliseconds; some hundred when earlier commits are compacted with it.
	 *
	 *	ERR_UNAVAILABLE, ERR_NOMEM, ERR_CORRUPT  the same batch may be retried: nothing counts twice
	 *	ERR_LIMIT                                likewise, and commits should come less often
	 *	ERR_UNCERTAIN                            the streams are not where the batch begins: another
	 *	                                         worker reads them, or an earlier commit succeeded
	 *	                                         although it reported failure; continue from `resume`
	 */
	int (*commit)(struct sink *, const struct sink_batch *batch, uint64_t *ret_duplicates);

	/* For sinks whose commit does not detect duplicates; NULL: it does. Only the committing thread. */
	int (*find_duplicates)(struct sink *, struct duplicate_query *queries, size_t count);

	/* Likewise. 1: `find_duplicates` may find something; 0: no fingerprint is stored. Constant time. */
	int (*has_fingerprints)(struct sink *);

	/* Makes all commits durable (they survive power loss): fully read segments may then be removed. NULL:
	 * an answered commit is durable, or will be before the queue drops its events. */
	int (*sync)(struct sink *);

	/* The streams no longer exist: drops their positions. NULL without `resume`. */
	int (*forget)(struct sink *, uint64_t source, const uint64_t *streams, size_t count);

	/* One bounded step (some milliseconds, rarely some hundred): folds old rollups and deletes expired
	 * data. Never goes beyond one hour after the last commit, whatever `now_ms` says. >0: more is due; 0:
	 * nothing is due; <0: error. */
	int (*retention)(struct sink *, int64_t now_ms);

	/* Links whose total changed since it was marked as flushed, at most `max`; and marking them, unless
	 * the total has changed again. Expensive: call every few seconds, not after every commit. The newest
	 * visits may be missing until a later call. NULL: this sink does not track changed totals. */
	int (*totals)(struct sink *, size_t max, struct arena *arena, struct sink_total **ret,
	              size_t *ret_count);
	int (*totals_flushed)(struct sink *, const struct sink_total *totals, size_t count);

	/* Queries: 0, ERR_UNAVAILABLE, ERR_NOMEM, ERR_CORRUPT, and what the query's fields name. Safe to
	 * retry. Each sees one consistent state between two commits. */
	int (*stats)(struct sink *, struct stats_query *q);
	int (*visits)(struct sink *, struct visits_query *q);
	int (*window)(struct sink *, struct window_query *q);
	int (*top_links)(struct sink *, struct top_links_query *q);
	/* Sets the clicks of n links, at most SINK_CLICKS_MAX: all ever committed, bots included, also those
	 * whose rollups have expired; 0 for a link without visits. Some microseconds per link, some
	 * milliseconds while many visits are buffered. */
	int (*clicks)(struct sink *, struct sink_total *links, size_t n);
	/* Of the events first logged by this node; 0: of all nodes. A sink of a single node ignores
	 * `node`. */
	int (*reconciliation)(struct sink *, uint64_t node, bool deep, struct reconciliation *ret);
	int (*ping)(struct sink *, struct err *e);
};
