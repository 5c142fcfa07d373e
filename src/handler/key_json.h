/* The JSON of API keys and rights: writing and parsing. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "handler/input.h"
#include "store/fields.h"

/* "create" and so on, for one RIGHT_ bit. */
const char *right_name(unsigned right);

/* ["read","create"] */
void rights_json(struct buf *b, unsigned rights);

/* `text` is the key itself, shown once; STR_NULL leaves it out. */
void key_json(struct buf *b, const struct key_record *key, struct str text);

struct key_input {
	struct key_record key; /* name, rights, expiry, limits; without scopes all rights but RIGHT_ADMIN */
	bool rights_given;
	struct str user;                /* id or email address; STR_NULL: not given */
	const struct field *for_admins; /* the first given field that only admins may set; NULL: none */
};

int key_input_parse(struct str body, int64_t now_ms, struct arena *arena, struct key_input *ret,
                    struct input_err *e);

/* A new user for a key that is created without a user. */
struct user_record key_own_user(const struct key_record *key);
