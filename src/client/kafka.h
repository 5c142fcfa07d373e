/*
 * Kafka by librdkafka: letters out, each with a receipt, and messages in, as a member of a consumer group.
 *
 * A producer and a consumer each belong to one thread; librdkafka has threads of its own behind them. Every
 * call that waits has a bound. What a broker says is kept as a sentence that names the brokers, and never a
 * password: those are in the options only.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { KAFKA_TOPICS_MAX = 4 };

/* Everything outlives whatever is made of it. */
struct kafka_config {
	const char *brokers; /* host:port, several separated by commas */
	const char *options; /* properties of librdkafka: "name=value,name=value", a comma in a value twice */
	const char *topics[KAFKA_TOPICS_MAX];
	unsigned topic_count;
	unsigned partitions; /* of topics that are missing and therefore made */
};

/* "kafka://host:port,host:port": the brokers, which point into it. ERR_INVALID. */
int kafka_url_brokers(const char *url, const char **ret, struct err *e);

/* Letters out */

enum kafka_outgoing_state {
	MESSAGE_NEW,
	MESSAGE_SENT,      /* it may or may not arrive */
	MESSAGE_DELIVERED, /* all replicas that are in sync have it */
};

/* Letters with the same key are in one partition, and there in the order in which they were sent. */
struct kafka_outgoing {
	unsigned topic; /* index into the config's */
	enum kafka_outgoing_state state;
	struct str key, value;
};

struct kafka_producer;

/* ERR_INVALID when the options are wrong; nothing is connected yet. */
int kafka_producer_new(const struct kafka_config *config, struct kafka_producer **ret, struct err *e);

/* What was not delivered may still have arrived. NULL is fine. */
void kafka_producer_free(struct kafka_producer *p);

/* Does a broker answer? ERR_UNAVAILABLE. Sends nothing, and makes no topics. */
int kafka_producer_ping(struct kafka_producer *p, uint64_t timeout_ms, struct err *e);

/*
 * Sends those that are new, and waits until all are delivered; topics that are missing are made first. 0: all
 * are. ERR_UNAVAILABLE: not yet; call again with the same letters, which are not sent twice. ERR_UNCERTAIN:
 * this producer has failed for good; after it is freed, what is not delivered can be sent by another one, and
 * may then be there twice. The letters' bytes stay where they are until they are delivered or the producer is
 * freed.
 */
int kafka_producer_send(struct kafka_producer *p, struct kafka_outgoing *messages, size_t count,
                        uint64_t timeout_ms, struct err *e);

/* Messages in */

enum { KAFKA_OFFSET_NONE = -1, KAFKA_READ_MAX = 1024 };

struct kafka_place {
	unsigned topic;
	int32_t partition;
	int64_t offset; /* of the next message */
};

struct kafka_message {
	unsigned topic;
	int32_t partition;
	int64_t offset;
	int64_t time_ms; /* as the producer or the broker stamped it; 0: it did not */
	struct str value;
};

/* What the group does, on the consumer's thread, within kafka_consumer_read. Also with nothing given or
 * taken, when the group changes for others: whenever it does, librdkafka drops what it had fetched of
 * partitions that stay, and goes on behind it. So these must be sought again (kafka_consumer_seek). */
struct kafka_listener {
	/* These are to be read by us from now on: once kafka_consumer_start was called, with all of them.
	 * There may be none. */
	void (*given)(void *ctx, const struct kafka_place *places, size_t count);
	/* Not any more. Of these there may still be messages among those that were just read. */
	void (*taken)(void *ctx, const struct kafka_place *places, size_t count);
	void *ctx;
};

struct kafka_consumer;

int kafka_consumer_new(const struct kafka_config *config, const char *group,
                       const struct kafka_listener *listener, struct kafka_consumer **ret, struct err *e);

/* Leaves the group if that can be done in a moment; otherwise the group misses us after a while, and what
 * librdkafka has of it stays until the process ends (which it then does without its libraries' own ends).
 * Nobody listens any more. */
void kafka_consumer_free(struct kafka_consumer *c);

/* The Kafka cluster's own name; STR_NULL: it is not known yet. */
struct str kafka_consumer_cluster(struct kafka_consumer *c, uint64_t timeout_ms);

/* At most KAFKA_READ_MAX; waits up to the timeout for the first of them. Good until the next call. */
size_t kafka_consumer_read(struct kafka_consumer *c, uint64_t timeout_ms, const struct kafka_message **ret);

/* What is known of a partition. */
struct kafka_bounds {
	int64_t group; /* where the group stands; KAFKA_OFFSET_NONE: nowhere */
	int64_t first; /* of the messages that are there, or that will come */
};

/* Asks for the bounds of each place; their offsets do not matter. ERR_UNAVAILABLE. Twice the timeout at most.
 */
int kafka_consumer_find(struct kafka_consumer *c, const struct kafka_place *places, size_t count,
                        struct kafka_bounds *ret, uint64_t timeout_ms);

/* False: they were begun already, because the group did not wait; wherever it stands. */
bool kafka_consumer_start(struct kafka_consumer *c, const struct kafka_place *places, size_t count);

/* Reads a partition from another place on; what was fetched from elsewhere does not come any more. 0, or
 * ERR_UNAVAILABLE: not yet. */
int kafka_consumer_seek(struct kafka_consumer *c, const struct kafka_place *place);

/* Tells the group how far we have come, without waiting for it to hear. */
void kafka_consumer_commit(struct kafka_consumer *c, const struct kafka_place *places, size_t count);

/* The offset behind the last message of a partition that we read, as last heard; KAFKA_OFFSET_NONE: not yet.
 */
int64_t kafka_consumer_end(struct kafka_consumer *c, unsigned topic, int32_t partition);

/* Likewise that of its first one. What is before it is there no more. */
int64_t kafka_consumer_first(struct kafka_consumer *c, unsigned topic, int32_t partition);

/* 0, or why nothing comes at present. Finds out whether a trouble is over, and makes topics that are missing;
 * a second at most. */
int kafka_consumer_trouble(struct kafka_consumer *c, struct err *e);
