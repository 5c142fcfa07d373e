#include "store/sqlite_change.h"

#include "store/rules.h"

int sqlite_change(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out)
{
	return store_write_is_link(w->kind) ? sqlite_change_link(c, w, out)
	                                    : sqlite_change_account(c, w, out);
}

/* Something that dies, the kind of write that adds it, and the statement that forgets dead ones. */
struct purge {
	enum store_write_kind kind;
	unsigned sql;
	int64_t per_write;
	int64_t life_ms; /* dead is what stood at this much before now, or earlier */
};

static const struct purge purges[] = {
    {STORE_LINK_CREATE, SQL_REPLAY_PURGE, REPLAY_PURGE_PER_CREATE, REPLAY_MS},
    {STORE_LINK_REAP, SQL_REST_PURGE, REST_PURGE_PER_REAP, 0},
    {STORE_SESSION_END, SQL_SESSION_PURGE, SESSION_PURGE_PER_END, 0},
};

static int purge(struct sqlite_conn *c, const struct purge *p, const struct store_write *writes, size_t n)
{
	int64_t count = 0, now_ms = 0;
	for (size_t i = 0; i < n; i++) {
		if (writes[i].kind == p->kind) {
			count++;
			now_ms = writes[i].now_ms;
		}
	}
	if (count == 0)
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, p->sql);
	query_int(&q, now_ms - p->life_ms);
	query_int(&q, p->per_write * count);
	return query_run(&q);
}

int sqlite_purge(struct sqlite_conn *c, const struct store_write *writes, size_t n)
{
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < ARRAY_LEN(purges); i++)
		rc = purge(c, &purges[i], writes, n);
	return rc;
}
