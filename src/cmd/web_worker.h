/* One worker of the server: a thread that answers requests, with its own listener and event writer. */
#pragma once

#include "api/api.h"
#include "cmd/listener.h"

struct web_worker;

/* `number` is also that of its event writer. */
int web_worker_new(struct api *api, const struct capture_rules *rules, unsigned number,
                   const struct http_settings *http, int listen_fd, struct web_worker **ret, struct err *e);
int web_worker_start(struct web_worker *w, struct err *e);
struct api_worker *web_worker_api(struct web_worker *w);
struct listener *web_worker_listener(struct web_worker *w);
void web_worker_free(struct web_worker *w); /* after the pools have ended */
