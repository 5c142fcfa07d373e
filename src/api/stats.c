/* The routes of statistics: links, visits, orphans, the window of impressions, and the overview. */
#include "api/handlers.h"
#include "api/link_json.h"
#include "api/stats_params.h"
#include "base/json_out.h"
#include "base/rfc3339.h"
#include "base/utf8.h"
#include "handler/caller.h"
#include "handler/input.h"
#include "handler/link_param.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"

#include <stdlib.h>

enum {
	VISITS_DEFAULT = 50,
	VISITS_MAX = 1000,
	TOP_LINKS = 10,
	TOP_ADS = 10,
	AD_LINKS_MAX = 32, /* of one tag, for the click-through */
};

static const char *const kind_names[VISIT_KINDS] = {"click", "head", "prefetch", "unknown", "root"};

/* Submits the job, or replies what is wrong with the parameters. */
static void submit_or_fail(struct query_job *j, int r, const struct err *e)
{
	if (r < 0)
		reply_failed(j->conn, r, "invalid-parameter", e);
	else
		query_job_submit(j);
}

/* Writing JSON */

static void put_shares(struct buf *b, const struct stats_query *q)
{
	json_out_begin(b, "by", '{');
	for (unsigned dim = 0; dim < DIM_COUNT; dim++) {
		if (!(q->dims_wanted & 1U << dim))
			continue;
		json_out_begin(b, visit_dim_names[dim], '[');
		for (size_t i = 0; i < q->share_count[dim]; i++) {
			json_out_begin(b, NULL, '{');
			json_out_name_str(b, "value", q->shares[dim][i].value);
			json_out_name_u64(b, "clicks", q->shares[dim][i].clicks);
			buf_char(b, '}');
		}
		buf_char(b, ']');
	}
	buf_char(b, '}');
}

/* Not json_out_name_time, for which 0 is no time: a range may begin with 1970. */
static void put_time(struct buf *b, const char *name, int64_t ms)
{
	char text[RFC3339_BYTES];
	json_out_name_str(b, name, rfc3339_format(ms, text));
}

static void put_range(struct buf *b, int64_t from_ms, int64_t to_ms)
{
	put_time(b, "from", from_ms);
	put_time(b, "to", to_ms);
}

static void put_counts(struct buf *b, const struct stats_query *q)
{
	json_out_name_u64(b, "clicks", q->clicks);
	json_out_name(b, "unique_visitors");
	if (q->has_visitors)
		json_out_u64(b, q->visitors);
	else
		buf_str(b, STR("null"));
	json_out_name_u64(b, "bots", q->bot_clicks);
	json_out_name_u64(b, "heads", q->heads);
	json_out_name_u64(b, "prefetches", q->prefetches);
}

static void put_breakdown(struct buf *b, const struct stats_query *q)
{
	if (q->series_wanted) {
		json_out_name_str(b, "step", str_of(stats_step_name(q->step)));
		json_out_begin(b, "series", '[');
		for (size_t i = 0; i < q->series_count; i++) {
			json_out_begin(b, NULL, '{');
			put_time(b, "t", q->series[i].time_ms);
			json_out_name_u64(b, "clicks", q->series[i].clicks);
			buf_char(b, '}');
		}
		buf_char(b, ']');
	}
	put_shares(b, q);
}

static void explain_series(struct query_job *j)
{
	if (j->result != ERR_LIMIT)
		return;
	j->result = err_set(&j->why, ERR_INVALID,
	                    "The range has more than %d steps; ask for a shorter range or larger steps "
	                    "(by=month).",
	                    SINK_SERIES_MAX);
}

/* A link's statistics */

struct link_stats_job {
	struct query_job base;
	struct query_link link;
	struct stats_query query;
};

static void link_stats_run(struct query_job *base)
{
	struct link_stats_job *j = container_of(base, struct link_stats_job, base);
	struct sink *sink = base->worker->api->sink;
	base->result = query_link_find(base, &j->link);
	if (base->result < 0)
		return;
	j->query.link = j->link.link.id;
	base->result = query_job_sink_result(base, sink->ops->stats(sink, &j->query));
	explain_series(base);
}

static void link_stats_done(struct query_job *base)
{
	struct link_stats_job *j = container_of(base, struct link_stats_job, base);
	struct buf CLEANUP(buf_release) body = {0};
	if (query_job_reply_failed(base))
		return;
	buf_char(&body, '{');
	json_out_name_str(&body, "key", j->link.link.key);
	put_range(&body, j->query.from_ms, j->query.to_ms);
	put_counts(&body, &j->query);
	put_breakdown(&body, &j->query);
	buf_char(&body, '}');
	reply_json(base->conn, 200, &body, NULL, 0);
}

void link_stats_get(struct api_call *call)
{
	struct err e;
	struct str key = link_param_key(call->w, call->c, call->params[0]);
	struct link_stats_job *j =
	    key.ptr ? query_job_new(call->w, call->c, sizeof(*j), link_stats_run, link_stats_done) : NULL;
	if (!j)
		return;
	j->link = (struct query_link){.key = key, .owner = caller_owner_filter(&call->caller)};
	j->query.arena = j->base.arena;
	int r = stats_params_read(call->req->query, j->base.now_ms, &j->query, &e);
	submit_or_fail(&j->base, r, &e);
}

/* Single visits */

struct visits_job {
	struct query_job base;
	bool orphans;
	struct query_link link;
	struct visits_query query;
};

static void visits_run(struct query_job *base)
{
	struct visits_job *j = container_of(base, struct visits_job, base);
	struct sink *sink = base->worker->api->sink;
	base->result = j->orphans ? 0 : query_link_find(base, &j->link);
	if (base->result < 0)
		return;
	j->query.link = j->link.link.id;
	base->result = query_job_sink_result(base, sink->ops->visits(sink, &j->query));
	if (base->result == ERR_INVALID)
		err_set(&base->why, ERR_INVALID,
		        "The parameter 'cursor' is not a 'next' of this list; start again without it.");
}

static void put_visit(struct buf *b, const struct stats_visit *v)
{
	json_out_begin(b, NULL, '{');
	json_out_name_time(b, "t", v->time_ms);
	json_out_name_str(b, "kind", str_of(kind_names[v->set.kind]));
	if (visit_is_orphan(v->set.kind))
		json_out_name_str(b, "path", v->path);
	for (unsigned dim = 0; dim < DIM_COUNT; dim++)
		json_out_name_str(b, visit_dim_names[dim], v->set.dims[dim]);
	json_out_name_str(b, "region", v->region);
	json_out_name_str(b, "city", v->city);
	json_out_name_str(b, "address", v->address);
	json_out_name_str(b, "referrer_url", v->referrer);
	json_out_name_str(b, "user_agent", v->agent);
	buf_char(b, '}');
}

static void visits_done(struct query_job *base)
{
	struct visits_job *j = container_of(base, struct visits_job, base);
	struct buf CLEANUP(buf_release) body = {0};
	if (query_job_reply_failed(base))
		return;
	buf_str(&body, STR("{\"visits\":["));
	for (size_t i = 0; i < j->query.count; i++)
		put_visit(&body, &j->query.visits[i]);
	buf_char(&body, ']');
	json_out_name_str(&body, "next", j->query.next);
	buf_char(&body, '}');
	reply_json(base->conn, 200, &body, NULL, 0);
}

static void visits_submit(struct visits_job *j, const struct http_request *req)
{
	struct err e;
	uint64_t limit;
	if (!input_limit(j->base.conn, req->query, VISITS_DEFAULT, VISITS_MAX, &limit))
		return;
	j->query.arena = j->base.arena;
	j->query.cursor = arena_str(j->base.arena, http_query_param(req->query, STR("cursor")));
	int r = stats_range_read(req->query, j->base.now_ms, j->base.arena, &j->query.from_ms,
	                         &j->query.to_ms, &e);
	j->query.limit = limit;
	submit_or_fail(&j->base, r, &e);
}

void link_visits_get(struct api_call *call)
{
	struct str key = link_param_key(call->w, call->c, call->params[0]);
	struct visits_job *j = key.ptr ? query_job_new(call->w, call->c, sizeof(*j), visits_run, visits_done)
	                               : NULL;
	if (!j)
		return;
	j->link = (struct query_link){.key = key, .owner = caller_owner_filter(&call->caller)};
	visits_submit(j, call->req);
}

void orphans_get(struct api_call *call)
{
	struct visits_job *j = query_job_new(call->w, call->c, sizeof(*j), visits_run, visits_done);
	if (!j)
		return;
	j->orphans = true;
	visits_submit(j, call->req);
}

/* Impressions in a window */

struct window_job {
	struct query_job base;
	struct window_query query;
	struct buf body; /* written on the pool thread, because there may be many ads */
};

static void window_run(struct query_job *base)
{
	struct window_job *j = container_of(base, struct window_job, base);
	struct sink *sink = base->worker->api->sink;
	base->result = query_job_sink_result(base, sink->ops->window(sink, &j->query));
	if (base->result < 0)
		return;
	buf_char(&j->body, '{');
	for (size_t i = 0; i < j->query.count; i++) {
		json_out_next(&j->body);
		json_out_str(&j->body, j->query.ads[i].ad);
		buf_char(&j->body, ':');
		json_out_u64(&j->body, j->query.ads[i].count);
	}
	buf_char(&j->body, '}');
}

static void window_done(struct query_job *base)
{
	struct buf CLEANUP(buf_release) body = container_of(base, struct window_job, base)->body;
	if (!query_job_reply_failed(base))
		reply_json(base->conn, 200, &body, NULL, 0);
}

void window_get(struct api_call *call)
{
	struct str text = http_query_param(call->req->query, STR("timeWindowMinutes"));
	struct echo shown;
	uint64_t minutes;
	if (!text.ptr) {
		problem_reply(call->c, 400, "invalid-parameter",
		              "The parameter 'timeWindowMinutes' is missing: /stats?timeWindowMinutes=60");
		return;
	}
	if (!str_u64(text, &minutes) || minutes == 0) {
		problem_reply(
		    call->c, 400, "invalid-parameter",
		    "The parameter 'timeWindowMinutes' is '%s'; it must be a whole number above zero.",
		    echo(&shown, text));
		return;
	}
	struct window_job *j = query_job_new(call->w, call->c, sizeof(*j), window_run, window_done);
	if (!j)
		return;
	j->query.arena = j->base.arena;
	j->query.to_ms = j->base.now_ms;
	j->query.from_ms = minutes < (uint64_t)j->base.now_ms / 60000
	                       ? j->base.now_ms - (int64_t)minutes * 60000
	                       : 0;
	query_job_submit(&j->base);
}

/* The overview */

struct top_link {
	uint64_t clicks;
	struct link_record link;
	bool found; /* it still exists */
};

struct top_ad {
	struct ad_count ad;
	bool has_links; /* its name is a link's key, or a tag */
	uint64_t clicks;
};

struct overview_job {
	struct query_job base;
	struct stats_query query;
	uint64_t impressions;
	struct top_link links[TOP_LINKS];
	size_t link_count;
	struct top_ad ads[TOP_ADS];
	size_t ad_count;
};

/* The sink ranks links by all their clicks: with a filter the answer has no top_links. */
static bool has_top_links(const struct stats_query *q)
{
	return !q->filtered && q->bots == BOTS_INCLUDED;
}

static int top_links_find(struct overview_job *j)
{
	struct api *api = j->base.worker->api;
	struct top_links_query top = {
	    .from_ms = j->query.from_ms, .to_ms = j->query.to_ms, .limit = TOP_LINKS, .arena = j->base.arena};
	struct store_lookup reads[TOP_LINKS] = {0};
	int r = query_job_sink_result(&j->base, api->sink->ops->top_links(api->sink, &top));
	if (r < 0 || top.count == 0)
		return r;
	for (size_t i = 0; i < top.count; i++)
		reads[i] = (struct store_lookup){.ref.id = top.links[i].link, .arena = j->base.arena};
	r = links_get(api->links, reads, top.count, api_pool_metrics());
	for (size_t i = 0; r == 0 && i < top.count; i++)
		j->links[i] = (struct top_link){top.links[i].clicks, reads[i].link, reads[i].result == 0};
	j->link_count = r == 0 ? top.count : 0;
	return r;
}

static int clicks_of(struct overview_job *j, uint64_t link, uint64_t *ret)
{
	struct sink *sink = j->base.worker->api->sink;
	struct stats_query q = {.link = link,
	                        .from_ms = j->query.from_ms,
	                        .to_ms = j->query.to_ms,
	                        .bots = j->query.bots,
	                        .filtered = j->query.filtered,
	                        .arena = j->base.arena};
	memcpy(q.filter, j->query.filter, sizeof(q.filter));
	int r = query_job_sink_result(&j->base, sink->ops->stats(sink, &q));
	*ret += q.clicks;
	return r;
}

/* If the ad's name is the key of a link or a tag of links, their clicks are the ad's clicks. */
static int ad_clicks_find(struct overview_job *j, struct top_ad *ad)
{
	struct api *api = j->base.worker->api;
	uint64_t ids[AD_LINKS_MAX + 1];
	size_t count = 0;
	int r = store_tagged(api->store, ad->ad.ad, AD_LINKS_MAX, ids, &count);
	if (r == 0 && key_is_wellformed(ad->ad.ad)) {
		char folded[KEY_BYTES_MAX];
		struct str key = key_fold(links_cipher(api->links), ad->ad.ad, folded);
		struct store_lookup read = {.ref = links_ref(api->links, key), .arena = j->base.arena};
		r = links_get(api->links, &read, 1, api_pool_metrics());
		bool listed = false;
		for (size_t i = 0; i < count; i++)
			listed |= ids[i] == read.link.id;
		if (r == 0 && read.result == 0 && !listed)
			ids[count++] = read.link.id;
	}
	ad->has_links = count > 0;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = clicks_of(j, ids[i], &ad->clicks);
	return r;
}

static int by_count(const void *a, const void *b)
{
	const struct ad_count *x = a, *y = b;
	return (x->count < y->count) - (x->count > y->count);
}

static int top_ads_find(struct overview_job *j)
{
	struct sink *sink = j->base.worker->api->sink;
	struct window_query window = {
	    .from_ms = j->query.from_ms - 1, .to_ms = j->query.to_ms - 1, .arena = j->base.arena};
	int r = query_job_sink_result(&j->base, sink->ops->window(sink, &window));
	if (r < 0)
		return r;
	for (size_t i = 0; i < window.count; i++)
		j->impressions += window.ads[i].count;
	if (window.count > 0) /* qsort takes no NULL */
		qsort(window.ads, window.count, sizeof(*window.ads), by_count);
	j->ad_count = MIN(window.count, (size_t)TOP_ADS);
	for (size_t i = 0; r == 0 && i < j->ad_count; i++) {
		j->ads[i].ad = window.ads[i];
		r = ad_clicks_find(j, &j->ads[i]);
	}
	return r;
}

static void overview_run(struct query_job *base)
{
	struct overview_job *j = container_of(base, struct overview_job, base);
	struct sink *sink = base->worker->api->sink;
	base->result = query_job_sink_result(base, sink->ops->stats(sink, &j->query));
	explain_series(base);
	if (base->result == 0 && has_top_links(&j->query))
		base->result = top_links_find(j);
	if (base->result == 0)
		base->result = top_ads_find(j);
}

static void put_top_links(struct buf *b, const struct overview_job *j)
{
	if (!has_top_links(&j->query)) {
		json_out_name_str(b, "top_links", STR_NULL);
		return;
	}
	json_out_begin(b, "top_links", '[');
	for (size_t i = 0; i < j->link_count; i++) {
		if (!j->links[i].found)
			continue;
		json_out_begin(b, NULL, '{');
		json_out_name_str(b, "key", j->links[i].link.key);
		link_json_short_url(b, j->base.worker->api, &j->links[i].link);
		json_out_name_u64(b, "clicks", j->links[i].clicks);
		buf_char(b, '}');
	}
	buf_char(b, ']');
}

static void put_top_ads(struct buf *b, const struct overview_job *j)
{
	json_out_begin(b, "top_ads", '[');
	for (size_t i = 0; i < j->ad_count; i++) {
		const struct top_ad *ad = &j->ads[i];
		json_out_begin(b, NULL, '{');
		json_out_name_str(b, "ad", ad->ad.ad);
		json_out_name_u64(b, "impressions", ad->ad.count);
		if (ad->has_links)
			buf_printf(b, ",\"clicks\":%llu,\"click_through\":%.6g}",
			           (unsigned long long)ad->clicks, (double)ad->clicks / (double)ad->ad.count);
		else
			buf_str(b, STR(",\"clicks\":null,\"click_through\":null}"));
	}
	buf_char(b, ']');
}

static void overview_done(struct query_job *base)
{
	struct overview_job *j = container_of(base, struct overview_job, base);
	struct buf CLEANUP(buf_release) body = {0};
	if (query_job_reply_failed(base))
		return;
	buf_char(&body, '{');
	put_range(&body, j->query.from_ms, j->query.to_ms);
	put_counts(&body, &j->query);
	json_out_begin(&body, "orphans", '{');
	json_out_name_u64(&body, "unknown", j->query.unknowns);
	json_out_name_u64(&body, "root", j->query.roots);
	buf_char(&body, '}');
	json_out_name_u64(&body, "impressions", j->impressions);
	put_top_links(&body, j);
	put_top_ads(&body, j);
	put_breakdown(&body, &j->query);
	buf_char(&body, '}');
	reply_json(base->conn, 200, &body, NULL, 0);
}

void overview_get(struct api_call *call)
{
	struct err e;
	struct overview_job *j = query_job_new(call->w, call->c, sizeof(*j), overview_run, overview_done);
	if (!j)
		return;
	j->query.arena = j->base.arena;
	int r = stats_params_read(call->req->query, j->base.now_ms, &j->query, &e);
	submit_or_fail(&j->base, r, &e);
}
