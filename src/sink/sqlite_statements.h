/* Every statement of the stats file: an enum in sqlite_sink.h, and the texts in sqlite_tables.c. */
STATEMENT(SQL_BOOK_GET, "SELECT clicks, orphans, impressions, batch_duplicates, unusable_clicks,"
                        " unusable_impressions, rejected, dropped_clicks, duplicates, serial, next_visit,"
                        " kept_ms, retired_clicks, retired_orphans, retired_impressions, new_day, new_shapes,"
                        " new_ads, received_ms, now_ms, new_texts, ads, last_ad, retired_link_clicks,"
                        " digest_row, digest_link, digest_visits, digest_orphans FROM book")
STATEMENT(SQL_BOOK_ADD, "UPDATE book SET clicks = clicks + ?, orphans = orphans + ?,"
                        " impressions = impressions + ?, batch_duplicates = batch_duplicates + ?,"
                        " unusable_clicks = unusable_clicks + ?,"
                        " unusable_impressions = unusable_impressions + ?, rejected = rejected + ?,"
                        " dropped_clicks = dropped_clicks + ?, duplicates = duplicates + ?, serial = ?,"
                        " new_day = ?, new_shapes = ?, new_ads = ?, received_ms = ?, now_ms = ?,"
                        " new_texts = ?, ads = ?, last_ad = ?")
STATEMENT(SQL_BOOK_COMPACTED, "UPDATE book SET next_visit = ?, digest_row = ?, digest_link = ?,"
                              " digest_visits = ?, digest_orphans = ?")
STATEMENT(SQL_BOOK_KEPT, "UPDATE book SET kept_ms = ?")
STATEMENT(SQL_BOOK_RETIRE, "UPDATE book SET retired_clicks = retired_clicks + ?,"
                           " retired_orphans = retired_orphans + ?,"
                           " retired_impressions = retired_impressions + ?,"
                           " retired_link_clicks = retired_link_clicks + ?")
STATEMENT(SQL_BOOK_ADS_DROPPED, "UPDATE book SET ads = ads - ?")
STATEMENT(SQL_BOOK_KEY, "SELECT key FROM book")
STATEMENT(SQL_BOOK_KEY_SET, "UPDATE book SET key = ?")
STATEMENT(SQL_POSITIONS, "SELECT segment, offset FROM position ORDER BY segment LIMIT ?")
STATEMENT(SQL_POSITION_PUT, "INSERT INTO position (segment, offset) VALUES (?, ?)"
                            " ON CONFLICT (segment) DO UPDATE SET offset = excluded.offset")
STATEMENT(SQL_POSITION_DELETE, "DELETE FROM position WHERE segment = ?")
STATEMENT(SQL_SET_BY_HASH, "SELECT id, kind, " DIMENSION_SET_DIMS " FROM shape WHERE hash = ?")
STATEMENT(SQL_SET_BY_ID, "SELECT id, kind, " DIMENSION_SET_DIMS " FROM shape WHERE id = ?")
STATEMENT(SQL_SET_INSERT,
          "INSERT INTO shape (hash, kind, " DIMENSION_SET_DIMS ") VALUES (?,?,?,?,?,?,?,?,?,?)")
STATEMENT(SQL_SET_IS_BOT, "SELECT bot IS NOT NULL FROM shape WHERE id = ?")
STATEMENT(SQL_SET_LAST, "SELECT max(id) FROM shape")
STATEMENT(SQL_TEXT_BY_HASH, "SELECT id, text, last_day FROM text WHERE hash = ?")
STATEMENT(SQL_TEXT_BY_ID, "SELECT text FROM text WHERE id = ?")
STATEMENT(SQL_TEXT_INSERT, "INSERT INTO text (hash, text, last_day) VALUES (?, ?, ?)")
STATEMENT(SQL_TEXT_TOUCH, "UPDATE text SET last_day = ?2 WHERE id = ?1")
STATEMENT(SQL_TEXT_SWEEP, "DELETE FROM text WHERE id > ?1 AND id <= ?2 AND last_day < ?3")
STATEMENT(SQL_TEXT_AFTER, "SELECT max(id) FROM (SELECT id FROM text WHERE id > ?1 ORDER BY id LIMIT ?2)")
STATEMENT(SQL_BUFFER_INSERT, "INSERT INTO fresh (committed_ms, visits, orphans, keys, visitors, details)"
                             " VALUES (?,?,?,?,?,?)")
STATEMENT(SQL_BUFFER_ALL, "SELECT visits, keys, visitors, details, id FROM fresh ORDER BY id")
STATEMENT(SQL_BUFFER_KEYS, "SELECT visits, keys, visitors, id FROM fresh ORDER BY id")
STATEMENT(SQL_BUFFER_SUMS, "SELECT coalesce(sum(visits), 0), coalesce(sum(orphans), 0), min(committed_ms)"
                           " FROM fresh")
STATEMENT(SQL_BUFFER_LAST, "SELECT max(id) FROM fresh")
STATEMENT(SQL_BUFFER_DELETE, "DELETE FROM fresh WHERE id <= ?")
STATEMENT(SQL_VISIT_INSERT, "INSERT INTO visit (first, count, newest_ms, keys, details) VALUES (?,?,?,?,?)")
STATEMENT(SQL_VISIT_KEYS,
          "SELECT first, count, keys FROM visit WHERE first >= coalesce((SELECT max(first) FROM"
          " visit WHERE first <= ?1), ?1) AND first < ?2 ORDER BY first")
STATEMENT(SQL_VISIT_AT, "SELECT first, count, keys, details FROM visit WHERE first <= ?"
                        " ORDER BY first DESC LIMIT 1")
STATEMENT(SQL_VISIT_FIRST, "SELECT first, newest_ms FROM visit ORDER BY first LIMIT 1")
STATEMENT(SQL_VISIT_PAST, "SELECT first, newest_ms FROM visit WHERE newest_ms <= ? ORDER BY first LIMIT 1")
STATEMENT(SQL_VISIT_DELETE, FIRST_BELOW("visit", "first"))
STATEMENT(SQL_VISIT_COUNT, "SELECT coalesce(sum(count), 0) FROM visit")
STATEMENT(SQL_CELL_GET, "SELECT shapes, runs FROM cell WHERE level = ? AND start = ? AND link = ?")
STATEMENT(SQL_CELL_RANGE, "SELECT start, shapes, runs FROM cell WHERE level = ? AND start >= ? AND start < ?"
                          " AND link = ? ORDER BY start")
STATEMENT(SQL_CELL_PUT, "INSERT INTO cell (level, start, link, visits, shapes, runs) VALUES (?,?,?,?,?,?)"
                        " ON CONFLICT (level, start, link) DO UPDATE SET visits = excluded.visits,"
                        " shapes = excluded.shapes, runs = excluded.runs")
STATEMENT(SQL_CELL_OLDEST, "SELECT start, link, visits, shapes, runs FROM cell WHERE level = ?"
                           " ORDER BY start, link LIMIT 1")
STATEMENT(SQL_CELL_NEWEST, "SELECT start FROM cell WHERE level = ? ORDER BY start DESC LIMIT 1")
STATEMENT(SQL_CELL_DELETE, "DELETE FROM cell WHERE level = ? AND start = ? AND link = ?")
STATEMENT(SQL_CELL_SUMS, "SELECT coalesce(sum(CASE WHEN link >= 0 THEN visits END), 0),"
                         " coalesce(sum(CASE WHEN link < 0 THEN visits END), 0)"
                         " FROM cell WHERE level >= ? AND level < ?")
STATEMENT(SQL_DAY_LINK_GET, "SELECT clicks, hours, visitors, bots FROM day_link WHERE day = ? AND link = ?")
STATEMENT(SQL_DAY_LINK_PUT,
          "INSERT INTO day_link (day, link, clicks, hours, visitors, bots) VALUES (?,?,?,?,?,?)"
          " ON CONFLICT (day, link) DO UPDATE SET clicks = excluded.clicks,"
          " hours = excluded.hours, visitors = excluded.visitors, bots = excluded.bots")
STATEMENT(SQL_DAY_LINK_COUNT, "UPDATE day_link SET clicks = ?3, hours = ?4 WHERE day = ?1 AND link = ?2")
STATEMENT(SQL_DAY_LINK_RANGE, "SELECT link, clicks FROM day_link WHERE day >= ? AND day < ?")
STATEMENT(SQL_DAY_LINK_FROM, "SELECT day FROM day_link WHERE day >= ? ORDER BY day LIMIT 1")
STATEMENT(SQL_DAY_LINK_UP_TO, "SELECT day FROM day_link WHERE day <= ? ORDER BY day DESC LIMIT 1")
STATEMENT(SQL_DAY_LINK_DELETE, "DELETE FROM day_link WHERE (day, link) IN"
                               " (SELECT day, link FROM day_link WHERE day < ? ORDER BY day, link LIMIT ?)")
STATEMENT(SQL_TOTAL_ADD, "INSERT INTO total (link, clicks, flushed) VALUES (?, ?, 0)"
                         " ON CONFLICT (link) DO UPDATE SET clicks = clicks + excluded.clicks, flushed = 0")
STATEMENT(SQL_TOTAL_GET, "SELECT clicks FROM total WHERE link = ?")
STATEMENT(SQL_TOTALS_UNFLUSHED, "SELECT link, clicks FROM total WHERE flushed = 0 ORDER BY link LIMIT ?")
STATEMENT(SQL_TOTAL_FLUSHED, "UPDATE total SET flushed = 1 WHERE link = ? AND clicks = ? AND flushed = 0")
STATEMENT(SQL_AD_BY_NAME, "SELECT id, last_day FROM ad WHERE name = ?")
STATEMENT(SQL_AD_BY_ID, "SELECT name FROM ad WHERE id = ?")
STATEMENT(SQL_AD_INSERT, "INSERT INTO ad (id, name, last_day) VALUES (?, ?, ?)")
STATEMENT(SQL_AD_TOUCH, "UPDATE ad SET last_day = ?2 WHERE id = ?1")
STATEMENT(SQL_AD_SWEEP, "DELETE FROM ad WHERE id > ?1 AND id <= ?2 AND last_day < ?3")
STATEMENT(SQL_AD_AFTER, "SELECT max(id) FROM (SELECT id FROM ad WHERE id > ?1 ORDER BY id LIMIT ?2)")
STATEMENT(SQL_AD_CELL_GET, "SELECT ads FROM ad_cell WHERE at = ?")
STATEMENT(SQL_AD_CELL_PUT, "INSERT INTO ad_cell (at, count, ads) VALUES (?, ?, ?)"
                           " ON CONFLICT (at) DO UPDATE SET count = excluded.count, ads = excluded.ads")
STATEMENT(SQL_AD_CELL_RANGE, "SELECT ads FROM ad_cell WHERE at >= ? AND at < ?")
STATEMENT(SQL_AD_CELL_DELETE, FIRST_BELOW("ad_cell", "at"))
STATEMENT(SQL_AD_CELL_OLDEST, "SELECT at, count FROM ad_cell WHERE at >= ? ORDER BY at LIMIT 1")
STATEMENT(SQL_AD_CELL_SUM, "SELECT coalesce(sum(count), 0) FROM ad_cell WHERE at >= ?")
STATEMENT(SQL_IMPRESSION_LAST, "SELECT at FROM impression WHERE at >= ? AND at < ? ORDER BY at DESC LIMIT 1")
STATEMENT(SQL_IMPRESSION_INSERT, "INSERT INTO impression (at, count, ads, details) VALUES (?, ?, ?, ?)"
                                 " ON CONFLICT (at) DO UPDATE SET count = count + excluded.count,"
                                 " ads = CAST(ads || excluded.ads AS BLOB),"
                                 " details = CAST(details || excluded.details AS BLOB)")
STATEMENT(SQL_IMPRESSION_RANGE, "SELECT at, ads FROM impression WHERE at >= ? AND at < ?")
STATEMENT(SQL_IMPRESSION_DELETE, FIRST_BELOW("impression", "at"))
STATEMENT(SQL_IMPRESSION_COUNT, "SELECT coalesce(sum(count), 0) FROM impression")
STATEMENT(SQL_SEEN_BATCH_INSERT, "INSERT INTO seen_batch (entries) VALUES (?)")
STATEMENT(SQL_SEEN_BATCHES, "SELECT entries FROM seen_batch ORDER BY id")
STATEMENT(SQL_SEEN_BATCH_DELETE, "DELETE FROM seen_batch")
STATEMENT(SQL_SEEN_RUN_INSERT, "INSERT INTO seen_run (newest_ms, filter) VALUES (?, ?)")
STATEMENT(SQL_SEEN_RUNS, "SELECT run, newest_ms, filter FROM seen_run ORDER BY run")
STATEMENT(SQL_SEEN_RUN_DELETE, "DELETE FROM seen_run WHERE run = ?")
STATEMENT(SQL_SEEN_CHUNK_INSERT, "INSERT INTO seen_chunk (at, entries) VALUES (?, ?)")
STATEMENT(SQL_SEEN_CHUNK_AT, "SELECT entries FROM seen_chunk WHERE at >= ?1 AND at <= ?2"
                             " ORDER BY at DESC LIMIT 1")
STATEMENT(SQL_SEEN_CHUNK_DELETE, FIRST_BELOW("seen_chunk", "at"))

/* For verification: all rows. */
STATEMENT(SQL_CELLS, "SELECT visits, shapes, runs FROM cell")
STATEMENT(SQL_AD_CELLS, "SELECT count, ads FROM ad_cell")
STATEMENT(SQL_VISITS, "SELECT count, keys, details FROM visit")
STATEMENT(SQL_BUFFER_VISITS, "SELECT visits, keys, details FROM fresh")
STATEMENT(SQL_TEXTS, "SELECT hash, text FROM text")
STATEMENT(SQL_SETS, "SELECT hash, kind, " DIMENSION_SET_DIMS " FROM shape")
