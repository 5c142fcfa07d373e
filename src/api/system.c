/* What operators and newcomers ask the server about itself. */
#include "api/handlers.h"
#include "base/json_out.h"
#include "handler/checks.h"
#include "handler/html.h"
#include "handler/jobs.h"
#include "handler/query_job.h"
#include "handler/reply.h"
#include "limiter/limiter.h"

void healthz_get(struct api_call *call)
{
	static const struct http_response alive = {.status = 200,
	                                           .content_type = {"application/json", 16},
	                                           .body = {"{\"status\":\"alive\"}\n", 19}};
	http_reply(call->c, &alive);
}

/* What is looked at, in the order in which it is told. */
enum subject {
	CHECK_STORE,
	CHECK_LOG,
	CHECK_STATS,
	CHECK_SINK,
	CHECK_CACHE,
	CHECK_KEYS,
	CHECK_LIMITS,
	CHECKS
};
static const char *const check_names[CHECKS] = {
    [CHECK_STORE] = "store",   [CHECK_LOG] = "event_log",      [CHECK_STATS] = "stats_worker",
    [CHECK_SINK] = "sink",     [CHECK_CACHE] = "shared_cache", [CHECK_KEYS] = "keys",
    [CHECK_LIMITS] = "limits",
};

/* What a server can do without is not waited for as long as a proxy waits for /readyz (deploy/haproxy.cfg).
 */
enum { PATIENCE_MS = 1000, PATIENCE_SHARED_MS = 400 };

struct readyz_job {
	struct ask_job ask;
	struct {
		bool asked; /* there is such a thing */
		int result;
		struct err why;
	} checks[CHECKS];
};

static int keys_check(struct key_source *source, struct err *e)
{
	struct source_stats s = source->ops->stats(source);
	if (s.shards == 0 || s.available > 0)
		return 0;
	return err_set(e, ERR_LIMIT,
	               "no keys are left in stock (%llu of %llu shards do not answer): links with an alias "
	               "can be made, others not",
	               (unsigned long long)s.shards_unhealthy, (unsigned long long)s.shards);
}

static struct err *why_of(struct readyz_job *j, enum subject check)
{
	return &j->checks[check].why;
}

static void note(struct readyz_job *j, enum subject check, int result)
{
	j->checks[check].asked = true;
	j->checks[check].result = result;
}

static int ask_store(void *ctx, struct err *e)
{
	return store_ping(ctx, e);
}

static int ask_sink(void *ctx, struct err *e)
{
	struct sink *sink = ctx;
	return sink->ops->ping(sink, e);
}

static int ask_cache(void *ctx, struct err *e)
{
	struct rcache *rcache = ctx;
	return rcache->ops->ping(rcache, e);
}

static int ask_limits(void *ctx, struct err *e)
{
	struct limiter *limiter = ctx;
	return limiter->ops->ping(limiter, e);
}

/* Those that may take long; how many there are. */
static size_t slow_checks(const struct api *api, struct check ret[CHECKS], enum subject ret_which[CHECKS])
{
	const struct {
		enum subject which;
		struct check check;
	} all[] = {
	    {CHECK_STORE, {"check-store", ask_store, api->store, PATIENCE_MS}},
	    {CHECK_SINK, {"check-sink", ask_sink, api->sink, PATIENCE_MS}},
	    {CHECK_CACHE, {"check-cache", ask_cache, api->rcache, PATIENCE_SHARED_MS}},
	    {CHECK_LIMITS, {"check-limits", ask_limits, api->limiter, PATIENCE_SHARED_MS}},
	};
	size_t count = 0;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (!all[i].check.ctx)
			continue;
		ret[count] = all[i].check;
		ret_which[count++] = all[i].which;
	}
	return count;
}

int api_checks_start(struct api *api, struct err *e)
{
	struct check list[CHECKS];
	enum subject which[CHECKS];
	size_t n = slow_checks(api, list, which);
	return checks_new(list, n, &api->checks, e);
}

static void readyz_run(struct ask_job *ask)
{
	struct readyz_job *j = container_of(ask, struct readyz_job, ask);
	struct api *api = ask->worker->api;
	struct check list[CHECKS];
	struct check_result results[CHECKS];
	enum subject which[CHECKS];
	size_t n = slow_checks(api, list, which);
	checks_ask(api->checks, results);
	for (size_t i = 0; i < n; i++) {
		*why_of(j, which[i]) = results[i].why;
		note(j, which[i], results[i].code);
	}
	note(j, CHECK_LOG, event_log_trouble(api->event_log, why_of(j, CHECK_LOG)));
	if (api->stats)
		note(j, CHECK_STATS, pump_trouble(api->stats, why_of(j, CHECK_STATS)));
	if (api->source)
		note(j, CHECK_KEYS, keys_check(api->source, why_of(j, CHECK_KEYS)));
}

static void readyz_adopt(struct ask_job *follower, const struct ask_job *leader)
{
	struct readyz_job *to = container_of(follower, struct readyz_job, ask);
	const struct readyz_job *from = container_of(leader, struct readyz_job, ask);
	memcpy(to->checks, from->checks, sizeof(to->checks));
}

static void readyz_done(struct ask_job *ask)
{
	struct readyz_job *j = container_of(ask, struct readyz_job, ask);
	if (ask_job_failed(ask))
		return;
	/* Links are served without statistics too, and without what servers share: then a server is not taken
	 * out, but says what it lacks. A log that lost a flush wants a restart. */
	bool ready = j->checks[CHECK_STORE].result == 0 &&
	             !event_log_sync_failed(ask->worker->api->event_log);
	bool whole = true;
	struct buf CLEANUP(buf_release) body = {0};
	for (size_t i = 0; i < CHECKS; i++)
		whole &= j->checks[i].result == 0;
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{",
	           !ready  ? "not ready"
	           : whole ? "ready"
	                   : "degraded");
	for (size_t i = 0; i < CHECKS; i++) {
		if (!j->checks[i].asked)
			continue;
		bool forwards = i == CHECK_STATS && ask->worker->api->forwards;
		buf_printf(&body, "%s\"%s\":", i > 0 ? "," : "", forwards ? "forwarder" : check_names[i]);
		json_out_str(&body, j->checks[i].result == 0 ? STR("ok") : str_of(j->checks[i].why.text));
	}
	buf_str(&body, STR("}}"));
	api_reply_json(ask->conn, ready ? 200 : 503, &body, NULL, 0);
}

void readyz_get(struct api_call *call)
{
	struct readyz_job *j = ask_job_new(call->w, call->c, sizeof(*j), readyz_run, readyz_done);
	if (!j)
		return;
	j->ask.job.share = STR("readyz"); /* however many ask, and however often */
	j->ask.adopt = readyz_adopt;
	ask_job_submit_to(&j->ask, call->w->api->checker);
}

void front_get(struct api_call *call)
{
	struct capture_draft draft;
	capture_read(&call->w->capture, call->c, call->req, &draft);
	capture_orphan(&call->w->capture, &draft, STR_NULL);
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("curt"));
	buf_str(&page, STR("<h1>curt is running</h1><p>Make a short link:</p><pre>curl -X POST "));
	html_text(&page, call->w->api->base_url);
	buf_str(&page, STR("/api/v1/links \\\n     -H \"Authorization: Bearer $KEY\" \\\n"
	                   "     -d '{\"original_url\": \"https://example.com/a/long/address\"}'</pre>"
	                   "<p class=\"quiet\"><code>$KEY</code> is the admin key that the first start "
	                   "printed, or one made "
	                   "with <code>curt key create</code>. The whole contract is at "
	                   "<a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>.</p>"));
	html_page_end(&page);
	api_reply_page(call->c, 200, &page, html_policy);
}
