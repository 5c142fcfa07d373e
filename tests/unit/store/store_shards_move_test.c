/*
 * Slots move between databases while threads of two servers read and change links. Each thread has keys of
 * its own, so it knows what must come of every call; others look for links that are always there. Moves are
 * stopped half way now and then.
 */
#include "lib/database_kit.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "store/backends.h"
#include "store/reshard.h"

enum {
	SHARDS = 3,
	SERVERS = 2,
	WRITERS = 4,
	READERS = 2,
	NAMES = 60,     /* of each writer */
	STANDING = 400, /* links that are always there */
	ROUNDS = 2,
};

static struct store *servers[SERVERS];
static uint64_t listed_user;
static atomic_bool ends;

/* --- a thread with links of its own --- */

struct name {
	uint64_t id; /* 0: there is none */
	unsigned title;
	bool listed;
	uint64_t clicks;
};

struct writer {
	pthread_t thread;
	unsigned number, seed;
	struct store *s;
	struct name names[NAMES];
	uint64_t ids, calls, wrong;
	char first_wrong[200];
};

static unsigned draw(struct writer *me, unsigned below)
{
	return (unsigned)rand_r(&me->seed) % below;
}

static void expect(struct writer *me, bool right, const char *what, unsigned i, int result)
{
	me->calls++;
	if (!right && me->wrong++ == 0)
		snprintf(me->first_wrong, sizeof(me->first_wrong), "writer %u, name %u: %s gave %d",
		         me->number, i, what, result);
}

static struct str name_text(const struct writer *me, struct arena *a, unsigned i)
{
	return arena_printf(a, "w%u-%u", me->number, i);
}

static struct str title_text(struct arena *a, unsigned title)
{
	return arena_printf(a, "title %u", title);
}

static struct store_write change_of(const struct writer *me, struct arena *a, unsigned i,
                                    enum store_write_kind kind)
{
	return (struct store_write){
	    .kind = kind, .now_ms = KIT_NOW_MS, .arena = a, .ref.key = name_text(me, a, i)};
}

static int apply_one(struct writer *me, struct store_write *w)
{
	int r = store_apply(me->s, w, 1);
	return r ? r : w->result;
}

/* Totals of this thread's links are set by this thread alone. */
static void count(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_count total = {.id = name->id, .clicks = name->clicks + draw(me, 10)};
	(void)a;
	if (name->id == 0)
		return;
	int r = store_set_clicks(me->s, me->number, &total, 1);
	expect(me, r == 0, "set_clicks", i, r);
	if (r == 0)
		name->clicks = total.clicks;
}

static void create(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = kit_alias(a, (me->number + 1) * 1000000ULL + ++me->ids,
	                                 name_text(me, a, i).ptr);
	unsigned title = draw(me, 1000);
	w.link.is_private = true;
	w.link.title = title_text(a, title);
	w.link.expires_ms = draw(me, 2) ? KIT_NOW_MS : 0; /* so that it may be reaped */
	w.link.expired_url = w.link.expires_ms ? STR("https://late.example/") : STR_NULL;
	uint64_t id = w.link.id;
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? ERR_CONFLICT : 0), "create", i, r);
	if (r == 0)
		*name = (struct name){.id = id, .title = title};
}

static void update(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = change_of(me, a, i, STORE_LINK_UPDATE);
	unsigned title = draw(me, 1000);
	w.fields = LINK_TITLE;
	w.link.title = title_text(a, title);
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND) && (r != 0 || w.link.id == name->id), "update", i, r);
	if (r == 0)
		name->title = title;
}

static void permit(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = change_of(me, a, i, name->listed ? STORE_FORBID : STORE_PERMIT);
	w.user = listed_user;
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND), "permit", i, r);
	if (r == 0)
		name->listed = !name->listed;
}

static void delete (struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = change_of(me, a, i, STORE_LINK_DELETE);
	int r = apply_one(me, &w);
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND) && (r != 0 || w.link.id == name->id), "delete", i, r);
	if (r == 0)
		*name = (struct name){.id = 0};
}

/* Long after it ended. */
static void reap(struct writer *me, struct arena *a, unsigned i)
{
	struct name *name = &me->names[i];
	struct store_write w = {.kind = STORE_LINK_SWEEP,
	                        .now_ms = KIT_NOW_MS + LINK_LATE_MS,
	                        .arena = a,
	                        .ref.key = name_text(me, a, i)};
	int r = apply_one(me, &w);
	expect(me, name->id ? r == 0 || r == ERR_CONFLICT : r == ERR_NOT_FOUND, "reap", i, r);
	if (r == 0)
		*name = (struct name){.id = 0};
}

static void look(struct writer *me, struct arena *a, unsigned i)
{
	const struct name *name = &me->names[i];
	bool by_row = name->id && draw(me, 4) == 0;
	struct store_lookup read = {.ref = {.id = by_row ? name->id : 0, .key = name_text(me, a, i)},
	                            .user = listed_user,
	                            .arena = a};
	if (by_row)
		read.ref.key = STR_NULL;
	int r = store_lookup(me->s, &read, 1);
	r = r ? r : read.result;
	expect(me, r == (name->id ? 0 : ERR_NOT_FOUND), by_row ? "lookup by row" : "lookup", i, r);
	if (r == 0) {
		expect(me, read.link.id == name->id, "id", i, (int)read.link.id);
		expect(me, str_eq(read.link.title, title_text(a, name->title)), "title", i, 0);
		expect(me, read.permitted == name->listed, "permitted", i, read.permitted);
		expect(me, read.link.clicks == name->clicks, "clicks", i, (int)read.link.clicks);
	}
}

static void *writer_run(void *arg)
{
	struct writer *me = arg;
	static void (*const steps[])(struct writer *, struct arena *,
	                             unsigned) = {create, create, create, look,  look,  look,   look,
	                                          update, update, permit, count, count, delete, reap};
	while (!atomic_load(&ends)) {
		struct arena a = {0};
		steps[draw(me, ARRAY_LEN(steps))](me, &a, draw(me, NAMES));
		arena_release(&a);
	}
	for (unsigned i = 0; i < NAMES; i++) {
		struct arena a = {0};
		look(me, &a, i);
		arena_release(&a);
	}
	return NULL;
}

/* --- a thread that looks for what is always there --- */

struct reader {
	pthread_t thread;
	struct store *s;
	unsigned seed;
	uint64_t calls, missed;
};

static void read_batch(struct reader *me, struct arena *a)
{
	struct store_lookup reads[32];
	for (size_t i = 0; i < ARRAY_LEN(reads); i++)
		reads[i] = (struct store_lookup){
		    .ref = kit_generated(a, 1 + (unsigned)rand_r(&me->seed) % STANDING).ref, .arena = a};
	int r = store_lookup(me->s, reads, ARRAY_LEN(reads));
	for (size_t i = 0; i < ARRAY_LEN(reads); i++)
		me->missed += r != 0 || reads[i].result != 0;
	me->calls += ARRAY_LEN(reads);
}

/* All that are always there stand in every list of everybody's links. */
static void read_list(struct reader *me, struct arena *a)
{
	struct store_list page = {.owner = 77, .limit = STANDING, .arena = a};
	int r = store_list(me->s, &page);
	me->missed += r != 0 || page.count != STANDING || page.next.ptr;
	me->calls++;
}

static void *reader_run(void *arg)
{
	struct reader *me = arg;
	while (!atomic_load(&ends)) {
		struct arena a = {0};
		if (rand_r(&me->seed) % 16 == 0)
			read_list(me, &a);
		else
			read_batch(me, &a);
		arena_release(&a);
	}
	return NULL;
}

/* --- moves --- */

static bool stop_sometimes(void *ctx, const struct reshard_progress *progress)
{
	(void)progress;
	unsigned *seed = ctx;
	return rand_r(seed) % 6 != 0;
}

/* To all three, or to all but `leave`; stopped now and then until it is done. */
static size_t move_until_done(struct store *s, const struct str *leave, unsigned *seed)
{
	struct err e = {""};
	struct reshard *r = calloc(1, sizeof(*r));
	size_t moved = 0;
	int result;
	do {
		*r = (struct reshard){
		    .leave = leave, .leave_count = leave ? 1 : 0, .progress = stop_sometimes, .ctx = seed};
		result = store_reshard(s, r, &e);
		moved += r->slots;
	} while (result == ERR_BUSY);
	free(r);
	if (result != 0)
		print_error("%s\n", e.text);
	assert_int_equal(result, 0);
	return moved;
}

static struct store *open_over(size_t n, bool is_admin)
{
	struct str urls[SHARDS];
	struct store *s = NULL;
	for (size_t i = 0; i < n; i++)
		urls[i] = str_of(database_kit_urls[i]);
	const struct store_shards_config config = {
	    .urls = urls, .count = n, .readers = 8, .writers = 8, .is_admin = is_admin};
	MUST(store_shards_open(&config, &s, &why));
	return s;
}

static void standing_make(struct store *s, struct arena *a)
{
	struct store_write writes[STANDING];
	for (uint64_t i = 0; i < STANDING; i++) {
		writes[i] = kit_generated(a, i + 1);
		writes[i].link.owner = 77;
	}
	assert_int_equal(store_apply(s, writes, STANDING), 0);
	for (size_t i = 0; i < STANDING; i++)
		assert_int_equal(writes[i].result, 0);
	struct registry_write user = kit_user(a, "listed@example.com", ROLE_VIEWER);
	assert_int_equal(kit_apply(s, &user), 0);
	listed_user = user.user.id;
}

static void work_start(struct writer *writers, struct reader *readers)
{
	atomic_store(&ends, false);
	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){.number = i, .seed = i + 1, .s = servers[i % SERVERS]};
		pthread_create(&writers[i].thread, NULL, writer_run, &writers[i]);
	}
	for (unsigned i = 0; i < READERS; i++) {
		readers[i] = (struct reader){.seed = i + 100, .s = servers[i % SERVERS]};
		pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]);
	}
}

/* How many links there must be. */
static int64_t work_end(struct writer *writers, struct reader *readers, size_t moved)
{
	uint64_t changes = 0, lookups = 0;
	int64_t there = STANDING;
	atomic_store(&ends, true);
	for (size_t i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		changes += writers[i].calls;
		for (size_t k = 0; k < NAMES; k++)
			there += writers[i].names[k].id != 0;
	}
	for (size_t i = 0; i < READERS; i++) {
		pthread_join(readers[i].thread, NULL);
		lookups += readers[i].calls;
	}
	print_message("%zu slots moved under %llu checked calls and %llu lookups\n", moved,
	              (unsigned long long)changes, (unsigned long long)lookups);
	for (size_t i = 0; i < WRITERS; i++) {
		if (writers[i].wrong)
			print_error("%s, and %llu more\n", writers[i].first_wrong,
			            (unsigned long long)writers[i].wrong - 1);
		assert_int_equal(writers[i].wrong, 0);
	}
	for (size_t i = 0; i < READERS; i++)
		assert_int_equal(readers[i].missed, 0);
	assert_true(moved > 0 && changes > 0 && lookups > 0);
	return there;
}

TEST(nothing_is_missed_or_lost_while_slots_move)
{
	static struct writer writers[WRITERS];
	static struct reader readers[READERS];
	static char addresses[SHARDS][POSTGRES_KIT_URL_BYTES];
	database_kit_need();
	struct arena a = {0};
	unsigned seed = 1;
	struct shards_status *status = calloc(1, sizeof(*status));
	struct store *s = open_over(2, false);
	standing_make(s, &a);
	store_free(s);
	for (size_t i = 0; i < SERVERS; i++)
		servers[i] = open_over(SHARDS, false);
	s = open_over(SHARDS, true);
	store_shards_status(s, status);
	for (size_t i = 0; i < SHARDS; i++)
		snprintf(addresses[i], sizeof(addresses[i]), "%s", status->shards[i].address);
	work_start(writers, readers);
	size_t moved = 0;
	for (int i = 0; i < ROUNDS; i++) {
		struct str leave = str_of(addresses[i % 2 ? 1 : 2]);
		moved += move_until_done(s, NULL, &seed);
		moved += move_until_done(s, &leave, &seed);
	}
	int64_t there = work_end(writers, readers, moved), links = 0;
	for (size_t i = 0; i < SHARDS; i++)
		links += postgres_kit_ask(database_kit_urls[i], "SELECT count(*) FROM link");
	assert_int_equal(links, there);
	store_free(s);
	for (size_t i = 0; i < SERVERS; i++)
		store_free(servers[i]);
	free(status);
	arena_release(&a);
}

TEST_MAIN(.group_setup = database_kit_three, .group_teardown = database_kit_down, .setup = database_kit_renew)
