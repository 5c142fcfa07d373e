/*
 * Who is visiting, as far as the User-Agent field tells: browser and operating system by the rules
 * of uap-core, the class of the device, and whether it is a machine rather than a person.
 *
 * Nothing is read or compiled before the first agent that is not known; answers are kept, because agents
 * repeat. Memory is bounded whatever arrives: answers by `cache_entries_max`, names that agents make up
 * themselves by 4096 (further ones are "Other"). For one thread.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum agent_device {
	AGENT_DEVICE_OTHER, /* not known, or none of the others: watches, cars, handheld consoles */
	AGENT_DEVICE_DESKTOP,
	AGENT_DEVICE_MOBILE,
	AGENT_DEVICE_TABLET,
	AGENT_DEVICE_TV, /* and what is plugged into one: boxes, sticks, consoles */
	AGENT_DEVICE_BOT,
};

/* All strings live as long as the `struct agents` that gave them. */
struct agent_info {
	struct str browser; /* uap-core's family: "Chrome Mobile", "Firefox"; "Other" */
	struct str os;      /* uap-core's family: "Windows", "iOS"; "Other" */
	struct str device;  /* the name of its class: "Desktop", "Mobile", "Tablet", "TV", "Bot", "Other" */
	struct str bot;     /* why it is taken for a machine: "crawler", "preview", "monitor", "headless",
	                     * "http-library", "scanner", "feed", "no-user-agent"; STR_NULL for people */
};

struct agents_stats {
	uint64_t hits; /* answers that were known, and agents without text */
	uint64_t misses;
	uint64_t entries; /* answers kept now */
	uint64_t evictions;
	uint64_t names;         /* of browsers and systems, so far */
	uint64_t names_refused; /* because there were too many, or they were not fit to print */
	uint64_t rules_compiled;
	uint64_t rules_run;
	uint64_t skipped;       /* runs of a rule that met a limit and were given up */
	uint64_t rules_missing; /* agents answered "Other" because the rules could not be loaded */
};

struct agents;

/* Reads nothing yet: cheap in time and memory. `cache_entries_max` may be 0. ERR_NOMEM. */
int agents_new(size_t cache_entries_max, struct agents **ret, struct err *e);
void agents_free(struct agents *a);

/* Reads the rules, unless that was done; the first agents_find would, and it takes a while. */
void agents_load(struct agents *a);

/* Never fails: what cannot be told is "Other". `user_agent` is hostile bytes; what is behind the first 512
 * is not looked at. */
void agents_find(struct agents *a, struct str user_agent, struct agent_info *ret);

struct agents_stats agents_read_stats(const struct agents *a);

struct str agent_device_name(enum agent_device device);
