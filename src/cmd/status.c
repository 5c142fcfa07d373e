#include "cmd/status.h"

#include "base/json_out.h"
#include "cmd/listener.h"
#include "os/net.h"

#include <stdlib.h>

enum { BACKLOG = 64, DRAIN_MS = 500 };

struct status {
	struct status_config config;
	struct listener *listener;
	char address[NET_ADDR_TEXT_BYTES];
};

static void answer(struct http_conn *c, int code, struct str type, struct str body)
{
	const struct http_response r = {.status = code, .content_type = type, .body = body};
	http_reply(c, &r);
}

static void answer_ready(struct status *s, struct http_conn *c)
{
	struct buf CLEANUP(buf_release) checks = {0}, body = {0};
	const char *name;
	struct err why;
	bool whole = true;
	int result = 0;
	for (size_t i = 0; s->config.check(s->config.ctx, i, &name, &result, &why); i++) {
		buf_printf(&checks, "%s\"%s\":", i > 0 ? "," : "", name);
		json_out_str(&checks, result == 0 ? STR("ok") : str_of(why.text));
		whole &= result == 0;
	}
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{%.*s}}", whole ? "ready" : "degraded",
	           STR_ARG(buf_view(&checks)));
	answer(c, whole ? 200 : 503, STR("application/json"), buf_view(&body));
}

static void answer_metrics(struct status *s, struct http_conn *c)
{
	struct buf CLEANUP(buf_release) body = {0};
	metrics_render(&body);
	s->config.gauges(s->config.ctx, &body);
	answer(c, 200, STR("text/plain; version=0.0.4; charset=utf-8"), buf_view(&body));
}

static void handle(void *ctx, struct http_conn *c, const struct http_request *req)
{
	struct status *s = ctx;
	if (req->method != HTTP_GET && req->method != HTTP_HEAD)
		answer(c, 405, STR("text/plain"), STR("only GET and HEAD are answered here\n"));
	else if (str_eq(req->path, STR("/healthz")))
		answer(c, 200, STR("text/plain"), STR("ok\n"));
	else if (str_eq(req->path, STR("/readyz")))
		answer_ready(s, c);
	else if (str_eq(req->path, STR("/metrics")))
		answer_metrics(s, c);
	else
		answer(c, 404, STR("text/plain"), STR("here are /healthz, /readyz and /metrics\n"));
}

static void refuse(void *ctx, struct http_conn *c, int code, const char *reason)
{
	(void)ctx;
	answer(c, code, STR("text/plain"), str_of(reason));
}

static int listen_at(struct status *s, struct err *e)
{
	struct net_addr addr;
	struct metrics *metrics = metrics_register();
	int fd = -1;
	int r = metrics ? net_addr_parse(str_of(s->config.listen), &addr, e)
	                : err_set(e, ERR_NOMEM, "out of memory for counters");
	if (r == 0)
		r = net_port_is_free(&addr, e);
	if (r == 0)
		r = net_listen(&addr, BACKLOG, &fd, e);
	if (r == 0) {
		net_addr_format(&addr, s->address);
		r = listener_new("status", s->config.http, fd, metrics, &s->listener, e);
	}
	return r;
}

int status_start(const struct status_config *config, struct status **ret, struct err *e)
{
	struct status *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->config = *config;
	const struct http_handler handler = {.handle = handle, .refuse = refuse, .ctx = s};
	int r = listen_at(s, e);
	if (r == 0)
		r = listener_start(s->listener, &handler, e);
	if (r < 0) {
		listener_free(s->listener);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

const char *status_address(const struct status *s)
{
	return s->address;
}

void status_stop(struct status *s)
{
	if (!s)
		return;
	listener_drain(s->listener, DRAIN_MS);
	listener_join(s->listener);
	listener_free(s->listener);
	free(s);
}
