#include "api/user_json.h"

#include "api/input.h"
#include "api/passwords.h"
#include "base/json_out.h"

static const struct {
	enum user_role role;
	const char *name;
} roles[] = {{ROLE_VIEWER, "viewer"}, {ROLE_EDITOR, "editor"}, {ROLE_ADMIN, "admin"}};

const char *role_name(enum user_role role)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
		if (roles[i].role == role)
			return roles[i].name;
	}
	ASSERT(false);
}

void user_json(struct buf *b, const struct user_record *user)
{
	buf_printf(b, "{\"id\":%llu,\"email\":", (unsigned long long)user->id);
	json_out_str_or_null(b, user->email);
	buf_str(b, STR(",\"first_name\":"));
	json_out_str_or_null(b, user->first_name);
	buf_str(b, STR(",\"middle_name\":"));
	json_out_str_or_null(b, user->middle_name);
	buf_str(b, STR(",\"last_name\":"));
	json_out_str_or_null(b, user->last_name);
	buf_printf(b, ",\"role\":\"%s\",\"enabled\":%s,\"created_at\":", role_name(user->role),
	           user->enabled ? "true" : "false");
	json_out_time(b, user->created_ms);
	buf_str(b, STR(",\"updated_at\":"));
	json_out_time(b, user->updated_ms);
	buf_char(b, '}');
}

/* Reading */

static int role_read(struct str text, enum user_role *ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
		if (str_eq(text, str_of(roles[i].name))) {
			*ret = roles[i].role;
			return 0;
		}
	}
	return err_set(e, ERR_INVALID, "the field 'role' must be viewer, editor or admin");
}

int user_email_take(struct str text, struct arena *arena, struct str *ret, struct err *e)
{
	const char *at = text.len > 0 ? memchr(text.ptr, '@', text.len) : NULL;
	bool fits = at && text.len >= 3 && text.len <= USER_EMAIL_BYTES_MAX && at != text.ptr &&
	            at != text.ptr + text.len - 1 && memrchr(text.ptr, '@', text.len) == at;
	for (size_t i = 0; fits && i < text.len; i++)
		fits = (unsigned char)text.ptr[i] > ' ' && text.ptr[i] != 0x7f;
	if (!fits)
		return err_set(
		    e, ERR_INVALID,
		    "the field 'email' must be an email address such as ada@example.com, of 3 to %d bytes",
		    USER_EMAIL_BYTES_MAX);
	char *lower = arena_alloc(arena, text.len + 1);
	if (!lower)
		return ERR_NOMEM;
	for (size_t i = 0; i < text.len; i++)
		lower[i] = ascii_lower(text.ptr[i]);
	lower[text.len] = '\0';
	*ret = str_n(lower, text.len);
	return 0;
}

/* An empty name is none. */
static void name_settle(struct str *name)
{
	if (name->len == 0)
		*name = STR_NULL;
}

/* What the fields have in common once they are read; those that were not given are left alone. */
static int settle(struct user_input *in, struct str email, struct str role, struct arena *arena,
                  struct err *e)
{
	int r = 0;
	name_settle(&in->user.first_name);
	name_settle(&in->user.middle_name);
	name_settle(&in->user.last_name);
	if (in->first_given || in->middle_given || in->last_given)
		in->fields |= USER_NAMES;
	if (in->fields & USER_EMAIL)
		r = user_email_take(email, arena, &in->user.email, e);
	if (r == 0 && (in->fields & USER_ROLE))
		r = role_read(role, &in->user.role, e);
	if (r == 0 && (in->fields & USER_PASSWORD))
		r = password_check(in->password, PASSWORD_BYTES_MIN, e);
	return r;
}

static void note(struct user_input *in, bool given, unsigned field)
{
	if (given)
		in->fields |= field;
}

int user_input_create(struct str body, struct arena *arena, struct user_input *ret, struct err *e)
{
	struct str email = STR_NULL, role = STR("editor");
	bool password_given;
	*ret = (struct user_input){.user.enabled = true, .fields = USER_EMAIL | USER_ROLE};
	const struct input_field fields[] = {
	    {"email", INPUT_STRING, &email, .required = true},
	    {"password", INPUT_STRING, &ret->password, .ret_given = &password_given},
	    {"first_name", INPUT_TEXT_OR_NULL, &ret->user.first_name, .bytes_max = USER_NAME_PART_BYTES_MAX},
	    {"middle_name", INPUT_TEXT_OR_NULL, &ret->user.middle_name,
	     .bytes_max = USER_NAME_PART_BYTES_MAX},
	    {"last_name", INPUT_TEXT_OR_NULL, &ret->user.last_name, .bytes_max = USER_NAME_PART_BYTES_MAX},
	    {"role", INPUT_STRING, &role},
	};
	int r = input_read(body, fields, ARRAY_LEN(fields), arena, e);
	if (r < 0)
		return r;
	note(ret, password_given, USER_PASSWORD);
	return settle(ret, email, role, arena, e);
}

int user_input_change(struct str body, struct arena *arena, struct user_input *ret, struct err *e)
{
	struct str email = STR_NULL, role = STR_NULL;
	bool email_given, role_given, enabled_given, password_given;
	*ret = (struct user_input){0};
	const struct input_field fields[] = {
	    {"email", INPUT_STRING, &email, .ret_given = &email_given},
	    {"first_name", INPUT_TEXT_OR_NULL, &ret->user.first_name, .ret_given = &ret->first_given,
	     .bytes_max = USER_NAME_PART_BYTES_MAX},
	    {"middle_name", INPUT_TEXT_OR_NULL, &ret->user.middle_name, .ret_given = &ret->middle_given,
	     .bytes_max = USER_NAME_PART_BYTES_MAX},
	    {"last_name", INPUT_TEXT_OR_NULL, &ret->user.last_name, .ret_given = &ret->last_given,
	     .bytes_max = USER_NAME_PART_BYTES_MAX},
	    {"role", INPUT_STRING, &role, .ret_given = &role_given},
	    {"enabled", INPUT_BOOL, &ret->user.enabled, .ret_given = &enabled_given},
	    {"password", INPUT_STRING, &ret->password, .ret_given = &password_given},
	    {"current_password", INPUT_STRING, &ret->current_password, .bytes_max = PASSWORD_BYTES_MAX},
	};
	int r = input_read(body, fields, ARRAY_LEN(fields), arena, e);
	if (r < 0)
		return r;
	note(ret, email_given, USER_EMAIL);
	note(ret, role_given, USER_ROLE);
	note(ret, enabled_given, USER_ENABLED);
	note(ret, password_given, USER_PASSWORD);
	r = settle(ret, email, role, arena, e);
	if (r == 0 && ret->current_password.ptr && !password_given)
		r = err_set(e, ERR_INVALID, "the field 'current_password' goes with a new 'password'");
	if (r == 0 && ret->fields == 0)
		r = err_set(e, ERR_INVALID, "the body changes nothing; give at least one field");
	return r;
}

void user_input_keep_names(struct user_input *in, const struct user_record *now)
{
	if (!in->first_given)
		in->user.first_name = now->first_name;
	if (!in->middle_given)
		in->user.middle_name = now->middle_name;
	if (!in->last_given)
		in->user.last_name = now->last_name;
}
