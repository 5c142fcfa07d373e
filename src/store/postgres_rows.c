#include "store/postgres_rows.h"

#include "store/rules.h"

const struct fields_pattern postgres_names = {"@", "@", "@"};
const struct fields_pattern postgres_params = {"$#::bigint", "$#", "$#"};
const struct fields_pattern postgres_set_params = {"@ = $#::bigint", "@ = $#", "@ = $#"};
const struct fields_pattern postgres_arrays = {"$#::bigint[]", "$#::bigint[]", "$#::bytea[]"};
const struct fields_pattern postgres_of_n = {"n.@", "n.@ <> 0", "n.@"};
const struct fields_pattern postgres_set_of_n = {"@ = n.@", "@ = n.@ <> 0", "@ = n.@"};

static struct str field_bytes(const struct field *f, const void *record)
{
	return field_is_str(f) ? *field_str(f, record) : str_n((const char *)record + f->offset, f->size);
}

void postgres_bind_record(struct pg_query *q, const struct fields *s, enum fields_which which,
                          const void *record)
{
	for (const struct field *f = s->rows, *end = f + s->count; f < end; f++) {
		if (!field_is_stored(f, which))
			continue;
		if (field_is_str(f) || f->type == FIELD_DIGEST)
			pg_text(q, field_bytes(f, record));
		else if (f->size == 1)
			pg_bool(q, field_int(f, record));
		else
			pg_int(q, field_stored_int(f, record));
	}
}

void postgres_bind_records(struct pg_query *q, const struct fields *s, enum fields_which which,
                           const void *const *records, size_t n, struct arena *scratch)
{
	int64_t *ints = arena_alloc(scratch, n * sizeof(*ints));
	struct str *strs = arena_alloc(scratch, n * sizeof(*strs));
	q->failed |= !ints || !strs;
	for (const struct field *f = s->rows, *end = f + s->count; !q->failed && f < end; f++) {
		if (!field_is_stored(f, which))
			continue;
		bool is_bytes = field_is_str(f) || f->type == FIELD_DIGEST;
		for (size_t i = 0; i < n; i++) {
			if (is_bytes)
				strs[i] = field_bytes(f, records[i]);
			else
				ints[i] = field_stored_int(f, records[i]);
		}
		if (is_bytes)
			pg_blobs(q, strs, n);
		else
			pg_ints(q, ints, n);
	}
}

static int cell_read(const struct pg_result *r, int row, int column, const struct field *f,
                     struct arena *arena, void *record)
{
	if (!field_is_str(f) && f->type != FIELD_DIGEST)
		return field_set_int(f, record, pg_get_int(r, row, column)) ? 0 : ERR_CORRUPT;
	struct str text = pg_get_text(r, row, column);
	if (f->type == FIELD_DIGEST) {
		if (text.len != f->size)
			return ERR_CORRUPT;
		memcpy((char *)record + f->offset, text.ptr, f->size);
		return 0;
	}
	if (!text.ptr && f->flags & FIELD_REQUIRED && !(f->flags & FIELD_NULL))
		return ERR_CORRUPT;
	*field_str_in(f, record) = text;
	return str_own(arena, field_str_in(f, record)) ? 0 : ERR_NOMEM;
}

int postgres_read_record(const struct pg_result *r, int row, int column, const struct fields *s,
                         struct arena *arena, void *record)
{
	int result = 0;
	for (const struct field *f = s->rows, *end = f + s->count; result == 0 && f < end; f++) {
		if (f->column)
			result = cell_read(r, row, column++, f, arena, record);
	}
	return result;
}

int postgres_row_link(const struct pg_result *r, int row, struct arena *arena, struct link_record *ret)
{
	struct link_record link = {.is_alias = pg_get_int(r, row, COLUMN_IS_ALIAS)};
	if (link.is_alias)
		link.key = postgres_row_name(r, row);
	if (!str_own(arena, &link.key))
		return ERR_NOMEM;
	int result = postgres_read_record(r, row, COLUMN_FIELDS, &link_fields, arena, &link);
	if (result == 0)
		*ret = link;
	return result;
}

bool postgres_row_is(const struct pg_result *r, int row, struct link_ref ref)
{
	return !ref.key.ptr || pg_get_int(r, row, COLUMN_IS_ALIAS) ||
	       (uint64_t)pg_get_int(r, row, COLUMN_ID) == ref.id;
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
