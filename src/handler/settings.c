/* The settings of handlers: limits, sessions and the cache of accounts. */
#include "handler/api.h"

#define SETTING(...) CONF_ROW(struct api_settings, __VA_ARGS__)

const struct conf_row api_rows[] = {
    SETTING("limits", "creates", CONF_UINT, key_limits.creates_max, "0",
            "Links that a user may create in a period, with sessions and all API keys that have no limits of "
            "their own; 0 is no limit.",
            .max = UINT32_MAX),
    SETTING("limits", "redirects", CONF_UINT, key_limits.redirects_max, "0",
            "Redirects of a user's links in a period, except links that were created with an API key that "
            "has limits of its own; 0 is no limit.",
            .max = UINT32_MAX),
    SETTING("limits", "period", CONF_DURATION, key_limits.period_ms, "1m",
            "The period of these limits, and of an API key's limits that have no period of their own.",
            .min = 1000, .max = 31ULL * 24 * 3600 * 1000),
    SETTING("limits", "misses", CONF_UINT, guess_limits.misses_max, "500",
            "Requests for unknown keys from one address (an IPv6 /64) in a minute; over the limit the "
            "address gets 429 for every link; 0 is no limit. Unknown API keys have a separate limit of the "
            "same size.",
            .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins", CONF_UINT, guess_limits.sign_ins_max, "10",
            "Wrong passwords for one account from one address (an IPv6 /64) in limits.tries_period; and "
            "wrong current passwords of a user who is signed in.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins_account", CONF_UINT, guess_limits.sign_ins_account_max, "100",
            "Wrong passwords for one account from all addresses in limits.tries_period.", .min = 1,
            .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins_address", CONF_UINT, guess_limits.sign_ins_address_max, "50",
            "Wrong passwords for all accounts from one address in limits.tries_period.", .min = 1,
            .max = THROTTLE_MAX),
    SETTING("limits", "passwords_link", CONF_UINT, guess_limits.passwords_link_max, "100",
            "Wrong passwords for one link in limits.tries_period.", .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "passwords_address", CONF_UINT, guess_limits.passwords_address_max, "20",
            "Wrong passwords for all links from one address in limits.tries_period.", .min = 1,
            .max = THROTTLE_MAX),
    SETTING("limits", "tries_period", CONF_DURATION, guess_limits.tries_period_ms, "5m",
            "The period of the limits on wrong passwords.", .min = 1000, .max = THROTTLE_PERIOD_MS_MAX),
    SETTING("serve", "session_time", CONF_DURATION, session_ms, "7d", "How long a session lasts.",
            .min = 1000, .max = 366ULL * 24 * 3600 * 1000),
    SETTING("accounts", "cache_memory", CONF_BYTES, accounts_bytes, "32m",
            "Memory for cached users, API keys and sessions; others are read from the store on use.",
            .min = 1 << 20, .max = 1ULL << 40),
    SETTING("accounts", "stale_time", CONF_DURATION, stale_ms, "60s",
            "How long cached API keys and sessions stay valid while the change feed of the store cannot be "
            "read; after that requests with them get 503. Only for a store that several servers share.",
            .min = 2000, .max = 24ULL * 3600 * 1000),
};
const size_t api_row_count = ARRAY_LEN(api_rows);
