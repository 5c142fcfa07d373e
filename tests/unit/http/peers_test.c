#include "http/peers.h"
#include "lib/test.h"

#include <arpa/inet.h>

static struct net_addr v4(uint32_t n)
{
	struct net_addr a = {.len = sizeof(a.v4)};
	a.v4.sin_family = AF_INET;
	a.v4.sin_addr.s_addr = htonl(n);
	return a;
}

static struct net_addr v6(const char *text)
{
	struct net_addr a = {.len = sizeof(a.v6)};
	a.v6.sin6_family = AF_INET6;
	assert_int_equal(inet_pton(AF_INET6, text, &a.v6.sin6_addr), 1);
	return a;
}

TEST(an_address_holds_so_many_and_no_more)
{
	struct peers *p = peers_new(100);
	struct net_addr a = v4(1), b = v4(2);
	for (int i = 0; i < 3; i++)
		assert_true(peers_enter(p, &a, 3));
	assert_false(peers_enter(p, &a, 3));
	assert_true(peers_enter(p, &b, 3));
	peers_leave(p, &a);
	assert_true(peers_enter(p, &a, 3));
	assert_false(peers_enter(p, &a, 3));
	peers_free(p);
}

TEST(zero_is_no_bound)
{
	struct peers *p = peers_new(100);
	struct net_addr a = v4(1);
	for (int i = 0; i < 10000; i++)
		assert_true(peers_enter(p, &a, 0));
	peers_free(p);
}

TEST(ipv6_counts_by_its_upper_half_and_mapped_ipv4_as_ipv4)
{
	struct peers *p = peers_new(100);
	struct net_addr a = v6("2001:db8::1"), same_net = v6("2001:db8::ffff:1"),
	                other_net = v6("2001:db8:0:1::1");
	assert_true(peers_enter(p, &a, 1));
	assert_false(peers_enter(p, &same_net, 1));
	assert_true(peers_enter(p, &other_net, 1));
	struct net_addr mapped = v6("::ffff:192.0.2.1"), mapped_other = v6("::ffff:192.0.2.2"),
	                plain = v4(0xc0000201);
	assert_true(peers_enter(p, &mapped, 1));
	assert_true(peers_enter(p, &mapped_other, 1));
	assert_false(peers_enter(p, &plain, 1));
	peers_free(p);
}

/* Against a plain array of counts: removal in an open-addressed table is where mistakes hide. */
TEST(it_counts_like_a_plain_array_would)
{
	enum { ADDRESSES = 400, STEPS = 200000, MOST = 5 };
	static uint32_t counts[ADDRESSES];
	struct peers *p = peers_new(ADDRESSES);
	uint64_t random = 12345;
	for (int i = 0; i < STEPS; i++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		uint32_t n = (uint32_t)(random >> 33) % ADDRESSES;
		struct net_addr a = v4(n);
		if ((random >> 20) & 1) {
			assert_int_equal(peers_enter(p, &a, MOST), counts[n] < MOST);
			counts[n] += counts[n] < MOST;
		} else if (counts[n] > 0) {
			peers_leave(p, &a);
			counts[n]--;
		}
	}
	peers_free(p);
}

TEST_MAIN()
