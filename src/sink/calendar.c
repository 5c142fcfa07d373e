#include "sink/calendar.h"

const int64_t cell_level_ms[CELL_LEVELS] = {MINUTE_MS, HOUR_MS, DAY_MS};

/* Days since 1970 in the proleptic Gregorian calendar. Years start in March, so that the leap day is last. */
static int64_t days_of_month(int64_t months) /* since January 1970 */
{
	int64_t year = 1970 + time_floor(months, 12) / 12, month = months - time_floor(months, 12);
	int64_t march_year = month < 2 ? year - 1 : year, march_month = (month + 10) % 12;
	int64_t era = time_floor(march_year, 400) / 400, of_era = march_year - era * 400;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * march_month + 2) / 5 - 719468;
}

int64_t step_unit_ms(enum stats_step step)
{
	switch (step) {
	case STEP_MINUTE: return MINUTE_MS;
	case STEP_HOUR: return HOUR_MS;
	case STEP_WEEK: return 7 * DAY_MS;
	case STEP_DAY:
	case STEP_MONTH: break;
	}
	return DAY_MS;
}

/* Weeks start on Monday; 1970-01-01 was a Thursday. */
static int64_t step_offset_ms(enum stats_step step)
{
	return step == STEP_WEEK ? 4 * DAY_MS : 0;
}

int64_t step_of(enum stats_step step, int64_t ms)
{
	if (step == STEP_MONTH) {
		int64_t days = day_of(ms);
		/* A lower bound, at most some months too early. */
		int64_t guess = days < 0 ? days * 12 / 365 - 2 : days * 12 / 366 - 1;
		while (days_of_month(guess + 1) <= days)
			guess++;
		return guess;
	}
	int64_t unit_ms = step_unit_ms(step);
	return time_floor(ms - step_offset_ms(step), unit_ms) / unit_ms;
}

int64_t step_start_ms(enum stats_step step, int64_t number)
{
	if (step == STEP_MONTH)
		return days_of_month(number) * DAY_MS;
	return number * step_unit_ms(step) + step_offset_ms(step);
}
