"""`beforehand authorize`: the owner's word on files of a workspace, given and taken."""

from __future__ import annotations

from pathlib import Path

from ..config import find_project, read_project
from ..config.project import shown_path
from ..errors import ConfigError
from ..workspace import Authority, PathRefused
from ..workspace.authority import PROTECTIONS, Protection, Standing

SAID = {"authorized": "authorised", "changed": "CHANGED since it was authorised", "gone": "authorised, but GONE", "": "-"}


def authority_of(project: Path, workspace: Path | None) -> Authority:
    """The authority over a workspace: the one that is named, or that of a project."""
    if workspace is None:
        found = read_project(find_project(project))
        workspace = found.path("workspace")
        if workspace is None:
            file = shown_path(found.file)
            raise ConfigError(f'{file} names no workspace: write workspace = "agent", or use --workspace FOLDER')
    return Authority(workspace)


def authorize_files(authority: Authority, paths: list[str], revoke: bool, protect: str | None) -> None:
    """Say one thing about some files. Either of all of them, or of none."""
    if not paths:
        raise ConfigError("name the files, such as lib/policy.ts; --list shows what has been said about which")
    known = next((one for one in PROTECTIONS if one == protect), None)
    if protect is not None and known is None:
        raise ConfigError(f"--protect {protect}: expected {', '.join(PROTECTIONS)}")
    names = [inside(authority, path) for path in paths]
    if not revoke and protect != "none":
        for name in names:
            if not (authority.folder.root / name).is_file():
                raise ConfigError(f"there is no file {name} in {authority.folder.root}: nothing was changed")
    try:
        for line in _said(authority, names, revoke, known):
            print(line)
    except ConfigError as error:
        raise ConfigError(f"{error}: nothing was changed") from None
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}: nothing was changed") from None


def _said(authority: Authority, names: list[str], revoke: bool, protect: Protection | None) -> list[str]:
    if protect is not None:
        authority.protect_all(names, protect)
        return [f"protection of {name}: {protect}" for name in names]
    if revoke:
        return [f"{name}: no longer authorised" if authority.revoke(name) else f"{name} was not authorised" for name in names]
    digests = authority.authorize_all(names)
    return [f"authorised {name} as it is now (sha256 {digest[:12]})" for name, digest in zip(names, digests, strict=True)]


def inside(authority: Authority, path: str) -> str:
    """A path of the workspace. One that leads there from the working directory will do as well."""
    root = authority.folder.root
    try:
        if (root / "/".join(authority.folder.resolve(path))).exists():
            return path
    except PathRefused:
        pass
    here = Path(path).absolute()
    if here.exists() and here.is_relative_to(root):
        return here.relative_to(root).as_posix()
    authority.folder.resolve(path)  # raises if it leads out
    return path


def show_authority(authority: Authority) -> None:
    entries = authority.entries()
    if not entries:
        print(f"nothing in {authority.folder.root} is authorised or protected")
        return
    width = max(len(entry.path) for entry in entries)
    for entry in entries:
        print(_line(entry, width))


def _line(entry: Standing, width: int) -> str:
    protection = "" if entry.protection == "none" else f"  {entry.protection}"
    return f"{entry.path:<{width}}  {SAID[entry.state]}{protection}"
