/* `curt reshard --status`, and `--forget`: giving up a database that is lost. */
#include "store/shards_move.h"

/* --- status --- */

static struct shard_status *status_find(struct shards_status *status, struct str address)
{
	for (size_t i = 0; i < status->count; i++) {
		if (str_eq(str_of(status->shards[i].address), address))
			return &status->shards[i];
	}
	struct shard_status *shard = &status->shards[status->count++];
	memcpy(shard->address, address.ptr, MIN(address.len, SHARD_ADDRESS_MAX - 1));
	return shard;
}

void store_shards_status(struct store *store, struct shards_status *ret)
{
	struct store_shards *s = shards_of(store);
	uint64_t answered = shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	*ret = (struct shards_status){.version = v->map.version, .moves = slot_map_moves(&v->map)};
	for (size_t i = 0; i < s->count; i++) {
		struct shard_status *shard = status_find(ret, s->shards[i].address);
		shard->is_configured = true;
		shard->answers = shards_has(answered, i);
		shard->is_registry = i == s->registry;
		shard->is_target = slot_map_is_target(&v->map, v->rows[i].name);
	}
	for (size_t i = 0; i < v->map.count; i++) {
		size_t number = view_shard_find(s, v, v->map.shards[i].name);
		struct shard_status *shard = status_find(ret, number == SHARD_UNREACHABLE
		                                                  ? str_of(v->map.shards[i].address)
		                                                  : s->shards[number].address);
		shard->is_member = true;
		shard->is_lost = number == SHARD_UNREACHABLE && shard->is_configured;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
			shard->slots += v->owner[slot] == number ||
			                (v->owner[slot] >= SHARD_UNREACHABLE && v->map.owner[slot] == i);
	}
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		ret->orphans += v->owner[slot] == SHARD_NONE;
}

/* --- giving up --- */

struct forget_run {
	struct reshard_run m;
	size_t at;     /* index in the map */
	size_t number; /* shard number, or SHARD_UNREACHABLE */
	bool answers;
	struct slot_set lost;
	uint8_t to[SLOT_COUNT]; /* the new owner of each slot: index in the map */
};

static int forget_check(struct forget_run *l, const struct shards_view *v, bool sure)
{
	const char *address = v->map.shards[l->at].address;
	size_t count = slots_count(&l->lost);
	if (l->number == l->m.s->registry)
		return err_set(
		    l->m.e, ERR_INVALID,
		    "%s is the registry, which holds accounts and counters, and cannot be given up; "
		    "restore it from a backup",
		    address);
	if (l->answers && count == 0)
		return err_set(l->m.e, ERR_INVALID, "%s answers, so its links can be kept; use --leave",
		               address);
	if (sure)
		return 0;
	return err_set(l->m.e, ERR_INVALID,
	               "giving up %s loses all links in %zu of %d slots: they answer 404, their names "
	               "become free, and its backups become useless; pass --yes to "
	               "confirm",
	               address, count, SLOT_COUNT);
}

/* Slots that were moving to the lost database stay at their source. */
static int forget_reclaim(struct forget_run *l, const struct shards_view *v)
{
	const uint8_t *name = v->map.shards[l->at].name;
	int r = 0;
	for (size_t i = 0; r == 0 && i < l->m.s->count; i++) {
		const struct slot_row *row = &v->rows[i];
		struct slot_attempt a = {.token = row->out_token};
		bool is_given = row->move == MOVE_GIVEN;
		if (!v->is_known[i] || i == l->number || row->move == MOVE_NONE ||
		    memcmp(row->out_to, name, SHARD_NAME_BYTES) != 0)
			continue;
		if (is_given)
			slots_drop(&l->lost, &row->out);
		r = move_row_change(&l->m, i, is_given ? slot_row_reclaim : slot_row_abandon, &a, NULL,
		                    "cannot take back slots that were moving away");
	}
	return r;
}

static int share_adopt(struct forget_run *l, const struct shards_view *v, size_t at)
{
	size_t number = view_shard_find(l->m.s, v, v->map.shards[at].name);
	struct slot_set share = slots_none;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (slots_have(&l->lost, slot) && l->to[slot] == at)
			slots_add(&share, slot);
	}
	if (slots_count(&share) == 0)
		return 0;
	if (number == SHARD_UNREACHABLE)
		return err_set(l->m.e, ERR_UNAVAILABLE, "%s does not answer; start it first",
		               v->map.shards[at].address);
	int r = garbage_delete(&l->m, number);
	return r ? r
	         : move_row_change(&l->m, number, slot_row_adopt, &(struct slot_attempt){.slots = &share},
	                           NULL, "cannot adopt slots");
}

/* Spreads the slots over the other databases, or returns them to a restored one. */
static int forget_spread(struct forget_run *l, const struct shards_view *v)
{
	const uint8_t *names[SHARDS_MAX] = {NULL};
	int r = 0;
	for (size_t i = 0; i < v->map.count; i++)
		names[i] = (i == l->at) == l->answers ? v->map.shards[i].name : NULL;
	if (!slots_place(names, l->to))
		return err_set(l->m.e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; r == 0 && i < v->map.count; i++)
		r = share_adopt(l, v, i);
	return r;
}

static void forget_map(struct slot_map *map, const struct shards_view *v, void *ctx)
{
	const struct forget_run *l = ctx;
	(void)v;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (slots_have(&l->lost, slot))
			map->owner[slot] = l->to[slot];
	}
	if (!l->answers)
		slot_map_remove(map, l->at);
}

static int forget(struct forget_run *l, struct str address, bool sure)
{
	struct store_shards *s = l->m.s;
	uint64_t answered = shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	for (l->at = 0; l->at < v->map.count; l->at++) {
		l->number = view_shard_find(s, v, v->map.shards[l->at].name);
		if (str_eq(address, str_of(v->map.shards[l->at].address)) ||
		    (l->number < s->count && str_eq(address, s->shards[l->number].address)))
			break;
	}
	if (l->at == v->map.count)
		return err_set(
		    l->m.e, ERR_INVALID,
		    "%.*s is no database of this store; 'curt reshard --status' lists the addresses",
		    STR_ARG(address));
	l->answers = l->number < s->count && shards_has(answered, l->number);
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		bool is_theirs = v->owner[slot] == l->number || v->owner[slot] >= SHARD_UNREACHABLE;
		if (v->map.owner[slot] == l->at && (l->answers ? v->owner[slot] == SHARD_NONE : is_theirs))
			slots_add(&l->lost, slot);
	}
	return forget_check(l, v, sure)
		?: forget_reclaim(l, v)
		?: forget_spread(l, v)
		?: shards_map_change(s, forget_map, l, l->m.e);
}

int store_shards_forget(struct store *store, struct str address, bool sure, struct err *e)
{
	struct reshard round_trip = {.leave_count = 0};
	struct forget_run l = {.m = {.s = shards_of(store), .r = &round_trip, .e = e}};
	return forget(&l, address, sure);
}
