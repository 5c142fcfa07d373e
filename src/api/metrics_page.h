/* docs/metrics.md; the handler of /metrics is in api/handlers.h. */
#pragma once

#include "base/buf.h"

void metrics_markdown_page(struct buf *out);
