/* API keys and rights as the outside sees them, in both directions. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/fields.h"

/* "create" and so on, for one RIGHT_ bit. */
const char *right_name(unsigned right);

/* ["read","create"] */
void rights_json(struct buf *b, unsigned rights);

/* `text` is the key itself, shown once; STR_NULL leaves it out. */
void key_json(struct buf *b, const struct key_record *key, struct str text);

struct key_input {
	struct key_record
	    key;           /* name, rights (all but RIGHT_ADMIN unless they were chosen), expiry, limits */
	bool rights_given; /* they were chosen */
	struct str user;   /* as people write it; STR_NULL: not given */
	const struct field *for_admins; /* the first field that only admins may give; NULL: there is none */
};

int key_input_read(struct str body, int64_t now_ms, struct arena *arena, struct key_input *ret,
                   struct err *e);

/* The user that a key gets which shall be nobody's in particular. */
struct user_record key_own_user(const struct key_record *key);
