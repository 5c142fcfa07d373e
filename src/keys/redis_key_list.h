/*
 * A Redis server with keys ready for use, in the list "curt:keys:available". One keysync at a time fills
 * it, under a fencing number (lease.h) that is stored beside the list: smaller numbers are refused. Anybody
 * may take keys.
 *
 * All calls block, and may come from any thread.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "link/key_source.h"

enum { KEY_LIST_KEYS_MAX = 1000 /* per call */ };

struct redis_key_list;

/* Only parses the URL: redis:// or redis+sentinel:// */
int key_list_new(struct str url, struct redis_key_list **ret, struct err *e);
void key_list_free(struct redis_key_list *s);

struct str key_list_name(const struct redis_key_list *s); /* as redis_name */
bool key_list_is_failing(const struct redis_key_list *s); /* in backoff after a failure */

int key_list_count(struct redis_key_list *s, uint64_t *ret, struct err *e);

struct key_list_view {
	uint64_t count;    /* in the list */
	uint64_t deferred; /* in the deferred list */
	uint64_t pushed;   /* pushed ever; restarts at 0 when the server loses its data */
};
int key_list_look(struct redis_key_list *s, struct key_list_view *ret, struct err *e);

/* Appends keys; n may be 0. ERR_CONFLICT: a larger fencing number was seen. ERR_UNAVAILABLE: not reachable,
 * or refused. In both cases nothing was added. ERR_UNCERTAIN: unknown; repeating the call with the same
 * `batch` adds them only if they are missing. Batches count from 1 under one fencing number. */
int key_list_push(struct redis_key_list *s, uint64_t fence, uint64_t batch, const struct source_key *keys,
                  size_t n, struct err *e);

/* Keys of a shard of the store that is down are deferred. They do not count as available; otherwise a
 * server with nothing else would never be filled. */
enum key_list_kind { KEY_LIST_AVAILABLE, KEY_LIST_DEFERRED, KEY_LIST_KINDS };

/* Takes up to `max` keys from the front; *ret_left: how many remain. ERR_UNCERTAIN: the answer was lost,
 * and with it up to `max` keys. ERR_UNAVAILABLE: none was taken. */
int key_list_take(struct redis_key_list *s, enum key_list_kind list, size_t max, struct source_key *ret,
                  size_t *ret_count, uint64_t *ret_left, struct err *e);

/* Returns unused keys: available ones to the front, deferred ones to the end; *ret_length: the new length.
 * ERR_UNCERTAIN: they may be there. ERR_UNAVAILABLE: they are not. */
int key_list_put(struct redis_key_list *s, enum key_list_kind list, const struct source_key *keys, size_t n,
                 uint64_t *ret_length, struct err *e);

/* Opens a comma-separated list of distinct URLs. The array is in `arena`, the lists are not. */
int key_lists_new(struct str urls, struct arena *arena, struct redis_key_list ***ret, size_t *ret_count,
                  struct err *e);
void key_lists_free(struct redis_key_list **lists, size_t n);
