/*
 * The links: what may be done with them, in batches, by threads that may block. The event loops reach it
 * through the offload pools (src/handler/jobs.c), the command line calls it directly.
 */
#pragma once

#include "config/config.h"
#include "link/cache.h"
#include "link/click_limit.h"
#include "link/ids.h"
#include "link/key.h"
#include "link/source.h"
#include "obs/metrics.h"
#include "rcache/rcache.h"
#include "store/store.h"

#include <pthread.h>

struct links;

struct links_settings {
	int alphabet;        /* enum key_alphabet */
	uint64_t key_length; /* 0: the alphabet's own */
	uint64_t cache_bytes;
	uint64_t negative_ms;
	uint64_t quarantine_ms;  /* of the alias of a link that is over */
	uint64_t life_ms;        /* of cached links, when others write to the store too; 0: for ever */
	uint64_t shared_life_ms; /* in the shared cache */
	int source;              /* enum link_source */
};

enum link_source { SOURCE_CIPHER, SOURCE_POOL, SOURCE_CLAIM };

extern const struct conf_row links_rows[];
extern const size_t links_row_count;

/* Makes the response that sends a visitor on: the bytes, and where in them the date stands. */
typedef int links_render_fn(const struct link_record *link, struct buf *out, uint16_t *ret_date_at);

struct links_config {
	struct store *store;       /* outlives the links */
	struct budgets *budgets;   /* likewise; and so the next two */
	struct rcache *rcache;     /* what servers cache together; NULL: nothing */
	struct key_source *source; /* of keys; NULL: the cipher over leased ids */
	struct links_settings settings;
	uint64_t id_block; /* how many ids to lease at once */
	uint64_t cache_seed;
	links_render_fn *render; /* NULL: nothing is resolved here, and there is no cache */
};

/*
 * Fixes the key's shape and secret on a fresh store. ERR_INVALID with a sentence when the store was made
 * with another alphabet or length: its keys would stop working.
 */
int links_new(const struct links_config *config, struct links **ret, struct err *e);
void links_free(struct links *l);

const struct key_cipher *links_cipher(const struct links *l);
struct cache *links_cache(struct links *l);

/* How long beyond its time a cached link may be served while it is read again in the background; later it is
 * asked for first. */
uint64_t links_grace_ms(const struct links *l);

/* Why the last creation that found no key found none; false: that has not happened. Any thread. */
bool links_source_trouble(struct links *l, struct err *ret);

/* Another server has changed the link of a (folded) key; or may have changed any link. Any thread that may
 * block. */
void links_changed(struct links *l, struct str key);
void links_made(struct links *l, struct str key, uint64_t id); /* by another server, perhaps long ago */
void links_lost(struct links *l);

/* How a folded key (key_fold) is looked up. */
struct link_ref links_ref(const struct links *l, struct str key);

/* What is to be done with somebody who follows a link. */
enum link_verdict {
	LINK_OPEN,      /* send them on: `response` */
	LINK_LATE,      /* its time or its clicks are over, and there is another place for them: `response` */
	LINK_SIGN_IN,   /* it is private, and nobody is signed in */
	LINK_FORBIDDEN, /* it is private, and they are not on its list */
	LINK_LOCKED,    /* it asks for a password */
	LINK_UNCOUNTED, /* its clicks are limited, and `gate` must be counted first */
};

/* Where a key leads. */
struct link_resolve {
	struct str key;      /* in: folded; lives until the outcome is taken */
	struct arena *arena; /* in: where the response goes */
	uint64_t user;       /* in: who asks; 0: nobody is signed in */
	bool sees_all;       /* in: an admin, for whom every link is open but for its password */
	struct str unlocked; /* in: the stored password that was met; STR_NULL: none */
	bool see_other;      /* in: the answer is to a POST: 303, whatever the link's own status */
	/* out: 0 with a verdict; ERR_NOT_FOUND for unknown, disabled, not yet, ended and spent alike; or the
	 * store's failure */
	int result;
	enum link_verdict verdict;
	struct str response; /* out, for OPEN and LATE */
	uint16_t response_date_at;
	uint64_t link;             /* out: row id */
	struct budget *budget;     /* out: whose limit of redirections holds */
	struct click_limit *limit; /* out: pinned, for the caller to unpin; NULL: no limit of clicks */
	uint64_t max_clicks;
	bool expired; /* out: it is there, but may go: the caller has it reaped */
};

/*
 * Resolves and fills the cache. Pool threads. In this order: a link that is unknown, disabled, not yet valid,
 * or over (it ended without a place for the late, or long ago), is not found; a private one asks who it is;
 * an ended one sends elsewhere; one whose clicks are used up is as if it had ended; one with a password asks
 * for it; the rest is open. Only what is the same for everybody is cached: never private links, nor those
 * with a password.
 */
void links_resolve(struct links *l, struct link_resolve **wanted, size_t n, int64_t now_ms,
                   struct metrics *m);

/* The records themselves, expired or not, as the store's primary has them now. `ref.key` is folded. The
 * result is 0 or what holds for all of them.
 */
int links_get(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m);
int links_list(struct links *l, struct store_list *page);

/* Does it lead to its target now, for those who may follow it? Not when it is disabled, not yet valid or
 * ended, nor when its clicks are known to be used up. Any thread; takes a lock. */
bool links_is_open(struct links *l, const struct link_record *link, int64_t now_ms);

/*
 * Creates, updates, deletes, in one transaction. quarantine_ms and was_issued are filled in here. For
 * CREATE the caller gives `link` with is_alias and, for an alias, `key` (folded and checked); id, key and ref
 * are filled here. For the others `ref` comes from links_ref. Records come back with their key. Each write's
 * `result` is final; there is no return value beyond it. When it returns, other servers have been told, as
 * far as they can be. A CREATE is ERR_BUSY when the source of keys has none now: links_source_trouble.
 */
void links_apply(struct links *l, struct store_write *writes, size_t n, struct metrics *m);

/* Counts a batch of changes, also of accounts. */
void links_count_commit(struct metrics *m, size_t n, int64_t start_ns, bool failed);

/* The same, with generated keys that lie in this database of several, as far as there are some
 * (store_shard_of): so the writer of one need not wait for another. */
void links_apply_in(struct links *l, size_t shard, struct store_write *writes, size_t n, struct metrics *m);
enum { LINKS_ANY_SHARD = -1 };
