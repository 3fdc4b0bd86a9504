"""The commands. Each reads its arguments, calls one room, prints; every error ends as one line with its remedy.

Exit codes: 0 done, 1 failed (a server is missing, a promise would break), 2 misused (arguments, settings, input).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from stream_agg import __version__
from stream_agg.errors import ConfigError, InputError, StreamAggError

_COMMANDS = {
    "demo": "stream_agg.cli.demo",
    "worker": "stream_agg.cli.worker",
    "replay": "stream_agg.cli.replay",
    "verify": "stream_agg.cli.verify",
    "monitor": "stream_agg.cli.monitor",
    "session": "stream_agg.cli.session",
    "dead-letters": "stream_agg.cli.dead_letters",
    "solve": "stream_agg.cli.solve",
    "doctor": "stream_agg.cli.doctor",
    "completion": "stream_agg.cli.completion",
}


class _Commands(click.Group):
    """Loads a command's module when it is asked for, so that none waits for what another imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name]), cmd_name.replace("-", "_"))
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stream-agg")
def cli() -> None:
    """Robust decisions from many calibrated forecasts, on a stream.

    \b
    Start here:  stream-agg demo
    Own file:    stream-agg replay my.csv --levels 11 --action stay=1,0 --action prepare=0,3 --out report
    """


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of `stream-agg` and `python -m stream_agg`; always ends the process."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    for chatty in ("aiokafka", "faust", "mode"):  # what matters of theirs is said by us, once and in words
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    try:
        result: Any = cli.main(args=args, prog_name="stream-agg", standalone_mode=False)
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except (ConfigError, InputError) as e:
        return _complain(e, 2)
    except StreamAggError as e:
        return _complain(e, 1)
    except BrokenPipeError:
        return 1
    return result if isinstance(result, int) else 0


def _complain(error: StreamAggError, code: int) -> int:
    click.echo(f"stream-agg: {error}".replace("\n", " "), err=True)
    return code
