import pytest

from candlewright_cep import TriggerRejected
from candlewright_cep.spark.statement import Clause, Statement

pytestmark = pytest.mark.timeout(10)

_BODY = "MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts PATTERN (A))"


def _clause(text: str) -> Clause:
    found = Statement(text).clause()
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 'x MATCH_RECOGNIZE (' AS s, \"MATCH_RECOGNIZE (\" -- MATCH_RECOGNIZE (\n, /* MATCH_RECOGNIZE ( */ 2",
        "SELECT `MATCH_RECOGNIZE` (1), match_recognize FROM t",
        r"SELECT 'it\' MATCH_RECOGNIZE (' FROM t",
    ],
)
def test_other_texts_hold_no_clause(text: str) -> None:
    assert Statement(text).clause() is None


@pytest.mark.parametrize(
    ("before", "relation", "alias"),
    [
        ("SELECT * FROM ", "lake.market.ohlc", "ohlc"),
        ("SELECT * FROM ", "`odd name`.t AS o", "o"),
        ("SELECT * FROM x JOIN ", "(SELECT a, ')' FROM t WHERE b IN (1, 2)) s", "s"),
        ("SELECT (SELECT COUNT(*) FROM ", "ohlc VERSION AS OF 5", "input"),
        ("SELECT * FROM x, ", "range(10)", "input"),
        ("SELECT * FROM (", "a", "a"),
    ],
)
def test_a_relation_reaches_back_to_its_from(before: str, relation: str, alias: str) -> None:
    found = _clause(f"{before}{relation} {_BODY} AS m WHERE 1 = 1)")
    assert (found.relation, found.alias, found.text) == (relation, alias, _BODY)


def test_a_clause_keeps_its_position_for_the_matcher() -> None:
    found = _clause(f"SELECT *\n  FROM t\n  {_BODY}")
    assert (found.line, found.column) == (3, 3)
    assert found.for_matcher().splitlines()[2] == f"  {_BODY}"
    short = _clause(f"SELECT*FROM t {_BODY}")
    assert short.for_matcher().index(_BODY) == short.column - 1


def test_a_replaced_clause_moves_no_place() -> None:
    statement = Statement(f"SELECT * FROM t {_BODY} AS a, (SELECT * FROM u {_BODY}) {_BODY} b")
    columns = []
    for name in ("first", "a_much_longer_name" * 5, "third"):
        clause = statement.clause()
        assert clause is not None
        columns.append(clause.column)
        statement.replace(clause, name)
    assert statement.text.split() == ["SELECT", "*", "FROM", "first", "AS", "a,", "third", "b"]
    given = f"SELECT * FROM t {_BODY} AS a, (SELECT * FROM u {_BODY}) {_BODY} b"
    assert [given[column - 1 :].startswith(_BODY) for column in columns] == [True] * 3
    assert columns == sorted(set(columns))


def test_a_clause_sees_earlier_with_definitions() -> None:
    text = f"""WITH a AS (SELECT 1), b (x, y) AS (
      WITH c AS (SELECT 2 FROM a) SELECT * FROM c {_BODY}
    ), d AS (SELECT 3) SELECT * FROM d"""
    found = _clause(text)
    assert found.scopes == ("WITH a AS (SELECT 1)", "WITH c AS (SELECT 2 FROM a)")
    assert found.query() == "WITH a AS (SELECT 1) SELECT * FROM (WITH c AS (SELECT 2 FROM a) SELECT * FROM c)"
    behind = _clause(f"INSERT INTO t WITH a AS (SELECT 1), b (x, y) AS (SELECT (2)) SELECT * FROM b {_BODY}")
    assert behind.scopes == ("WITH a AS (SELECT 1), b (x, y) AS (SELECT (2))",)


def test_with_rollup_defines_nothing() -> None:
    text = f"SELECT a AS x FROM t GROUP BY a WITH ROLLUP UNION ALL SELECT stack(1, 2) AS (y) FROM u {_BODY}"
    assert _clause(text).scopes == ()


@pytest.mark.parametrize(
    ("behind", "wanted"),
    [
        ("WHERE ticker = 'a b' AND top > 1 LIMIT 3", ["ticker = 'a b'", "top > 1"]),
        ("AS m WHERE m.ticker IN ('a', 'b') ORDER BY 1", ["ticker IN ( 'a' , 'b' )"]),
        ("m WHERE ts BETWEEN DATE '2024-01-01' AND DATE '2024-01-02' AND `ticker` LIKE 'a%'",
         ["ts BETWEEN DATE '2024-01-01' AND DATE '2024-01-02'", "`ticker` LIKE 'a%'"]),
        ("m WHERE (ticker = 'a' OR ticker = 'b')", []),
        ("m WHERE ticker = 'a' OR top > 1", []),
        ("m WHERE LOWER(ticker) = 'a' AND ticker = top", ["ticker = top"]),
        ("m WHERE other.ticker = 'a'", []),
        ("m WHERE ticker = (SELECT 1)", []),
        ("m (who) WHERE who = 'a'", []),
        ("m JOIN x ON true WHERE ticker = 'a'", []),
        ("m, x WHERE ticker = 'a'", []),
        ("m WHERE ticker = 'a') AND u = 1", ["ticker = 'a'"]),
    ],
)  # fmt: skip
def test_plain_conditions_of_a_lone_match_are_found(behind: str, wanted: list[str]) -> None:
    found = _clause(f"SELECT * FROM t {_BODY} {behind}")
    assert [text for text, _ in found.conditions] == wanted


def test_a_joined_match_offers_no_conditions() -> None:
    assert _clause(f"SELECT * FROM x CROSS JOIN t {_BODY} m WHERE ticker = 'a'").conditions == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM t\n MATCH_RECOGNIZE (PATTERN (A)", "2:2: the parenthesis"),
        ("SELECT * FROM MATCH_RECOGNIZE (PATTERN (A))", "1:15: MATCH_RECOGNIZE needs a table"),
        ("MATCH_RECOGNIZE (PATTERN (A))", "1:1: MATCH_RECOGNIZE needs a table"),
    ],
)
def test_an_invalid_clause_is_refused_with_its_position(text: str, said: str) -> None:
    with pytest.raises(TriggerRejected, match=said):
        Statement(text).clause()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"SELECT * FROM clicks {_BODY}", {"clicks": True}),
        (f"SELECT * FROM clicks AS c {_BODY} m JOIN users u ON u.id = m.id", {"clicks": True, "users": False}),
        (f"SELECT a, b FROM db.t, x, (SELECT c, d FROM y ORDER BY e, f) {_BODY}", {"x": False, "y": False}),
        (f"WITH w AS (SELECT * FROM t) SELECT * FROM w {_BODY}, `odd name`", {"t": False, "odd name": False}),
        (f"SELECT * FROM range(3) r JOIN t {_BODY}", {"t": True}),
    ],
)
def test_the_tables_that_a_text_reads(text: str, wanted: dict[str, bool]) -> None:
    assert Statement(text).tables() == wanted


def test_a_defined_table_and_a_wrapped_clause_move_no_place() -> None:
    statement = Statement(f"\n  {_BODY}")
    statement.wrap()
    statement.define("input", "SELECT 1")
    statement.define("other", "SELECT 2")
    clause = statement.clause()
    assert clause is not None
    assert (clause.line, clause.column) == (2, 3)
    assert clause.scopes == ("WITH `other` AS (SELECT 2), `input` AS (SELECT 1)",)
    assert clause.relation == "input"
