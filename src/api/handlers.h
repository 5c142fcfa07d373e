/* The handlers behind the route table (routes.c). Each replies, or defers and replies later. */
#pragma once

#include "handler/api.h"

typedef void api_handler_fn(struct api_call *call);

/* links.c */
api_handler_fn links_post, links_list_get, link_get, link_patch, link_delete;
api_handler_fn create_url_post, delete_url_delete;

/* permissions.c */
api_handler_fn permissions_get, permission_put, permission_delete;

/* sweeps.c */
api_handler_fn sweep_post;

/* sign_in.c */
api_handler_fn session_post, session_get, session_delete;

/* users.c */
api_handler_fn users_post, users_get, user_get, user_patch, user_sessions_delete;

/* keys.c */
api_handler_fn keys_post, keys_get, key_delete;

/* events.c */
api_handler_fn event_post;

/* stats.c */
api_handler_fn link_stats_get, link_visits_get, orphans_get, window_get, overview_get;

/* books.c */
api_handler_fn reconcile_get;

/* live.c */
api_handler_fn live_get;

/* system.c */
api_handler_fn healthz_get, readyz_get, openapi_get, front_get;

/* metrics_page.c */
api_handler_fn metrics_get;
