#include "link/links_private.h"

#include "os/clock.h"

/* How long a possibly outdated answer is cached. */
enum { OLD_LIFE_MS = 1000 };

static int lookup_counted(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m)
{
	int64_t start_ns = clock_mono_ns();
	int r = store_lookup(l->store, reads, n);
	histogram_add(&m->store_lookup_duration, (uint64_t)(clock_mono_ns() - start_ns), 1);
	metric_add(&m->store_lookups, n);
	metric_add(&m->store_lookup_batches, 1);
	bool failed = r < 0;
	for (size_t i = 0; r == 0 && i < n; i++)
		failed |= reads[i].result == ERR_UNAVAILABLE;
	if (failed)
		metric_add(&m->store_errors, 1);
	return r;
}

int links_get(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m)
{
	for (size_t i = 0; i < n; i++)
		reads[i].fresh = true;
	int r = lookup_counted(l, reads, n, m);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (reads[i].result == 0)
			reads[i].result = links_key_fill(l, &reads[i].link, reads[i].arena);
	}
	return r;
}

/* Resolving */

static bool is_there(const struct link_record *link, int64_t now_ms)
{
	return link->enabled && link->not_before_ms <= now_ms && !link_is_expired(link, now_ms);
}

static bool is_for_everybody(const struct link_record *link)
{
	return !link->is_private && !link->password.ptr;
}

enum link_verdict links_may_follow(const struct store_lookup *read, bool sees_all)
{
	if (sees_all || !read->link.is_private)
		return LINK_OPEN;
	if (read->user == 0)
		return LINK_SIGN_IN;
	return read->user == read->link.owner || read->permitted ? LINK_OPEN : LINK_FORBIDDEN;
}

static bool is_locked(const struct link_resolve *w, const struct link_record *link)
{
	return link->password.ptr && !(w->unlocked.ptr && str_eq(w->unlocked, link->password));
}

/* By this server's counter, or by the store's total over all servers. The total lags, and in a store of our
 * own it knows nothing more. */
static bool is_spent(const struct links *l, const struct click_limit *limit, const struct link_record *link)
{
	return click_limit_is_spent(limit, link->max_clicks) ||
	       (l->is_shared && link->clicks >= link->max_clicks);
}

/* Checks clicks, then the password. A visitor without the password learns only that no clicks are left. */
static int judge_clicks(struct links *l, struct link_resolve *w, const struct link_record *link)
{
	struct click_limit *limit = link->max_clicks ? click_limits_get(l->click_limits, link->id) : NULL;
	if (link->max_clicks && !limit)
		return ERR_LIMIT;
	w->verdict = LINK_OPEN;
	if (limit && is_spent(l, limit, link)) {
		click_limit_unpin(limit);
		w->verdict = LINK_LATE;
		return link->expired_url.ptr ? 0 : ERR_NOT_FOUND;
	}
	if (is_locked(w, link)) {
		click_limit_unpin(limit);
		w->verdict = LINK_LOCKED;
		return 0;
	}
	w->limit = limit;
	w->max_clicks = link->max_clicks;
	if (limit && !click_limit_is_counted(limit))
		w->verdict = LINK_UNCOUNTED;
	return 0;
}

/* 0 with a verdict, or an error. links_resolve defines the order. */
static int judge(struct links *l, struct link_resolve *w, const struct store_lookup *read, int64_t now_ms)
{
	const struct link_record *link = &read->link;
	if (!is_there(link, now_ms))
		return ERR_NOT_FOUND;
	w->verdict = links_may_follow(read, w->sees_all);
	if (w->verdict != LINK_OPEN)
		return 0;
	if (link_has_ended(link, now_ms))
		w->verdict = LINK_LATE;
	else
		return judge_clicks(l, w, link);
	return 0;
}

static int respond(struct links *l, struct link_resolve *w, const struct link_record *link)
{
	CLEANUP(buf_release) struct buf bytes = {0};
	struct link_record shown = *link;
	if (w->verdict == LINK_LATE) {
		shown.url = link->expired_url;
		shown.redirect_status = 302;
	}
	if (w->see_other)
		shown.redirect_status = 303;
	int r = l->render(&shown, &bytes, &w->response_date_at);
	if (r < 0)
		return r;
	w->response = arena_str(w->arena, buf_view(&bytes));
	return w->response.ptr ? 0 : ERR_NOMEM;
}

/* Whose redirect limit applies: the API key's that created the link, otherwise the owner's. A key's limits
 * never change; they are read on first use. A purged key has none. If a key cannot be read now, its limits
 * apply later. */
static struct budget *budget_find(struct links *l, const struct link_record *link, struct arena *arena)
{
	struct registry_account key = {.by = BY_KEY, .id = link->api_key};
	if (link->api_key == 0)
		return budgets_of_user(l->budgets, link->owner);
	struct budget *budget = budgets_of(l->budgets, link->api_key);
	if (!budget || atomic_load_explicit(&budget->is_set, memory_order_acquire) ||
	    registry_accounts(l->store->registry, &key, 1, arena) != 0)
		return budget;
	if (key.result == ERR_NOT_FOUND)
		return budgets_of_user(l->budgets, link->owner);
	const struct budget_limits own = {key.key.creates_max, key.key.redirects_max, key.key.period_ms};
	return key.result == 0 ? budgets_of_key(l->budgets, link->api_key, &own) : budget;
}

static int resolve_found(struct links *l, struct link_resolve *w, const struct store_lookup *read,
                         int64_t now_ms)
{
	w->expired = link_is_expired(&read->link, now_ms);
	w->link = read->link.id;
	int r = judge(l, w, read, now_ms);
	if (r < 0)
		return r;
	w->budget = budget_find(l, &read->link, w->arena);
	if (!w->budget)
		return ERR_NOMEM;
	return w->verdict == LINK_OPEN || w->verdict == LINK_LATE ? respond(l, w, &read->link) : 0;
}

/* How long a response is valid for everybody; false: not at all. */
static bool response_is_kept(const struct links *l, const struct link_resolve *w,
                             const struct link_record *link, int64_t now_ms, int64_t *ret_expires_ms)
{
	if (!w->response.ptr || w->see_other || !is_for_everybody(link))
		return false;
	if (w->verdict == LINK_OPEN)
		*ret_expires_ms = link->expires_ms;
	else if (link_has_ended(link, now_ms))
		*ret_expires_ms = link_expired_ms(link);
	else /* used up, but a click may be put back */
		*ret_expires_ms = now_ms + (int64_t)l->negative_ms;
	return *ret_expires_ms == 0 || *ret_expires_ms > now_ms;
}

/* The same for "not found". */
static bool absence_is_kept(const struct links *l, const struct store_lookup *read, int64_t now_ms,
                            int64_t *ret_expires_ms)
{
	const struct link_record *link = &read->link;
	*ret_expires_ms = now_ms + (int64_t)l->negative_ms;
	if (read->result == 0 && is_there(link, now_ms) && !is_for_everybody(link))
		return false;
	if (read->result == 0 && link->not_before_ms > now_ms)
		*ret_expires_ms = MIN(*ret_expires_ms, link->not_before_ms);
	return l->negative_ms > 0;
}

static void resolve_reset(struct link_resolve *w)
{
	w->verdict = LINK_OPEN; /* it may be a second attempt, after the clicks were counted */
	w->response = STR_NULL;
	w->budget = NULL;
	w->limit = NULL;
	w->link = w->max_clicks = 0;
	w->expired = false;
}

static bool is_kept(const struct links *l, const struct link_resolve *w, const struct store_lookup *read,
                    int64_t now_ms, int64_t *ret_expires_ms)
{
	if (w->result == ERR_NOT_FOUND)
		return absence_is_kept(l, read, now_ms, ret_expires_ms);
	return w->result == 0 && response_is_kept(l, w, &read->link, now_ms, ret_expires_ms);
}

/* When to read the link again; 0: never. */
static int64_t due_ms(const struct links *l, const struct store_lookup *read, int64_t began_ms)
{
	if (read->old)
		return began_ms + OLD_LIFE_MS;
	return l->life_ms ? began_ms + (int64_t)l->life_ms : 0;
}

/* `began_ms` is the start of the lookup (monotonic). */
static void resolve_one(struct links *l, struct link_resolve *w, const struct store_lookup *read,
                        uint32_t epoch, int64_t now_ms, int64_t began_ms)
{
	struct cache_fill fill = {.key = w->key};
	resolve_reset(w);
	w->result = read->result == 0 ? resolve_found(l, w, read, now_ms) : read->result;
	if (!is_kept(l, w, read, now_ms, &fill.expires_ms)) {
		/* Another server may have changed the link: the cached entry may be outdated. */
		if (l->life_ms && (w->result == 0 || w->result == ERR_NOT_FOUND) && !w->see_other)
			cache_drop(l->cache, w->key);
		return;
	}
	if (w->result == 0) {
		fill.response = w->response;
		fill.response_date_at = w->response_date_at;
		fill.link = w->link;
		fill.budget = w->budget;
		fill.limit = w->limit;
		fill.max_clicks = w->max_clicks;
		fill.late = w->verdict == LINK_LATE;
		fill.due_ms = due_ms(l, read, began_ms);
	} else if (read->old) {
		fill.expires_ms = MIN(fill.expires_ms, now_ms + OLD_LIFE_MS);
	}
	cache_insert(l->cache, &fill, epoch);
}

/* The arrays of a batch. */
struct resolving {
	struct store_lookup *reads; /* parallel to `wanted` */
	struct tier2_read *tier2;   /* likewise */
	struct store_lookup *asked; /* those that the shared cache does not answer */
	uint32_t *epochs;
};

/* Looks up the rest in the store, in one batch. */
static void ask_store(struct links *l, struct resolving *b, size_t n, struct metrics *m)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!b->tier2[i].answered)
			b->asked[count++] = b->reads[i];
	}
	int r = count > 0 ? lookup_counted(l, b->asked, count, m) : 0;
	for (size_t i = 0, at = 0; i < n; i++) {
		if (b->tier2[i].answered)
			continue;
		b->reads[i] = b->asked[at++];
		if (r < 0)
			b->reads[i].result = r;
	}
}

/* A link without a limit is followed without its counter, which it may have from before. If another server
 * removed the limit, that counter is too low from now on. This comes after the response was cached;
 * otherwise clicks could bypass a new count. */
static void click_limit_bypass(struct links *l, const struct store_lookup *read)
{
	if (l->is_shared && read->result == 0 && read->link.max_clicks == 0)
		click_limits_uncount(l->click_limits, read->link.id);
}

static void resolve_batch(struct links *l, struct resolving *b, struct link_resolve **wanted, size_t n,
                          int64_t now_ms, struct metrics *m)
{
	int64_t began_ms = clock_mono_ms();
	for (size_t i = 0; i < n; i++) {
		b->epochs[i] = cache_epoch(l->cache, wanted[i]->key); /* before any lookup */
		b->reads[i].ref = links_ref(l, wanted[i]->key);
		b->reads[i].user = wanted[i]->user;
		b->reads[i].arena = wanted[i]->arena;
		b->reads[i].fresh = wanted[i]->see_other; /* the proved password is not older */
		b->tier2[i] = (struct tier2_read){.read = &b->reads[i], .skip = wanted[i]->see_other};
	}
	tier2_get(&l->tier2, b->tier2, n);
	ask_store(l, b, n, m);
	tier2_fill(&l->tier2, b->tier2, n, began_ms);
	for (size_t i = 0; i < n; i++) {
		resolve_one(l, wanted[i], &b->reads[i], b->epochs[i], now_ms, began_ms);
		click_limit_bypass(l, &b->reads[i]);
	}
}

void links_resolve(struct links *l, struct link_resolve **wanted, size_t n, int64_t now_ms, struct metrics *m)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct resolving b = {
	    .reads = arena_zalloc(&arena, n * sizeof(*b.reads)),
	    .tier2 = arena_zalloc(&arena, n * sizeof(*b.tier2)),
	    .asked = arena_zalloc(&arena, n * sizeof(*b.asked)),
	    .epochs = arena_zalloc(&arena, n * sizeof(*b.epochs)),
	};
	if (b.reads && b.tier2 && b.asked && b.epochs) {
		resolve_batch(l, &b, wanted, n, now_ms, m);
		return;
	}
	for (size_t i = 0; i < n; i++)
		wanted[i]->result = ERR_NOMEM;
}
