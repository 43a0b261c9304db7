"""The command line itself: help, version, exit codes, suggestions, completion, layers of configuration."""

import os
import re
import subprocess

import pytest

BINARY = os.environ["GODWIT_BINARY"]


def godwit(*args, env=None, stdin=""):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GODWIT_")}
    return subprocess.run([BINARY, *args], input=stdin, capture_output=True, text=True, timeout=60, env={**clean, **(env or {})})


def commands():
    """Every command with the words that lead to it, read from --help."""
    found, open_paths = [], [[]]
    while open_paths:
        path = open_paths.pop()
        out = godwit(*path, "--help")
        assert out.returncode == 0, out.stderr
        found.append((path, out.stdout))
        block = re.search(r"^Subcommands:\n((?:  .*\n)+)", out.stdout, re.M)
        if block:
            names = re.findall(r"^  (\w[\w-]*)", block.group(1), re.M)
            open_paths += [path + [n] for n in names]
    return found


def test_version_names_the_build():
    out = godwit("--version")
    assert out.returncode == 0
    assert re.fullmatch(r"godwit \d+\.\d+\.\d+\+[0-9a-z.]+, \S+ \S+, \w*, \S+\n", out.stdout)


def test_every_command_has_help_with_a_description():
    found = commands()
    assert ["serve"] in [path for path, _ in found]
    for path, text in found:
        assert text.splitlines()[0].strip(), path
        assert "Usage: godwit" in text, path


def test_no_command_is_a_usage_error_that_shows_the_commands():
    out = godwit()
    assert out.returncode == 2
    assert "serve" in out.stderr and out.stdout == ""


@pytest.mark.parametrize(
    "args, said",
    [
        (["serv"], 'unknown command "serv", did you mean serve?'),
        (["serve", "--prot", "1"], 'unknown flag "--prot", did you mean --port?'),
        (["serve", "--port", "many"], "--port"),
        (["serve", "--context", "-5"], "--context"),
        (["serve", "--config", "/no/such/file"], "--config"),
        (["serve", "surprise"], "surprise"),
    ],
)
def test_usage_errors_exit_2_and_say_what(args, said):
    out = godwit(*args)
    assert out.returncode == 2, out
    assert said in out.stderr
    assert "--help" in out.stderr


def test_a_missing_model_is_refused_with_3():
    out = godwit("serve", "--model", "/no/such/model")
    assert out.returncode == 3, out
    assert "/no/such/model" in out.stderr


def test_environment_and_file_are_checked_like_flags(tmp_path):
    out = godwit("serve", env={"GODWIT_PORT": "many"})
    assert out.returncode == 2 and "GODWIT_PORT" in out.stderr
    config = tmp_path / "godwit.toml"
    config.write_text("prot = 9000\n")
    out = godwit("serve", "--config", str(config))
    assert out.returncode == 2 and 'did you mean "port"' in out.stderr
    out = godwit("serve", env={"GODWIT_CONFIG": str(config)})
    assert out.returncode == 2 and 'did you mean "port"' in out.stderr


def complete(*words):
    """What bash offers for the last of `words`."""
    quoted = " ".join(f"'{w}'" for w in words)
    script = f"source <('{BINARY}' completion bash); COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _godwit; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=os.environ["GODWIT_SOURCE_DIR"])
    assert out.returncode == 0 and out.stderr == "", out.stderr
    return out.stdout.split()


def test_bash_completion_knows_every_command_and_flag():
    assert {"serve", "completion"} <= set(complete("godwit", ""))
    assert complete("godwit", "serve", "--por") == ["--port"]
    assert "models" in complete("godwit", "serve", "--model", "mod")
    for path, text in commands():
        flags = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M))
        assert flags <= set(complete("godwit", *path, "--")), path


def test_zsh_completion_is_the_same_function():
    assert "bashcompinit" in godwit("completion", "zsh").stdout
