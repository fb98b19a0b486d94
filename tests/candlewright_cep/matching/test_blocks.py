"""Blocks hold what folding their rows gives, however rows are added and forgotten."""

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from candlewright_cep.matching import blocks
from candlewright_cep.matching.blocks import Blocks


@given(st.integers(0, 9), st.data())
def test_blocks_follow_their_rows(first: int, data: st.DataObject) -> None:
    found, values = Blocks(np.minimum, first), [np.inf] * first
    with patch.object(blocks, "FAN_BITS", 1):
        for _ in range(data.draw(st.integers(1, 8))):
            further = data.draw(st.lists(st.floats(-9, 9), max_size=9))
            found.add(np.array(further, np.float64))
            values += further
            found.forget(data.draw(st.integers(found.first, found.end)))
            assert found.end == len(values)
            if found.first == found.end or data.draw(st.booleans()):
                continue
            begin = data.draw(st.integers(found.first, found.end - 1))
            end = data.draw(st.integers(begin + 1, found.end))
            assert found.folded(begin, end).tolist() == [min(values[begin:end])]
            level = data.draw(st.integers(0, 3))
            # The first block may still have forgotten rows.
            for block in range((found.first >> level) + 1, ((found.end - 1) >> level) + 1):
                wanted = min(values[block << level : (block + 1) << level])
                assert found.of(level, block, block + 1).tolist() == [wanted]
