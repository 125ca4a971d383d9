"""Real processes: what is imported, pipes, completion, the public names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gemm_lab

HEAVY = ("cupy", "numpy", "matplotlib", "ml_dtypes")


def process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gemm_lab", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def modules_after(*words: str) -> set[str]:
    """Which of the heavy modules a command has loaded when it is done."""
    code = (
        "import sys, io, contextlib\n"
        f"sys.argv = ['gemm-lab', *{words!r}]\n"
        "from gemm_lab.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "print(' '.join(m for m in sys.modules if '.' not in m), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "words", [("--help",), ("list",), ("run", "--help"), ("cache", "info"), ("devices",)]
)
def test_light_commands_load_nothing_heavy(words: tuple[str, ...]) -> None:
    assert not modules_after(*words).intersection(HEAVY)


def test_help_loads_no_jinja_and_no_rich() -> None:
    assert not modules_after("--help").intersection({"jinja2", "rich"})


def test_import_is_light() -> None:
    unwanted = (*HEAVY, "jinja2", "typer")
    code = f"import sys, gemm_lab; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "-v"),
        ("show", "naive"),
        ("show", "naive", "--diff", "y_first"),
        ("devices",),
    ],
)
def test_piped_output_has_no_escape_bytes(words: tuple[str, ...]) -> None:
    done = process(*words, FORCE_COLOR="1", TERM="xterm-256color")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_usage_error_in_a_process() -> None:
    done = process("run", "sharde")
    assert done.returncode == 2
    assert done.stderr == "error: unknown variant 'sharde'\nhint: did you mean shared?\n"


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m gemm_lab show naive | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() == "141"


def test_interrupt_is_130() -> None:
    words = [sys.executable, "-m", "gemm_lab", "run", "naive", "--backend", "emulator"]
    started = subprocess.Popen(
        [*words, "--square", "2048"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(2)
    if started.poll() is not None:
        pytest.skip("the emulator was done, or is not here")
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert out == ""
    assert err == "interrupted\n"


@pytest.mark.parametrize("module", ["typer", "gemm_lab.cli.failures", "gemm_lab.cli.list"])
def test_interrupt_while_it_is_loaded_is_quiet(module: str) -> None:
    """As early as a signal can come: in the middle of an import."""
    code = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['gemm-lab', 'list']\n"
        "from gemm_lab.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr in ("", "interrupted\n")


def test_an_interrupt_that_the_caller_ignores_is_ignored() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "sys.argv = ['gemm-lab', '--version']\n"
        "from gemm_lab.cli import main\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


def test_ascii_locale_prints_something() -> None:
    done = process("list", "-v", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gemm-lab sh", "show"),
        ("gemm-lab show nai", "naive"),
        ("gemm-lab run --variant y_f", "y_first"),
        ("gemm-lab run --dtype bf", "bf16"),
        ("gemm-lab run --layout t", "tn"),
        ("gemm-lab run --arch sm_8", "sm_86"),
        ("gemm-lab run shared -p BLOCK", "BLOCK_SIZE="),
        ("gemm-lab run shared -p BLOCK_SIZE=1", "BLOCK_SIZE=16"),
        ("gemm-lab model --gpu h2", "h200"),
        ("gemm-lab run --no-ti", "--no-time"),
        ("gemm-lab cache pr", "prune"),
    ],
)
def test_completion(line: str, expected: str) -> None:
    done = process(_GEMM_LAB_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line, NO_COLOR="1")
    assert expected in done.stdout, done.stdout + done.stderr
    assert done.stderr == ""


def test_completion_of_nonsense_is_empty() -> None:
    done = process(_GEMM_LAB_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="gemm-lab run nope -p X")
    assert "Traceback" not in done.stderr


def test_public_names() -> None:
    assert gemm_lab.__all__ == [
        "CompileError", "CopyWarning", "GemmLabError", "LaunchError", "NoGpuError",
        "RegressionError", "ResourceError", "Results", "RuleError", "UsageError", "VariantError",
        "WrongResultError", "emulate", "explain_choice", "kernel", "matmul", "run", "sweep",
        "variants",
    ]  # fmt: skip
    for name in gemm_lab.__all__:
        assert getattr(gemm_lab, name) is not None
    assert set(gemm_lab.__all__) <= set(dir(gemm_lab))
    assert gemm_lab.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gemm_lab.nothing  # noqa: B018


def test_variants_is_a_room_and_a_function() -> None:
    from gemm_lab.variants import Variant

    assert all(isinstance(v, Variant) for v in gemm_lab.variants())  # type: ignore[operator]


def test_entry_point() -> None:
    from importlib.metadata import entry_points

    (found,) = entry_points(group="console_scripts", name="gemm-lab")
    assert found.value == "gemm_lab.cli:main"
    program = Path(sys.executable).with_name("gemm-lab")
    if program.exists():
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("gemm-lab ")


@pytest.mark.skipif(os.name != "posix", reason="descriptors are closed by a POSIX shell")
@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        ("list", ">&-", 0),
        ("list --json", ">&-", 0),
        ("run nothing", "2>&-", 2),
        ("list", ">/dev/full", 1),
        ("--help", ">/dev/full", 1),
        ("run --help", ">/dev/full", 1),
        ("--version", ">/dev/full", 1),
    ],
)
def test_streams_that_are_closed_or_full(words: str, closed: str, code: int) -> None:
    if "full" in closed and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m gemm_lab {words} {closed}', sys.executable],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stdout == ""
    if code == 1:
        assert done.stderr.startswith("error: stdout cannot be written: ")
    else:
        assert done.stderr == ""
