#include "base/err.h"
#include "lib/test.h"
#include "store/fields.h"

static struct arena arena;
static struct buf out;

static int clean(void **state)
{
	arena_release(&arena);
	buf_release(&out);
	return 0;
}

static void assert_out(const char *expected)
{
	buf_char(&out, '\0');
	assert_false(out.failed);
	assert_string_equal(out.data, expected);
	buf_release(&out);
}

static const struct field *row(const struct fields *s, const char *name)
{
	const struct field *f = fields_find(s, str_of(name));
	assert_non_null(f);
	return f;
}

static struct link_record a_link(void)
{
	return (struct link_record){
	    .id = 7,
	    .key = STR("k"),
	    .owner = 3,
	    .api_key = 4,
	    .user_name = STR("u"),
	    .url = STR("https://example.com/"),
	    .created_ms = 1000,
	    .updated_ms = 2000,
	    .redirect_status = 302,
	    .enabled = true,
	    .password = STR("$argon2id$secret"),
	    .title = STR("say \"hi\""),
	    .clicks = 5,
	};
}

TEST(the_rows_of_each_record_are_sound)
{
	const struct fields *sets[] = {&link_fields, &user_fields, &key_fields};
	for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
		assert_true(sets[k]->count <= FIELDS_MAX);
		assert_int_equal(sets[k]->rows[0].type, FIELD_ID); /* FIRST */
		for (size_t i = 0; i < sets[k]->count; i++) {
			const struct field *f = &sets[k]->rows[i];
			bool given = f->flags & (FIELD_CREATE | FIELD_PATCH);
			assert_true(f->name || !given);
			assert_true(given || !f->option);
			assert_true(!(f->flags & FIELD_PATCH) || f->bit || f->type == FIELD_VIRTUAL);
			assert_true(!f->fixed || f->bit == 0);
			assert_true(!f->none || f->null);
			assert_int_equal(f->schema != NULL, f->type == FIELD_VIRTUAL);
			assert_true((f->type != FIELD_ENUM && f->type != FIELD_SET) || f->words);
			assert_true(!field_is_str(f) || f->size == sizeof(struct str));
			for (size_t j = 0; j < i; j++) { /* nothing stands there twice */
				const struct field *g = &sets[k]->rows[j];
				assert_false(f->name && g->name && strcmp(f->name, g->name) == 0);
				assert_false(f->column && g->column && strcmp(f->column, g->column) == 0);
			}
		}
	}
}

TEST(numbers_of_every_size_are_read_and_set)
{
	struct link_record link = {0};
	struct user_record user = {0};
	assert_true(field_set_int(row(&link_fields, "max_clicks"), &link, INT64_MAX));
	assert_true(field_set_int(row(&link_fields, "redirect_status"), &link, 65535));
	assert_true(field_set_int(row(&link_fields, "visibility"), &link, 1));
	assert_true(field_set_int(row(&link_fields, "expires_at"), &link, -1));
	assert_true(field_set_int(row(&user_fields, "role"), &user, ROLE_ADMIN));
	assert_true(link.max_clicks == INT64_MAX && link.redirect_status == 65535 && link.is_private);
	assert_true(link.expires_ms == -1 && user.role == ROLE_ADMIN);
	assert_int_equal(field_int(row(&link_fields, "max_clicks"), &link), INT64_MAX);
	assert_int_equal(field_int(row(&link_fields, "redirect_status"), &link), 65535);
	assert_int_equal(field_int(row(&link_fields, "visibility"), &link), 1);
	assert_int_equal(field_int(row(&link_fields, "expires_at"), &link), -1);
	assert_int_equal(field_int(row(&user_fields, "role"), &user), ROLE_ADMIN);
}

TEST(values_that_only_a_damaged_row_has_are_reported)
{
	struct link_record link = {0};
	struct user_record user = {0};
	assert_false(field_set_int(row(&link_fields, "redirect_status"), &link, 65536));
	assert_false(field_set_int(row(&link_fields, "redirect_status"), &link, -1));
	assert_false(field_set_int(&link_fields.rows[0], &link, 0));
	assert_false(field_set_int(&link_fields.rows[0], &link, -5));
	assert_false(field_set_int(row(&user_fields, "role"), &user, 0));
	assert_false(field_set_int(row(&user_fields, "role"), &user, 4));
}

TEST(words_stand_for_values_and_back)
{
	const struct field *role = row(&user_fields, "role");
	uint64_t v;
	assert_string_equal(field_word(role, ROLE_EDITOR), "editor");
	assert_null(field_word(role, 0));
	assert_null(field_word(role, 4));
	assert_true(field_value(role, STR("admin"), &v));
	assert_int_equal(v, ROLE_ADMIN);
	assert_false(field_value(role, STR("Admin"), &v));
	assert_false(field_value(role, STR_NULL, &v));
	field_words_list(&out, role);
	assert_out("viewer, editor or admin");
	field_words_list(&out, row(&link_fields, "visibility"));
	assert_out("public or private");
}

TEST(an_update_copies_what_its_bits_say_and_nothing_else)
{
	struct link_record from = {.url = STR("new"), .title = STR("t"), .owner = 9, .expires_ms = 5};
	struct link_record to = a_link(), expected = to;
	fields_copy(&link_fields, LINK_TITLE | LINK_OWNER | LINK_PASSWORD, &from, &to);
	expected.title = from.title;
	expected.owner = 9;
	expected.api_key = 0; /* goes with the owner */
	expected.password = STR_NULL;
	assert_memory_equal(&to, &expected, sizeof(to));
	fields_copy(&link_fields, 0, &from, &to);
	assert_memory_equal(&to, &expected, sizeof(to));
}

TEST(strings_move_to_the_arena_and_absent_ones_stay_absent)
{
	struct link_record link = a_link(), before = link;
	assert_int_equal(fields_own(&link_fields, &arena, &link), 0);
	assert_true(link.url.ptr != before.url.ptr && str_eq(link.url, before.url));
	assert_true(link.key.ptr != before.key.ptr && str_eq(link.key, before.key));
	assert_null(link.note.ptr);
	assert_int_equal(fields_differ(&link_fields, &link, &before), 0);
}

TEST(strings_are_summed)
{
	struct link_record link = a_link();
	assert_int_equal(fields_bytes(&link_fields, &link), link.key.len + link.user_name.len + link.url.len +
	                                                        link.password.len + link.title.len);
}

TEST(what_differs_is_told_field_by_field)
{
	struct link_record a = a_link(), b = a;
	b.note = STR(""); /* is not none */
	b.enabled = false;
	uint64_t differ = fields_differ(&link_fields, &a, &b);
	for (size_t i = 0; i < link_fields.count; i++) {
		const char *name = link_fields.rows[i].name;
		bool expected = name && (strcmp(name, "note") == 0 || strcmp(name, "enabled") == 0);
		assert_int_equal(differ >> i & 1, expected);
	}
}

TEST(every_type_has_its_json)
{
	const struct link_record link = a_link();
	const struct key_record key = {.rights = RIGHT_READ | RIGHT_ADMIN, .period_ms = 60000, .user = 8};
	const struct {
		const struct fields *fields;
		const void *record;
		const char *name, *json;
	} cases[] = {
	    {&link_fields, &link, "title", "\"say \\\"hi\\\"\""},
	    {&link_fields, &link, "note", "null"},
	    {&link_fields, &link, "tags", "[]"},
	    {&link_fields, &link, "password", "true"},
	    {&link_fields, &link, "created_at", "\"1970-01-01T00:00:01Z\""},
	    {&link_fields, &link, "expires_at", "null"},
	    {&link_fields, &link, "max_clicks", "null"},
	    {&link_fields, &link, "clicks", "5"},
	    {&link_fields, &link, "redirect_status", "302"},
	    {&link_fields, &link, "enabled", "true"},
	    {&link_fields, &link, "visibility", "\"public\""},
	    {&link_fields, &link, "owner", "3"},
	    {&key_fields, &key, "scopes", "[\"read\",\"admin\"]"},
	    {&key_fields, &key, "limit_period_s", "60"},
	    {&key_fields, &key, "creates_limit", "0"},
	    {&key_fields, &key, "user", "8"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		field_json(&out, row(cases[i].fields, cases[i].name), cases[i].record);
		assert_out(cases[i].json);
	}
	field_json(&out, row(&key_fields, "scopes"), &(struct key_record){0});
	assert_out("[]");
}

static bool own_json(struct buf *b, const struct field *f, const void *record, const void *ctx)
{
	(void)record;
	if (f->type == FIELD_USER)
		return false;
	buf_printf(b, "\"%s\"", (const char *)ctx);
	return true;
}

TEST(a_record_is_shown_without_what_is_hidden)
{
	const struct user_record user = {.id = 2,
	                                 .email = STR("a@b"),
	                                 .role = ROLE_VIEWER,
	                                 .password = STR("$argon2id$secret"),
	                                 .generation = 9};
	fields_json(&out, &user_fields, &user, NULL, NULL);
	assert_out("\"id\":2,\"email\":\"a@b\",\"first_name\":null,\"middle_name\":null,\"last_name\":null,"
	           "\"role\":\"viewer\",\"enabled\":false,\"created_at\":null,\"updated_at\":null");
	const struct link_record link = a_link();
	fields_json(&out, &link_fields, &link, own_json, "mine");
	buf_char(&out, '\0');
	assert_non_null(strstr(out.data, "\"has_password\":true"));
	assert_non_null(strstr(out.data, "\"domain\":\"mine\""));
	assert_non_null(strstr(out.data, "\"owner\":3"));
	assert_null(strstr(out.data, "argon2id"));
	assert_null(strstr(out.data, "alias"));
	assert_null(strstr(out.data, "user_name"));
}

TEST(changes_have_both_sides_and_no_secret)
{
	struct link_record before = a_link(), after = before;
	fields_changes_json(&out, &link_fields, &before, &after);
	assert_out("{}");
	after.title = STR("new");
	after.password = STR_NULL;
	after.expires_ms = 1000;
	after.updated_ms = 9; /* the store's own affair, as the clicks are */
	after.clicks = 99;
	fields_changes_json(&out, &link_fields, &before, &after);
	assert_out("{\"expires_at\":[null,\"1970-01-01T00:00:01Z\"],\"has_password\":[true,false],"
	           "\"title\":[\"say \\\"hi\\\"\",\"new\"]}");
	after = before;
	after.password = STR("$argon2id$other");
	fields_changes_json(&out, &link_fields, &before, &after);
	assert_out("{\"has_password\":[true,true]}");
	fields_changes_json(&out, &link_fields, NULL, &before);
	buf_char(&out, '\0');
	assert_non_null(strstr(out.data, "\"original_url\":[null,\"https://example.com/\"]"));
	assert_null(strstr(out.data, "argon2id"));
}

TEST(sql_names_columns_in_the_order_of_the_rows)
{
	static const struct fields_pattern pattern = {"@=$#", "@=$#!", "@=$#t"};
	assert_int_equal(fields_sql(&out, &user_fields, FIELDS_ALL, &pattern, 1), 12);
	assert_out("id=$1, email=$2t, first_name=$3t, middle_name=$4t, last_name=$5t, role=$6, enabled=$7!, "
	           "password=$8t, generation=$9, created_ms=$10, updated_ms=$11");
	assert_int_equal(fields_sql(&out, &user_fields, FIELDS_BUT_ID, &pattern, 5), 15);
	buf_release(&out);
	fields_sql(&out, &user_fields, FIELDS_CHANGING, &pattern, 1);
	buf_char(&out, '\0');
	assert_null(strstr(out.data, "created_ms"));
	assert_null(strstr(out.data, "id=$"));
	assert_non_null(strstr(out.data, "updated_ms"));
}

TEST(a_new_row_has_no_clicks_whatever_the_record_says)
{
	const struct link_record link = a_link();
	assert_int_equal(field_stored_int(row(&link_fields, "clicks"), &link), 0);
	assert_int_equal(field_stored_int(row(&link_fields, "redirect_status"), &link), 302);
}

TEST_MAIN(.teardown = clean)
