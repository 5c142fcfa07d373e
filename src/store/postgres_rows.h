/*
 * Rows of a PostgreSQL store.
 *
 * Strings are bytea, because they are arbitrary bytes that text would refuse. A link's primary key is the
 * text of its key, generated or chosen, so that one unique constraint decides who gets it.
 */
#pragma once

#include "client/postgres.h"
#include "store/fields.h"
#include "store/store.h"

#define POSTGRES_FIRST(column, ...)   #column
#define POSTGRES_NEXT(column, ...)    ", " #column
#define POSTGRES_OF_LINK(column, ...) ", l." #column
#define POSTGRES_NONE(...)

/* Of a table with the alias l. */
#define LINK_COLUMNS                                                                                     \
	"l.key, l.is_alias, l.key_id, l.permitted_count" LINK_FIELDS(POSTGRES_OF_LINK, POSTGRES_OF_LINK, \
	                                                             POSTGRES_OF_LINK, POSTGRES_NONE)
#define USER_COLUMNS USER_FIELDS(POSTGRES_FIRST, POSTGRES_NEXT, POSTGRES_NEXT, POSTGRES_NONE)
#define KEY_COLUMNS  KEY_FIELDS(POSTGRES_FIRST, POSTGRES_NEXT, POSTGRES_NEXT, POSTGRES_NONE)

/* The order of LINK_COLUMNS. */
enum {
	COLUMN_KEY,
	COLUMN_IS_ALIAS,
	COLUMN_KEY_ID,
	COLUMN_PERMITTED,
	COLUMN_FIELDS,
	COLUMN_ID = COLUMN_FIELDS
};

/*
 * Binding the stored fields of records, in the order of their rows. Statements list them with fields_sql:
 *
 *	INSERT INTO users (postgres_names) VALUES (postgres_params)      postgres_bind_record
 *	... FROM unnest(postgres_arrays) AS n (postgres_names)           postgres_bind_records
 *	INSERT INTO link (postgres_names) SELECT postgres_of_n
 *	UPDATE link SET postgres_set_of_n
 */
extern const struct fields_pattern postgres_names, postgres_params, postgres_set_params, postgres_arrays,
    postgres_of_n, postgres_set_of_n;

/* Out of memory sets q->failed. */
void postgres_bind_record(struct pg_query *q, const struct fields *s, enum fields_which which,
                          const void *record);

/* One array per field, over n records. `scratch` must live until the query was sent. */
void postgres_bind_records(struct pg_query *q, const struct fields *s, enum fields_which which,
                           const void *const *records, size_t n, struct arena *scratch);

/* Reads all stored fields, starting at `column`: 0, ERR_CORRUPT or ERR_NOMEM (the record may then be half
 * filled). Strings go to the arena. */
int postgres_read_record(const struct pg_result *r, int row, int column, const struct fields *s,
                         struct arena *arena, void *record);

/* Reads a row of LINK_COLUMNS: 0, ERR_CORRUPT or ERR_NOMEM. Strings go to the arena. */
int postgres_row_link(const struct pg_result *r, int row, struct arena *arena, struct link_record *ret);

/* The name of the link; valid until the result ends. */
static inline struct str postgres_row_name(const struct pg_result *r, int row)
{
	return pg_get_text(r, row, COLUMN_KEY);
}

/* Does `ref` mean this row? A generated link must match by id: another id means that the key is not its
 * key. */
bool postgres_row_is(const struct pg_result *r, int row, struct link_ref ref);

/* The store's error for an error of the database. */
int postgres_error(int r);
