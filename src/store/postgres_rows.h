/*
 * Rows of a PostgreSQL store, read. For the files of the PostgreSQL store only.
 *
 * Strings are bytea: the role's strings are bytes, and text would refuse some of them. The text of a link's
 * key is its primary key, whether it was generated or chosen, so that one unique constraint decides.
 */
#pragma once

#include "client/postgres.h"
#include "store/fields.h"
#include "store/store.h"

#define POSTGRES_FIRST(column, ...)   #column
#define POSTGRES_NEXT(column, ...)    ", " #column
#define POSTGRES_OF_LINK(column, ...) ", l." #column
#define POSTGRES_NONE(...)

/* Of a table that the statement calls l. */
#define LINK_COLUMNS                                                                                     \
	"l.key, l.is_alias, l.key_id, l.permitted_count" LINK_FIELDS(POSTGRES_OF_LINK, POSTGRES_OF_LINK, \
	                                                             POSTGRES_OF_LINK, POSTGRES_NONE)
#define USER_COLUMNS USER_FIELDS(POSTGRES_FIRST, POSTGRES_NEXT, POSTGRES_NEXT, POSTGRES_NONE)
#define KEY_COLUMNS  KEY_FIELDS(POSTGRES_FIRST, POSTGRES_NEXT, POSTGRES_NEXT, POSTGRES_NONE)

/* Of LINK_COLUMNS. */
enum {
	COLUMN_KEY,
	COLUMN_IS_ALIAS,
	COLUMN_KEY_ID,
	COLUMN_PERMITTED,
	COLUMN_FIELDS,
	COLUMN_ID = COLUMN_FIELDS
};

/*
 * Values of a record's stored fields, in the order of their rows. A statement names them by fields_sql:
 *
 *	INSERT INTO users (postgres_names) VALUES (postgres_params)          with postgres_bind_record
 *	... FROM unnest(postgres_arrays) AS n (postgres_names)               with postgres_bind_records
 *	INSERT INTO link (postgres_names) SELECT postgres_of_n; UPDATE link SET postgres_set_of_n
 */
extern const struct fields_pattern postgres_names, postgres_params, postgres_set_params, postgres_arrays,
    postgres_of_n, postgres_set_of_n;

/* Both tell the query when memory runs out. */
void postgres_bind_record(struct pg_query *q, const struct fields *s, enum fields_which which,
                          const void *record);

/* One array for each field, over n records; scratch lives until the query was sent. */
void postgres_bind_records(struct pg_query *q, const struct fields *s, enum fields_which which,
                           const void *const *records, size_t n, struct arena *scratch);

/* Reads all stored fields, from that column on: 0, ERR_CORRUPT or ERR_NOMEM; then the record may be half
 * filled. Strings go to the arena. */
int postgres_read_record(const struct pg_result *r, int row, int column, const struct fields *s,
                         struct arena *arena, void *record);

/* 0, ERR_CORRUPT or ERR_NOMEM. Strings go to the arena. */
int postgres_row_link(const struct pg_result *r, int row, struct arena *arena, struct link_record *ret);

/* The name that the row goes by, good until the result ends. */
static inline struct str postgres_row_name(const struct pg_result *r, int row)
{
	return pg_get_text(r, row, COLUMN_KEY);
}

/* Is the row what `ref` means? A generated link is found by its id; with a wrong one the key was never its.
 */
bool postgres_row_is(const struct pg_result *r, int row, struct link_ref ref);

/* What a failure of the database means to a caller of the store. */
int postgres_error(int r);
