"""Rules of factors: there and back in every form, what they come to, what is refused, the fewest that give a table."""

from __future__ import annotations

import numpy as np
import other_kinds
import pytest
from drawn_rules import TABLES
from hypothesis import given, settings
from hypothesis import strategies as st

from merging.base.errors import ParameterError
from merging.methods.factor_rules import FactorRule, describe_rules, parse_rules, read_rules, resolve, rules_text
from merging.methods.simplify_factors import simplify
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import Role, classify_parameters

AT = "visual.transformer.resblocks."
KINDS = ("ln_1.weight", "ln_1.bias", "attn.in_proj_weight", "attn.in_proj_bias", "mlp.c_fc.weight", "mlp.c_fc.bias")
NAMES = [
    "visual.conv1.weight", "visual.positional_embedding", "visual.proj", "visual.ln_post.weight",
    *(f"{AT}{block}.{kind}" for block in range(4) for kind in KINDS),
]  # fmt: skip
PARAMETERS = classify_parameters(NAMES)
EXPERTS = ("digits", "letters", "signs")


def table(line: str, default: float = 1.0) -> dict[tuple[str, str], float]:
    """(expert, tensor) -> factor."""
    resolved = resolve(parse_rules(line), default, EXPERTS, PARAMETERS)
    return {
        (expert, tensor): resolved.values[k, i]
        for k, expert in enumerate(EXPERTS)
        for i, tensor in enumerate(resolved.tensors)
    }


# --- forms -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(rules=TABLES)
def test_lines_and_plain_data_read_back_to_equal_rules(rules):
    line = rules_text(rules)
    assert parse_rules(line) == rules
    assert read_rules([rule.to_plain() for rule in rules]) == rules
    assert not set(line) & set(",;:&~# \n\t")


@pytest.mark.parametrize(
    "line,plain",
    [
        ("b0-1=0", {"blocks": "0-1", "factor": 0.0}),
        ("b0/b2-3/r.conv=-1", {"blocks": ["0", "2-3"], "roles": "conv", "factor": -1.0}),
        (
            "t.*.attn.in_proj_weight/e.digits=0.5",
            {"tensors": "*.attn.in_proj_weight", "experts": "digits", "factor": 0.5},
        ),
        ("s.embeddings/s.output=1", {"sections": ["embeddings", "output"], "factor": 1.0}),
        ("all=2", {"factor": 2.0}),
        ("e.a%2Cb%3D1%2Bc=0", {"experts": "a,b=1+c", "factor": 0.0}),
    ],
)
def test_each_selector_has_its_form(line, plain):
    (rule,) = parse_rules(line)
    assert rule.to_plain() == plain
    assert rules_text(read_rules([plain])) == line


def test_blocks_may_be_numbers_and_joined_by_commas():
    assert read_rules([{"blocks": 3, "factor": 0}, {"blocks": "0, 2-3", "factor": 0}]) == parse_rules("b3=0+b0/b2-3=0")


def test_minus_zero_is_zero():
    assert str(FactorRule(factor=-0.0).factor) == "0.0"


@pytest.mark.parametrize(
    "line,words",
    [
        ("", "no rules"),
        ("b0-1=0", "blocks 0-1 × 0"),
        ("b0=0+r.norm_scale/r.shift=0.5", "block 0 × 0; norm_scale and shift × 0.5"),
        ("all=0+b0=0+b1=0", "3 rules"),
        ("e." + "x" * 80 + "=0", "1 rule"),
        ("e.a%0Ab=0", "a\\nb × 0"),
    ],
)
def test_words_are_short_and_in_one_line(line, words):
    assert describe_rules(parse_rules(line)) == words


# --- what they come to -----------------------------------------------------------------------------------------------


def test_later_rules_paint_over_earlier_ones_and_say_so():
    resolved = resolve(parse_rules("all=0+b1-2=0.5+e.signs/b2/r.linear=2"), 1.0, EXPERTS, PARAMETERS)
    column = resolved.tensors.index(f"{AT}2.mlp.c_fc.weight")
    assert resolved.values[:, column].tolist() == [0.5, 0.5, 2.0]
    assert resolved.rules[:, column].tolist() == [2, 2, 3]
    assert resolved.rules[:, resolved.tensors.index("visual.proj")].tolist() == [1, 1, 1]


def test_selectors_are_joined_by_and_those_of_one_kind_by_or():
    factors = table("b0/b3/r.norm_scale/r.shift/e.digits/e.signs=0", 0.25)
    chosen = {key for key, factor in factors.items() if factor == 0.0}
    kinds = ("ln_1.weight", "ln_1.bias", "attn.in_proj_bias", "mlp.c_fc.bias")
    assert chosen == {(e, f"{AT}{b}.{kind}") for e in ("digits", "signs") for b in (0, 3) for kind in kinds}
    assert {factor for key, factor in factors.items() if key not in chosen} == {0.25}


@pytest.mark.parametrize("pattern", ["visual.conv1.weight", "conv1.weight", "*conv1*", "con[v]1.*"])
def test_patterns_are_on_the_files_names_or_open_clips(pattern):
    factors = table(rules_text([FactorRule(factor=0.0, tensors=(pattern,))]))
    assert {tensor for (_, tensor), factor in factors.items() if factor == 0.0} == {"visual.conv1.weight"}


def test_patterns_fit_separate_queries_keys_and_values():
    names = [
        "vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "vision_model.encoder.layers.0.layer_norm1.weight",
    ]
    resolved = resolve(parse_rules("t.*.attn.in_proj_weight=0"), 1.0, ["a"], classify_parameters(names))
    assert dict(zip(resolved.tensors, resolved.values[0], strict=True)) == {names[0]: 0.0, names[1]: 1.0}


def test_the_digest_is_of_the_factors_and_not_of_the_rules():
    def digest(line: str, default: float = 1.0) -> str:
        return resolve(parse_rules(line), default, EXPERTS, PARAMETERS).digest

    assert digest("b0=0+b1=0.5") == digest("b1=0.5+b0=0") == digest("b0-1=0+b1=0.5")
    assert digest("all=0.5") == digest("", 0.5)
    assert len({digest("b0=0+b0-1=0.5"), digest("b0-1=0.5+b0=0"), digest("e.digits=0"), digest("e.letters=0")}) == 4
    other = classify_parameters([name.replace("visual.", "") for name in NAMES])
    assert resolve((), 1.0, EXPERTS, other).digest != digest("")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line,problem",
    [
        ("b0=0+b4=0", r"Rule 2 \(b4=0\) matches no tensor in block 4: the model has blocks 0 to 3\."),
        ("b3-4=0", "matches no tensor in block 3-4"),
        ("e.digit=0", "names 'digit', and the experts are digits, letters, signs. Did you mean 'digits'?"),
        ("t.conv1.wieght=0", "none is called 'conv1.wieght'. Did you mean 'visual.conv1.weight'?"),
        ("b0/r.conv=0", "none matches all of them"),
        ("s.output/b0=0", "none matches all of them"),
    ],
)
def test_rules_that_match_nothing_are_named(line, problem):
    with pytest.raises(ParameterError, match=problem):
        table(line)


def test_roles_that_a_model_lacks_are_named():
    with pytest.raises(ParameterError, match="the model has none in roles 'conv'"):
        resolve(parse_rules("r.conv=0"), 1.0, EXPERTS, classify_parameters(["visual.proj"]))


@pytest.mark.parametrize(
    "rules,problem",
    [
        ("b0=0+b1", "rule 2: write a rule as b0-1=0, got 'b1'"),
        ("b0=nan", r"rule 1: the factor must be a number in \[-10, 10\], got nan"),
        ("b0=1e1+b0=10.5", "rule 2: the factor must be"),
        ("b0=x", "got 'x'"),
        ("b1-0=0", "blocks are written as 3 or 0-1, got '1-0'"),
        ("bx=0", "blocks are written"),
        ("x.y=0", "'x.y' selects nothing; write b0-1"),
        ("e.=0", "'e.' selects nothing"),
        ("=0", "'' selects nothing"),
        ("r.norm_scales=0", "there is no role 'norm_scales'. Did you mean 'norm_scale'?"),
        ("r.buffer=0", "there is no role 'buffer'"),
        ("s.block=0", "there is no section 'block'"),
        ("e.%FF=0", "no text in UTF-8"),
        ("all=1+" * 200 + "all=1", "there are 201 rules; at most 200"),
        ("e." + "x" * 20_000 + "=0", "take 20,004 bytes; at most 20,000"),
        ([{"experts": ["é" * 5000], "factor": 0}], "take 30,004 bytes"),
        ([{"factor": 0}] * 201, "there are 201 rules"),
        ([{"blocks": "0"}], "rule 1: the factor is missing"),
        ([{"factor": True}], "got True"),
        ([{"factor": "0"}], "got '0'"),
        ([{"factor": 0, "block": "1"}], "a rule has no 'block'. Did you mean 'blocks'?"),
        ([{"factor": 0, "experts": [["a"]]}], "experts is a text or a list of texts"),
        ([{"factor": 0, "experts": [""]}], "'' is not a name"),
        ([{"factor": 0, "experts": ["\ud800"]}], "is not a name"),
        (["b0=0"], "rule 1: a rule is written as"),
        ({"factor": 0}, "rules are a list"),
        (7, "rules are a list"),
    ],
)
def test_what_is_no_table_of_rules_is_refused_and_named(rules, problem):
    with pytest.raises(ParameterError, match=problem):
        read_rules(rules)


# --- the fewest rules ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_simple_rules_give_exactly_the_same_factors(data):
    values = data.draw(st.sampled_from([(0.0, 1.0), (0.0, 0.5, 1.0, -2.0)]))
    seed = data.draw(st.integers(0, 1000))
    factors = np.random.default_rng(seed).choice(values, (len(EXPERTS), len(PARAMETERS)))
    rules = simplify(factors, EXPERTS, PARAMETERS)
    assert np.array_equal(resolve(rules, 1.0, EXPERTS, PARAMETERS).values, factors)


@pytest.mark.parametrize(
    "line,simple",
    [
        ("", ""),
        ("all=1+b0=1", ""),
        ("b0=0+b1=0", "b0-1=0"),
        ("b0=0+b1=0+b3=0", "b0-1/b3=0"),
        ("all=0+e.digits=1+e.digits/r.linear=0", "r.linear=0+e.letters/e.signs=0"),
        ("e.digits=0+e.signs=0", "e.digits/e.signs=0"),
        ("+".join(f"t.{name}=0" for name in NAMES if ".2." in name), "b2=0"),
        ("+".join(f"t.{name}=0.5" for name in NAMES if "ln_" in name and "bias" not in name), "r.norm_scale=0.5"),
        ("r.linear=0+b1=2", "r.linear=0+b1=2"),
        ("b1=2+r.linear=0", "b1=2+r.linear=0"),
        ("all=0+b2=1", "all=0+b2=1"),
        ("e.signs=0+e.signs/b2=1", "e.signs=0+b2=1"),
        ("s.embeddings=0", "s.embeddings=0"),
        ("t.*.mlp.c_fc.weight=0", "t.*.mlp.c_fc.weight=0"),
    ],
)
def test_the_fewest_rules(line, simple):
    factors = resolve(parse_rules(line), 1.0, EXPERTS, PARAMETERS).values
    rules = simplify(factors, EXPERTS, PARAMETERS)
    assert np.array_equal(resolve(rules, 1.0, EXPERTS, PARAMETERS).values, factors)
    assert rules_text(rules) == simple


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="factors of 3 experts"):
        simplify(np.ones((2, len(PARAMETERS))), EXPERTS, PARAMETERS)


def test_painted_factors_of_a_network_with_two_towers_become_rules_and_back():
    base = MappingCheckpoint(other_kinds.pretrained("T5"), "pretrained")
    parameters = [p for p in base.parameters if p.role != Role.BUFFER]
    draw = np.random.default_rng(0)
    factors = draw.choice([0.0, 0.5, 1.0], (2, len(parameters)))
    factors[:, [p.role == Role.VOCABULARY for p in parameters]] = 0.25
    rules = simplify(factors, ["a", "b"], parameters)
    np.testing.assert_array_equal(resolve(rules, 1.0, ["a", "b"], parameters).values, factors)
