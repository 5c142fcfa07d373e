/* What a link store keeps. Plain data: strings are borrowed from whoever made the record. */
#pragma once

#include "base/str.h"

enum {
	KEY_BYTES_MAX = 255,
	URL_BYTES_MAX = 8192,
	USER_EMAIL_BYTES_MAX = 254,
	KEY_DIGEST_BYTES = 32,
	FINGERPRINT_BYTES = 16,
	SESSION_ID_BYTES = 16,
	SESSION_AGENT_BYTES_MAX = 256,
	PERMITTED_MAX = 10000,  /* users on one link's list */
	ACCOUNT_KEYS_MAX = 100, /* API keys in force, of a user with an email address */
};

/* What has died goes in small portions: at most `max` rows of those that stood at `until_ms` or before. */
struct purge {
	int64_t until_ms;
	int64_t max; /* 0: nothing is to go */
};

/*
 * How a link is named. `key` is what stands behind the slash: the name in the one domain there is, 0. Names
 * of other domains will begin with bytes that no key has, so that for databases, caches and slots a name
 * stays a string of bytes. `id` is the number that `key` decodes to under the key cipher, 0 when it decodes
 * to none. A link with a generated key is found by its id; a link with an alias is found by its name. An
 * alias may well look like a generated key.
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
	uint64_t owner; /* id of the user whose it is; 0: made on the machine itself, for admins only */
	uint64_t
	    api_key; /* id of the API key that made it, if its own limits hold for it; 0: the owner's do */
	struct str user_name; /* who made it, in the maker's own words; may be STR_NULL */
	struct str url;       /* canonical */
	int64_t created_ms;
	int64_t updated_ms;
	int64_t not_before_ms;  /* 0: at once */
	int64_t expires_ms;     /* 0: never */
	struct str expired_url; /* canonical: where the late are sent; STR_NULL: nowhere */
	uint64_t max_clicks;    /* 0: no limit */
	uint16_t redirect_status;
	bool enabled;
	bool is_private;     /* for its owner, admins and the users on its list */
	struct str password; /* as argon2id's own text; STR_NULL: none */
	struct str title;    /* STR_NULL: none; likewise note and tags */
	struct str note;
	struct str tags;        /* a JSON array of strings */
	struct str external_id; /* what another system calls it; STR_NULL: nothing */
	uint64_t clicks;        /* in all, as the store was last told (store_set_clicks) */
};

/* What an UPDATE of a link sets. */
enum {
	LINK_URL = 1 << 0,
	LINK_EXPIRES = 1 << 1,
	LINK_STATUS = 1 << 2,
	LINK_ENABLED = 1 << 3,
	LINK_TITLE = 1 << 4,
	LINK_NOTE = 1 << 5,
	LINK_TAGS = 1 << 6,
	LINK_NOT_BEFORE = 1 << 7,
	LINK_EXPIRED_URL = 1 << 8,
	LINK_MAX_CLICKS = 1 << 9,
	LINK_PRIVATE = 1 << 10,
	LINK_PASSWORD = 1 << 11,
	LINK_OWNER = 1 << 12, /* and api_key: the limits of who it belonged to are not the new owner's */
	LINK_EXTERNAL_ID = 1 << 13,
};

/* Its time is over: nobody is sent to its target any more. */
static inline bool link_has_ended(const struct link_record *link, int64_t now_ms)
{
	return link->expires_ms != 0 && link->expires_ms <= now_ms;
}

/* How long an ended link stays that has a place to send the late. */
#define LINK_LATE_MS (2LL * 365 * 24 * 3600 * 1000)

/* When it may be removed, and no longer holds its name; 0: never. */
static inline int64_t link_expired_ms(const struct link_record *link)
{
	if (link->expires_ms == 0)
		return 0;
	return link->expired_url.ptr ? link->expires_ms + LINK_LATE_MS : link->expires_ms;
}

static inline bool link_is_expired(const struct link_record *link, int64_t now_ms)
{
	int64_t over_ms = link_expired_ms(link);
	return over_ms != 0 && over_ms <= now_ms;
}

/* What somebody may do. A role has some of them, and an API key may have fewer than its user. */
enum {
	RIGHT_READ = 1 << 0,
	RIGHT_STATS = 1 << 1,
	RIGHT_CREATE = 1 << 2, /* and change */
	RIGHT_DELETE = 1 << 3,
	RIGHT_ADMIN = 1 << 4, /* everybody's links, accounts, the whole server */
	RIGHTS_ALL = (1 << 5) - 1,
};

enum user_role { ROLE_VIEWER = 1, ROLE_EDITOR, ROLE_ADMIN };

static inline unsigned role_rights(enum user_role role)
{
	switch (role) {
	case ROLE_ADMIN: return RIGHTS_ALL;
	case ROLE_EDITOR: return RIGHT_READ | RIGHT_STATS | RIGHT_CREATE | RIGHT_DELETE;
	case ROLE_VIEWER: return RIGHT_READ | RIGHT_STATS;
	}
	return 0;
}

/* Somebody, or something: an API key that belongs to nobody in particular has a user of its own, without an
 * email address. Users are never removed, so an id means the same for ever. */
struct user_record {
	uint64_t id;
	struct str email;                              /* in lower case, unique; STR_NULL: nobody signs in */
	struct str first_name, middle_name, last_name; /* STR_NULL: none */
	enum user_role role;
	bool enabled;
	struct str password; /* as argon2id's own text; STR_NULL: none, so nobody signs in */
	uint64_t generation; /* of sessions: those made under an earlier one have ended */
	int64_t created_ms;
	int64_t updated_ms;
};

/* What an UPDATE of a user sets. */
enum {
	USER_EMAIL = 1 << 0,
	USER_FIRST_NAME = 1 << 1,
	USER_MIDDLE_NAME = 1 << 2,
	USER_LAST_NAME = 1 << 3,
	USER_NAMES = USER_FIRST_NAME | USER_MIDDLE_NAME | USER_LAST_NAME,
	USER_ROLE = 1 << 4,
	USER_ENABLED = 1 << 5,
	USER_PASSWORD = 1 << 6,
	USER_SESSIONS = 1 << 7, /* ends them, and changes nothing else */
};

/* Somebody is signed in. It has ended when its row is gone, its time is over, or its user's generation is a
 * later one. */
struct session_record {
	uint8_t id[SESSION_ID_BYTES];
	uint64_t user;
	uint64_t generation; /* of the user's sessions when it was made */
	int64_t created_ms;
	int64_t expires_ms;
	struct str address; /* it was made from, truncated; STR_NULL: not known; likewise agent */
	struct str agent;
};

/* An API key. The key itself is shown once and never kept. */
struct key_record {
	uint64_t id;
	uint64_t user; /* whose it is */
	struct str name;
	uint8_t digest[KEY_DIGEST_BYTES];
	unsigned rights; /* RIGHT_ bits; those that its user's role lacks are worth nothing */
	int64_t created_ms;
	int64_t expires_ms;     /* 0: never */
	int64_t revoked_ms;     /* 0: in force */
	int64_t used_ms;        /* last, as the store was told (STORE_KEY_USED); 0: never */
	uint64_t creates_max;   /* per period; 0: no limit of its own */
	uint64_t redirects_max; /* per period, over all links that it made; 0: no limit of its own */
	uint64_t period_ms;
};
