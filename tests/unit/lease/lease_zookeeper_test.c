/* What is ZooKeeper's own about leases; what all backends promise is in lib/lease_suite.c. */
#include "lease/backends.h"
#include "lib/os_fault.h"
#include "lib/relay.h"
#include "lib/test.h"
#include "os/clock.h"

#include <sodium.h>

enum { LIFE_MS = 2 * UNTIL_MS, NAME_BYTES = 64 };

static struct leases *open_at(const char *address)
{
	char url[256];
	struct leases *l = NULL;
	snprintf(url, sizeof(url), "zookeeper://%s/curt-test/own", address);
	MUST(leases_zookeeper_open(url, &l, &why));
	return l;
}

static const char *server(void)
{
	const char *address = getenv("CURT_TEST_ZOOKEEPER");
	if (!address) {
		print_message("no ZooKeeper: CURT_TEST_ZOOKEEPER is not set\n");
		skip();
	}
	return address;
}

static struct str fresh_name(char out[NAME_BYTES])
{
	int len = snprintf(out, NAME_BYTES, "own-%08x%08x", randombytes_random(), randombytes_random());
	return str_n(out, (size_t)len);
}

/* The first who wants it: a service that is too slow is asked again. */
static struct lease *take(struct leases *l, struct str name)
{
	struct lease *lease = NULL;
	UNTIL(l->ops->take(l, name, LIFE_MS, &lease) == 0);
	return lease;
}

struct taker {
	struct leases *leases;
	struct str name;
	struct lease *lease;
	int result;
};

static void *take_in_thread(void *arg)
{
	struct taker *t = arg;
	t->result = t->leases->ops->take(t->leases, t->name, LIFE_MS, &t->lease);
	return NULL;
}

static bool is_busy(struct leases *l, struct str name)
{
	struct lease *lease = NULL;
	int r = l->ops->take(l, name, LIFE_MS, &lease);
	if (r == 0)
		l->ops->release(l, lease);
	return r == ERR_BUSY;
}

/* The node is made, the connection breaks before the answer comes, and the next try finds a node that is its
 * own. */
static struct taker take_with_lost_answer(struct leases *l, struct str name, struct relay *relay)
{
	struct taker taker = {.leases = l, .name = name};
	pthread_t thread;
	size_t dropped = relay_dropped(relay);
	relay_set(relay, RELAY_MUTE);
	assert_int_equal(pthread_create(&thread, NULL, take_in_thread, &taker), 0);
	UNTIL(relay_dropped(relay) > dropped); /* it is there, and its maker does not know */
	relay_set(relay, RELAY_CUT);
	relay_set(relay, RELAY_PASS);
	pthread_join(thread, NULL);
	return taker;
}

TEST(a_node_whose_answer_was_lost_is_recognised)
{
	char first_text[NAME_BYTES], text[NAME_BYTES];
	struct str first_name = fresh_name(first_text), name;
	struct leases *direct = open_at(server());
	struct relay *relay = relay_start(server());
	struct leases *l = open_at(relay_address(relay));
	struct lease *others = take(direct, first_name);
	struct taker taker;
	int64_t end_ms = until_now_ms() + UNTIL_MS;
	do {                                   /* again where all of it took longer than a take may */
		UNTIL(is_busy(l, first_name)); /* from now on it has a session that is connected */
		name = fresh_name(text);
		taker = take_with_lost_answer(l, name, relay);
	} while (taker.result == ERR_UNAVAILABLE && until_now_ms() < end_ms);
	assert_int_equal(taker.result, 0);
	assert_true(l->ops->is_held(taker.lease));
	assert_true(l->ops->fence(taker.lease) > direct->ops->fence(others));
	UNTIL(is_busy(direct, name));
	l->ops->release(l, taker.lease);
	UNTIL(!is_busy(direct, name));
	direct->ops->release(direct, others);
	leases_free(l);
	leases_free(direct);
	relay_stop(relay);
}

/* Stands still until it is turned, and lies ahead, so that the backend's own thread sleeps through the test.
 */
static void clock_stop(void)
{
	os_fault_clock_set(clock_real_ms(), clock_mono_ms() + 3600000);
}

/* Its session may well live on, and nobody else could have it yet. The clock stands still: nothing but the
 * break can end it. */
TEST(a_lease_is_lost_the_moment_its_connection_breaks)
{
	char text[NAME_BYTES];
	struct str name = fresh_name(text);
	const char *address = server();
	clock_stop();
	struct leases *direct = open_at(address);
	struct relay *relay = relay_start(address);
	struct leases *l = open_at(relay_address(relay));
	struct lease *lease = take(l, name);
	assert_true(l->ops->is_held(lease));
	relay_set(relay, RELAY_CUT);
	UNTIL(!l->ops->is_held(lease));
	relay_set(relay, RELAY_PASS);
	UNTIL(is_busy(direct, name));
	l->ops->release(l, lease);
	leases_free(l);
	leases_free(direct);
	relay_stop(relay);
	os_fault_reset();
}

/* As for a process that was paused, before anything else of it has noticed. */
TEST(a_lease_that_was_proven_too_long_ago_is_lost)
{
	char text[NAME_BYTES];
	struct str name = fresh_name(text);
	const char *address = server();
	clock_stop();
	struct leases *l = open_at(address);
	struct lease *lease = take(l, name);
	os_fault_clock_advance(LIFE_MS / 2);
	assert_true(l->ops->is_held(lease));
	os_fault_clock_advance(LIFE_MS / 2);
	assert_false(l->ops->is_held(lease));
	l->ops->release(l, lease);
	leases_free(l);
	os_fault_reset();
}

/* A stopped server holds up nobody for as long as its sessions live. */
TEST(a_service_that_is_silent_is_not_waited_for)
{
	enum { LEASES = 6 };
	struct leases *direct = open_at(server());
	struct relay *relay = relay_start(server());
	struct leases *l = open_at(relay_address(relay));
	struct lease *leases[LEASES] = {NULL}, *none = NULL;
	char text[NAME_BYTES];
	for (int i = 0; i < LEASES; i++)
		leases[i] = take(l, fresh_name(text));
	struct str name = fresh_name(text);
	struct lease *others = take(direct, name);
	UNTIL(is_busy(l, name)); /* from now on it has a session that is connected */
	relay_set(relay, RELAY_HOLD);
	int64_t began_ms = clock_mono_ms();
	assert_int_equal(l->ops->take(l, fresh_name(text), LIFE_MS, &none), ERR_UNAVAILABLE);
	for (int i = 0; i < LEASES; i++)
		l->ops->release(l, leases[i]);
	leases_free(l);
	assert_true(clock_mono_ms() - began_ms < LIFE_MS / 2); /* a single one would take longer */
	direct->ops->release(direct, others);
	leases_free(direct);
	relay_stop(relay);
}

TEST(addresses_that_cannot_be_read_are_refused)
{
	static const char *const wrong[] = {
	    "zookeeper://",
	    "zookeeper:///path",
	    "zookeeper://host:2181",
	    "zookeeper://host:2181/",
	    "zookeeper://host/a//b",
	    "redis://host/path",
	    "",
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct leases *l = NULL;
		struct err e = {""};
		assert_int_equal(leases_zookeeper_open(wrong[i], &l, &e), ERR_INVALID);
		assert_non_null(strstr(e.text, "zookeeper://HOST:PORT"));
		assert_null(l);
	}
}

int main(void)
{
	if (sodium_init() < 0)
		return 1;
	return RUN_TESTS();
}
