#include "store/postgres_change.h"

#include "base/hash.h"
#include "store/rules.h"

/* --- runs --- */

enum class { CLASS_CREATE, CLASS_BY_KEY, CLASS_BY_ROW, CLASS_LIST, CLASS_ACCOUNT };

static enum class class_of(const struct store_write *w) {
	switch (w->kind){
		case STORE_LINK_CREATE : return CLASS_CREATE;
		case STORE_PERMIT : case STORE_FORBID : return CLASS_LIST;
		default : break;
	}
if (!store_write_is_link(w->kind)) return CLASS_ACCOUNT;
return w->ref.key.ptr ? CLASS_BY_KEY : CLASS_BY_ROW;
}

/* What the changes of a run are about, as hashes. Two that are taken for the same only begin a new run. */
struct subject {
	uint64_t hash;
	size_t run; /* by its number, from 1 on; others are of earlier ones */
};

struct subjects {
	struct subject *slots;
	size_t mask;
	size_t run;
};

enum { SUBJECTS_PER_WRITE = 4, SEED_KEY = 1, SEED_ID, SEED_REPLAY };

static int subjects_init(struct postgres_txn *t, struct subjects *s, size_t n)
{
	size_t size = 16;
	while (size < (size_t)2 * SUBJECTS_PER_WRITE * n)
		size *= 2;
	*s = (struct subjects){.slots = arena_zalloc(&t->scratch, size * sizeof(*s->slots)),
	                       .mask = size - 1};
	return s->slots ? 0 : txn_no_memory(t);
}

/* False when the run has it. */
static bool subject_add(struct subjects *s, uint64_t hash)
{
	for (size_t at = hash & s->mask;; at = (at + 1) & s->mask) {
		if (s->slots[at].run == s->run && s->slots[at].hash == hash)
			return false;
		if (s->slots[at].run != s->run) {
			s->slots[at] = (struct subject){hash, s->run};
			return true;
		}
	}
}

static bool create_add(struct subjects *s, const struct store_write *w)
{
	bool fresh = subject_add(s, hash_str(w->link.key, SEED_KEY));
	fresh = subject_add(s, hash_u64(w->link.id, SEED_ID)) && fresh;
	if (alias_decodes(w) && w->ref.id != w->link.id)
		fresh = subject_add(s, hash_u64(w->ref.id, SEED_ID)) && fresh;
	if (w->idempotency_key.ptr)
		fresh = subject_add(
		            s, hash_str(w->idempotency_key, hash_u64(w->idempotency_owner, SEED_REPLAY))) &&
		        fresh;
	return fresh;
}

/* Can the change be part of the run? */
static bool run_takes(struct subjects *s, enum class class, const struct store_write *w)
{
	if (class_of(w) != class)
		return false;
	switch (class) {
	case CLASS_CREATE: return create_add(s, w);
	case CLASS_BY_KEY: return subject_add(s, hash_str(w->ref.key, SEED_KEY));
	case CLASS_BY_ROW: return subject_add(s, hash_u64(w->ref.id, SEED_ID));
	case CLASS_LIST: return subject_add(s, hash_str(w->ref.key, hash_u64(w->user.id, SEED_KEY)));
	default: return false; /* one by one */
	}
}

/* With Citus a run locks one row at most, but a list may grow by many at a time. */
static bool run_is_open(const struct postgres_txn *t, enum class class, const struct store_write *first,
                        const struct store_write *w)
{
	if (!t->is_distributed || class == CLASS_CREATE)
		return true;
	return class == CLASS_LIST && w->ref.key.ptr && str_eq(w->ref.key, first->ref.key);
}

static size_t run_length(const struct postgres_txn *t, struct subjects *s, const struct store_write *writes,
                         size_t n)
{
	enum class class = class_of(&writes[0]);
	size_t length = 1;
	s->run++;
	run_takes(s, class, &writes[0]);
	while (length < n && run_is_open(t, class, &writes[0], &writes[length]) &&
	       run_takes(s, class, &writes[length]))
		length++;
	return length;
}

static int run_do(struct postgres_txn *t, const struct store_write *writes, size_t n,
                  struct store_outcome *outcomes)
{
	switch (class_of(&writes[0])) {
	case CLASS_CREATE: return postgres_create_run(t, writes, n, outcomes);
	case CLASS_BY_KEY:
	case CLASS_BY_ROW: return postgres_target_run(t, writes, n, outcomes);
	case CLASS_LIST: return postgres_list_run(t, writes, n, outcomes);
	default: return postgres_account_change(t, &writes[0], &outcomes[0]);
	}
}

/* --- what has died --- */

/* Something that dies, the kind of write that adds it, and the statement that forgets dead ones. */
struct purge {
	enum store_write_kind kind;
	int64_t per_write;
	int64_t life_ms; /* dead is what stood at this much before now, or earlier */
	struct pg_statement statement;
};

static const struct purge purges[] = {
    {STORE_LINK_CREATE,
     REPLAY_PURGE_PER_CREATE,
     REPLAY_MS,
     {"replay_purge", "DELETE FROM replay WHERE (caller, name) IN (SELECT caller, name FROM replay"
                      " WHERE made_ms <= $1 ORDER BY made_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"}},
    {STORE_LINK_REAP,
     REST_PURGE_PER_REAP,
     0,
     {"resting_purge", "DELETE FROM resting WHERE key IN (SELECT key FROM resting"
                       " WHERE until_ms <= $1 ORDER BY until_ms LIMIT $2)"}},
    {STORE_SESSION_END,
     SESSION_PURGE_PER_END,
     0,
     {"session_purge", "DELETE FROM ended_session WHERE id IN (SELECT id FROM ended_session"
                       " WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"}},
};

static void purge_put(struct postgres_txn *t, const struct purge *p, const struct store_write *writes,
                      size_t n)
{
	int64_t count = 0, now_ms = 0;
	for (size_t i = 0; i < n; i++) {
		if (writes[i].kind == p->kind) {
			count++;
			now_ms = writes[i].now_ms;
		}
	}
	if (count == 0)
		return;
	struct pg_query q = txn_query(t, &p->statement);
	pg_int(&q, now_ms - p->life_ms);
	pg_int(&q, p->per_write * count);
	txn_put(t, &q);
}

int postgres_change(struct postgres_txn *t, const struct store_write *writes, size_t n,
                    struct store_outcome *outcomes)
{
	struct subjects s;
	int r = subjects_init(t, &s, n);
	for (size_t i = 0, length; r == 0 && i < n; i += length) {
		length = run_length(t, &s, writes + i, n - i);
		r = run_do(t, writes + i, length, outcomes + i);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(purges); i++)
		purge_put(t, &purges[i], writes, n);
	return r;
}
