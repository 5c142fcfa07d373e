/* What must hold between the rows of a link file, beyond what SQLite can check. */
#include "client/sqlite_check.h"
#include "store/backends.h"
#include "store/sqlite_store.h"

struct verifier {
	struct sqlite_verify base;
	bool (*is_valid)(const struct link_record *);
};

/* Could we have written this row? */
static bool link_row_is_valid(const struct verifier *v, sqlite3_stmt *row, struct arena *arena)
{
	struct link_record link;
	return sqlite_row_link(row, arena, &link) == 0 && (!v->is_valid || v->is_valid(&link));
}

static bool user_row_is_valid(const struct verifier *v, sqlite3_stmt *row, struct arena *arena)
{
	struct user_record user;
	(void)v;
	return sqlite_row_read(row, &user_fields, arena, &user, sizeof(user)) == 0;
}

static bool key_row_is_valid(const struct verifier *v, sqlite3_stmt *row, struct arena *arena)
{
	struct key_record key;
	(void)v;
	return sqlite_row_read(row, &key_fields, arena, &key, sizeof(key)) == 0;
}

static const struct row_kind {
	unsigned sql;
	int64_t from;
	const char *name;
	bool (*is_valid)(const struct verifier *v, sqlite3_stmt *row, struct arena *arena);
} row_kinds[] = {
    {SQL_LINKS_OF_ALL, INT64_MAX, "link", link_row_is_valid},
    {SQL_USERS, INT64_MIN, "user", user_row_is_valid},
    {SQL_KEYS_OF_ALL, INT64_MIN, "API key", key_row_is_valid},
};

static int verify_rows(const struct verifier *v, struct sqlite_conn *c, const struct row_kind *kind,
                       struct buf *report)
{
	CLEANUP(query_end)
	struct query q = QUERY_VALUES(c, kind->sql, Q_INT(kind->from), Q_INT(-1)); /* no limit */
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		struct arena CLEANUP(arena_release) arena = {0};
		if (kind->is_valid(v, q.stmt, &arena))
			continue;
		buf_printf(report, "a row of a %s has values that curt does not write", kind->name);
		return SQLITE_OK;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int verify_aliases(struct sqlite_conn *c, struct buf *report)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_ALIAS_ASTRAY);
	bool found;
	int rc = query_find(&q, &found);
	if (found)
		buf_printf(report, "the alias '%s' and its link do not name each other",
		           (const char *)sqlite3_column_text(q.stmt, 0));
	return rc;
}

static int verify(struct sqlite_verify *base, struct sqlite_conn *c, struct buf *report)
{
	const struct verifier *v = container_of(base, struct verifier, base);
	int rc = SQLITE_OK;
	for (size_t i = 0; i < ARRAY_LEN(row_kinds) && rc == SQLITE_OK && report->len == 0; i++)
		rc = verify_rows(v, c, &row_kinds[i], report);
	return rc == SQLITE_OK && report->len == 0 ? verify_aliases(c, report) : rc;
}

void store_sqlite_check(const char *path, bool is_deep, bool is_in_use,
                        bool (*is_valid)(const struct link_record *), struct findings *f)
{
	struct verifier v = {.base = {verify}, .is_valid = is_valid};
	const struct sqlite_check check = {
	    .layout = &link_file_layout, .verify = &v.base, .is_deep = is_deep, .is_in_use = is_in_use};
	sqlite_check(path, &check, f);
}
