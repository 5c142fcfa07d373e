/* The records of a store. Plain data; strings are borrowed. */
#pragma once

#include "base/rfc3339.h"
#include "base/str.h"

enum {
	KEY_BYTES_MAX = 255,
	URL_BYTES_MAX = 8192,
	USER_EMAIL_BYTES_MAX = 254,
	KEY_DIGEST_BYTES = 32,
	FINGERPRINT_BYTES = 16,
	SESSION_ID_BYTES = 16,
	SESSION_AGENT_BYTES_MAX = 256,
	PERMITTED_MAX = 10000,  /* users on one link's permission list */
	ACCOUNT_KEYS_MAX = 100, /* active API keys of a user with an email address */
};

/* A bounded purge: at most `max` rows that ended at `until_ms` or before. */
struct purge {
	int64_t until_ms;
	int64_t max; /* 0: purge nothing */
};

/*
 * A reference to a link. `key` is the path after the slash. Today there is one domain, 0. Names of other
 * domains will start with bytes that no key has, so databases, caches and slots may treat a name as opaque
 * bytes. `id` is the number that `key` decodes to under the key cipher; 0: none.
 *
 * A link with a generated key is found by its id, a link with an alias by its name. An alias may look like
 * a generated key.
 *
 * Without a key (STR_NULL) it is the row with that id, whatever its name; lookups only.
 */
struct link_ref {
	uint64_t id;
	struct str key;
};

struct link_record {
	uint64_t id;   /* of the row, never reused */
	bool is_alias; /* its name is `key`; otherwise the key that encodes `id` */
	struct str key;
	uint64_t owner;       /* user id; 0: created on the machine itself, visible to admins only */
	uint64_t api_key;     /* API key whose own limits apply; 0: the owner's limits apply */
	struct str user_name; /* creator's label; may be STR_NULL */
	struct str url;       /* canonical */
	int64_t created_ms;
	int64_t updated_ms;
	int64_t not_before_ms;  /* 0: at once */
	int64_t expires_ms;     /* 0: never */
	struct str expired_url; /* canonical: target after the end; STR_NULL: 404 */
	uint64_t max_clicks;    /* 0: no limit */
	uint16_t redirect_status;
	bool enabled;
	bool is_private;     /* only its owner, admins and permitted users may follow it */
	struct str password; /* argon2id string; STR_NULL: none */
	struct str title;    /* STR_NULL: none; likewise note and tags */
	struct str note;
	struct str tags;        /* a JSON array of strings */
	struct str external_id; /* id in another system; STR_NULL: none */
	uint64_t clicks;        /* total, as of the last store_set_clicks */
};

/* The mask of a link UPDATE. */
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
	LINK_OWNER = 1 << 12, /* also sets api_key: limits do not move to the new owner */
	LINK_EXTERNAL_ID = 1 << 13,
};

/* It no longer redirects to its target. */
static inline bool link_has_ended(const struct link_record *link, int64_t now_ms)
{
	return link->expires_ms != 0 && link->expires_ms <= now_ms;
}

/* When a link ends for which no end was chosen: two years after its start. */
static inline int64_t link_default_expiry_ms(const struct link_record *link)
{
	const int64_t life_ms = 2LL * 365 * 24 * 3600 * 1000;
	return MIN(MAX(link->created_ms, link->not_before_ms) + life_ms, RFC3339_MS_MAX);
}

/* It would end before it starts. */
static inline bool link_never_opens(const struct link_record *link)
{
	return link->not_before_ms != 0 && link->expires_ms != 0 && link->not_before_ms >= link->expires_ms;
}

/* How long an ended link with an expired_url is kept. */
#define LINK_LATE_MS (2LL * 365 * 24 * 3600 * 1000)

/* When it expires: it may be removed, and its name is free. 0: never. The SQL column is over_ms. */
static inline int64_t link_expired_ms(const struct link_record *link)
{
	if (link->expires_ms == 0)
		return 0;
	return link->expired_url.ptr ? link->expires_ms + LINK_LATE_MS : link->expires_ms;
}

static inline bool link_is_expired(const struct link_record *link, int64_t now_ms)
{
	int64_t expired_ms = link_expired_ms(link);
	return expired_ms != 0 && expired_ms <= now_ms;
}

/* Rights. A role has some of them; an API key may have fewer than its user. */
enum {
	RIGHT_READ = 1 << 0,
	RIGHT_STATS = 1 << 1,
	RIGHT_CREATE = 1 << 2, /* also update */
	RIGHT_DELETE = 1 << 3,
	RIGHT_ADMIN = 1 << 4, /* all links, accounts, the whole server */
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

/* A user. An API key without an owner gets its own user, without an email address. Users are never removed,
 * so an id is never reused. */
struct user_record {
	uint64_t id;
	struct str email;                              /* lower case, unique; STR_NULL: cannot sign in */
	struct str first_name, middle_name, last_name; /* STR_NULL: none */
	enum user_role role;
	bool enabled;
	struct str password; /* argon2id string; STR_NULL: cannot sign in */
	uint64_t generation; /* of sessions: those of an earlier generation are invalid */
	int64_t created_ms;
	int64_t updated_ms;
};

/* The mask of a user UPDATE. */
enum {
	USER_EMAIL = 1 << 0,
	USER_FIRST_NAME = 1 << 1,
	USER_MIDDLE_NAME = 1 << 2,
	USER_LAST_NAME = 1 << 3,
	USER_NAMES = USER_FIRST_NAME | USER_MIDDLE_NAME | USER_LAST_NAME,
	USER_ROLE = 1 << 4,
	USER_ENABLED = 1 << 5,
	USER_PASSWORD = 1 << 6,
	USER_END_SESSIONS = 1 << 7, /* ends all sessions, changes nothing else */
};

/*
 * A signed-in session. It is invalid if its row is gone, it has expired, or the user's generation is later.
 */
struct session_record {
	uint8_t id[SESSION_ID_BYTES];
	uint64_t user;
	uint64_t generation; /* of the user when it began */
	int64_t created_ms;
	int64_t expires_ms;
	struct str address; /* client address, truncated; STR_NULL: unknown; likewise agent */
	struct str agent;
};

/* An API key. The secret is shown once and never stored. */
struct key_record {
	uint64_t id;
	uint64_t user; /* its owner */
	struct str name;
	uint8_t digest[KEY_DIGEST_BYTES];
	unsigned rights; /* RIGHT_ bits; limited by the user's role */
	int64_t created_ms;
	int64_t expires_ms;     /* 0: never */
	int64_t revoked_ms;     /* 0: not revoked */
	int64_t used_ms;        /* last use, as of REGISTRY_KEY_USED; 0: never */
	uint64_t creates_max;   /* per period; 0: no own limit */
	uint64_t redirects_max; /* per period, over all its links; 0: no own limit */
	uint64_t period_ms;
};
