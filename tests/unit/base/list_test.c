#include "base/list.h"
#include "lib/test.h"

struct item {
	int number;
	struct list node;
};

static int pop_number(struct list *head)
{
	struct list *node = list_pop(head);
	return node ? container_of(node, struct item, node)->number : -1;
}

TEST(items_come_out_in_the_order_they_went_in)
{
	struct list head;
	struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
	list_init(&head);
	assert_true(list_empty(&head));
	for (size_t i = 0; i < 3; i++)
		list_push(&head, &items[i].node);
	assert_false(list_empty(&head));
	assert_int_equal(pop_number(&head), 1);
	assert_int_equal(pop_number(&head), 2);
	assert_int_equal(pop_number(&head), 3);
	assert_int_equal(pop_number(&head), -1);
	assert_true(list_empty(&head));
}

TEST(an_item_may_leave_from_the_middle_and_twice)
{
	struct list head;
	struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
	list_init(&head);
	for (size_t i = 0; i < 3; i++)
		list_push(&head, &items[i].node);
	list_remove(&items[1].node);
	list_remove(&items[1].node);
	assert_int_equal(pop_number(&head), 1);
	assert_int_equal(pop_number(&head), 3);
	assert_int_equal(pop_number(&head), -1);
}

TEST(splice_moves_all_to_the_tail)
{
	struct list to, from;
	struct item items[4] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
	list_init(&to);
	list_init(&from);
	list_push(&to, &items[0].node);
	list_push(&from, &items[1].node);
	list_push(&from, &items[2].node);
	list_splice(&to, &from);
	assert_true(list_empty(&from));
	list_push(&from, &items[3].node); /* the emptied head works on */
	for (int i = 1; i <= 3; i++)
		assert_int_equal(pop_number(&to), i);
	assert_int_equal(pop_number(&to), -1);
	assert_int_equal(pop_number(&from), 4);
}

TEST(splice_from_or_into_an_empty_list_works)
{
	struct list to, from;
	struct item item = {.number = 1};
	list_init(&to);
	list_init(&from);
	list_splice(&to, &from);
	assert_true(list_empty(&to));
	list_push(&from, &item.node);
	list_splice(&to, &from);
	assert_int_equal(pop_number(&to), 1);
	assert_true(list_empty(&to));
}

TEST_MAIN()
