#include "keys/leased_worker.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { IDLE_MS = 100, RETRY_MS = 250, PAUSE_MS = 500, STATUS_MS = 10000, QUIET_MS = 10000 };

struct place {
	struct leases *leases;
	struct lease *lease; /* NULL: it is not ours */
	int64_t try_ms;      /* when to try for it again */
	int64_t logged_ms;   /* when the log was last told of a failure */
};

struct leased_worker {
	struct leased_worker_config config;
	struct place *places;
	bool *held; /* for status */
	size_t held_count;
	int64_t status_ms;
	struct task task;
};

void leased_worker_name(const char *service, struct str name, char out[LEASE_NAME_BYTES])
{
	int len = snprintf(out, LEASE_NAME_BYTES, "%s:%.*s", service, STR_ARG(name));
	if (len >= LEASE_NAME_BYTES) { /* its end may be what tells it from others */
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

/* Once for each place and while: a server that is away for an hour is not news every second. */
static void tell(struct leased_worker *r, size_t i, const char *doing, const char *why)
{
	int64_t now_ms = clock_mono_ms();
	struct place *p = &r->places[i];
	if (p->logged_ms != 0 && now_ms - p->logged_ms < QUIET_MS)
		return;
	p->logged_ms = now_ms;
	struct str address = r->config.ops->address(r->config.ctx, i);
	log_warn("keys", "%s %.*s: %s: %s", r->config.what, STR_ARG(address), doing, why);
}

static void tell_held(const struct leased_worker *r, size_t i, uint64_t fence)
{
	const struct leased_worker_config *c = &r->config;
	struct str address = c->ops->address(c->ctx, i);
	log_info("keys", "%s %.*s: looked after from here, fencing number %ju", c->what, STR_ARG(address),
	         (uintmax_t)fence);
}

static void let_go(struct leased_worker *r, size_t i, uint64_t retry_ms)
{
	struct place *p = &r->places[i];
	p->leases->ops->release(p->leases, p->lease);
	p->lease = NULL;
	p->try_ms = clock_mono_ms() + (int64_t)retry_ms;
	r->held[i] = false;
	r->held_count--;
}

/* Instances that began together should not ask together for ever. */
static int64_t after(uint64_t ms)
{
	return clock_mono_ms() + (int64_t)(ms + randombytes_uniform((uint32_t)ms / 2 + 1));
}

static void try_for(struct leased_worker *r, size_t i)
{
	struct place *p = &r->places[i];
	const struct leased_worker_config *c = &r->config;
	char name[LEASE_NAME_BYTES];
	struct err e = {"the lease service does not answer; is lease.url right?"};
	p->try_ms = after(RETRY_MS);
	int code = c->ops->lease(c->ctx, i, &p->leases, name, &e)
	               ?: p->leases->ops->take(p->leases, str_of(name), c->lease_ms, &p->lease);
	if (code == ERR_BUSY)
		return;
	if (code < 0) {
		p->try_ms = after(PAUSE_MS);
		tell(r, i, "cannot be looked after", e.text);
		return;
	}
	uint64_t fence = p->leases->ops->fence(p->lease);
	r->held[i] = true;
	r->held_count++;
	code = c->ops->begin(c->ctx, i, fence, &e);
	if (code < 0) {
		tell(r, i, "given up", e.text);
		let_go(r, i, PAUSE_MS);
		return;
	}
	if (p->logged_ms == 0)
		tell_held(r, i, fence);
}

static int visit(struct leased_worker *r, size_t i)
{
	struct place *p = &r->places[i];
	const struct leased_worker_config *c = &r->config;
	if (!p->leases->ops->is_held(p->lease)) {
		tell(r, i, "given up", "the lease is in doubt");
		let_go(r, i, 0);
		return 0;
	}
	struct err e = {""};
	uint64_t fence = p->leases->ops->fence(p->lease);
	int code = c->ops->visit(c->ctx, i, fence, &e);
	if (code < 0) {
		tell(r, i, "given up", e.text);
		let_go(r, i, PAUSE_MS);
		return 0;
	}
	if (p->logged_ms != 0) { /* it works again: only now what fails next is news */
		p->logged_ms = 0;
		tell_held(r, i, fence);
	}
	return code;
}

/* Each place may take seconds when who is asked does not answer. */
static int64_t round_of_all(struct task *t)
{
	struct leased_worker *r = container_of(t, struct leased_worker, task);
	bool more = false; /* to do at once */
	for (size_t i = 0; i < r->config.places && !task_is_stopping(t); i++) {
		const struct place *p = &r->places[i];
		if (p->lease)
			more |= visit(r, i) > 0;
		else if (r->held_count < r->config.held_max && clock_mono_ms() >= p->try_ms)
			try_for(r, i);
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
	r->places = calloc(config->places, sizeof(*r->places));
	r->held = calloc(config->places, sizeof(*r->held));
	int code = r->places && r->held ? 0 : err_set(e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; r->places && i < config->places; i++)
		r->places[i].try_ms = clock_mono_ms() + randombytes_uniform(RETRY_MS);
	if (code == 0)
		code = task_start(&r->task, &(struct task_config){.name = config->task, .run = round_of_all},
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
		if (r->places[i].lease)
			let_go(r, i, 0);
	}
	free(r->places);
	free(r->held);
	free(r);
}
