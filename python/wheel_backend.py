"""Builds the wheel: the package, its native module and the command `bellwether`.

This is the build back end that `pyproject.toml` names, so `pip install ./python` works where cargo is. A wheel is a zip
archive; the standard tool for native modules, maturin, does not put a module and a program into one.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).resolve().parent
ROOT = PYTHON.parent
MODULE, COMMAND = "lib_native.so", "bellwether"

# Libraries that the C library of every Linux system brings: nothing else may be needed.
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux-[\w-]+)\.so\.\d")

# The files of a wheel carry no time: the same sources make the same wheel.
NO_TIME = (1980, 1, 1, 0, 0, 0)


class Wheel:
    """A wheel that is being written. Its last file lists the others with their digests."""

    def __init__(self, path: Path, dist_info: str) -> None:
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.record = f"{dist_info}/RECORD"
        self.lines: list[str] = []

    def add(self, name: str, data: bytes, *, executable: bool = False) -> None:
        """Adds a file."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.lines.append(f"{name},sha256={digest},{len(data)}\n")
        self.write(name, data, executable=executable)

    def close(self) -> None:
        """Adds the list of files, and ends the archive."""
        text = "".join(self.lines) + f"{self.record},,\n"
        self.write(self.record, text.encode(), executable=False)
        self.archive.close()

    def write(self, name: str, data: bytes, *, executable: bool) -> None:
        """Writes a file without listing it."""
        entry = zipfile.ZipInfo(name, NO_TIME)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.archive.writestr(entry, data)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Compiles with cargo and writes the wheel into a folder; its file name (PEP 517)."""
    del config_settings, metadata_directory
    cargo = os.environ.get("CARGO", "cargo")
    packages = ["--package", "bellwether-cli", "--package", "bellwether-python"]
    subprocess.run([cargo, "build", "--release", *packages], check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return pack(ROOT / target / "release", Path(wheel_directory))


def pack(built: Path, folder: Path) -> str:
    """Writes the wheel of what cargo has built in `built` into `folder`; its file name."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        module, command = (stripped(built / name, Path(scratch)) for name in (MODULE, COMMAND))
        return write(module, command, folder)


def write(module: Path, command: Path, folder: Path) -> str:
    """Writes the wheel of two built files into `folder`; its file name."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    release = f"{project['name']}-{version()}"
    tag = f"cp311-abi3-{platform([module, command])}"
    wheel = Wheel(folder / f"{release}-{tag}.whl", f"{release}.dist-info")
    package = PYTHON / "bellwether"
    for path in sorted(package.rglob("*")):
        if path.suffix in {".py", ".pyi", ".typed"}:
            wheel.add(f"bellwether/{path.relative_to(package).as_posix()}", path.read_bytes())
    wheel.add("bellwether/_native.abi3.so", module.read_bytes(), executable=True)
    wheel.add(f"{release}.data/scripts/{COMMAND}", command.read_bytes(), executable=True)
    wheel.add(f"{release}.dist-info/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
    wheel.add(f"{release}.dist-info/METADATA", metadata(project).encode())
    about = f"Wheel-Version: 1.0\nGenerator: bellwether\nRoot-Is-Purelib: false\nTag: {tag}\n"
    wheel.add(f"{release}.dist-info/WHEEL", about.encode())
    wheel.close()
    return f"{release}-{tag}.whl"


def version() -> str:
    """The version of the workspace."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    return str(workspace["package"]["version"])


def metadata(project: dict[str, Any]) -> str:
    """What `pyproject.toml` says of the project, as an index and an installer read it."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version()}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {needed}" for needed in project["dependencies"]]
    for extra, dependencies in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {needed}; extra == "{extra}"' for needed in dependencies]
    return "\n".join(lines) + "\n"


def stripped(file: Path, folder: Path) -> Path:
    """A copy of a library or a program in `folder` without the symbols that only a debugger reads."""
    copy = folder / file.name
    shutil.copy(file, copy)
    subprocess.run(["strip", "--strip-unneeded", copy], check=True)
    return copy


def platform(files: list[Path]) -> str:
    """The platform's tag for files of machine code: on Linux the oldest C library that has all they ask for.

    Raises `SystemExit` if a file needs a library that not every system has.
    """
    name = re.sub(r"[-.]", "_", sysconfig.get_platform())
    if not name.startswith("linux_"):
        return name
    minor = 17
    for file in files:
        said = subprocess.run(["objdump", "-p", file], check=True, text=True, stdout=subprocess.PIPE).stdout
        for library in re.findall(r"NEEDED\s+(\S+)", said):
            if not SYSTEM_LIBRARIES.fullmatch(library):
                raise SystemExit(f"{file.name} needs {library}, which a wheel may not ask for")
        minor = max([minor, *(int(asked) for asked in re.findall(r"\sGLIBC_2\.(\d+)", said))])
    return f"manylinux_2_{minor}_{name.removeprefix('linux_')}"


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
