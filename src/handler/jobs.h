/*
 * Jobs for the readers and writers of the store. A job lives in the connection's arena until the reply;
 * `done` runs on the connection's loop and must reply.
 */
#pragma once

#include "handler/api.h"

enum read_kind {
	READ_RESOLVE,     /* where a key leads */
	READ_LINK,        /* one link */
	READ_LIST,        /* a page of links */
	READ_KEYS,        /* a page of API keys */
	READ_PERMISSIONS, /* the users who may follow a private link */
	READ_CLICKS,      /* the live clicks and the owner's name of lookup.link */
	READ_OWNER,       /* the owner's name of lookup.link */
	READ_ACCOUNT      /* an account, into the cache */
};

struct read_job {
	struct offload_job job;
	struct api_worker *worker;
	struct http_conn *conn; /* NULL: a refresh in the background */
	void (*done)(struct read_job *);
	enum read_kind kind;
	bool as_html;                  /* errors as HTML */
	struct capture_draft draft;    /* READ_RESOLVE: the visit */
	struct net_addr client;        /* READ_RESOLVE and previews */
	uint32_t epoch;                /* READ_RESOLVE: of the key, when the job was submitted */
	uint64_t owner;                /* READ_LINK, READ_PERMISSIONS: the only user who may see it; 0: any */
	bool sees_all;                 /* previews: the caller is an admin */
	bool shows_clicks;             /* READ_LINK: add the live clicks */
	enum account_found found;      /* READ_RESOLVE and previews: the result of caller_find ... */
	struct parked_request *parked; /* ... and the request to submit if the caller matters; NULL: none */
	void *ctx;                     /* the handler's own */
	int64_t now_ms;
	int result; /* of kinds without their own */
	union {
		struct link_resolve resolve;
		struct store_lookup lookup;
		struct store_list list;
		struct registry_page keys;
		struct account_ref account;
		struct {
			struct link_ref ref;     /* in */
			struct link_record link; /* out, and the users: */
			uint64_t *ids;
			struct user_record *users; /* of these ids; the id 0 for one that does not exist */
			size_t count;
		} permitted;
	};
};

struct write_job {
	struct offload_job job;
	struct api_worker *worker;
	struct http_conn *conn;
	void (*done)(struct write_job *);
	bool is_account;
	union {
		struct store_write write;
		struct registry_write account;
	};
	struct meter *refund;         /* gets the create back if the write fails */
	struct meter_reading reading; /* for the RateLimit fields */
	bool plain;                   /* createURL and deleteURL: a shorter reply */
	bool plain_text;
	struct str key_text; /* a new API key, shown once */
	void *ctx;           /* the handler's own */
};

/* Memory and strings in the connection's arena. NULL: out of memory, answered with 503. */
void *request_zalloc(struct http_conn *c, size_t bytes);
struct str request_str(struct http_conn *c, struct str s);

/* NULL: out of memory, answered with 503. */
struct read_job *read_job_new(struct api_worker *w, struct http_conn *c, enum read_kind kind,
                              void (*done)(struct read_job *));
struct write_job *write_job_new(const struct api_call *call, enum store_write_kind kind,
                                void (*done)(struct write_job *));
struct write_job *account_job_new(const struct api_call *call, enum registry_write_kind kind,
                                  void (*done)(struct write_job *));

/* A write to a link that the caller may see. NULL: the request has been answered. */
struct write_job *link_job_new(const struct api_call *call, struct str key, enum store_write_kind kind,
                               void (*done)(struct write_job *));

/* On a pool thread: reads a link. ERR_NOT_FOUND also if its owner is not `owner`; 0: any. */
int link_read(const struct api *api, struct store_lookup *lookup, uint64_t owner);

/* Defers the connection and submits; answers 503 if the queue is full. */
void read_job_submit(struct read_job *j);
void write_job_submit(struct write_job *j);

/* The same; reads of the same account are shared. */
void read_job_submit_account(struct read_job *j);

/* Lets a resolve for an anonymous visitor share a lookup with others of the same key and epoch. A lookup that
 * began before a change must not answer a request that came after the change was acknowledged. */
void read_job_share(struct read_job *j);

/* The job will not be submitted: returns what it took from a budget. */
void write_job_cancel(struct write_job *j);
