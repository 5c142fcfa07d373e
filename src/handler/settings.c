/* The settings of handlers: limits, sessions and the cache of accounts. */
#include "handler/api.h"

#define SETTING(...) CONF_ROW(struct api_settings, __VA_ARGS__)

const struct conf_row api_rows[] = {
    SETTING("limits", "creates", CONF_UINT, key_limits.creates_max, "0",
            "How many links a user may create in limits.period, through sessions and all API keys that have "
            "no limits of their own. 0: no limit.",
            .max = UINT32_MAX),
    SETTING("limits", "redirects", CONF_UINT, key_limits.redirects_max, "0",
            "How many redirects a user's links may serve in limits.period. Links created with an API key "
            "that has its own limits do not count. 0: no limit.",
            .max = UINT32_MAX),
    SETTING(
        "limits", "period", CONF_DURATION, key_limits.period_ms, "1m",
        "The period of limits.creates and limits.redirects, and of API keys that have limits but no period.",
        .min = 1000, .max = 31ULL * 24 * 3600 * 1000),
    SETTING("limits", "misses", CONF_UINT, guess_limits.misses_max, "500",
            "How many unknown short links one address (an IPv6 /64) may request in a minute; beyond that it "
            "gets 429 for every link. Unknown API keys have a limit of the same size. 0: no limit.",
            .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins", CONF_UINT, guess_limits.sign_ins_max, "10",
            "How many wrong passwords one address (an IPv6 /64) may send for one account in "
            "limits.throttle_period. Also limits wrong current passwords of a signed-in user.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins_account", CONF_UINT, guess_limits.sign_ins_account_max, "100",
            "How many wrong passwords all addresses may send for one account in limits.throttle_period.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "sign_ins_address", CONF_UINT, guess_limits.sign_ins_address_max, "50",
            "How many wrong passwords one address may send for all accounts in limits.throttle_period.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "passwords_link", CONF_UINT, guess_limits.passwords_link_max, "100",
            "How many wrong passwords all addresses may send for one link in limits.throttle_period.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "passwords_address", CONF_UINT, guess_limits.passwords_address_max, "20",
            "How many wrong passwords one address may send for all links in limits.throttle_period.",
            .min = 1, .max = THROTTLE_MAX),
    SETTING("limits", "throttle_period", CONF_DURATION, guess_limits.tries_period_ms, "5m",
            "The period of the limits on wrong passwords.", .min = 1000, .max = THROTTLE_PERIOD_MS_MAX),
    SETTING("serve", "session_time", CONF_DURATION, session_ms, "7d", "How long a user stays signed in.",
            .min = 1000, .max = 366ULL * 24 * 3600 * 1000),
    SETTING("accounts", "cache_memory", CONF_BYTES, accounts_bytes, "32m",
            "Memory for recently used users, API keys and sessions; the others are read from the store.",
            .min = 1 << 20, .max = 1ULL << 40),
    SETTING("accounts", "stale_time", CONF_DURATION, stale_ms, "60s",
            "How long a server trusts cached API keys and sessions while a shared store does not answer; "
            "after that, requests with them get 503.",
            .min = 2000, .max = 24ULL * 3600 * 1000),
};
const size_t api_row_count = ARRAY_LEN(api_rows);
