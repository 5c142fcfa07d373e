/* The settings of requests, accounts and limits. */
#include "handler/api.h"

#define SETTING(...) CONF_ROW(struct api_settings, __VA_ARGS__)

const struct conf_row api_rows[] = {
    SETTING(
        "limits", "creates", CONF_UINT, key_limits.creates_max, "0",
        "Links that a user may make in a period, by session and by all API keys without limits of their own "
        "together; 0 is no limit.",
        .max = UINT32_MAX),
    SETTING("limits", "redirects", CONF_UINT, key_limits.redirects_max, "0",
            "Redirections of a user's links in a period, but for those of links that were made with an "
            "API key that has limits of its own; 0 is no limit.",
            .max = UINT32_MAX),
    SETTING("limits", "period", CONF_DURATION, key_limits.period_ms, "1m",
            "The period of those limits, and of an API key's own limits that name none.", .min = 1000,
            .max = 31ULL * 24 * 3600 * 1000),
    SETTING(
        "limits", "misses", CONF_UINT, guess_limits.misses_max, "500",
        "Requests for keys that are none, from one address (an IPv6 /64) in a minute; beyond "
        "them it gets 429 for every link; 0 is no limit. Unknown API keys are counted apart, with the same "
        "limit.",
        .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins", CONF_UINT, guess_limits.sign_ins_max, "10",
            "Wrong passwords for one account from one address (an IPv6 /64) in limits.tries_period; and "
            "wrong current passwords of somebody who is signed in.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins_account", CONF_UINT, guess_limits.sign_ins_account_max, "100",
            "Wrong passwords for one account from all addresses in limits.tries_period.", .min = 1,
            .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins_address", CONF_UINT, guess_limits.sign_ins_address_max, "50",
            "Wrong passwords for accounts from one address in limits.tries_period.", .min = 1,
            .max = THROTTLE_MAX),
    SETTING("limits", "passwords_link", CONF_UINT, guess_limits.passwords_link_max, "100",
            "Wrong passwords for one link in limits.tries_period.", .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "passwords_address", CONF_UINT, guess_limits.passwords_address_max, "20",
            "Wrong passwords for links from one address in limits.tries_period.", .min = 1,
            .max = THROTTLE_MAX),
    SETTING("limits", "tries_period", CONF_DURATION, guess_limits.throttle_ms, "5m",
            "The period of the limits of wrong passwords.", .min = 1000, .max = THROTTLE_PERIOD_MS_MAX),
    SETTING("serve", "session_time", CONF_DURATION, session_ms, "7d",
            "How long somebody who signs in stays signed in.", .min = 1000, .max = 366ULL * 24 * 3600 * 1000),
    SETTING("accounts", "cache_memory", CONF_BYTES, accounts_bytes, "32m",
            "Memory for users, API keys and sessions that were used lately; the others are read when "
            "they are.",
            .min = 1 << 20, .max = 1ULL << 40),
    SETTING("accounts", "stale_time", CONF_DURATION, stale_ms, "60s",
            "How long API keys and sessions are honoured from memory while the database does not say "
            "whether they have changed; after that they get 503. Only for a store that several servers "
            "share.",
            .min = 2000, .max = 24ULL * 3600 * 1000),
};
const size_t api_row_count = ARRAY_LEN(api_rows);
