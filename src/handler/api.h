/*
 * The context of handlers. All workers share one `struct api`, whose members do not change while they run
 * (atomics apart). Each worker has its own `struct api_worker`; only its loop touches it.
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

/* Failed attempts that are allowed; see handler/guess_limits.h. All but misses_max per tries_period_ms. */
struct guess_limits {
	uint64_t misses_max;            /* unknown keys per address and minute */
	uint64_t sign_ins_max;          /* for one account from one address */
	uint64_t sign_ins_account_max;  /* for one account from all addresses */
	uint64_t sign_ins_address_max;  /* from one address for all accounts */
	uint64_t passwords_link_max;    /* for one link from all addresses */
	uint64_t passwords_address_max; /* from one address for all links */
	uint64_t tries_period_ms;
};

struct api_settings {
	struct budget_limits key_limits;
	struct guess_limits guess_limits;
	uint64_t session_ms;     /* life of a session */
	uint64_t accounts_bytes; /* of the cache of accounts */
	uint64_t stale_ms;       /* how long that cache is valid while the change feed cannot be read */
};
extern const struct conf_row api_rows[];
extern const size_t api_row_count;

/* Each kind of password request has its own share of the hasher's queue, so that none can fill it. */
enum hash_kind {
	HASH_NONE,
	HASH_SET,     /* a new password, set by an authorised caller */
	HASH_UNLOCK,  /* the password of a link */
	HASH_SIGN_IN, /* the password of a user: to sign in, or to change it */
	HASH_KINDS
};

enum {
	HASH_SET_MAX = 16, /* queued or running; a few seconds of hashing in all */
	HASH_UNLOCK_MAX = 24,
	HASH_SIGN_IN_MAX = 24,
	HASH_QUEUE_MAX = HASH_SET_MAX + HASH_UNLOCK_MAX + HASH_SIGN_IN_MAX,
};

enum { API_WRITERS_MAX = 64 };

struct api {
	/* The route table (api/routes.h), to run a parked request again. `ctx` is the worker. */
	void (*dispatch)(void *ctx, struct http_conn *c, const struct http_request *req);
	struct links *links;
	const struct api_settings *settings;
	struct accounts *accounts;
	struct throttle *throttle;     /* for the guess limits */
	const struct proxies *proxies; /* trusted ones; NULL: none */
	struct store *store;
	/* Shared with other servers; NULL: not configured. */
	struct rcache *rcache; /* also announces changes to them */
	struct key_source *source;
	struct limiter *limiter;
	struct counters *counters; /* live click counts of links */
	struct quota_sync *quota_sync;
	struct leases *leases;
	struct offload *readers; /* lookups and lists; several threads */
	struct api_writer {      /* of links: one per shard, with one group commit at a time */
		struct api *api;
		size_t shard;
		struct offload *queue;
	} writers[API_WRITERS_MAX];
	size_t writer_count;
	_Atomic size_t next_writer;           /* where the search for an idle writer begins */
	struct offload *account_writer;       /* of users, API keys and sessions */
	struct offload *query_pool;           /* statistics: own threads, because they may take long */
	struct offload *checker;              /* readiness: one thread, which runs ... */
	struct health_checks *health_checks;  /* ... these, each with a timeout */
	struct offload *hasher;               /* passwords: one thread, which bounds their memory */
	_Atomic unsigned hashing[HASH_KINDS]; /* jobs of the hasher, by kind */
	struct offload *sweeper;              /* sweeps on request: one thread, which runs when idle */
	struct offload *click_counter;        /* clicks of limited links: one thread; may wait for stats */
	_Atomic bool stopping;                /* serve.drain_time is over: queued queries fail */
	struct event_log *event_log;
	struct sink *sink;
	struct queue_consumer *stats; /* reads the event log; NULL with serve.role = stats */
	bool forwards;                /* `stats` sends the log to a queue instead of the sink */
	bool is_stats_role;           /* serve.role = stats: only statistics are served */
	struct live *live;
	/* Of links. The writer raises it before it replies; so does a report from another server. */
	_Atomic uint64_t owner_changes;
	uint64_t impressions_ms;               /* sink.impressions_time */
	struct capture_counts previous_counts; /* of earlier runs of this server */
	struct api_worker *const *workers;
	unsigned worker_count;
	struct str base_url; /* "http://127.0.0.1:8080", without a slash at the end */
	struct str domain;   /* the authority of base_url */
	struct url_rules url_rules;
};

struct api_worker {
	struct api *api;
	struct metrics *metrics;
	struct loop *loop;
	struct capture capture;
	struct list watchers; /* of the live feed */
	struct timer keepalive_timer;
	int64_t keepalive_sent_ms; /* monotonic; to the watchers */
};

/* A request and its handler's context. What must outlive the handler goes to the connection's arena. */
struct api_call {
	struct api_worker *w;
	struct http_conn *c;
	const struct http_request *req;
	const struct str *params; /* the {} segments of the path, decoded */
	struct caller caller;     /* zeroes if the route is public */
};

/* Topics that servers announce to each other through the rcache. */
#define API_TOPIC_ACCOUNTS STR("accounts")
#define API_TOPIC_OWNERS   STR("owners")

/* The pools' work. */
extern const struct offload_ops api_reader_ops; /* ctx is the struct api */
extern const struct offload_ops api_writer_ops, api_account_writer_ops;
extern const struct offload_ops api_query_ops;

/* The metrics of this pool thread, registered on its first use. */
struct metrics *api_pool_metrics(void);
