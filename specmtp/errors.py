"""A user's mistake becomes one sentence and exit code 2; a fault of ours keeps its traceback."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TRACEBACK = "SPECMTP_TRACEBACK"
"""Set this environment variable to see the traceback of a user's mistake."""


@contextmanager
def one_line_errors(*also: type[Exception]) -> Iterator[None]:
    """Turns ValueError, OSError and the given classes into one line on stderr and exit code 2; Ctrl-C into 130."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # see the entry points
    threading.excepthook = _one_line_of_a_thread
    users_fault: tuple[type[Exception], ...] = (ValueError, OSError, *also)
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # a reader like head went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except users_fault as error:
        if os.environ.get(TRACEBACK):
            raise
        print(f"error: {_sentence(error)}", file=sys.stderr)
        raise SystemExit(2) from None


def _sentence(error: BaseException | None) -> str:
    if isinstance(error, OSError) and error.strerror and not error.filename:
        return error.strerror
    return " ".join(str(error).split())


def _one_line_of_a_thread(args: threading.ExceptHookArgs) -> None:
    """A writer's thread that meets a full disk: the main thread meets it next, and stops."""
    if isinstance(args.exc_value, OSError):
        print(f"error: {_sentence(args.exc_value)}", file=sys.stderr)
    else:
        threading.__excepthook__(args)
