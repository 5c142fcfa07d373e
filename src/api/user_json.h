/* Users as the outside sees them, in both directions. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

void user_json(struct buf *b, const struct user_record *user);

/* What somebody wants of a user. */
struct user_input {
	struct user_record user;               /* but the password */
	unsigned fields;                       /* which were given: USER_EMAIL, ... */
	bool for_admins;                       /* one of them only admins may give */
	struct str password, current_password; /* as given; STR_NULL: not */
};

/* An editor, unless it says otherwise. */
int user_input_create(struct str body, struct arena *arena, struct user_input *ret, struct err *e);

/* At least one field. */
int user_input_change(struct str body, struct arena *arena, struct user_input *ret, struct err *e);
