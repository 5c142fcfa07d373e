/* What happens to budgets on Redis when a node is down; what all backends promise is in the conformance test.
 */
#include "lib/redis_kit.h"
#include "lib/test.h"
#include "limiter/backends.h"

enum { NODES = 2, USES = 60, PERIOD_MS = 3600 * 1000 };

static struct redis_server *const servers = redis_kit_servers;

static struct limiter *open_limiter(void)
{
	struct limiter *l = NULL;
	char urls[REDIS_KIT_URLS_BYTES];
	redis_kit_need();
	MUST(limiter_redis_open(redis_kit_urls(urls), "test", &l, &why));
	return l;
}

static uint64_t first_owner;

/* Each of so many budgets has been used so often. */
static int sync_uses(struct limiter *l, struct limiter_use uses[USES], uint64_t used)
{
	unsigned count = 0;
	for (unsigned i = 0; i < USES; i++)
		uses[i] = (struct limiter_use){
		    .owner = first_owner + i, .what = 'r', .period_ms = PERIOD_MS, .max = 1000, .used = used};
	int r = l->ops->sync(l, uses, USES, &count);
	assert_in_range(count, 0, 2); /* none: no node has answered in time */
	return r;
}

static unsigned settled_of(const struct limiter_use uses[USES])
{
	unsigned synced = 0;
	for (unsigned i = 0; i < USES; i++)
		synced += uses[i].synced;
	return synced;
}

static void settle_until_all_are(struct limiter *l, struct limiter_use uses[USES], uint64_t used)
{
	UNTIL(sync_uses(l, uses, used) == 0);
	assert_int_equal(settled_of(uses), USES);
}

/* While a node is down. The other one may be late, and gets it again. */
static void settle_until_some_are(struct limiter *l, struct limiter_use uses[USES], uint64_t used)
{
	UNTIL(sync_uses(l, uses, used) == 0 || settled_of(uses) > 0);
	assert_in_range(settled_of(uses), 1, USES - 1);
}

TEST(no_budget_is_ever_without_an_end, redis_kit_renew)
{
	struct limiter *l = open_limiter();
	struct limiter_use uses[USES];
	settle_until_all_are(l, uses, 1);
	for (size_t s = 0; s < NODES; s++) {
		struct redis *r;
		struct redis_reply reply;
		assert_int_equal(redis_new(str_of(servers[s].url), &r, NULL), 0);
		struct redis_conn *c = redis_take(r, NULL);
		/* How many keys there are, and how many of them have no end. */
		const struct str script = STR(
		    "local all, endless = redis.call('KEYS', '*'), 0\n"
		    "for i, k in ipairs(all) do\n"
		    "  if redis.call('PTTL', k) < 0 then endless = endless + 1 end\n"
		    "end\n"
		    "return {#all, endless}\n");
		assert_int_equal(redis_ask(c, REDIS_ARGS(STR("EVAL"), script, STR("0")), &reply), 0);
		assert_true(redis_reply_at(&reply, 0).number > 1);
		assert_int_equal(redis_reply_at(&reply, 1).number, 0);
		redis_return(c);
		redis_free(r);
	}
	l->ops->free(l);
}

TEST(a_node_that_is_down_leaves_only_its_own_budgets_unsettled, redis_kit_renew)
{
	struct limiter *l = open_limiter(), *other = open_limiter();
	first_owner += USES;
	struct limiter_use uses[USES];
	struct err e = {""};
	settle_until_all_are(l, uses, 1);
	redis_server_kill(&servers[1]);
	settle_until_some_are(l, uses, 2);
	assert_int_equal(l->ops->ping(l, &e), ERR_UNAVAILABLE);
	settle_until_some_are(other, uses, 1);
	for (unsigned i = 0; i < USES; i++) {
		if (uses[i].synced)
			assert_int_equal(uses[i].others, 2);
	}
	redis_server_restart(&servers[1], NULL);
	settle_until_all_are(l, uses, 3);
	settle_until_all_are(other, uses, 1);
	for (unsigned i = 0; i < USES; i++)
		assert_int_equal(uses[i].others, 3);
	assert_int_equal(l->ops->ping(l, &e), 0);
	l->ops->free(l);
	other->ops->free(other);
}

TEST(what_is_told_to_a_node_that_stops_for_a_while_counts_once_and_in_order, redis_kit_renew)
{
	struct limiter *l = open_limiter(), *other = open_limiter();
	struct limiter_use uses[USES];
	first_owner += USES;
	settle_until_all_are(l, uses, 1);
	redis_server_signal(&servers[1], SIGSTOP);
	for (uint64_t used = 2; used <= 20; used++)
		settle_until_some_are(l, uses, used);
	redis_server_signal(&servers[1], SIGCONT);
	settle_until_all_are(l, uses, 21);
	settle_until_all_are(other, uses, 1);
	for (unsigned i = 0; i < USES; i++)
		assert_int_equal(uses[i].others, 21);
	l->ops->free(l);
	other->ops->free(other);
}

TEST(without_any_node_nothing_is_settled)
{
	struct limiter *l;
	struct err e = {""};
	struct limiter_use use = {.owner = 1, .what = 'c', .period_ms = PERIOD_MS, .used = 1, .synced = true};
	unsigned count = 7;
	assert_int_equal(limiter_redis_open("redis://127.0.0.1:1", "test", &l, &e), 0);
	assert_int_equal(l->ops->sync(l, &use, 1, &count), ERR_UNAVAILABLE);
	assert_false(use.synced);
	assert_int_equal(count, 7);
	assert_int_equal(l->ops->ping(l, &e), ERR_UNAVAILABLE);
	l->ops->free(l);
	assert_int_equal(limiter_redis_open("http://h", "test", &l, &e), ERR_INVALID);
}

TEST_MAIN(.group_setup = redis_kit_two, .group_teardown = redis_kit_down)
