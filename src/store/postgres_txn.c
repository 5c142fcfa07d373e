#include "store/postgres_txn.h"

#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	TRIES_MAX = 8,
	TRIES_TOGETHER = 2,        /* then alone, as in the first after a deadlock */
	TRY_PAUSE_MS = 5,          /* times the number of the try */
	RESOLVE_TIMEOUT_MS = 5000, /* a server that crashed is often back by then */
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
	txn_fail(t, ERR_NOMEM, &(const struct err){"memory ran out"});
}

void txn_put(struct postgres_txn *t, struct pg_query *q)
{
	pg_send(q);
	t->put_count++;
}

void txn_put_kept(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret)
{
	ASSERT(!t->kept);
	t->kept = ret;
	t->kept_at = t->put_count;
	txn_put(t, q);
}

void txn_ask_add(struct postgres_txn *t, struct pg_query *q)
{
	t->is_asking = true;
	pg_send(q);
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
	txn_ask_add(t, q);
	txn_ask_send(t);
	txn_ask_next(t, ret);
	int r = txn_ask_end(t);
	if (r != 0)
		pg_result_end(ret);
	return r;
}

/* --- marks --- */

enum { MARK_ID_BYTES = 20 };

struct postgres_mark {
	uint8_t id[MARK_ID_BYTES];
	int64_t sequence; /* of the last transaction */
	bool is_lent;
};

struct postgres_marks {
	pthread_mutex_t lock; /* guards who is lent */
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

/* Also where there is no row yet this waits for the transaction that is making it. */
static const struct pg_statement mark_get = {
    "mark_get", "INSERT INTO commit_mark (writer, sequence, at_ms) VALUES ($1, 0, $2)"
                " ON CONFLICT (writer) DO UPDATE SET at_ms = excluded.at_ms RETURNING sequence"};

static void mark_put(struct postgres_txn *t, struct postgres_mark *mark)
{
	struct pg_query q = txn_query(t, &mark_set);
	pg_bytes(&q, mark->id, MARK_ID_BYTES);
	pg_int(&q, ++mark->sequence);
	pg_int(&q, clock_real_ms());
	txn_put(t, &q);
}

static int mark_ask(struct pg_conn *c, const struct postgres_mark *mark, bool *ret_committed)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(c, &mark_get);
	pg_bytes(&q, mark->id, MARK_ID_BYTES);
	pg_int(&q, clock_real_ms());
	int r = pg_ask(&q, &result, NULL);
	if (r == 0)
		*ret_committed = pg_get_int(&result, 0, 0) == mark->sequence;
	return r;
}

static int mark_ask_once(struct pg_pool *pool, const struct postgres_mark *mark, bool *ret_committed)
{
	struct pg_conn *c = pg_take(pool, NULL);
	int r = c ? mark_ask(c, mark, ret_committed) : ERR_UNAVAILABLE;
	pg_return(c);
	return r;
}

/* The answer to COMMIT got lost: 0 it happened; ERR_BUSY it did not; ERR_UNCERTAIN nobody tells. */
static int commit_resolve(struct pg_pool *pool, const struct postgres_mark *mark)
{
	int64_t until_ms = clock_mono_ms() + RESOLVE_TIMEOUT_MS;
	do {
		bool committed;
		if (mark_ask_once(pool, mark, &committed) == 0)
			return committed ? 0 : ERR_BUSY;
		usleep(RESOLVE_PAUSE_MS * 1000);
	} while (clock_mono_ms() < until_ms);
	return ERR_UNCERTAIN;
}

/* --- transactions --- */

static const struct pg_statement txn_begin = {"txn_begin", TXN_BEGIN};
static const struct pg_statement txn_commit = {"txn_commit", "COMMIT"};

/* The number is "curv". */
#define WAY_LOCK(function) \
	"SELECT " function "(1668641398, oid::int) FROM pg_namespace WHERE nspname = current_schema()"

static const struct pg_statement way_share = {"way_share", WAY_LOCK("pg_advisory_xact_lock_shared")};
static const struct pg_statement way_own = {"way_own", WAY_LOCK("pg_advisory_xact_lock")};

/* Who waits to be alone makes all others wait behind it. */
static const struct pg_statement way_patience = {"way_patience", "SET LOCAL lock_timeout = 1000"};
static const struct pg_statement lock_brief = {"lock_brief", "SET LOCAL lock_timeout = 250"};
_Static_assert(TXN_BRIEF_MS == 250, "the statement says so");

/* One try at a transaction: how it is to be made, and what was in its way. */
struct attempt {
	bool is_alone;
	bool is_refused; /* others did not come to an end: it cannot be alone */
	bool was_deadlocked;
	bool waited_in_vain;
};

static void plain_put(struct postgres_txn *t, const struct pg_statement *statement)
{
	struct pg_query q = txn_query(t, statement);
	txn_put(t, &q);
}

static int way_own_take(struct postgres_txn *t, struct attempt *a)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	plain_put(t, &way_patience);
	struct pg_query q = txn_query(t, &way_own);
	int r = txn_ask(t, &q, &none);
	a->is_refused = r == ERR_BUSY;
	return r;
}

static int txn_work(struct postgres_txn *t, struct postgres_mark *mark, const struct postgres_work *work,
                    struct attempt *a)
{
	plain_put(t, &txn_begin);
	int r = a->is_alone ? way_own_take(t, a) : 0;
	if (r != 0)
		return r;
	if (work->is_brief)
		plain_put(t, &lock_brief);
	if (work->gives_way && !a->is_alone)
		plain_put(t, &way_share);
	if (mark)
		mark_put(t, mark);
	r = work->run(t, work->ctx);
	return r ? r : t->error;
}

/* What was put last travels with the COMMIT, which is skipped when one of them fails. */
static int txn_end(struct postgres_txn *t)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = txn_query(t, &txn_commit);
	return txn_ask(t, &q, &result);
}

/* Once, on one connection, which is given back. A unique violation is somebody else's doing: what we looked
 * for was not there when we looked. */
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
	if (at_commit)
		r = txn_end(&t);
	bool lost = pg_conn_failed(c);
	a->was_deadlocked = pg_was_deadlocked(c);
	a->waited_in_vain = pg_waited_in_vain(c);
	/* Otherwise the connection is closed, which comes to the same. */
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
	struct err why = {"others were in the way each time"};
	bool can_be_alone = work->gives_way;
	struct attempt a = {.is_alone = false};
	for (unsigned i = 1; i <= TRIES_MAX; i++) {
		int r = txn_try(pool, mark, work, &a, &why);
		/* Whoever holds it may have gone: others are not to wait as well. */
		if (r != ERR_BUSY || (a.waited_in_vain && !a.is_refused))
			return r ? err_set(e, r, "%s", why.text) : 0;
		can_be_alone &= !a.is_refused;
		a = (struct attempt){.is_alone = can_be_alone &&
		                                 (a.is_alone || a.was_deadlocked || i >= TRIES_TOGETHER)};
		usleep(i * TRY_PAUSE_MS * 1000);
	}
	pg_pool_log(pool, why.text);
	return err_set(e, ERR_UNAVAILABLE, "%s", why.text);
}
