#include "api/jobs.h"

#include "api/problem.h"
#include "obs/log.h"

#include <stdlib.h>

/* Pool threads count in sets of their own, made when a thread first works. */
static struct metrics *my_metrics(void)
{
	static _Thread_local struct metrics *mine;
	if (!mine)
		mine = metrics_register();
	ASSERT(mine);
	return mine;
}

static void no_memory(struct http_conn *c)
{
	problem_reply_store(c, ERR_NOMEM);
}

static void read_done(struct offload_job *job)
{
	struct read_job *j = container_of(job, struct read_job, job);
	j->done(j);
}

struct read_job *read_job_new(struct api_worker *w, struct http_conn *c, enum read_kind kind,
                              void (*done)(struct read_job *))
{
	struct read_job *j = arena_zalloc(http_conn_arena(c), sizeof(*j));
	if (!j) {
		no_memory(c);
		return NULL;
	}
	j->job.home = http_conn_loop(c);
	j->job.done = read_done;
	j->worker = w;
	j->conn = c;
	j->done = done;
	j->kind = kind;
	j->now_ms = loop_real_ms(j->job.home);
	return j;
}

static void write_done(struct offload_job *job)
{
	struct write_job *j = container_of(job, struct write_job, job);
	if (j->refund && (j->write.result != 0 || j->write.replayed))
		meter_refund(j->refund);
	j->done(j);
}

struct write_job *write_job_new(struct api_worker *w, struct http_conn *c, enum store_write_kind kind,
                                void (*done)(struct write_job *))
{
	struct write_job *j = arena_zalloc(http_conn_arena(c), sizeof(*j));
	if (!j) {
		no_memory(c);
		return NULL;
	}
	j->job.home = http_conn_loop(c);
	j->job.done = write_done;
	j->worker = w;
	j->conn = c;
	j->done = done;
	j->write.kind = kind;
	j->write.arena = http_conn_arena(c);
	j->write.now_ms = loop_real_ms(j->job.home);
	return j;
}

void read_job_submit(struct read_job *j)
{
	struct http_conn *c = j->conn;
	if (offload_submit(j->worker->api->readers, &j->job) < 0)
		problem_reply_store(c, ERR_LIMIT);
	else
		http_conn_defer(c);
}

void write_job_submit(struct write_job *j)
{
	struct http_conn *c = j->conn;
	if (offload_submit(j->worker->api->writer, &j->job) < 0) {
		if (j->refund)
			meter_refund(j->refund);
		problem_reply_store(c, ERR_LIMIT);
	} else {
		http_conn_defer(c);
	}
}

/* On pool threads */

/* A failure that holds for a whole batch shows in its first result; the log hears of it once. */
static void log_failure(const char *what, size_t n, int result)
{
	if (result == ERR_UNAVAILABLE || result == ERR_UNCERTAIN || result == ERR_CORRUPT)
		log_error("api", "%s failed for %zu: %s", what, n, err_name(result));
}

static void run_single(struct api *api, struct read_job *j)
{
	switch (j->kind) {
	case READ_LINK: {
		int r = links_get(api->links, &j->lookup, 1, my_metrics());
		if (r < 0)
			j->lookup.result = r;
		break;
	}
	case READ_LIST: j->result = links_list(api->links, &j->list); break;
	case READ_KEYS:
		j->result = store_keys(api->store, http_conn_arena(j->conn), &j->keys.keys, &j->keys.count);
		break;
	case READ_PING: j->result = store_ping(api->store, &j->ping); break;
	case READ_RESOLVE: ASSERT(false); break;
	}
}

static void readers_run(void *ctx, struct offload_job **jobs, size_t n)
{
	struct api *api = ctx;
	struct link_resolve *resolves[OFFLOAD_BATCH_MAX];
	size_t resolve_count = 0;
	int64_t now_ms = 0;
	for (size_t i = 0; i < n; i++) {
		struct read_job *j = container_of(jobs[i], struct read_job, job);
		now_ms = MAX(now_ms, j->now_ms);
		if (j->kind == READ_RESOLVE)
			resolves[resolve_count++] = &j->resolve;
		else
			run_single(api, j);
	}
	if (resolve_count == 0)
		return;
	links_resolve(api->links, resolves, resolve_count, now_ms, my_metrics());
	log_failure("looking up links", resolve_count, resolves[0]->result);
}

/* Only resolves are shared. */
static void readers_adopt(void *ctx, struct offload_job *follower, const struct offload_job *leader)
{
	(void)ctx;
	struct link_resolve *to = &container_of(follower, struct read_job, job)->resolve;
	const struct link_resolve *from = &container_of(leader, const struct read_job, job)->resolve;
	to->result = from->result;
	to->response_date_at = from->response_date_at;
	to->budget = from->budget;
	to->response = arena_str(to->arena, from->response);
	if (from->response.ptr && !to->response.ptr)
		to->result = ERR_NOMEM;
}

const struct offload_ops api_reader_ops = {.run = readers_run, .adopt = readers_adopt};

static void writer_run(void *ctx, struct offload_job **jobs, size_t n)
{
	struct api *api = ctx;
	struct store_write *writes = calloc(n, sizeof(*writes));
	bool keys_changed = false;
	for (size_t i = 0; i < n; i++) {
		struct store_write *w = &container_of(jobs[i], struct write_job, job)->write;
		if (writes)
			writes[i] = *w;
		else
			w->result = ERR_NOMEM;
		keys_changed |= w->kind == STORE_KEY_CREATE || w->kind == STORE_KEY_REVOKE;
	}
	if (!writes)
		return;
	links_apply(api->links, writes, n, my_metrics());
	log_failure("writing changes", n, writes[0].result);
	for (size_t i = 0; i < n; i++)
		container_of(jobs[i], struct write_job, job)->write = writes[i];
	free(writes);
	if (keys_changed && keyring_reload(api->keyring) < 0)
		log_error("api", "the API keys changed but could not be read again; restart to be safe");
}

const struct offload_ops api_writer_ops = {.run = writer_run};
