/*
 * Rows of a PostgreSQL store, read. For the files of the PostgreSQL store only.
 *
 * Strings are bytea: the role's strings are bytes, and text would refuse some of them. The text of a link's
 * key is its primary key, whether it was generated or chosen, so that one unique constraint decides.
 */
#pragma once

#include "client/postgres.h"
#include "store/store.h"

/* No other table has columns of these names, so that joins need no prefix, but `key` and `id`. */
#define LINK_COLUMNS_BUT_KEY_AND_ID                                                                     \
	"is_alias, owner, api_key, user_name, url, created_ms, updated_ms, not_before_ms, expires_ms, " \
	"expired_url, max_clicks, redirect_status, enabled, private, password, title, note, tags, "     \
	"clicks, key_id, permitted_count"
#define LINK_COLUMNS "l.key, l.id, " LINK_COLUMNS_BUT_KEY_AND_ID

enum {
	COLUMN_KEY,
	COLUMN_ID,
	COLUMN_IS_ALIAS,
	COLUMN_OWNER,
	COLUMN_API_KEY,
	COLUMN_USER_NAME,
	COLUMN_URL,
	COLUMN_CREATED,
	COLUMN_UPDATED,
	COLUMN_NOT_BEFORE,
	COLUMN_EXPIRES,
	COLUMN_EXPIRED_URL,
	COLUMN_MAX_CLICKS,
	COLUMN_STATUS,
	COLUMN_ENABLED,
	COLUMN_PRIVATE,
	COLUMN_PASSWORD,
	COLUMN_TITLE,
	COLUMN_NOTE,
	COLUMN_TAGS,
	COLUMN_CLICKS,
	COLUMN_KEY_ID,
	COLUMN_PERMITTED,
	COLUMN_END, /* of what LINK_COLUMNS stands for */
};

#define USER_COLUMNS                                                                                       \
	"id, email, first_name, middle_name, last_name, role, enabled, password, generation, created_ms, " \
	"updated_ms"
#define KEY_COLUMNS                                                                                     \
	"id, user_id, name, digest, rights, created_ms, expires_ms, revoked_ms, used_ms, creates_max, " \
	"redirects_max, period_ms"

/* 0, ERR_CORRUPT or ERR_NOMEM. Strings go to the arena. */
int postgres_row_link(const struct pg_result *r, int row, struct arena *arena, struct link_record *ret);
int postgres_row_user(const struct pg_result *r, int row, struct arena *arena, struct user_record *ret);
int postgres_row_key(const struct pg_result *r, int row, struct arena *arena, struct key_record *ret);

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
