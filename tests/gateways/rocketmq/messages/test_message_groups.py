from gateways.rocketmq.messages.message_groups import message_group_partition


def test_message_groups_go_where_stock_producers_put_them() -> None:
    # String.hashCode of Java: 65, 96354, 596902581 and 1772899 (two units of one character).
    assert [message_group_partition(group, 1 << 20) for group in ("A", "abc")] == [65, 96354]
    assert message_group_partition("order-1234567", 7) == 596902581 % 7
    assert message_group_partition("\U0001f600", 1 << 20) == 1772899 % (1 << 20)
