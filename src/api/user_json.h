/* The JSON of users: writing and parsing. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "handler/input.h"
#include "store/store.h"

void user_json(struct buf *b, const struct user_record *user);

struct user_input {
	struct user_record user;               /* without the password */
	unsigned fields;                       /* that were given: USER_EMAIL, ... */
	bool for_admins;                       /* only admins may set one of them */
	struct str password, current_password; /* STR_NULL: not given */
};

/* `when` is FIELD_CREATE, with the default role editor, or FIELD_PATCH, with at least one field. */
int user_input_read(struct str body, unsigned when, struct arena *arena, struct user_input *ret,
                    struct input_err *e);
