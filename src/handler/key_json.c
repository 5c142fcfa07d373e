#include "handler/key_json.h"

#include "base/json_out.h"

static const struct field *scopes(void)
{
	return fields_find(&key_fields, STR("scopes"));
}

const char *right_name(unsigned right)
{
	return scopes()->words[__builtin_ctz(right)];
}

void rights_json(struct buf *b, unsigned rights)
{
	field_json(b, scopes(), &(struct key_record){.rights = rights});
}

static bool own_json(struct buf *b, const struct field *f, const void *record, const void *ctx)
{
	(void)ctx;
	const struct key_record *key = record;
	if (f->type == FIELD_VIRTUAL)
		buf_str(b, key->rights & RIGHT_ADMIN ? STR("true") : STR("false"));
	return f->type == FIELD_VIRTUAL;
}

void key_json(struct buf *b, const struct key_record *key, struct str text)
{
	buf_char(b, '{');
	fields_json(b, &key_fields, key, own_json, NULL);
	if (text.ptr) {
		buf_str(b, STR(",\"key\":"));
		json_out_str(b, text);
	}
	buf_char(b, '}');
}

int key_input_parse(struct str body, int64_t now_ms, struct arena *arena, struct key_input *ret,
                    struct input_err *e)
{
	bool admin = false, admin_given;
	const struct input_field own[] = {{"admin", FIELD_BOOL, &admin, .ret_given = &admin_given}};
	struct key_record *key = &ret->key;
	struct input_record in = {&key_fields, FIELD_CREATE, key, own, 1};
	*ret = (struct key_input){.key.rights = RIGHTS_ALL & ~RIGHT_ADMIN};
	int r = input_record_read(body, &in, arena, e);
	if (r < 0)
		return r;
	bool has_scopes = input_has(body, "scopes");
	if (has_scopes && admin_given && admin != ((key->rights & RIGHT_ADMIN) != 0))
		return input_wrong_field(
		    e, "scopes",
		    "the fields 'admin' and 'scopes' contradict each other; send only one of them");
	if (key->expires_ms != 0 && key->expires_ms <= now_ms)
		return input_wrong_field(
		    e, "expires_at",
		    "the field 'expires_at' is in the past; send a later time, or null for none");
	if (admin && !has_scopes)
		key->rights = RIGHTS_ALL;
	ret->rights_given = has_scopes || admin;
	ret->user = in.user;
	ret->for_admins = in.for_admins;
	return 0;
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
