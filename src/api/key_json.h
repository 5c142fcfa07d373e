/* API keys and rights as the outside sees them, in both directions. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/record.h"

/* "create" and so on, for one RIGHT_ bit. */
const char *right_name(unsigned right);

/* ["read","create"] */
void rights_json(struct buf *b, unsigned rights);

/* `text` is the key itself, shown once; STR_NULL leaves it out. */
void key_json(struct buf *b, const struct key_record *key, struct str text);

struct key_input {
	struct str name;
	unsigned rights;   /* all but RIGHT_ADMIN unless they were chosen */
	bool rights_given; /* they were */
	struct str user;   /* as people write it; STR_NULL: not given */
	int64_t expires_ms;
	uint64_t creates_max, redirects_max, period_ms;
	const char *limit_given; /* the field of the first of those three that was given; NULL: none was */
};

/* {"name", "scopes"?, "admin"?, "user"?, "expires_at"?, "creates_limit"?, "redirects_limit"?,
 * "limit_period_s"?} */
int key_input_read(struct str body, int64_t now_ms, struct arena *arena, struct key_input *ret,
                   struct err *e);

/* The user that a key gets which shall be nobody's in particular. */
struct user_record key_own_user(const struct key_record *key);
