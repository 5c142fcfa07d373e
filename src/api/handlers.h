/* The handlers behind the route table. Each replies, or defers the connection and replies later. */
#pragma once

#include "handler/api.h"

typedef void api_handler_fn(struct api_call *call);

api_handler_fn links_post, links_list_get, link_get, link_patch, link_delete; /* links.c */
api_handler_fn create_url_post, delete_url_delete;                            /* legacy_urls.c */
api_handler_fn permissions_get, permission_put, permission_delete;            /* permissions.c */
api_handler_fn sweep_post;                                                    /* sweeps.c */
api_handler_fn session_post, session_get, session_delete;                     /* sessions.c */
api_handler_fn users_post, users_get, user_get, user_patch;                   /* users.c */
api_handler_fn user_sessions_delete;                                          /* users.c */
api_handler_fn keys_post, keys_get, key_delete;                               /* keys.c */
api_handler_fn event_post;                                                    /* events.c */
api_handler_fn link_stats_get, link_visits_get, orphans_get;                  /* stats.c */
api_handler_fn window_get, overview_get;                                      /* stats.c */
api_handler_fn reconcile_get;                                                 /* reconcile.c */
api_handler_fn live_get;                                                      /* live.c */
api_handler_fn healthz_get, readyz_get, front_get;                            /* system.c */
api_handler_fn openapi_get;                                                   /* openapi.c */
api_handler_fn metrics_get;                                                   /* metrics_page.c */
