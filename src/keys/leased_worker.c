#include "keys/leased_worker.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { IDLE_MS = 100, RETRY_MS = 250, PAUSE_MS = 500, STATUS_MS = 10000, QUIET_MS = 10000 };

struct leased_resource {
	struct leases *leases;
	struct lease *lease; /* NULL: not held */
	int64_t try_ms;      /* next attempt */
	int64_t logged_ms;   /* when a failure was last logged */
};

struct leased_worker {
	struct leased_worker_config config;
	struct leased_resource *resources;
	bool *held;
	size_t held_count;
	int64_t status_ms;
	struct task task;
};

void leased_worker_name(const char *service, struct str name, char out[LEASE_NAME_BYTES])
{
	int len = snprintf(out, LEASE_NAME_BYTES, "%s:%.*s", service, STR_ARG(name));
	if (len >= LEASE_NAME_BYTES) { /* its end may be what distinguishes it */
		uint8_t digest[crypto_generichash_BYTES_MIN];
		char hex[sizeof(digest) * 2 + 1];
		crypto_generichash(digest, sizeof(digest), (const uint8_t *)name.ptr, name.len, NULL, 0);
		sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
		snprintf(out, LEASE_NAME_BYTES, "%s:%s", service, hex);
	}
	for (char *c = out; *c; c++) {
		bool fine = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
		            (*c >= '0' && *c <= '9') || strchr("-_:.", *c);
		if (!fine)
			*c = '-';
	}
}

/* At most once per QUIET_MS and resource. */
static void log_failure(struct leased_worker *r, size_t i, const char *doing, const char *why)
{
	int64_t now_ms = clock_mono_ms();
	struct leased_resource *p = &r->resources[i];
	if (p->logged_ms != 0 && now_ms - p->logged_ms < QUIET_MS)
		return;
	p->logged_ms = now_ms;
	struct str address = r->config.ops->address(r->config.ctx, i);
	log_warn("keys", "%s %s=%.*s error=\"%s\"", doing, r->config.what, STR_ARG(address), why);
}

static void log_held(const struct leased_worker *r, size_t i, uint64_t fence)
{
	const struct leased_worker_config *c = &r->config;
	struct str address = c->ops->address(c->ctx, i);
	log_info("keys", "lease acquired %s=%.*s fence=%ju", c->what, STR_ARG(address), (uintmax_t)fence);
}

static void lease_release(struct leased_worker *r, size_t i, uint64_t retry_ms)
{
	struct leased_resource *p = &r->resources[i];
	p->leases->ops->release(p->leases, p->lease);
	p->lease = NULL;
	p->try_ms = clock_mono_ms() + (int64_t)retry_ms;
	r->held[i] = false;
	r->held_count--;
}

/* Spreads processes that started together. */
static int64_t jittered(uint64_t ms)
{
	return clock_mono_ms() + (int64_t)(ms + randombytes_uniform((uint32_t)ms / 2 + 1));
}

static void try_acquire(struct leased_worker *r, size_t i)
{
	struct leased_resource *p = &r->resources[i];
	const struct leased_worker_config *c = &r->config;
	char name[LEASE_NAME_BYTES];
	struct err e = {"the lease service does not answer; check lease.url"};
	p->try_ms = jittered(RETRY_MS);
	int code = c->ops->lease(c->ctx, i, &p->leases, name, &e)
	               ?: p->leases->ops->take(p->leases, str_of(name), c->lease_ms, &p->lease);
	if (code == ERR_BUSY)
		return;
	if (code < 0) {
		p->try_ms = jittered(PAUSE_MS);
		log_failure(r, i, "lease not acquired", e.text);
		return;
	}
	uint64_t fence = p->leases->ops->fence(p->lease);
	r->held[i] = true;
	r->held_count++;
	code = c->ops->begin(c->ctx, i, fence, &e);
	if (code < 0) {
		log_failure(r, i, "lease released", e.text);
		lease_release(r, i, PAUSE_MS);
		return;
	}
	if (p->logged_ms == 0)
		log_held(r, i, fence);
}

static int visit(struct leased_worker *r, size_t i)
{
	struct leased_resource *p = &r->resources[i];
	const struct leased_worker_config *c = &r->config;
	if (!p->leases->ops->is_held(p->lease)) {
		log_failure(r, i, "lease released", "the lease is in doubt");
		lease_release(r, i, 0);
		return 0;
	}
	struct err e = {""};
	uint64_t fence = p->leases->ops->fence(p->lease);
	int code = c->ops->visit(c->ctx, i, fence, &e);
	if (code < 0) {
		log_failure(r, i, "lease released", e.text);
		lease_release(r, i, PAUSE_MS);
		return 0;
	}
	if (p->logged_ms != 0) { /* recovered: the next failure is news */
		p->logged_ms = 0;
		log_held(r, i, fence);
	}
	return code;
}

/* A visit may take seconds if its server does not answer. */
static int64_t worker_run(struct task *t)
{
	struct leased_worker *r = container_of(t, struct leased_worker, task);
	bool more = false; /* another visit is due at once */
	for (size_t i = 0; i < r->config.resources && !task_is_stopping(t); i++) {
		const struct leased_resource *p = &r->resources[i];
		if (p->lease)
			more |= visit(r, i) > 0;
		else if (r->held_count < r->config.held_max && clock_mono_ms() >= p->try_ms)
			try_acquire(r, i);
	}
	int64_t now_ms = clock_mono_ms();
	if (now_ms - r->status_ms >= STATUS_MS) {
		r->config.ops->status(r->config.ctx, r->held, (uint64_t)(now_ms - r->status_ms));
		r->status_ms = now_ms;
	}
	return more ? 0 : IDLE_MS;
}

int leased_worker_start(const struct leased_worker_config *config, struct leased_worker **ret, struct err *e)
{
	struct leased_worker *r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(e, ERR_NOMEM, "out of memory");
	r->config = *config;
	r->status_ms = clock_mono_ms();
	r->resources = calloc(config->resources, sizeof(*r->resources));
	r->held = calloc(config->resources, sizeof(*r->held));
	int code = r->resources && r->held ? 0 : err_set(e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; r->resources && i < config->resources; i++)
		r->resources[i].try_ms = clock_mono_ms() + randombytes_uniform(RETRY_MS);
	if (code == 0)
		code = task_start(&r->task, &(struct task_config){.name = config->task, .run = worker_run},
		                  e);
	if (code < 0) {
		leased_worker_stop(r);
		return code;
	}
	*ret = r;
	return 0;
}

void leased_worker_stop(struct leased_worker *r)
{
	if (!r)
		return;
	task_stop(&r->task);
	for (size_t i = 0; r->held_count > 0; i++) {
		if (r->resources[i].lease)
			lease_release(r, i, 0);
	}
	free(r->resources);
	free(r->held);
	free(r);
}
