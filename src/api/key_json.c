#include "api/key_json.h"

#include "api/input.h"
#include "base/json_out.h"

#include <jansson.h>
#include <stdio.h>

enum { NAME_BYTES_MAX = 64, PERIOD_S_MAX = 31 * 24 * 3600, USER_BYTES_MAX = 254 };
static const uint64_t limit_max = UINT32_MAX;

static const struct {
	unsigned right;
	const char *name;
} names[] = {
    {RIGHT_READ, "read"},     {RIGHT_STATS, "stats"}, {RIGHT_CREATE, "create"},
    {RIGHT_DELETE, "delete"}, {RIGHT_ADMIN, "admin"},
};

const char *right_name(unsigned right)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (names[i].right == right)
			return names[i].name;
	}
	ASSERT(false);
}

void rights_json(struct buf *b, unsigned rights)
{
	const char *before = "[";
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (rights & names[i].right) {
			buf_printf(b, "%s\"%s\"", before, names[i].name);
			before = ",";
		}
	}
	buf_str(b, rights & RIGHTS_ALL ? STR("]") : STR("[]"));
}

void key_json(struct buf *b, const struct key_record *key, struct str text)
{
	buf_printf(b, "{\"id\":%llu,\"name\":", (unsigned long long)key->id);
	json_out_str(b, key->name);
	if (text.ptr) {
		buf_str(b, STR(",\"key\":"));
		json_out_str(b, text);
	}
	buf_printf(b, ",\"admin\":%s,\"scopes\":", key->rights & RIGHT_ADMIN ? "true" : "false");
	rights_json(b, key->rights);
	buf_printf(b, ",\"user\":%llu,\"created_at\":", (unsigned long long)key->user);
	json_out_time(b, key->created_ms);
	buf_str(b, STR(",\"expires_at\":"));
	json_out_time(b, key->expires_ms);
	buf_str(b, STR(",\"revoked_at\":"));
	json_out_time(b, key->revoked_ms);
	buf_str(b, STR(",\"last_used_at\":"));
	json_out_time(b, key->used_ms);
	buf_printf(b, ",\"creates_limit\":%llu,\"redirects_limit\":%llu,\"limit_period_s\":%llu}",
	           (unsigned long long)key->creates_max, (unsigned long long)key->redirects_max,
	           (unsigned long long)key->period_ms / 1000);
}

/* Reading */

static int add_right(unsigned *rights, struct str name, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (str_eq(name, str_of(names[i].name))) {
			*rights |= names[i].right;
			return 0;
		}
	}
	return err_set(
	    e, ERR_INVALID,
	    "the field 'scopes' has an unknown entry '%.*s'; there are create, read, delete, stats "
	    "and admin",
	    STR_ARG(name));
}

/* `text` is an array of strings, as INPUT_STRINGS gives it. */
static int read_scopes(struct str text, unsigned *ret, struct err *e)
{
	json_t *scopes = json_loadb(text.ptr, text.len, 0, NULL);
	int r = scopes ? 0 : ERR_NOMEM;
	*ret = 0;
	for (size_t i = 0; r == 0 && i < json_array_size(scopes); i++) {
		const json_t *scope = json_array_get(scopes, i);
		r = add_right(ret, str_n(json_string_value(scope), json_string_length(scope)), e);
	}
	json_decref(scopes);
	if (r == 0 && *ret == 0)
		r = err_set(e, ERR_INVALID,
		            "the field 'scopes' must not be empty: such a key could do nothing");
	return r;
}

static int read_rights(struct key_input *in, bool admin, bool admin_given, struct str scopes, struct err *e)
{
	in->rights = admin ? RIGHTS_ALL : RIGHTS_ALL & ~RIGHT_ADMIN;
	in->rights_given = scopes.ptr || admin;
	if (!scopes.ptr)
		return 0;
	int r = read_scopes(scopes, &in->rights, e);
	if (r == 0 && admin_given && admin != ((in->rights & RIGHT_ADMIN) != 0))
		r = err_set(e, ERR_INVALID,
		            "the fields 'admin' and 'scopes' contradict each other; give one of them");
	return r;
}

static int check(const struct key_input *in, int64_t now_ms, struct err *e)
{
	if (in->name.len == 0 || in->name.len > NAME_BYTES_MAX)
		return err_set(e, ERR_INVALID, "a key's name must have 1 to %d bytes", NAME_BYTES_MAX);
	if (in->creates_max > limit_max || in->redirects_max > limit_max)
		return err_set(e, ERR_INVALID, "a key's limit may be at most %llu",
		               (unsigned long long)limit_max);
	if (in->period_ms / 1000 > PERIOD_S_MAX)
		return err_set(e, ERR_INVALID, "a key's limit_period_s may be at most %d (31 days)",
		               PERIOD_S_MAX);
	if (in->expires_ms != 0 && in->expires_ms <= now_ms)
		return err_set(
		    e, ERR_INVALID,
		    "the field 'expires_at' lies in the past; give a later time, or null for none");
	return 0;
}

/* A user's id may come as the number that it is elsewhere. */
static int user_as_text(struct input *in)
{
	const json_t *user = json_object_get(in->json, "user");
	char text[32];
	if (!json_is_integer(user))
		return 0;
	snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(user));
	return json_object_set_new(in->json, "user", json_string(text)) == 0 ? 0 : ERR_NOMEM;
}

int key_input_read(struct str body, int64_t now_ms, struct arena *arena, struct key_input *ret, struct err *e)
{
	uint64_t period_s = 0;
	bool admin = false, admin_given, limits_given[3] = {false};
	struct str scopes = STR_NULL;
	*ret = (struct key_input){0};
	const struct input_field fields[] = {
	    {"name", INPUT_TEXT, &ret->name, .required = true},
	    {"scopes", INPUT_STRINGS, &scopes},
	    {"admin", INPUT_BOOL, &admin, .ret_given = &admin_given},
	    {"user", INPUT_STRING, &ret->user, .bytes_max = USER_BYTES_MAX},
	    {"expires_at", INPUT_TIME_OR_NULL, &ret->expires_ms},
	    {"creates_limit", INPUT_UINT, &ret->creates_max, .ret_given = &limits_given[0]},
	    {"redirects_limit", INPUT_UINT, &ret->redirects_max, .ret_given = &limits_given[1]},
	    {"limit_period_s", INPUT_UINT, &period_s, .ret_given = &limits_given[2]},
	};
	const size_t limits_at = ARRAY_LEN(fields) - ARRAY_LEN(limits_given);
	struct input CLEANUP(input_release) in = {0};
	int r = input_parse(body, &in, e);
	if (r == 0)
		r = user_as_text(&in);
	if (r == 0)
		r = input_fields(&in, fields, ARRAY_LEN(fields), arena, e);
	if (r == 0)
		r = read_rights(ret, admin, admin_given, scopes, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(limits_given) && !ret->limit_given; i++)
		ret->limit_given = limits_given[i] ? fields[limits_at + i].name : NULL;
	ret->period_ms = MIN(period_s, UINT32_MAX) * 1000;
	return check(ret, now_ms, e);
}

struct user_record key_own_user(const struct key_record *key)
{
	enum user_role role = ROLE_VIEWER;
	if (key->rights & RIGHT_ADMIN)
		role = ROLE_ADMIN;
	else if (key->rights & (RIGHT_CREATE | RIGHT_DELETE))
		role = ROLE_EDITOR;
	return (struct user_record){
	    .first_name = key->name,
	    .role = role,
	    .enabled = true,
	    .created_ms = key->created_ms,
	    .updated_ms = key->created_ms,
	};
}
