/*
 * The role `sink`: where analysed events are kept and questions about them are answered. Backends are opened
 * by the composition root; everybody else holds a `struct sink *`.
 *
 * One thread, the stats worker, writes: resume, commit, settle, tidy, totals. Questions (below the line in
 * the ops) may come from any thread that may block, at any time.
 *
 * What counts. A visit is one answered redirect, or an orphan: a request for a key that is none, or for the
 * root. Only VISIT_CLICK counts as a click; bots are clicks with a reason in DIM_BOT. HEAD and prefetch
 * requests are kept apart. An impression counts once for its fingerprint within the window of `seen`.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/position.h"

enum visit_kind { VISIT_CLICK, VISIT_HEAD, VISIT_PREFETCH, VISIT_UNKNOWN, VISIT_ROOT, VISIT_KINDS };

/* The two orphans. */
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
	DIM_BOT,    /* why it is taken for a machine */
	DIM_COUNT,
};
extern const char
    *const visit_dim_names[DIM_COUNT]; /* "referrer", "country", … as the API and columns are called */

/* All that is rolled up about a visit. Few differ from each other, so they are numbered. */
struct dimension_set {
	enum visit_kind kind;
	struct str dims[DIM_COUNT]; /* STR_NULL: not known */
};

enum { SINK_NO_TEXT = 0xffffffff, SINK_FINGERPRINT_BYTES = 12, ADDRESS_BYTES_MAX = 6, SINK_CLICKS_MAX = 512 };

struct sink_visit {
	struct event_id event;
	int64_t time_ms;
	uint64_t link;       /* row id in the store; 0 for orphans */
	uint64_t visitor;    /* hash with the day's salt; 0: none */
	uint64_t stream;     /* of the queue: for who counts clicks outside of the sink */
	uint32_t set;        /* index into the batch's shapes */
	uint32_t agent;      /* index into the batch's texts, or SINK_NO_TEXT; likewise: */
	uint32_t referrer;   /* as sent */
	uint32_t place;      /* "region\ncity" */
	uint32_t path;       /* orphans: what was asked for */
	uint8_t address_len; /* 0: none, 3: IPv4 /24, 6: IPv6 /48 */
	uint8_t address[ADDRESS_BYTES_MAX];
};

struct sink_impression {
	struct event_id event;
	int64_t time_ms;     /* the event's own `ts` */
	int64_t received_ms; /* when we took it: what the window of `seen` is measured on */
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	/* For who looks for duplicates: */
	uint64_t lane; /* of the queue */
	uint32_t
	    same_as;   /* 1 + the number of the first in the batch with this fingerprint, if it is another */
	bool in_doubt; /* of the queue's event */
	struct str id;
	struct str user;
	struct str ad;
};

/* Numbers that go into the books as they are. */
struct sink_tally {
	uint64_t clicks;               /* visits consumed that are no orphans, HEAD and prefetch included */
	uint64_t orphans;              /* consumed */
	uint64_t impressions;          /* consumed, before duplicates are taken out */
	uint64_t duplicates;           /* impressions that the worker itself found twice in its batch */
	uint64_t unusable_clicks;      /* consumed, but could not be processed: in the dead-letter file */
	uint64_t unusable_impressions; /* likewise */
	uint64_t rejected;             /* events refused at the door */
	uint64_t dropped_clicks;       /* visits not recorded because of overload */
};

/* What else became of events. Together with the visits and impressions of a batch they are all that was
 * consumed with it: nothing is without a trace. */
enum sink_note_kind {
	NOTE_DUPLICATE,           /* an impression that was counted before, or earlier in this batch */
	NOTE_UNUSABLE_CLICK,      /* could not be processed: in the dead-letter file */
	NOTE_UNUSABLE_ORPHAN,     /* likewise */
	NOTE_UNUSABLE_IMPRESSION, /* likewise */
	NOTE_REJECTED,            /* `count` events were refused at the door */
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
	const struct sink_impression
	    *impressions; /* no two with the same fingerprint, unless both counted before */
	size_t impression_count;
	const struct dimension_set *sets;
	size_t set_count;
	const struct str *texts;
	size_t text_count;
	const struct sink_note *notes;
	size_t note_count;
	uint64_t source; /* whose streams these are: */
	const struct advance *advances;
	size_t advance_count;
	struct sink_tally tally; /* of all that is above */
	int64_t now_ms;
};

/* Was another impression with this fingerprint counted, received less than the window of `seen` before or
 * after it? Not when this very event was counted: then it is one that is read again. */
struct sink_recall {
	uint8_t fingerprint[SINK_FINGERPRINT_BYTES];
	struct event_id event;
	int64_t received_ms;
	bool is_duplicate; /* out */
	bool is_itself;    /* out: this very event was counted */
};

struct sink_total {
	uint64_t link;
	uint64_t clicks;
};

/*
 * How much older than the newest an impression may come in and still be known as a duplicate: a sink that
 * several servers fill remembers fingerprints for that much longer than the window of `seen`, since one
 * server may be cut off from the queue for days. A sink of one server's own gets its log in order, and needs
 * an hour.
 */
#define SINK_SEEN_SLACK_MS (7 * 86400000LL)

/* Questions */

enum stats_step {
	STEP_MINUTE,
	STEP_HOUR,
	STEP_DAY,
	STEP_WEEK,
	STEP_MONTH
}; /* weeks begin on Monday; all UTC */
enum stats_bots { BOTS_INCLUDED, BOTS_EXCLUDED, BOTS_ONLY };

struct stats_point {
	int64_t time_ms; /* the step's beginning */
	uint64_t clicks;
};

struct stats_share {
	struct str value; /* STR_NULL: not known */
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
	unsigned filtered;            /* bits 1 << visit_dim: `filter` holds, all together */
	struct str filter[DIM_COUNT]; /* STR_NULL: where it is not known */
	struct arena *arena;

	/* out; everything but the series and shares is about the same visits */
	uint64_t clicks;            /* bots as `bots` says */
	uint64_t bot_clicks;        /* of those */
	uint64_t heads, prefetches; /* not in `clicks` */
	uint64_t unknowns, roots;   /* orphans; only for link 0 */
	bool has_visitors;          /* not with a filter */
	uint64_t visitors;          /* estimate; days of the range added up, whole days */
	/* Every step of the range, also the empty ones; at most SINK_SERIES_MAX. Where the rollups left are
	 * coarser than the steps, their clicks are at their start. */
	struct stats_point *series;
	size_t series_count;
	struct stats_share *shares[DIM_COUNT];
	size_t share_count[DIM_COUNT];
};
enum { SINK_SERIES_MAX = 10000 }; /* a longer one is ERR_LIMIT: the caller asks for larger steps */

struct stats_visit {
	int64_t time_ms;
	uint64_t link;
	struct dimension_set set;
	struct str agent, referrer, region, city, path, address; /* address as text: "192.0.2.0/24" */
};

/* Newest first, by the minute; within one, the last recorded first. */
struct visits_query {
	uint64_t link;          /* 0: orphans */
	int64_t from_ms, to_ms; /* from <= time < to */
	struct str
	    cursor; /* STR_NULL: from the newest; otherwise what `next` was; ERR_INVALID if it never was */
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
	/* out, sorted by ad, those with a count only. Names are bounded in number (ads.h): at most 50,000,
	 * and
	 * "(other)" for what all others have. A sink that gives names when they come takes 10,000 new ones a
	 * day; one that does not tells those that have the most. */
	struct ad_count *ads;
	size_t count;
};

struct top_links_query {
	int64_t from_ms, to_ms; /* whole days: those that the range touches */
	size_t limit;
	struct arena *arena;
	struct sink_total *links; /* out, most clicks first */
	size_t count;
};

struct reconciliation {
	struct sink_tally tally;    /* of all batches, ever */
	uint64_t clicks_in_rollups; /* visits in rollups that are no orphans */
	uint64_t orphans_in_rollups;
	uint64_t impressions_counted;         /* in rollups */
	uint64_t duplicates;                  /* the worker's and the sink's */
	uint64_t visit_rows, impression_rows; /* deep only */
};

struct sink {
	const struct sink_ops *ops;
};

struct sink_ops {
	void (*free)(struct sink *);

	/* Nobody waits any longer: calls that are under way end with ERR_UNAVAILABLE within a second or so,
	 * later ones at once. Any thread. NULL: nothing here waits for long. */
	void (*let_go)(struct sink *);

	/* Where to go on reading: every stream of the source that was ever read and not forgotten. NULL: this
	 * sink keeps no positions, so the queue must; what it is given twice it counts once, by the events'
	 * ids. */
	int (*resume)(struct sink *, uint64_t source, struct arena *arena, struct position **ret,
	              size_t *ret_count);

	/*
	 * Takes a whole batch or nothing of it: rows, rollups, seen fingerprints, positions and books move
	 * together. Impressions that were seen before are left out and counted as duplicates in
	 * *ret_duplicates. ERR_UNAVAILABLE, ERR_NOMEM, ERR_CORRUPT: nothing happened that the same batch,
	 * tried again, would not make right. ERR_LIMIT: likewise, and it wants to be given less often.
	 * ERR_UNCERTAIN: the streams are not where the batch begins, because another worker reads them or a
	 * batch before this one failed but turns out to have happened; go on from what `resume` says. Some
	 * milliseconds; some hundred when what was committed before is sorted in meanwhile, as happens with
	 * some commits after many.
	 */
	int (*commit)(struct sink *, const struct sink_batch *batch, uint64_t *ret_duplicates);

	/* For a sink whose commit takes all impressions for new (NULL: it can tell): which of them were
	 * counted before. Only the thread that commits. */
	int (*recall)(struct sink *, struct sink_recall *asked, size_t count);

	/* Likewise. 1: there are impressions that `recall` could find; 0: there are none. Quick, however many
	 * there are. */
	int (*recalls_any)(struct sink *);

	/* After it, all that was committed survives power loss: segments read to their end may be removed. */
	int (*settle)(struct sink *);

	/* The streams are gone: their positions need not be kept. NULL without `resume`. */
	int (*forget)(struct sink *, uint64_t source, const uint64_t *streams, size_t count);

	/* One bounded step (some milliseconds, now and then some hundred) of folding old rollups and dropping
	 * what is past its time. A clock is believed only up to an hour after the last commit's. >0: there is
	 * more to do; 0: nothing is due; <0: error. */
	int (*retention)(struct sink *, int64_t now_ms);

	/* Links whose total changed since it was last marked as flushed, at most `max`; and marking them
	 * (unless the total has moved on meanwhile). Not cheap: every few seconds, not after every commit.
	 * After a flood of visits the last of them may be in the totals of a later call only. NULL: this sink
	 * does not know which have changed. */
	int (*totals)(struct sink *, size_t max, struct arena *arena, struct sink_total **ret,
	              size_t *ret_count);
	int (*totals_flushed)(struct sink *, const struct sink_total *totals, size_t count);

	/* Questions: 0, or ERR_UNAVAILABLE, ERR_NOMEM, ERR_CORRUPT, and what the query's fields say. Safe to
	 * retry. Each sees one consistent moment between two commits. */
	int (*stats)(struct sink *, struct stats_query *q);
	int (*visits)(struct sink *, struct visits_query *q);
	int (*window)(struct sink *, struct window_query *q);
	int (*top_links)(struct sink *, struct top_links_query *q);
	/* Fills in the clicks of each of n links, at most SINK_CLICKS_MAX: all that were ever committed, bots
	 * included, also where retention has dropped the rollups; 0 for a link that nobody visited. Some
	 * microseconds for each link, and some milliseconds when much was committed lately. */
	int (*clicks)(struct sink *, struct sink_total *links, size_t n);
	/* Of the events that were first logged by this node; 0: of all. A sink of one node's own counts all
	 * that it has.
	 */
	int (*reconciliation)(struct sink *, uint64_t node, bool deep, struct reconciliation *ret);
	int (*ping)(struct sink *, struct err *e);
};
