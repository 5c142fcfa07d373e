#include "handler/query_job.h"

#include "auth/passwords.h"
#include "handler/caller.h"
#include "handler/jobs.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "obs/log.h"

static const unsigned hash_shares[HASH_KINDS] = {
    [HASH_SET] = HASH_SET_MAX,
    [HASH_UNLOCK] = HASH_UNLOCK_MAX,
    [HASH_SIGN_IN] = HASH_SIGN_IN_MAX,
};

static void hash_share_return(const struct query_job *j)
{
	if (j->hash_kind != HASH_NONE)
		atomic_fetch_sub_explicit(&j->worker->api->hashing[j->hash_kind], 1, memory_order_relaxed);
}

static void job_done(struct offload_job *job)
{
	struct query_job *j = container_of(job, struct query_job, job);
	hash_share_return(j);
	j->done(j);
}

void *query_job_new(struct api_worker *w, struct http_conn *c, size_t bytes, void (*run)(struct query_job *),
                    void (*done)(struct query_job *))
{
	struct query_job *j = request_zalloc(c, bytes);
	if (!j)
		return NULL;
	j->job.origin = http_conn_loop(c);
	j->job.done = job_done;
	j->worker = w;
	j->conn = c;
	j->arena = http_conn_arena(c);
	j->run = run;
	j->done = done;
	j->now_ms = loop_real_ms(j->job.origin);
	return j;
}

bool query_job_submit_to(struct query_job *j, struct offload *pool)
{
	if (offload_submit(pool, &j->job) < 0) {
		problem_reply_store(j->conn, ERR_LIMIT);
		return false;
	}
	http_conn_defer(j->conn);
	return true;
}

void query_job_submit(struct query_job *j)
{
	query_job_submit_to(j, j->worker->api->query_pool);
}

bool query_job_submit_hash(struct query_job *j, enum hash_kind kind)
{
	struct api *api = j->worker->api;
	j->hash_kind = kind;
	if (atomic_fetch_add_explicit(&api->hashing[kind], 1, memory_order_relaxed) >= hash_shares[kind])
		problem_reply_store(j->conn, ERR_LIMIT);
	else if (query_job_submit_to(j, api->hasher))
		return true;
	hash_share_return(j);
	return false;
}

struct hash_job {
	struct query_job base;
	struct write_job *write;
	struct caller caller;
	bool ended; /* as caller_recheck */
	struct str password, *ret;
};

static void hash_run(struct query_job *base)
{
	struct hash_job *j = container_of(base, struct hash_job, base);
	base->result = password_hash(j->password, base->arena, j->ret);
	if (base->result == 0)
		base->result = caller_recheck(base->worker->api, &j->caller, &j->ended);
}

static void hash_done(struct query_job *base)
{
	struct hash_job *j = container_of(base, struct hash_job, base);
	if (base->result == 0 && !j->ended) {
		write_job_submit(j->write);
		return;
	}
	write_job_cancel(j->write);
	if (base->result < 0)
		problem_reply_store(base->conn, base->result);
	else
		caller_reply_ended(base->conn, &j->caller);
}

void write_job_submit_hashed(struct write_job *j, const struct caller *caller, struct str password,
                             struct str *ret)
{
	if (!password.ptr) {
		write_job_submit(j);
		return;
	}
	struct hash_job *hash = query_job_new(j->worker, j->conn, sizeof(*hash), hash_run, hash_done);
	if (hash) {
		hash->write = j;
		hash->caller = *caller;
		hash->password = password;
		hash->ret = ret;
	}
	if (!hash || !query_job_submit_hash(&hash->base, HASH_SET))
		write_job_cancel(j);
}

bool query_job_reply_failed(struct query_job *j)
{
	if (j->result == 0)
		return false;
	if (j->result == ERR_INVALID)
		problem_reply(j->conn, 400, "invalid-parameter", "%s", j->why.text);
	else if (j->is_sink_result && j->result != ERR_NOT_FOUND)
		problem_reply_sink(j->conn, j->result);
	else
		link_param_reply_failed(j->conn, j->result);
	return true;
}

int query_link_find(const struct query_job *j, struct query_link *q)
{
	const struct api *api = j->worker->api;
	struct store_lookup read = {.ref = links_ref(api->links, q->key), .arena = j->arena};
	int r = link_read(api, &read, q->owner);
	q->link = read.link;
	return r;
}

static void queries_run(void *ctx, struct offload_job **jobs, size_t n)
{
	const struct api *api = ctx;
	for (size_t i = 0; i < n; i++) {
		struct query_job *j = container_of(jobs[i], struct query_job, job);
		/* A server that stops does not run the queries that are still queued. */
		if (atomic_load_explicit(&api->stopping, memory_order_relaxed))
			j->result = ERR_LIMIT;
		else
			j->run(j);
		if (j->result == ERR_UNAVAILABLE || j->result == ERR_CORRUPT)
			log_error("api", "query failed backend=%s error=%s",
			          j->is_sink_result ? "sink" : "store", err_name(j->result));
	}
}

static void queries_adopt(void *ctx, struct offload_job *follower, const struct offload_job *leader)
{
	(void)ctx;
	struct query_job *to = container_of(follower, struct query_job, job);
	const struct query_job *from = container_of(leader, struct query_job, job);
	to->result = from->result;
	to->is_sink_result = from->is_sink_result;
	to->adopt(to, from);
}

const struct offload_ops api_query_ops = {.run = queries_run, .adopt = queries_adopt};
