/*
 * Visitors as they come: what browsers, apps and a few machines say about themselves. Counting visits
 * has to make sense of all of it, so a measurement sends all of it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

static const char *const browser_agents[] = {
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 "
    "Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/123.0.0.0 "
    "Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 "
    "Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Mobile "
    "Safari/537.36",
    "Mozilla/5.0 (Linux; Android 14; SM-S918B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/123.0.6312.118 "
    "Mobile "
    "Safari/537.36",
    "Mozilla/5.0 (Linux; Android 13; Pixel 7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/121.0.6167.178 "
    "Mobile "
    "Safari/537.36",
    "Mozilla/5.0 (Linux; Android 13; SM-A536B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/24.0 "
    "Chrome/117.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.4.1 "
    "Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 16_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/16.6 "
    "Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_3 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "CriOS/123.0.6312.52 "
    "Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (iPad; CPU OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 "
    "Mobile/15E148 "
    "Safari/604.1",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4.1 "
    "Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:125.0) Gecko/20100101 Firefox/125.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:115.0) Gecko/20100101 Firefox/115.0",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:124.0) Gecko/20100101 Firefox/124.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:125.0) Gecko/20100101 Firefox/125.0",
    "Mozilla/5.0 (Android 14; Mobile; rv:125.0) Gecko/125.0 Firefox/125.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 "
    "Safari/537.36 "
    "Edg/124.0.2478.51",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 "
    "Safari/537.36 "
    "OPR/108.0.0.0",
    "Mozilla/5.0 (Windows NT 6.1; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/109.0.0.0 "
    "Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Mobile/15E148 "
    "Instagram 325.0.3.34.90 (iPhone14,5; iOS 17_4_1; en_US; en; scale=3.00; 1170x2532; 584219107)",
    "Mozilla/5.0 (Linux; Android 14; SM-G991B; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 "
    "Chrome/123.0.6312.118 Mobile Safari/537.36 [FB_IAB/FB4A;FBAV/458.0.0.54.108;]",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
    "Twitterbot/1.0",
    "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
    "WhatsApp/2.23.20.0",
    "curl/8.5.0",
    "python-requests/2.31.0",
    "Mozilla/5.0 (SMART-TV; Linux; Tizen 6.0) AppleWebKit/537.36 (KHTML, like Gecko) 76.0.3809.146/6.0 TV "
    "Safari/537.36",
};

static const char *const browser_referrers[] = {
    "",
    "",
    "https://www.google.com/",
    "https://www.google.de/",
    "https://www.bing.com/search?q=short+links",
    "https://duckduckgo.com/",
    "https://t.co/",
    "https://www.facebook.com/",
    "https://l.instagram.com/",
    "https://www.linkedin.com/feed/",
    "https://www.reddit.com/r/programming/comments/1c9x2f/a_link/",
    "https://news.ycombinator.com/item?id=40123456",
    "https://mail.example.org/newsletter/2024/05",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "android-app://com.google.android.gm/",
    "https://example.net/blog/ten-things-to-know",
};

static const char *const browser_languages[] = {
    "en-US,en;q=0.9",          "en-GB,en;q=0.8",          "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7",
    "fr-FR,fr;q=0.9,en;q=0.8", "es-ES,es;q=0.9",          "pt-BR,pt;q=0.9",
    "ja-JP,ja;q=0.9",          "zh-CN,zh;q=0.9,en;q=0.8", "nl-NL,nl;q=0.9,en;q=0.8",
    "pl-PL,pl;q=0.9",          "it-IT,it;q=0.9",          "de-CH,de;q=0.9",
};

struct browser {
	const char *agent, *referrer, *language;
};

/* One of them; most come from the first ones of each list. */
static inline struct browser browser_pick(uint64_t chance)
{
	const size_t agents = sizeof(browser_agents) / sizeof(browser_agents[0]);
	const size_t referrers = sizeof(browser_referrers) / sizeof(browser_referrers[0]);
	const size_t languages = sizeof(browser_languages) / sizeof(browser_languages[0]);
	uint32_t a = chance & 0xffff, r = chance >> 16 & 0xffff, l = chance >> 32 & 0xffff;
	return (struct browser){
	    .agent = browser_agents[(uint64_t)a * a * agents >> 32],
	    .referrer = browser_referrers[(uint64_t)r * referrers >> 16],
	    .language = browser_languages[(uint64_t)l * l * languages >> 32],
	};
}
