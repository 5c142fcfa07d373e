/*
 * What a handler asks of the pools. A job is made in the connection's arena, so it lives until the reply;
 * `done` runs on the connection's own loop and must reply.
 */
#pragma once

#include "handler/api.h"

enum read_kind {
	READ_RESOLVE,
	READ_LINK,
	READ_LIST,
	READ_KEYS,
	READ_PERMITTED,
	READ_CLICKS,
	READ_OWNER,
	READ_ACCOUNT
};

struct read_job {
	struct offload_job job;
	struct api_worker *worker;
	struct http_conn *conn;
	void (*done)(struct read_job *);
	enum read_kind kind;
	bool as_page;               /* errors as HTML */
	struct capture_draft draft; /* READ_RESOLVE: the visit, once it is known where it goes */
	struct net_addr client;     /* READ_RESOLVE and previews: where it comes from */
	uint32_t epoch;             /* READ_RESOLVE: of the key, when it was asked for */
	uint64_t owner;             /* READ_LINK, READ_PERMITTED: who alone may see it; 0: no matter */
	bool sees_all;              /* READ_LINK, previews: an admin looks */
	bool shows_clicks;          /* READ_LINK: the live ones */
	struct hold *hold; /* READ_RESOLVE: whoever asks is to be read first, if it matters; NULL: no need */
	enum account_found found; /* READ_RESOLVE and previews: whoever asks */
	void *ctx;                /* the handler's own */
	int64_t now_ms;
	int result; /* of the kinds that have none of their own */
	union {
		struct link_resolve resolve;
		/* READ_CLICKS: the live ones of its link, which is there, and READ_OWNER: the name of its
		 * owner */
		struct store_lookup lookup;
		struct store_list list;
		struct registry_page keys;
		struct account_want account;
		struct {
			struct link_ref ref;     /* in */
			struct link_record link; /* out; its list: */
			uint64_t *users;
			struct user_record *people; /* of these ids; 0: nobody */
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
	struct meter *refund;         /* gets one back when the write fails */
	struct meter_reading reading; /* for the answer's RateLimit fields */
	bool plain;                   /* createURL and deleteURL: their own, shorter answers */
	bool plain_text;
	struct str key_text; /* a new API key, shown once */
	void *ctx;           /* the handler's own */
};

/* NULL when memory ran out: then the request has been answered. */
struct read_job *read_job_new(struct api_worker *w, struct http_conn *c, enum read_kind kind,
                              void (*done)(struct read_job *));
struct write_job *write_job_new(const struct api_call *call, enum store_write_kind kind,
                                void (*done)(struct write_job *));
struct write_job *account_job_new(const struct api_call *call, enum registry_write_kind kind,
                                  void (*done)(struct write_job *));

/* A write to the link that somebody names, if they may see it. NULL: that has been said. */
struct write_job *link_job_new(const struct api_call *call, struct str key, enum store_write_kind kind,
                               void (*done)(struct write_job *));

/* Defers the connection and submits; when the queue is full, answers 503 instead. */
void read_job_submit(struct read_job *j);
void write_job_submit(struct write_job *j);

/* A resolve for nobody in particular shares the flight of those for the same key and epoch: a lookup that
 * began before a change must not answer a request that came after the change was acknowledged. */
void read_job_share(struct read_job *j);

/* Those that want the same account share its read. */
void read_job_submit_account(struct read_job *j);

/*
 * count.c: the clicks of a limited link are counted once, before the first of them is let through: see
 * link/click_limit.h. Has the gate of a resolve counted (its verdict was LINK_UNCOUNTED); then `done` is
 * called on the loop, with resolve.result 0 or why it cannot be counted now. When the queue is full, answers
 * 503 instead.
 */
void count_submit(struct read_job *j, void (*done)(struct read_job *));

/* It will not be submitted: what it took from a budget goes back. */
void write_job_give_up(struct write_job *j);
