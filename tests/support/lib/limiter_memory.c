/* All under one mutex, and searched from the front. */
#include "lib/limiter_memory.h"

#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>

struct told {
	struct list link;
	uint64_t server;
	uint64_t used, grant;
};

struct budget_row {
	struct list link;
	struct list told;
	uint64_t owner;
	char what;
	uint32_t period_ms;
	int64_t end_ms;
	int64_t calm_until_ms;
	uint64_t period; /* 0: none is under way */
};

struct limiter_memory {
	struct limiter base;
	struct list link;
	struct limiter_world *world;
	uint64_t id;
	int64_t settled_ms; /* the last time; 0: never */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static uint64_t next_id;

static struct limiter_memory *self(struct limiter *base)
{
	return container_of(base, struct limiter_memory, base);
}

static int64_t now_of(const struct limiter_world *w)
{
	return w->now_ms ? w->now_ms : clock_real_ms();
}

void limiter_world_init(struct limiter_world *w)
{
	*w = (struct limiter_world){0};
	list_init(&w->rows);
	list_init(&w->limiters);
}

static void row_clear(struct budget_row *row)
{
	struct list *node;
	while ((node = list_pop(&row->told)))
		free(container_of(node, struct told, link));
	row->period = 0;
	row->calm_until_ms = 0;
}

void limiter_world_forget(struct limiter_world *w)
{
	struct list *node;
	while ((node = list_pop(&w->rows))) {
		struct budget_row *row = container_of(node, struct budget_row, link);
		row_clear(row);
		free(row);
	}
	for (struct list *i = w->limiters.next; i != &w->limiters; i = i->next)
		container_of(i, struct limiter_memory, link)->settled_ms = 0;
}

static struct budget_row *row_locked(struct limiter_world *w, const struct limiter_use *u)
{
	for (struct list *i = w->rows.next; i != &w->rows; i = i->next) {
		struct budget_row *row = container_of(i, struct budget_row, link);
		if (row->owner == u->owner && row->what == u->what && row->period_ms == u->period_ms)
			return row;
	}
	struct budget_row *row = calloc(1, sizeof(*row));
	ASSERT(row);
	row->owner = u->owner;
	row->what = u->what;
	row->period_ms = u->period_ms;
	list_init(&row->told);
	list_push(&w->rows, &row->link);
	return row;
}

static bool is_live(const struct limiter_memory *l, int64_t now_ms)
{
	return l->settled_ms && now_ms - l->settled_ms < LIMITER_SERVER_MS;
}

static bool lives_locked(const struct limiter_world *w, uint64_t id, int64_t now_ms)
{
	for (struct list *i = w->limiters.next; i != &w->limiters; i = i->next) {
		const struct limiter_memory *l = container_of(i, struct limiter_memory, link);
		if (l->id == id)
			return is_live(l, now_ms);
	}
	return false;
}

static unsigned servers_locked(const struct limiter_world *w, int64_t now_ms)
{
	unsigned count = 0;
	for (struct list *i = w->limiters.next; i != &w->limiters; i = i->next)
		count += is_live(container_of(i, struct limiter_memory, link), now_ms);
	return count;
}

/* The period that a report belongs to. False: it does not count. */
static bool period_locked(struct budget_row *row, const struct limiter_use *u, int64_t now_ms)
{
	if (row->period && now_ms >= row->end_ms)
		row_clear(row);
	if (row->period && (!u->period || u->period >= row->period))
		return true;
	if (u->period && u->left_ms >= LIMITER_TAIL_MS) {
		row->period = u->period;
		row->end_ms = now_ms + (int64_t)MIN(u->left_ms, u->period_ms);
		row->calm_until_ms = now_ms + LIMITER_CALM_MS;
		return true;
	}
	if (row->period || u->period || u->used + u->want == 0)
		return false;
	row->period = (uint64_t)now_ms;
	row->end_ms = now_ms + u->period_ms;
	return true;
}

static struct told *told_locked(struct budget_row *row, uint64_t id)
{
	for (struct list *i = row->told.next; i != &row->told; i = i->next) {
		struct told *t = container_of(i, struct told, link);
		if (t->server == id)
			return t;
	}
	struct told *t = calloc(1, sizeof(*t));
	ASSERT(t);
	t->server = id;
	list_push(&row->told, &t->link);
	return t;
}

static void settle_one_locked(struct limiter_memory *l, struct limiter_use *u, int64_t now_ms)
{
	struct limiter_world *w = l->world;
	struct budget_row *row = row_locked(w, u);
	bool counts = period_locked(row, u, now_ms);
	u->others = 0;
	for (struct list *i = row->told.next; i != &row->told; i = i->next) {
		const struct told *t = container_of(i, struct told, link);
		if (t->server != l->id)
			u->others += lives_locked(w, t->server, now_ms) ? t->grant : t->used;
	}
	if (counts) {
		uint64_t servers = MAX(servers_locked(w, now_ms), 2);
		uint64_t whole = u->max > u->others + u->used ? u->max - u->others - u->used : 0;
		uint64_t share = now_ms < row->calm_until_ms ? 0 : (whole + servers - 1) / servers;
		struct told *t = told_locked(row, l->id);
		u->grant = MAX(u->grant, u->used + MIN(u->want, share));
		t->used = u->used;
		t->grant = u->grant;
	}
	u->period = row->period;
	u->left_ms = row->period ? (uint64_t)(row->end_ms - now_ms) : 0;
	u->synced = true;
}

static int memory_settle(struct limiter *base, struct limiter_use *uses, size_t n, unsigned *ret_servers)
{
	struct limiter_memory *l = self(base);
	struct limiter_world *w = l->world;
	pthread_mutex_lock(&lock);
	bool answers = !w->is_away && !w->is_mute;
	int64_t now_ms = now_of(w);
	if (!w->is_away)
		l->settled_ms = now_ms;
	for (size_t i = 0; i < n; i++) {
		struct limiter_use use = uses[i];
		if (!w->is_away)
			settle_one_locked(l, &use, now_ms);
		if (answers)
			uses[i] = use;
		else
			uses[i].synced = false;
	}
	if (answers)
		*ret_servers = servers_locked(w, now_ms);
	pthread_mutex_unlock(&lock);
	return answers ? 0 : ERR_UNAVAILABLE;
}

static int memory_ping(struct limiter *base, struct err *e)
{
	(void)base;
	(void)e;
	return 0;
}

static void memory_free(struct limiter *base)
{
	struct limiter_memory *l = self(base);
	pthread_mutex_lock(&lock);
	list_remove(&l->link);
	if (list_empty(&l->world->limiters))
		limiter_world_forget(l->world);
	pthread_mutex_unlock(&lock);
	free(l);
}

static const struct limiter_ops memory_ops = {
    .free = memory_free,
    .sync = memory_settle,
    .ping = memory_ping,
};

int limiter_memory_open(struct limiter_world *w, struct limiter **ret, struct err *e)
{
	struct limiter_memory *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "memory ran out");
	pthread_mutex_lock(&lock);
	l->id = ++next_id;
	l->world = w;
	list_push(&w->limiters, &l->link);
	pthread_mutex_unlock(&lock);
	l->base.ops = &memory_ops;
	*ret = &l->base;
	return 0;
}

static uint64_t sum_of(struct limiter_world *w, uint64_t owner, bool granted)
{
	uint64_t sum = 0;
	pthread_mutex_lock(&lock);
	for (struct list *i = w->rows.next; i != &w->rows; i = i->next) {
		struct budget_row *row = container_of(i, struct budget_row, link);
		for (struct list *k = row->told.next; row->owner == owner && k != &row->told; k = k->next) {
			const struct told *t = container_of(k, struct told, link);
			sum += granted ? t->grant : t->used;
		}
	}
	pthread_mutex_unlock(&lock);
	return sum;
}

uint64_t limiter_world_used(struct limiter_world *w, uint64_t owner)
{
	return sum_of(w, owner, false);
}

uint64_t limiter_world_granted(struct limiter_world *w, uint64_t owner)
{
	return sum_of(w, owner, true);
}
