/*
 * Classifies user agents: browser and operating system by the rules of uap-core, the class of the device, and
 * whether it is a bot.
 *
 * Rules are loaded at the first user agent that is not cached, and compiled when they are first tried. Memory
 * is bounded: cached results by `cache_entries_max`, names chosen by clients by 4096 (further ones are
 * "Other"). Not thread-safe.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum agent_device {
	AGENT_DEVICE_OTHER, /* unknown, or none of the others: watches, cars, handheld consoles */
	AGENT_DEVICE_DESKTOP,
	AGENT_DEVICE_MOBILE,
	AGENT_DEVICE_TABLET,
	AGENT_DEVICE_TV, /* also set-top boxes, sticks and consoles */
	AGENT_DEVICE_BOT,
};

/* All strings live as long as the `struct agents` that gave them. */
struct agent_info {
	struct str browser; /* uap-core's family: "Chrome Mobile", "Firefox"; "Other" */
	struct str os;      /* uap-core's family: "Windows", "iOS"; "Other" */
	struct str device;  /* its class: "Desktop", "Mobile", "Tablet", "TV", "Bot", "Other" */
	struct str bot;     /* why it is classified as a bot: "crawler", "preview", "monitor", "headless",
	                     * "http-library", "scanner", "feed", "no-user-agent"; STR_NULL for people */
};

struct agents_stats {
	uint64_t hits; /* cached results, and empty user agents */
	uint64_t misses;
	uint64_t entries; /* in the cache */
	uint64_t evictions;
	uint64_t names;         /* of browsers and systems, so far */
	uint64_t names_refused; /* too many, or not printable */
	uint64_t rules_compiled;
	uint64_t rules_run;
	uint64_t skipped;       /* runs of a rule that exceeded a limit */
	uint64_t rules_missing; /* results "Other" because the rules could not be loaded */
};

struct agents;

/* Does not load the rules yet. `cache_entries_max` may be 0. ERR_NOMEM. */
int agents_new(size_t cache_entries_max, struct agents **ret, struct err *e);
void agents_free(struct agents *a);

/* Loads the rules now instead of at the first miss: it takes a while. */
void agents_load(struct agents *a);

/* Never fails: unknown is "Other". `user_agent` is untrusted; only its first 512 bytes are used. */
void agents_find(struct agents *a, struct str user_agent, struct agent_info *ret);

struct agents_stats agents_read_stats(const struct agents *a);

struct str agent_device_name(enum agent_device device);
