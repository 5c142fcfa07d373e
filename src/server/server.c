#include "server/server.h"

#include "api/health_checks.h"
#include "api/live.h"
#include "api/routes.h"
#include "http/chars.h"
#include "link/follow.h"
#include "os/clock.h"
#include "redirect/redirect.h"
#include "server/backends.h"
#include "server/day_salt.h"

#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum {
	READER_THREADS = 2,
	READER_THREADS_REMOTE = 4, /* they wait for the network, not for a core */
	QUERY_THREADS = 2,
	READ_BATCH_MAX = 64,
	WRITE_BATCH_MAX = 512,
	QUEUE_MAX = 16384,
	QUERY_QUEUE_MAX = 256, /* beyond that a client should ask again later */
	ID_BLOCK = 4096,
	ID_BLOCK_PRIVATE = 16, /* a short-lived server should waste few ids */
	BACKLOG = 4096,
	ADMIN_KEY_BYTES_MIN = 8,
	DESCRIPTORS_RESERVED = 64,           /* databases, locks, the log's next segments */
	DESCRIPTORS_RESERVED_PER_WORKER = 8, /* its listener, loop, mailbox and segments */
	CONNECTIONS_MIN = 16,
	CONNECTIONS_USUAL = 1024, /* fewer are worth a warning */
};

static unsigned cores_usable(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Each connection needs a descriptor. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* `addr` becomes the listening address. */
static int open_listeners(struct server *s, struct net_addr *addr, struct err *e)
{
	unsigned wanted = s->settings.serve.workers ? (unsigned)s->settings.serve.workers : cores_usable();
	int r = 0;
	if (s->is_private) {
		wanted = 1;
		r = net_addr_parse(STR("127.0.0.1:0"), addr, e);
	} else {
		r = net_port_is_free(addr, e);
	}
	for (; r == 0 && s->worker_count < MIN(wanted, SERVER_WORKERS_MAX); s->worker_count++)
		r = net_listen(addr, BACKLOG, &s->listen_fds[s->worker_count], e);
	net_addr_format(addr, s->listen_text);
	return r;
}

static const char *admin_key_preset(void)
{
	const char *preset = getenv("CURT_ADMIN_KEY");
	return preset && preset[0] ? preset : NULL;
}

/* A key is sent in a header. */
static int check_admin_key(struct err *e)
{
	struct str key = str_of(admin_key_preset());
	if (!key.ptr ||
	    (key.len >= ADMIN_KEY_BYTES_MIN && http_chars_are(key, HTTP_CHAR_TARGET | HTTP_CHAR_TOKEN)))
		return 0;
	return err_set(e, ERR_INVALID,
	               "CURT_ADMIN_KEY is not a key; use at least %d letters, digits and punctuation marks, "
	               "without spaces",
	               ADMIN_KEY_BYTES_MIN);
}

/* A container starts again with the same environment: then the key is known. Another key is not added: the
 * admins of the store decide about keys. It is no reason to stop redirects, either. */
static int compare_admin_key(struct server *s, struct arena *arena, struct err *e)
{
	uint8_t digest[KEY_DIGEST_BYTES];
	if (!admin_key_preset())
		return 0;
	api_key_digest(str_of(admin_key_preset()), digest);
	struct registry_account read = {.by = BY_DIGEST, .text = str_n((const char *)digest, sizeof(digest))};
	int r = registry_accounts(s->store->registry, &read, 1, arena) ?: read.result;
	bool is_admin = r == 0 && read.key.revoked_ms == 0 && read.key.rights & RIGHT_ADMIN;
	if (r < 0 && r != ERR_NOT_FOUND)
		return err_set(e, r, "cannot read the API keys from the store (%s)", err_name(r));
	if (!is_admin)
		log_warn("server", "CURT_ADMIN_KEY is ignored: it is not an admin key of this store, and "
		                   "only the first start "
		                   "adds it; unset it, or create a key with 'curt key create NAME --admin'");
	return 0;
}

/* On a fresh store, creates the first admin key: CURT_ADMIN_KEY, or a new one. */
static int ensure_admin_key(struct server *s, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct registry_page keys = {.limit = 1, .arena = &arena};
	int r = registry_keys(s->store->registry, &keys);
	if (r < 0)
		return err_set(e, r, "cannot read the API keys from the store (%s)", err_name(r));
	if (keys.count > 0)
		return compare_admin_key(s, &arena, e);
	struct registry_write w = {
	    .kind = REGISTRY_KEY_CREATE,
	    .now_ms = clock_real_ms(),
	    .arena = &arena,
	    .key = {.name = STR("admin"), .rights = RIGHTS_ALL, .created_ms = clock_real_ms()},
	    .user = {.first_name = STR("admin"), .role = ROLE_ADMIN, .enabled = true},
	};
	w.user.created_ms = w.user.updated_ms = w.now_ms;
	if (admin_key_preset()) {
		api_key_digest(str_of(admin_key_preset()), w.key.digest);
	} else {
		/* Shown before it is stored: a start that dies in between makes another key the next time,
		 * and a key that nobody has seen is never valid. */
		char text[API_KEY_TEXT_BYTES];
		api_key_make(text, w.key.digest);
		r = s->show_admin_key(text, e);
		if (r < 0)
			return r;
	}
	r = registry_apply(s->store->registry, &w, 1);
	if (r == 0)
		r = w.result;
	if (r == ERR_CONFLICT) /* another server that starts now stored the same CURT_ADMIN_KEY */
		return 0;
	return r < 0 ? err_set(e, r, "cannot write the admin key to the store (%s)", err_name(r)) : 0;
}

static int open_domain(struct server *s, struct err *e)
{
	int r = cluster_open(&s->cluster, &s->settings, s->store, s->is_private, &s->api.owner_changes, e);
	if (r < 0)
		return r;
	s->budgets = budgets_new();
	if (!s->budgets)
		return err_set(e, ERR_NOMEM, "out of memory");
	budgets_limit(s->budgets, &s->settings.api.key_limits);
	if (s->cluster.quota_sync)
		budgets_share(s->budgets, quota_sync_state(s->cluster.quota_sync));
	struct links_config config = {
	    .store = s->store,
	    .budgets = s->budgets,
	    .rcache = s->cluster.rcache,
	    .source = s->cluster.source,
	    .settings = s->settings.links,
	    .id_block = s->is_private ? ID_BLOCK_PRIVATE : ID_BLOCK,
	    .render = redirect_render,
	};
	randombytes_buf(&config.cache_seed, sizeof(config.cache_seed));
	r = links_new(&config, &s->links, e);
	if (r == 0)
		r = accounts_new(&(struct accounts_config){.store = s->store,
		                                           .budgets = s->budgets,
		                                           .cache_bytes = s->settings.api.accounts_bytes,
		                                           .stale_ms = s->settings.api.stale_ms},
		                 &s->accounts, e);
	if (r == 0)
		r = cluster_join(&s->cluster, s->links, s->accounts, s->store, s->is_private, e);
	s->throttle = throttle_new();
	return r == 0 && !s->throttle ? err_set(e, ERR_NOMEM, "out of memory") : r;
}

/* On the flusher's thread. */
static void events_synced(void *ctx, unsigned writer)
{
	const struct server *s = ctx;
	if (s->api_workers[writer])
		capture_synced(&s->api_workers[writer]->capture);
}

static int open_log(struct server *s, const char *path, struct err *e)
{
	const struct event_log_config config = {
	    .path = path,
	    .settings = &s->settings.events,
	    .writers = s->worker_count,
	    .boot_min = event_log_boot(clock_real_ms()),
	    .resume = pipeline_resume,
	    .resume_ctx = &s->pipeline,
	    .synced = s->settings.events.durability == DURABILITY_SYNC ? events_synced : NULL,
	    .ctx = s,
	};
	return event_log_open(&config, &s->event_log, e);
}

/* What earlier starts served, from the log: the events in it, and the counts of dropped ones. */
static int reconcile_carry(struct server *s, struct err *e)
{
	struct event_counts read;
	int r = pipeline_counts(&s->pipeline, event_log_node(s->event_log), &read, e);
	if (r < 0)
		return r;
	struct event_counts backlog = event_log_backlog(s->event_log);
	struct capture_counts *before = &s->api.previous_counts;
	before->counts = (struct event_counts){
	    .clicks = read.clicks + backlog.clicks,
	    .orphans = read.orphans + backlog.orphans,
	    .impressions = read.impressions + backlog.impressions,
	    .rejected = read.rejected + backlog.rejected,
	    .dropped = read.dropped + backlog.dropped,
	};
	before->served = before->counts.clicks + before->counts.dropped;
	return 0;
}

static bool is_stats_role(const struct server *s)
{
	return s->settings.serve.role == ROLE_STATS;
}

static int check_role(const struct server *s, struct err *e)
{
	if (!is_stats_role(s) || !backend_sink_is_file(s->settings.serve.sink_url))
		return 0;
	return err_set(e, ERR_INVALID,
	               "serve.role = stats needs a shared sink; set sink.url to "
	               "clickhouse://HOST:8123 or postgres://HOST/DATABASE");
}

/* With events.address = none, the salt stays in this process. */
static bool shares_salts(const struct server *s)
{
	return s->settings.events.address != ADDRESS_NONE && !s->is_private && !is_stats_role(s);
}

static int open_events(struct server *s, struct err *e)
{
	char *path CLEANUP(freep) = folder_path(&s->folder, "events");
	if (!path)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = pipeline_open(&s->pipeline, &s->settings, s->store, &s->folder, e);
	if (r == 0)
		r = open_log(s, path, e);
	if (r == 0)
		r = reconcile_carry(s, e);
	if (r == 0)
		r = salts_new(s->settings.events.address == ADDRESS_NONE ? NULL : path, &s->salts, e);
	if (r == 0 && shares_salts(s))
		day_salt_keep(s->salts, s->store, clock_real_ms());
	if (r == 0 && s->settings.serve.trusted_proxies[0])
		r = proxies_parse(str_of(s->settings.serve.trusted_proxies), &s->proxies, e);
	if (r == 0)
		r = live_new(&s->api, &s->live, e);
	s->capture_rules = (struct capture_rules){
	    .log = s->event_log,
	    .salts = s->salts,
	    .settings = &s->settings.events,
	    .proxies = s->proxies,
	};
	return r;
}

static int start_events(struct server *s, struct err *e)
{
	if (s->is_private && s->settings.queue.url[0]) /* a command does not forward a server's log */
		return 0;
	const struct pipeline_outlet outlet = {
	    .folder = event_log_path(s->event_log),
	    .publish = live_publish,
	    .is_watched = live_is_watched,
	    .ctx = s->live,
	};
	int r = pipeline_start_server(&s->pipeline, s->event_log, &outlet, e);
	s->api.stats = pipeline_pump(&s->pipeline);
	return r;
}

static int writers_start(struct server *s, struct err *e)
{
	struct api *api = &s->api;
	size_t count = MIN(store_shard_count(s->store), (size_t)API_WRITERS_MAX);
	int r = 0;
	for (size_t i = 0; r == 0 && i < count; i++) {
		api->writers[i] = (struct api_writer){.api = api, .shard = i};
		const struct offload_config config = {
		    .name = "writer",
		    .threads = 1,
		    .batch_max = WRITE_BATCH_MAX,
		    .queue_max = QUEUE_MAX,
		    .ops = &api_writer_ops,
		    .ctx = &api->writers[i],
		};
		r = offload_new(&config, &api->writers[i].queue, e);
		api->writer_count += r == 0;
	}
	return r;
}

static int start_pools(struct server *s, struct err *e)
{
	s->api.sink = s->pipeline.sink;
	s->api.counters = s->pipeline.counters;
	s->api.forwards = s->settings.queue.url[0] != '\0';
	s->api.is_stats_role = is_stats_role(s);
	s->api.event_log = s->event_log;
	s->api.live = s->live;
	s->api.impressions_ms = s->settings.sink.impressions_ms;
	s->api.workers = s->api_workers;
	s->api.worker_count = s->worker_count;
	s->api.base_url = s->identity.base_url;
	s->api.domain = s->identity.domain;
	s->api.url_rules = s->identity.rules;
	s->api.dispatch = api_dispatch;
	s->api.links = s->links;
	s->api.settings = &s->settings.api;
	s->api.accounts = s->accounts;
	s->api.throttle = s->throttle;
	s->api.proxies = s->proxies;
	s->api.store = s->store;
	s->api.rcache = s->cluster.rcache;
	s->api.source = s->cluster.source;
	s->api.limiter = s->cluster.limiter;
	s->api.quota_sync = s->cluster.quota_sync;
	s->api.leases = s->cluster.leases;
	const unsigned readers = s->store->is_shared ? READER_THREADS_REMOTE : READER_THREADS;
	struct api *api = &s->api;
	const struct {
		struct offload **pool;
		struct offload_config config;
	} pools[] = {
	    {&api->readers, {"reader", readers, READ_BATCH_MAX, QUEUE_MAX, &api_reader_ops, api}},
	    {&api->account_writer, {"accounts", 1, WRITE_BATCH_MAX, QUEUE_MAX, &api_account_writer_ops, api}},
	    {&api->checker, {"checker", 1, 1, QUERY_QUEUE_MAX, &api_query_ops, api}},
	    {&api->hasher, {"hasher", 1, 1, HASH_QUEUE_MAX, &api_query_ops, api}},
	    {&api->sweeper, {"sweep-now", 1, 1, QUERY_QUEUE_MAX, &api_query_ops, api}},
	    {&api->click_counter, {"counter", 1, READ_BATCH_MAX, QUEUE_MAX, &click_counter_ops, api}},
	    /* In batches of one: a slow query must not delay the next one. */
	    {&api->query_pool, {"query", QUERY_THREADS, 1, QUERY_QUEUE_MAX, &api_query_ops, api}},
	};
	int r = links_follow_start(s->links, &s->follower, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(pools); i++)
		r = offload_new(&pools[i].config, pools[i].pool, e);
	if (r == 0)
		r = writers_start(s, e);
	return r < 0 ? r : readyz_init(api, e);
}

/* The connections of one worker that leave enough descriptors for files: otherwise a flood of idle connections
 * would keep the event log from opening its next segment. */
static uint64_t connections_affordable(uint64_t descriptors, unsigned workers)
{
	uint64_t reserved = DESCRIPTORS_RESERVED + (uint64_t)workers * DESCRIPTORS_RESERVED_PER_WORKER;
	uint64_t rest = descriptors > reserved ? descriptors - reserved : 0;
	return MAX(rest / workers, CONNECTIONS_MIN);
}

static struct http_settings bounded_http_settings(const struct server *s)
{
	struct http_settings http = s->settings.http;
	struct rlimit limit;
	if (s->is_private || getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return http;
	uint64_t affordable = connections_affordable(limit.rlim_cur, s->worker_count);
	if (affordable < http.connections_max) {
		log_line(
		    affordable < CONNECTIONS_USUAL ? LOG_WARN : LOG_DEBUG, "server",
		    "limits.connections lowered, raise the limit of open files (ulimit -n) connections=%ju "
		    "wanted=%ju workers=%u files=%ju",
		    (uintmax_t)affordable, (uintmax_t)http.connections_max, s->worker_count,
		    (uintmax_t)limit.rlim_cur);
		http.connections_max = affordable;
	}
	return http;
}

static int worker_new(struct server *s, unsigned number, const struct http_settings *http, struct err *e)
{
	char name[16];
	struct api_worker *w = calloc(1, sizeof(*w));
	snprintf(name, sizeof(name), "worker-%u", number % 1000);
	int r = ERR_NOMEM;
	if (w && (w->metrics = metrics_register()))
		r = listener_new(name, http, s->listen_fds[number], w->metrics, &s->listeners[number], e);
	else
		err_set(e, r, "out of memory for a worker");
	if (r < 0) {
		free(w);
		return r;
	}
	w->api = &s->api;
	w->loop = listener_loop(s->listeners[number]);
	capture_init(&w->capture, &s->capture_rules, number, w->loop, w->metrics);
	live_worker_init(w);
	s->api_workers[number] = w;
	return 0;
}

static int start_workers(struct server *s, struct err *e)
{
	const struct http_settings http = bounded_http_settings(s);
	int r = 0;
	for (unsigned i = 0; r == 0 && i < s->worker_count; i++)
		r = worker_new(s, i, &http, e);
	if (r == 0 && !is_stats_role(s))
		r = start_events(s, e);
	if (r == 0 && !s->is_private) /* last: the key is shown once, so the start must not fail any more */
		r = ensure_admin_key(s, e);
	for (unsigned i = 0; r == 0 && i < s->worker_count; i++) {
		const struct http_handler handler = api_handler(s->api_workers[i]);
		r = listener_start(s->listeners[i], &handler, e);
	}
	if (r == 0 && !s->is_private && !is_stats_role(s))
		r = housekeeper_start(&s->api, &s->settings.housekeeper, shares_salts(s) ? s->salts : NULL,
		                      &s->housekeeper, e);
	return r;
}

/* The command line of the same user needs no API key: that user can read the store in the data folder anyway. */
static int publish(struct server *s, const struct net_addr *addr, struct err *e)
{
	uint8_t digest[KEY_DIGEST_BYTES];
	api_key_make(s->local.token, digest);
	accounts_set_local(s->accounts, str_of(s->local.token));
	if (net_addr_is_wildcard(addr))
		snprintf(s->local.url, sizeof(s->local.url), "http://localhost:%u", net_addr_port(addr));
	else
		snprintf(s->local.url, sizeof(s->local.url), "http://%s", s->listen_text);
	return s->is_private ? 0 : folder_publish(&s->folder, &s->local, e);
}

/* A private server creates the same links as the public one: of its settings, or else as the last one did. */
static int init_private_identity(struct server *s, const struct net_addr *addr, struct err *e)
{
	const char *setting = s->settings.serve.base_url;
	char *known CLEANUP(freep) = setting[0] ? NULL : folder_base_url(&s->folder);
	if (known && identity_init(&s->identity, known, addr, NULL) == 0)
		return 0;
	identity_release(&s->identity);
	return identity_init(&s->identity, setting, addr, e);
}

/* A folder that is missing is created last: an address that is taken must not leave one behind. */
static int open_folder_and_listeners(struct server *s, struct net_addr *addr, struct err *e)
{
	int r = s->folder.path ? 0 : folder_open(&s->folder, s->settings.data, false, e);
	bool is_missing = r == ERR_NOT_FOUND;
	if (r == 0 || is_missing)
		r = open_listeners(s, addr, e);
	return r == 0 && is_missing ? folder_open(&s->folder, s->settings.data, true, e) : r;
}

int server_start(struct server *s, struct err *e)
{
	struct net_addr wanted = {0};
	if (!s->is_private)
		raise_descriptor_limit();
	int r = check_role(s, e);
	if (r == 0 && !s->is_private)
		r = check_admin_key(e) ?: backend_check_start(&s->settings, e);
	if (r == 0)
		r = net_addr_parse(str_of(s->settings.serve.listen), &wanted, e);
	struct net_addr addr = wanted;
	if (r == 0)
		r = open_folder_and_listeners(s, &addr, e);
	if (r == 0)
		r = s->is_private ? init_private_identity(s, &wanted, e)
		                  : identity_init(&s->identity, s->settings.serve.base_url, &addr, e);
	if (r == 0)
		r = backend_open_store_with(s->settings.serve.store_url, s->settings.serve.store_replicas,
		                            &s->folder, &s->store, e);
	if (r == 0)
		r = open_domain(s, e);
	if (r == 0)
		r = open_events(s, e);
	if (r == 0)
		r = publish(s, &addr, e);
	if (r == 0)
		r = start_pools(s, e);
	if (r == 0)
		r = start_workers(s, e);
	struct err why;
	if (r == 0 && !s->is_private && folder_remember_base_url(&s->folder, s->identity.base_url, &why) < 0)
		log_warn("server", "base URL not stored, commands without a server may print another: %s",
		         why.text);
	return r;
}

/* Clients are cut off: nobody needs the queries that are still queued. */
static void cancel_queries(void *ctx)
{
	struct server *s = ctx;
	atomic_store(&s->api.stopping, true);
	queue_consumer_cancel_waits(s->api.stats);
}

void server_stop(struct server *s)
{
	housekeeper_stop(s->housekeeper);
	for (unsigned i = 0; i < s->worker_count && s->listeners[i]; i++)
		listener_drain(s->listeners[i], s->is_private ? 0 : s->settings.serve.drain_ms,
		               cancel_queries, s);
	for (unsigned i = 0; i < s->worker_count && s->listeners[i]; i++)
		listener_join(s->listeners[i]);
	pipeline_let_go(&s->pipeline); /* no client waits for an answer */
	offload_free(s->api.readers);
	for (size_t i = 0; i < s->api.writer_count; i++)
		offload_free(s->api.writers[i].queue);
	offload_free(s->api.account_writer);
	offload_free(s->api.query_pool);
	offload_free(s->api.checker);
	health_checks_free(s->api.health_checks);
	offload_free(s->api.hasher);
	offload_free(s->api.sweeper);
	offload_free(s->api.click_counter);
	pipeline_stop(&s->pipeline);
	event_log_close(s->event_log);
	for (unsigned i = 0; i < s->worker_count; i++) {
		listener_free(s->listeners[i]);
		free(s->api_workers[i]);
	}
	live_free(s->live);
	proxies_free(s->proxies);
	salts_free(s->salts);
	pipeline_close(&s->pipeline);
	cluster_leave(&s->cluster);
	accounts_free(s->accounts);
	throttle_free(s->throttle);
	links_follow_stop(s->follower);
	links_free(s->links);
	budgets_free(s->budgets);
	cluster_close(&s->cluster);
	store_free(s->store);
	if (s->folder.path && !s->is_private)
		folder_unpublish(&s->folder);
	folder_close(&s->folder);
	identity_release(&s->identity);
}
