/* Operations on links, in batches, on threads that may block. Event loops use it through the offload pools
 * (src/handler/jobs.c), the command line directly. */
#pragma once

#include "config/config.h"
#include "link/cache.h"
#include "link/click_limit.h"
#include "link/ids.h"
#include "link/key.h"
#include "link/key_source.h"
#include "obs/metrics.h"
#include "rcache/rcache.h"
#include "store/store.h"

#include <pthread.h>

struct links;

struct links_settings {
	int alphabet;        /* enum key_alphabet */
	uint64_t key_length; /* 0: the alphabet's default */
	uint64_t cache_bytes;
	uint64_t negative_ms;
	uint64_t quarantine_ms;  /* of the alias of an expired link */
	uint64_t life_ms;        /* of cached links, if others write to the store; 0: unlimited */
	uint64_t shared_life_ms; /* of links in the shared cache */
	int source;              /* enum link_source */
};

enum link_source { SOURCE_CIPHER, SOURCE_POOL, SOURCE_CLAIM };

extern const struct conf_row links_rows[];
extern const size_t links_row_count;

/* Renders the redirect response: its bytes, and the offset of the date. */
typedef int links_render_fn(const struct link_record *link, struct buf *out, uint16_t *ret_date_at);

struct links_config {
	struct store *store; /* outlives the links, like the next three */
	struct budgets *budgets;
	struct rcache *rcache;     /* shared cache; NULL: none */
	struct key_source *source; /* NULL: the cipher over leased ids */
	struct links_settings settings;
	uint64_t id_block; /* ids to lease at once */
	uint64_t cache_seed;
	links_render_fn *render; /* NULL: no resolving and no cache */
};

/* Fixes the key format on a new store. ERR_INVALID with a sentence: the store has another alphabet or
 * length. */
int links_new(const struct links_config *config, struct links **ret, struct err *e);
void links_free(struct links *l);

const struct key_cipher *links_cipher(const struct links *l);
struct cache *links_cache(struct links *l);

/* How long past its due time a cached link is served while it is read again in the background. After that a
 * request waits. */
uint64_t links_grace_ms(const struct links *l);

/* The last error of the key source; false: there was none. Any thread. */
bool links_source_trouble(struct links *l, struct err *ret);

/* Another server changed the link of a folded key, created a link (perhaps long ago), or may have changed
 * any link. Any thread that may block. */
void links_changed_elsewhere(struct links *l, struct str key);
void links_created_elsewhere(struct links *l, struct str key, uint64_t id);
void links_feed_lost(struct links *l);

/* The reference of a folded key (key_fold). */
struct link_ref links_ref(const struct links *l, struct str key);

/* The verdict for a visitor. */
enum link_verdict {
	LINK_OPEN,      /* redirect: `response` */
	LINK_LATE,      /* ended or used up, with an expired_url: `response` */
	LINK_SIGN_IN,   /* private, and the visitor is anonymous */
	LINK_FORBIDDEN, /* private, and the visitor is not permitted */
	LINK_LOCKED,    /* needs a password */
	LINK_UNCOUNTED, /* `limit` must be counted first */
};

/* Who may follow a link that was read for `read->user` (0: anonymous): LINK_OPEN, LINK_SIGN_IN or LINK_FORBIDDEN.
 * `sees_all`: an admin, who may follow every link. */
enum link_verdict links_may_follow(const struct store_lookup *read, bool sees_all);

/* Resolves one key. */
struct link_resolve {
	struct str key;      /* in: folded; lives until the result is used */
	struct arena *arena; /* in: owns the response */
	uint64_t user;       /* in: user id; 0: anonymous */
	bool sees_all;       /* in: an admin, who may follow every link, but needs its password */
	struct str unlocked; /* in: the stored password that the visitor has proved; STR_NULL: none */
	bool see_other;      /* in: the response is to a POST: status 303 */
	/* out: 0 with a verdict; ERR_NOT_FOUND if unknown, disabled, not yet valid, ended or used up; or an
	 * error of the store */
	int result;
	enum link_verdict verdict;
	struct str response; /* out: for LINK_OPEN and LINK_LATE */
	uint16_t response_date_at;
	uint64_t link;             /* out: row id */
	struct budget *budget;     /* out: whose redirect limit applies */
	struct click_limit *limit; /* out: pinned, the caller unpins it; NULL: no click limit */
	uint64_t max_clicks;
	bool expired; /* out: it exists, but has expired: the caller has it swept */
};

/*
 * Resolves keys and fills the cache. Pool threads. The rules, in this order:
 *
 *	1. An unknown, disabled, not yet valid or expired link is not found.
 *	2. A private link needs a permitted visitor.
 *	3. An ended link redirects to its expired_url.
 *	4. A link whose clicks are used up counts as ended.
 *	5. A link with a password needs it.
 *	6. All others are open.
 *
 * Only responses that are the same for everybody are cached: never those of private links or links with a
 * password.
 */
void links_resolve(struct links *l, struct link_resolve **wanted, size_t n, int64_t now_ms,
                   struct metrics *m);

/* Reads records from the store's primary, expired or not. `ref.key` is folded. 0, or an error of all of
 * them. */
int links_get(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m);
int links_list(struct links *l, struct store_list *page);

/* Does it redirect to its target now, for permitted visitors? No if disabled, not yet valid, ended, or
 * known to be used up. Any thread; takes a lock. */
bool links_is_open(struct links *l, const struct link_record *link, int64_t now_ms);

/*
 * Applies changes in one transaction. It fills in quarantine_ms and was_issued. For a CREATE the caller
 * sets link.is_alias and, for an alias, link.key (folded and checked); id, key and ref are filled in here.
 * For the others `ref` comes from links_ref. Returned records have their key. The `result` of each write is
 * final. When it returns, other servers were notified, as far as possible. ERR_BUSY of a CREATE: the key
 * source has none (links_source_trouble).
 */
void links_apply(struct links *l, struct store_write *writes, size_t n, struct metrics *m);

/* Counts a batch of changes in the metrics. */
void links_count_commit(struct metrics *m, size_t n, int64_t start_ns, bool failed);

/* The same, with generated keys of the given shard if possible (store_shard_of), so that its writer need
 * not wait for another shard. */
void links_apply_in(struct links *l, size_t shard, struct store_write *writes, size_t n, struct metrics *m);
enum { LINKS_ANY_SHARD = -1 };
