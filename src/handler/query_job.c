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

/* Workers take from it at the same time: who has taken too many puts it back. */
static bool share_take(struct api *api, enum hash_kind kind)
{
	if (atomic_fetch_add_explicit(&api->hashing[kind], 1, memory_order_relaxed) < hash_shares[kind])
		return true;
	atomic_fetch_sub_explicit(&api->hashing[kind], 1, memory_order_relaxed);
	return false;
}

static void share_give_back(const struct ask_job *j)
{
	if (j->hash_kind != HASH_NONE)
		atomic_fetch_sub_explicit(&j->worker->api->hashing[j->hash_kind], 1, memory_order_relaxed);
}

static void job_done(struct offload_job *job)
{
	struct ask_job *j = container_of(job, struct ask_job, job);
	share_give_back(j);
	j->done(j);
}

void *ask_job_new(struct api_worker *w, struct http_conn *c, size_t bytes, void (*run)(struct ask_job *),
                  void (*done)(struct ask_job *))
{
	struct ask_job *j = arena_zalloc(http_conn_arena(c), bytes);
	if (!j) {
		problem_reply_store(c, ERR_NOMEM);
		return NULL;
	}
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

bool ask_job_submit_to(struct ask_job *j, struct offload *pool)
{
	if (offload_submit(pool, &j->job) < 0) {
		problem_reply_store(j->conn, ERR_LIMIT);
		return false;
	}
	http_conn_defer(j->conn);
	return true;
}

void ask_job_submit(struct ask_job *j)
{
	ask_job_submit_to(j, j->worker->api->query_pool);
}

bool ask_job_submit_hash(struct ask_job *j, enum hash_kind kind)
{
	if (!share_take(j->worker->api, kind)) {
		problem_reply_store(j->conn, ERR_LIMIT);
		return false;
	}
	j->hash_kind = kind;
	if (ask_job_submit_to(j, j->worker->api->hasher))
		return true;
	share_give_back(j);
	return false;
}

struct hash_job {
	struct ask_job ask;
	struct write_job *write;
	struct caller caller;
	bool ended; /* who was somebody when they asked is nobody by now */
	struct str password, *ret;
};

static void hash_run(struct ask_job *ask)
{
	struct hash_job *j = container_of(ask, struct hash_job, ask);
	ask->result = password_hash(j->password, ask->arena, j->ret);
	if (ask->result == 0)
		ask->result = auth_check(ask->worker->api, &j->caller, &j->ended);
}

static void hash_done(struct ask_job *ask)
{
	struct hash_job *j = container_of(ask, struct hash_job, ask);
	if (ask->result == 0 && !j->ended) {
		write_job_submit(j->write);
		return;
	}
	write_job_give_up(j->write);
	if (ask->result < 0)
		problem_reply_store(ask->conn, ask->result);
	else
		auth_refuse_ended(ask->conn, &j->caller);
}

void ask_submit_hashed(struct write_job *j, const struct caller *caller, struct str password, struct str *ret)
{
	if (!password.ptr) {
		write_job_submit(j);
		return;
	}
	struct hash_job *hash = ask_job_new(j->worker, j->conn, sizeof(*hash), hash_run, hash_done);
	if (hash) {
		hash->write = j;
		hash->caller = *caller;
		hash->password = password;
		hash->ret = ret;
	}
	if (!hash || !ask_job_submit_hash(&hash->ask, HASH_SET))
		write_job_give_up(j);
}

bool ask_job_failed(struct ask_job *j)
{
	if (j->result == 0)
		return false;
	if (j->result == ERR_INVALID)
		problem_say(j->conn, 400, "invalid-parameter", "%s", j->why.text);
	else if (j->is_of_sink && j->result != ERR_NOT_FOUND)
		problem_reply_sink(j->conn, j->result);
	else
		link_param_reply_failed(j->conn, j->result);
	return true;
}

int ask_subject_find(const struct ask_job *j, struct ask_subject *s)
{
	struct links *links = j->worker->api->links;
	struct store_lookup read = {.ref = links_ref(links, s->key), .arena = j->arena};
	int r = links_get(links, &read, 1, api_pool_metrics());
	if (r == 0)
		r = read.result;
	if (r == 0 && s->owner != 0 && read.link.owner != s->owner)
		r = ERR_NOT_FOUND;
	s->link = read.link;
	return r;
}

static void queries_run(void *ctx, struct offload_job **jobs, size_t n)
{
	const struct api *api = ctx;
	for (size_t i = 0; i < n; i++) {
		struct ask_job *j = container_of(jobs[i], struct ask_job, job);
		/* A server that stops does not finish the questions that still wait. */
		if (atomic_load_explicit(&api->stopping, memory_order_relaxed))
			j->result = ERR_LIMIT;
		else
			j->run(j);
		if (j->result == ERR_UNAVAILABLE || j->result == ERR_CORRUPT)
			log_error("api", "a question failed: %s (%s)", err_name(j->result),
			          j->is_of_sink ? "where events are counted" : "the link store");
	}
}

static void queries_adopt(void *ctx, struct offload_job *follower, const struct offload_job *leader)
{
	(void)ctx;
	struct ask_job *to = container_of(follower, struct ask_job, job);
	const struct ask_job *from = container_of(leader, struct ask_job, job);
	to->result = from->result;
	to->is_of_sink = from->is_of_sink;
	to->adopt(to, from);
}

const struct offload_ops api_query_ops = {.run = queries_run, .adopt = queries_adopt};
