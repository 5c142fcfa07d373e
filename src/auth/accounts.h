/*
 * Who there is: users, API keys and sessions, read from the store one by one as they are asked for and kept
 * in a bounded cache (link/cache.h), which workers read without a lock. Of keys only digests are kept.
 * Passwords are not in here.
 *
 * Reading. What is not in the cache is ACCOUNT_UNREAD, and says what is to be read: a pool thread does that
 * (accounts_read), and whoever asked asks again. That there is no such account is kept too, for a moment.
 *
 * Changes. What this process has changed is put into the cache before anybody is told (accounts_changed). Of
 * other processes' changes accounts_follow learns. While it cannot, for longer than `stale_ms`, nothing in
 * the cache counts: everything is ACCOUNT_STALE.
 *
 * A session is a row, and a token that names it: who, until when, and under which generation of that user's
 * sessions it was made, with a MAC under a secret that the store keeps. So a token that nobody made costs no
 * read. A change of password ends all of a user's sessions by raising one number; signing out removes a row.
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
	ACCOUNT_UNREAD, /* read what is wanted, then ask again */
	ACCOUNT_STALE,  /* the store has not told of changes for too long */
};

/* What is to be read: the name of an entry of the cache. */
struct account_want {
	uint8_t len; /* of `text` */
	uint8_t by;  /* enum registry_by, but never BY_KEY; with the text behind it, the entry's name */
	char text[USER_EMAIL_BYTES_MAX]; /* as in struct registry_account; the bytes of a user's id */
};

/* Whoever sent a request. */
struct caller {
	uint64_t user;   /* 0: the machine's own user, by the local key */
	uint64_t key;    /* the API key; 0: none: a session, or the local key */
	unsigned rights; /* RIGHT_ bits: those of the user's role, cut to the key's */
	bool by_session;
	uint64_t limit_key;               /* the API key when it has limits of its own; 0: the user's hold */
	struct budget *budget;            /* of limit_key, otherwise of the user */
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

/* A user, as far as every worker knows; good until the end of the loop's turn. */
struct account {
	uint64_t id;
	struct str email; /* STR_NULL: none */
	struct str name;  /* what to call them: their email address, otherwise their names */
	enum user_role role;
	bool enabled;
	uint64_t generation;
	struct budget *budget;
};

int accounts_new(const struct accounts_config *config, struct accounts **ret, struct err *e);
void accounts_free(struct accounts *a);

/* --- pool threads --- */

/* Reads what is wanted, with the users behind it, and keeps it. */
int accounts_read(struct accounts *a, const struct account_want *const *wants, size_t n);

/* A change was made, or may have been (ERR_UNCERTAIN). Before anybody is told of it. */
void accounts_changed(struct accounts *a, const struct registry_write *w);

/* Learns what other processes have changed. */
int accounts_follow(struct accounts *a);

/* Follows the store from now on: every second, and at once when it is woken, by any thread. Until
 * accounts_unwatch or accounts_free. */
int accounts_watch(struct accounts *a, struct err *e);
void accounts_wake(struct accounts *a);
void accounts_unwatch(struct accounts *a);

/* Would they still be let in, with all the rights they had? Asks the store. */
int accounts_check(struct accounts *a, const struct caller *c, int64_t now_ms, bool *ret);

/* The users of those ids, out of the store; one who is not there has the id 0. */
int accounts_users(struct accounts *a, const uint64_t *ids, size_t n, struct arena *arena,
                   struct user_record *ret);

/* What to call a user: "local" for the id 0. STR_NULL: no memory. */
struct str account_name(struct arena *arena, const struct user_record *user);

/* The keys whose last use the store does not know: as key_uses_take. */
size_t accounts_uses(struct accounts *a, size_t *at, struct registry_write *writes, size_t max);

/* --- loop threads --- */

/* When it is. */
struct account_time {
	int64_t real_ms, mono_ms;
};

/* NONE: unknown, revoked, expired, or its user is disabled. Notes the use. */
enum account_found accounts_find_key(struct accounts *a, struct str presented, struct account_time now,
                                     struct caller *ret, struct account_want *ret_want);

/* NONE: not one of ours, over, ended, or its user is disabled. */
enum account_found accounts_find_session(struct accounts *a, struct str token, struct account_time now,
                                         struct caller *ret, struct account_want *ret_want);

/* FOUND: they would still be let in, with at least the rights they had. For what goes on for long. */
enum account_found accounts_in_force(struct accounts *a, const struct caller *c, struct account_time now,
                                     struct account_want *ret_want);

/* By id; or by what people write: an email address in any case, or an id in decimal. */
enum account_found accounts_user(struct accounts *a, uint64_t id, struct account_time now,
                                 struct account *ret, struct account_want *ret_want);
enum account_found accounts_user_named(struct accounts *a, struct str text, struct account_time now,
                                       struct account *ret, struct account_want *ret_want);

/* Was there no such account when it was read last? */
bool accounts_is_unknown(struct accounts *a, const struct account_want *want, int64_t mono_ms);

/* For jobs that read the same: changes with whatever makes an earlier read worthless. */
uint64_t accounts_epoch(struct accounts *a, const struct account_want *want);

/* --- any thread --- */

/* When the API key was last used, if the store does not know yet; otherwise 0. */
int64_t accounts_key_used_ms(const struct accounts *a, uint64_t key);

/* A key that is in force until the process ends, and in no store: for the command line of the machine's own
 * user, with all rights. Before the workers start. */
void accounts_set_local(struct accounts *a, struct str presented);

/* A fresh API key, NUL-terminated, and the digest to keep. */
void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES]);
void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES]);

/* The text of a session, NUL-terminated and safe in a cookie; and what a page must send along with every
 * change that it makes under this session. */
void session_text(const struct accounts *a, const struct session_record *session,
                  char text[SESSION_TEXT_BYTES]);
void session_csrf(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                  char text[CSRF_TEXT_BYTES]);
/* Constant time. */
bool session_csrf_is(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES], struct str presented);
