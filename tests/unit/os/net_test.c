#include "lib/test.h"
#include "os/net.h"

#include <sys/wait.h>

static void assert_parses(const char *text, const char *expected)
{
	struct net_addr a;
	char out[NET_ADDR_TEXT_BYTES];
	MUST(net_addr_parse(str_of(text), &a, &why));
	struct str s = net_addr_format(&a, out);
	assert_string_equal(out, expected);
	assert_int_equal(s.len, strlen(expected));
}

static void assert_refused(struct str text, const char *hint)
{
	struct net_addr a;
	struct err e = {""};
	assert_int_equal(net_addr_parse(text, &a, &e), ERR_INVALID);
	if (!strstr(e.text, hint))
		fail_msg("'%s' does not say '%s'", e.text, hint);
}

TEST(addresses_parse_and_print)
{
	assert_parses("127.0.0.1:8080", "127.0.0.1:8080");
	assert_parses("0.0.0.0:65535", "0.0.0.0:65535");
	assert_parses(":8080", "0.0.0.0:8080");
	assert_parses("localhost:0", "127.0.0.1:0");
	assert_parses("LocalHost:1", "127.0.0.1:1");
	assert_parses("[::1]:8080", "[::1]:8080");
	assert_parses("[::]:80", "[::]:80");
	assert_parses("[2001:DB8:0:0:0:0:0:1]:80", "[2001:db8::1]:80");
	assert_parses("[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535",
	              "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
}

TEST(what_is_no_address_is_told_the_form)
{
	assert_refused(STR("8080"), "HOST:PORT");
	assert_refused(STR(""), "HOST:PORT");
	assert_refused(STR_NULL, "HOST:PORT");
	assert_refused(STR("127.0.0.1"), "HOST:PORT");
	assert_refused(STR("127.0.0.1:"), "HOST:PORT");
	assert_refused(STR("127.0.0.1:http"), "HOST:PORT");
	assert_refused(STR("127.0.0.1:+80"), "HOST:PORT");
	assert_refused(STR("127.0.0.1: 80"), "HOST:PORT");
	assert_refused(STR("127.0.0.1:99999999999999999999"), "HOST:PORT");
	assert_refused(STR("127.0.0.1:65536"), "65535");
	assert_refused(STR("[::1:80"), "brackets");
	assert_refused(STR("::1:8080"), "brackets");
	assert_refused(STR("[::1]"), "HOST:PORT");
	assert_refused(STR("[]:80"), "HOST:PORT");
	assert_refused(STR("[:80"), "numeric");
	assert_refused(STR("[1.2.3.4]:80"), "HOST:PORT");
	assert_refused(STR("[::g]:80"), "HOST:PORT");
	assert_refused(STR("[fe80::1%eth0]:80"), "HOST:PORT");
	assert_refused(STR("example.com:80"), "numeric");
	assert_refused(STR("256.0.0.1:80"), "numeric");
	assert_refused(STR("1.2.3:80"), "numeric");
	assert_refused(STR("127.0.0.1\0:80"), "numeric");
	assert_refused(STR("1\0:80"), "numeric");
	assert_refused(STR("[::1\0]:80"), "HOST:PORT");
	assert_refused(STR("http://127.0.0.1:80"), "brackets");
}

TEST(a_long_text_is_quoted_in_part)
{
	char text[1000];
	memset(text, 'a', sizeof(text));
	text[900] = ':';
	memset(text + 901, '1', 3);
	assert_refused(str_n(text, 904), "numeric");
	assert_refused(str_n(text, 900), "HOST:PORT");
}

static bool is_loopback(const char *text)
{
	struct net_addr a;
	assert_int_equal(net_addr_parse(str_of(text), &a, NULL), 0);
	return net_addr_is_loopback(&a);
}

TEST(loopback_is_known_in_all_its_forms)
{
	assert_true(is_loopback("127.0.0.1:1"));
	assert_true(is_loopback("127.255.0.9:1"));
	assert_true(is_loopback("[::1]:1"));
	assert_true(is_loopback("[::ffff:127.0.0.1]:1"));
	assert_false(is_loopback(":1"));
	assert_false(is_loopback("[::]:1"));
	assert_false(is_loopback("128.0.0.1:1"));
	assert_false(is_loopback("[::ffff:128.0.0.1]:1"));
	assert_false(is_loopback("[2001:db8::1]:1"));
	struct net_addr none = {.len = 0};
	assert_false(net_addr_is_loopback(&none));
}

static struct net_addr any_port(void)
{
	struct net_addr a;
	assert_int_equal(net_addr_parse(STR("127.0.0.1:0"), &a, NULL), 0);
	return a;
}

static int option(int fd, int name)
{
	int value = 0;
	socklen_t len = sizeof(value);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, name, &value, &len), 0);
	return value;
}

TEST(a_listener_says_which_port_it_got_and_takes_connections)
{
	struct net_addr a = any_port();
	struct err e;
	int fd = -1;
	assert_int_equal(net_listen(&a, 16, &fd, &e), 0);
	assert_int_not_equal(a.v4.sin_port, 0);
	assert_int_equal(option(fd, SO_REUSEADDR), 1);
	assert_int_equal(option(fd, SO_REUSEPORT), 1);
	assert_int_equal(option(fd, SO_ACCEPTCONN), 1);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(accept(fd, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(client, &a.any, a.len), 0);
	close(client);
	close(fd);
}

TEST(further_listeners_share_the_port)
{
	struct net_addr a = any_port();
	struct err e;
	int first, second;
	assert_int_equal(net_listen(&a, 16, &first, &e), 0);
	struct net_addr b = a;
	assert_int_equal(net_listen(&b, 16, &second, &e), 0);
	assert_int_equal(b.v4.sin_port, a.v4.sin_port);
	close(first);
	close(second);
}

TEST(a_port_that_even_a_sharing_listener_holds_is_not_free)
{
	struct net_addr a = any_port(), every;
	struct err e = {""};
	char text[NET_ADDR_TEXT_BYTES];
	int fd;
	assert_int_equal(net_port_is_free(&a, &e), 0);
	assert_int_equal(net_listen(&a, 16, &fd, &e), 0);
	assert_int_equal(net_port_is_free(&a, &e), ERR_BUSY);
	net_addr_format(&a, text);
	assert_non_null(strstr(e.text, text));
	assert_non_null(strstr(e.text, "another process listens there"));
	assert_non_null(strstr(e.text, "--listen"));
	assert_int_equal(net_addr_parse(STR(":0"), &every, NULL), 0);
	every.v4.sin_port = a.v4.sin_port;
	assert_int_equal(net_port_is_free(&every, &e), ERR_BUSY); /* the same port on all addresses */
	close(fd);
	assert_int_equal(net_port_is_free(&a, &e), 0);
}

TEST(old_connections_of_a_port_do_not_hold_it)
{
	struct net_addr a = any_port();
	struct err e;
	int fd;
	assert_int_equal(net_listen(&a, 16, &fd, &e), 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(client, &a.any, a.len), 0);
	int served = accept(fd, NULL, NULL);
	assert_true(served >= 0);
	close(served); /* the server's side closes first and stays in TIME_WAIT */
	char c;
	assert_int_equal(read(client, &c, 1), 0);
	close(client);
	close(fd);
	assert_int_equal(net_port_is_free(&a, &e), 0);
	assert_int_equal(net_listen(&a, 16, &fd, &e), 0);
	close(fd);
}

TEST(an_address_in_use_is_an_error_that_names_it)
{
	struct net_addr a = any_port();
	struct err e;
	char text[NET_ADDR_TEXT_BYTES];
	int alone = socket(AF_INET, SOCK_STREAM, 0), fd = -1;
	assert_int_equal(bind(alone, &a.any, a.len), 0);
	assert_int_equal(listen(alone, 1), 0);
	assert_int_equal(getsockname(alone, &a.any, &a.len), 0);
	struct net_addr before = a;
	assert_int_equal(net_listen(&a, 16, &fd, &e), ERR_BUSY);
	assert_int_equal(fd, -1);
	assert_memory_equal(&a.v4, &before.v4, sizeof(a.v4));
	net_addr_format(&a, text);
	assert_non_null(strstr(e.text, text));
	assert_non_null(strstr(e.text, "already in use"));
	close(alone);
}

static int listen_without_privileges(uint16_t port)
{
	struct net_addr a = any_port();
	struct err e = {""};
	int fd;
	if (geteuid() == 0 && setuid(65534) < 0)
		return 2;
	a.v4.sin_port = htons(port);
	if (net_listen(&a, 16, &fd, &e) == 0)
		return 2; /* some containers let everybody bind every port */
	return !strstr(e.text, "permission denied") || !strstr(e.text, "below 1024") ||
	       !strstr(e.text, "127.0.0.1:1:");
}

TEST(a_port_below_1024_without_privileges_is_explained)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(listen_without_privileges(1));
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2) {
		print_message("skipped: this machine lets everybody listen below port 1024, or gives up no "
		              "privileges\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(an_address_of_another_machine_is_an_error_that_names_it)
{
	struct net_addr a;
	struct err e;
	int fd;
	assert_int_equal(net_addr_parse(STR("192.0.2.1:8080"), &a, &e), 0);
	assert_int_equal(net_listen(&a, 16, &fd, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "192.0.2.1:8080"));
	assert_non_null(strstr(e.text, "no such address"));
}

TEST(ipv6_listens_where_the_machine_has_it)
{
	struct net_addr a, v4 = any_port();
	struct err e;
	int fd;
	assert_int_equal(net_addr_parse(STR("[::]:0"), &a, &e), 0);
	int r = net_listen(&a, 16, &fd, &e);
	if (r == ERR_UNAVAILABLE || r == ERR_INVALID) {
		print_message("skipped: this machine has no IPv6: %s\n", e.text);
		skip();
	}
	assert_int_equal(r, 0);
	v4.v4.sin_port = a.v6.sin6_port;
	int client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(client, &v4.any, v4.len), 0); /* IPv4 is served too */
	close(client);
	close(fd);
}

TEST_MAIN()
