/*
 * The outside's view: routes and their handlers, joining http to the links. One `struct api` is shared by all
 * workers; what they look at does not change while they run. Each worker has its own `struct api_worker`.
 */
#pragma once

#include "auth/accounts.h"
#include "auth/throttle.h"
#include "config/config.h"
#include "counters/counters.h"
#include "handler/capture.h"
#include "http/conn.h"
#include "link/links.h"
#include "link/url.h"
#include "loop/offload.h"
#include "sink/sink.h"
#include "stats/worker.h"

/* How often strangers may be wrong; see handler/guess_limits.h. */
struct guess_limits {
	uint64_t misses_max;   /* per address and minute */
	uint64_t sign_ins_max; /* wrong ones for an account from one address in throttle_ms; likewise: */
	uint64_t sign_ins_account_max; /* from all addresses */
	uint64_t sign_ins_address_max; /* for all accounts */
	uint64_t passwords_link_max;   /* of links */
	uint64_t passwords_address_max;
	uint64_t throttle_ms;
};

struct api_settings {
	struct budget_limits key_limits;
	struct guess_limits guess_limits;
	uint64_t session_ms;     /* how long somebody stays signed in */
	uint64_t accounts_bytes; /* of the cache of accounts */
	uint64_t stale_ms;       /* how long that is good for without word of changes */
};
extern const struct conf_row api_rows[];
extern const size_t api_row_count;

/* Passwords wait for their thread in shares, so that no kind of request keeps another out. */
enum hash_kind {
	HASH_NONE,
	HASH_SET,     /* a new one, by somebody who has a right to set it */
	HASH_UNLOCK,  /* a link's, by anybody */
	HASH_SIGN_IN, /* a user's, by anybody; and the current one of somebody who changes their own */
	HASH_KINDS
};

enum {
	HASH_SET_MAX = 16, /* under way; some seconds of passwords in all */
	HASH_UNLOCK_MAX = 24,
	HASH_SIGN_IN_MAX = 24,
	HASH_QUEUE_MAX = HASH_SET_MAX + HASH_UNLOCK_MAX + HASH_SIGN_IN_MAX,
};

enum { API_WRITERS_MAX = 64 };

struct api {
	/* The route table (api/routes.h), for requests that are handled again. `ctx` is the worker. */
	void (*dispatch)(void *ctx, struct http_conn *c, const struct http_request *req);
	struct links *links;
	const struct api_settings *settings;
	struct accounts *accounts;
	struct throttle *throttle;     /* of strangers */
	const struct proxies *proxies; /* NULL: none */
	struct store *store;
	/* What is shared with other servers; NULL: nothing. */
	struct rcache *rcache; /* through which they hear of changes */
	struct key_source *source;
	struct limiter *limiter;
	struct counters *counters; /* the live clicks of links */
	struct quota_sync *quota_sync;
	struct leases *leases;
	struct offload *readers; /* lookups, lists, pings; several threads */
	struct api_writer {      /* of links: one for each database, and one group commit at a time in each */
		struct api *api;
		size_t shard;
		struct offload *queue;
	} writers[API_WRITERS_MAX];
	size_t writer_count;
	_Atomic size_t writer_turn;     /* who is asked first */
	struct offload *account_writer; /* of users, API keys and sessions */
	struct offload
	    *query_pool; /* questions about statistics; threads of their own, for they may take long */
	struct offload *checker;              /* readiness: one thread, which asks ... */
	struct checks *checks;                /* ... these, and does not wait for long */
	struct offload *hasher;               /* passwords: one thread, which bounds their memory */
	_Atomic unsigned hashing[HASH_KINDS]; /* jobs of the hasher under way, of each kind */
	struct offload *sweeper;              /* sweeps that are asked for: one thread, which steps back */
	struct offload *counter; /* clicks of limited links: one thread; it may wait for the stats worker */
	_Atomic bool stopping;   /* questions that still wait are not answered */
	struct event_log *event_log;
	struct sink *sink;
	struct queue_consumer *stats; /* what reads the log; NULL in a server that only answers */
	bool forwards;                /* what reads the log sends it elsewhere, to be counted there */
	bool only_queries;            /* questions about statistics */
	struct live *live;
	/* Of links: raised by the writer, before anybody is told of one; and when other servers tell of one.
	 */
	_Atomic uint64_t owner_changes;
	uint64_t impressions_ms;             /* how long they are kept */
	struct capture_counts counts_before; /* what was served and logged before this start */
	struct api_worker *const *workers;
	unsigned worker_count;
	struct str base_url; /* "http://127.0.0.1:8080", no slash at the end */
	struct str domain;   /* its authority */
	struct url_rules url_rules;
};

struct api_worker {
	struct api *api;
	struct metrics *metrics;
	struct loop *loop;
	struct capture capture;
	struct list watchers; /* of the live feed, on this worker */
	struct timer watchers_timer;
	int64_t watchers_noted_ms; /* monotonic; when they last heard that somebody is here */
};

/* A request on its way to its handler; the connection's arena is for what outlives it. */
struct api_call {
	struct api_worker *w;
	struct http_conn *c;
	const struct http_request *req;
	const struct str *params; /* the segments of the path that the route leaves open */
	struct caller caller;     /* zeroes where the route lets anybody in */
};

/* What servers tell each other (rcache_tell): users, API keys or sessions have changed; links have got other
 * owners. */
#define API_TOPIC_ACCOUNTS STR("accounts")
#define API_TOPIC_OWNERS   STR("owners")

/* Begins to look at what /readyz tells: before the first request. checks_free ends it. */
int api_checks_start(struct api *api, struct err *e);

/* A links_render_fn: the redirect that sends a visitor on. */
int api_render_redirect(const struct link_record *link, struct buf *out, uint16_t *ret_date_at);

/* The pools' work. */
extern const struct offload_ops api_reader_ops; /* ctx is the struct api */
extern const struct offload_ops api_writer_ops, api_account_writer_ops;
extern const struct offload_ops api_query_ops;
extern const struct offload_ops api_counter_ops;

/* Pool threads count in sets of their own, made when a thread first works. */
struct metrics *api_pool_metrics(void);
