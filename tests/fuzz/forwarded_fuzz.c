// needs: src/http/forwarded.c src/os/net.c
// flags: -max_len=1024
/*
 * Whatever a client writes into X-Forwarded-For, it cannot choose who it is: nothing to the left of the
 * address that was believed counts. The input's lines are the trusted proxies, the peer (its first byte says
 * which), and the values of the fields.
 */
#include "http/forwarded.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct http_request req;

static void add_field(struct str value)
{
	if (req.field_count < HTTP_FIELDS_MAX)
		req.fields[req.field_count++] = (struct http_field){STR("X-Forwarded-For"), value};
}

static struct net_addr peer_of(struct str line)
{
	static const char *const peers[] = {"127.0.0.1:1", "[::1]:2", "10.1.2.3:3", "[::ffff:10.1.2.3]:4",
	                                    "192.0.2.7:5"};
	struct net_addr peer;
	size_t which = line.len ? (uint8_t)line.ptr[0] % ARRAY_LEN(peers) : 0;
	int r = net_addr_parse(str_of(peers[which]), &peer, NULL);
	ASSERT(r == 0);
	return peer;
}

static bool same(const struct net_addr *a, const struct net_addr *b)
{
	char x[NET_ADDR_TEXT_BYTES], y[NET_ADDR_TEXT_BYTES];
	return str_eq(net_addr_format(a, x), net_addr_format(b, y));
}

static void check(const struct proxies *p, const struct net_addr *peer)
{
	struct net_addr client, again;
	http_client_address(p, peer, &req, &client);
	ASSERT(client.any.sa_family == AF_INET || !IN6_IS_ADDR_V4MAPPED(&client.v6.sin6_addr));
	if (!proxies_trust(p, peer)) {
		struct http_request bare = {0};
		http_client_address(p, peer, &bare, &again);
		ASSERT(same(&client, &again));
		return;
	}
	if (!proxies_trust(p, &client) && req.field_count < HTTP_FIELDS_MAX) {
		memmove(&req.fields[1], &req.fields[0], req.field_count * sizeof(req.fields[0]));
		req.fields[0].value = STR("6.6.6.6, 7.7.7.7");
		req.field_count++;
		http_client_address(p, peer, &req, &again);
		ASSERT(same(&client, &again));
	}
	char text[NET_ADDR_TEXT_BYTES];
	req.field_count = 0;
	add_field(net_addr_format(&client, text));
	http_client_address(p, peer, &req, &again);
	ASSERT(client.any.sa_family != again.any.sa_family || same(&client, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *copy = malloc(MAX(len, 1)); /* no longer than the input, so that the sanitizer sees its end */
	memcpy(copy, data, len);
	struct str rest = str_n(copy, len);
	struct str list = str_cut(&rest, '\n');
	struct proxies *p = NULL;
	struct err e;
	if (proxies_parse(list, &p, &e) != 0) {
		int r = proxies_parse(STR("loopback,10.0.0.0/8"), &p, NULL);
		ASSERT(r == 0 && strlen(e.text) > 0);
	}
	struct str peer_line = str_cut(&rest, '\n');
	struct net_addr peer = peer_of(peer_line);
	req.field_count = 0;
	while (rest.ptr)
		add_field(str_cut(&rest, '\n'));
	check(p, &peer);
	proxies_free(p);
	free(copy);
	return 0;
}
