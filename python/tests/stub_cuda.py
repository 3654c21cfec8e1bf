"""Makes an empty library in place of CUDA's, so that PyPI's torch runs on a machine that has neither: for tests only.

`python stub_cuda.py FOLDER` reads torch's own libraries in FOLDER (`torch/lib`), makes one library there that defines
every function of CUDA that they refer to, and links it under the name of each library that they ask for. Each function
fails with CUDA's "no device", so torch finds no GPU and computes on the processor. Needs `objdump` and `cc`.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

STUB = "libcuda_stub.so"
LIBRARIES = ("libcu", "libnv", "libnccl")
FUNCTIONS = ("cu", "__cuda", "nv", "nccl")

# CUDA's error "no CUDA-capable device is detected".
NO_DEVICE = 100

# Address, flags, section, length, version (in brackets where it is asked for), name.
SYMBOL = re.compile(r"^[0-9a-f]+ .{7} (?P<section>\S+)\t[0-9a-f]+ +(?P<version>.*?) *(?P<name>\S+)$")


@dataclass
class References:
    """What torch's libraries ask of CUDA's: libraries by name, functions with their versions ("" for none)."""

    libraries: set[str] = field(default_factory=set)
    asked: dict[str, str] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)

    def add(self, library: Path) -> None:
        """Adds what one library refers to."""
        needed = re.findall(r"NEEDED\s+(\S+)", objdump("-p", library))
        self.libraries.update(name for name in needed if name.startswith(LIBRARIES))
        for line in objdump("-T", library).splitlines():
            symbol = SYMBOL.match(line)
            if not symbol or not symbol["name"].startswith(FUNCTIONS):
                continue
            if symbol["section"] != "*UND*":
                self.own.add(symbol["name"])
                continue
            version = symbol["version"].strip("()")
            self.asked[symbol["name"]] = "" if version == "Base" else version

    def functions(self) -> dict[str, str]:
        """The functions that no library of torch defines, with their versions."""
        return {name: version for name, version in sorted(self.asked.items()) if name not in self.own}


def objdump(option: str, library: Path) -> str:
    """What `objdump` prints about a library; raises `CalledProcessError` if that is none."""
    return subprocess.run(["objdump", option, library], check=True, text=True, stdout=subprocess.PIPE).stdout


def definition(function: str) -> str:
    """A function in C that fails."""
    if function.endswith(("ErrorString", "ErrorName")):
        return f'const char *{function}(void) {{ return "an empty library stands in for CUDA"; }}'
    if function == "cudaGetDeviceCount":
        return f"int {function}(int *count) {{ *count = 0; return {NO_DEVICE}; }}"
    return f"int {function}(void) {{ return {NO_DEVICE}; }}"


def version_script(functions: dict[str, str]) -> str:
    """The linker's script that gives each function the version under which it is looked for."""
    names: dict[str, list[str]] = {}
    for name, version in functions.items():
        if version:
            names.setdefault(version, []).append(name)
    return "".join(f"{version} {{ {'; '.join(names[version])}; }};\n" for version in sorted(names))


def make(folder: Path) -> None:
    """Makes the library and its links in `folder`; nothing where torch asks for no CUDA."""
    references = References()
    for library in sorted(folder.glob("*.so*")):
        if not library.is_symlink() and library.name != STUB:
            references.add(library)
    source, script = folder / "cuda_stub.c", folder / "cuda_stub.map"
    functions = references.functions()
    source.write_text("".join(definition(name) + "\n" for name in functions))
    script.write_text(version_script(functions))
    # Some names are those of the compiler's own functions: it is not to compare our types with theirs.
    linker = f"-Wl,-soname,{STUB},--version-script={script}"
    compiler = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", linker]
    subprocess.run([*compiler, "-o", folder / STUB, source], check=True)
    for name in sorted(references.libraries):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(STUB)
    print(f"{len(functions)} functions for {len(references.libraries)} libraries of CUDA")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
