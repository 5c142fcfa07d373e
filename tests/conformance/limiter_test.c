/* The promises of the role `limiter`: in memory, on one Redis and on a ring of two. */
#include "lib/limiter_memory.h"
#include "lib/redis_server.h"
#include "lib/test.h"
#include "limiter/backends.h"

enum { LONG_MS = 3600 * 1000, SHORT_MS = 60, PATIENCE_MS = 20000 };

static struct limiter_world world;
static struct redis_server servers[2];
static char urls[160];
static int (*open_one)(struct limiter **ret, struct err *e);
static struct limiter *a, *b; /* two servers */
static uint64_t next_owner;
static unsigned counted; /* servers, by the last settling */

static int open_memory(struct limiter **ret, struct err *e)
{
	return limiter_memory_open(&world, ret, e);
}

static int open_redis(struct limiter **ret, struct err *e)
{
	return limiter_redis_open(urls, "test", ret, e);
}

static int both_up(void **state)
{
	MUST(open_one(&a, &why));
	MUST(open_one(&b, &why));
	return 0;
}

static int both_down(void **state)
{
	a->ops->free(a);
	b->ops->free(b);
	return 0;
}

/* A node that is late leaves what it has unsettled; it gets it again. */
static void settle_all(struct limiter *l, struct limiter_use *uses, size_t n)
{
	UNTIL(l->ops->sync(l, uses, n, &counted) == 0);
}

static struct limiter_use settle_use(struct limiter *l, struct limiter_use use)
{
	settle_all(l, &use, 1);
	assert_true(use.synced);
	assert_in_range(counted, 1, 3);
	return use;
}

/* A server that knows of no period says that it has used so many, of a limit that is far away. */
static struct limiter_use tell(struct limiter *l, uint64_t owner, char what, uint32_t period_ms,
                               uint64_t used)
{
	return settle_use(l, (struct limiter_use){.owner = owner,
	                                          .what = what,
	                                          .period_ms = period_ms,
	                                          .max = 1000000,
	                                          .used = used,
	                                          .grant = used});
}

/* Looks without having used anything: what the others have. */
static uint64_t seen_by(struct limiter *l, uint64_t owner, char what, uint32_t period_ms)
{
	return tell(l, owner, what, period_ms, 0).others;
}

/* False: the machine stood still for so long that one was missed already, and its grants were free. */
static bool both_settle(struct limiter_use *of_a, struct limiter_use *of_b)
{
	*of_a = settle_use(a, *of_a);
	bool both = counted == 2;
	*of_b = settle_use(b, *of_b);
	return both && counted == 2;
}

/* What the other server sees of a grant, while the server that has it is counted. */
static uint64_t grant_seen(struct limiter_use *of_a)
{
	struct limiter_use look = {0};
	UNTIL((look = (struct limiter_use){.owner = of_a->owner, .what = 'c', .period_ms = LONG_MS},
	       both_settle(of_a, &look)));
	return look.others;
}

static struct test_list patient;

TEST(each_hears_what_the_others_have_used)
{
	uint64_t owner = next_owner++;
	struct limiter_use first = tell(a, owner, 'c', LONG_MS, 3);
	assert_int_equal(first.others, 0);
	assert_true(first.period != 0);
	assert_in_range(first.left_ms, 1, LONG_MS);
	struct limiter_use second = tell(b, owner, 'c', LONG_MS, 4);
	assert_int_equal(second.others, 3);
	assert_int_equal(second.period, first.period);
	assert_true(second.left_ms <= first.left_ms);
	assert_int_equal(tell(a, owner, 'c', LONG_MS, 5).others, 4);
}

TEST(what_is_told_twice_counts_once_and_may_become_less)
{
	uint64_t owner = next_owner++;
	for (unsigned i = 0; i < 3; i++)
		tell(a, owner, 'c', LONG_MS, 5);
	assert_int_equal(seen_by(b, owner, 'c', LONG_MS), 5);
	tell(a, owner, 'c', LONG_MS, 2);
	assert_int_equal(seen_by(b, owner, 'c', LONG_MS), 2);
	tell(a, owner, 'c', LONG_MS, 0);
	assert_int_equal(seen_by(b, owner, 'c', LONG_MS), 0);
}

TEST(budgets_of_others_other_kinds_and_other_periods_are_apart)
{
	uint64_t owner = next_owner++, other = next_owner++;
	tell(a, owner, 'c', LONG_MS, 5);
	tell(a, UINT64_MAX, 'c', LONG_MS, 2);
	assert_int_equal(seen_by(b, owner, 'r', LONG_MS), 0);
	assert_int_equal(seen_by(b, other, 'c', LONG_MS), 0);
	assert_int_equal(seen_by(b, owner, 'c', LONG_MS + 1), 0);
	assert_int_equal(seen_by(b, owner, 'c', LONG_MS), 5);
	assert_int_equal(seen_by(b, UINT64_MAX, 'c', LONG_MS), 2);
}

/* Both want all, and use what they get. False: see both_settle. */
static bool share_out(struct limiter_use *of_a, struct limiter_use *of_b)
{
	struct limiter_use none = {.owner = next_owner++, .what = 'c', .period_ms = LONG_MS}, look = none;
	settle_use(b, none);
	both_settle(&none, &look);
	*of_a = *of_b = (struct limiter_use){
	    .owner = next_owner++, .what = 'c', .period_ms = LONG_MS, .max = 100, .used = 1, .want = 1000};
	if (!both_settle(of_a, of_b))
		return false;
	assert_int_equal(of_a->grant, 1 + 50);
	assert_int_equal(of_b->others, 51);
	assert_int_equal(of_b->grant, 1 + 24);
	bool both = true;
	for (unsigned i = 0; both && i < 30; i++) {
		of_a->used = of_a->grant;
		of_b->used = of_b->grant;
		both = both_settle(of_a, of_b);
	}
	return both;
}

TEST(grants_stay_within_the_limit_and_leave_something_for_others)
{
	struct limiter_use of_a, of_b;
	UNTIL(share_out(&of_a, &of_b));
	assert_int_equal(of_a.grant + of_b.grant, 100);
}

TEST(a_grant_is_lowered_by_its_server_only)
{
	struct limiter_use of_a = {
	    .owner = next_owner++, .what = 'c', .period_ms = LONG_MS, .max = 100, .used = 1, .want = 20};
	of_a = settle_use(a, of_a);
	assert_int_equal(of_a.grant, 21);
	of_a.want = 0;
	of_a = settle_use(a, of_a);
	assert_int_equal(of_a.grant, 21);
	assert_int_equal(grant_seen(&of_a), 21);
	of_a.grant = 5;
	of_a = settle_use(a, of_a);
	assert_int_equal(of_a.grant, 5);
	assert_int_equal(grant_seen(&of_a), 5);
}

TEST(looking_begins_no_period)
{
	struct limiter_use use = tell(a, next_owner++, 'c', LONG_MS, 0);
	assert_int_equal(use.others, 0);
	assert_int_equal(use.left_ms, 0);
	assert_int_equal(use.period, 0);
}

TEST(a_period_ends_and_the_next_one_begins_at_nothing)
{
	uint64_t owner = next_owner++;
	struct limiter_use first = tell(a, owner, 'c', SHORT_MS, 9), now = first;
	assert_in_range(first.left_ms, 1, SHORT_MS);
	UNTIL((now = tell(b, owner, 'c', SHORT_MS, 0)).period == 0);
	assert_int_equal(now.others, 0);
	struct limiter_use next = tell(b, owner, 'c', SHORT_MS, 1);
	assert_int_equal(next.others, 0);
	assert_true(next.period > first.period);
}

TEST(what_is_told_of_a_period_that_is_over_is_not_counted)
{
	struct limiter_use now = tell(b, next_owner++, 'c', LONG_MS, 1);
	struct limiter_use late = now;
	late.period -= LONG_MS;
	late.left_ms = 1;
	late.used = late.grant = 100;
	late = settle_use(a, late);
	assert_int_equal(late.period, now.period);
	assert_int_equal(seen_by(b, now.owner, 'c', LONG_MS), 0);
	late.owner = next_owner++; /* and where none is under way, none begins */
	late.left_ms = 1;
	late = settle_use(a, late);
	assert_int_equal(late.period, 0);
}

TEST(a_period_that_was_forgotten_is_brought_back_and_no_grant_grows_at_first)
{
	struct limiter_use begun = tell(a, next_owner++, 'c', LONG_MS, 1);
	struct limiter_use known = begun;
	known.owner = next_owner++; /* of which the limiter knows nothing */
	known.period = begun.period - LONG_MS / 2;
	known.left_ms = LONG_MS / 2;
	known.used = 10;
	known.grant = 15;
	known.want = 1000;
	struct limiter_use back = settle_use(a, known);
	assert_int_equal(back.period, known.period);
	assert_in_range(back.left_ms, LONG_MS / 2 - PATIENCE_MS, LONG_MS / 2);
	assert_int_equal(back.grant, 15);
	assert_int_equal(seen_by(b, known.owner, 'c', LONG_MS), 15);
}

TEST(of_two_periods_under_way_the_first_one_is_kept)
{
	struct limiter_use later = tell(a, next_owner++, 'c', LONG_MS, 3);
	struct limiter_use first = later;
	first.period -= LONG_MS / 2;
	first.left_ms = LONG_MS / 2;
	first = settle_use(b, first);
	assert_int_equal(first.others, 3);
	later = settle_use(a, later);
	assert_int_equal(later.period, first.period);
	assert_true(later.left_ms <= LONG_MS / 2);
	assert_int_equal(later.others, 3);
}

TEST(many_budgets_are_settled_in_one_call)
{
	enum { MANY = 700 };
	struct limiter_use *uses = calloc(MANY, sizeof(*uses));
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < MANY; i++)
			uses[i] = (struct limiter_use){
			    .owner = 1000000 + i, .what = 'r', .period_ms = LONG_MS, .used = i + 1};
		struct limiter *l = round ? b : a;
		settle_all(l, uses, MANY);
		for (size_t i = 0; i < MANY; i++)
			assert_int_equal(uses[i].others, round * (i + 1));
	}
	free(uses);
}

static unsigned count_by(struct limiter *l)
{
	settle_all(l, NULL, 0);
	return counted;
}

TEST(the_servers_that_settle_are_counted)
{
	struct limiter *third;
	struct err e;
	assert_int_equal(open_one(&third, &e), 0);
	UNTIL((count_by(a), count_by(b)) == 2);
	UNTIL((count_by(a), count_by(b), count_by(third)) == 3);
	third->ops->free(third);
	assert_in_range(count_by(a), 1, 2);
	UNTIL((count_by(b), count_by(a)) == 2);
}

TEST_IN(patient, a_server_that_settles_no_more_is_not_counted_after_a_while)
{
	UNTIL((count_by(b), count_by(a)) == 2);
	UNTIL(count_by(a) == 1);
}

/* Its grants are the others' again, and what it has used is not. */
TEST(what_a_server_held_that_is_gone_is_free)
{
	struct limiter *third;
	struct err e;
	assert_int_equal(open_one(&third, &e), 0);
	struct limiter_use held = {
	    .owner = next_owner++, .what = 'c', .period_ms = LONG_MS, .max = 100, .used = 2, .grant = 60};
	UNTIL((settle_use(third, held), seen_by(a, held.owner, 'c', LONG_MS)) == 60);
	third->ops->free(third);
	assert_int_equal(seen_by(a, held.owner, 'c', LONG_MS), 2);
}

TEST(it_answers)
{
	struct err e = {""};
	assert_int_equal(a->ops->ping(a, &e), 0);
}

static int run(const char *name)
{
	next_owner = 1;
	return RUN_TESTS(.name = name, .group_setup = both_up, .group_teardown = both_down);
}

TEST_IN(patient, servers_of_another_installation_have_nothing_to_do_with_it)
{
	struct limiter *other;
	MUST(limiter_redis_open(urls, "another", &other, &why));
	uint64_t owner = next_owner++;
	tell(a, owner, 'c', LONG_MS, 5);
	assert_int_equal(seen_by(other, owner, 'c', LONG_MS), 0);
	assert_int_equal(count_by(other), 1);
	tell(other, owner, 'c', LONG_MS, 7);
	assert_int_equal(seen_by(b, owner, 'c', LONG_MS), 5);
	other->ops->free(other);
}

/* It takes seconds: once is enough. */
static int run_patient(const char *name)
{
	return RUN_LIST(patient, .name = name, .group_setup = both_up, .group_teardown = both_down);
}

int main(void)
{
	limiter_world_init(&world);
	open_one = open_memory;
	int failed = run("memory");
	if (!redis_server_exists()) {
		printf("redis-tools is not installed\n[  SKIPPED ] all of 30 test(s)\n");
		return failed;
	}
	open_one = open_redis;
	redis_server_start(&servers[0], NULL);
	redis_server_start(&servers[1], NULL);
	snprintf(urls, sizeof(urls), "%s/1", servers[0].url);
	failed += run("redis");
	failed += run_patient("redis, later");
	snprintf(urls, sizeof(urls), "%s,%s", servers[0].url, servers[1].url);
	failed += run("a ring of redis");
	redis_server_stop(&servers[0]);
	redis_server_stop(&servers[1]);
	return failed;
}
