"""Grammars in sampling: only tokens that may come next, the end only where the answer may end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.frontend.tokenizer import Tokenizer, load_tokenizer
from engine.messages import SamplingParams
from engine.model.grammar import GrammarCompiler, GrammarState, token_table
from engine.model.sampling import SamplingState, sample

llguidance = pytest.importorskip("llguidance")

EOS = (2, 0)
SCHEMA = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}},
    "required": ["yes"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    """Bytes and a few merges; 264 tokens."""
    return load_tokenizer(tiny_model_dir)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    """A compiler for it."""
    return GrammarCompiler(lambda: token_table(tokenizer.to_json(), tokenizer.vocab_size, EOS))


def grammar(schema: object = SCHEMA) -> str:
    """Return a grammar as the API writes it."""
    text: str = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    return text


def allowed(state: GrammarState, vocab: int = 264) -> set[int]:
    """Return the tokens that may come next."""
    return {int(token) for token in torch.isfinite(state.mask(torch.zeros(vocab))).nonzero()}


def test_random_logits_become_an_object_and_an_end(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """Whatever the model prefers, the answer is JSON of the schema, then an end token."""
    chance = torch.Generator().manual_seed(1)
    for seed in range(5):
        params = SamplingParams(max_tokens=64, temperature=1.0, seed=seed, grammar=grammar())
        state = SamplingState(params, [], EOS, compiler.start(grammar()))
        finish = None
        while finish is None:
            [chosen] = sample(torch.randn(1, 264, generator=chance), [state])
            state.record(chosen.token_id)
            finish = state.ends.finish(chosen.token_id, len(state.output_ids))
        assert finish == "stop"
        said = json.loads(tokenizer.decode(state.output_ids[:-1], skip_special=False))
        assert said in ({"yes": True}, {"yes": False})


def test_greedy_takes_the_best_of_the_allowed(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """The model's favourite is no beginning of an object: `{` is taken though its logit is lower."""
    params = SamplingParams(max_tokens=64, temperature=0.0, grammar=grammar())
    state = SamplingState(params, [], EOS, compiler.start(grammar()))
    logits = torch.zeros(1, 264)
    logits[0, 100] = 9.0
    assert not state.is_plain_greedy
    [chosen] = sample(logits, [state])
    assert tokenizer.token_text(chosen.token_id) == "{"


def test_a_finished_answer_can_only_end(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """Behind the last brace nothing but end tokens."""
    state = compiler.start(grammar())
    for token in tokenizer.encode('{"yes":true}', add_special=False):
        assert token in allowed(state)
        assert not allowed(state) & set(EOS)
        state.consume(token)
    assert allowed(state) <= set(EOS)
    assert allowed(state)


def test_the_state_is_rebuilt_from_the_tokens(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """Decode gets the first token from prefill: from then on the same tokens are allowed."""
    tokens = tokenizer.encode('{"ye', add_special=False)
    prefill, decode = compiler.start(grammar()), compiler.start(grammar())
    prefill.consume(tokens[0])
    decode.consume(tokens[0])
    assert allowed(prefill) == allowed(decode)
    assert tokens[1] in allowed(decode)
    assert tokens[0] not in allowed(decode)


def test_logits_beyond_the_tokenizer_are_never_taken(compiler: GrammarCompiler) -> None:
    """A model with padding rows in its vocabulary: they are masked."""
    assert max(allowed(compiler.start(grammar()), vocab=300)) < 264


@pytest.mark.parametrize("text", ["no grammar", grammar({"type": "foo"})])
def test_what_is_no_grammar_says_so(compiler: GrammarCompiler, text: str) -> None:
    """The problem is there to be told, and a step with it raises nothing."""
    state = compiler.start(text)
    assert state.problem
    state.mask(torch.zeros(264))
    state.consume(5)
    assert state.problem


def test_a_token_that_must_not_come_is_a_problem(compiler: GrammarCompiler) -> None:
    """The state never goes on as if nothing had happened."""
    state = compiler.start(grammar())
    assert state.problem is None
    state.consume(100)
    assert state.problem


def test_model_files_that_have_gone_fail_the_one_request(tokenizer: Tokenizer) -> None:
    """They are read at the first grammar, which may be days after the start; later ones may find them again."""
    there = False

    def load() -> object:
        if not there:
            raise FileNotFoundError(2, "No such file or directory", "tokenizer.json")
        return token_table(tokenizer.to_json(), tokenizer.vocab_size, EOS)

    compiler = GrammarCompiler(load)
    state = compiler.start(grammar())
    assert state.problem is not None
    assert "tokenizer.json" in state.problem
    assert state.mask(torch.zeros(tokenizer.vocab_size)).isfinite().all()
    there = True
    assert compiler.start(grammar()).problem is None
