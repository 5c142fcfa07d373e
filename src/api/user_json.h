/* The JSON of users: writing and parsing. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

void user_json(struct buf *b, const struct user_record *user);

struct user_input {
	struct user_record user;               /* without the password */
	unsigned fields;                       /* that were given: USER_EMAIL, ... */
	bool for_admins;                       /* only admins may set one of them */
	struct str password, current_password; /* STR_NULL: not given */
};

/* The default role is editor. */
int user_input_create(struct str body, struct arena *arena, struct user_input *ret, struct err *e);

/* Requires at least one field. */
int user_input_change(struct str body, struct arena *arena, struct user_input *ret, struct err *e);
