#include "store/decide.h"

#include "base/hash.h"
#include "store/rules.h"

/* --- the view --- */

static int index_init(struct row_index *index, struct arena *arena, size_t rows)
{
	size_t slots = 2;
	while (slots < 2 * rows)
		slots *= 2;
	index->mask = slots - 1;
	index->slots = arena_zalloc(arena, slots * sizeof(void *));
	return index->slots ? 0 : ERR_NOMEM;
}

/* The slot of the row for which `is_it` holds, or the free slot where it belongs. */
#define INDEX_FIND(index, hash, type, row, is_it)                       \
	({                                                              \
		size_t at_ = (hash) & (index)->mask;                    \
		type *row;                                              \
		while ((row = (index)->slots[at_]) != NULL && !(is_it)) \
			at_ = (at_ + 1) & (index)->mask;                \
		(type **)&(index)->slots[at_];                          \
	})

static struct name_row **name_at(const struct view *v, struct str name)
{
	return INDEX_FIND(&v->by_name, hash_str(name, v->rules->hash_seed), struct name_row, row,
	                  str_eq(row->name, name));
}

static struct permission_row **permission_at(const struct view *v, const struct name_row *name, uint64_t user)
{
	return INDEX_FIND(&v->by_permission,
	                  hash_u64((uint64_t)(name - v->names), hash_u64(user, v->rules->hash_seed)),
	                  struct permission_row, row, row->name == name && row->user == user);
}

static struct replay_row **replay_at(const struct view *v, const struct store_write *w)
{
	return INDEX_FIND(&v->by_replay, hash_str(w->idempotency_key, v->rules->hash_seed), struct replay_row,
	                  row, row->caller == w->idempotency_owner && str_eq(row->key, w->idempotency_key));
}

static void purge_add(struct purge *p, int64_t until_ms, int64_t per_write)
{
	p->until_ms = until_ms;
	p->max += per_write;
}

/* An inconsistent create is a bug of the caller: the link could not be found. */
static void create_check(const struct store_write *w)
{
	ASSERT(id_is_valid(w->link.id) && w->link.url.ptr);
	ASSERT(w->link.key.len > 0 && str_eq(w->ref.key, w->link.key));
	ASSERT(w->link.is_alias || (w->ref.id == w->link.id && !w->reuse));
}

static struct name_row *name_add(struct view *v, struct link_ref ref)
{
	struct name_row **at = name_at(v, ref.key);
	if (!*at) {
		*at = &v->names[v->name_count++];
		**at = (struct name_row){.name = ref.key, .is_generated = true};
	}
	if (id_is_valid(ref.id))
		(*at)->id = ref.id;
	return *at;
}

static void view_add(struct view *v, const struct store_write *w)
{
	struct name_row *name = name_add(v, w->ref);
	if (w->kind != STORE_LINK_CREATE || w->link.is_alias)
		name->is_generated = false;
	if (w->kind == STORE_LINK_CREATE) {
		name->is_wanted = true;
		create_check(w);
		purge_add(&v->replays_purge, w->now_ms - REPLAY_MS, REPLAY_PURGE_PER_CREATE);
		struct replay_row **at = w->idempotency_key.ptr ? replay_at(v, w) : NULL;
		if (at && !*at) {
			*at = &v->replays[v->replay_count++];
			**at = (struct replay_row){.caller = w->idempotency_owner, .key = w->idempotency_key};
		}
	}
	if (w->kind == STORE_LINK_SWEEP)
		purge_add(&v->quarantine_purge, w->now_ms, QUARANTINE_PURGE_PER_SWEEP);
	if (w->kind == STORE_PERMIT || w->kind == STORE_FORBID) {
		struct permission_row **at = permission_at(v, name, w->user);
		if (*at)
			return;
		*at = &v->permissions[v->permission_count++];
		**at = (struct permission_row){.name = name, .user = w->user};
	}
}

int view_init(struct view *v, const struct store_rules *rules, const struct store_write *writes, size_t n)
{
	*v = (struct view){.rules = rules};
	size_t permissions = 0, replays = 0;
	for (size_t i = 0; i < n; i++) {
		permissions += writes[i].kind == STORE_PERMIT || writes[i].kind == STORE_FORBID;
		replays += writes[i].kind == STORE_LINK_CREATE && writes[i].idempotency_key.ptr;
	}
	v->names = arena_alloc(&v->arena, n * sizeof(*v->names));
	v->changes = arena_alloc(&v->arena, 2 * n * sizeof(*v->changes));
	v->permissions = arena_alloc(&v->arena, permissions * sizeof(*v->permissions));
	v->replays = arena_alloc(&v->arena, replays * sizeof(*v->replays));
	if (!v->names || !v->changes || !v->permissions || !v->replays ||
	    index_init(&v->by_name, &v->arena, n) != 0 ||
	    index_init(&v->by_permission, &v->arena, permissions) != 0 ||
	    index_init(&v->by_replay, &v->arena, replays) != 0)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++)
		view_add(v, &writes[i]);
	return 0;
}

void view_release(struct view *v)
{
	arena_release(&v->arena);
}

static bool change_counts(const struct link_change *note, bool made)
{
	return !note->name->is_lost && (made || !note->is_made);
}

bool view_feed(const struct view *v, bool made, struct arena *arena, struct str *ret)
{
	size_t len = 0;
	for (size_t i = 0; i < v->change_count; i++)
		len += change_counts(&v->changes[i], made) ? v->changes[i].bytes.len : 0;
	char *at = arena_alloc(arena, len);
	*ret = str_n(at, len);
	if (!at)
		return false;
	for (size_t i = 0; i < v->change_count; i++) {
		if (change_counts(&v->changes[i], made))
			at = mempcpy(at, v->changes[i].bytes.ptr, v->changes[i].bytes.len);
	}
	return true;
}

struct name_row *view_name(const struct view *v, struct str name)
{
	return *name_at(v, name);
}

struct permission_row *view_permission(const struct view *v, const struct name_row *name, uint64_t user)
{
	return *permission_at(v, name, user);
}

static int row_lost(const struct name_row *row)
{
	return row->is_lost ? ERR_CONFLICT : row->is_unknown ? ERR_UNCERTAIN : 0;
}

int view_lost(const struct view *v, const struct store_write *w)
{
	const struct name_row *repeated = NULL;
	if (w->kind == STORE_LINK_CREATE && w->idempotency_key.ptr)
		repeated = (*replay_at(v, w))->name;
	int own = row_lost(view_name(v, w->ref.key));
	return own || !repeated ? own : row_lost(repeated);
}

/* --- names --- */

/* May the CREATE take a name that is quarantined for `owner`? */
static bool quarantine_allows(uint64_t owner, int64_t until_ms, const struct store_write *w)
{
	return w->reuse || owner == w->link.owner || until_ms <= w->now_ms;
}

/* When the quarantine of an expired link's alias ends. */
static int64_t quarantined_until_ms(const struct link_record *link, uint64_t quarantine_ms)
{
	int64_t until_ms;
	return __builtin_add_overflow(link_expired_ms(link), quarantine_ms, &until_ms) ? INT64_MAX : until_ms;
}

/* Does the holder give way to the CREATE? A generated key belongs to its link for ever, also when it was
 * reused. */
static bool holder_yields(const struct name_state *s, const struct store_write *w)
{
	return s->key_id == 0 && s->link->id != w->link.id && link_is_expired(s->link, w->now_ms) &&
	       quarantine_allows(s->link->owner, quarantined_until_ms(s->link, w->quarantine_ms), w);
}

static bool name_is_taken(const struct name_row *row, const struct store_write *w)
{
	const struct name_state *s = &row->now;
	if (row->is_lost || s->is_damaged || (s->link && !holder_yields(s, w)))
		return true;
	if (s->quarantined && !quarantine_allows(s->quarantine_owner, s->quarantined_until_ms, w))
		return true;
	if (w->reuse)
		return false;
	/* A generated key that was issued before: remembered as spent, or below the counter. */
	return s->spent_id != 0 || w->was_issued;
}

static void name_remove(const struct view *v, struct name_row *row, const struct store_write *w)
{
	const struct link_record *link = row->now.link;
	bool sweep = w->kind == STORE_LINK_SWEEP;
	if (row->now.key_id != 0 && v->rules->gives_keys_back) {
		row->now.spent_id = row->now.key_id;
		row->now.spent_end_ms = sweep ? link_expired_ms(link) : SPENT_FOR_GOOD;
	} else if (row->now.key_id == 0 && sweep &&
	           quarantined_until_ms(link, w->quarantine_ms) > w->now_ms) {
		row->now.quarantined = true;
		row->now.quarantine_owner = link->owner;
		row->now.quarantined_until_ms = quarantined_until_ms(link, w->quarantine_ms);
	}
	row->now.link = NULL;
	row->now.key_id = 0;
	row->now.permitted = 0;
	for (size_t i = 0; i < v->permission_count; i++) {
		if (v->permissions[i].name == row)
			v->permissions[i].now = false;
	}
}

/* --- creating --- */

/* The link of an earlier create, as this batch has changed it; NULL: removed. */
static const struct link_record *replay_link(const struct view *v, const struct replay_row *row)
{
	const struct name_row *name = row->name;
	for (size_t i = 0; !name && i < v->name_count; i++) {
		const struct link_record *held = v->names[i].before.link;
		if (held && held->id == row->now.link_id)
			name = &v->names[i];
	}
	if (!name)
		return row->link;
	return name->now.link && name->now.link->id == row->now.link_id ? name->now.link : NULL;
}

static int change_add(struct view *v, const struct name_row *row, const struct store_write *w,
                      enum feed_kind kind, const struct link_record *before, const struct link_record *after)
{
	CLEANUP(buf_release) struct buf changes = {0};
	struct link_change *note = &v->changes[v->change_count++];
	ASSERT(before); /* new links are handled by create_decide */
	if (before != after)
		fields_changes_json(&changes, &link_fields, before, after);
	note->name = row;
	note->is_made = false;
	note->bytes = feed_entry_bytes(&v->arena, &(struct feed_entry){.kind = kind,
	                                                               .actor = w->actor,
	                                                               .id = before->id,
	                                                               .name = row->name,
	                                                               .changes = buf_view(&changes)});
	return note->bytes.ptr && !changes.failed ? 0 : ERR_NOMEM;
}

static int link_return(const struct store_write *w, const struct link_record *link, struct store_outcome *out)
{
	out->has_link = true;
	out->link = *link;
	if (!link->is_alias)
		out->link.key = STR_NULL; /* as lookups return it */
	return link_own(w->arena, &out->link);
}

static int replay_decide(const struct view *v, const struct replay_row *row, const struct store_write *w,
                         struct store_outcome *out)
{
	if (!str_eq(row->now.fingerprint, str_n((const char *)w->fingerprint, FINGERPRINT_BYTES))) {
		out->result = ERR_INVALID;
		return 0;
	}
	const struct link_record *link = replay_link(v, row);
	out->replayed = true;
	out->result = link ? 0 : row->is_damaged ? ERR_CORRUPT : ERR_NOT_FOUND;
	return link ? link_return(w, link, out) : 0;
}

static int create_decide(struct view *v, const struct store_write *w, struct store_outcome *out)
{
	struct replay_row *replay = w->idempotency_key.ptr ? *replay_at(v, w) : NULL;
	if (replay && replay->now.is_there && w->now_ms - replay->now.made_ms < REPLAY_MS)
		return replay_decide(v, replay, w, out);
	struct name_row *row = view_name(v, w->ref.key);
	out->result = w->replay_only ? ERR_LIMIT : name_is_taken(row, w) ? ERR_CONFLICT : 0;
	if (out->result != 0)
		return 0;
	if (row->now.link) {
		int r = change_add(v, row, w, FEED_LINK_REMOVED, row->now.link, NULL);
		if (r != 0)
			return r;
		name_remove(v, row, w);
	}
	row->made = feed_entry_bytes(
	    &v->arena, &(struct feed_entry){
	                   .kind = FEED_LINK_MADE, .actor = w->actor, .id = w->link.id, .name = w->link.key});
	if (!row->made.ptr)
		return ERR_NOMEM;
	v->changes[v->change_count++] = (struct link_change){
	    .name = row, .bytes = row->made, .is_made = true};
	row->now.link = &w->link;
	row->now.key_id = w->link.is_alias && !w->reuse ? 0 : w->ref.id;
	row->now.quarantined = false;
	if (replay) {
		replay->name = row;
		replay->now = (struct replay_state){
		    .is_there = true,
		    .fingerprint = str_n((const char *)w->fingerprint, FINGERPRINT_BYTES),
		    .made_ms = w->now_ms,
		    .link_id = w->link.id,
		    .link_key = w->link.key,
		};
	}
	return 0;
}

/* --- changing existing links --- */

/* A generated link must match by id: another id means that the key is not its key. SWEEP also checks the
 * expiry. */
static int target_check(const struct store_write *w, const struct link_record *link)
{
	if (!link || !(link->is_alias || link->id == w->ref.id) || (w->owner != 0 && w->owner != link->owner))
		return ERR_NOT_FOUND;
	return w->kind == STORE_LINK_SWEEP && !link_is_expired(link, w->now_ms) ? ERR_CONFLICT : 0;
}

static int update_decide(struct view *v, struct name_row *row, const struct store_write *w,
                         struct store_outcome *out)
{
	struct link_record *link = arena_alloc(&v->arena, sizeof(*link));
	if (!link)
		return ERR_NOMEM;
	*link = *row->now.link;
	bool ends_by_default = link->expires_ms == link_default_expiry_ms(link);
	fields_take(w, link);
	if (ends_by_default && !(w->fields & LINK_EXPIRES))
		link->expires_ms = link_default_expiry_ms(link);
	if (w->fields & (LINK_NOT_BEFORE | LINK_EXPIRES) && link_never_opens(link)) {
		out->result = ERR_INVALID;
		return 0;
	}
	int r = change_add(v, row, w, FEED_LINK_CHANGED, row->now.link, link);
	row->now.link = link;
	return r ? r : link_return(w, link, out);
}

static int permission_decide(struct view *v, struct name_row *row, const struct store_write *w,
                             struct store_outcome *out)
{
	struct permission_row *user = view_permission(v, row, w->user);
	bool wanted = w->kind == STORE_PERMIT;
	if (user->now != wanted) {
		if (wanted && (!id_is_valid(w->user) || row->now.permitted >= PERMITTED_MAX)) {
			out->result = id_is_valid(w->user) ? ERR_LIMIT : ERR_INVALID;
			return 0;
		}
		user->now = wanted;
		row->now.permitted += wanted ? 1 : -1;
		if (change_add(v, row, w, FEED_LINK_CHANGED, row->now.link, row->now.link) != 0)
			return ERR_NOMEM;
	}
	return link_return(w, row->now.link, out);
}

static int target_decide(struct view *v, const struct store_write *w, struct store_outcome *out)
{
	struct name_row *row = view_name(v, w->ref.key);
	out->result = row->now.is_damaged ? ERR_CORRUPT : target_check(w, row->now.link);
	if (out->result != 0)
		return 0;
	int r;
	switch (w->kind) {
	case STORE_LINK_UPDATE: return update_decide(v, row, w, out);
	case STORE_PERMIT:
	case STORE_FORBID: return permission_decide(v, row, w, out);
	default:
		r = change_add(v, row, w, FEED_LINK_REMOVED, row->now.link, NULL)
		        ?: link_return(w, row->now.link, out);
		name_remove(v, row, w);
		return r;
	}
}

void outcome_publish(const struct store_outcome *out, struct store_write *w)
{
	w->result = out->result;
	w->replayed = out->replayed;
	if (out->result == 0 && out->has_link)
		w->link = out->link;
}

int decide_links(struct view *v, const struct store_write *writes, size_t n, struct store_outcome *outcomes)
{
	for (size_t i = 0; i < v->name_count; i++)
		v->names[i].now = v->names[i].before;
	for (size_t i = 0; i < v->permission_count; i++)
		v->permissions[i].now = v->permissions[i].before;
	for (size_t i = 0; i < v->replay_count; i++) {
		v->replays[i].now = v->replays[i].before;
		v->replays[i].name = NULL;
	}
	int r = 0;
	v->change_count = 0;
	for (size_t i = 0; r == 0 && i < n; i++) {
		v->now_ms = writes[i].now_ms;
		r = writes[i].kind == STORE_LINK_CREATE ? create_decide(v, &writes[i], &outcomes[i])
		                                        : target_decide(v, &writes[i], &outcomes[i]);
	}
	return r;
}
