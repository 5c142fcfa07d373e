/*
 * Users, API keys and sessions. Accounts are read from the store one at a time, on first use, into a bounded
 * cache (link/cache.h) that workers read without a lock. Keys are cached by digest; passwords are not cached.
 *
 * Misses. A lookup that misses the cache returns ACCOUNT_UNCACHED and the account to read. A pool thread
 * reads it (accounts_read), and the caller repeats the lookup. Unknown accounts are cached too, for ten
 * seconds.
 *
 * Changes. A change by this process updates the cache before the client gets its reply
 * (accounts_update_cache). Changes by other processes arrive through the change feed (accounts_poll_feed).
 * When the feed has not been read for `stale_ms`, every lookup returns ACCOUNT_STALE.
 *
 * A session is a row in the store and a token (session_token.h) that names it. The token has a MAC under a
 * secret from the store, so a forged token costs no read. A password change raises the user's generation and
 * so ends all sessions of that user; signing out removes one row.
 */
#pragma once

#include "auth/session_token.h"
#include "base/buf.h"
#include "base/err.h"
#include "link/budget.h"
#include "store/store.h"

enum { API_KEY_TEXT_BYTES = 48 };

struct accounts;

struct accounts_config {
	struct store *store;
	struct budgets *budgets;
	uint64_t cache_bytes;
	uint64_t stale_ms;
};

enum account_found {
	ACCOUNT_FOUND,
	ACCOUNT_NONE,
	ACCOUNT_UNCACHED, /* read *ret_ref, then look again */
	ACCOUNT_STALE,    /* the change feed has not been read for too long */
};

/* Names an account. The bytes from `by` on are its key in the cache. */
struct account_ref {
	uint8_t len;                     /* of `text` */
	uint8_t by;                      /* enum registry_by, but never BY_KEY */
	char text[USER_EMAIL_BYTES_MAX]; /* as in struct registry_account; for BY_USER the bytes of the id */
};

/* The sender of a request. */
struct caller {
	uint64_t user;   /* 0: the local user, by the local key */
	uint64_t key;    /* the API key; 0: a session, or the local key */
	unsigned rights; /* RIGHT_ bits: those of the user's role, cut to the key's */
	bool by_session;
	uint64_t limit_key;    /* the API key if it has its own limits; 0: the user's limits apply */
	struct budget *budget; /* of limit_key, otherwise of the user */
	uint8_t digest[KEY_DIGEST_BYTES]; /* of an API key */
	/* of a session */
	uint8_t session[SESSION_ID_BYTES];
	uint64_t generation;
	int64_t expires_ms; /* of a session or key; 0: never */
};

static inline bool caller_is_admin(const struct caller *c)
{
	return (c->rights & RIGHT_ADMIN) != 0;
}

/* A cached user; valid until the end of the loop's turn. */
struct account {
	uint64_t id;
	struct str email; /* STR_NULL: none */
	struct str name;  /* as account_display_name */
	enum user_role role;
	bool enabled;
	uint64_t generation;
	struct budget *budget;
};

int accounts_new(const struct accounts_config *config, struct accounts **ret, struct err *e);
void accounts_free(struct accounts *a);

/* --- pool threads --- */

/* Reads accounts, with the users they belong to, into the cache. */
int accounts_read(struct accounts *a, const struct account_ref *const *refs, size_t n);

/* A change was made, or may have been made (ERR_UNCERTAIN). Call it before the client gets its reply. */
void accounts_update_cache(struct accounts *a, const struct registry_write *w);

/* Applies the changes of other processes. */
int accounts_poll_feed(struct accounts *a);

/* Polls the feed every second, and at once after accounts_watch_wake (any thread), until
 * accounts_watch_stop or accounts_free. */
int accounts_watch_start(struct accounts *a, struct err *e);
void accounts_watch_wake(struct accounts *a);
void accounts_watch_stop(struct accounts *a);

/* Are the caller's key or session and all their rights still valid in the store? */
int accounts_recheck_stored(struct accounts *a, const struct caller *c, int64_t now_ms, bool *ret);

/* Reads users from the store; a user that does not exist gets the id 0. */
int accounts_read_users(struct accounts *a, const uint64_t *ids, size_t n, struct arena *arena,
                        struct user_record *ret);

/* The email address, otherwise the names, otherwise "user 7"; "local" for the id 0. STR_NULL: out of
 * memory. */
struct str account_display_name(struct arena *arena, const struct user_record *user);

/* The first, middle and last name. STR_NULL: there is none, or out of memory. */
struct str account_full_name(struct arena *arena, const struct user_record *user);

/* Last uses of API keys that are not in the store yet: see key_uses_take. */
size_t accounts_take_key_uses(struct accounts *a, size_t *at, struct registry_write *writes, size_t max);

/* --- loop threads --- */

struct account_time {
	int64_t real_ms, mono_ms;
};

/* NONE: unknown, revoked, expired, or its user is disabled. Records the use. */
enum account_found accounts_find_key(struct accounts *a, struct str presented, struct account_time now,
                                     struct caller *ret, struct account_ref *ret_ref);

/* NONE: forged, expired, ended, or its user is disabled. */
enum account_found accounts_find_session(struct accounts *a, struct str token, struct account_time now,
                                         struct caller *ret, struct account_ref *ret_ref);

/* FOUND: the caller's key or session and all their rights are still valid. For long-lived connections. */
enum account_found accounts_recheck(struct accounts *a, const struct caller *c, struct account_time now,
                                    struct account_ref *ret_ref);

/* By id; or by text: an email address in any case, or a decimal id. */
enum account_found accounts_find_user(struct accounts *a, uint64_t id, struct account_time now,
                                      struct account *ret, struct account_ref *ret_ref);
enum account_found accounts_find_user_named(struct accounts *a, struct str text, struct account_time now,
                                            struct account *ret, struct account_ref *ret_ref);

/* Does the cache say that there is no such account? */
bool accounts_is_unknown(struct accounts *a, const struct account_ref *ref, int64_t mono_ms);

/* Changes whenever an earlier read of the account becomes invalid: reads may be shared only within one. */
uint64_t accounts_epoch(struct accounts *a, const struct account_ref *ref);

/* --- any thread --- */

/* When the API key was last used, if the store does not know yet; otherwise 0. */
int64_t accounts_key_used_ms(const struct accounts *a, uint64_t key);

/* A key with all rights for the local command line. It is valid until the process ends and is not stored.
 * Call it before the workers start. */
void accounts_set_local(struct accounts *a, struct str presented);

/* A new API key, NUL-terminated, and the digest to store. */
void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES]);
void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES]);

/* The token of a session, for its cookie; and the token that each change under this session must carry.
 * Both NUL-terminated. */
void accounts_session_token(const struct accounts *a, const struct session_record *session,
                            char text[SESSION_TEXT_BYTES]);
void accounts_csrf_token(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                         char text[CSRF_TEXT_BYTES]);
/* Constant time. */
bool accounts_csrf_matches(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                           struct str presented);
