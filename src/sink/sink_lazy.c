#include "sink/sink_lazy.h"

#include "obs/log.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>

enum { AGAIN_MS = 2000 };

struct sink_lazy {
	struct sink base;
	struct sink_lazy_config config;
	pthread_mutex_t lock;
	struct sink *inner; /* NULL: not opened yet */
	bool is_opening;    /* a thread tries to open it: the others do not wait */
	bool is_cancelled;
	int64_t again_ms; /* monotonic: the time of the next attempt */
	struct err why;
};

static struct sink_lazy *self(struct sink *base)
{
	return container_of(base, struct sink_lazy, base);
}

/* NULL: it is not available. */
static struct sink *reach(struct sink_lazy *s)
{
	struct err why = {""};
	pthread_mutex_lock(&s->lock);
	struct sink *inner = s->inner;
	bool may_open = !inner && !s->is_opening && !s->is_cancelled && clock_mono_ms() >= s->again_ms;
	s->is_opening |= may_open;
	pthread_mutex_unlock(&s->lock);
	if (!may_open)
		return inner;
	int r = s->config.open(s->config.ctx, &inner, &why);
	pthread_mutex_lock(&s->lock);
	s->is_opening = false;
	s->again_ms = clock_mono_ms() + AGAIN_MS;
	s->why = why;
	if (r == 0)
		s->inner = inner;
	bool is_late = r == 0 && s->is_cancelled; /* lazy_cancel did not find it */
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		log_info("sink", "sink opened");
	if (is_late && inner->ops->cancel)
		inner->ops->cancel(inner);
	return r == 0 ? inner : NULL;
}

/* Passes a query on. */
#define FORWARD(query, arguments, ...)                                        \
	static int lazy_##query(struct sink *base, __VA_ARGS__)               \
	{                                                                     \
		struct sink *inner = reach(self(base));                       \
		return inner ? inner->ops->query arguments : ERR_UNAVAILABLE; \
	}
FORWARD(stats, (inner, q), struct stats_query *q)
FORWARD(visits, (inner, q), struct visits_query *q)
FORWARD(window, (inner, q), struct window_query *q)
FORWARD(top_links, (inner, q), struct top_links_query *q)
FORWARD(clicks, (inner, links, n), struct sink_total *links, size_t n)
FORWARD(reconciliation, (inner, node, deep, ret), uint64_t node, bool deep, struct reconciliation *ret)
#undef FORWARD

static int lazy_ping(struct sink *base, struct err *e)
{
	struct sink_lazy *s = self(base);
	struct sink *inner = reach(s);
	if (inner)
		return inner->ops->ping(inner, e);
	pthread_mutex_lock(&s->lock);
	int r = err_set(e, ERR_UNAVAILABLE, "%s",
	                s->why.text[0] ? s->why.text : "the sink is not available yet");
	pthread_mutex_unlock(&s->lock);
	return r;
}

static void lazy_cancel(struct sink *base)
{
	struct sink_lazy *s = self(base);
	pthread_mutex_lock(&s->lock);
	s->is_cancelled = true;
	struct sink *inner = s->inner;
	pthread_mutex_unlock(&s->lock);
	if (inner && inner->ops->cancel)
		inner->ops->cancel(inner);
}

static void lazy_free(struct sink *base)
{
	struct sink_lazy *s = self(base);
	if (s->inner)
		s->inner->ops->free(s->inner);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static const struct sink_ops lazy_ops = {
    .free = lazy_free,
    .cancel = lazy_cancel,
    .stats = lazy_stats,
    .visits = lazy_visits,
    .window = lazy_window,
    .top_links = lazy_top_links,
    .clicks = lazy_clicks,
    .reconciliation = lazy_reconciliation,
    .ping = lazy_ping,
};

int sink_lazy_new(const struct sink_lazy_config *config, struct sink **ret, struct err *e)
{
	struct sink_lazy *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->base.ops = &lazy_ops;
	s->config = *config;
	pthread_mutex_init(&s->lock, NULL);
	*ret = &s->base;
	return 0;
}
