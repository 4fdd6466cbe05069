"""Commits: what a name stands for, whether the working tree differs, and drivers built from them."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from conditions import utc
from programs import DRIVER, ROOT, TARGET, built

FOLDER = TARGET / "benches" / "against"


class CommitError(Exception):
    """A commit that is not there or cannot be measured."""


@dataclass(frozen=True)
class Commit:
    sha: str
    date: str  # of the commit, in UTC
    subject: str
    dirty: bool = False  # whether files of the working tree differ from it

    @property
    def short(self):
        return self.sha[:9]

    @property
    def label(self):
        return self.short + (" with changes" if self.dirty else "")

    def record(self):
        return dict(commit=self.sha, committed=self.date, subject=self.subject, dirty=self.dirty)


def git(*arguments):
    """The output of git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError as error:
        raise CommitError(f"git cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise CommitError(done.stderr.strip() or f"git {arguments[0]} failed")
    return done.stdout


def resolve(name):
    """The commit that a name, such as `HEAD~3`, `v0.1` or `35cca0a`, stands for."""
    git("rev-parse", "--git-dir")  # an error if this is no repository
    try:
        sha = git("rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}").strip()
    except CommitError:
        hint = "; a shallow clone lacks old commits: git fetch --unshallow"
        shallow = git("rev-parse", "--is-shallow-repository").strip() == "true"
        raise CommitError(f"there is no commit named {name!r}{hint if shallow else ''}") from None
    # Seconds since 1970 are the same in every time zone.
    seconds, subject = git("show", "-s", "--format=%ct%n%s", sha).split("\n", 1)
    return Commit(sha, utc(int(seconds)), subject.strip())


def changed_files(status):
    """The paths in the output of `git status --porcelain -z`, untracked files included."""
    paths, entries = [], iter(status.split("\0"))
    for entry in entries:
        if entry:
            paths.append(entry[3:])
            if entry[0] in "RC":
                next(entries, None)  # the old name
    return paths


def working_tree():
    """The commit of the working tree, and the paths of files that differ from it."""
    head, changed = resolve("HEAD"), changed_files(git("status", "--porcelain", "-z"))
    return Commit(head.sha, head.date, head.subject, bool(changed)), changed


def builder():
    """A digest of the compiler and its flags, on which a built program depends beside its commit."""
    version = subprocess.run(["rustc", "-vV"], cwd=ROOT, capture_output=True, text=True).stdout
    names = ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET")
    flags = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name in names or name.startswith("CARGO_PROFILE")]
    return hashlib.sha256("\n".join([version, *flags]).encode()).hexdigest()[:8]


@contextlib.contextmanager
def locked():
    """Waits until no other process builds a commit here."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kept(program, path):
    """Copies a program, so that a later build does not replace it while it is measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shutil.copy2(program, partial)
    partial.replace(path)
    return path


def driver_of(commit):
    """The driver built from a commit, in a temporary worktree. Drivers and the target folder are kept.

    The worktree lies outside of the project, whose .cargo/config.toml would apply to it otherwise. Its path
    is the same every time, since cargo would build everything again in another one.
    """
    path = FOLDER / f"driver-{commit.sha[:12]}-{builder()}"
    if path.exists():
        return path
    try:
        git("cat-file", "-e", f"{commit.sha}:benches/driver.rs")
    except CommitError:
        raise CommitError(f"commit {commit.short} has no benches/driver.rs, the program that is timed") from None
    place = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    tree = Path(tempfile.gettempdir()) / f"retrograd-against-{os.getuid()}-{place}"
    with locked():
        remove(tree)  # of a run that was killed
        print(f"building {commit.short} in a temporary worktree", file=sys.stderr)
        try:
            git("worktree", "add", "--detach", "--force", str(tree), commit.sha)
            program = built(DRIVER, "driver", cwd=tree, target_folder=FOLDER / "target")
            return kept(program, path)
        except subprocess.CalledProcessError:
            raise CommitError(f"the driver of commit {commit.short} does not build; cargo says why above") from None
        except FileNotFoundError as error:
            raise CommitError(f"the driver of commit {commit.short} was not built: {error}") from None
        finally:
            remove(tree)


def remove(tree):
    """Removes a worktree, if it is there."""
    with contextlib.suppress(CommitError):
        git("worktree", "remove", "--force", str(tree))
    shutil.rmtree(tree, ignore_errors=True)
