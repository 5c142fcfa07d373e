#include "os/reclaim.h"

#include <urcu-qsbr.h>

/*
 * liburcu orders memory with its own barriers, in a library that is not instrumented: the thread sanitizer
 * cannot see that a free after reclaim_wait comes after the readers' last look. Under that sanitizer
 * alone, say so explicitly; nothing is suppressed.
 */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
static char order_tag;
static void readers_done(void)
{
	__tsan_release(&order_tag);
}
static void readers_were_done(void)
{
	__tsan_acquire(&order_tag);
}
#else
static void readers_done(void)
{
}
static void readers_were_done(void)
{
}
#endif

void reclaim_reader_register(void)
{
	rcu_register_thread();
}

void reclaim_reader_unregister(void)
{
	readers_done();
	rcu_unregister_thread();
}

void reclaim_reader_quiescent(void)
{
	readers_done();
	rcu_quiescent_state();
}

void reclaim_reader_offline(void)
{
	readers_done();
	rcu_thread_offline();
}

void reclaim_reader_online(void)
{
	rcu_thread_online();
}

void reclaim_wait(void)
{
	synchronize_rcu();
	readers_were_done();
}
