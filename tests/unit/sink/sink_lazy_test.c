#include "lib/test.h"
#include "sink/sink_lazy.h"

#include <semaphore.h>

/* A sink that only records that it was queried, and what opens it. */
static struct world {
	struct sink inner;
	struct sink *later;
	atomic_bool is_there;
	bool is_slow; /* to open: until `go_on` */
	sem_t begun, go_on;
	atomic_int tries, questions, frees, cancelled;
} world;

static void inner_free(struct sink *s)
{
	(void)s;
	atomic_fetch_add(&world.frees, 1);
}

static void inner_cancel(struct sink *s)
{
	(void)s;
	atomic_fetch_add(&world.cancelled, 1);
}

static int answer(void)
{
	atomic_fetch_add(&world.questions, 1);
	return 0;
}

static int inner_stats(struct sink *s, struct stats_query *q)
{
	(void)s, (void)q;
	return answer();
}

static int inner_visits(struct sink *s, struct visits_query *q)
{
	(void)s, (void)q;
	return answer();
}

static int inner_window(struct sink *s, struct window_query *q)
{
	(void)s, (void)q;
	return answer();
}

static int inner_top_links(struct sink *s, struct top_links_query *q)
{
	(void)s, (void)q;
	return answer();
}

static int inner_clicks(struct sink *s, struct sink_total *links, size_t n)
{
	(void)s, (void)links, (void)n;
	return answer();
}

static int inner_books(struct sink *s, uint64_t node, bool deep, struct reconciliation *ret)
{
	(void)s, (void)node, (void)deep, (void)ret;
	return answer();
}

static int inner_ping(struct sink *s, struct err *e)
{
	(void)s, (void)e;
	return answer();
}

static const struct sink_ops inner_ops = {
    .free = inner_free,
    .cancel = inner_cancel,
    .stats = inner_stats,
    .visits = inner_visits,
    .window = inner_window,
    .top_links = inner_top_links,
    .clicks = inner_clicks,
    .reconciliation = inner_books,
    .ping = inner_ping,
};

static int try_to_open(void *ctx, struct sink **ret, struct err *e)
{
	struct world *w = ctx;
	atomic_fetch_add(&w->tries, 1);
	if (w->is_slow) {
		sem_post(&w->begun);
		sem_wait(&w->go_on);
	}
	if (!atomic_load(&w->is_there))
		return err_set(e, ERR_UNAVAILABLE, "the cable is out");
	*ret = &w->inner;
	return 0;
}

static int setup(void **state)
{
	world = (struct world){.inner.ops = &inner_ops};
	sem_init(&world.begun, 0, 0);
	sem_init(&world.go_on, 0, 0);
	const struct sink_lazy_config config = {.open = try_to_open, .ctx = &world};
	return sink_lazy_new(&config, &world.later, NULL);
}

static int teardown(void **state)
{
	world.later->ops->free(world.later);
	sem_destroy(&world.begun);
	sem_destroy(&world.go_on);
	return 0;
}

static int ask_window(void)
{
	struct window_query q = {0};
	return world.later->ops->window(world.later, &q);
}

static void assert_all_answer(int r)
{
	struct sink *s = world.later;
	struct stats_query stats = {0};
	struct visits_query visits = {0};
	struct top_links_query top = {0};
	struct reconciliation reconciliation;
	assert_int_equal(s->ops->stats(s, &stats), r);
	assert_int_equal(s->ops->visits(s, &visits), r);
	assert_int_equal(ask_window(), r);
	assert_int_equal(s->ops->top_links(s, &top), r);
	assert_int_equal(s->ops->clicks(s, NULL, 0), r);
	assert_int_equal(s->ops->reconciliation(s, 0, false, &reconciliation), r);
}

TEST(until_it_is_there_every_question_fails_and_ping_says_why)
{
	struct err e = {""};
	assert_all_answer(ERR_UNAVAILABLE);
	assert_int_equal(world.later->ops->ping(world.later, &e), ERR_UNAVAILABLE);
	assert_string_equal(e.text, "the cable is out");
	assert_true(atomic_load(&world.tries) > 0);
	assert_int_equal(atomic_load(&world.questions), 0);
}

TEST(a_question_opens_it_when_it_is_back)
{
	struct err e = {""};
	assert_int_equal(ask_window(), ERR_UNAVAILABLE);
	atomic_store(&world.is_there, true);
	UNTIL(ask_window() == 0);
	int tries = atomic_load(&world.tries);
	assert_all_answer(0);
	assert_int_equal(world.later->ops->ping(world.later, &e), 0);
	assert_int_equal(atomic_load(&world.questions), 8);
	assert_int_equal(atomic_load(&world.tries), tries);
	teardown(NULL);
	assert_int_equal(atomic_load(&world.frees), 1);
	setup(NULL);
}

static void *ask_on(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)ask_window();
}

TEST(while_one_tries_to_open_it_the_others_do_not_wait)
{
	pthread_t thread;
	void *r;
	world.is_slow = true;
	atomic_store(&world.is_there, true);
	assert_int_equal(pthread_create(&thread, NULL, ask_on, NULL), 0);
	sem_wait(&world.begun);
	assert_all_answer(ERR_UNAVAILABLE);
	sem_post(&world.go_on);
	pthread_join(thread, &r);
	assert_int_equal((intptr_t)r, 0);
	assert_all_answer(0);
	assert_int_equal(atomic_load(&world.tries), 1);
}

TEST(nobody_opens_it_once_it_was_cancelled)
{
	atomic_store(&world.is_there, true);
	world.later->ops->cancel(world.later);
	assert_all_answer(ERR_UNAVAILABLE);
	assert_int_equal(atomic_load(&world.tries), 0);
}

TEST(what_was_opened_is_cancelled_with_it)
{
	atomic_store(&world.is_there, true);
	assert_int_equal(ask_window(), 0);
	world.later->ops->cancel(world.later);
	assert_int_equal(atomic_load(&world.cancelled), 1);
}

TEST(what_is_opened_while_it_is_cancelled_is_cancelled_too)
{
	pthread_t thread;
	world.is_slow = true;
	atomic_store(&world.is_there, true);
	assert_int_equal(pthread_create(&thread, NULL, ask_on, NULL), 0);
	sem_wait(&world.begun);
	world.later->ops->cancel(world.later);
	sem_post(&world.go_on);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&world.cancelled), 1);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
