"""Hide what Windows lacks from the modules of `pipeline`, and from them alone: other packages see the real system.

`python -c "import without_posix; without_posix.hide(); import pipeline.core.timing"`
"""

import builtins
import importlib.machinery
import os
import signal
import sys
import types
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import psutil

# https://docs.python.org/3/library/: modules and functions with "Availability: Unix"
MODULES = {
    "crypt", "curses", "fcntl", "grp", "nis", "posix", "pty", "pwd", "readline", "resource", "spwd", "syslog",
    "termios", "tty",
}  # fmt: skip
_OF_WINDOWS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"}
_SIGNAL_FUNCTIONS = {
    "alarm", "getitimer", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "siginterrupt", "sigpending",
    "sigtimedwait", "sigwait", "sigwaitinfo",
}  # fmt: skip
_OS_NAMES = {
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "chown", "chroot", "confstr", "ctermid", "fchdir",
    "fchown", "fork", "forkpty", "fpathconf", "fstatvfs", "getegid", "geteuid", "getgid", "getgrouplist", "getgroups",
    "getloadavg", "getpgid", "getpgrp", "getpriority", "getresgid", "getresuid", "getsid", "getuid", "initgroups",
    "killpg", "lchown", "lockf", "mkfifo", "mknod", "nice", "openpty", "pathconf", "posix_fadvise", "posix_fallocate",
    "posix_spawn", "posix_spawnp", "pread", "pwrite", "readv", "register_at_fork", "sched_getaffinity",
    "sched_setaffinity", "sched_yield", "sendfile", "setegid", "seteuid", "setgid", "setgroups", "setpgid",
    "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setsid", "setuid", "statvfs", "sync", "sysconf",
    "tcgetpgrp", "tcsetpgrp", "ttyname", "uname", "wait", "wait3", "wait4", "waitid", "writev",
}  # fmt: skip
NAMES: dict[str, set[str]] = {
    "os": _OS_NAMES,
    "signal": _SIGNAL_FUNCTIONS | {name for name in dir(signal) if name.startswith("SIG")} - _OF_WINDOWS,
    "time": {"clock_settime", "pthread_getcpuclockid", "tzset"},
}
PEAK = 123 * 2**20  # bytes that psutil reports as this process's peak, as it does on Windows alone


def hide() -> None:
    """From now on, import the modules of `pipeline` as if on Windows."""
    assert not any(name.partition(".")[0] == "pipeline" for name in sys.modules)
    sys.meta_path.insert(0, _Finder())
    psutil.Process = _Process


def run(name: str, *arguments: str) -> None:
    """As `python -m name arguments`, for a module of `pipeline`."""
    loader = _Finder.find_spec(name, sys.modules[name.rpartition(".")[0]].__path__).loader
    module = ModuleType("__main__")
    module.__file__ = loader.get_filename(name)
    module.__builtins__ = _BUILTINS
    sys.modules["__main__"], sys.argv = module, [module.__file__, *arguments]
    exec(loader.get_code(name), module.__dict__)


class _Hidden(ModuleType):
    """A module without some of its names."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name in NAMES.get(self.__name__, ()):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}' on Windows")
        return "win32" if (self.__name__, name) == ("sys", "platform") else getattr(self._module, name)


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    if name in MODULES:
        raise ModuleNotFoundError(f"No module named '{name}' on Windows", name=name)
    module = builtins.__import__(name, globals, locals, fromlist or (), level)
    return _HIDDEN.get(module.__name__, module)


_HIDDEN = {module.__name__: _Hidden(module) for module in (os, signal, sys, sys.modules["time"])}
_BUILTINS = {**vars(builtins), "__import__": _import}


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> Any:
        if name.partition(".")[0] != "pipeline":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        module.__builtins__ = _BUILTINS  # type: ignore[attr-defined]
        super().exec_module(module)


class _Process(psutil.Process):
    def memory_info(self) -> Any:
        return types.SimpleNamespace(**super().memory_info()._asdict(), peak_wset=PEAK)
