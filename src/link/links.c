#include "link/links.h"

#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>

/* A generated key meets an alias about once in as many tries as there are keys per alias; this many times in
 * a row means that something else is wrong. */
enum { KEY_TRIES = 32 };

static const char *const alphabet_names[] = {"base62", "base64url", "base36", NULL};
static const uint8_t alphabet_lengths[] = {7, 8, 8};

#define FIELD(f) offsetof(struct links_settings, f)

const struct conf_row links_rows[] = {
    {.section = "keys",
     .name = "alphabet",
     .type = CONF_ENUM,
     .offset = FIELD(alphabet),
     .def = "base62",
     .choices = alphabet_names,
     .help =
         "Characters of generated keys. Fixed when the data folder is made; base36 is read without regard to "
         "case."},
    {.section = "keys",
     .name = "length",
     .type = CONF_UINT,
     .offset = FIELD(key_length),
     .def = "0",
     .max = KEY_LENGTH_MAX,
     .help = "Length of generated keys, 4 to 10; 0 is 7 for base62 and 8 for the others. Fixed when the data "
             "folder "
             "is made."},
    {.section = "keys",
     .name = "quarantine",
     .type = CONF_DURATION,
     .offset = FIELD(rest_ms),
     .def = "90d",
     .max = 100ULL * 365 * 24 * 3600 * 1000,
     .help = "How long the alias of a link whose time is over rests before somebody else may take it. "
             "Generated keys are never given out twice."},
    {.section = "cache",
     .name = "memory",
     .type = CONF_BYTES,
     .offset = FIELD(cache_bytes),
     .def = "256m",
     .min = 1 << 20,
     .max = 1ULL << 40,
     .help = "Most memory for cached links. It is taken only as links are used."},
    {.section = "cache",
     .name = "negative_time",
     .type = CONF_DURATION,
     .offset = FIELD(negative_ms),
     .def = "10s",
     .max = 3600000,
     .help = "How long the cache remembers that there is no link behind a key."},
};
const size_t links_row_count = ARRAY_LEN(links_rows);

struct links {
	struct store *store;
	struct budgets *budgets;
	struct cache *cache;
	struct gates *gates;
	struct key_cipher cipher;
	struct ids ids;
	links_render_fn *render;
	uint64_t negative_ms;
	uint64_t rest_ms;
	pthread_mutex_t sweep_lock;
};

/* What a data folder's keys look like; written once. */
struct key_shape {
	uint8_t alphabet;
	uint8_t length;
};

static int shape_settle(struct links *l, const struct links_settings *s, struct err *e)
{
	unsigned length = s->key_length ? (unsigned)s->key_length : alphabet_lengths[s->alphabet];
	if (length < KEY_LENGTH_MIN)
		return err_set(e, ERR_INVALID,
		               "keys.length = %u is too short; give %d to %d, or 0 for the alphabet's own",
		               length, KEY_LENGTH_MIN, KEY_LENGTH_MAX);
	const struct key_shape wanted = {(uint8_t)s->alphabet, (uint8_t)length};
	struct key_shape stored = wanted;
	uint8_t secret[KEY_SECRET_BYTES];
	randombytes_buf(secret, sizeof(secret));
	int r = store_constant(l->store, STR("key-shape"), &stored, sizeof(stored));
	if (r == 0)
		r = store_constant(l->store, STR("key-secret"), secret, sizeof(secret));
	if (r < 0)
		return err_set(e, r, "cannot read the key secret from the store (%s)", err_name(r));
	if (stored.alphabet >= ARRAY_LEN(alphabet_lengths) || stored.length < KEY_LENGTH_MIN ||
	    stored.length > KEY_LENGTH_MAX)
		return err_set(e, ERR_CORRUPT, "the store's key shape is damaged; restore it from a backup");
	if (stored.alphabet != wanted.alphabet || stored.length != wanted.length)
		return err_set(
		    e, ERR_INVALID,
		    "this store's keys are %s of length %u, the settings say %s of length %u, and keys "
		    "already given "
		    "out would stop working; set keys.alphabet = %s and keys.length = %u, or use a new store",
		    alphabet_names[stored.alphabet], stored.length, alphabet_names[wanted.alphabet],
		    wanted.length, alphabet_names[stored.alphabet], stored.length);
	key_cipher_init(&l->cipher, stored.alphabet, stored.length, secret);
	sodium_memzero(secret, sizeof(secret));
	return 0;
}

int links_new(const struct links_config *config, struct links **ret, struct err *e)
{
	struct links *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	l->store = config->store;
	l->budgets = config->budgets;
	l->render = config->render;
	l->negative_ms = config->settings.negative_ms;
	l->rest_ms = config->settings.rest_ms;
	int r = shape_settle(l, &config->settings, e);
	if (r == 0 && config->render)
		r = cache_new(config->settings.cache_bytes, config->cache_seed, &l->cache, e);
	if (r == 0 && config->render && !(l->gates = gates_new()))
		r = err_set(e, ERR_NOMEM, "out of memory");
	if (r < 0) {
		cache_free(l->cache);
		free(l);
		return r;
	}
	pthread_mutex_init(&l->sweep_lock, NULL);
	ids_init(&l->ids, l->store, config->id_block, l->cipher.count);
	*ret = l;
	return 0;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	cache_free(l->cache);
	gates_free(l->gates); /* cache entries point at them */
	ids_release(&l->ids);
	pthread_mutex_destroy(&l->sweep_lock);
	sodium_memzero(&l->cipher, sizeof(l->cipher));
	free(l);
}

const struct key_cipher *links_cipher(const struct links *l)
{
	return &l->cipher;
}

struct cache *links_cache(struct links *l)
{
	return l->cache;
}

struct link_ref links_ref(const struct links *l, struct str key)
{
	return (struct link_ref){.id = key_decode(&l->cipher, key), .key = key};
}

/* Stores keep a generated key as its id alone. */
static int key_fill(const struct links *l, struct link_record *link, struct arena *arena)
{
	if (link->is_alias)
		return 0;
	if (link->id == 0 || link->id >= l->cipher.count)
		return ERR_CORRUPT;
	char *text = arena_alloc(arena, l->cipher.length);
	if (!text)
		return ERR_NOMEM;
	key_encode(&l->cipher, link->id, text);
	link->key = str_n(text, l->cipher.length);
	return 0;
}

/* Reading */

static int lookup_counted(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m)
{
	int64_t start_ns = clock_mono_ns();
	int r = store_lookup(l->store, reads, n);
	histogram_record(&m->store_lookup_us, (uint64_t)(clock_mono_ns() - start_ns) / 1000);
	metric_add(&m->store_lookups, n);
	metric_add(&m->store_lookup_batches, 1);
	if (r < 0)
		metric_add(&m->store_errors, 1);
	return r;
}

int links_get(struct links *l, struct store_lookup *reads, size_t n, struct metrics *m)
{
	int r = lookup_counted(l, reads, n, m);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (reads[i].result == 0)
			reads[i].result = key_fill(l, &reads[i].link, reads[i].arena);
	}
	return r;
}

int links_list(struct links *l, struct store_list *page)
{
	int r = store_list(l->store, page);
	for (size_t i = 0; r == 0 && i < page->count; i++)
		r = key_fill(l, &page->links[i], page->arena);
	return r;
}

int links_over(struct links *l, struct store_over *over)
{
	return store_over(l->store, over);
}

pthread_mutex_t *links_sweep_lock(struct links *l)
{
	return &l->sweep_lock;
}

uint64_t links_budget_name(const struct link_record *link)
{
	return link->api_key ? link->api_key : budget_of_user(link->owner);
}

static bool is_known_as_spent(struct links *l, const struct link_record *link)
{
	struct click_gate *gate = link->max_clicks ? gates_of(l->gates, link->id) : NULL;
	bool spent = link->max_clicks != 0 &&
	             link->clicks >= link->max_clicks; /* as the store was last told */
	if (gate && gate_is_counted(gate))
		spent = gate_is_spent(gate, link->max_clicks);
	gate_unpin(gate);
	return spent;
}

bool links_is_open(struct links *l, const struct link_record *link, int64_t now_ms)
{
	return link->enabled && link->not_before_ms <= now_ms && !link_has_ended(link, now_ms) &&
	       !is_known_as_spent(l, link);
}

/* Resolving */

/* For everybody alike, whoever they are. */
static bool is_there(const struct link_record *link, int64_t now_ms)
{
	return link->enabled && link->not_before_ms <= now_ms && !link_is_over(link, now_ms);
}

static bool is_for_everybody(const struct link_record *link)
{
	return !link->is_private && !link->password.ptr;
}

static bool is_permitted(const struct link_resolve *w, const struct store_lookup *read)
{
	if (w->sees_all || !read->link.is_private)
		return true;
	return w->user != 0 && (w->user == read->link.owner || read->permitted);
}

static bool is_locked(const struct link_resolve *w, const struct link_record *link)
{
	return link->password.ptr && !(w->unlocked.ptr && str_eq(w->unlocked, link->password));
}

/* The last questions: are clicks left, and is the password known? Whoever does not know it is not told how
 * many are left, but that there are none. */
static int judge_clicks(struct links *l, struct link_resolve *w, const struct link_record *link)
{
	struct click_gate *gate = link->max_clicks ? gates_of(l->gates, link->id) : NULL;
	if (link->max_clicks && !gate)
		return ERR_LIMIT;
	w->verdict = LINK_OPEN;
	if (gate && gate_is_spent(gate, link->max_clicks)) {
		gate_unpin(gate);
		w->verdict = LINK_LATE;
		return link->expired_url.ptr ? 0 : ERR_NOT_FOUND;
	}
	if (is_locked(w, link)) {
		gate_unpin(gate);
		w->verdict = LINK_LOCKED;
		return 0;
	}
	w->gate = gate;
	w->max_clicks = link->max_clicks;
	if (gate && !gate_is_counted(gate))
		w->verdict = LINK_UNCOUNTED;
	return 0;
}

/* 0 with a verdict, or why there is none. The order is the promise of links_resolve. */
static int judge(struct links *l, struct link_resolve *w, const struct store_lookup *read, int64_t now_ms)
{
	const struct link_record *link = &read->link;
	if (!is_there(link, now_ms))
		return ERR_NOT_FOUND;
	if (!is_permitted(w, read))
		w->verdict = w->user != 0 ? LINK_FORBIDDEN : LINK_SIGN_IN;
	else if (link_has_ended(link, now_ms))
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

static int resolve_found(struct links *l, struct link_resolve *w, const struct store_lookup *read,
                         int64_t now_ms)
{
	w->over = link_is_over(&read->link, now_ms);
	w->link = read->link.id;
	int r = judge(l, w, read, now_ms);
	if (r < 0)
		return r;
	w->budget = budgets_of(l->budgets, links_budget_name(&read->link));
	if (!w->budget)
		return ERR_NOMEM;
	return w->verdict == LINK_OPEN || w->verdict == LINK_LATE ? respond(l, w, &read->link) : 0;
}

/* How long a response holds for everybody; false: it does not. */
static bool response_is_kept(const struct links *l, const struct link_resolve *w,
                             const struct link_record *link, int64_t now_ms, int64_t *ret_expires_ms)
{
	if (!w->response.ptr || w->see_other || !is_for_everybody(link))
		return false;
	if (w->verdict == LINK_OPEN)
		*ret_expires_ms = link->expires_ms;
	else if (link_has_ended(link, now_ms))
		*ret_expires_ms = link_over_ms(link);
	else /* its clicks are used up, but one may be given back */
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

static void resolve_one(struct links *l, struct link_resolve *w, const struct store_lookup *read,
                        uint32_t epoch, int64_t now_ms)
{
	struct cache_fill fill = {.key = w->key};
	bool kept = false;
	w->verdict = LINK_OPEN; /* it may be asked a second time, once its gate is counted */
	w->response = STR_NULL;
	w->budget = NULL;
	w->gate = NULL;
	w->link = w->max_clicks = 0;
	w->over = false;
	w->result = read->result == 0 ? resolve_found(l, w, read, now_ms) : read->result;
	if (w->result == ERR_NOT_FOUND)
		kept = absence_is_kept(l, read, now_ms, &fill.expires_ms);
	else if (w->result == 0)
		kept = response_is_kept(l, w, &read->link, now_ms, &fill.expires_ms);
	if (!kept)
		return;
	if (w->result == 0) {
		fill.response = w->response;
		fill.response_date_at = w->response_date_at;
		fill.link = w->link;
		fill.budget = w->budget;
		fill.gate = w->gate;
		fill.max_clicks = w->max_clicks;
		fill.late = w->verdict == LINK_LATE;
	}
	cache_insert(l->cache, &fill, epoch);
}

void links_resolve(struct links *l, struct link_resolve **wanted, size_t n, int64_t now_ms, struct metrics *m)
{
	struct store_lookup *reads = calloc(n, sizeof(*reads));
	uint32_t *epochs = calloc(n, sizeof(*epochs));
	int r = reads && epochs ? 0 : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < n; i++) {
		epochs[i] = cache_epoch(l->cache, wanted[i]->key); /* before the store is asked */
		reads[i].ref = links_ref(l, wanted[i]->key);
		reads[i].user = wanted[i]->user;
		reads[i].arena = wanted[i]->arena;
	}
	if (r == 0)
		r = lookup_counted(l, reads, n, m);
	for (size_t i = 0; i < n; i++) {
		if (r < 0)
			wanted[i]->result = r;
		else
			resolve_one(l, wanted[i], &reads[i], epochs[i], now_ms);
	}
	free(reads);
	free(epochs);
}

/* Writing */

static int name_create(struct links *l, struct store_write *w)
{
	do {
		int r = ids_next(&l->ids, &w->link.id);
		if (r < 0)
			return r;
		if (w->link.is_alias) {
			w->ref = links_ref(l, w->link.key);
			return 0;
		}
		r = key_fill(l, &w->link, w->arena);
		if (r < 0)
			return r;
	} while (key_is_reserved(w->link.key));
	w->ref = (struct link_ref){.id = w->link.id, .key = w->link.key};
	return 0;
}

static void apply_counted(struct links *l, struct store_write *writes, size_t n, struct metrics *m)
{
	int64_t start_ns = clock_mono_ns();
	int r = store_apply(l->store, writes, n);
	histogram_record(&m->store_commit_us, (uint64_t)(clock_mono_ns() - start_ns) / 1000);
	metric_add(&m->store_writes, n);
	metric_add(&m->store_commits, 1);
	if (r == 0)
		return;
	metric_add(&m->store_errors, 1);
	for (size_t i = 0; i < n; i++)
		writes[i].result = r;
}

/* Also after an uncertain outcome: what may have changed must not be served from the cache. A link that was
 * named by its row alone is known by its record; if there is none, it was over, and so is what the cache has
 * of it. */
static void settle(struct links *l, struct store_write *w, struct metrics *m)
{
	if (!store_write_is_link(w->kind) || (w->result != 0 && w->result != ERR_UNCERTAIN))
		return;
	bool done = w->result == 0;
	if (done && key_fill(l, &w->link, w->arena) < 0)
		w->result = ERR_UNCERTAIN; /* it happened, but cannot be told whole */
	struct str key = w->ref.key.ptr || !done ? w->ref.key : w->link.key;
	if (l->cache && key.ptr)
		cache_invalidate(l->cache, key);
	if (w->kind == STORE_LINK_UPDATE && (w->fields & LINK_MAX_CLICKS))
		gates_uncount(l->gates, done ? w->link.id : 0); /* when no cache has the old limit any more */
	if (!done)
		return;
	if (w->kind == STORE_LINK_CREATE && !w->replayed) {
		metric_add(&m->links_created, 1);
		if (w->link.max_clicks)
			gates_begin(l->gates, w->link.id);
	} else if (w->kind == STORE_LINK_DELETE)
		metric_add(&m->links_deleted, 1);
	else if (w->kind == STORE_LINK_REAP)
		metric_add(&m->links_reaped, 1);
}

static bool met_an_alias(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && !w->link.is_alias && w->result == ERR_CONFLICT;
}

/* The store refused a generated key because somebody's alias reads the same: take the next one. */
static void retry_with_other_keys(struct links *l, struct store_write *w, struct metrics *m)
{
	for (int tries = 0; tries < KEY_TRIES && met_an_alias(w); tries++) {
		metric_add(&m->keys_skipped, 1);
		w->result = name_create(l, w);
		if (w->result == 0)
			apply_counted(l, w, 1, m);
	}
	if (met_an_alias(w))
		w->result = ERR_LIMIT;
}

void links_apply(struct links *l, struct store_write *writes, size_t n, struct metrics *m)
{
	int naming = 0;
	for (size_t i = 0; i < n; i++) {
		bool is_create = writes[i].kind == STORE_LINK_CREATE;
		if (is_create || writes[i].kind == STORE_LINK_REAP)
			writes[i].rest_ms = l->rest_ms;
		if (is_create && naming == 0)
			naming = name_create(l, &writes[i]);
	}
	if (naming < 0) { /* no ids, so no creations; the batch goes again one by one without them */
		for (size_t i = 0; i < n; i++) {
			writes[i].result = naming;
			if (writes[i].kind != STORE_LINK_CREATE)
				apply_counted(l, &writes[i], 1, m);
			settle(l, &writes[i], m);
		}
		return;
	}
	apply_counted(l, writes, n, m);
	for (size_t i = 0; i < n; i++) {
		retry_with_other_keys(l, &writes[i], m);
		settle(l, &writes[i], m);
	}
}
