/*
 * Questions that may take long: about statistics, and whether a password is right, so they have threads of
 * their own: a redirect that waits for the store never waits behind one. A job is made in the connection's
 * arena and lives until the reply.
 */
#pragma once

#include "handler/api.h"

struct ask_job {
	struct offload_job job;
	struct api_worker *worker;
	struct http_conn *conn;
	struct arena *arena;            /* the connection's */
	void (*run)(struct ask_job *);  /* on a pool thread: asks, sets `result` */
	void (*done)(struct ask_job *); /* on the connection's loop: replies */
	/* When `job.share` is set: takes the outcome of one that was the same. */
	void (*adopt)(struct ask_job *, const struct ask_job *leader);
	int64_t now_ms;
	enum hash_kind hash_kind; /* whose share it takes */
	int result;
	bool is_of_sink; /* `result`: what it said, not the store */
	struct err why;  /* of ERR_INVALID */
};

struct write_job;

/* A job of `bytes`, whose first member is the struct ask_job; zeroed. NULL when memory ran out: then the
 * request has been answered. */
void *ask_job_new(struct api_worker *w, struct http_conn *c, size_t bytes, void (*run)(struct ask_job *),
                  void (*done)(struct ask_job *));

/* Defers the connection and submits to the api's `askers`, or to that pool; when the queue is full, answers
 * 503 instead and says false. */
void ask_job_submit(struct ask_job *j);
bool ask_job_submit_to(struct ask_job *j, struct offload *pool);

/* The same on the thread for passwords (auth/passwords.h), and 503 also when the share of that kind is used
 * up. False: it was not submitted. */
bool ask_job_submit_hash(struct ask_job *j, enum hash_kind kind);

/* Submits the write once the password is hashed to *ret, if whoever asked may still ask; otherwise gives it
 * up, and says why. STR_NULL: there is nothing to hash. */
void ask_submit_hashed(struct write_job *j, const struct caller *caller, struct str password,
                       struct str *ret);

/* On a pool thread: what the sink answered; a failure is told as the sink's. Returns it. */
static inline int ask_sink_said(struct ask_job *j, int r)
{
	j->is_of_sink = r < 0;
	return r;
}

/* Replies for a result below 0; false when it is 0. */
bool ask_job_failed(struct ask_job *j);

/* The link that is asked about, as whoever asks may see it. */
struct ask_subject {
	struct str key; /* in */
	uint64_t owner; /* in: whose it must be; 0: anybody's */
	struct link_record link;
};

/* On a pool thread. ERR_NOT_FOUND also when it is somebody else's. */
int ask_subject_find(const struct ask_job *j, struct ask_subject *s);
