#include "store/postgres_rows.h"

#include "store/rules.h"

static bool cell_str(const struct pg_result *r, int row, int col, struct arena *arena, struct str *ret)
{
	*ret = pg_get_text(r, row, col);
	return str_own(arena, ret);
}

static uint64_t cell_u64(const struct pg_result *r, int row, int col)
{
	return (uint64_t)pg_get_int(r, row, col);
}

int postgres_row_link(const struct pg_result *r, int row, struct arena *arena, struct link_record *ret)
{
	struct link_record link = {
	    .id = cell_u64(r, row, COLUMN_ID),
	    .is_alias = pg_get_int(r, row, COLUMN_IS_ALIAS),
	    .owner = cell_u64(r, row, COLUMN_OWNER),
	    .api_key = cell_u64(r, row, COLUMN_API_KEY),
	    .user_name = pg_get_text(r, row, COLUMN_USER_NAME),
	    .url = pg_get_text(r, row, COLUMN_URL),
	    .created_ms = pg_get_int(r, row, COLUMN_CREATED),
	    .updated_ms = pg_get_int(r, row, COLUMN_UPDATED),
	    .not_before_ms = pg_get_int(r, row, COLUMN_NOT_BEFORE),
	    .expires_ms = pg_get_int(r, row, COLUMN_EXPIRES),
	    .expired_url = pg_get_text(r, row, COLUMN_EXPIRED_URL),
	    .max_clicks = cell_u64(r, row, COLUMN_MAX_CLICKS),
	    .redirect_status = (uint16_t)pg_get_int(r, row, COLUMN_STATUS),
	    .enabled = pg_get_int(r, row, COLUMN_ENABLED),
	    .is_private = pg_get_int(r, row, COLUMN_PRIVATE),
	    .password = pg_get_text(r, row, COLUMN_PASSWORD),
	    .title = pg_get_text(r, row, COLUMN_TITLE),
	    .note = pg_get_text(r, row, COLUMN_NOTE),
	    .tags = pg_get_text(r, row, COLUMN_TAGS),
	    .clicks = cell_u64(r, row, COLUMN_CLICKS),
	};
	if (link.is_alias)
		link.key = postgres_row_name(r, row);
	if (!id_is_valid(link.id) || !link.url.ptr)
		return ERR_CORRUPT;
	int result = link_own(arena, &link);
	if (result == 0)
		*ret = link;
	return result;
}

int postgres_row_user(const struct pg_result *r, int row, struct arena *arena, struct user_record *ret)
{
	struct user_record user = {
	    .id = cell_u64(r, row, 0),
	    .email = pg_get_text(r, row, 1),
	    .first_name = pg_get_text(r, row, 2),
	    .middle_name = pg_get_text(r, row, 3),
	    .last_name = pg_get_text(r, row, 4),
	    .role = (enum user_role)pg_get_int(r, row, 5),
	    .enabled = pg_get_int(r, row, 6),
	    .password = pg_get_text(r, row, 7),
	    .generation = cell_u64(r, row, 8),
	    .created_ms = pg_get_int(r, row, 9),
	    .updated_ms = pg_get_int(r, row, 10),
	};
	if (user.role < ROLE_VIEWER || user.role > ROLE_ADMIN)
		return ERR_CORRUPT;
	int result = user_own(arena, &user);
	if (result == 0)
		*ret = user;
	return result;
}

int postgres_row_key(const struct pg_result *r, int row, struct arena *arena, struct key_record *ret)
{
	struct key_record key = {
	    .id = cell_u64(r, row, 0),
	    .user = cell_u64(r, row, 1),
	    .rights = (unsigned)pg_get_int(r, row, 4),
	    .created_ms = pg_get_int(r, row, 5),
	    .expires_ms = pg_get_int(r, row, 6),
	    .revoked_ms = pg_get_int(r, row, 7),
	    .used_ms = pg_get_int(r, row, 8),
	    .creates_max = cell_u64(r, row, 9),
	    .redirects_max = cell_u64(r, row, 10),
	    .period_ms = cell_u64(r, row, 11),
	};
	struct str digest = pg_get_text(r, row, 3);
	if (digest.len != KEY_DIGEST_BYTES)
		return ERR_CORRUPT;
	memcpy(key.digest, digest.ptr, KEY_DIGEST_BYTES);
	if (!cell_str(r, row, 2, arena, &key.name))
		return ERR_NOMEM;
	*ret = key;
	return 0;
}

bool postgres_row_is(const struct pg_result *r, int row, struct link_ref ref)
{
	return !ref.key.ptr || pg_get_int(r, row, COLUMN_IS_ALIAS) || cell_u64(r, row, COLUMN_ID) == ref.id;
}

int postgres_error(int r)
{
	switch (r) {
	case 0:
	case ERR_NOMEM:
	case ERR_CORRUPT:
	case ERR_UNCERTAIN: return r;
	default: return ERR_UNAVAILABLE;
	}
}
