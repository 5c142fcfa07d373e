/* What Redis does for the counters, each in one step. All have KEYS: a stream's hash, the set of all streams.
 */
#pragma once

extern const char counters_add_script[];
extern const char counters_announce_script[];
extern const char counters_put_script[];
extern const char counters_read_script[];
extern const char counters_told_script[];
extern const char counters_untold_script[];
extern const char counters_trim_script[];
extern const char counters_get_script[];
