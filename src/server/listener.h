/* A thread with its own loop and HTTP server on one listening socket. */
#pragma once

#include "http/conn.h"
#include "loop/loop.h"

struct listener;

/* `metrics` belong to the thread. */
int listener_new(const char *name, const struct http_settings *http, int listen_fd, struct metrics *metrics,
                 struct listener **ret, struct err *e);
struct loop *listener_loop(struct listener *l);
int listener_start(struct listener *l, const struct http_handler *handler, struct err *e);

/* Accepts what the system has already, finishes open requests, and ends the thread. After `drain_ms` it closes
 * what is left and calls `cut_off` (if not NULL; perhaps more than once): the thread ends when the requests of
 * clients that are gone have ended too. */
void listener_drain(struct listener *l, uint64_t drain_ms, void (*cut_off)(void *ctx), void *ctx);
void listener_join(struct listener *l);
void listener_free(struct listener *l); /* when no answer is pending; NULL is fine */
