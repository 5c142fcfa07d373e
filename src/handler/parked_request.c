#include "handler/parked_request.h"

#include "handler/guess_limits.h"
#include "handler/jobs.h"
#include "handler/problem.h"

enum { PARKS_MAX = 8 }; /* of one request; two are usual: for the caller, and for a user they name */

struct parked_request {
	struct http_request req;
	unsigned parks;
	struct read_job *read;
	struct guess_attempts attempts;
};

static void account_read_done(struct read_job *j)
{
	struct parked_request *p = j->ctx;
	struct api_worker *w = j->worker;
	/* Only an unknown API key counts as a failed attempt. */
	if (!accounts_is_unknown(w->api->accounts, &j->account, loop_mono_ms(http_conn_loop(j->conn))))
		guess_refund(w, j->conn, &p->attempts);
	if (j->result < 0)
		problem_reply_store(j->conn, j->result);
	else
		http_conn_again(j->conn, w->api->dispatch, w, &p->req);
}

struct parked_request *parked_request_new(struct api_worker *w, struct http_conn *c,
                                          const struct http_request *req, const struct account_ref *ref)
{
	struct parked_request *p = req->is_copy ? container_of(req, struct parked_request, req) : NULL;
	if (!p) {
		p = request_zalloc(c, sizeof(*p));
		if (!p)
			return NULL;
		if (!http_request_copy(req, http_conn_arena(c), &p->req)) {
			problem_reply_store(c, ERR_NOMEM);
			return NULL;
		}
	}
	p->read = read_job_new(w, c, READ_ACCOUNT, account_read_done);
	if (!p->read)
		return NULL;
	p->read->account = *ref;
	p->read->ctx = p;
	return p;
}

void parked_request_submit(struct parked_request *p)
{
	struct read_job *j = p->read;
	p->attempts = (struct guess_attempts){0};
	if (++p->parks > PARKS_MAX)
		problem_reply_store(j->conn, ERR_LIMIT);
	else if (j->account.by != BY_DIGEST || guess_api_key(j->worker, j->conn, &p->req, &p->attempts))
		read_job_submit_account(j);
}
