#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/accounts.h"
#include "lib/store_kit.h"
#include "lib/store_proxy.h"
#include "store/backends.h"

#include <semaphore.h>
#include <sodium.h>

/* A store that others write to: what they do raises the version. */
static struct {
	struct store *inner;
	struct store_proxy proxy;
	struct budgets *budgets;
	struct accounts *accounts;
	struct arena arena;
	_Atomic uint64_t version;
	_Atomic int version_result;
	_Atomic unsigned reads;
	sem_t asked; /* for the version */
	sem_t read;  /* the API keys were */
} fx;

static int version(struct store *s, uint64_t *ret)
{
	(void)s;
	*ret = fx.version;
	int r = fx.version_result;
	sem_post(&fx.asked);
	return r;
}

static int keys(struct store *s, struct arena *arena, struct key_record **ret, size_t *ret_count)
{
	(void)s;
	fx.reads++;
	int r = store_keys(fx.inner, arena, ret, ret_count);
	sem_post(&fx.read);
	return r;
}

static int start(void **state)
{
	(void)state;
	fx.inner = kit_store_new();
	store_proxy_init(&fx.proxy, fx.inner);
	fx.proxy.ops.version = version;
	fx.proxy.ops.keys = keys;
	fx.version = 1;
	fx.version_result = 0;
	fx.reads = 0;
	sem_init(&fx.asked, 0, 0);
	sem_init(&fx.read, 0, 0);
	fx.budgets = budgets_new();
	const struct account_limits limits = {0};
	assert_int_equal(accounts_new(&fx.proxy.base, fx.budgets, &limits, &fx.accounts, NULL), 0);
	assert_int_equal(sem_wait(&fx.asked), 0);
	assert_int_equal(sem_wait(&fx.read), 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	accounts_free(fx.accounts);
	budgets_free(fx.budgets);
	store_free(fx.inner);
	arena_release(&fx.arena);
	return 0;
}

/* By another server. */
static void make_key(const char *text)
{
	struct store_write w = {.kind = STORE_KEY_CREATE, .now_ms = 1, .arena = &fx.arena};
	w.key.rights = RIGHT_READ;
	w.user = (struct user_record){.role = ROLE_EDITOR, .enabled = true};
	api_key_digest(str_of(text), w.key.digest);
	assert_int_equal(store_apply(fx.inner, &w, 1), 0);
	assert_int_equal(w.result, 0);
	fx.version++;
}

static bool knows(const char *text)
{
	struct caller caller;
	return accounts_find_key(fx.accounts, str_of(text), 1000, &caller);
}

static void accounts_are_read_again_only_when_the_version_has_changed(void **state)
{
	(void)state;
	assert_int_equal(accounts_follow(fx.accounts), 0);
	assert_int_equal(fx.reads, 1); /* at the start */
	make_key("one");
	assert_false(knows("one"));
	assert_int_equal(accounts_follow(fx.accounts), 0);
	assert_true(knows("one"));
	assert_int_equal(fx.reads, 2);
	assert_int_equal(accounts_follow(fx.accounts), 0);
	assert_int_equal(fx.reads, 2);
}

static void a_store_that_does_not_say_leaves_everything_in_force(void **state)
{
	(void)state;
	make_key("one");
	assert_int_equal(accounts_follow(fx.accounts), 0);
	fx.version_result = ERR_UNAVAILABLE;
	assert_int_equal(accounts_follow(fx.accounts), ERR_UNAVAILABLE);
	assert_true(knows("one"));
}

static void a_store_of_our_own_is_never_asked(void **state)
{
	(void)state;
	fx.proxy.ops.version = NULL;
	fx.version++;
	assert_int_equal(accounts_follow(fx.accounts), 0);
	assert_int_equal(fx.reads, 1);
}

static void the_watcher_looks_by_itself_and_when_it_is_told(void **state)
{
	(void)state;
	assert_int_equal(accounts_watch(fx.accounts, NULL), 0);
	make_key("one");
	assert_int_equal(sem_wait(&fx.read), 0); /* nobody has told it */
	make_key("two");
	accounts_wake(fx.accounts);
	assert_int_equal(sem_wait(&fx.read), 0);
	accounts_unwatch(fx.accounts);
	assert_true(knows("one") && knows("two"));
}

static void the_watcher_goes_on_after_the_store_has_failed(void **state)
{
	(void)state;
	fx.version_result = ERR_UNAVAILABLE;
	assert_int_equal(accounts_watch(fx.accounts, NULL), 0);
	accounts_wake(fx.accounts);
	assert_int_equal(sem_wait(&fx.asked), 0);
	make_key("one");
	fx.version_result = 0;
	accounts_wake(fx.accounts);
	assert_int_equal(sem_wait(&fx.read), 0);
	accounts_unwatch(fx.accounts);
	assert_true(knows("one"));
}

int main(void)
{
	if (sodium_init() < 0)
		return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
	const struct CMUnitTest tests[] = {
	    TEST(accounts_are_read_again_only_when_the_version_has_changed),
	    TEST(a_store_that_does_not_say_leaves_everything_in_force),
	    TEST(a_store_of_our_own_is_never_asked),
	    TEST(the_watcher_looks_by_itself_and_when_it_is_told),
	    TEST(the_watcher_goes_on_after_the_store_has_failed),
	};
	return cmocka_run_group_tests_name("accounts_watch", tests, NULL, NULL);
}
