"""Running a program as itself: its arguments, its `__main__`, its way to end."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from truecopy.cli.command import CommandError, ExitCode
from truecopy.tracing.api import Trace

INTERRUPTED = 130
"""As a shell names it: 128 + SIGINT."""


@dataclass(frozen=True, slots=True)
class Program:
    """Code to run as `__main__`."""

    name: str  # "train.py", "python -m package"
    code: CodeType
    file: str
    first: str  # of sys.path
    arguments: Sequence[str]
    spec: ModuleSpec | None = None

    @classmethod
    def find(cls, module: str | None, arguments: Sequence[str]) -> Program:
        """The script that the arguments begin with, or a module."""
        return cls._script(arguments) if module is None else cls._module(module, arguments)

    @classmethod
    def _script(cls, arguments: Sequence[str]) -> Program:
        path = Path(arguments[0])
        try:
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError) as error:
            raise CommandError(f"cannot run {str(path)!r}: {error}") from error
        folder = str(path.resolve().parent)
        return cls(path.name, code, str(path), folder, arguments)

    @classmethod
    def _module(cls, module: str, arguments: Sequence[str]) -> Program:
        sys.path.insert(0, str(Path.cwd()))
        try:
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{module}.__main__")
        except ModuleNotFoundError:
            spec = None
        finally:
            del sys.path[0]
        loader: Any = spec.loader if spec else None
        code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
        if spec is None or code is None:
            raise CommandError(f"cannot run {module!r}: there is no such module, or no code in it")
        file = spec.origin or module
        return cls(f"python -m {module}", code, file, str(Path.cwd()), [file, *arguments], spec)

    def trace(self, *, exact: bool = False) -> tuple[Trace, int]:
        """Run it to its end while it is traced. Returns the trace, and the program's exit code."""
        run = Trace(self.name, self.code, exact=exact)
        before = sys.argv, sys.path, sys.modules.get("__main__")
        main = self._main()
        sys.argv, sys.path = list(self.arguments), [self.first, *sys.path[1:]]
        sys.modules["__main__"] = main
        try:
            with run:
                exec(self.code, main.__dict__)
        except SystemExit as end:
            code = _code_of(end)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException as error:  # noqa: BLE001 - the program's own end, told as Python tells it
            _tell(error)
            code = ExitCode.FINDINGS
        else:
            code = ExitCode.CLEAN
        finally:
            sys.argv, sys.path = before[0], before[1]
            if before[2] is not None:
                sys.modules["__main__"] = before[2]
        sys.stdout.flush()
        return run, code

    def _main(self) -> ModuleType:
        main = ModuleType("__main__")
        main.__file__ = self.file
        main.__builtins__ = __builtins__  # type: ignore[attr-defined]
        main.__spec__ = self.spec
        main.__package__ = self.spec.parent if self.spec else None
        main.__loader__ = self.spec.loader if self.spec else None
        return main


def _code_of(end: SystemExit) -> int:
    match end.code:
        case None:
            return 0
        case int(code):
            return code
    print(end.code, file=sys.stderr)
    return 1


def _tell(error: BaseException) -> None:
    """What Python prints of an exception that nobody caught, without the frames that ran the program."""
    where: TracebackType | None = error.__traceback__
    while where is not None and where.tb_frame.f_code.co_filename == __file__:
        where = where.tb_next
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(type(error), error, where)
    else:
        sys.excepthook(type(error), error, where)
