/*
 * Who there is: users, API keys, and sessions that were ended early, known to every worker without a lock:
 * an immutable snapshot, replaced whole when one of them changes. Of keys only digests are kept; a presented
 * one is hashed and compared in constant time. Passwords are not in here.
 *
 * A session is a token that says who, until when, and under which generation of that user's sessions it was
 * made, with a MAC under a secret that the store keeps. So signing in writes nothing, every process on the
 * same store knows every session, and a change of password ends all of a user's sessions by raising one
 * number. Signing out puts the session's id on a list until its time is over.
 */
#pragma once

#include "api/session_token.h"
#include "base/buf.h"
#include "base/err.h"
#include "link/budget.h"
#include "store/store.h"

enum {
	API_KEY_TEXT_BYTES = 48,
	ACCOUNT_KEYS_MAX = 100, /* in force, of a user with an email address */
};

struct accounts;

/* Limits of a user, by session and by all their keys without limits of their own together; and for what a
 * key's own limits leave open. 0: none. */
struct account_limits {
	uint64_t creates_max;
	uint64_t redirects_max;
	uint64_t period_ms;
};

/* Whoever sent a request. */
struct caller {
	uint64_t user;   /* 0: the machine's own user, by the local key */
	uint64_t key;    /* the API key; 0: none: a session, or the local key */
	unsigned rights; /* RIGHT_ bits: those of the user's role, cut to the key's */
	bool by_session;
	uint64_t limit_key;    /* the API key when it has limits of its own; 0: the user's hold */
	struct budget *budget; /* of limit_key, otherwise of the user */
	/* of a session */
	uint8_t session[SESSION_ID_BYTES];
	uint64_t generation;
	int64_t expires_ms; /* of a session or key; 0: never */
};

static inline bool caller_is_admin(const struct caller *c)
{
	return (c->rights & RIGHT_ADMIN) != 0;
}

/* A user, as far as every worker knows; good until the end of the loop's turn. */
struct account {
	uint64_t id;
	struct str email; /* STR_NULL: none */
	struct str name;  /* what to call them: their email address, otherwise their names */
	enum user_role role;
	bool enabled;
	uint64_t generation;
	/* Keys that were neither revoked nor expired when this was read, and when the first of them expires;
	 * 0: never. */
	size_t live_keys;
	int64_t live_until_ms;
};

/* May there be one key more? Once one has expired there is room, and the next change counts anew. */
static inline bool account_has_room(const struct account *a, int64_t now_ms)
{
	return a->live_keys < ACCOUNT_KEYS_MAX || (a->live_until_ms != 0 && a->live_until_ms <= now_ms);
}

int accounts_new(struct store *store, struct budgets *budgets, const struct account_limits *limits,
                 struct accounts **ret, struct err *e);
void accounts_free(struct accounts *a);

/* Reads everything from the store again and sets the budgets. Threads that may block; they take turns. */
int accounts_reload(struct accounts *a);

/* The same, if anything has changed in a store that others write to as well. */
int accounts_follow(struct accounts *a);

/* Follows the store from now on: every second, and at once when it is woken, by any thread. Until
 * accounts_unwatch or accounts_free. */
int accounts_watch(struct accounts *a, struct err *e);
void accounts_wake(struct accounts *a);
void accounts_unwatch(struct accounts *a);

/* The same for the sessions that were ended, and nothing else: enough after STORE_SESSION_END, and cheap
 * however many users there are. */
int accounts_reload_sessions(struct accounts *a);

/* From here on: loop threads, until the end of the turn. */

/* False: unknown, revoked, expired, or its user is disabled. Notes the use. */
bool accounts_find_key(struct accounts *a, struct str presented, int64_t now_ms, struct caller *ret);

/* False: not one of ours, over, ended, or its user is disabled. */
bool accounts_find_session(struct accounts *a, struct str token, int64_t now_ms, struct caller *ret);

/* Would they still be let in, with at least the rights they had? For what goes on for long. */
bool accounts_in_force(struct accounts *a, const struct caller *c, int64_t now_ms);

/* By id; or by what people write: an email address in any case, or an id in decimal. NULL: nobody. */
const struct account *accounts_user(struct accounts *a, uint64_t id);
const struct account *accounts_user_named(struct accounts *a, struct str text);

/* What to call the user of that id: "local" for 0, STR_NULL for nobody. */
struct str accounts_name(struct accounts *a, uint64_t id);

/* When the API key was last used, as far as this process knows; 0: never, or there is no such key. */
int64_t accounts_key_used_ms(struct accounts *a, uint64_t key);

/* A key that is in force until the process ends, and in no store: for the command line of the machine's own
 * user, with all rights. Before the workers start. */
void accounts_set_local(struct accounts *a, struct str presented);

/* A fresh API key, NUL-terminated, and the digest to keep. */
void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES]);
void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES]);

/* Any thread: a session for the user, NUL-terminated and safe in a cookie, and its id; and what a page must
 * send along with every change that it makes under this session. */
void session_make(const struct accounts *a, uint64_t user, uint64_t generation, int64_t expires_ms,
                  char text[SESSION_TEXT_BYTES], uint8_t ret_session[SESSION_ID_BYTES]);
void session_csrf(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                  char text[CSRF_TEXT_BYTES]);
/* Constant time. */
bool session_csrf_is(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES], struct str presented);

/* The keys whose last use is later than the store knows: writes of STORE_KEY_USED, at most `max`; returns how
 * many. `writes` are zeroed before. Each use is given once: one whose write fails is forgotten until the next
 * use or reload. Pool threads. */
size_t accounts_uses(struct accounts *a, struct store_write *writes, size_t max);
