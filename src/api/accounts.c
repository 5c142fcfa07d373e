#include "api/accounts.h"

#include "base/hash.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/reclaim.h"
#include "os/task.h"

#include <sodium.h>
#include <stdlib.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
enum {
	RANDOM_DIGITS = 40, /* 238 bits */
	EMAIL_BYTES_MAX = 254,
	USERS_PAGE = 1000,
	USED_STEP_MS = 1000, /* a use that soon after the last one is not noted */
	WATCH_MS = 1000,
};
_Static_assert(sizeof("ck_") + RANDOM_DIGITS <= API_KEY_TEXT_BYTES, "a key's text fits");

struct held_user {
	struct account account;
	struct budget *budget;
};

struct held_key {
	uint64_t id;
	const struct held_user *user;
	uint8_t digest[KEY_DIGEST_BYTES];
	unsigned rights;
	int64_t expires_ms;
	int64_t revoked_ms;
	int64_t told_ms; /* the use that the store knows of, or was about to be told; under `uses_lock` */
	bool has_limits; /* of its own */
	struct budget *budget;
};

/* Places in one of the snapshot's arrays by a hash, at most half full; place + 1, 0 is free. */
struct table {
	uint32_t *slots;
	size_t mask;
};

/* Never changes once published, but for told_ms. Users and keys stand by id. */
struct snapshot {
	struct arena arena;
	struct held_user *users;
	size_t user_count, user_room;
	struct held_key *keys;
	size_t key_count;
	struct table by_email, by_digest;
};

/* The sessions that were ended early, apart from the rest: somebody signs out far more often than anything
 * else changes. Never changes once published. */
struct ended {
	struct arena arena;
	struct session_record *sessions;
	size_t count;
	struct table by_id;
};

struct accounts {
	struct store *store;
	struct budgets *budgets;
	struct account_limits limits;
	_Atomic(struct snapshot *) current;
	_Atomic(struct ended *) ended;
	pthread_mutex_t reload_lock; /* one at a time reads and publishes; guards `version` */
	uint64_t version;            /* of the store's accounts, read before what is published */
	bool has_version;
	pthread_mutex_t uses_lock; /* a snapshot does not go while accounts_uses looks at it */
	uint8_t secret[SESSION_SECRET_BYTES];
	uint64_t hash_seed;
	uint8_t local_digest[KEY_DIGEST_BYTES]; /* set before the workers start */
	bool has_local;
	struct budget *local_budget;
	struct task watcher;
	bool is_failing; /* the watcher's own: the store did not answer the last time */
};

void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES])
{
	crypto_generichash(digest, KEY_DIGEST_BYTES, (const unsigned char *)text.ptr, text.len, NULL, 0);
}

void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES])
{
	memcpy(text, "ck_", 3);
	for (size_t i = 0; i < RANDOM_DIGITS; i++)
		text[3 + i] = digits[randombytes_uniform(sizeof(digits) - 1)];
	text[3 + RANDOM_DIGITS] = '\0';
	api_key_digest(str_of(text), digest);
}

/* Tables */

static int table_init(struct table *t, struct arena *arena, size_t count)
{
	size_t slots = 16;
	while (slots < count * 2)
		slots *= 2;
	t->mask = slots - 1;
	t->slots = arena_zalloc(arena, slots * sizeof(*t->slots));
	return t->slots ? 0 : ERR_NOMEM;
}

static void table_add(struct table *t, uint64_t hash, size_t place)
{
	size_t at = hash & t->mask;
	while (t->slots[at])
		at = (at + 1) & t->mask;
	t->slots[at] = (uint32_t)place + 1;
}

/* Every place under the hash, and perhaps some of other hashes. */
#define TABLE_EACH(table, hash, at) \
	for (size_t at = (hash) & (table)->mask; (table)->slots[at]; at = (at + 1) & (table)->mask)

/* Digests and session ids are random, so that their first bytes do as a hash. */
static uint64_t hash_of_random(const uint8_t *bytes)
{
	uint64_t head;
	memcpy(&head, bytes, sizeof(head));
	return head;
}

/* Users and keys by id */

static const struct held_user *user_of(const struct snapshot *s, uint64_t id)
{
	size_t low = 0, high = s->user_count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (s->users[mid].account.id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->user_count && s->users[low].account.id == id ? &s->users[low] : NULL;
}

static const struct held_key *key_of(const struct snapshot *s, uint64_t id)
{
	size_t low = 0, high = s->key_count;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (s->keys[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->key_count && s->keys[low].id == id ? &s->keys[low] : NULL;
}

/* Reading from the store */

static void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	free(s->users);
	arena_release(&s->arena);
	free(s);
}

static struct str full_name(struct arena *arena, const struct user_record *record)
{
	const struct str parts[] = {record->first_name, record->middle_name, record->last_name};
	struct buf CLEANUP(buf_release) name = {0};
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		if (name.len > 0 && parts[i].len > 0)
			buf_char(&name, ' ');
		buf_str(&name, parts[i]);
	}
	if (name.len == 0)
		buf_printf(&name, "user %llu", (unsigned long long)record->id);
	return name.failed ? STR_NULL : arena_str(arena, buf_view(&name));
}

/* What was found for the last snapshot need not be looked for again: `*known` goes along. */
static struct budget *budget_of_held(struct accounts *a, const struct snapshot *old, uint64_t user,
                                     size_t *known)
{
	while (old && *known < old->user_count && old->users[*known].account.id < user)
		++*known;
	if (old && *known < old->user_count && old->users[*known].account.id == user)
		return old->users[*known].budget;
	return budgets_of(a->budgets, budget_of_user(user));
}

static int hold_user(struct accounts *a, struct snapshot *s, const struct user_record *record,
                     struct budget *budget)
{
	if (s->user_count == s->user_room) {
		size_t room = MAX(s->user_room * 2, USERS_PAGE);
		struct held_user *users = reallocarray(s->users, room, sizeof(*users));
		if (!users)
			return ERR_NOMEM;
		s->users = users;
		s->user_room = room;
	}
	struct str email = arena_str(&s->arena, record->email);
	struct str name = email.ptr ? email : full_name(&s->arena, record);
	if (!budget || !name.ptr)
		return ERR_NOMEM;
	budget_set(budget, a->limits.creates_max, a->limits.redirects_max, a->limits.period_ms);
	s->users[s->user_count++] = (struct held_user){
	    .account =
	        {
	            .id = record->id,
	            .email = email,
	            .name = name,
	            .role = record->role,
	            .enabled = record->enabled,
	            .generation = record->generation,
	        },
	    .budget = budget,
	};
	return 0;
}

/* Each page has its own memory: their passwords go with it. */
static int read_users(struct accounts *a, const struct snapshot *old, struct snapshot *s)
{
	uint64_t after = 0;
	size_t known = 0;
	bool more = true;
	while (more) {
		struct arena CLEANUP(arena_release) arena = {0};
		struct store_users page = {.after = after, .limit = USERS_PAGE, .arena = &arena};
		int r = store_users(a->store, &page);
		for (size_t i = 0; r == 0 && i < page.count; i++) {
			const struct user_record *record = &page.users[i];
			r = hold_user(a, s, record, budget_of_held(a, old, record->id, &known));
			after = record->id;
		}
		if (r < 0)
			return r;
		more = page.more && page.count > 0;
	}
	int r = table_init(&s->by_email, &s->arena, s->user_count);
	for (size_t i = 0; r == 0 && i < s->user_count; i++) {
		struct str email = s->users[i].account.email;
		if (email.ptr)
			table_add(&s->by_email, hash_str(email, a->hash_seed), i);
	}
	return r;
}

static bool is_over(int64_t expires_ms, int64_t now_ms)
{
	return expires_ms != 0 && expires_ms <= now_ms;
}

static void count_live_key(struct account *account, const struct key_record *record, int64_t now_ms)
{
	if (record->revoked_ms || is_over(record->expires_ms, now_ms))
		return;
	account->live_keys++;
	if (record->expires_ms && (!account->live_until_ms || record->expires_ms < account->live_until_ms))
		account->live_until_ms = record->expires_ms;
}

/* Also one without limits of its own has a budget: when it was last used stands there, and links that were
 * made with it before may point at it. */
static int hold_key(struct accounts *a, struct snapshot *s, const struct key_record *record, int64_t now_ms,
                    struct budget *budget)
{
	const struct account_limits *l = &a->limits;
	struct held_user *user = (struct held_user *)user_of(s, record->user); /* not published yet */
	if (!budget)
		return ERR_NOMEM;
	budget_set(budget, record->creates_max ? record->creates_max : l->creates_max,
	           record->redirects_max ? record->redirects_max : l->redirects_max,
	           record->period_ms ? record->period_ms : l->period_ms);
	if (user)
		count_live_key(&user->account, record, now_ms);
	if (user && !record->revoked_ms)
		table_add(&s->by_digest, hash_of_random(record->digest), s->key_count);
	struct held_key *key = &s->keys[s->key_count++];
	*key = (struct held_key){
	    .id = record->id,
	    .user = user,
	    .rights = record->rights,
	    .expires_ms = record->expires_ms,
	    .revoked_ms = record->revoked_ms,
	    .told_ms = record->used_ms,
	    .has_limits = record->creates_max || record->redirects_max || record->period_ms,
	    .budget = budget,
	};
	memcpy(key->digest, record->digest, sizeof(key->digest));
	return 0;
}

static int hold_keys(struct accounts *a, const struct snapshot *old, struct snapshot *s,
                     const struct key_record *records, size_t count)
{
	int64_t now_ms = clock_real_ms();
	int r = table_init(&s->by_digest, &s->arena, count);
	s->keys = arena_alloc(&s->arena, MAX(count, 1) * sizeof(*s->keys));
	if (!s->keys)
		return ERR_NOMEM;
	for (size_t i = 0, known = 0; r == 0 && i < count; i++) {
		uint64_t id = records[i].id;
		while (old && known < old->key_count && old->keys[known].id < id)
			known++;
		bool is_known = old && known < old->key_count && old->keys[known].id == id;
		r = hold_key(a, s, &records[i], now_ms,
		             is_known ? old->keys[known].budget : budgets_of(a->budgets, id));
	}
	return r;
}

/* Keys are read before users, so that another process's new key never comes without its user. */
static int snapshot_fill(struct accounts *a, const struct snapshot *old, struct snapshot *s)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct key_record *records;
	size_t count;
	int r = store_keys(a->store, &arena, &records, &count);
	if (r == 0)
		r = read_users(a, old, s);
	if (r == 0)
		r = hold_keys(a, old, s, records, count);
	return r;
}

static int reload_people_locked(struct accounts *a)
{
	struct snapshot *old = atomic_load_explicit(&a->current, memory_order_relaxed); /* our own */
	struct snapshot *fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return ERR_NOMEM;
	int r = snapshot_fill(a, old, fresh);
	if (r < 0) {
		snapshot_free(fresh);
		return r;
	}
	pthread_mutex_lock(&a->uses_lock);
	/* pairs with the acquire in snapshot_now */
	atomic_store_explicit(&a->current, fresh, memory_order_release);
	pthread_mutex_unlock(&a->uses_lock);
	if (old) {
		reclaim_wait();
		snapshot_free(old);
	}
	return 0;
}

static void ended_free(struct ended *ended)
{
	if (!ended)
		return;
	arena_release(&ended->arena);
	free(ended);
}

static int ended_fill(struct accounts *a, struct ended *s)
{
	int r = store_sessions(a->store, clock_real_ms(), &s->arena, &s->sessions, &s->count);
	if (r == 0)
		r = table_init(&s->by_id, &s->arena, s->count);
	for (size_t i = 0; r == 0 && i < s->count; i++)
		table_add(&s->by_id, hash_of_random(s->sessions[i].id), i);
	return r;
}

static int reload_sessions_locked(struct accounts *a)
{
	struct ended *fresh = calloc(1, sizeof(*fresh));
	int r = fresh ? ended_fill(a, fresh) : ERR_NOMEM;
	if (r < 0) {
		ended_free(fresh);
		return r;
	}
	/* release pairs with the acquire in has_ended */
	struct ended *old = atomic_exchange_explicit(&a->ended, fresh, memory_order_acq_rel);
	if (old) {
		reclaim_wait();
		ended_free(old);
	}
	return 0;
}

int accounts_reload_sessions(struct accounts *a)
{
	pthread_mutex_lock(&a->reload_lock);
	int r = reload_sessions_locked(a);
	pthread_mutex_unlock(&a->reload_lock);
	return r;
}

/* The version is read first: a change that comes in between is then read once more, not missed. */
static int reload_locked(struct accounts *a)
{
	uint64_t version = 0;
	bool has_version = a->store->ops->version != NULL;
	int r = has_version ? store_version(a->store, &version) : 0;
	if (r == 0)
		r = reload_sessions_locked(a);
	if (r == 0)
		r = reload_people_locked(a);
	a->has_version = has_version && r == 0;
	a->version = version;
	return r;
}

int accounts_reload(struct accounts *a)
{
	pthread_mutex_lock(&a->reload_lock);
	int r = reload_locked(a);
	pthread_mutex_unlock(&a->reload_lock);
	return r;
}

int accounts_follow(struct accounts *a)
{
	uint64_t version = 0;
	if (!a->store->ops->version)
		return 0;
	pthread_mutex_lock(&a->reload_lock);
	int r = store_version(a->store, &version);
	if (r == 0 && !(a->has_version && a->version == version))
		r = reload_locked(a);
	pthread_mutex_unlock(&a->reload_lock);
	return r;
}

static int64_t watch(struct task *t)
{
	struct accounts *a = container_of(t, struct accounts, watcher);
	int r = accounts_follow(a);
	if (r < 0 && !a->is_failing)
		log_warn("api",
		         "the store does not say whether accounts have changed (%s); what is known of them "
		         "stays in force",
		         err_name(r));
	if (r == 0 && a->is_failing)
		log_info("api", "the store says again whether accounts have changed");
	a->is_failing = r < 0;
	return WATCH_MS;
}

int accounts_watch(struct accounts *a, struct err *e)
{
	const struct task_config config = {.name = "watcher", .run = watch, .first_ms = WATCH_MS};
	return task_start(&a->watcher, &config, e);
}

void accounts_wake(struct accounts *a)
{
	task_wake(&a->watcher);
}

void accounts_unwatch(struct accounts *a)
{
	task_stop(&a->watcher);
}

int accounts_new(struct store *store, struct budgets *budgets, const struct account_limits *limits,
                 struct accounts **ret, struct err *e)
{
	struct accounts *a = calloc(1, sizeof(*a));
	if (!a)
		return err_set(e, ERR_NOMEM, "out of memory for the accounts");
	a->store = store;
	a->budgets = budgets;
	a->limits = *limits;
	pthread_mutex_init(&a->reload_lock, NULL);
	pthread_mutex_init(&a->uses_lock, NULL);
	randombytes_buf(&a->hash_seed, sizeof(a->hash_seed));
	randombytes_buf(a->secret, sizeof(a->secret));
	int r = store_constant(store, STR("session-secret"), a->secret, sizeof(a->secret));
	if (r == 0)
		r = accounts_reload(a);
	if (r < 0) {
		accounts_free(a);
		return err_set(e, r, "cannot read the accounts from the store (%s)", err_name(r));
	}
	*ret = a;
	return 0;
}

void accounts_free(struct accounts *a)
{
	if (!a)
		return;
	accounts_unwatch(a);
	snapshot_free(atomic_load_explicit(&a->current, memory_order_relaxed));
	ended_free(atomic_load_explicit(&a->ended, memory_order_relaxed));
	pthread_mutex_destroy(&a->reload_lock);
	pthread_mutex_destroy(&a->uses_lock);
	sodium_memzero(a->secret, sizeof(a->secret));
	free(a);
}

void accounts_set_local(struct accounts *a, struct str presented)
{
	api_key_digest(presented, a->local_digest);
	a->local_budget = budgets_of(a->budgets, budget_of_user(0));
	a->has_local = a->local_budget != NULL;
}

static const struct snapshot *snapshot_now(const struct accounts *a)
{
	return atomic_load_explicit(&a->current, memory_order_acquire);
}

/* Finding keys */

static unsigned rights_of(const struct held_key *key)
{
	return role_rights(key->user->account.role) & key->rights;
}

static bool key_in_force(const struct held_key *key, int64_t now_ms)
{
	return key->user && key->user->account.enabled && !key->revoked_ms &&
	       !is_over(key->expires_ms, now_ms);
}

/* A busy key's budget is in every core's cache: not more than a write a second. */
static void note_use(struct budget *b, int64_t now_ms)
{
	if (now_ms - atomic_load_explicit(&b->used_ms, memory_order_relaxed) >= USED_STEP_MS)
		atomic_store_explicit(&b->used_ms, now_ms, memory_order_relaxed);
}

bool accounts_find_key(struct accounts *a, struct str presented, int64_t now_ms, struct caller *ret)
{
	uint8_t digest[KEY_DIGEST_BYTES];
	api_key_digest(presented, digest);
	if (a->has_local && sodium_memcmp(a->local_digest, digest, sizeof(digest)) == 0) {
		*ret = (struct caller){.rights = RIGHTS_ALL, .budget = a->local_budget};
		return true;
	}
	const struct snapshot *s = snapshot_now(a);
	TABLE_EACH(&s->by_digest, hash_of_random(digest), at)
	{
		const struct held_key *key = &s->keys[s->by_digest.slots[at] - 1];
		if (sodium_memcmp(key->digest, digest, sizeof(digest)) != 0)
			continue;
		if (!key_in_force(key, now_ms))
			return false;
		*ret = (struct caller){
		    .user = key->user->account.id,
		    .key = key->id,
		    .rights = rights_of(key),
		    .limit_key = key->has_limits ? key->id : 0,
		    .budget = key->has_limits ? key->budget : key->user->budget,
		    .expires_ms = key->expires_ms,
		};
		note_use(key->budget, now_ms);
		return true;
	}
	return false;
}

int64_t accounts_key_used_ms(struct accounts *a, uint64_t key)
{
	const struct held_key *held = key_of(snapshot_now(a), key);
	return held ? atomic_load_explicit(&held->budget->used_ms, memory_order_relaxed) : 0;
}

size_t accounts_uses(struct accounts *a, struct store_write *writes, size_t max)
{
	size_t n = 0;
	pthread_mutex_lock(&a->uses_lock);
	struct snapshot *s = atomic_load_explicit(&a->current, memory_order_relaxed);
	for (size_t i = 0; i < s->key_count && n < max; i++) {
		struct held_key *key = &s->keys[i];
		int64_t used_ms = atomic_load_explicit(&key->budget->used_ms, memory_order_relaxed);
		if (used_ms <= key->told_ms)
			continue;
		key->told_ms = used_ms;
		writes[n].kind = STORE_KEY_USED;
		writes[n].key.id = key->id;
		writes[n].key.used_ms = used_ms;
		n++;
	}
	pthread_mutex_unlock(&a->uses_lock);
	return n;
}

/* Sessions */

void session_make(const struct accounts *a, uint64_t user, uint64_t generation, int64_t expires_ms,
                  char text[SESSION_TEXT_BYTES], uint8_t ret_session[SESSION_ID_BYTES])
{
	struct session_token t = {.user = user, .generation = generation, .expires_ms = expires_ms};
	randombytes_buf(t.id, sizeof(t.id));
	session_token_write(a->secret, &t, text);
	memcpy(ret_session, t.id, SESSION_ID_BYTES);
}

static bool has_ended(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES])
{
	const struct ended *ended = atomic_load_explicit(&a->ended, memory_order_acquire);
	TABLE_EACH(&ended->by_id, hash_of_random(session), at)
	{
		if (memcmp(ended->sessions[ended->by_id.slots[at] - 1].id, session, SESSION_ID_BYTES) == 0)
			return true;
	}
	return false;
}

/*
 * The user of a session that is still good. A generation later than the one known here is as good: the MAC
 * says that one of us made it, so another process has changed the user since.
 */
static const struct held_user *session_user(const struct accounts *a, const struct caller *c, int64_t now_ms)
{
	const struct held_user *user = user_of(snapshot_now(a), c->user);
	bool good = user && user->account.enabled && c->generation >= user->account.generation &&
	            c->expires_ms > now_ms && !has_ended(a, c->session);
	return good ? user : NULL;
}

bool accounts_find_session(struct accounts *a, struct str token, int64_t now_ms, struct caller *ret)
{
	struct session_token t;
	if (!session_token_read(a->secret, token, &t))
		return false;
	struct caller c = {
	    .user = t.user,
	    .by_session = true,
	    .generation = t.generation,
	    .expires_ms = t.expires_ms,
	};
	memcpy(c.session, t.id, SESSION_ID_BYTES);
	const struct held_user *user = session_user(a, &c, now_ms);
	if (!user)
		return false;
	c.rights = role_rights(user->account.role);
	c.budget = user->budget;
	*ret = c;
	return true;
}

void session_csrf(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                  char text[CSRF_TEXT_BYTES])
{
	session_token_csrf(a->secret, session, text);
}

bool session_csrf_is(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES], struct str presented)
{
	char wanted[CSRF_TEXT_BYTES];
	session_csrf(a, session, wanted);
	return presented.len == strlen(wanted) && sodium_memcmp(wanted, presented.ptr, presented.len) == 0;
}

/* Users, and what goes on for long */

bool accounts_in_force(struct accounts *a, const struct caller *c, int64_t now_ms)
{
	unsigned rights = 0;
	if (c->by_session) {
		const struct held_user *user = session_user(a, c, now_ms);
		if (!user)
			return false;
		rights = role_rights(user->account.role);
	} else if (c->key != 0) {
		const struct held_key *key = key_of(snapshot_now(a), c->key);
		if (!key || !key_in_force(key, now_ms))
			return false;
		rights = rights_of(key);
	} else {
		return a->has_local && c->user == 0 && c->rights == RIGHTS_ALL;
	}
	return (c->rights & ~rights) == 0;
}

const struct account *accounts_user(struct accounts *a, uint64_t id)
{
	const struct held_user *user = user_of(snapshot_now(a), id);
	return user ? &user->account : NULL;
}

const struct account *accounts_user_named(struct accounts *a, struct str text)
{
	const struct snapshot *s = snapshot_now(a);
	char folded[EMAIL_BYTES_MAX];
	uint64_t id;
	if (str_u64(text, &id))
		return accounts_user(a, id);
	if (text.len > sizeof(folded))
		return NULL;
	for (size_t i = 0; i < text.len; i++)
		folded[i] = ascii_lower(text.ptr[i]);
	struct str email = str_n(folded, text.len);
	TABLE_EACH(&s->by_email, hash_str(email, a->hash_seed), at)
	{
		const struct account *account = &s->users[s->by_email.slots[at] - 1].account;
		if (str_eq(account->email, email))
			return account;
	}
	return NULL;
}

struct str accounts_name(struct accounts *a, uint64_t id)
{
	if (id == 0)
		return STR("local");
	const struct account *account = accounts_user(a, id);
	return account ? account->name : STR_NULL;
}
