/* What is Redis' own about leases; what all backends promise is in lib/lease_suite.c. */
#include "lease/backends.h"
#include "lib/redis_kit.h"
#include "lib/test.h"

enum { LIFE_MS = 300, LONG_MS = 60000 };

static struct redis_server *const server = &redis_kit_servers[0];

static struct leases *open_leases(void)
{
	struct leases *l = NULL;
	redis_kit_need();
	MUST(leases_redis_open(server->url, &l, &why));
	return l;
}

static struct lease *take_in_time(struct leases *l, struct str name, uint64_t life_ms)
{
	struct lease *lease = NULL;
	UNTIL(l->ops->take(l, name, life_ms, &lease) == 0);
	return lease;
}

TEST(the_fencing_number_grows_also_when_the_server_forgot_everything, redis_kit_renew)
{
	struct leases *l = open_leases();
	struct lease *lease = take_in_time(l, STR("a"), LONG_MS);
	uint64_t first = l->ops->fence(lease);
	l->ops->release(l, lease);
	lease = take_in_time(l, STR("a"), LONG_MS);
	uint64_t second = l->ops->fence(lease);
	assert_true(second > first);
	l->ops->release(l, lease);
	redis_kit_ask(server->url, REDIS_ARGS(STR("FLUSHALL")));
	lease = take_in_time(l, STR("a"), LONG_MS);
	assert_true(l->ops->fence(lease) > second);
	l->ops->release(l, lease);
	leases_free(l);
}

/* What is left of its life on the server grows. False: it was lost first, as on a machine that stands still.
 */
static bool is_renewed(struct leases *l, const struct lease *lease)
{
	int64_t left_ms = LIFE_MS, end_ms = until_now_ms() + UNTIL_MS;
	while (l->ops->is_held(lease) && until_now_ms() < end_ms) {
		int64_t now_left_ms = redis_kit_ask(server->url,
		                                    REDIS_ARGS(STR("PTTL"), STR("curt:lease:b")));
		if (now_left_ms > left_ms)
			return true;
		left_ms = now_left_ms;
		until_pause();
	}
	return false;
}

TEST(a_lease_is_renewed_again_and_again, redis_kit_renew)
{
	enum { RENEWALS = 5 };
	struct leases *l = open_leases();
	int renewals = 0;
	int64_t end_ms = until_now_ms() + UNTIL_MS;
	while (renewals < RENEWALS && until_now_ms() < end_ms) {
		struct lease *lease = take_in_time(l, STR("b"), LIFE_MS);
		for (renewals = 0; renewals < RENEWALS && is_renewed(l, lease); renewals++)
			;
		l->ops->release(l, lease);
	}
	assert_int_equal(renewals, RENEWALS);
	leases_free(l);
}

TEST(a_server_that_forgot_the_lease_makes_it_lost_for_good, redis_kit_renew)
{
	struct leases *l = open_leases();
	struct lease *lease = take_in_time(l, STR("c"), LIFE_MS);
	redis_kit_ask(server->url, REDIS_ARGS(STR("FLUSHALL")));
	UNTIL(!l->ops->is_held(lease));
	struct leases *other = open_leases();
	struct lease *next = take_in_time(other, STR("c"), LONG_MS);
	assert_true(other->ops->fence(next) > l->ops->fence(lease));
	l->ops->release(l, lease); /* does not touch the other's */
	assert_true(other->ops->is_held(next));
	assert_int_equal(l->ops->take(l, STR("c"), LIFE_MS, &lease), ERR_BUSY);
	other->ops->release(other, next);
	leases_free(l);
	leases_free(other);
}

TEST(a_server_that_does_not_answer_makes_it_lost_and_it_stays_so, redis_kit_renew)
{
	struct leases *l = open_leases();
	struct lease *lease = take_in_time(l, STR("d"), LIFE_MS), *none = NULL;
	redis_server_signal(server, SIGSTOP);
	UNTIL(!l->ops->is_held(lease));
	assert_int_equal(l->ops->take(l, STR("e"), LIFE_MS, &none), ERR_UNAVAILABLE);
	redis_server_signal(server, SIGCONT);
	struct lease *other = take_in_time(l, STR("e"), LIFE_MS);
	assert_false(l->ops->is_held(lease));
	l->ops->release(l, other);
	l->ops->release(l, lease);
	leases_free(l);
}

TEST(a_release_that_was_not_heard_is_repeated, redis_kit_renew)
{
	struct leases *l = open_leases(), *other = open_leases();
	struct lease *lease = take_in_time(l, STR("f"), LONG_MS);
	redis_server_signal(server, SIGSTOP);
	l->ops->release(l, lease);
	redis_server_signal(server, SIGCONT);
	/* Long before its life is over. */
	lease = take_in_time(other, STR("f"), LONG_MS);
	other->ops->release(other, lease);
	leases_free(l);
	leases_free(other);
}

TEST(a_server_that_is_down_is_reported_by_ping, redis_kit_renew)
{
	redis_kit_need();
	struct leases *l;
	struct err e = {""};
	struct lease *none = NULL;
	assert_int_equal(leases_redis_open("redis://pw@127.0.0.1:1", &l, &e), 0);
	assert_int_equal(l->ops->ping(l, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "127.0.0.1:1"));
	assert_int_equal(l->ops->take(l, STR("a"), LIFE_MS, &none), ERR_UNAVAILABLE);
	leases_free(l);
	l = open_leases();
	assert_int_equal(l->ops->ping(l, &e), 0);
	leases_free(l);
}

TEST(several_servers_are_refused_with_a_sentence_that_says_so)
{
	struct leases *l = NULL;
	struct err e = {""};
	assert_int_equal(leases_redis_open("redis://a:1,redis://:hidden@b:2", &l, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "several Redis servers"));
	assert_null(strstr(e.text, "hidden"));
}

TEST_MAIN(.group_setup = redis_kit_one, .group_teardown = redis_kit_down)
