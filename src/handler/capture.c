#include "handler/capture.h"

#include "base/hash.h"

#include <sodium.h>

enum { DAY_MS = 24 * 3600 * 1000, LANGUAGE_BYTES_MAX = 35 };

static void turn_end(void *ctx);
static void synced_open(struct mail *m);

void capture_init(struct capture *c, const struct capture_rules *rules, unsigned number, struct loop *l,
                  struct metrics *m)
{
	*c = (struct capture){
	    .rules = rules,
	    .writer = event_log_writer(rules->log, number),
	    .metrics = m,
	    .loop = l,
	    .salt_day = -1,
	    .country_header = str_of(rules->settings->country_header),
	    .synced_mail.open = synced_open,
	};
	list_init(&c->turn_waits);
	list_init(&c->sync_waits);
	loop_add_turn_hook(l, turn_end, c);
}

/* Reading a request */

static void read_address(struct event_visit *v, const struct net_addr *client)
{
	if (client->any.sa_family == AF_INET) {
		v->address_len = 3;
		memcpy(v->address, &client->v4.sin_addr, 3);
	} else if (client->any.sa_family == AF_INET6) {
		v->address_len = 6;
		memcpy(v->address, &client->v6.sin6_addr, 6);
	}
}

/* Identifies a visitor within a day, and cannot be traced back to the address. */
static uint64_t visitor_of(const struct capture *c, const struct net_addr *client, struct str agent)
{
	uint8_t who[24] = {0};
	uint64_t seed, hash, visitor;
	memcpy(&seed, c->salt, sizeof(seed));
	hash = hash_str(agent, seed);
	if (client->any.sa_family == AF_INET)
		memcpy(who, &client->v4.sin_addr, 4);
	else
		memcpy(who, &client->v6.sin6_addr, 16);
	memcpy(who + 16, &hash, 8);
	crypto_shorthash((uint8_t *)&visitor, who, sizeof(who), c->salt);
	return visitor != 0 ? visitor : 1; /* 0: no visitor */
}
_Static_assert(crypto_shorthash_KEYBYTES == SALT_BYTES && crypto_shorthash_BYTES == 8,
               "siphash with our salt");

/* The first of "de-CH, de;q=0.9". */
static struct str first_language(struct str list)
{
	size_t n = 0;
	while (n < list.len && n < LANGUAGE_BYTES_MAX && list.ptr[n] != ',' && list.ptr[n] != ';')
		n++;
	return str_trim(str_n(list.ptr, n));
}

static bool says_prefetch(struct str value)
{
	return str_eq_nocase(str_n(value.ptr, MIN(value.len, (size_t)8)), STR("prefetch")) ||
	       str_eq_nocase(value, STR("preview"));
}

struct request_traits {
	struct event_visitor visitor;
	bool prefetch;
	struct str country;
};

/* One pass over the fields, because every redirect does it. */
static void read_fields(const struct capture *c, const struct http_request *req, struct request_traits *f)
{
	for (size_t i = 0; i < req->field_count; i++) {
		struct str name = req->fields[i].name, value = req->fields[i].value;
		if (name.len == 10 && str_eq_nocase(name, STR("user-agent")))
			f->visitor.agent = value;
		else if (name.len == 7 && str_eq_nocase(name, STR("referer")))
			f->visitor.referrer = value;
		else if (name.len == 15 && str_eq_nocase(name, STR("accept-language")))
			f->visitor.language = first_language(value);
		else if ((name.len == 7 && str_eq_nocase(name, STR("purpose"))) ||
		         (name.len == 11 && str_eq_nocase(name, STR("sec-purpose"))) ||
		         (name.len == 9 && str_eq_nocase(name, STR("x-purpose"))) ||
		         (name.len == 5 && str_eq_nocase(name, STR("x-moz"))))
			f->prefetch |= says_prefetch(value);
		if (c->rules->proxies && name.len == c->country_header.len &&
		    str_eq_nocase(name, c->country_header))
			f->country = value;
	}
}

void capture_read(struct capture *c, struct http_conn *conn, const struct http_request *req,
                  struct capture_draft *ret)
{
	struct request_traits found = {0};
	struct net_addr client;
	const struct net_addr *peer = http_conn_peer(conn);
	struct event_visit *v = &ret->visit;
	if (!c->rules->settings->visits) {
		*ret = (struct capture_draft){0};
		return;
	}
	*v = (struct event_visit){.time_ms = loop_real_ms(c->loop)};
	read_fields(c, req, &found);
	http_client_address(c->rules->proxies, peer, req, &client);
	if (UNLIKELY(v->time_ms / DAY_MS != c->salt_day)) {
		c->salt_day = v->time_ms / DAY_MS;
		salts_of_day(c->rules->salts, c->salt_day, c->salt);
	}
	v->visitor = visitor_of(c, &client, found.visitor.agent);
	if (c->rules->settings->address == ADDRESS_TRUNCATED)
		read_address(v, &client);
	if (found.country.len == 2 && proxies_trust(c->rules->proxies, peer))
		memcpy(v->country, found.country.ptr, 2);
	if (req->method == HTTP_HEAD)
		v->kind = EVENT_HEAD;
	else if (found.prefetch)
		v->kind = EVENT_PREFETCH;
	if (UNLIKELY(req->query.len > 0) && str_eq(http_query_param(req->query, STR("source")), STR("qr")))
		v->source = EVENT_SOURCE_QR;
	ret->visitor = found.visitor;
}

bool capture_draft_copy(struct capture_draft *d, struct arena *arena)
{
	struct str *texts[] = {&d->visitor.agent, &d->visitor.referrer, &d->visitor.language};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct str text = str_n(texts[i]->ptr, MIN(texts[i]->len, (size_t)EVENT_STRING_BYTES_MAX));
		*texts[i] = arena_str(arena, text);
		if (text.ptr && !texts[i]->ptr)
			return false;
	}
	return true;
}

void capture_redirect(struct capture *c, struct capture_draft *d, uint64_t link, struct str key)
{
	if (!c->rules->settings->visits)
		return;
	c->served++;
	d->visit.link = link;
	d->visit.key = key;
	event_writer_visit(c->writer, &d->visit, &d->visitor);
}

void capture_orphan(struct capture *c, struct capture_draft *d, struct str key)
{
	if (!c->rules->settings->visits)
		return;
	d->visit.kind = key.len > 0 ? EVENT_ORPHAN_KEY : EVENT_ORPHAN_ROOT;
	d->visit.visitor = 0;
	d->visit.link = 0;
	d->visit.key = key;
	event_writer_visit(c->writer, &d->visit, &d->visitor);
}

bool capture_limited(struct capture *c, struct capture_draft *d, uint64_t link, struct str key)
{
	d->visit.time_ms = loop_real_ms(c->loop);
	d->visit.kind = EVENT_CLICK;
	d->visit.link = link;
	d->visit.key = key;
	return event_writer_limited(c->writer, &d->visit, &d->visitor);
}

/* Responses that wait */

int capture_wait_begin(struct capture *c, struct capture_wait *wait)
{
	struct err ignored;
	if (event_log_is_full(c->rules->log))
		return ERR_LIMIT;
	if (event_log_sync_failed(c->rules->log))
		return event_log_trouble(c->rules->log, &ignored);
	wait->failures = event_writer_failures(c->writer);
	return 0;
}

void capture_wait_end(struct capture *c, struct http_conn *conn, struct capture_wait *wait)
{
	wait->conn = conn;
	http_conn_defer(conn);
	list_push(&c->turn_waits, &wait->link);
}

static void publish(struct capture *c)
{
	struct event_counts counts = event_writer_counts(c->writer);
	const struct event_counts *now = &counts;
	struct capture_totals *t = &c->totals;
	if (c->served == c->served_published && memcmp(now, &c->published, sizeof(*now)) == 0)
		return;
	metric_add(&c->metrics->events_clicks, now->clicks - c->published.clicks);
	metric_add(&c->metrics->events_orphans, now->orphans - c->published.orphans);
	metric_add(&c->metrics->events_impressions, now->impressions - c->published.impressions);
	metric_add(&c->metrics->events_invalid, now->rejected - c->published.rejected);
	metric_add(&c->metrics->events_clicks_dropped, now->dropped - c->published.dropped);
	metric_add(&c->metrics->events_orphans_dropped, now->dropped_orphans - c->published.dropped_orphans);
	uint64_t sequence = atomic_load_explicit(&t->sequence, memory_order_relaxed);
	atomic_store_explicit(&t->sequence, sequence + 1, memory_order_relaxed);
	atomic_store_explicit(&t->served, c->served + now->limited, memory_order_release);
	atomic_store_explicit(&t->clicks, now->clicks, memory_order_release);
	atomic_store_explicit(&t->orphans, now->orphans, memory_order_release);
	atomic_store_explicit(&t->impressions, now->impressions, memory_order_release);
	atomic_store_explicit(&t->rejected, now->rejected, memory_order_release);
	atomic_store_explicit(&t->dropped, now->dropped, memory_order_release);
	atomic_store_explicit(&t->sequence, sequence + 2, memory_order_release);
	c->published = counts;
	c->served_published = c->served;
}

static void waits_finish(struct capture *c)
{
	uint64_t failures = event_writer_failures(c->writer);
	uint64_t written = event_writer_written(c->writer);
	bool must_sync = c->rules->settings->durability == DURABILITY_SYNC &&
	                 event_writer_synced(c->writer) < written;
	struct list *node;
	while ((node = list_pop(&c->turn_waits))) {
		struct capture_wait *wait = container_of(node, struct capture_wait, link);
		if (wait->failures != failures) {
			wait->done(wait, ERR_UNAVAILABLE);
		} else if (must_sync) {
			wait->written = written;
			list_push(&c->sync_waits, &wait->link);
		} else {
			wait->done(wait, 0);
		}
	}
	if (must_sync)
		event_writer_want_sync(c->writer);
}

/* The turn hook */
static void turn_end(void *ctx)
{
	struct capture *c = ctx;
	event_writer_flush(c->writer, loop_real_ms(c->loop));
	publish(c);
	if (UNLIKELY(!list_empty(&c->turn_waits)))
		waits_finish(c);
}

void capture_synced(struct capture *c)
{
	if (!atomic_exchange(&c->synced_posted, true))
		loop_post(c->loop, &c->synced_mail);
}

static void synced_open(struct mail *m)
{
	struct capture *c = container_of(m, struct capture, synced_mail);
	atomic_store(&c->synced_posted, false); /* first, so that a later sync posts again */
	bool failed = event_log_sync_failed(c->rules->log);
	uint64_t synced = event_writer_synced(c->writer);
	while (!list_empty(&c->sync_waits)) {
		struct capture_wait *wait = container_of(c->sync_waits.next, struct capture_wait, link);
		if (wait->written > synced && !failed)
			return;
		list_remove(&wait->link);
		wait->done(wait, wait->written <= synced ? 0 : ERR_UNCERTAIN);
	}
}

struct capture_counts capture_counts_read(const struct capture *c)
{
	const struct capture_totals *t = &c->totals;
	for (;;) {
		uint64_t sequence = atomic_load_explicit(&t->sequence, memory_order_acquire);
		struct capture_counts counts = {
		    .served = atomic_load_explicit(&t->served, memory_order_acquire),
		    .counts.clicks = atomic_load_explicit(&t->clicks, memory_order_acquire),
		    .counts.orphans = atomic_load_explicit(&t->orphans, memory_order_acquire),
		    .counts.impressions = atomic_load_explicit(&t->impressions, memory_order_acquire),
		    .counts.rejected = atomic_load_explicit(&t->rejected, memory_order_acquire),
		    .counts.dropped = atomic_load_explicit(&t->dropped, memory_order_acquire),
		};
		if (sequence % 2 == 0 && atomic_load_explicit(&t->sequence, memory_order_relaxed) == sequence)
			return counts;
	}
}
