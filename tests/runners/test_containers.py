"""Applications in container images: with a real ch-run, and what the other tools are told."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from koala.model.grid import Containers, ContainerTool
from koala.model.launch import Go, Launch, LaunchError
from koala.model.request import Application
from koala.runners import component_script
from tests.support.live_sites import launch
from tests.support.real_programs import real_program

GO = Go(environment=(("KOALA_JOB", "7"),))
MARK = "made for a test"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image as charliecloud has them: a directory, here with busybox and what it is linked with."""
    root = tmp_path / "images" / "small"
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "home", "mnt", "usr/bin"):
        (root / name).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    (root / "etc" / "mark").write_text(MARK)
    busybox = real_program("busybox")
    shutil.copy(busybox, root / "bin" / "busybox")
    for name in ("sh", "cat", "env", "pwd"):
        (root / "bin" / name).symlink_to("busybox")
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout
    for word in linked.split():
        if word.startswith("/"):
            (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, root / word[1:])
    return root


def run(home: Path, one: Launch, path: str = os.environ["PATH"]) -> str:
    """What the component of this launch has printed."""
    home.mkdir(exist_ok=True)
    (home / "script").write_text(component_script(one), encoding="utf-8")
    (home / "go").write_text(GO.text, encoding="utf-8")
    done = subprocess.run(["sh", "script"], cwd=home, env={"PATH": path}, timeout=120, check=False)
    assert done.returncode == 0
    assert (home / "exit").read_text() == "exited 0\n", (home / "stderr").read_text()
    return (home / "stdout").read_text()


def contained(tool: ContainerTool, images: Path | None, **application: object) -> Launch:
    return launch(
        application=Application(image="small", **application),  # type: ignore[arg-type]
        containers=Containers(tool=tool, images=None if images is None else str(images)),
    )


def test_a_program_runs_in_the_image_with_its_directory_its_input_and_its_variables(
    tmp_path: Path, image: Path
) -> None:
    ch_run = real_program("ch-run", package="charliecloud")
    probe = subprocess.run([ch_run, str(image), "--", "/bin/cat", "/etc/mark"], env={"USER": "me"}, check=False)
    assert probe.returncode == 0, "ch-run cannot run here: are user namespaces allowed?"
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "data-1").write_text("from the site\n")
    home = tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "data").symlink_to(kept / "data-1")
    script = """cat /etc/mark; echo; pwd; cat data; echo "$KOALA_JOB $MINE $#"; echo made >result"""
    one = contained(ContainerTool.CHARLIECLOUD, image.parent, script=script, environment=(("MINE", "a 'b' $c"),))
    assert run(home, one).splitlines() == [MARK, str(home / "workspace"), "from the site", "7 a 'b' $c 0"]
    assert (home / "workspace" / "result").read_text() == "made\n"


def test_arguments_arrive_in_the_image_byte_for_byte(tmp_path: Path, image: Path) -> None:
    real_program("ch-run", package="charliecloud")
    hostile = ("two words", "'; touch hacked; '", "$(touch hacked)", "new\nline", "--", "a=b", "")
    program = ("-c", 'for each; do printf "<%s>" "$each"; done', "sh", *hostile)
    one = contained(ContainerTool.CHARLIECLOUD, image.parent, executable="/bin/sh", arguments=program)
    assert run(tmp_path / "home", one) == "".join(f"<{text}>" for text in hostile)
    assert not list(tmp_path.rglob("hacked"))


PODMAN = "run --rm --env-host --network host --ipc host --userns keep-id --entrypoint "
TOLD = {
    ContainerTool.APPTAINER: ("apptainer", "exec --bind {kept} --bind {home} --pwd {work} /images/small prog x"),
    ContainerTool.CHARLIECLOUD: ("ch-run", "--bind={kept} --bind={home} --cd={work} /images/small -- prog x"),
    ContainerTool.PODMAN: (
        "podman",
        f"{PODMAN} --volume {{kept}}:{{kept}} --volume {{home}}:{{home}} --workdir {{work}} /images/small prog x",
    ),
    ContainerTool.ENROOT: (
        "enroot",
        '--mount {kept}:{kept} --mount {home}:{home} /images/small /bin/sh -c cd "$0" && exec "$@" {work} prog x',
    ),
}


@pytest.mark.parametrize("tool", list(ContainerTool))
def test_what_each_tool_is_told(tmp_path: Path, tool: ContainerTool) -> None:
    program, words = TOLD[tool]
    spy = tmp_path / "bin" / program
    spy.parent.mkdir()
    spy.write_text('#!/bin/sh\nprintf "%s" "$*"\n')
    spy.chmod(spy.stat().st_mode | stat.S_IXUSR)
    kept, home = tmp_path / "kept", tmp_path / "home"
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "data").symlink_to(kept / "data-1")
    one = contained(tool, Path("/images"), executable="prog", arguments=("x",))
    told = run(home, one, f"{spy.parent}:{os.environ['PATH']}")
    expected = words.format(kept=kept, home=home, work=home / "workspace")
    if tool is ContainerTool.ENROOT:
        assert told.startswith("start --rw --env ")
        assert " --env KOALA_JOB " in told
        assert told.endswith(expected)
    else:
        assert told == expected


@pytest.mark.parametrize(
    ("images", "name", "given"),
    [
        (None, "small", "small"),
        ("/shared/images/", "sub/small.sif", "/shared/images/sub/small.sif"),
        ("/shared/images", "/mine/small.sif", "/mine/small.sif"),
        ("/shared/images", "docker://site.example/small:1", "docker://site.example/small:1"),
    ],
)
def test_where_an_image_is_looked_for(images: str | None, name: str, given: str) -> None:
    assert Containers(tool=ContainerTool.APPTAINER, images=images).image(name) == given


@pytest.mark.parametrize("image", ["-v", "../other", "a/../../b", " small", "two\nlines", "nul\0"])
def test_what_cannot_be_an_image_is_refused_by_name(image: str) -> None:
    with pytest.raises(LaunchError, match=r"^image: "):
        launch(application=Application(executable="prog", image=image))
