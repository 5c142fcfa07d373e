/* Moving slots between databases. For shards_reshard.c and shards_forget.c. */
#pragma once

#include "store/reshard.h"
#include "store/shards.h"

/* One run of `curt reshard`. */
struct reshard_run {
	struct store_shards *s;
	struct reshard *r;
	struct err *e;
	struct reshard_progress progress;
	uint8_t target[SLOT_COUNT]; /* the shard that each slot shall go to */
	bool is_wanted[SHARDS_MAX]; /* the shard shall own slots afterwards */
};

struct str run_address(const struct reshard_run *m, size_t number);

/* Sets an error about a database; `what` says what did not work. */
int move_fail(const struct reshard_run *m, int r, size_t number, const char *what);

/* ERR_BUSY: the caller wants to stop. */
int report_progress(struct reshard_run *m);

/* Changes a slot row; `what` is for the error. */
int move_row_change(const struct reshard_run *m, size_t number, slot_rule_fn *rule,
                    const struct slot_attempt *a, struct slot_row *ret, const char *what);

/* Calls `fn` for the names in some slots of a database, a page at a time. */
typedef int names_fn(struct reshard_run *m, size_t number, const void *ctx, const struct str *names,
                     size_t n);
int names_each(struct reshard_run *m, size_t number, const struct slot_set *slots, names_fn *fn,
               const void *ctx);

/* Deletes the rows of slots that the database does not own. */
int garbage_delete(struct reshard_run *m, size_t number);

/* Moves all slots that `from` owns and `target` gives to `to`. */
int moves_between(struct reshard_run *m, size_t from, size_t to);
