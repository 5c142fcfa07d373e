/*
 * The floor: what one core pays for a request when nothing is parsed, looked up or decided. A bare epoll loop
 * that answers every read with a constant 302 (one for each empty line in what it read). Nobody can be much
 * cheaper over sockets.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char answer[] = "HTTP/1.1 302 Found\r\n"
                             "Date: Sun, 15 Nov 2026 00:00:00 GMT\r\n"
                             "Location: https://example.com/bench/12345\r\n"
                             "Cache-Control: private, no-store\r\n"
                             "Content-Length: 0\r\n\r\n";

int main(int argc, char **argv)
{
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), epoll_fd = epoll_create1(0);
	struct sockaddr_in addr = {.sin_family = AF_INET,
	                           .sin_port = htons((unsigned short)atoi(argc > 1 ? argv[1] : ""))};
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(listener, 1024) != 0) {
		perror("floor");
		return 1;
	}
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = listener}, events[256];
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &ev);
	static char in[65536], out[65536 * 8];
	for (;;) {
		int n = epoll_wait(epoll_fd, events, 256, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener) {
				fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				ev = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
				epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
				continue;
			}
			ssize_t got = recv(fd, in, sizeof(in), 0);
			if (got <= 0) {
				close(fd);
				continue;
			}
			size_t len = 0;
			for (char *at = in; (at = memmem(at, (size_t)(in + got - at), "\r\n\r\n", 4));
			     at += 4) {
				memcpy(out + len, answer, sizeof(answer) - 1);
				len += sizeof(answer) - 1;
			}
			if (send(fd, out, len, MSG_NOSIGNAL) < 0)
				close(fd);
		}
	}
}
