/*
 * Jobs that may take long: statistics, and hashing passwords. They have their own pools, so that a redirect
 * that needs the store never waits behind one. A job lives in the connection's arena until the reply.
 */
#pragma once

#include "handler/api.h"

struct query_job {
	struct offload_job job;
	struct api_worker *worker;
	struct http_conn *conn;
	struct arena *arena;              /* the connection's */
	void (*run)(struct query_job *);  /* on a pool thread: sets `result` */
	void (*done)(struct query_job *); /* on the connection's loop: replies */
	/* With `job.share`: copies the outcome of an identical job. */
	void (*adopt)(struct query_job *, const struct query_job *leader);
	int64_t now_ms;
	enum hash_kind hash_kind; /* whose share of the hasher it takes */
	int result;
	bool is_sink_result; /* `result` comes from the sink, not from the store */
	struct err why;      /* of ERR_INVALID */
};

struct write_job;

/* A zeroed job of `bytes`, whose first member is the struct query_job. NULL: out of memory, and the request
 * has been answered. */
void *query_job_new(struct api_worker *w, struct http_conn *c, size_t bytes, void (*run)(struct query_job *),
                    void (*done)(struct query_job *));

/* Defers the connection and submits to api->query_pool, or to that pool. False: the queue is full, answered
 * with 503. */
void query_job_submit(struct query_job *j);
bool query_job_submit_to(struct query_job *j, struct offload *pool);

/* The same on the hasher (auth/passwords.h). False also if the kind's share of it is used up. */
bool query_job_submit_hash(struct query_job *j, enum hash_kind kind);

/* Hashes the password to *ret, then submits the write if the caller still has the rights; otherwise cancels
 * it and answers. STR_NULL: nothing to hash. */
void write_job_submit_hashed(struct write_job *j, const struct caller *caller, struct str password,
                             struct str *ret);

/* On a pool thread: returns `r`, and marks a failure as the sink's. */
static inline int query_job_sink_result(struct query_job *j, int r)
{
	j->is_sink_result = r < 0;
	return r;
}

/* Replies for a negative result; false if it is 0. */
bool query_job_reply_failed(struct query_job *j);

/* The link that a query is about. */
struct query_link {
	struct str key; /* in */
	uint64_t owner; /* in: its owner must be this user; 0: any */
	struct link_record link;
};

/* On a pool thread. ERR_NOT_FOUND also if it belongs to another user. */
int query_link_find(const struct query_job *j, struct query_link *q);
