#include "lib/relay.h"

#include "base/str.h"
#include "os/net.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS_MAX = 64, BYTES = 16384, SEND_S = 10 };

struct pair {
	int fds[2];     /* the client's, and ours to the server; -1: unused */
	bool is_doomed; /* the server's next answer goes nowhere */
};

struct relay {
	struct net_addr server;
	char address[NET_ADDR_TEXT_BYTES];
	int listener;
	int wake[2]; /* a byte for each change of mode */
	struct pair pairs[PAIRS_MAX];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum relay_mode wanted;   /* under the lock, as what follows */
	unsigned asked, followed; /* how often another mode was asked for, and the thread has seen it */
	bool stopping;
	const char *cut_text; /* under the lock; NULL: none */
	bool cut_after, cut_stays;
	_Atomic size_t dropped;
};

static void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		if (p->fds[i] >= 0)
			close(p->fds[i]);
		p->fds[i] = -1;
	}
}

/* Who reads no more of what is sent to him is given up, so that the relay always comes back to be stopped. */
static void never_block(int fd)
{
	const struct timeval patience = {.tv_sec = SEND_S};
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

static void pair_open(struct relay *r, enum relay_mode mode)
{
	int client = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	struct pair *free_pair = NULL;
	for (size_t i = 0; i < PAIRS_MAX && !free_pair; i++)
		free_pair = r->pairs[i].fds[0] < 0 ? &r->pairs[i] : NULL;
	if (client < 0 || mode == RELAY_CUT || !free_pair) {
		if (client >= 0)
			close(client);
		return;
	}
	int server = socket(r->server.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	never_block(client);
	never_block(server);
	*free_pair = (struct pair){.fds = {client, server}};
	if (server < 0 || connect(server, &r->server.any, r->server.len) < 0)
		pair_close(free_pair);
}

/* Is it time to cut, before the bytes are passed on? */
static bool pair_is_cut(struct relay *r, struct pair *p, int from, const char *bytes, size_t n)
{
	if (from == 1)
		return p->is_doomed;
	bool cut = false;
	pthread_mutex_lock(&r->lock);
	if (r->cut_text && memmem(bytes, n, r->cut_text, strlen(r->cut_text))) {
		cut = !r->cut_after;
		p->is_doomed = r->cut_after;
		r->cut_text = NULL;
		if (r->cut_stays)
			r->wanted = RELAY_CUT;
	}
	pthread_mutex_unlock(&r->lock);
	return cut;
}

static void pair_pass(struct relay *r, struct pair *p, int from, enum relay_mode mode)
{
	char bytes[BYTES];
	ssize_t n = recv(p->fds[from], bytes, sizeof(bytes), 0);
	if (n > 0 && pair_is_cut(r, p, from, bytes, (size_t)n))
		n = -1;
	bool dropped = n > 0 && mode == RELAY_MUTE && from == 1;
	if (dropped)
		atomic_fetch_add(&r->dropped, (size_t)n);
	for (ssize_t sent = 0; n > 0 && !dropped && sent < n;) {
		ssize_t more = send(p->fds[1 - from], bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
		if (more <= 0)
			n = -1;
		sent += more;
	}
	if (n <= 0)
		pair_close(p);
}

/* The mode that holds now; -1: it is over. */
static int follow(struct relay *r)
{
	pthread_mutex_lock(&r->lock);
	if (r->wanted == RELAY_CUT) {
		for (size_t i = 0; i < PAIRS_MAX; i++)
			pair_close(&r->pairs[i]);
	}
	int mode = r->stopping ? -1 : (int)r->wanted;
	r->followed = r->asked;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	return mode;
}

static void *relay_run(void *arg)
{
	struct relay *r = arg;
	for (int mode; (mode = follow(r)) >= 0;) {
		struct pollfd polled[2 + 2 * PAIRS_MAX] = {{.fd = r->wake[0], .events = POLLIN},
		                                           {.fd = r->listener, .events = POLLIN}};
		for (size_t i = 0; i < 2 * PAIRS_MAX; i++) {
			int fd = mode == RELAY_HOLD ? -1 : r->pairs[i / 2].fds[i % 2];
			polled[2 + i] = (struct pollfd){.fd = fd, .events = POLLIN};
		}
		poll(polled, ARRAY_LEN(polled), -1);
		char byte;
		if (polled[0].revents && read(r->wake[0], &byte, 1) == 1)
			continue;
		for (size_t i = 0; i < 2 * PAIRS_MAX; i++) {
			bool is_open = r->pairs[i / 2].fds[i % 2] >= 0;
			if (polled[2 + i].revents && is_open)
				pair_pass(r, &r->pairs[i / 2], (int)(i % 2), (enum relay_mode)mode);
		}
		if (polled[1].revents)
			pair_open(r, (enum relay_mode)mode);
	}
	return NULL;
}

static void nudge(struct relay *r)
{
	ssize_t n = write(r->wake[1], "", 1);
	ASSERT(n == 1);
}

struct relay *relay_start(const char *server)
{
	struct relay *r = calloc(1, sizeof(*r));
	struct net_addr own;
	ASSERT(r);
	for (size_t i = 0; i < PAIRS_MAX; i++)
		r->pairs[i] = (struct pair){.fds = {-1, -1}};
	int parsed = net_addr_parse(str_of(server), &r->server, NULL);
	int parsed_own = net_addr_parse(STR("127.0.0.1:0"), &own, NULL);
	int listening = net_listen(&own, PAIRS_MAX, &r->listener, NULL);
	ASSERT(parsed == 0 && parsed_own == 0 && listening == 0);
	net_addr_format(&own, r->address);
	int piped = pipe2(r->wake, O_CLOEXEC);
	ASSERT(piped == 0);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	int started = pthread_create(&r->thread, NULL, relay_run, r);
	ASSERT(started == 0);
	return r;
}

const char *relay_address(const struct relay *r)
{
	return r->address;
}

size_t relay_dropped(const struct relay *r)
{
	return atomic_load(&r->dropped);
}

void relay_set(struct relay *r, enum relay_mode mode)
{
	pthread_mutex_lock(&r->lock);
	r->wanted = mode;
	unsigned number = ++r->asked;
	nudge(r);
	while (r->followed < number)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

void relay_cut_at(struct relay *r, const char *text, bool after, bool stays)
{
	pthread_mutex_lock(&r->lock);
	r->cut_text = text;
	r->cut_after = after;
	r->cut_stays = stays;
	pthread_mutex_unlock(&r->lock);
}

void relay_stop(struct relay *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stopping = true;
	nudge(r);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	for (size_t i = 0; i < PAIRS_MAX; i++)
		pair_close(&r->pairs[i]);
	close(r->listener);
	close(r->wake[0]);
	close(r->wake[1]);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
