"""Build a wheel with the program inside: wheel.py PROGRAM DIRECTORY [PLATFORM].

It needs nothing but the standard library. PLATFORM is the wheel's tag, such as manylinux2014_aarch64; by default that of
this machine. The program is static, so any Linux will do. The same inputs give the same bytes.
"""

import base64
import hashlib
import platform
import sys
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).parent


def tag() -> str:
    """Return the platform of this machine."""
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform == "linux":
        return f"manylinux2014_{machine}.musllinux_1_1_{machine}"
    if sys.platform == "darwin":
        return "macosx_11_0_" + ("arm64" if machine == "aarch64" else machine)
    return "win_" + ("arm64" if machine == "aarch64" else "amd64")


def main(program: str, out: str, at: str) -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    info = f"{name}-{version}.dist-info"
    # A path's mode says that the program may be run.
    files = {f"{name}/{p.name}": (p.read_bytes(), 0o644) for p in sorted((HERE / "src" / name).iterdir()) if p.is_file()}
    files[f"{name}/bin/fencepost" + (".exe" if at.startswith("win") else "")] = (Path(program).read_bytes(), 0o755)
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {project['description']}\n"
    metadata += f"License-Expression: {project['license']}\nRequires-Python: {project['requires-python']}\nDescription-Content-Type: text/markdown\n"
    files[f"{info}/METADATA"] = ((metadata + "\n" + (HERE / "README.md").read_text()).encode(), 0o644)
    tags = "".join(f"Tag: py3-none-{t}\n" for t in at.split("."))
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: fencepost\nRoot-Is-Purelib: false\n{tags}".encode(), 0o644)
    record = ""
    for path, (body, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(body)}\n"
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    with zipfile.ZipFile(Path(out) / f"{name}-{version}-py3-none-{at}.whl", "w", zipfile.ZIP_DEFLATED) as z:
        for path, (body, mode) in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, body)


main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else tag())
