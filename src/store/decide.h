/*
 * The rules for links. Pure: no I/O, no SQL. (Rows as they are, changes, time) become (outcomes, rows as
 * they shall be). Only backends use this:
 *
 *	1. view_init lists the rows that a batch of changes touches.
 *	2. The backend fetches them into `before`, locked where others write to the same database.
 *	3. decide_links applies the changes in order. Each change sees the effects of those before it.
 *	   Its outcome says what happened; `now` is the row as it shall be.
 *	4. The backend writes every row whose `now` differs from `before`, commits, and publishes outcomes.
 *
 * A row that does not exist cannot be locked. For a generated name the backend may skip the fetch, because
 * the name is almost never taken. If its insert then hits a taken name or id, the backend sets
 * name_row.is_lost and decides again: in the same view, where a lost name counts as taken, or in a new view
 * with all rows fetched.
 *
 * A row that cannot be read fails only the changes that touch it.
 *
 * Strings are borrowed: those of rows live as long as the view, those of changes belong to the caller.
 * Outcomes own their strings, in the change's arena.
 */
#pragma once

#include "base/buf.h"
#include "store/feed.h"
#include "store/store.h"

/* The result of a change, published to the caller only after the commit. So a batch that failed can be
 * submitted again unchanged. */
struct store_outcome {
	int result;
	bool replayed;
	bool has_link; /* `link` is returned */
	struct link_record link;
};

void outcome_publish(const struct store_outcome *out, struct store_write *w);

/* What differs between backends. */
struct store_rules {
	uint64_t hash_seed;
	bool gives_keys_back; /* removed links' keys are kept in spent_key, for store_claim */
};

enum { SPENT_FOR_GOOD = -1 };

/* The state of a name. */
struct name_state {
	const struct link_record *link; /* NULL: the name is free */
	bool is_damaged;                /* the name is taken, but its row cannot be read */
	uint64_t key_id;    /* of that link: the id that its generated key encodes; 0: the name is an alias */
	uint64_t permitted; /* users on its permission list */
	bool quarantined;   /* the last link expired; until then only */
	uint64_t quarantine_owner; /* this user may take the name */
	int64_t quarantined_until_ms;
	uint64_t spent_id;    /* the name is a generated key whose link was removed: its id; 0: it is not */
	int64_t spent_end_ms; /* when its quarantine began, or SPENT_FOR_GOOD: it is never reused */
};

struct name_row {
	struct str name;
	uint64_t id;       /* the id that the name decodes to; 0: none */
	bool is_wanted;    /* a CREATE wants it: fetch what may block the name */
	bool is_generated; /* only generated-key CREATEs touch it: the link need not be fetched */
	bool is_lost;      /* set by the backend: the insert hit a taken name or id */
	bool is_unknown;   /* set by the backend: whether the insert succeeded is unknown */
	struct name_state before, now;
	struct str made; /* the feed entry of the link that it gains */
};

/* One user's entry on a link's permission list. */
struct permission_row {
	struct name_row *name;
	uint64_t user;
	bool before, now;
};

/* A create with an idempotency key. */
struct replay_state {
	bool is_there;
	struct str fingerprint;
	int64_t made_ms;
	uint64_t link_id;
	struct str link_key; /* STR_NULL if the id alone finds the link */
};

struct replay_row {
	uint64_t caller;
	struct str key;
	struct replay_state before, now;
	const struct link_record *link; /* the link that it created, as it is now; NULL: removed */
	bool is_damaged;                /* that link's row cannot be read */
	struct name_row *name;          /* of the link that this batch creates */
};

/* A feed entry of the batch. */
struct link_change {
	const struct name_row *name;
	struct str bytes;
	bool is_made; /* it reports a new link */
};

/* An open-addressing hash index of rows. */
struct row_index {
	void **slots; /* at least half are NULL */
	size_t mask;
};

struct view {
	const struct store_rules *rules;
	struct arena arena; /* also holds what the backend fetches */
	struct name_row *names;
	struct permission_row *permissions;
	struct replay_row *replays;
	size_t name_count, permission_count, replay_count;
	struct link_change *changes; /* in the order of the changes */
	size_t change_count;
	int64_t now_ms; /* of the last change */
	struct purge replays_purge, quarantine_purge;
	struct row_index by_name, by_permission, by_replay;
};

/* 0 or ERR_NOMEM. */
int view_init(struct view *v, const struct store_rules *rules, const struct store_write *writes, size_t n);
void view_release(struct view *v);

/* 0, or ERR_NOMEM: nothing may be written then. */
int decide_links(struct view *v, const struct store_write *writes, size_t n, struct store_outcome *outcomes);

/* The encoded feed entries, without those of lost names. With `made`, also the entries of new links. False:
 * out of memory. */
bool view_feed(const struct view *v, bool made, struct arena *arena, struct str *ret);

/* Find the row of a name, or of a user on its permission list. */
struct name_row *view_name(const struct view *v, struct str name);
struct permission_row *view_permission(const struct view *v, const struct name_row *name, uint64_t user);

/* ERR_CONFLICT if the change depends on an insert that was lost, ERR_UNCERTAIN if that is unknown,
 * otherwise 0. The insert is that of its own name, or of the link that it repeats. */
int view_lost(const struct view *v, const struct store_write *w);

/* What the backend must write for a name. A link that another of the same name replaces is removed first,
 * then the new one is inserted. */
static inline bool name_loses_link(const struct name_row *row)
{
	return row->before.link && (!row->now.link || row->now.link->id != row->before.link->id);
}

static inline bool name_gains_link(const struct name_row *row)
{
	return row->now.link && (!row->before.link || row->now.link->id != row->before.link->id);
}

static inline bool name_changes_link(const struct name_row *row)
{
	return row->now.link && row->before.link && row->now.link->id == row->before.link->id &&
	       row->now.link != row->before.link;
}

static inline bool name_enters_quarantine(const struct name_row *row)
{
	return row->now.quarantined && (!row->before.quarantined ||
	                                row->now.quarantined_until_ms != row->before.quarantined_until_ms);
}

static inline bool name_keeps_permissions(const struct name_row *row)
{
	return row->now.link && row->before.link && row->now.link->id == row->before.link->id;
}
