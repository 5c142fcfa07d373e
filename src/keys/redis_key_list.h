/*
 * A Redis server with keys ready for use: the list "curt:keys:available". It is put in order by one keysync
 * at a time, under a fencing number (lease.h) that lies beside the list: a smaller one is refused. Anybody
 * may take from it.
 *
 * All calls block, and may come from any thread.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "link/source.h"

enum { KEY_LIST_KEYS_MAX = 1000 /* in one call */ };

struct redis_key_list;

/* Only parses. redis:// or redis+sentinel:// */
int key_list_new(struct str url, struct redis_key_list **ret, struct err *e);
void key_list_free(struct redis_key_list *s);

struct str key_list_name(const struct redis_key_list *s); /* as redis_name */
bool key_list_is_failing(const struct redis_key_list *s); /* it is being left alone for a while */

int key_list_count(struct redis_key_list *s, uint64_t *ret, struct err *e);

struct key_list_view {
	uint64_t count;   /* of the list */
	uint64_t aside;   /* see key_list_put_aside */
	uint64_t brought; /* ever pushed; begins at 0 again when the server loses its memory */
};
int key_list_look(struct redis_key_list *s, struct key_list_view *ret, struct err *e);

/*
 * Adds keys at the end; n may be 0. ERR_CONFLICT: a larger number was seen; ERR_UNAVAILABLE: it cannot be
 * reached, or refuses; in both cases nothing was added. ERR_UNCERTAIN: it may have been. Then the same call
 * with the same `batch` adds them if they are not there. Under one fencing number batches are counted from 1.
 */
int key_list_push(struct redis_key_list *s, uint64_t fence, uint64_t batch, const struct source_key *keys,
                  size_t n, struct err *e);

/* Keys that can name nothing at the moment lie aside, and do not count as stock, or a shard that has nothing
 * else would never be filled. */
enum key_list_kind { KEY_LIST_AVAILABLE, KEY_LIST_ASIDE, KEY_LIST_KINDS };

/* Up to `max` keys from the front, and how many are left. ERR_UNCERTAIN: as many may have been taken, and are
 * lost, since the answer did not come. ERR_UNAVAILABLE: none was. */
int key_list_take(struct redis_key_list *s, enum key_list_kind list, size_t max, struct source_key *ret,
                  size_t *ret_count, uint64_t *ret_left, struct err *e);

/* Puts back what was taken and not used: in stock at the front, aside at the end; and how many lie there now.
 * ERR_UNCERTAIN: they may be there; ERR_UNAVAILABLE: none is. */
int key_list_put(struct redis_key_list *s, enum key_list_kind list, const struct source_key *keys, size_t n,
                 uint64_t *ret_length, struct err *e);

/* Of a list of URLs separated by commas, none twice: `ret` is in `arena`, the shelves are not. */
int key_lists_new(struct str urls, struct arena *arena, struct redis_key_list ***ret, size_t *ret_count,
                  struct err *e);
void key_lists_free(struct redis_key_list **lists, size_t n);
