#include "http/forwarded.h"
#include "lib/test.h"

static struct http_request req;

static struct net_addr addr(const char *text)
{
	struct net_addr a;
	assert_int_equal(net_addr_parse(str_of(text), &a, NULL), 0);
	return a;
}

static struct proxies *parse(const char *list)
{
	struct proxies *p = NULL;
	MUST(proxies_parse(str_of(list), &p, &why));
	return p;
}

static void assert_trust(const char *list, const char *peer, bool expected)
{
	struct proxies *p = parse(list);
	struct net_addr a = addr(peer);
	if (proxies_trust(p, &a) != expected)
		print_error("'%s' with %s\n", list, peer);
	assert_int_equal(proxies_trust(p, &a), expected);
	proxies_free(p);
}

static void forward(const char *const *values, size_t count)
{
	req.field_count = 0;
	req.fields[req.field_count++] = (struct http_field){STR("Host"), STR("1.1.1.1")};
	for (size_t i = 0; i < count; i++) {
		struct str name = i % 2 ? STR("x-forwarded-FOR") : STR("X-Forwarded-For");
		req.fields[req.field_count++] = (struct http_field){name, str_of(values[i])};
		req.fields[req.field_count++] = (struct http_field){STR("Forwarded"), STR("for=6.6.6.6")};
		req.fields[req.field_count++] = (struct http_field){STR("X-Forwarded-Fo"), STR("6.6.6.6")};
	}
}

static void assert_client_of(const char *list, const char *peer, const char *expected)
{
	struct proxies *p = parse(list);
	struct net_addr from = addr(peer), client;
	char text[NET_ADDR_TEXT_BYTES];
	http_client_address(p, &from, &req, &client);
	net_addr_format(&client, text);
	assert_string_equal(text, expected);
	assert_int_equal(client.len, client.any.sa_family == AF_INET ? sizeof(client.v4) : sizeof(client.v6));
	proxies_free(p);
}

/* The client behind the proxy 10.0.0.1, whose colleagues are in 10.0.0.0/8 and fd00::/8. */
static void assert_client(const char *value, const char *expected)
{
	forward(&value, 1);
	assert_client_of("10.0.0.0/8,fd00::/8", "10.0.0.1:999", expected);
}

TEST(networks_have_what_their_prefix_covers)
{
	assert_trust("10.0.0.0/8", "10.0.0.0:1", true);
	assert_trust("10.0.0.0/8", "10.255.255.255:1", true);
	assert_trust("10.0.0.0/8", "11.0.0.0:1", false);
	assert_trust("10.0.0.0/8", "9.255.255.255:1", false);
	assert_trust("10.1.2.128/25", "10.1.2.128:1", true);
	assert_trust("10.1.2.128/25", "10.1.2.127:1", false);
	assert_trust("10.1.2.4/31", "10.1.2.5:1", true);
	assert_trust("10.1.2.4/31", "10.1.2.6:1", false);
	assert_trust("192.0.2.7", "192.0.2.7:1", true);
	assert_trust("192.0.2.7/32", "192.0.2.8:1", false);
	assert_trust("0.0.0.0/0", "203.0.113.9:1", true);
	assert_trust("0.0.0.0/0", "[2001:db8::1]:1", false);
	assert_trust("::/0", "[2001:db8::1]:1", true);
	assert_trust("::/0", "203.0.113.9:1", false);
	assert_trust("2001:db8::/33", "[2001:db8:7fff::1]:1", true);
	assert_trust("2001:db8::/33", "[2001:db8:8000::1]:1", false);
	assert_trust("::1/128", "[::1]:1", true);
	assert_trust("::1", "[::2]:1", false);
}

TEST(any_item_of_a_list_will_do)
{
	const char *list = " 10.0.0.0/8,\t192.0.2.7 ,::1/128, LoopBack ";
	assert_trust(list, "10.9.9.9:1", true);
	assert_trust(list, "192.0.2.7:1", true);
	assert_trust(list, "[::1]:1", true);
	assert_trust(list, "127.3.4.5:1", true);
	assert_trust(list, "192.0.2.6:1", false);
}

TEST(loopback_is_both_kinds)
{
	assert_trust("loopback", "127.0.0.1:1", true);
	assert_trust("loopback", "127.255.0.1:1", true);
	assert_trust("loopback", "[::1]:1", true);
	assert_trust("loopback", "[::ffff:127.0.0.1]:1", true);
	assert_trust("loopback", "128.0.0.1:1", false);
	assert_trust("loopback", "[::]:1", false);
}

TEST(ipv4_in_ipv6_is_ipv4)
{
	assert_trust("10.0.0.0/8", "[::ffff:10.1.2.3]:1", true);
	assert_trust("::ffff:10.1.2.3", "10.1.2.3:1", true);
	assert_trust("::ffff:10.0.0.0/104", "10.1.2.3:1", true);
	assert_trust("::ffff:10.0.0.0/104", "11.1.2.3:1", false);
	assert_trust("::ffff:0.0.0.0/96", "11.1.2.3:1", true);
}

TEST(an_empty_list_trusts_nobody)
{
	assert_trust("", "127.0.0.1:1", false);
	assert_trust("  ", "127.0.0.1:1", false);
	struct net_addr a = addr("127.0.0.1:1");
	assert_false(proxies_trust(NULL, &a));
	struct net_addr local = {.any.sa_family = AF_UNIX, .len = sizeof(sa_family_t)};
	struct proxies *p = parse("0.0.0.0/0,::/0");
	assert_false(proxies_trust(p, &local));
	proxies_free(p);
	proxies_free(NULL);
}

TEST(a_bad_item_is_named_with_what_would_be_right)
{
	static const struct {
		const char *list, *names, *right;
	} cases[] = {
	    {"10.0.0.0/8, proxy.example", "'proxy.example'", "loopback"},
	    {"10.0.0.0/33", "'10.0.0.0/33'", "10.0.0.0/8"},
	    {"::1/129", "'::1/129'", "fd00::/8"},
	    {"::ffff:10.0.0.0/8", "'::ffff:10.0.0.0/8'", "10.0.0.0/8"},
	    {"10.0.0.0/", "'10.0.0.0/'", "10.0.0.0/8"},
	    {"10.0.0.0/+8", "'10.0.0.0/+8'", "10.0.0.0/8"},
	    {"10.0.0.0/8/8", "'10.0.0.0/8/8'", "10.0.0.0/8"},
	    {"10.0.0.0/0008", "'10.0.0.0/0008'", "10.0.0.0/8"},
	    {"/8", "'/8'", "10.0.0.0/8"},
	    {"10.0.0.1/8", "'10.0.0.1/8'", "10.0.0.0/8, or 10.0.0.1"},
	    {"fd00::1/8", "'fd00::1/8'", "fd00::/8, or fd00::1"},
	    {"10.0.0", "'10.0.0'", "192.0.2.7"},
	    {"[::1]", "'[::1]'", "::1"},
	    {"10.0.0.1:80", "'10.0.0.1:80'", "192.0.2.7"},
	    {"::1,,::2", "''", "::1"},
	    {"::1,", "''", "::1"},
	    {",::1", "''", "::1"},
	    {",", "''", "::1"},
	    {"loopback/8", "'loopback/8'", "loopback"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct proxies *p = NULL;
		struct err e = {""};
		assert_int_equal(proxies_parse(str_of(cases[i].list), &p, &e), ERR_INVALID);
		assert_null(p);
		assert_non_null(strstr(e.text, cases[i].names));
		assert_non_null(strstr(e.text, cases[i].right));
	}
	struct proxies *p = NULL;
	assert_int_equal(proxies_parse(STR("::1\0"), &p, NULL), ERR_INVALID);
}

TEST(a_list_has_an_end)
{
	char list[PROXIES_MAX * 16 + 16] = "";
	size_t len = 0;
	for (int i = 0; i < PROXIES_MAX; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s10.0.%d.%d", i ? "," : "", i / 256,
		                        i % 256);
	assert_trust(list, "10.0.0.255:1", true);
	snprintf(list + len, sizeof(list) - len, ",::1");
	struct proxies *p = NULL;
	struct err e = {""};
	assert_int_equal(proxies_parse(str_of(list), &p, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "256"));
}

TEST(without_a_trusted_peer_the_client_is_the_peer)
{
	static const char *const values[] = {"6.6.6.6"};
	struct net_addr peer = addr("203.0.113.9:4711"), client;
	forward(values, 1);
	assert_client_of("", "203.0.113.9:4711", "203.0.113.9:4711");
	assert_client_of("10.0.0.0/8", "203.0.113.9:4711", "203.0.113.9:4711");
	http_client_address(NULL, &peer, &req, &client);
	assert_memory_equal(&client, &peer, sizeof(peer));
}

TEST(a_peer_of_ipv4_in_ipv6_is_a_client_of_ipv4)
{
	static const char *const values[] = {"6.6.6.6"};
	struct net_addr peer = addr("[::ffff:203.0.113.9]:4711"), plain = addr("203.0.113.9:4711"), client;
	forward(values, 1);
	assert_client_of("", "[::ffff:203.0.113.9]:4711", "203.0.113.9:4711");
	assert_client_of("10.0.0.0/8", "[::ffff:203.0.113.9]:4711", "203.0.113.9:4711");
	assert_client_of("10.0.0.0/8", "[2001:db8::1]:4711", "[2001:db8::1]:4711");
	http_client_address(NULL, &peer, &req, &client);
	assert_memory_equal(&client, &plain, sizeof(plain));
	forward(NULL, 0);
	assert_client_of("203.0.113.9", "[::ffff:203.0.113.9]:4711", "203.0.113.9:4711");
}

TEST(a_trusted_peer_that_forwards_nothing_is_the_client)
{
	forward(NULL, 0);
	assert_client_of("loopback", "127.0.0.1:4711", "127.0.0.1:4711");
	assert_client("", "10.0.0.1:999");
	assert_client("   ", "10.0.0.1:999");
}

TEST(the_client_is_the_rightmost_that_is_no_proxy)
{
	assert_client("203.0.113.9", "203.0.113.9:0");
	assert_client("6.6.6.6, 203.0.113.9", "203.0.113.9:0"); /* what the client itself sent stays left */
	assert_client("6.6.6.6,203.0.113.9,10.2.3.4 ,\t10.5.6.7", "203.0.113.9:0");
	assert_client("203.0.113.9, fd12::1, 10.9.9.9", "203.0.113.9:0");
	assert_client("junk, 203.0.113.9", "203.0.113.9:0");
	assert_client("10.1.1.1, 10.2.2.2", "10.1.1.1:0"); /* all are proxies: one of them asks for itself */
}

TEST(fields_of_the_same_name_are_one_list)
{
	static const char *const values[] = {"6.6.6.6", "203.0.113.9, 10.1.1.1", "10.2.2.2"};
	forward(values, 3);
	assert_client_of("10.0.0.0/8", "10.0.0.1:999", "203.0.113.9:0");
	assert_client_of("10.2.0.0/16,10.0.0.1", "10.0.0.1:999", "10.1.1.1:0");
	static const char *const with_empty[] = {"203.0.113.9", "", "10.2.2.2"};
	forward(with_empty, 3);
	assert_client_of("10.0.0.0/8", "10.0.0.1:999", "10.2.2.2:0");
}

TEST(entries_come_with_and_without_ports)
{
	assert_client("203.0.113.9:567", "203.0.113.9:567");
	assert_client("2001:db8::1", "[2001:db8::1]:0");
	assert_client("[2001:db8::1]", "[2001:db8::1]:0");
	assert_client("[2001:db8::1]:80", "[2001:db8::1]:80");
	assert_client("::ffff:203.0.113.9", "203.0.113.9:0");
	assert_client("[::ffff:203.0.113.9]:65535", "203.0.113.9:65535");
	assert_client("203.0.113.9, ::ffff:10.1.1.1", "203.0.113.9:0");
	assert_client("2001:0db8:0000:0000:0000:ffff:192.168.100.228", "[2001:db8::ffff:c0a8:64e4]:0");
}

TEST(at_junk_the_last_good_address_stands)
{
	static const char *const junk[] = {"unknown",
	                                   "_hidden",
	                                   "localhost",
	                                   "203.0.113",
	                                   "203.0.113.9.1",
	                                   "203.0.113.256",
	                                   "203.0.113.09",
	                                   "203.0.113.9:",
	                                   "203.0.113.9:x",
	                                   "203.0.113.9:65536",
	                                   "203.0.113.9:-1",
	                                   "203.0.113.9:1:2",
	                                   "[203.0.113.9]",
	                                   "[203.0.113.9]:80",
	                                   "[::1",
	                                   "[::1]x",
	                                   "[::1]:",
	                                   "[::1]:99999",
	                                   "[]",
	                                   "[",
	                                   "]",
	                                   ":",
	                                   "::1::",
	                                   "fe80::1%eth0",
	                                   "1:2:3:4:5:6:7:8:9",
	                                   "\"203.0.113.9\"",
	                                   "203.0.113.9 x",
	                                   "0xcb.0.113.9",
	                                   "",
	                                   "203.0.113.9;",
	                                   "2001:db8:2001:db8:2001:db8:2001:db8:2001:db8:2001:db8",
	                                   "[[::1]]",
	                                   "203.0.113.9:000080"};
	for (size_t i = 0; i < ARRAY_LEN(junk); i++) {
		char value[256];
		assert_client(junk[i], "10.0.0.1:999");
		snprintf(value, sizeof(value), "6.6.6.6, %s, 10.7.7.7:5", junk[i]);
		assert_client(value, "10.7.7.7:5");
	}
}

TEST(the_walk_has_an_end)
{
	char value[2048] = "6.6.6.6";
	size_t len = strlen(value);
	for (int i = 0; i < FORWARDED_HOPS_MAX - 1; i++)
		len += (size_t)snprintf(value + len, sizeof(value) - len, ",10.0.0.%d", i);
	assert_client(value, "6.6.6.6:0");
	snprintf(value + len, sizeof(value) - len, ",10.0.0.200");
	assert_client(value, "10.0.0.0:0");
}

TEST_MAIN()
