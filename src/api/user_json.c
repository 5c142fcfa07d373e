#include "api/user_json.h"

#include "auth/passwords.h"

void user_json(struct buf *b, const struct user_record *user)
{
	buf_char(b, '{');
	fields_json(b, &user_fields, user, NULL, NULL);
	buf_char(b, '}');
}

/* Parsing */

/* An email address in lower case, in the arena; ERR_INVALID with a message if it is malformed. */
static int email_parse(struct str text, struct arena *arena, struct str *ret, struct input_err *e)
{
	const char *at = text.len > 0 ? memchr(text.ptr, '@', text.len) : NULL;
	bool fits = at && text.len >= 3 && text.len <= USER_EMAIL_BYTES_MAX && at != text.ptr &&
	            at != text.ptr + text.len - 1 && memrchr(text.ptr, '@', text.len) == at;
	for (size_t i = 0; fits && i < text.len; i++)
		fits = (unsigned char)text.ptr[i] > ' ' && text.ptr[i] != 0x7f;
	if (!fits)
		return input_wrong_field(
		    e, "email",
		    "the field 'email' must be an email address such as ada@example.com, of 3 to %d bytes",
		    USER_EMAIL_BYTES_MAX);
	char *lower = arena_alloc(arena, text.len + 1);
	if (!lower)
		return ERR_NOMEM;
	lower[text.len] = '\0';
	*ret = str_lower(text, lower);
	return 0;
}

int user_input_read(struct str body, unsigned when, struct arena *arena, struct user_input *ret,
                    struct input_err *e)
{
	*ret = (struct user_input){0};
	if (when == FIELD_CREATE)
		ret->user = (struct user_record){.role = ROLE_EDITOR, .enabled = true};
	const struct input_field own[] = {
	    {"current_password", FIELD_STRING, &ret->current_password, .bytes_max = PASSWORD_BYTES_MAX}};
	struct input_record in = {&user_fields, when, &ret->user, own, 1};
	int r = input_record_read(body, &in, arena, e);
	ret->fields = in.bits;
	ret->for_admins = in.for_admins != NULL;
	ret->password = in.secret;
	if (r == 0 && in.bits & USER_EMAIL)
		r = email_parse(ret->user.email, arena, &ret->user.email, e);
	if (r == 0 && ret->current_password.ptr && !ret->password.ptr)
		r = input_wrong_field(
		    e, "current_password",
		    "the field 'current_password' needs a new 'password' beside it; send both");
	if (r == 0 && when == FIELD_PATCH && ret->fields == 0)
		r = input_wrong_body(e, "the body changes nothing; send at least one field");
	return r;
}
