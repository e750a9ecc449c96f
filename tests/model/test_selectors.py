"""Label, field and node selectors, taints and tolerations; the tables follow apimachinery 0.36's answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcd.model.selectors import (
    EVERYTHING,
    NOTHING,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Selector,
    SelectorError,
    Taint,
    Toleration,
    check_node_terms,
    check_tolerations,
    node_terms_match,
    parse_field_selector,
    parse_label_selector,
    tolerates,
)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*needs: tuple[str, ...], fields: tuple[tuple[str, ...], ...] = ()) -> NodeSelectorTerm:
    def requirements(needs: tuple[tuple[str, ...], ...]) -> tuple[NodeSelectorRequirement, ...]:
        return tuple(NodeSelectorRequirement(need[0], need[1], need[2:]) for need in needs)

    return NodeSelectorTerm(requirements(needs), requirements(fields))


# --- label selectors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "values", "labels", "matched"),
    [
        ("In", ["a", "b"], {"k": "b"}, True),
        ("In", ["a", "b"], {"k": "c"}, False),
        ("In", ["a"], {}, False),
        ("In", [""], {}, False),
        ("NotIn", ["a"], {"k": "b"}, True),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", [], {"k": ""}, True),
        ("Exists", [], {}, False),
        ("DoesNotExist", [], {}, True),
        ("DoesNotExist", [], {"k": ""}, False),
    ],
)
def test_label_expression(operator: str, values: list[str], labels: dict[str, str], matched: bool) -> None:
    selector = LabelSelector.compile({"matchExpressions": [expression("k", operator, *values)]})
    assert selector.matches(labels) is matched


def test_all_parts_of_a_label_selector_must_match() -> None:
    selector = LabelSelector.compile({"matchLabels": {"a": "1"}, "matchExpressions": [expression("b", "Exists")]})
    assert [selector.matches(labels) for labels in ({"a": "1", "b": ""}, {"a": "1"}, {"b": ""})] == [True, False, False]


def test_no_selector_matches_nothing() -> None:
    assert LabelSelector.compile(None) is NOTHING
    assert not NOTHING.matches({})


@pytest.mark.parametrize("source", [{}, {"matchLabels": None}, {"matchLabels": {}, "matchExpressions": []}])
def test_an_empty_selector_matches_everything(source: dict[str, Any]) -> None:
    assert LabelSelector.compile(source) == EVERYTHING
    assert EVERYTHING.matches({"any": "thing"})


def test_equal_content_compiles_to_equal_selectors_whatever_the_order() -> None:
    first = LabelSelector.compile(
        {"matchLabels": {"a": "1", "b": "2"}, "matchExpressions": [expression("c", "In", "y", "x", "y")]}
    )
    second = LabelSelector.compile(
        {"matchExpressions": [expression("c", "In", "x", "y"), expression("b", "In", "2")], "matchLabels": {"a": "1"}}
    )
    assert {first: "found"}[second] == "found"


def test_nothing_and_everything_differ() -> None:
    assert len({NOTHING, EVERYTHING}) == 2


def test_a_typed_selector_compiles_like_its_plain_form() -> None:
    typed = LabelSelector({"a": "1"}, (LabelSelectorRequirement("b", "NotIn", ("x",)),))
    assert LabelSelector.compile(typed) == LabelSelector.compile(msgspec.to_builtins(typed))


def test_typed_selectors_with_labels_in_another_order_are_one_key() -> None:
    assert len({LabelSelector({"a": "1", "b": "2"}), LabelSelector({"b": "2", "a": "1"})}) == 1


@pytest.mark.parametrize(
    ("source", "field", "value"),
    [
        ({"matchExpressions": [expression("k", "Is", "a")]}, "matchExpressions[0].operator", "Is"),
        ({"matchExpressions": [expression("k", "Gt", "1")]}, "matchExpressions[0].operator", "Gt"),
        ({"matchExpressions": [expression("k", "In")]}, "matchExpressions[0].values", ()),
        ({"matchExpressions": [expression("k", "Exists", "a")]}, "matchExpressions[0].values", ("a",)),
        ({"matchExpressions": [expression("k", "In", "a", "b c")]}, "matchExpressions[0].values[1]", "b c"),
        ({"matchExpressions": [expression("", "Exists")]}, "matchExpressions[0].key", ""),
        ({"matchLabels": {"a/b/c": "1"}}, "matchLabels[a/b/c].key", "a/b/c"),
        ({"matchLabels": {"a": "x" * 64}}, "matchLabels[a].values[0]", "x" * 64),
    ],
)
def test_an_invalid_label_selector_names_field_and_value(source: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.compile(source)
    assert (caught.value.field, caught.value.value) == (field, value)


def test_a_label_selector_of_wrong_types_is_a_selector_error() -> None:
    with pytest.raises(SelectorError, match=r"is no label selector: Expected `str`, got `int`"):
        LabelSelector.compile({"matchLabels": {"a": 1}})


# --- textual selectors ----------------------------------------------------------------------------------------------

LABELS = [{}, {"a": "b"}, {"a": "x", "e": "y"}, {"a": "b", "e": "x", "f": ""}, {"a": "7", "in": "in"}, {"a": ""}]


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("", "111111"),
        ("a=b", "010100"),
        ("a==b", "010100"),
        (" a = b ", "010100"),
        ("a!=b", "101011"),
        ("a", "011111"),
        ("!a", "100000"),
        ("a=", "000001"),
        ("e in (x,y)", "001100"),
        ("e notin (x)", "111011"),
        ("a in (,b)", "010101"),
        ("a in ()", "000001"),
        ("in in (in)", "000010"),
        ("in=in", "000010"),
        ("a>5", "000010"),
        ("a<7", "000000"),
        ("a=b,e in (x,y),f", "000100"),
        ("a, !f ,e!=y", "010011"),
    ],
)
def test_textual_label_selector(text: str, matched: str) -> None:
    selector = parse_label_selector(text)
    assert "".join(str(int(selector.matches(labels))) for labels in LABELS) == matched


@pytest.mark.parametrize(
    "text",
    [
        "a,",
        ",a",
        "a,,b",
        "a=b=c",
        "=b",
        "a in b",
        "a in (b",
        "a in (b c)",
        "!a=b",
        "!",
        "a>x",
        "a>-1",
        "a b",
        "a=b c",
        "a=-b",
        "(a)",
        "a=(b)",
        "ain(b)",
        "a in (=)",
        "x y in (a)",
        "!!a",
        "a<",
        "-a",
        "a>9223372036854775808",
    ],
)
def test_a_malformed_textual_label_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_label_selector(text)


def test_the_message_of_a_malformed_selector_says_what_was_expected() -> None:
    with pytest.raises(SelectorError, match="'a in b' cannot be read from 'in b' on; expected key, "):
        parse_label_selector("a in b")


def test_textual_and_structured_selectors_are_equal_when_they_say_the_same() -> None:
    structured = LabelSelector.compile({"matchLabels": {"a": "b"}, "matchExpressions": [expression("c", "NotIn", "d")]})
    assert parse_label_selector("c!=d,a=b") == structured


@pytest.mark.parametrize(
    ("text", "fields", "matched"),
    [
        ("", {}, True),
        ("metadata.name=x", {"metadata.name": "x"}, True),
        ("metadata.name==x", {"metadata.name": "y"}, False),
        ("spec.nodeName!=y", {}, True),
        ("spec.nodeName=", {}, True),
        ("metadata.name=x,spec.nodeName!=y", {"metadata.name": "x", "spec.nodeName": "y"}, False),
        ("metadata.name=x,,", {"metadata.name": "x"}, True),
        (r"a=b\,c\=d\\", {"a": "b,c=d\\"}, True),
    ],
)
def test_field_selector(text: str, fields: dict[str, str], matched: bool) -> None:
    assert parse_field_selector(text).matches(fields) is matched


@pytest.mark.parametrize("text", ["a", "=x", "a=b=c", "a=b\\", r"a=\b", "a=b,c"])
def test_a_malformed_field_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError, match="fieldSelector"):
        parse_field_selector(text)


def test_field_selectors_are_equal_whatever_the_order() -> None:
    assert len({parse_field_selector("a=1,b!=2"), parse_field_selector("b!=2,a==1")}) == 1


# --- node selector terms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "matched"),
    [
        (("zone", "In", "a", "b"), True),
        (("zone", "In", "c"), False),
        (("zone", "NotIn", "c"), True),
        (("missing", "NotIn", "c"), True),
        (("zone", "Exists"), True),
        (("missing", "DoesNotExist"), True),
        (("cores", "Gt", "7"), True),
        (("cores", "Gt", "8"), False),
        (("cores", "Lt", "09"), True),
        (("zone", "Gt", "1"), False),
        (("missing", "Lt", "1"), False),
        (("huge", "Gt", "1"), False),
    ],
)
def test_node_expression(need: tuple[str, ...], matched: bool) -> None:
    labels = {"zone": "a", "cores": "8", "huge": "99999999999999999999"}
    assert node_terms_match((term(need),), labels, "n1") is matched


def test_a_long_list_of_values_is_searched_whole() -> None:
    long = (term(("host", "In", *(f"n{i}" for i in range(100)))),)
    assert [node_terms_match(long, {"host": host}, host) for host in ("n0", "n42", "n99", "n100")] == [True] * 3 + [
        False
    ]


def test_terms_are_alternatives() -> None:
    terms = (term(("a", "Exists")), term(("b", "Exists")))
    assert node_terms_match(terms, {"b": ""}, "n1")


def test_requirements_of_a_term_must_all_match() -> None:
    assert not node_terms_match((term(("a", "Exists"), ("b", "Exists")),), {"a": ""}, "n1")


@pytest.mark.parametrize("terms", [(), (NodeSelectorTerm(),)])
def test_no_term_and_an_empty_term_match_no_node(terms: tuple[NodeSelectorTerm, ...]) -> None:
    assert not node_terms_match(terms, {"a": ""}, "n1")


@pytest.mark.parametrize(("operator", "matched"), [("In", [True, False]), ("NotIn", [False, True])])
def test_match_fields_compare_the_nodes_name(operator: str, matched: list[bool]) -> None:
    terms = (term(fields=(("metadata.name", operator, "n1"),)),)
    assert [node_terms_match(terms, {}, name) for name in ("n1", "n2")] == matched


@pytest.mark.parametrize(
    ("bad", "field", "value"),
    [
        (term(("a", "Near", "b")), "nodeSelectorTerms[1].matchExpressions[0].operator", "Near"),
        (term(("a", "In")), "nodeSelectorTerms[1].matchExpressions[0].values", ()),
        (term(("a", "Gt", "x")), "nodeSelectorTerms[1].matchExpressions[0].values", ("x",)),
        (term(("a", "Gt", "1", "2")), "nodeSelectorTerms[1].matchExpressions[0].values", ("1", "2")),
        (term(fields=(("metadata.name", "Exists"),)), "nodeSelectorTerms[1].matchFields[0].operator", "Exists"),
        (term(fields=(("metadata.name", "In", "a", "b"),)), "nodeSelectorTerms[1].matchFields[0].values", ("a", "b")),
        (term(fields=(("spec.x", "In", "a"),)), "nodeSelectorTerms[1].matchFields[0].key", "spec.x"),
    ],
)
def test_an_invalid_term_names_field_and_value(bad: NodeSelectorTerm, field: str, value: object) -> None:
    with pytest.raises(SelectorError) as caught:
        node_terms_match((term(("a", "Exists")), bad), {}, "n1")
    assert (caught.value.field, caught.value.value) == (field, value)


def test_an_invalid_term_does_not_hide_one_that_matches() -> None:
    assert node_terms_match((term(("a", "Near")), term(("a", "Exists"))), {"a": ""}, "n1")


def test_checking_terms_finds_a_fault_that_matching_would_pass_over() -> None:
    with pytest.raises(SelectorError, match=r"nodeSelectorTerms\[1\]"):
        check_node_terms((term(("a", "Exists")), term(("a", "Near"))))


def test_sound_terms_pass_the_check() -> None:
    check_node_terms((term(("a", "Exists")), NodeSelectorTerm()))


# --- taints and tolerations -----------------------------------------------------------------------------------------

TAINT = Taint("key", "5", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("key", "Equal", "5", "NoSchedule"), True),
        (Toleration("key", "", "5", "NoSchedule"), True),
        (Toleration("key", "Equal", "6"), False),
        (Toleration("key", "Exists"), True),
        (Toleration("key", "Exists", effect="NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", effect="NoSchedule"), True),
        (Toleration("key", "Gt", "4"), True),
        (Toleration("key", "Gt", "5"), False),
        (Toleration("key", "Lt", "6"), True),
        (Toleration("key", "Lt", "-6"), False),
        (Toleration("key", "Lt", "06"), False),
        (Toleration("key", "Gt", "x"), False),
        (Toleration("key", "Lt", "9223372036854775808"), False),
    ],
)
def test_toleration(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates((toleration,), TAINT) is tolerated


@pytest.mark.parametrize("value", ["", "high", "+5", "05"])
def test_a_taint_without_a_canonical_number_is_not_compared(value: str) -> None:
    assert not tolerates((Toleration("key", "Gt", "1"),), Taint("key", value, "NoSchedule"))


def test_one_covering_toleration_is_enough() -> None:
    assert tolerates((Toleration("other", "Exists"), Toleration("key", "Exists")), TAINT)


def test_no_toleration_tolerates_nothing() -> None:
    assert not tolerates((), TAINT)


@pytest.mark.parametrize(
    ("tolerations", "taint", "field", "value"),
    [
        ((Toleration("x", "Like"),), TAINT, "tolerations[0].operator", "Like"),
        ((Toleration("x", "Exists"), Toleration("y", effect="Never")), TAINT, "tolerations[1].effect", "Never"),
        ((), Taint("k", "", "Never"), "taint.effect", "Never"),
    ],
)
def test_an_unknown_operator_or_effect_names_field_and_value(
    tolerations: tuple[Toleration, ...], taint: Taint, field: str, value: str
) -> None:
    with pytest.raises(SelectorError) as caught:
        tolerates(tolerations, taint)
    assert (caught.value.field, caught.value.value) == (field, value)


def test_checking_tolerations_needs_no_taint() -> None:
    with pytest.raises(SelectorError, match=r"tolerations\[1\]\.operator: 'Like'"):
        check_tolerations((Toleration("", "Exists"), Toleration("x", "Like")))


# --- decoding and hashing -------------------------------------------------------------------------------------------


def test_unknown_operators_and_effects_decode() -> None:
    raw = b'{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Near","values":["b"]}]}]}'
    assert msgspec.json.decode(raw, type=NodeSelector).node_selector_terms == (term(("a", "Near", "b")),)


def test_names_on_the_wire_are_the_apis() -> None:
    raw = b'{"key":"a","operator":"Exists","tolerationSeconds":300}'
    assert msgspec.json.decode(raw, type=Toleration) == Toleration("a", "Exists", toleration_seconds=300)


@pytest.mark.parametrize("kind", [LabelSelector, NodeSelector, PreferredSchedulingTerm, Toleration, Taint])
def test_api_types_decode_empty_objects_to_hashable_values(kind: type[Any]) -> None:
    assert hash(msgspec.json.decode(b"{}", type=kind)) == hash(kind())


KEYS = st.sampled_from(["a", "b", "x.io/c"])
VALUES = st.sampled_from(["", "1", "2", "in"])
SETS = st.lists(VALUES, min_size=1, max_size=3)
EXPRESSIONS = st.one_of(
    st.tuples(KEYS, st.sampled_from(["In", "NotIn"]), SETS),
    st.tuples(KEYS, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
)


def compile_expressions(needs: list[tuple[str, str, list[str]]]) -> Selector:
    return LabelSelector.compile({"matchExpressions": [expression(key, op, *values) for key, op, values in needs]})


@given(st.lists(EXPRESSIONS, max_size=5), st.dictionaries(KEYS, VALUES), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(
    needs: list[tuple[str, str, list[str]]], labels: dict[str, str], random: Any
) -> None:
    mixed = [*needs, *needs]
    random.shuffle(mixed)
    one, other = compile_expressions(needs), compile_expressions(mixed)
    assert (one, hash(one), one.matches(labels)) == (other, hash(other), other.matches(labels))


@given(st.lists(EXPRESSIONS, max_size=5), st.dictionaries(KEYS, VALUES))
def test_matching_equals_the_definition_of_each_operator(
    needs: list[tuple[str, str, list[str]]], labels: dict[str, str]
) -> None:
    expected = all(
        {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[operator]
        for key, operator, values in needs
    )
    assert compile_expressions(needs).matches(labels) is expected


@given(st.text("ab=!<>(), in-5\t", max_size=12))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    try:
        assert isinstance(parse_label_selector(text), Selector)
    except SelectorError as error:
        assert error.field.startswith("labelSelector")
