/*
 * The role `store` on PostgreSQL.
 *
 * Changes, leases and the like go to the primary, over the connections of `writers`; each batch of changes is
 * one transaction, and its answer means that the primary has it on disk. Reads have connections of their own
 * (`readers`), so that they never wait for changes.
 *
 * Other servers work on the same database. Whatever must not happen twice is decided by a unique constraint
 * or under a row's lock; whoever loses looks again (postgres_txn.h).
 */
#include "store/backends.h"
#include "store/postgres_change.h"
#include "store/postgres_layout.h"
#include "store/postgres_numbers.h"
#include "store/postgres_read.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

#include <stdlib.h>

enum { READERS_DEFAULT = 4, WRITERS_DEFAULT = 2 };

struct store_postgres {
	struct store base;
	atomic_uint calls; /* under way */
	struct pg_pool *writers, *readers;
	struct postgres_marks *marks;

	atomic_bool is_troubled; /* the last write failed: ping tries one */
};

static struct store_postgres *self(struct store *base)
{
	return container_of(base, struct store_postgres, base);
}

/* --- reading --- */

/* `call` reads over the connection `c`, and is done again when that turns out to be broken: the server may
 * have been restarted since it was used last. */
#define READ(s, call)                                                                  \
	({                                                                             \
		int result_ = ERR_UNAVAILABLE;                                         \
		bool again_ = true;                                                    \
		calls_enter(&(s)->calls);                                              \
		for (int try_ = 0; again_ && try_ < 2; try_++) {                       \
			struct pg_conn *c = pg_take((s)->readers, NULL);               \
			result_ = c ? (call) : ERR_UNAVAILABLE;                        \
			again_ = c && result_ == ERR_UNAVAILABLE && pg_conn_failed(c); \
			pg_return(c);                                                  \
		}                                                                      \
		calls_leave(&(s)->calls);                                              \
		result_;                                                               \
	})

static int postgres_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_postgres *s = self(base);
	return n > 0 ? READ(s, postgres_error(postgres_read_links(c, 0, reads, n))) : 0;
}

static int postgres_list(struct store *base, struct store_list *page)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_list(c, page));
}

static int postgres_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids,
                           size_t *ret_count)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_tagged(c, tag, max, ret_ids, ret_count));
}

static int postgres_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                              size_t *ret_count)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_permitted(c, link, arena, ret, ret_count));
}

static int postgres_over(struct store *base, struct store_over *over)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_over(c, over));
}

static int postgres_users(struct store *base, struct store_users *page)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_users(c, page));
}

static int postgres_user(struct store *base, uint64_t id, struct str email, struct arena *arena,
                         struct user_record *ret)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_user(c, id, email, arena, ret));
}

static int postgres_sessions(struct store *base, int64_t now_ms, struct arena *arena,
                             struct session_record **ret, size_t *ret_count)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_sessions(c, now_ms, arena, ret, ret_count));
}

static int postgres_keys(struct store *base, struct arena *arena, struct key_record **ret, size_t *ret_count)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_keys(c, arena, ret, ret_count));
}

static int postgres_version(struct store *base, uint64_t *ret)
{
	struct store_postgres *s = self(base);
	return READ(s, postgres_read_version(c, ret));
}

/* --- trouble --- */

static int write_note(struct store_postgres *s, int r)
{
	bool failed = r == ERR_UNAVAILABLE || r == ERR_UNCERTAIN || r == ERR_CORRUPT;
	atomic_store_explicit(&s->is_troubled, failed, memory_order_relaxed);
	return r;
}

/* --- changes --- */

struct apply_work {
	const struct store_write *writes;
	size_t n;
	struct store_outcome *outcomes;
};

static int apply_run(struct postgres_txn *t, void *ctx)
{
	const struct apply_work *work = ctx;
	memset(work->outcomes, 0, work->n * sizeof(*work->outcomes)); /* it may be done again */
	return postgres_change(t, work->writes, work->n, work->outcomes);
}

static int apply(struct store_postgres *s, struct store_write *writes, size_t n)
{
	struct store_outcome *outcomes = calloc(n, sizeof(*outcomes));
	if (!outcomes)
		return ERR_NOMEM;
	struct apply_work ctx = {.writes = writes, .n = n, .outcomes = outcomes};
	struct postgres_work work = {.run = apply_run, .ctx = &ctx};
	struct postgres_mark *mark = postgres_mark_take(s->marks);
	int r = postgres_error(postgres_txn_run(s->writers, mark, &work, NULL));
	postgres_mark_return(s->marks, mark);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return write_note(s, r);
}

static int postgres_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_postgres *s = self(base);
	if (n == 0)
		return 0;
	calls_enter(&s->calls);
	int r = apply(s, writes, n);
	calls_leave(&s->calls);
	return r;
}

#define WRITE(s, call)                               \
	({                                           \
		calls_enter(&(s)->calls);            \
		int result_ = write_note(s, (call)); \
		calls_leave(&(s)->calls);            \
		result_;                             \
	})

static int set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct store_postgres *s = self(base);
	return WRITE(s, postgres_set_clicks(s->writers, node, counts, n));
}

static int lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct store_postgres *s = self(base);
	return WRITE(s, postgres_lease(s->writers, counter, count, ret_first));
}

static int constant(struct store *base, struct str name, void *value, size_t len)
{
	struct store_postgres *s = self(base);
	return WRITE(s, postgres_constant(s->writers, name, value, len));
}

static int claim(struct store *base, int64_t now_ms, uint64_t rest_ms, size_t max, uint64_t *ret_ids,
                 size_t *ret_count)
{
	struct store_postgres *s = self(base);
	return WRITE(s, postgres_claim(s->writers, now_ms, rest_ms, max, ret_ids, ret_count));
}

/* --- health and life --- */

static int ping_read(struct store_postgres *s, struct err *e)
{
	struct pg_conn *c = pg_take(s->readers, e);
	int r = c ? pg_run(c, "SELECT 1", e) : ERR_UNAVAILABLE;
	pg_return(c);
	return postgres_error(r);
}

static int nothing_run(struct postgres_txn *t, void *ctx)
{
	(void)t;
	(void)ctx;
	return 0;
}

/* After a failure only a write can tell whether writing works again, and nobody may be writing: a server that
 * is not ready gets no requests. */
static int ping_write(struct store_postgres *s, struct err *e)
{
	struct postgres_work work = {.run = nothing_run};
	struct postgres_mark *mark = postgres_mark_take(s->marks);
	struct err why = {""};
	int r = write_note(s, postgres_error(postgres_txn_run(s->writers, mark, &work, &why)));
	postgres_mark_return(s->marks, mark);
	return r ? err_set(e, r, "%s", why.text) : 0;
}

static int ping(struct store *base, struct err *e)
{
	struct store_postgres *s = self(base);
	calls_enter(&s->calls);
	int r = ping_read(s, e);
	if (r == 0 && atomic_load_explicit(&s->is_troubled, memory_order_relaxed))
		r = ping_write(s, e);
	calls_leave(&s->calls);
	return r;
}

static void postgres_free(struct store *base)
{
	struct store_postgres *s = self(base);
	calls_wait(&s->calls);
	pg_pool_free(s->readers);
	pg_pool_free(s->writers);
	postgres_marks_free(s->marks);
	free(s);
}

static const struct store_ops postgres_ops = {
    .free = postgres_free,
    .lookup = postgres_lookup,
    .apply = postgres_apply,
    .list = postgres_list,
    .tagged = postgres_tagged,
    .set_clicks = set_clicks,
    .permitted = postgres_permitted,
    .over = postgres_over,
    .users = postgres_users,
    .user = postgres_user,
    .sessions = postgres_sessions,
    .keys = postgres_keys,
    .lease = lease,
    .constant = constant,
    .ping = ping,
    .version = postgres_version,
    .claim = claim,
};

/* A server that only follows another one would refuse every write. */
static int writer_setup(struct pg_conn *c, void *ctx, struct err *e)
{
	const struct store_postgres *s = ctx;
	if (pg_is_standby(c))
		return err_set(e, ERR_UNAVAILABLE, "%s is a standby: name the primary",
		               pg_pool_address(s->writers).ptr);
	return 0;
}

static int pools_open(struct store_postgres *s, const struct store_postgres_config *config, struct err *e)
{
	size_t writers = config->writers ? config->writers : WRITERS_DEFAULT;
	size_t readers = config->readers ? config->readers : READERS_DEFAULT;
	s->marks = postgres_marks_new(writers);
	if (!s->marks)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int r = pg_pool_new(config->url, writers, writer_setup, s, &s->writers, e);
	return r ? r : pg_pool_new(config->url, readers, NULL, NULL, &s->readers, e);
}

static int layout_make(struct store_postgres *s, struct err *e)
{
	struct err why = {""};
	struct pg_conn *c = pg_take(s->writers, e);
	if (!c)
		return ERR_UNAVAILABLE;
	int r = postgres_layout_make(c, &why);
	pg_return(c);
	return r ? err_set(e, r == ERR_INVALID ? r : ERR_UNAVAILABLE, "%s: %s",
	                   pg_pool_address(s->writers).ptr, why.text)
	         : 0;
}

int store_postgres_open(const struct store_postgres_config *config, struct store **ret, struct err *e)
{
	struct store_postgres *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "memory ran out");
	s->base.ops = &postgres_ops;
	int r = pools_open(s, config, e);
	if (r == 0)
		r = layout_make(s, e);
	if (r != 0) {
		postgres_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
