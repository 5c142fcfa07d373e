/* What a link store keeps. Plain data: strings are borrowed from whoever made the record. */
#pragma once

#include "base/str.h"

enum { ALIAS_BYTES_MAX = 64, KEY_BYTES_MAX = 64, KEY_DIGEST_BYTES = 32, FINGERPRINT_BYTES = 16 };

/*
 * How a link is named. `key` is what stands behind the slash. `id` is the number that `key` decodes to
 * under the key cipher, 0 when it decodes to none. A link with a generated key is found by its id; a
 * link with an alias is found by its name. An alias may well look like a generated key.
 *
 * Without a key (STR_NULL) it means the row of that id, whatever its name; for lookups only.
 */
struct link_ref {
	uint64_t id;
	struct str key;
};

struct link_record {
	uint64_t id;   /* of the row, never used twice */
	bool is_alias; /* named by `key`; otherwise named by the key that encodes `id` */
	struct str key;
	uint64_t owner;       /* id of the API key that made it */
	struct str user_name; /* who made it, in that key's own words; may be STR_NULL */
	struct str url;       /* canonical */
	int64_t created_ms;
	int64_t updated_ms;
	int64_t expires_ms; /* 0: never */
	uint16_t redirect_status;
	bool enabled;
	struct str title; /* STR_NULL: none; likewise note and tags */
	struct str note;
	struct str tags; /* a JSON array of strings */
	uint64_t clicks; /* in all, as the store was last told (store_set_clicks) */
};

/* Its time is over: it is to be treated as if it were not there. */
static inline bool link_has_ended(const struct link_record *link, int64_t now_ms)
{
	return link->expires_ms != 0 && link->expires_ms <= now_ms;
}

/* An API key. The key itself is shown once and never kept. */
struct key_record {
	uint64_t id;
	struct str name;
	uint8_t digest[KEY_DIGEST_BYTES];
	bool admin;
	int64_t created_ms;
	int64_t revoked_ms;     /* 0: in force */
	uint64_t creates_max;   /* per period; 0: no limit of its own */
	uint64_t redirects_max; /* per period, over all of its links; 0: no limit of its own */
	uint64_t period_ms;
};
