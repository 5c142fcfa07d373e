/*
 * Messages to a loop from other threads, without locks. Senders push onto an atomic stack. The loop takes all
 * of it once a turn and reverses it, so that each sender's mails come in order. A mail belongs to the mailbox
 * from posting until its `open` is called.
 */
#pragma once

#include "base/err.h"

#include <stdatomic.h>

struct mail {
	struct mail *next;
	void (*open)(struct mail *); /* on the loop's thread; may free or post the mail again */
};

struct mailbox {
	_Atomic(struct mail *) head;
	_Atomic bool sleeping; /* the owner waits on `fd`, or is about to */
	int fd;                /* eventfd */
};

int mailbox_init(struct mailbox *m, struct err *e);
void mailbox_release(struct mailbox *m);

void mailbox_post(struct mailbox *m, struct mail *mail); /* any thread */

/* For the owner. It sleeps only between a mailbox_sleep that returned true and mailbox_wake. */
bool mailbox_sleep(struct mailbox *m); /* false: there is mail */
void mailbox_wake(struct mailbox *m);
void mailbox_clear(struct mailbox *m); /* `fd` was readable */
void mailbox_open_all(struct mailbox *m);
