#include "cmd/secret.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* Signals that end or stop a command. */
static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

static volatile sig_atomic_t came; /* the last of them; written by the handler, inside ppoll only */

static void note_signal(int number)
{
	came = number;
}

void secret_wipe(struct secret *s)
{
	sodium_memzero(s, sizeof(*s));
}

/* Waits for a byte and lets signals in, when `open` is not NULL. False: a signal came. */
static bool wait_for_byte(const sigset_t *open)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	while (open && ppoll(&in, 1, NULL, open) < 0 && errno == EINTR) {
		if (came)
			return false;
	}
	return true;
}

/* Byte by byte: a buffer of the C library would keep a copy. ERR_BUSY: a signal came. */
static int read_line(struct secret *ret, const sigset_t *open, struct err *e)
{
	char c;
	ret->len = 0;
	for (;;) {
		if (!wait_for_byte(open))
			return ERR_BUSY;
		ssize_t n = read(STDIN_FILENO, &c, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, ERR_UNAVAILABLE, "cannot read the password: %s", strerror(errno));
		if (n == 0 && ret->len == 0)
			return err_set(e, ERR_INVALID, "no password on standard input; give it as one line");
		if (n == 0 || c == '\n')
			return 0;
		if (ret->len == sizeof(ret->text))
			return err_set(e, ERR_INVALID, "a password has at most %d bytes", SECRET_BYTES_MAX);
		ret->text[ret->len++] = c;
	}
}

/* Only the end of the line is shown. The terminal stops a background process here until it is in the
 * foreground. */
static int read_hidden(const char *prompt, const sigset_t *open, struct secret *ret, struct err *e)
{
	struct termios shown, hidden;
	if (tcgetattr(STDIN_FILENO, &shown) < 0)
		return err_set(e, ERR_UNAVAILABLE, "cannot hide what is typed: %s", strerror(errno));
	hidden = shown;
	hidden.c_lflag &= ~(tcflag_t)ECHO;
	hidden.c_lflag |= ECHONL;
	if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) < 0)
		return err_set(e, ERR_UNAVAILABLE, "cannot hide what is typed: %s", strerror(errno));
	fputs(prompt, stderr);
	int r = read_line(ret, open, e);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
	return r;
}

/* A signal is taken between two bytes only, and delivered after the terminal is restored. When the process
 * continues after that, it was only stopped: the prompt comes again. */
static int read_asked(const char *prompt, struct secret *ret, struct err *e)
{
	sigset_t held, open;
	struct sigaction before[ARRAY_LEN(signals)];
	const struct sigaction note = {.sa_handler = note_signal};
	for (;;) {
		came = 0;
		sigemptyset(&held);
		for (size_t i = 0; i < ARRAY_LEN(signals); i++)
			sigaddset(&held, signals[i]);
		sigprocmask(SIG_BLOCK, &held, &open);
		for (size_t i = 0; i < ARRAY_LEN(signals); i++)
			sigaction(signals[i], &note, &before[i]);
		int r = read_hidden(prompt, &open, ret, e);
		for (size_t i = 0; i < ARRAY_LEN(signals); i++)
			sigaction(signals[i], &before[i], NULL);
		if (came) {
			secret_wipe(ret);
			fputc('\n', stderr);
			raise(came);
		}
		sigprocmask(SIG_SETMASK, &open, NULL);
		if (!came)
			return r;
	}
}

int secret_read(struct secret *ret, const char *whose, struct err *e)
{
	char prompt[512];
	struct secret CLEANUP(secret_wipe) again = {0};
	if (!isatty(STDIN_FILENO))
		return read_line(ret, NULL, e);
	snprintf(prompt, sizeof(prompt), "%.400s: ", whose);
	int r = read_asked(prompt, ret, e);
	if (r < 0)
		return r;
	snprintf(prompt, sizeof(prompt), "%.400s, once more: ", whose);
	r = read_asked(prompt, &again, e);
	if (r == 0 && (ret->len != again.len || memcmp(ret->text, again.text, ret->len) != 0))
		r = err_set(e, ERR_INVALID, "the two passwords differ; nothing was changed");
	return r;
}
