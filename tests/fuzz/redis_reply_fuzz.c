// needs: src/client/redis_wire.c src/os/clock.c src/os/sys.c
// packages: hiredis
// flags: -max_len=4096
/* Whatever a server says, in whatever pieces: replies are whole trees, or the connection has failed. */
#include "client/redis_wire.h"

#include "os/clock.h"

#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static size_t walk(const struct redis_reply *reply)
{
	size_t seen = 1;
	for (size_t i = 0; i < reply->text.len; i++)
		seen += reply->text.ptr[i] != 0;
	for (size_t i = 0; reply->type == REDIS_ARRAY && i < reply->count; i++) {
		struct redis_reply item = redis_reply_at(reply, i);
		seen += walk(&item);
	}
	return seen;
}

/* Reads all replies that are there; false when the connection has failed. */
static bool read_all(struct redis_conn *c)
{
	struct redis_reply reply;
	int r;
	while ((r = wire_read(c, clock_mono_ms() - 1, &reply)) == 0)
		ASSERT(walk(&reply) > 0);
	ASSERT(r == ERR_BUSY || (r == ERR_UNAVAILABLE && c->failed && c->why.text[0]));
	return r == ERR_BUSY;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	int pair[2];
	struct err e;
	if (len == 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
		return 0;
	struct redis_conn *c = wire_new(pair[0], &e);
	ASSERT(c);
	size_t step = 1 + data[0] % 64;
	bool lives = true;
	for (size_t at = 1; at < len && lives; at += step) {
		size_t some = MIN(step, len - at);
		ASSERT(write(pair[1], data + at, some) == (ssize_t)some);
		lives = read_all(c);
	}
	close(pair[1]);
	ASSERT(!read_all(c));
	wire_close(c);
	return 0;
}
