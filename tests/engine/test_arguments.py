"""The engine's command line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.arguments import NUMBERS, parse_config
from engine.config import EngineConfig, Role
from engine.errors import ConfigError

UNIFIED = ["--model", "/m/Tiny.gguf", "--role", "unified"]


def test_defaults_are_those_of_the_record() -> None:
    """A flag that is not given leaves EngineConfig's own default."""
    config = parse_config(UNIFIED)
    expected = EngineConfig(
        role=Role.UNIFIED, model="/m/Tiny.gguf", served_name="Tiny", instance="unified-30000",
        incarnation=config.incarnation, port=30000,
    )  # fmt: skip
    assert config == expected
    assert config.incarnation != parse_config(UNIFIED).incarnation


def test_every_setting_has_a_flag() -> None:
    """No field of EngineConfig is out of reach of the command line, but for what is drawn at each start."""
    names = ["--" + flag.field.removesuffix("_s").replace("_", "-") for flag in NUMBERS]
    numbers = [word for name in names for word in (name, "20")]
    config = parse_config(
        ["--model", "m", "--role", "decode", "--peers", "a:1,b:2", "--peers", "c:3", "--served-name", "s",
         "--instance", "i", "--host", "127.0.0.2", "--dtype", "float32", "--cpu-step", "off", "--quantization", "gguf",
         "--log-level", "debug",
         "--no-checksums", "--schedule", "normal", "--no-prefix-cache", "--insecure", "--enable-failpoints",
         "--legacy-health",
         "--recheck-prompts", "--flight-file", "f", *numbers]
    )  # fmt: skip
    defaults = msgspec.structs.asdict(parse_config(UNIFIED))
    same = {name for name, value in msgspec.structs.asdict(config).items() if value == defaults[name]}
    # The device: another one than the CPU is for a unified engine, which has none of the others.
    assert same == {"api_key", "admin_key", "control_key", "device"}
    assert parse_config([*UNIFIED, "--device", "cuda"]).device == "cuda"
    assert config.peers == ("a:1", "b:2", "c:3")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "0"], "--port 0"),
        (["--port", "70000"], "--port 70000"),
        (["--page-size", "0"], "--page-size 0"),
        (["--max-queued", "0"], "--max-queued 0: must be from 1"),
        (["--chunk-tokens", "100"], "--chunk-tokens 100: must be a multiple of --page-size 16"),
        (["--request-timeout", "-1"], "--request-timeout -1.0"),
        (["--request-timeout", "nan"], "--request-timeout nan"),
        (["--peers", "a:1"], "only a decode has peers"),
        (["--api-key-file", "/nowhere/key"], "--api-key-file /nowhere/key"),
        (["--role", "decode"], "needs --peers"),
        (["--role", "decode", "--peers", "host"], "'host' is not host:port"),
        (["--role", "decode", "--peers", "host:99999"], "is not host:port"),
        (["--role", "prefill", "--port", "8998"], "both 8998"),
        (["--legacy-health"], "it needs --enable-failpoints"),
        (["--role", "prefill", "--device", "cuda"], "--device cuda: only with --role unified"),
    ],
)
def test_bad_value_names_flag_and_value(flags: list[str], message: str) -> None:
    """A wrong value is one message that names the flag, the value and the rule."""
    with pytest.raises(ConfigError) as caught:
        parse_config([*UNIFIED, *flags])
    assert message in str(caught.value)


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--port", "x"], ["--role", "both"], ["--dtype", "int3"]])
def test_bad_usage_exits_with_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What argparse refuses ends with usage and exit code 2."""
    with pytest.raises(SystemExit) as caught:
        parse_config([*UNIFIED, *flags])
    assert caught.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_help_says_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Every number's help names its unit."""
    with pytest.raises(SystemExit):
        parse_config(["--help"])
    text = capsys.readouterr().out
    for flag in NUMBERS:
        assert flag.unit in text


def test_keys_come_from_files(tmp_path: Path) -> None:
    """The key is the file's content without white space around it; an empty file is refused."""
    file = tmp_path / "key"
    file.write_text(" k3y\n")
    assert parse_config([*UNIFIED, "--api-key-file", str(file)]).api_key == "k3y"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        parse_config([*UNIFIED, "--admin-key-file", str(file)])


def test_a_control_key_that_is_none_is_refused(tmp_path: Path) -> None:
    """The message says how to make one."""
    file = tmp_path / "key"
    file.write_text("secret\n")
    with pytest.raises(ConfigError, match=r"not a CURVE secret key.*zmq\.curve_keypair"):
        parse_config([*UNIFIED, "--control-key-file", str(file)])
