/* A connection is in pipeline mode from the start. libpq never blocks here: what cannot be sent yet stays
 * in its buffer. While waiting for a reply we send and read at the same time, so that neither side waits
 * with full buffers. */
#include "client/postgres_conn.h"

#include "base/grow.h"
#include "base/hash.h"
#include "os/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* --- errors --- */

struct sqlstate {
	char prefix[6]; /* two characters: a class */
	int error;
	bool fatal; /* the connection is unusable */
	bool usual; /* expected: callers retry, nothing is logged */
};

#define LOCK_TIMEOUT "55P03"
#define DEADLOCK     "40P01"

/* The first match counts. */
static const struct sqlstate sqlstates[] = {
    {"23505", ERR_CONFLICT, false, true}, /* unique violation */
    {DEADLOCK, ERR_BUSY, false, true},
    {"40", ERR_BUSY, false, true},           /* serialization failure */
    {LOCK_TIMEOUT, ERR_BUSY, false, false},  /* lock timeout */
    {"25P03", ERR_UNAVAILABLE, true, false}, /* idle in a transaction for too long */
    {"22012", ERR_NOT_FOUND, false, true},   /* division by 0: a statement's condition is false */
    {"53", ERR_LIMIT, false, false},         /* disk full, out of memory, too many connections */
    {"57014", ERR_UNAVAILABLE, false, false} /* statement timeout */,
    {"57", ERR_UNAVAILABLE, true, false},    /* shutting down */
    {"08", ERR_UNAVAILABLE, true, false},    /* connection trouble */
    {"25006", ERR_UNAVAILABLE, true, false}, /* it became a standby */
    {"26", ERR_UNAVAILABLE, true, false},    /* a proxy switched servers */
    {"58", ERR_UNAVAILABLE, false, false},   /* I/O error */
    {"XX001", ERR_CORRUPT, false, false},
    {"XX002", ERR_CORRUPT, false, false},
    {"XX", ERR_UNAVAILABLE, false, false},
    {"", ERR_INVALID, false, false}, /* any other */
};

/* libpq ends its messages with a newline, and may have one between two sentences. */
static void sentence_take(struct err *to, const char *vendor)
{
	snprintf(to->text, sizeof(to->text), "%s", vendor);
	size_t len = strlen(to->text);
	while (len > 0 && to->text[len - 1] == '\n')
		to->text[--len] = '\0';
	for (char *p = to->text; *p; p++) {
		if (*p == '\n' || *p == '\t')
			*p = ' ';
	}
}

static int error_note(struct pg_conn *c, int error, const char *text)
{
	if (c->error == 0) {
		c->error = error;
		sentence_take(&c->error_text, text);
	}
	return error;
}

static void trouble_note(struct pg_conn *c, const char *text)
{
	if (!c->trouble.text[0])
		sentence_take(&c->trouble, text);
}

int pg_conn_fail(struct pg_conn *c, const char *text)
{
	c->failed = true;
	trouble_note(c, text);
	return error_note(c, ERR_UNAVAILABLE, text);
}

static int error_tell(const struct pg_conn *c, int error, struct err *e)
{
	return err_set(e, error, "%s", c->error_text.text);
}

/* The first error since the last sync; 0: none. A connection that failed keeps it. */
static int error_take(struct pg_conn *c, struct err *e)
{
	int r = c->error;
	if (!c->failed)
		c->error = 0;
	return r ? error_tell(c, r, e) : 0;
}

/* --- waiting --- */

/* Until the server has said something, or takes more. */
static int conn_wait(struct pg_conn *c, bool has_unsent)
{
	int64_t left_ms = c->deadline_ms - clock_mono_ms();
	struct pollfd poll_fd = {.fd = PQsocket(c->vendor),
	                         .events = (short)(POLLIN | (has_unsent ? POLLOUT : 0))};
	int n = left_ms > 0 ? poll(&poll_fd, 1, (int)MIN(left_ms, INT32_MAX)) : 0;
	if (n < 0 && errno != EINTR)
		return pg_conn_fail(c, "waiting for the server failed");
	if (n == 0) {
		c->late = true;
		return pg_conn_fail(c, "the server did not answer in time");
	}
	if (n > 0 && poll_fd.revents & ~POLLOUT && !PQconsumeInput(c->vendor))
		return pg_conn_fail(c, PQerrorMessage(c->vendor));
	return 0;
}

int pg_conn_drain(struct pg_conn *c)
{
	int unsent, r = 0;
	while (r == 0 && (unsent = PQflush(c->vendor)) != 0)
		r = unsent < 0 ? pg_conn_fail(c, PQerrorMessage(c->vendor)) : conn_wait(c, true);
	return r;
}

void pg_conn_deadline_set(struct pg_conn *c)
{
	c->deadline_ms = clock_mono_ms() + c->timeout_ms;
}

/* Sends what can be sent and takes in what has come, until the next piece of the answer is there. */
int pg_conn_read(struct pg_conn *c, PGresult **ret)
{
	int r = 0;
	while (r == 0 && PQisBusy(c->vendor)) {
		int unsent = PQflush(c->vendor);
		r = unsent < 0 ? pg_conn_fail(c, PQerrorMessage(c->vendor)) : conn_wait(c, unsent > 0);
	}
	if (r == 0)
		*ret = PQgetResult(c->vendor);
	return r;
}

/* --- prepared statements --- */

static struct pg_prepared *prepared_find(struct pg_conn *c, const struct pg_statement *statement)
{
	uint64_t at = hash_u64((uint64_t)(uintptr_t)statement, 0);
	for (size_t i = 0; i < PG_STATEMENTS_MAX; i++, at++) {
		struct pg_prepared *p = &c->prepared[at % PG_STATEMENTS_MAX];
		if (!p->statement)
			p->statement = statement;
		if (p->statement == statement)
			return p;
	}
	ASSERT(false); /* a program has fewer statements */
}

/* --- what is under way --- */

static bool pending_push(struct pg_conn *c, enum pg_pending_kind kind, const struct pg_statement *statement)
{
	size_t end = c->pending_first + c->pending_count;
	if (end == c->pending_cap && c->pending_first > 0) {
		memmove(c->pending, c->pending + c->pending_first, c->pending_count * sizeof(*c->pending));
		c->pending_first = 0;
		end = c->pending_count;
	}
	if (!ARRAY_ROOM(c->pending, c->pending_cap, end + 1))
		return false;
	c->pending[end] = (struct pg_pending){kind, statement};
	c->pending_count++;
	return true;
}

static struct pg_pending pending_pop(struct pg_conn *c)
{
	struct pg_pending p = c->pending[c->pending_first++];
	if (--c->pending_count == 0)
		c->pending_first = 0;
	return p;
}

/* --- asking --- */

/* A gap in the pipeline would assign results to the wrong statements: without memory the connection is
 * lost. */
void pg_conn_check(struct pg_conn *c, bool done)
{
	if (!done && !c->failed)
		pg_conn_fail(c, PQstatus(c->vendor) == CONNECTION_OK ? "memory ran out"
		                                                     : PQerrorMessage(c->vendor));
}

void pg_send(struct pg_query *q)
{
	static const int binary[PG_PARAMS_MAX] = {[0 ... PG_PARAMS_MAX - 1] = 1};
	struct pg_conn *c = q->conn;
	struct pg_prepared *p = prepared_find(c, q->statement);
	pg_conn_check(c, !q->failed);
	if (!c->failed && !p->is_sent) {
		p->is_sent = true;
		pg_conn_check(c, PQsendPrepare(c->vendor, q->statement->name, q->statement->sql, 0, NULL) &&
		                     pending_push(c, PG_PENDING_PREPARE, q->statement));
	}
	if (!c->failed)
		pg_conn_check(c, PQsendQueryPrepared(c->vendor, q->statement->name, q->count, q->values,
		                                     q->lengths, binary, 1) &&
		                     pending_push(c, PG_PENDING_RUN, q->statement));
	arena_release(&q->arena);
}

void pg_flush(struct pg_conn *c)
{
	pg_conn_deadline_set(c);
	if (!c->failed)
		pg_conn_check(c, PQpipelineSync(c->vendor) && pending_push(c, PG_PENDING_SYNC, NULL));
	if (!c->failed && PQflush(c->vendor) < 0)
		pg_conn_fail(c, PQerrorMessage(c->vendor));
}

int pg_conn_judge(struct pg_conn *c, const PGresult *result)
{
	switch (PQresultStatus(result)) {
	case PGRES_COMMAND_OK:
	case PGRES_TUPLES_OK:
	case PGRES_PIPELINE_SYNC: return 0;
	case PGRES_PIPELINE_ABORTED:
		return error_note(c, ERR_UNAVAILABLE, "skipped, as an earlier statement failed");
	default: break;
	}
	const struct sqlstate *state = sqlstates;
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	if (!text)
		text = PQerrorMessage(c->vendor);
	while (strncmp(code ? code : "", state->prefix, strlen(state->prefix)) != 0)
		state++;
	if (state->fatal || PQstatus(c->vendor) != CONNECTION_OK)
		return pg_conn_fail(c, text);
	c->lock_timed_out |= strcmp(state->prefix, LOCK_TIMEOUT) == 0;
	c->was_deadlocked |= strcmp(state->prefix, DEADLOCK) == 0;
	if (!state->usual)
		trouble_note(c, text);
	return error_note(c, state->error, text);
}

/* The reply to the first pending item. */
static int answer_read(struct pg_conn *c, struct pg_pending *ret_what, PGresult **ret)
{
	PGresult *result, *more = NULL;
	int r = pg_conn_read(c, &result);
	if (r != 0)
		return r;
	if (!result)
		return pg_conn_fail(c, PQstatus(c->vendor) == CONNECTION_OK ? "the server sent no answer"
		                                                            : PQerrorMessage(c->vendor));
	*ret_what = pending_pop(c);
	r = pg_conn_judge(c, result);
	/* In pipeline mode answers end with a NULL each, but those to a sync. */
	if (!c->failed && ret_what->kind != PG_PENDING_SYNC && pg_conn_read(c, &more) == 0 && more)
		pg_conn_fail(c, "the server sent more than was asked for");
	PQclear(more);
	if (ret_what->kind == PG_PENDING_PREPARE)
		prepared_find(c, ret_what->statement)->is_sent = r == 0;
	if (r != 0 || c->failed) {
		PQclear(result);
		return r ? r : ERR_UNAVAILABLE;
	}
	*ret = result;
	return 0;
}

int pg_next(struct pg_conn *c, struct pg_result *ret, struct err *e)
{
	*ret = (struct pg_result){NULL, 0};
	while (!c->failed) {
		ASSERT(c->pending_count > 0 && c->pending[c->pending_first].kind != PG_PENDING_SYNC);
		struct pg_pending what = {PG_PENDING_RUN, NULL};
		PGresult *result = NULL;
		int r = answer_read(c, &what, &result);
		if (what.kind == PG_PENDING_PREPARE) { /* if it failed, its run is skipped, which shows */
			PQclear(result);
			continue;
		}
		if (r != 0)
			return error_tell(c, c->error == r ? r : ERR_UNAVAILABLE, e);
		*ret = (struct pg_result){result, PQntuples(result)};
		return 0;
	}
	return error_tell(c, ERR_UNAVAILABLE, e);
}

void pg_result_end(struct pg_result *r)
{
	PQclear(r->vendor);
	*r = (struct pg_result){NULL, 0};
}

int pg_sync(struct pg_conn *c, struct err *e)
{
	struct pg_pending what = {PG_PENDING_RUN, NULL};
	while (!c->failed && what.kind != PG_PENDING_SYNC) {
		ASSERT(c->pending_count > 0);
		PGresult *result = NULL;
		answer_read(c, &what, &result);
		PQclear(result);
	}
	return error_take(c, e);
}

int pg_ask(struct pg_query *q, struct pg_result *ret, struct err *e)
{
	struct pg_conn *c = q->conn;
	pg_send(q);
	pg_flush(c);
	pg_next(c, ret, NULL);
	int r = pg_sync(c, e);
	if (r != 0)
		pg_result_end(ret);
	return r;
}

bool pg_conn_failed(const struct pg_conn *c)
{
	return c->failed;
}

bool pg_lock_timed_out(const struct pg_conn *c)
{
	return c->lock_timed_out;
}

bool pg_was_deadlocked(const struct pg_conn *c)
{
	return c->was_deadlocked;
}

/* --- plain text --- */

int pg_conn_finish(struct pg_conn *c)
{
	PGresult *result = NULL;
	int r;
	while ((r = pg_conn_read(c, &result)) == 0 && result) {
		pg_conn_judge(c, result);
		PQclear(result);
	}
	return r;
}

int pg_conn_outcome(struct pg_conn *c, struct err *e)
{
	if (!c->failed)
		pg_conn_check(c, PQenterPipelineMode(c->vendor));
	return error_take(c, e);
}

void pg_conn_start(struct pg_conn *c, const char *sql)
{
	ASSERT(c->pending_count == 0 || c->failed);
	pg_conn_deadline_set(c);
	if (!c->failed)
		pg_conn_check(c, PQexitPipelineMode(c->vendor) && PQsendQuery(c->vendor, sql));
}

int pg_run(struct pg_conn *c, const char *sql, struct err *e)
{
	pg_conn_start(c, sql);
	if (!c->failed)
		pg_conn_finish(c);
	return pg_conn_outcome(c, e);
}

int pg_timeout(struct pg_conn *c, uint64_t timeout_ms, struct err *e)
{
	char sql[128];
	c->timeout_ms = (int64_t)timeout_ms;
	/* The server gives up earlier than we do, and for one lock earlier still: a slow statement and a row
	 * that somebody holds are not taken for a server that does not answer. */
	unsigned long long share_ms = (timeout_ms + PG_LOCK_SHARE - 1) / PG_LOCK_SHARE;
	snprintf(sql, sizeof(sql), "SET statement_timeout = %llu; SET lock_timeout = %llu",
	         share_ms * (PG_LOCK_SHARE - 1), share_ms);
	return pg_run(c, sql, e);
}

/* --- life --- */

bool pg_is_standby(const struct pg_conn *c)
{
	const char *standby = PQparameterStatus(c->vendor, "in_hot_standby");
	return standby && strcmp(standby, "on") == 0;
}

bool pg_conn_is_idle(const struct pg_conn *c)
{
	return c->pending_count == 0 && PQtransactionStatus(c->vendor) == PQTRANS_IDLE;
}

/* Unsolicited data means that the server shuts down, or its settings changed: use a new connection. */
bool pg_conn_is_alive(const void *conn)
{
	const struct pg_conn *c = conn;
	struct pollfd poll_fd = {.fd = PQsocket(c->vendor), .events = POLLIN};
	return poll(&poll_fd, 1, 0) == 0;
}

static void notice_ignore(void *arg, const PGresult *notice)
{
	(void)arg;
	(void)notice;
}

/* Defaults for what the URL leaves open. A vanished server is detected within a few seconds. */
static PGconn *vendor_open(const char *url)
{
	static const char *const keywords[] = {"fallback_application_name",
	                                       "client_encoding",
	                                       "connect_timeout",
	                                       "keepalives_idle",
	                                       "keepalives_interval",
	                                       "keepalives_count",
	                                       "tcp_user_timeout",
	                                       "dbname",
	                                       NULL};
	const char *const values[] = {"curt", "UTF8", "3", "10", "2", "3", "10000", url, NULL};
	_Static_assert(PG_CONNECT_TIMEOUT_MS == 3000, "connect_timeout is in seconds");
	return PQconnectdbParams(keywords, values, true); /* what the URL says overrides what is before it */
}

/* Settings that keep others from waiting for a stopped or dead client, and that fix the isolation. Not
 * every server knows all of them. */
static const char *const manners[] = {
    "SET default_transaction_isolation = 'read committed'",
    "SET idle_in_transaction_session_timeout = 15000",
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3",
    "SET client_connection_check_interval = 5000",
};

_Static_assert(PG_IDLE_TXN_MS == 15000, "the statement says so");

static int conn_begin(struct pg_conn *c, const char *address, int64_t timeout_ms, struct err *e)
{
	if (PQstatus(c->vendor) != CONNECTION_OK) {
		struct err why;
		sentence_take(&why, PQerrorMessage(c->vendor));
		return err_set(e, ERR_UNAVAILABLE, "%s: %s", address, why.text);
	}
	PQsetNoticeReceiver(c->vendor, notice_ignore, NULL);
	if (PQsetnonblocking(c->vendor, 1) != 0 || !PQenterPipelineMode(c->vendor))
		return err_set(e, ERR_NOMEM, "%s: memory ran out", address);
	int r = pg_timeout(c, (uint64_t)timeout_ms, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(manners); i++) {
		int refused = pg_run(c, manners[i], e);
		r = c->failed ? refused : 0;
	}
	c->trouble.text[0] = '\0';
	return r;
}

int pg_conn_open(const char *url, const char *address, int64_t timeout_ms, struct pg_conn **ret,
                 struct err *e)
{
	struct pg_conn *c = calloc(1, sizeof(*c));
	if (!c || !(c->vendor = vendor_open(url))) {
		free(c);
		return err_set(e, ERR_NOMEM, "%s: memory ran out", address);
	}
	int r = conn_begin(c, address, timeout_ms, e);
	if (r != 0)
		pg_conn_close(c);
	else
		*ret = c;
	return r;
}

void pg_conn_close(void *conn)
{
	struct pg_conn *c = conn;
	if (!c)
		return;
	PQfinish(c->vendor);
	free(c->pending);
	free(c);
}
