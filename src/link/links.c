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
	struct key_cipher cipher;
	struct ids ids;
	links_render_fn *render;
	uint64_t negative_ms;
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
	int r = shape_settle(l, &config->settings, e);
	if (r == 0 && config->render)
		r = cache_new(config->settings.cache_bytes, config->cache_seed, &l->cache, e);
	if (r < 0) {
		free(l);
		return r;
	}
	ids_init(&l->ids, l->store, config->id_block, l->cipher.count);
	*ret = l;
	return 0;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	cache_free(l->cache);
	ids_release(&l->ids);
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

static int resolve_found(struct links *l, struct link_resolve *w, const struct link_record *link)
{
	struct buf CLEANUP(buf_release) bytes = {0};
	int r = l->render(link, &bytes, &w->response_date_at);
	if (r < 0)
		return r;
	w->link = link->id;
	w->budget = budgets_of(l->budgets, link->owner);
	w->response = arena_str(w->arena, buf_view(&bytes));
	return w->budget && w->response.ptr ? 0 : ERR_NOMEM;
}

static void resolve_one(struct links *l, struct link_resolve *w, const struct store_lookup *read,
                        uint32_t epoch, int64_t now_ms)
{
	struct cache_fill fill = {.key = w->key};
	w->result = read->result;
	w->ended = w->result == 0 && link_has_ended(&read->link, now_ms);
	if (w->result == 0 && (w->ended || !read->link.enabled))
		w->result = ERR_NOT_FOUND;
	if (w->result == 0)
		w->result = resolve_found(l, w, &read->link);
	if (w->result == 0) {
		fill.response = w->response;
		fill.response_date_at = w->response_date_at;
		fill.expires_ms = read->link.expires_ms;
		fill.link = w->link;
		fill.budget = w->budget;
	} else if (w->result == ERR_NOT_FOUND && l->negative_ms > 0) {
		fill.expires_ms = now_ms + (int64_t)l->negative_ms;
	} else {
		return;
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

/* Also after an uncertain outcome: what may have changed must not be served from the cache. */
static void settle(struct links *l, struct store_write *w, struct metrics *m)
{
	bool is_link = w->kind != STORE_KEY_CREATE && w->kind != STORE_KEY_REVOKE;
	if (!is_link)
		return;
	if (l->cache && (w->result == 0 || w->result == ERR_UNCERTAIN))
		cache_invalidate(l->cache, w->ref.key);
	if (w->result != 0)
		return;
	if (key_fill(l, &w->link, w->arena) < 0)
		w->result = ERR_UNCERTAIN; /* it happened, but cannot be told whole */
	if (w->kind == STORE_LINK_CREATE && !w->replayed)
		metric_add(&m->links_created, 1);
	else if (w->kind == STORE_LINK_DELETE)
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
	for (size_t i = 0; i < n && naming == 0; i++) {
		if (writes[i].kind == STORE_LINK_CREATE)
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
