#include "store/postgres_txn.h"

#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	TRIES_MAX = 8,
	SHARED_TRIES = 2,          /* then exclusively, and after every deadlock */
	TRY_PAUSE_MS = 5,          /* times the number of the try */
	RESOLVE_TIMEOUT_MS = 5000, /* a crashed server has often restarted by then */
	RESOLVE_PAUSE_MS = 20,
};

/* --- putting and asking --- */

static int txn_fail(struct postgres_txn *t, int error, const struct err *why)
{
	if (t->error == 0) {
		t->error = error;
		err_set(t->e, error, "%s", why->text);
	}
	return t->error;
}

void txn_no_memory_note(struct postgres_txn *t)
{
	txn_fail(t, ERR_NOMEM, &(const struct err){"out of memory"});
}

void txn_put(struct postgres_txn *t, struct pg_query *q)
{
	pg_send(q);
	t->put_count++;
}

void txn_put_values(struct postgres_txn *t, const struct pg_statement *statement,
                    const struct pg_value *values, size_t n)
{
	pg_send_values(t->conn, statement, values, n);
	t->put_count++;
}

void txn_put_kept(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret)
{
	ASSERT(!t->kept);
	t->kept = ret;
	t->kept_at = t->put_count;
	txn_put(t, q);
}

int txn_ask_send(struct postgres_txn *t)
{
	pg_flush(t->conn);
	for (size_t i = 0; i < t->put_count; i++) {
		struct pg_result result;
		struct err why = {""};
		int r = pg_next(t->conn, &result, &why);
		if (r == 0 && t->kept && i == t->kept_at)
			*t->kept = result;
		else
			pg_result_end(&result);
		if (r != 0)
			txn_fail(t, r, &why);
	}
	t->put_count = 0;
	t->kept = NULL;
	return t->error;
}

int txn_ask_next(struct postgres_txn *t, struct pg_result *ret)
{
	struct err why = {""};
	int r = pg_next(t->conn, ret, &why);
	return r ? txn_fail(t, r, &why) : 0;
}

int txn_ask_end(struct postgres_txn *t)
{
	struct err why = {""};
	t->is_asking = false;
	int r = pg_sync(t->conn, &why);
	return r ? txn_fail(t, r, &why) : t->error;
}

int txn_ask(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret)
{
	t->is_asking = true;
	pg_send(q);
	txn_ask_send(t);
	txn_ask_next(t, ret);
	int r = txn_ask_end(t);
	if (r != 0)
		pg_result_end(ret);
	return r;
}

void txn_ask_add_values(struct postgres_txn *t, const struct pg_statement *statement,
                        const struct pg_value *values, size_t n)
{
	t->is_asking = true;
	pg_send_values(t->conn, statement, values, n);
}

int txn_ask_values(struct postgres_txn *t, const struct pg_statement *statement, struct pg_result *ret,
                   const struct pg_value *values, size_t n)
{
	struct pg_query q = txn_query(t, statement);
	pg_bind(&q, values, n);
	return txn_ask(t, &q, ret);
}

/* --- marks --- */

enum { MARK_ID_BYTES = 20 };

struct postgres_mark {
	uint8_t id[MARK_ID_BYTES];
	int64_t sequence; /* number of the last transaction */
	bool is_lent;
};

struct postgres_marks {
	pthread_mutex_t lock; /* guards is_lent */
	pthread_cond_t returned;
	size_t count;
	struct postgres_mark marks[];
};

struct postgres_marks *postgres_marks_new(size_t count)
{
	struct postgres_marks *m = calloc(1, sizeof(*m) + count * sizeof(m->marks[0]));
	if (!m)
		return NULL;
	m->count = count;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->returned, NULL);
	for (size_t i = 0; i < count; i++)
		ASSERT(getrandom(m->marks[i].id, MARK_ID_BYTES, 0) == MARK_ID_BYTES);
	return m;
}

void postgres_marks_free(struct postgres_marks *m)
{
	if (!m)
		return;
	pthread_cond_destroy(&m->returned);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static struct postgres_mark *mark_find_locked(struct postgres_marks *m)
{
	for (size_t i = 0; i < m->count; i++) {
		if (!m->marks[i].is_lent)
			return &m->marks[i];
	}
	return NULL;
}

struct postgres_mark *postgres_mark_take(struct postgres_marks *m)
{
	struct postgres_mark *mark;
	pthread_mutex_lock(&m->lock);
	while (!(mark = mark_find_locked(m)))
		pthread_cond_wait(&m->returned, &m->lock);
	mark->is_lent = true;
	pthread_mutex_unlock(&m->lock);
	return mark;
}

void postgres_mark_return(struct postgres_marks *m, struct postgres_mark *mark)
{
	pthread_mutex_lock(&m->lock);
	mark->is_lent = false;
	pthread_cond_signal(&m->returned);
	pthread_mutex_unlock(&m->lock);
}

static const struct pg_statement mark_set = {
    "mark_set", "INSERT INTO commit_mark (writer, sequence, at_ms) VALUES ($1, $2, $3)"
                " ON CONFLICT (writer) DO UPDATE SET sequence = excluded.sequence, at_ms = excluded.at_ms"};

/* This waits for a transaction that is writing the row, also if there is no row yet. */
static const struct pg_statement mark_get = {
    "mark_get", "INSERT INTO commit_mark (writer, sequence, at_ms) VALUES ($1, 0, $2)"
                " ON CONFLICT (writer) DO UPDATE SET at_ms = excluded.at_ms RETURNING sequence"};

static int mark_ask(struct pg_conn *c, const struct postgres_mark *mark, bool *ret_committed)
{
	int64_t sequence = 0;
	int r = PG_ASK_INT(c, &mark_get, &sequence, PG_BYTES(mark->id, MARK_ID_BYTES),
	                   PG_INT(clock_real_ms()));
	*ret_committed = sequence == mark->sequence;
	return r;
}

/* The answer to COMMIT was lost: 0 it was applied; ERR_BUSY it was not; ERR_UNCERTAIN unknown. */
static int commit_resolve(struct pg_pool *pool, const struct postgres_mark *mark)
{
	int64_t until_ms = clock_mono_ms() + RESOLVE_TIMEOUT_MS;
	do {
		bool committed;
		struct pg_conn *c = pg_take(pool, NULL);
		int r = c ? mark_ask(c, mark, &committed) : ERR_UNAVAILABLE;
		pg_return(c);
		if (r == 0)
			return committed ? 0 : ERR_BUSY;
		usleep(RESOLVE_PAUSE_MS * 1000);
	} while (clock_mono_ms() < until_ms);
	return ERR_UNCERTAIN;
}

/* --- transactions --- */

static const struct pg_statement txn_begin = {"txn_begin", TXN_BEGIN};
static const struct pg_statement txn_commit = {"txn_commit", "COMMIT"};

/* The advisory lock is "curv". */
#define SERIALIZE_LOCK(function) \
	"SELECT " function "(1668641398, oid::int) FROM pg_namespace WHERE nspname = current_schema()"

static const struct pg_statement exclusive_lock_share = {"exclusive_lock_share",
                                                         SERIALIZE_LOCK("pg_advisory_xact_lock_shared")};
static const struct pg_statement exclusive_lock_take = {"exclusive_lock_take",
                                                        SERIALIZE_LOCK("pg_advisory_xact_lock")};

/* A waiting exclusive lock makes all others wait behind it. */
static const struct pg_statement exclusive_timeout = {"exclusive_timeout", "SET LOCAL lock_timeout = 1000"};
static const struct pg_statement brief_timeout = {"brief_timeout", "SET LOCAL lock_timeout = 250"};
_Static_assert(TXN_BRIEF_MS == 250, "the statement says so");

/* One attempt at a transaction: its mode, and why it failed. */
struct attempt {
	bool is_exclusive;
	bool exclusive_timed_out; /* others did not finish in time */
	bool was_deadlocked;
	bool lock_timed_out;
};

static int exclusive_lock_wait(struct postgres_txn *t, struct attempt *a)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	TXN_PUT(t, &exclusive_timeout);
	int r = TXN_ASK(t, &exclusive_lock_take, &none);
	a->exclusive_timed_out = r == ERR_BUSY;
	return r;
}

static int txn_work(struct postgres_txn *t, struct postgres_mark *mark, const struct postgres_work *work,
                    struct attempt *a)
{
	TXN_PUT(t, &txn_begin);
	int r = a->is_exclusive ? exclusive_lock_wait(t, a) : 0;
	if (r != 0)
		return r;
	if (work->is_brief)
		TXN_PUT(t, &brief_timeout);
	if (work->can_serialize && !a->is_exclusive)
		TXN_PUT(t, &exclusive_lock_share);
	if (mark)
		TXN_PUT(t, &mark_set, PG_BYTES(mark->id, MARK_ID_BYTES), PG_INT(++mark->sequence),
		        PG_INT(clock_real_ms()));
	r = work->run(t, work->ctx);
	return r ? r : t->error;
}

/* One attempt, on one connection. A unique violation is a race: the row did not exist when we looked. */
static int txn_try(struct pg_pool *pool, struct postgres_mark *mark, const struct postgres_work *work,
                   struct attempt *a, struct err *e)
{
	struct pg_conn *c = pg_take(pool, e);
	if (!c)
		return ERR_UNAVAILABLE;
	struct postgres_txn t = {
	    .conn = c, .is_distributed = work->is_distributed, .is_postgres = work->is_postgres, .e = e};
	int r = txn_work(&t, mark, work, a);
	bool at_commit = r == 0;
	CLEANUP(pg_result_end) struct pg_result committed = {NULL, 0};
	if (at_commit) /* pending statements are sent with the COMMIT, which is skipped if one of them fails */
		r = TXN_ASK(&t, &txn_commit, &committed);
	bool lost = pg_conn_failed(c);
	a->was_deadlocked = pg_was_deadlocked(c);
	a->lock_timed_out = pg_lock_timed_out(c);
	/* otherwise the pool closes the connection, which also rolls back */
	if (r != 0 && !lost && t.put_count == 0 && !t.is_asking)
		pg_run(c, "ROLLBACK", NULL);
	pg_return(c);
	arena_release(&t.scratch);
	if (t.error == ERR_CONFLICT)
		return ERR_BUSY;
	if (at_commit && lost)
		return mark ? commit_resolve(pool, mark) : ERR_UNCERTAIN;
	return lost ? ERR_BUSY : r;
}

int postgres_txn_run(struct pg_pool *pool, struct postgres_mark *mark, const struct postgres_work *work,
                     struct err *e)
{
	struct err why = {"the transaction conflicted with others on every attempt"};
	bool may_be_exclusive = work->can_serialize;
	struct attempt a = {.is_exclusive = false};
	for (unsigned i = 1; i <= TRIES_MAX; i++) {
		int r = txn_try(pool, mark, work, &a, &why);
		/* a lock timeout is not retried: others shall not wait as well */
		if (r != ERR_BUSY || (a.lock_timed_out && !a.exclusive_timed_out))
			return r ? err_set(e, r, "%s", why.text) : 0;
		may_be_exclusive &= !a.exclusive_timed_out;
		a = (struct attempt){
		    .is_exclusive = may_be_exclusive &&
		                    (a.is_exclusive || a.was_deadlocked || i >= SHARED_TRIES)};
		usleep(i * TRY_PAUSE_MS * 1000);
	}
	pg_pool_log(pool, why.text);
	return err_set(e, ERR_UNAVAILABLE, "%s", why.text);
}
