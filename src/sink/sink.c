#include "sink/sink.h"

const char *const visit_dim_names[DIM_COUNT] = {
    [DIM_REFERRER] = "referrer", [DIM_COUNTRY] = "country",   [DIM_BROWSER] = "browser", [DIM_OS] = "os",
    [DIM_DEVICE] = "device",     [DIM_LANGUAGE] = "language", [DIM_SOURCE] = "source",   [DIM_BOT] = "bot",
};
