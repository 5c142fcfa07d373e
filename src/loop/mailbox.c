#include "loop/mailbox.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mailbox_init(struct mailbox *m, struct err *e)
{
	atomic_init(&m->head, NULL);
	atomic_init(&m->sleeping, false);
	m->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (m->fd < 0)
		return err_set(e, ERR_UNAVAILABLE, "cannot create an eventfd: %s", strerror(errno));
	return 0;
}

void mailbox_release(struct mailbox *m)
{
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
}

/*
 * The sender pushes, then looks at `sleeping`; the owner sets `sleeping`, then looks at `head`. Both pairs
 * are sequentially consistent, so at least one of the two sees the other, and no mail waits unseen. The
 * sender that clears `sleeping` writes to the eventfd: one system call per sleep, not per mail.
 */
void mailbox_post(struct mailbox *m, struct mail *mail)
{
	struct mail *head = atomic_load_explicit(&m->head, memory_order_relaxed);
	do {
		mail->next = head;
	} while (!atomic_compare_exchange_weak(&m->head, &head, mail));
	if (atomic_load(&m->sleeping) && atomic_exchange(&m->sleeping, false)) {
		uint64_t one = 1;
		ssize_t written = write(m->fd, &one, sizeof(one));
		(void)written; /* fails only when the counter is full: then the owner is awake */
	}
}

bool mailbox_sleep(struct mailbox *m)
{
	atomic_store(&m->sleeping, true);
	if (!atomic_load(&m->head))
		return true;
	mailbox_wake(m);
	return false;
}

void mailbox_wake(struct mailbox *m)
{
	atomic_store_explicit(&m->sleeping, false, memory_order_relaxed);
}

void mailbox_clear(struct mailbox *m)
{
	uint64_t count;
	ssize_t got = read(m->fd, &count, sizeof(count));
	(void)got; /* EAGAIN: the wake-up came late */
}

void mailbox_open_all(struct mailbox *m)
{
	if (!atomic_load_explicit(&m->head, memory_order_relaxed))
		return;
	struct mail *stack = atomic_exchange_explicit(&m->head, NULL, memory_order_acquire);
	struct mail *in_order = NULL;
	while (stack) {
		struct mail *next = stack->next;
		stack->next = in_order;
		in_order = stack;
		stack = next;
	}
	while (in_order) {
		struct mail *next = in_order->next;
		in_order->open(in_order);
		in_order = next;
	}
}
