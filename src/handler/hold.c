#include "handler/hold.h"

#include "handler/guess_limits.h"
#include "handler/jobs.h"
#include "handler/problem.h"

#include <stdlib.h>

enum { TIMES_MAX = 8 }; /* a request is held; twice is usual: for who asks, and for whom they name */

struct hold {
	struct http_request req;
	unsigned times;
	struct read_job *read;
	struct guess_attempts tries;
};

static void held(struct read_job *j)
{
	struct hold *h = j->ctx;
	struct api_worker *w = j->worker;
	/* A key that is good, or was not looked at, was no try. */
	if (!accounts_is_unknown(w->api->accounts, &j->account, loop_mono_ms(http_conn_loop(j->conn))))
		guess_refund(w, j->conn, &h->tries);
	if (j->result < 0)
		problem_reply_store(j->conn, j->result);
	else
		http_conn_again(j->conn, w->api->dispatch, w, &h->req);
}

struct hold *hold_new(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                      const struct account_want *want)
{
	struct hold *h = req->is_kept ? container_of(req, struct hold, req) : NULL;
	if (!h) {
		h = arena_zalloc(http_conn_arena(c), sizeof(*h));
		if (!h || !http_request_keep(req, http_conn_arena(c), &h->req)) {
			problem_reply_store(c, ERR_NOMEM);
			return NULL;
		}
	}
	h->read = read_job_new(w, c, READ_ACCOUNT, held);
	if (!h->read)
		return NULL;
	h->read->account = *want;
	h->read->ctx = h;
	return h;
}

void hold_submit(struct hold *h)
{
	struct read_job *j = h->read;
	struct api_worker *w = j->worker;
	h->tries = (struct guess_attempts){0};
	if (++h->times > TIMES_MAX)
		problem_reply_store(j->conn, ERR_LIMIT);
	else if (j->account.by != BY_DIGEST || guess_key(w, j->conn, &h->req, &h->tries))
		read_job_submit_account(j);
}

/* On the pool's thread: a loop that has stopped reads no mail. */
static void refreshed(struct offload_job *job)
{
	free(container_of(job, struct read_job, job));
}

void hold_refresh(struct api *api, const struct account_want *want)
{
	struct read_job *j = calloc(1, sizeof(*j));
	if (!j)
		return;
	j->job.done = refreshed;
	j->kind = READ_ACCOUNT;
	j->account = *want;
	if (offload_submit(api->readers, &j->job) < 0)
		free(j);
}
