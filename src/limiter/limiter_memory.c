/* Budgets of several servers that live in one process: for tests. All under one mutex, and searched from the
 * front. */
#include "limiter/backends.h"

#include "base/list.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct budget_row {
	struct list link;
	uint64_t owner;
	char what;
	uint32_t period_ms;
	int64_t used;
	int64_t end_ms;  /* monotonic */
	uint64_t period; /* 0: none has begun */
};

/* What all limiters of one name have in common. */
struct common {
	struct list link; /* in `commons` */
	struct list limiters;
	struct list rows;
	uint64_t periods; /* that have begun */
	char name[];
};

struct limiter_memory {
	struct limiter base;
	struct list link;
	struct common *common;
	int64_t settled_ms; /* the last time; 0: never */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct list commons = {&commons, &commons};

static struct limiter_memory *self(struct limiter *base)
{
	return container_of(base, struct limiter_memory, base);
}

static struct budget_row *row_locked(struct common *c, const struct limiter_use *u)
{
	for (struct list *i = c->rows.next; i != &c->rows; i = i->next) {
		struct budget_row *row = container_of(i, struct budget_row, link);
		if (row->owner == u->owner && row->what == u->what && row->period_ms == u->period_ms)
			return row;
	}
	struct budget_row *row = calloc(1, sizeof(*row));
	if (!row)
		return NULL;
	row->owner = u->owner;
	row->what = u->what;
	row->period_ms = u->period_ms;
	list_push(&c->rows, &row->link);
	return row;
}

static void settle_one_locked(struct common *c, struct limiter_use *u, int64_t now_ms)
{
	struct budget_row *row = row_locked(c, u);
	u->settled = row != NULL;
	if (!row)
		return;
	if (row->period && now_ms >= row->end_ms)
		row->period = 0;
	if (!row->period && u->delta > 0) {
		row->period = ++c->periods;
		row->end_ms = now_ms + u->period_ms;
		row->used = 0;
	}
	bool runs = row->period != 0;
	if (runs)
		row->used = MAX(row->used + u->delta, 0);
	u->used = runs ? (uint64_t)row->used : 0;
	u->left_ms = runs ? (uint64_t)(row->end_ms - now_ms) : 0;
	u->period = row->period;
}

static unsigned servers_locked(const struct common *c, int64_t now_ms)
{
	unsigned count = 0;
	for (struct list *i = c->limiters.next; i != &c->limiters; i = i->next) {
		int64_t settled_ms = container_of(i, struct limiter_memory, link)->settled_ms;
		count += settled_ms && now_ms - settled_ms < LIMITER_SERVER_MS;
	}
	return count;
}

static int memory_settle(struct limiter *base, struct limiter_use *uses, size_t n, unsigned *ret_servers)
{
	struct limiter_memory *l = self(base);
	bool whole = true;
	pthread_mutex_lock(&lock);
	int64_t now_ms = clock_mono_ms();
	l->settled_ms = now_ms;
	for (size_t i = 0; i < n; i++) {
		settle_one_locked(l->common, &uses[i], now_ms);
		whole &= uses[i].settled;
	}
	*ret_servers = servers_locked(l->common, now_ms);
	pthread_mutex_unlock(&lock);
	return whole ? 0 : ERR_UNAVAILABLE;
}

static int memory_ping(struct limiter *base, struct err *e)
{
	(void)base;
	(void)e;
	return 0;
}

static void common_free_locked(struct common *c)
{
	struct list *node;
	while ((node = list_pop(&c->rows)))
		free(container_of(node, struct budget_row, link));
	list_remove(&c->link);
	free(c);
}

static void memory_free(struct limiter *base)
{
	struct limiter_memory *l = self(base);
	pthread_mutex_lock(&lock);
	list_remove(&l->link);
	if (list_empty(&l->common->limiters))
		common_free_locked(l->common);
	pthread_mutex_unlock(&lock);
	free(l);
}

static const struct limiter_ops memory_ops = {
    .free = memory_free,
    .settle = memory_settle,
    .ping = memory_ping,
};

static struct common *common_locked(const char *name)
{
	for (struct list *i = commons.next; i != &commons; i = i->next) {
		struct common *c = container_of(i, struct common, link);
		if (strcmp(c->name, name) == 0)
			return c;
	}
	size_t len = strlen(name) + 1;
	struct common *c = calloc(1, sizeof(*c) + len);
	if (!c)
		return NULL;
	memcpy(c->name, name, len);
	list_init(&c->limiters);
	list_init(&c->rows);
	list_push(&commons, &c->link);
	return c;
}

int limiter_memory_open(const char *name, struct limiter **ret, struct err *e)
{
	struct limiter_memory *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "memory ran out");
	pthread_mutex_lock(&lock);
	l->common = common_locked(name);
	if (l->common)
		list_push(&l->common->limiters, &l->link);
	pthread_mutex_unlock(&lock);
	if (!l->common) {
		free(l);
		return err_set(e, ERR_NOMEM, "memory ran out");
	}
	l->base.ops = &memory_ops;
	*ret = &l->base;
	return 0;
}
