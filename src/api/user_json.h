/* Users as the outside sees them, in both directions. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

enum { USER_NAME_PART_BYTES_MAX = 128 };

const char *role_name(enum user_role role);

void user_json(struct buf *b, const struct user_record *user);

/* What somebody wants of a user, and which fields were given. */
struct user_input {
	struct user_record user; /* email, names, role, enabled */
	unsigned fields; /* USER_EMAIL, USER_ROLE, USER_ENABLED, USER_PASSWORD; and USER_NAMES for any of: */
	bool first_given, middle_given, last_given;
	struct str password, current_password; /* as given; STR_NULL: not */
};

/* {"email", "password"?, "first_name"?, "middle_name"?, "last_name"?, "role"?}; an editor, unless it says
 * otherwise. */
int user_input_create(struct str body, struct arena *arena, struct user_input *ret, struct err *e);

/* {"email"?, "first_name"?, "middle_name"?, "last_name"?, "role"?, "enabled"?, "password"?,
 * "current_password"?}, at least one of them. */
int user_input_change(struct str body, struct arena *arena, struct user_input *ret, struct err *e);

/* The names that were not given stay as they are. */
void user_input_keep_names(struct user_input *in, const struct user_record *now);

/* An email address in lower case, in the arena; ERR_INVALID with a sentence for what cannot be one. */
int user_email_take(struct str text, struct arena *arena, struct str *ret, struct err *e);
