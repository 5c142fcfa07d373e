/* A connection that only remembers what was answered, and a loop whose clocks the test sets. They stand in for
 * http/conn.c and loop/loop_epoll.c in the tests of this folder. */
#pragma once

#include "base/arena.h"
#include "http/conn.h"
#include "os/net.h"

struct http_conn {
	struct net_addr peer;
	struct arena arena;
	int replies, status, deferrals;
	struct str content_type;
	char fields[512]; /* "Name: value" and a newline, for each */
	char body[2048];
};

extern int64_t double_mono_ms, double_real_ms;

struct http_conn conn_from(const char *address);
