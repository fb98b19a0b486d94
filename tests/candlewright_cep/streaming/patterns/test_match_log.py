"""The state of a pattern on a stream grows only by new rows, and its chunks survive restarts."""

import random
import zlib
from base64 import b85decode

import pyarrow as pa
import pytest

from candlewright_cep import TriggerStream, evaluate
from tests.candlewright_cep.streaming.running import SECOND, Running, ticks
from tests.rounds import seeds


def _pattern(pattern: str, define: str, *, clauses: str = "", measures: str = "COUNT(*) AS n") -> str:
    return (
        f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(p) AS first, {measures} "
        f"{clauses} PATTERN ({pattern}) WITHIN INTERVAL '400' SECOND DEFINE {define}) AS m"
    )


_TEXTS = (
    _pattern("A B*? C", "C AS C.p > A.p + 100"),
    _pattern("A B* C", "C AS C.p > A.p + 95", clauses="AFTER MATCH SKIP TO NEXT ROW"),
    _pattern("A B*? C", "A AS A.p > PREV(A.p, 3), C AS C.p > A.p + 90", measures="NEXT(C.p, 2) AS later"),
    _pattern("A B*? C", "B AS B.p < NEXT(B.p, 4) + 120, C AS SUM(B.p) > 6000", measures="LAST(ts) AS at"),
    _pattern("A B+? C", "C AS C.p < MAX(B.p) - 115", clauses="ONE ROW PER MATCH WITH TIMEOUT ROWS"),
    _pattern("A B*? C", "C AS COUNT(B.*) >= 150 AND CLASSIFIER() = 'C'"),
    _pattern("A B*? C", "C AS C.p > A.p + 60", measures="LAST(ts) AS at").replace(
        "'400' SECOND", "'400' SECOND, INTERVAL '2' SECOND FROM PREVIOUS ROW"
    ),
    _pattern("S D+ U+", "D AS p < PREV(p), U AS p > PREV(p)", measures="LAST(U.p) AS top"),
)


@pytest.mark.parametrize("sql", _TEXTS)
@pytest.mark.parametrize("seed", seeds(3))
def test_steps_of_any_size_and_restarts_give_the_rows_of_the_batch(sql: str, seed: int) -> None:
    table = ticks(random.Random(seed), 2_600, nulls=0)
    chance = random.Random(seed)
    running = Running(sql, table)
    at = 0
    while at < table.num_rows:
        size = chance.choice([1, 3, 40, 700])
        running.push(table.slice(at, size))
        at += size
        if chance.random() < 0.6:
            if chance.random() < 0.6:
                running.restart()
            elif chance.random() < 0.3:
                running.restore({"": running.stream.snapshot()})
    running.close()
    assert running.found == sorted(evaluate(sql, table).to_pylist(), key=repr)
    assert running.rows


@pytest.mark.parametrize("loop", ["B*?", "B*"])
def test_a_step_writes_little_of_a_long_attempt_and_keeps_few_parts(loop: str) -> None:
    table = ticks(random.Random(1), 3_000, "A", nulls=0)
    running = Running(_pattern(f"A {loop} C", "C AS C.p > A.p + 1000").replace("'400' SECOND", "'1' HOUR"), table)
    for at in range(0, 2_500, 500):
        running.push(table.slice(at, 500))
    written = running.bytes_written(table, 2_500)
    whole = len(running.stream.snapshot())
    assert sorted(written)[len(written) // 2] < whole / 20
    assert sum(written) < whole * len(written) / 8


def test_rows_that_nothing_needs_leave_the_log() -> None:
    table = ticks(random.Random(2), 6_000, "A", nulls=0)
    running = Running(_TEXTS[0].replace("100", "1000"), table)
    for at in range(0, table.num_rows, 100):
        running.push(table.slice(at, 50))
        parts = running.stream.parts()
    kept = running.stream.retained_rows
    assert kept > 200
    assert sum(map(len, parts.values())) < 4 * len(running.stream.snapshot())
    running.stream.remove("A")
    assert sum(map(len, running.stream.parts().values())) < 3_000


def test_a_part_that_is_missing_is_refused() -> None:
    table = ticks(random.Random(3), 2_000, "A", nulls=0)
    running = Running(_TEXTS[0].replace("100", "1000"), table)
    running.push(table)
    parts = running.stream.parts()
    assert len(parts) > 1
    with pytest.raises(ValueError, match="chunk 1 of a state is missing"):
        TriggerStream(query=running.query).restore_parts({"": parts[""]})


#: After 25 rows, from before rows were saved in a log: with times, masks, labels and open choices of each row.
_WITHOUT_LOG = (
    "c-q}ny-yTT5TE<v5KvD<1Y<$AB4&%*JK*3b1pEgmu+kHk<;iXClifuy<Ps}mXG3AEG%?1+#KPLr!e~QfEG#IjjWL$SbKZON+z%H_"
    "h#JF#xAXO8=IzXH_AJ&mQXto}420J8Y*@astvSrJs%%v&k2N>yb$v{8J=S(nEKYXxZLMuOp6%JKCaUmsjom`3&1)51bD8N_Rjs_O"
    "t(Y#;%7(7pupQT1c3PWSIj?I?w&g9m9!3zxhUr<=<>p3Xg*n1*wQe$pr$*kh8;qwg@@nY?pDp_AgwIa;?3B-ze0JJrXMEOAfqWpJ"
    ";U}!{+qyM=p^{$GrvjTeJYjksYqULH0RJV$yBkGaYu8N+i&8)pTeGpKj(9!vtD7sV&INqMxIbQ6*#iT;MFY&bRu=8ynXDT6;wtD9"
    "da+W`dC-E6kBF|wLq&8GF}leZ-BgUO6r-Dt(apr@jC`EZh*R<kR64p=#iF$wTcCo=SXoz=HjFZlVYODJ#j~xNEVP7Zn>APM=9-M~"
    "6TJ&Z5WT-c?7?^~93HO$v>Hbrtp@<JurDwRAz&^<fmz`tZ?_yz)_9EnS2+GQF#vX}gV60%y0~s90CM8P-3J5E0~zQ=4p$<LGN9Cp"
    "&on&&PXLUg&wHegaaVEY$p#n?9Wy-Mh|-adye+`j@7?aWJeTC>&Iiu%94=emU`>m0c~_i+#2h}Z27JZ>K4}rV!KD8H?yQKT{C1>Y"
    "Dw->a+bYQ0_2TX!?JIe{FZR44bM#PE08+xve;O|@UBWsJiC9@txg6E?*LsLpc`m1gj`!g{)^v#M129aT7!Z*ll@|Va6#zRlf|fM("
    ">Kn)&js|{)Pr&}G8llSXZseSjUlUzSgzZXJ_K{@Ru4HB3i`e%f_NS?^UCHX6xperx3R|O*d;e)!bdma&qCRFQcb0H_OmqdHU-S>)"
    "IQ8Hp_2v}rLENW7_W2C%Vccg48$9QHa4iH@^fGTA%nG_Qxhd$i-4}w6*FFjQC38Wv=H){s=$+X|f-b)MAn3Vu*_x02OM*Usa!=5$"
    "`M1e`kteiz=LjuCf#?v?&ljotbBFW$+j)*oKazoOs+ukJT?WE85Wa)om>khTqUt*~tiA(*83LLipcw+1A)pxonjxSW0-7P983LLi"
    "pcw+1q5o-4yYhDnegLw!D{2"
)


def test_a_state_from_before_the_log_continues() -> None:
    table = pa.table(
        {
            "ticker": ["AB"[row % 2] for row in range(40)],
            "ts": pa.array([row // 2 * SECOND for row in range(40)]).cast(pa.timestamp("ns", "UTC")),
            "p": [float(row // 2 * 3 % 7) for row in range(40)],
        }
    )
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(p) AS first, LAST(p) AS "
        "last, COUNT(*) AS n, NEXT(C.p) AS after PATTERN (A B* C) WITHIN INTERVAL '20' SECOND DEFINE A AS A.p > "
        "PREV(A.p), C AS C.p > A.p + 2) AS m"
    )
    running = Running(sql, table)
    running.push(table.slice(0, 25))
    assert not running.rows
    running.restore({"": zlib.decompress(b85decode(_WITHOUT_LOG))})
    running.push(table.slice(25, 5))
    running.restart()
    running.push(table.slice(30))
    expected = sorted(evaluate(sql, table).to_pylist(), key=repr)
    assert expected
    running.close()
    assert running.found == expected
