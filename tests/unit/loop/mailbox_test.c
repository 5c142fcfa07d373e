#include "base/def.h"
#include "lib/test.h"
#include "loop/mailbox.h"

#include <poll.h>

enum { SENDERS = 4, MAILS = 20000 };

struct letter {
	struct mail mail;
	int sender;
	int number;
};

static int opened;
static int last_of[SENDERS];

static void letter_open(struct mail *m)
{
	struct letter *l = container_of(m, struct letter, mail);
	assert_int_equal(l->number, last_of[l->sender] + 1);
	last_of[l->sender] = l->number;
	opened++;
}

static struct letter letters[SENDERS][MAILS];
static struct mailbox box;

static void reset(void)
{
	opened = 0;
	for (int s = 0; s < SENDERS; s++) {
		last_of[s] = -1;
		for (int n = 0; n < MAILS; n++)
			letters[s][n] = (struct letter){.mail.open = letter_open, .sender = s, .number = n};
	}
	assert_int_equal(mailbox_init(&box, NULL), 0);
}

static bool fd_is_readable(void)
{
	struct pollfd p = {.fd = box.fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

TEST(mail_is_opened_in_the_order_of_posting)
{
	reset();
	for (int n = 0; n < 100; n++)
		mailbox_post(&box, &letters[0][n].mail);
	mailbox_open_all(&box);
	assert_int_equal(opened, 100);
	mailbox_open_all(&box);
	assert_int_equal(opened, 100);
	mailbox_release(&box);
}

TEST(only_a_sleeper_is_woken_and_only_once)
{
	reset();
	mailbox_post(&box, &letters[0][0].mail);
	assert_false(fd_is_readable());
	assert_false(mailbox_sleep(&box)); /* there is mail: no sleep */
	mailbox_open_all(&box);
	assert_true(mailbox_sleep(&box));
	mailbox_post(&box, &letters[0][1].mail);
	assert_true(fd_is_readable());
	mailbox_clear(&box);
	mailbox_post(&box, &letters[0][2].mail);
	assert_false(fd_is_readable());
	mailbox_wake(&box);
	mailbox_open_all(&box);
	assert_int_equal(opened, 3);
	mailbox_release(&box);
}

static void *send_all(void *arg)
{
	struct letter *mine = arg;
	for (int n = 0; n < MAILS; n++)
		mailbox_post(&box, &mine[n].mail);
	return NULL;
}

/* The owner sleeps on the descriptor whenever it may; a lost wake-up would leave it there for good. */
TEST(no_mail_of_many_senders_is_lost_or_overslept)
{
	pthread_t threads[SENDERS];
	reset();
	for (int s = 0; s < SENDERS; s++)
		assert_int_equal(pthread_create(&threads[s], NULL, send_all, letters[s]), 0);
	while (opened < SENDERS * MAILS) {
		if (mailbox_sleep(&box)) {
			struct pollfd p = {.fd = box.fd, .events = POLLIN};
			assert_int_equal(poll(&p, 1, 30000), 1);
			mailbox_clear(&box);
		}
		mailbox_wake(&box);
		mailbox_open_all(&box);
	}
	for (int s = 0; s < SENDERS; s++)
		pthread_join(threads[s], NULL);
	assert_int_equal(opened, SENDERS * MAILS);
	mailbox_release(&box);
}

TEST_MAIN()
