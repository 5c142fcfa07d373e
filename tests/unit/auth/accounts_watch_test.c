#include "auth/accounts.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "os/clock.h"
#include "store/backends.h"

#include <semaphore.h>
#include <sodium.h>

enum { STALE_MS = 1500 };

/* A store that others write to. */
static struct {
	struct store *store;
	const struct registry_ops *real;
	struct registry_ops ops;
	struct budgets *budgets;
	struct accounts *accounts;
	struct arena arena;
	_Atomic int feed_result;
	sem_t asked; /* for the feed */
} fx;

static int feed(struct registry *registry, struct feed_page *page)
{
	int r = fx.feed_result ? fx.feed_result : fx.real->feed(registry, page);
	sem_post(&fx.asked);
	return r;
}

static int start(void **state)
{
	fx.store = kit_store_new();
	fx.real = fx.store->registry->ops;
	fx.ops = *fx.real;
	fx.store->is_shared = true;
	fx.ops.feed = feed;
	fx.store->registry->ops = &fx.ops;
	fx.feed_result = 0;
	sem_init(&fx.asked, 0, 0);
	fx.budgets = budgets_new();
	const struct accounts_config config = {
	    .store = fx.store, .budgets = fx.budgets, .cache_bytes = 1 << 20, .stale_ms = STALE_MS};
	assert_int_equal(accounts_new(&config, &fx.accounts, NULL), 0);
	assert_int_equal(sem_wait(&fx.asked), 0);
	return 0;
}

static int stop(void **state)
{
	accounts_free(fx.accounts);
	budgets_free(fx.budgets);
	store_free(fx.store);
	arena_release(&fx.arena);
	fx.arena = (struct arena){0};
	return 0;
}

/* By another server. */
static uint64_t make_key(const char *text)
{
	struct registry_write w = {.kind = REGISTRY_KEY_CREATE, .now_ms = 1, .arena = &fx.arena};
	w.key.rights = RIGHT_READ;
	w.user = (struct user_record){.role = ROLE_EDITOR, .enabled = true};
	api_key_digest(str_of(text), w.key.digest);
	assert_int_equal(registry_apply(fx.store->registry, &w, 1), 0);
	assert_int_equal(w.result, 0);
	return w.key.id;
}

static void revoke_key(uint64_t id)
{
	struct registry_write w = {
	    .kind = REGISTRY_KEY_REVOKE, .now_ms = 2, .arena = &fx.arena, .key.id = id};
	assert_int_equal(registry_apply(fx.store->registry, &w, 1), 0);
	assert_int_equal(w.result, 0);
}

static enum account_found find(const char *text)
{
	struct caller caller;
	struct account_ref want;
	const struct account_ref *const wants[] = {&want};
	enum account_found found;
	while ((found = accounts_find_key(fx.accounts, str_of(text),
	                                  (struct account_time){clock_real_ms(), clock_mono_ms()}, &caller,
	                                  &want)) == ACCOUNT_UNCACHED)
		assert_int_equal(accounts_read(fx.accounts, wants, 1), 0);
	return found;
}

/* A run that began after this has seen what was done before it. */
static void wait_for_a_run(void)
{
	while (sem_trywait(&fx.asked) == 0)
		;
	for (int i = 0; i < 2; i++) { /* the first may have been under way */
		accounts_watch_wake(fx.accounts);
		assert_int_equal(sem_wait(&fx.asked), 0);
	}
}

TEST(the_watcher_looks_by_itself_and_when_it_is_woken)
{
	uint64_t one = make_key("one"), two = make_key("two");
	assert_int_equal(find("one"), ACCOUNT_FOUND);
	assert_int_equal(find("two"), ACCOUNT_FOUND);
	assert_int_equal(accounts_watch_start(fx.accounts, NULL), 0);
	revoke_key(one);
	assert_int_equal(sem_wait(&fx.asked), 0); /* nobody has told it */
	assert_int_equal(sem_wait(&fx.asked), 0);
	assert_int_equal(find("one"), ACCOUNT_NONE);
	revoke_key(two);
	wait_for_a_run();
	accounts_watch_stop(fx.accounts);
	assert_int_equal(find("two"), ACCOUNT_NONE);
}

TEST(a_store_that_does_not_say_leaves_everything_in_force_for_a_while)
{
	make_key("one");
	assert_int_equal(find("one"), ACCOUNT_FOUND);
	fx.feed_result = ERR_UNAVAILABLE;
	assert_int_equal(accounts_watch_start(fx.accounts, NULL), 0);
	wait_for_a_run();
	assert_int_equal(find("one"), ACCOUNT_FOUND);
	UNTIL(find("one") != ACCOUNT_FOUND);
	assert_int_equal(find("one"), ACCOUNT_STALE);
	fx.feed_result = 0; /* and it goes on when the store answers */
	wait_for_a_run();
	accounts_watch_stop(fx.accounts);
	assert_int_equal(find("one"), ACCOUNT_FOUND);
}

int main(void)
{
	if (sodium_init() < 0)
		return 1;
	return RUN_TESTS(.setup = start, .teardown = stop);
}
