#include "lib/lease_suite.h"
#include "lib/test.h"

#include "lib/lease_puppet.h"
#include "lib/relay.h"
#include "os/clock.h"

#include <inttypes.h>
#include <signal.h>

enum {
	LIFE_MS = 600,               /* where a lease shall end by itself */
	LONG_LIFE_MS = 2 * UNTIL_MS, /* where it shall not, however slow the machine is */
	THREADS = 4,
	PROCESSES = 3,
	ROUNDS = 8,
};

static const struct lease_backend *backend; /* that is tested now */
static unsigned name_number;

/* Servers remember: each test has names of its own. */
static struct str fresh_name(char out[64])
{
	int len = snprintf(out, 64, "suite:%d.%" PRIi64 "-%u", (int)getpid(), clock_real_ms() % 1000000,
	                   ++name_number);
	return str_n(out, (size_t)len);
}

static struct leases *open_at(const char *address)
{
	struct leases *l = NULL;
	MUST(backend->open(address, &l, &why));
	return l;
}

static void need_backend(void)
{
	if (!backend->address) {
		print_message("no %s: %s\n", backend->name, backend->missing);
		skip();
	}
}

static struct leases *open_here(void)
{
	need_backend();
	return open_at(backend->address);
}

/* The first who wants it. A service that was too slow may have given it to him without his knowledge. */
static struct lease *take(struct leases *l, struct str name, uint64_t life_ms)
{
	struct lease *lease = NULL;
	bool uncertain = false;
	int r;
	UNTIL((r = l->ops->take(l, name, life_ms, &lease), uncertain |= r == ERR_UNAVAILABLE,
	       r == 0 || !uncertain));
	assert_int_equal(r, 0);
	return lease;
}

/* Tries until it is free. */
static struct lease *take_in_time(struct leases *l, struct str name, uint64_t life_ms)
{
	struct lease *lease = NULL;
	UNTIL(l->ops->take(l, name, life_ms, &lease) == 0);
	return lease;
}

static void assert_busy(struct leases *l, struct str name)
{
	struct lease *lease = NULL;
	int r;
	UNTIL((r = l->ops->take(l, name, LONG_LIFE_MS, &lease)) != ERR_UNAVAILABLE);
	assert_int_equal(r, ERR_BUSY);
}

static uint64_t puppet_takes(struct puppet *p, struct str name, unsigned life_ms)
{
	char line[PUPPET_LINE_BYTES];
	uint64_t fence = 0;
	UNTIL((puppet_tell(p, "take %.*s %u", STR_ARG(name), life_ms),
	       strcmp(puppet_hear(p, line), "unavailable") != 0));
	if (sscanf(line, "taken %" SCNu64, &fence) != 1)
		fail_msg("the other process says: %s", line);
	return fence;
}

static void assert_puppet_says(struct puppet *p, const char *command, const char *answer)
{
	char line[PUPPET_LINE_BYTES];
	puppet_tell(p, "%s", command);
	assert_string_equal(puppet_hear(p, line), answer);
}

/* One process */

static struct test_list expiring, lasting, served;

TEST(a_taken_lease_is_held_and_others_are_told_that_it_is_busy)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *l = open_here(), *other = open_here();
	struct lease *lease = take(l, name, LONG_LIFE_MS);
	assert_true(l->ops->is_held(lease));
	assert_true(l->ops->fence(lease) > 0);
	assert_busy(l, name);
	assert_busy(other, name);
	assert_true(l->ops->is_held(lease));
	l->ops->release(l, lease);
	leases_free(l);
	leases_free(other);
}

/* Long before its life is over; at once where the service is not too slow to be told. */
TEST(a_release_frees_the_lease)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *l = open_here(), *other = open_here();
	for (int i = 0; i < ROUNDS; i++) {
		l->ops->release(l, take_in_time(l, name, LONG_LIFE_MS));
		other->ops->release(other, take_in_time(other, name, LONG_LIFE_MS));
	}
	leases_free(l);
	leases_free(other);
}

TEST(leases_of_different_names_are_held_side_by_side)
{
	char first_text[64], second_text[64];
	struct str first_name = fresh_name(first_text), second_name = fresh_name(second_text);
	struct leases *l = open_here();
	struct lease *first = take(l, first_name, LONG_LIFE_MS);
	struct lease *second = take(l, second_name, LONG_LIFE_MS);
	assert_true(l->ops->is_held(first) && l->ops->is_held(second));
	l->ops->release(l, first);
	assert_true(l->ops->is_held(second));
	assert_busy(l, second_name);
	l->ops->release(l, second);
	leases_free(l);
}

TEST(fencing_numbers_grow_from_holder_to_holder_and_over_restarts)
{
	char text[64];
	struct str name = fresh_name(text);
	uint64_t last = 0;
	for (int i = 0; i < ROUNDS; i++) {
		struct leases *l = open_here();
		for (int k = 0; k < 2; k++) {
			struct lease *lease = take_in_time(l, name, LONG_LIFE_MS);
			assert_true(l->ops->fence(lease) > last);
			last = l->ops->fence(lease);
			l->ops->release(l, lease);
		}
		leases_free(l);
	}
}

struct contender {
	struct leases *leases;
	struct str name;
	const char *folder;
	bool fine;
};

static void *contend_in_thread(void *arg)
{
	struct contender *c = arg;
	c->fine = contend(c->leases, c->name, ROUNDS, c->folder);
	return NULL;
}

TEST(of_many_threads_one_holds_the_lease_at_a_time)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *l = open_here();
	CLEANUP(temp_release) struct temp folder;
	temp_init(&folder);
	struct contender contenders[THREADS];
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		contenders[i] = (struct contender){.leases = l, .name = name, .folder = folder.path};
		assert_int_equal(pthread_create(&threads[i], NULL, contend_in_thread, &contenders[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		assert_true(contenders[i].fine);
	leases_free(l);
}

TEST_IN(expiring, a_lease_is_renewed_for_as_long_as_its_holder_wants_it)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *l = open_here(), *other = open_here();
	bool survived = false;
	for (int i = 0; i < 10 && !survived; i++) { /* a machine that stands still for a life may lose it */
		struct lease *lease = take_in_time(l, name, LIFE_MS), *second = NULL;
		int64_t end_ms = clock_mono_ms() + 2 * LIFE_MS;
		int r = ERR_BUSY;
		while (r == ERR_BUSY && clock_mono_ms() < end_ms) {
			until_pause();
			r = other->ops->take(other, name, LIFE_MS, &second);
		}
		survived = r == ERR_BUSY && l->ops->is_held(lease);
		assert_false(r == 0 && l->ops->is_held(lease));
		if (r == 0)
			other->ops->release(other, second);
		l->ops->release(l, lease);
	}
	assert_true(survived);
	leases_free(l);
	leases_free(other);
}

TEST(a_service_that_is_there_answers_a_ping)
{
	struct leases *l = open_here();
	struct err e = {""};
	UNTIL(l->ops->ping(l, &e) == 0);
	leases_free(l);
}

/* Several processes */

TEST(of_many_processes_one_holds_the_lease_at_a_time)
{
	char text[64], line[PUPPET_LINE_BYTES];
	struct str name = fresh_name(text);
	CLEANUP(temp_release) struct temp folder;
	struct puppet puppets[PROCESSES];
	need_backend();
	temp_init(&folder);
	for (int i = 0; i < PROCESSES; i++) {
		puppet_start(&puppets[i], backend);
		puppet_tell(&puppets[i], "contend %.*s %d %s", STR_ARG(name), ROUNDS, folder.path);
	}
	for (int i = 0; i < PROCESSES; i++)
		assert_string_equal(puppet_hear(&puppets[i], line), "done");
	for (int i = 0; i < PROCESSES; i++)
		puppet_stop(&puppets[i]);
}

TEST(a_holder_that_is_killed_is_succeeded)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *l = open_here();
	struct puppet holder;
	puppet_start(&holder, backend);
	uint64_t fence = puppet_takes(&holder, name, LIFE_MS);
	puppet_stop(&holder);
	struct lease *lease = take_in_time(l, name, LONG_LIFE_MS);
	assert_true(l->ops->fence(lease) > fence);
	assert_true(l->ops->is_held(lease));
	l->ops->release(l, lease);
	leases_free(l);
}

/* The holder is stopped between asking whether it holds the lease and the write that it asked for. */
TEST_IN(expiring, a_holder_that_wakes_up_late_knows_it_and_its_write_is_refused)
{
	char text[64], path[TEMP_PATH_BYTES], write[PUPPET_LINE_BYTES];
	struct str name = fresh_name(text);
	CLEANUP(temp_release) struct temp folder;
	struct leases *l = open_here();
	temp_init(&folder);
	snprintf(write, sizeof(write), "write %s", temp_path(&folder, "guarded", path));
	struct puppet holder;
	puppet_start(&holder, backend);
	uint64_t fence = puppet_takes(&holder, name, LIFE_MS);
	assert_puppet_says(&holder, write, "done");
	kill(holder.pid, SIGSTOP);
	struct lease *lease = take_in_time(l, name, LONG_LIFE_MS);
	assert_true(l->ops->fence(lease) > fence);
	assert_true(guarded_write(path, l->ops->fence(lease)));
	kill(holder.pid, SIGCONT);
	assert_puppet_says(&holder, "held", "no");
	assert_puppet_says(&holder, write, "refused");
	assert_puppet_says(&holder, "held", "no");
	assert_puppet_says(&holder, "release", "released");
	assert_true(l->ops->is_held(lease)); /* what it released was not ours */
	assert_busy(l, name);
	l->ops->release(l, lease);
	puppet_stop(&holder);
	leases_free(l);
}

TEST_IN(lasting, a_paused_holder_stays_the_holder)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *l = open_here();
	struct puppet holder;
	puppet_start(&holder, backend);
	puppet_takes(&holder, name, LIFE_MS);
	kill(holder.pid, SIGSTOP);
	for (int64_t end_ms = clock_mono_ms() + LIFE_MS; clock_mono_ms() < end_ms; until_pause())
		assert_busy(l, name);
	kill(holder.pid, SIGCONT);
	assert_puppet_says(&holder, "held", "yes");
	puppet_stop(&holder);
	l->ops->release(l, take_in_time(l, name, LIFE_MS));
	leases_free(l);
}

/* Servers that go away */

/* Whoever gets the lease next, the first holder has known before that it lost it; and does not get it back
 * when the server does. */
static void cut_off_and_succeed(enum relay_mode mode)
{
	char text[64];
	struct str name = fresh_name(text);
	struct leases *direct = open_here();
	struct relay *relay = relay_start(backend->address);
	struct leases *l = open_at(relay_address(relay));
	struct lease *lease = take(l, name, LIFE_MS), *next = NULL;
	relay_set(relay, mode);
	int r = ERR_BUSY;
	bool held = true;
	for (int64_t end_ms = until_now_ms() + UNTIL_MS; r != 0 && until_now_ms() < end_ms; until_pause()) {
		r = direct->ops->take(direct, name, LONG_LIFE_MS, &next);
		held = l->ops->is_held(lease);
	}
	assert_int_equal(r, 0);
	assert_false(held);
	relay_set(relay, RELAY_PASS);
	l->ops->release(l, take_in_time(l, STR("suite:elsewhere"), LONG_LIFE_MS)); /* it answers again */
	assert_false(l->ops->is_held(lease));
	assert_true(direct->ops->fence(next) > l->ops->fence(lease));
	l->ops->release(l, lease);
	assert_true(direct->ops->is_held(next));
	direct->ops->release(direct, next);
	leases_free(l);
	leases_free(direct);
	relay_stop(relay);
}

TEST_IN(served, a_server_that_says_nothing_any_more_ends_the_lease)
{
	cut_off_and_succeed(RELAY_HOLD);
}

TEST_IN(served, a_server_that_breaks_connections_ends_the_lease)
{
	cut_off_and_succeed(RELAY_CUT);
}

TEST_IN(served, without_a_server_nobody_knows_who_has_the_lease)
{
	char text[64];
	struct str name = fresh_name(text);
	need_backend();
	struct relay *relay = relay_start(backend->address);
	relay_set(relay, RELAY_CUT);
	struct leases *l = open_at(relay_address(relay));
	struct lease *lease = NULL;
	struct err e = {""};
	assert_int_equal(l->ops->take(l, name, LONG_LIFE_MS, &lease), ERR_UNAVAILABLE);
	assert_int_equal(l->ops->ping(l, &e), ERR_UNAVAILABLE);
	assert_true(e.text[0] != '\0');
	relay_set(relay, RELAY_PASS);
	l->ops->release(l, take_in_time(l, name, LONG_LIFE_MS));
	leases_free(l);
	relay_stop(relay);
}

int lease_suite_run(const struct lease_backend *tested)
{
	backend = tested;
	print_message("leases: %s\n", tested->name);
	int failed = RUN_TESTS(.name = tested->name);
	if (tested->expires)
		failed += RUN_LIST(expiring, .name = tested->name);
	else
		failed += RUN_LIST(lasting, .name = tested->name);
	if (tested->has_server)
		failed += RUN_LIST(served, .name = tested->name);
	return failed;
}
