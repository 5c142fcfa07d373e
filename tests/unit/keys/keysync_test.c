#include "keys/keysync.h"
#include "lease/backends.h"
#include "lib/database_kit.h"
#include "lib/keys_kit.h"
#include "lib/redis_kit.h"
#include "lib/relay.h"
#include "lib/test.h"

enum { STOCKS = 2, SHELVES = 2, LOW = 100, HIGH = 500, STOCKED = 3000, LIFE_MS = 20000 };

static struct temp folder;
static struct keys_db *dbs[STOCKS];
static struct redis_server *const server = &redis_kit_servers[0];
static struct relay *relay;                   /* before the first shelf */
static struct redis_key_list *lists[SHELVES]; /* two databases of the server */
static struct redis_key_list *direct;         /* the first shelf, past the relay */
static struct leases *leases, *of_each[SHELVES];

static void fill_stock(int db, unsigned first, size_t n)
{
	struct source_key keys[KEYS_DB_KEYS_MAX];
	size_t added;
	for (size_t at = 0; at < n; at += KEYS_DB_KEYS_MAX) {
		pipe_keys(keys, KEYS_DB_KEYS_MAX, first + (unsigned)at);
		assert_int_equal(keys_db_add(dbs[db], 1, keys, KEYS_DB_KEYS_MAX, &added, NULL), 0);
	}
}

static struct redis_key_list *key_list_at(const char *address, int db)
{
	char url[128];
	struct redis_key_list *s = NULL;
	snprintf(url, sizeof(url), "redis://%s/%d", address, db);
	assert_int_equal(key_list_new(str_of(url), &s, NULL), 0);
	return s;
}

static void empty_stock(int db)
{
	struct source_key keys[KEYS_DB_KEYS_MAX];
	for (size_t count = 1; count > 0;)
		assert_int_equal(keys_db_take(dbs[db], KEYS_DB_KEYS_MAX, keys, &count, NULL), 0);
}

static int servers_up(void **state)
{
	database_kit_two(state);
	for (int i = 0; i < STOCKS && database_kit_urls[i][0]; i++)
		assert_int_equal(keys_db_new(str_of(database_kit_urls[i]), &dbs[i], NULL), 0);
	return redis_kit_one(state);
}

static int servers_down(void **state)
{
	for (int i = 0; i < STOCKS; i++)
		keys_db_free(steal(dbs[i]));
	database_kit_down(state);
	return redis_kit_down(state);
}

/* Each test begins with full stocks and an empty Redis. */
static int setup(void **state)
{
	if (!server->port || !dbs[0])
		return 0;
	temp_init(&folder);
	assert_int_equal(leases_local_open(folder.path, &leases, NULL), 0);
	for (int i = 0; i < SHELVES; i++)
		of_each[i] = leases;
	for (int i = 0; i < STOCKS; i++) {
		empty_stock(i);
		fill_stock(i, (unsigned)i * STOCKED, STOCKED);
	}
	redis_kit_renew(state);
	const char *address = server->url + strlen("redis://");
	relay = relay_start(address);
	lists[0] = key_list_at(relay_address(relay), 0);
	lists[1] = key_list_at(address, 1);
	direct = key_list_at(address, 0);
	return 0;
}

static int teardown(void **state)
{
	if (!leases)
		return 0;
	key_lists_free(lists, SHELVES);
	key_list_free(direct);
	relay_stop(relay);
	leases_free(steal(leases));
	temp_release(&folder);
	return 0;
}

static void need_servers(void)
{
	database_kit_need();
	redis_kit_need();
}

static struct keysync *start(size_t held_max)
{
	const struct keysync_config config = {
	    .lists = lists,
	    .leases = of_each,
	    .list_count = SHELVES,
	    .dbs = dbs,
	    .db_count = STOCKS,
	    .low = LOW,
	    .high = HIGH,
	    .held_max = held_max,
	    .lease_ms = LIFE_MS,
	};
	struct keysync *s = NULL;
	need_servers();
	assert_int_equal(keysync_start(&config, &s, NULL), 0);
	return s;
}

static struct keysync_sums stop(struct keysync *s)
{
	struct keysync_sums sums;
	keysync_stop(s, &sums);
	return sums;
}

static uint64_t count_on(struct redis_key_list *s)
{
	uint64_t count = 0;
	assert_int_equal(key_list_count(s, &count, NULL), 0);
	return count;
}

static void drain(struct redis_key_list *s, size_t n, struct pipe_seen *seen)
{
	struct source_key keys[KEY_LIST_KEYS_MAX];
	for (int64_t end_ms = until_now_ms() + UNTIL_MS; n > 0;) {
		size_t count = 0;
		uint64_t left;
		assert_true(until_now_ms() < end_ms);
		assert_int_equal(key_list_take(s, KEY_LIST_AVAILABLE, MIN(n, KEY_LIST_KEYS_MAX), keys, &count,
		                               &left, NULL),
		                 0);
		pipe_seen_note(seen, keys, count);
		n -= count;
	}
}

/* Notes whatever is anywhere: no key is in two places. How many of all were seen in the end. */
static size_t collect(struct pipe_seen *seen)
{
	struct source_key keys[KEYS_DB_KEYS_MAX];
	size_t count = 1;
	drain(direct, count_on(direct), seen);
	drain(lists[1], count_on(lists[1]), seen);
	for (int i = 0; i < STOCKS; i++) {
		for (count = 1; count > 0; pipe_seen_note(seen, keys, count))
			assert_int_equal(keys_db_take(dbs[i], KEYS_DB_KEYS_MAX, keys, &count, NULL), 0);
	}
	return seen->count;
}

TEST(a_shard_below_the_lower_mark_is_filled_to_the_upper_one_from_all_keys_dbs)
{
	struct pipe_seen seen;
	struct keysync *s = start(SHELVES);
	pipe_seen_init(&seen, STOCKS * STOCKED);
	for (int i = 0; i < SHELVES; i++)
		UNTIL(count_on(lists[i]) == HIGH);
	drain(lists[0], HIGH - LOW, &seen); /* at the mark is not below it */
	for (int round = 0; round < 5; round++) {
		drain(lists[1], HIGH - LOW + 1, &seen);
		UNTIL(count_on(lists[1]) == HIGH);
	}
	assert_int_equal(count_on(lists[0]), LOW);
	for (int i = 0; i < STOCKS; i++) {
		uint64_t left = 0;
		assert_int_equal(keys_db_count(dbs[i], &left, NULL), 0);
		assert_true(left < STOCKED);
	}
	struct keysync_sums sums = stop(s);
	assert_int_equal(sums.moved, 2 * HIGH + 5 * (HIGH - LOW + 1));
	assert_int_equal(sums.returned + sums.lost, 0);
	assert_int_equal(collect(&seen), STOCKS * STOCKED);
	pipe_seen_release(&seen);
}

TEST(when_one_stops_another_takes_its_shards)
{
	struct pipe_seen seen;
	struct keysync *first = start(1), *second = start(1);
	pipe_seen_init(&seen, STOCKS * STOCKED);
	for (int i = 0; i < SHELVES; i++)
		UNTIL(count_on(lists[i]) == HIGH);
	stop(first);
	stop(second);
	for (int i = 0; i < SHELVES; i++)
		drain(lists[i], HIGH, &seen);
	second = start(SHELVES);
	for (int i = 0; i < SHELVES; i++)
		UNTIL(count_on(lists[i]) == HIGH);
	stop(second);
	assert_int_equal(collect(&seen), STOCKS * STOCKED);
	pipe_seen_release(&seen);
}

TEST(what_a_shard_refuses_goes_back_to_the_keys_db)
{
	struct pipe_seen seen;
	struct keysync *s = start(SHELVES);
	char name[LEASE_NAME_BYTES];
	struct lease *lease = NULL;
	pipe_seen_init(&seen, STOCKS * STOCKED);
	UNTIL(count_on(direct) == HIGH);
	assert_int_equal(key_list_push(direct, 1000000, 1, NULL, 0, NULL),
	                 0); /* a successor that it knows nothing of */
	drain(direct, HIGH, &seen);
	leased_worker_name("keysync", key_list_name(lists[0]), name);
	UNTIL(leases->ops->take(leases, str_of(name), LIFE_MS, &lease) == 0); /* it has let go */
	assert_int_equal(count_on(direct), 0);
	struct keysync_sums sums = stop(s);
	leases->ops->release(leases, lease);
	assert_true(sums.returned > 0);
	assert_int_equal(sums.lost, 0);
	assert_int_equal(collect(&seen), STOCKS * STOCKED);
	pipe_seen_release(&seen);
}

/* The first list is emptied and all writes refused, with nothing in between. */
static void empty_and_refuse(void)
{
	struct redis *redis = NULL;
	struct redis_reply reply;
	assert_int_equal(redis_new(str_of(server->url), &redis, NULL), 0);
	struct redis_conn *c = redis_take(redis, NULL);
	assert_non_null(c);
	redis_write(c, REDIS_ARGS(STR("MULTI")));
	redis_write(c, REDIS_ARGS(STR("DEL"), STR("curt:keys:available")));
	redis_write(c, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("min-replicas-to-write"), STR("1")));
	redis_write(c, REDIS_ARGS(STR("EXEC")));
	for (int i = 0; i < 4; i++) {
		assert_int_equal(redis_read(c, &reply), 0);
		assert_int_not_equal(reply.type, REDIS_ERROR);
	}
	redis_return(c);
	redis_free(redis);
}

static uint64_t in_stock(void)
{
	uint64_t sum = 0;
	for (int i = 0; i < STOCKS; i++) {
		uint64_t count = 0;
		assert_int_equal(keys_db_count(dbs[i], &count, NULL), 0);
		sum += count;
	}
	return sum;
}

TEST(what_a_server_refuses_that_lacks_replicas_goes_back_too)
{
	char name[LEASE_NAME_BYTES];
	struct lease *lease = NULL;
	struct keysync *s = start(SHELVES);
	for (int i = 0; i < SHELVES; i++)
		UNTIL(count_on(i ? lists[1] : direct) == HIGH);
	uint64_t before = in_stock();
	empty_and_refuse();
	leased_worker_name("keysync", key_list_name(lists[0]), name);
	UNTIL(leases->ops->take(leases, str_of(name), LIFE_MS, &lease) == 0); /* it has let go */
	struct keysync_sums sums = stop(s);
	leases->ops->release(leases, lease);
	assert_int_equal(in_stock(), before);
	assert_true(sums.returned > 0);
	assert_int_equal(sums.lost, 0);
	redis_kit_ask(server->url,
	              REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("min-replicas-to-write"), STR("0")));
}

/* The server has taken the keys, and its answer is late: they are not pushed twice, nor put back. */
TEST(a_push_whose_answer_is_late_is_settled_when_the_server_is_back)
{
	struct pipe_seen seen;
	struct keysync *s = start(SHELVES);
	pipe_seen_init(&seen, STOCKS * STOCKED);
	UNTIL(count_on(direct) == HIGH);
	for (int round = 0; round < 3; round++) {
		relay_set(relay, RELAY_HOLD);
		drain(direct, count_on(direct), &seen);
		relay_set(relay, round % 2 ? RELAY_CUT : RELAY_PASS);
		relay_set(relay, RELAY_PASS);
		UNTIL(count_on(direct) == HIGH);
	}
	struct keysync_sums sums = stop(s);
	assert_int_equal(collect(&seen) + sums.lost, STOCKS * STOCKED);
	pipe_seen_release(&seen);
}

TEST(empty_and_absent_keys_dbs_are_passed_over)
{
	struct keys_db *away = NULL, *here = dbs[0];
	need_servers();
	assert_int_equal(keys_db_new(STR("postgres://nobody@127.0.0.1:1/none"), &away, NULL), 0);
	dbs[0] = away;
	struct keysync *s = start(SHELVES);
	for (int i = 0; i < SHELVES; i++)
		UNTIL(count_on(lists[i]) == HIGH);
	stop(s);
	dbs[0] = here;
	keys_db_free(away);
}

TEST_MAIN(.group_setup = servers_up, .group_teardown = servers_down, .setup = setup, .teardown = teardown)
