/*
 * The rules of the store. No I/O, no SQL: (rows as they are, changes, time) become (outcomes, rows as they
 * shall be). For backends only, which do the rest:
 *
 *	1. view_init collects the rows that a batch of changes is about.
 *	2. The backend fetches them into `before`, locked where others write to the same database.
 *	3. decide takes the changes in order, each on top of those before it. What comes of a change is in
 *	   its outcome, what shall become of a row in `now`.
 *	4. The backend writes every row whose `now` differs from `before`, commits, and publishes outcomes.
 *
 * Absent rows cannot be locked. A backend may leave the link of a name that a CREATE generates unfetched: it
 * is hardly ever there. A backend whose insert finds the name or the id taken says so (name_row.is_lost), and
 * decides again: in the same view, where a lost name counts as taken, or in a new one with all rows fetched.
 *
 * A row that cannot be read fails the changes that are about it, and no others.
 *
 * Strings are borrowed: those of rows live as long as the view, those of changes belong to their owners.
 * Outcomes own theirs, in the change's arena.
 */
#pragma once

#include "base/buf.h"
#include "store/feed.h"
#include "store/store.h"

/* What a change will say once it is committed: until then a batch that failed can be handed in again as it
 * is. */
struct store_outcome {
	int result;
	bool replayed;
	bool has_link; /* that comes back */
	struct link_record link;
};

void outcome_publish(const struct store_outcome *out, struct store_write *w);

/* How a backend differs in what it promises. */
struct store_rules {
	uint64_t hash_seed;
	bool gives_keys_back; /* it remembers the keys whose links are gone (store_claim) */
};

enum { SPENT_FOR_GOOD = -1 };

/* What a name stands for. */
struct name_state {
	const struct link_record *link; /* NULL: nobody has it */
	bool is_damaged;                /* somebody has it, but that row cannot be read */
	uint64_t key_id;    /* of that link: the id that its generated key encodes; 0: somebody chose it */
	uint64_t permitted; /* users on its list */
	bool quarantined;   /* in quarantine: its last link has expired, and until then only */
	uint64_t quarantine_owner; /* this user may have it again */
	int64_t quarantined_until_ms;
	uint64_t spent_id;    /* it is a generated key whose link is gone: the id; 0: it is not */
	int64_t spent_end_ms; /* since when it may be given back, or SPENT_FOR_GOOD */
};

struct name_row {
	struct str name;
	uint64_t id;       /* what it decodes to; 0: nothing */
	bool is_wanted;    /* by a CREATE: what stands in its way must be fetched */
	bool is_generated; /* all that the batch wants of it is to make it: its link need not be fetched */
	bool is_lost;      /* the backend's to set: its insert found the name or the id taken, */
	bool is_unknown;   /* or nobody can say any more whether it did */
	struct name_state before, now;
	struct str made; /* the feed's entry of the link that it gains */
};

/* A user on a link's list. */
struct list_row {
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
	struct str link_key; /* STR_NULL where a link's id is enough to find it */
};

struct replay_row {
	uint64_t caller;
	struct str key;
	struct replay_state before, now;
	const struct link_record *link; /* that it made, as it is now; NULL: gone */
	bool is_damaged;                /* that link's row cannot be read */
	struct name_row *name;          /* of what it makes now */
};

/* An entry of the feed. */
struct feed_note {
	const struct name_row *name;
	struct str bytes;
	bool is_made; /* it says that the link was made */
};

/* Rows by hash. */
struct row_index {
	void **slots; /* at least half of them NULL */
	size_t mask;
};

struct view {
	const struct store_rules *rules;
	struct arena arena; /* also for what the backend fetches */
	struct name_row *names;
	struct list_row *lists;
	struct replay_row *replays;
	size_t name_count, list_count, replay_count;
	struct feed_note *notes; /* in the order of the changes */
	size_t note_count;
	int64_t now_ms; /* of the last change */
	struct purge replays_purge, quarantine_purge;
	struct row_index by_name, by_user, by_replay;
};

/* 0 or ERR_NOMEM. */
int view_init(struct view *v, const struct store_rules *rules, const struct store_write *writes, size_t n);
void view_release(struct view *v);

/* 0, or ERR_NOMEM: nothing may be written then. */
int decide_links(struct view *v, const struct store_write *writes, size_t n, struct store_outcome *outcomes);

/* The feed's entries, without those about names that were lost; with `made` also those that say that a link
 * was made. False: memory ran out. */
bool view_feed(const struct view *v, bool made, struct arena *arena, struct str *ret);

/* The row of a name, or of a user on its list, that a change is about. */
struct name_row *view_name(const struct view *v, struct str name);
struct list_row *view_list(const struct view *v, const struct name_row *name, uint64_t user);

/* Does the change rest on an insert that was lost (ERR_CONFLICT), or may have been (ERR_UNCERTAIN): of its
 * own name, or of the link that it repeats? */
int view_lost(const struct view *v, const struct store_write *w);

/* What must be written of a name. A link that gives way to another of the same name is removed, then made. */
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

static inline bool name_keeps_list(const struct name_row *row)
{
	return row->now.link && row->before.link && row->now.link->id == row->before.link->id;
}
