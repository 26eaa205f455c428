"""Broken hand files: each gives one line that names what is wrong; no other exception, no crash, no hang.

MuJoCo's own reader is part of what is tested: some of these files would end the process, fill the memory or
read outside their folder if they reached it.
"""
# A corpus reads best with one case a line.
# ruff: noqa: E501

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fistful.errors import FistfulError, HandError, UnknownNameError
from fistful.hands import load_hand
from fistful.hands.library import import_model

HAND = """<mujoco model="small">
  <compiler angle="radian"/>
  {assets}
  <default><joint actuatorfrcrange="-1 1"/></default>
  <worldbody>
    <body name="palm">
      <geom name="palm" type="box" size=".05 .05 .01"/>
      <body name="left" pos=".04 0 .01">
        <joint name="left" axis="0 1 0" range="-1.6 0"/>
        <geom name="left" type="capsule" fromto="0 0 .01 0 0 .07" size=".008"/>{inner}
      </body>
      <body name="right" pos="-.04 0 .01">
        <joint name="right" axis="0 1 0" range="0 1.6"/>
        <geom name="right" type="capsule" fromto="0 0 .01 0 0 .07" size=".008"/>
      </body>
    </body>
  </worldbody>
  {end}
  <keyframe><key name="open" qpos="0 0"/></keyframe>
</mujoco>
"""
URDF = """<robot name="small">
  <link name="palm"><collision><geometry><box size=".1 .1 .02"/></geometry></collision></link>
  <link name="left"><collision><origin xyz="0 0 .04"/><geometry><box size=".02 .02 .06"/></geometry></collision></link>
  <link name="right"><collision><origin xyz="0 0 .04"/><geometry><box size=".02 .02 .06"/></geometry></collision></link>
  <joint name="left" type="revolute"><parent link="palm"/><child link="left"/><origin xyz=".04 0 .01" rpy="0 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-1.6" upper="0" effort="1" velocity="1"/></joint>
  <joint name="right" type="revolute"><parent link="palm"/><child link="right"/><origin xyz="-.04 0 .01"/>
    <axis xyz="0 1 0"/><limit lower="0" upper="1.6" effort="1" velocity="1"/></joint>
</robot>
"""
TOML = """schema = 1
name = "small"
model = "small.xml"
summary = "two fingers"

[fingers]
left = "left"
right = "right"

[[surface]]
name = "left_pad"
patches = [{ body = "left", direction = [-1, 0, 0], cone_deg = 50 }]

[[surface]]
name = "right_pad"
patches = [{ body = "right", direction = [1, 0, 0], cone_deg = 50 }]

[[opposition_space]]
name = "left-right"
surfaces = ["left_pad", "right_pad"]
joints = ["left", "right"]
span_mm = [20, 40]
"""


def mjcf(assets: str = "", inner: str = "", end: str = "") -> str:
    return HAND.format(assets=assets, inner=inner, end=end)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture(autouse=True)
def _nothing_is_written(tmp_path, monkeypatch):
    """MuJoCo writes its warnings to a file in the working folder; a hand is only read."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    yield
    assert list((tmp_path / "cwd").iterdir()) == []


def refusal(path: Path | str) -> str:
    """The one-line message with which a hand is refused."""
    with pytest.raises(FistfulError) as caught:
        load_hand(path)
    message = str(caught.value)
    assert isinstance(caught.value, HandError | UnknownNameError)
    assert message
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_the_good_ones_are_good(tmp_path):
    """What the corpus is made from."""
    for name, text in (("small.xml", mjcf()), ("small.urdf", URDF)):
        model, _ = import_model(write(tmp_path / name, text))
        assert model.joints == ("left", "right")
        assert len(model.geoms) == 3
    hand = load_hand(write(tmp_path / "small.toml", TOML))
    assert [space.name for space in hand.opposition_spaces] == ["left-right"]


# ---------------------------------------------------------------------------------------------------
# Files that are no XML, or no hand

BOMB = '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
) + "]><mujoco>&i;</mujoco>"  # fmt: skip


@pytest.mark.parametrize("extension", ["xml", "urdf", "mjcf"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("  \n ", "is empty"),
        ("this is not XML", "not well-formed"),
        (mjcf()[:-200], "not well-formed"),
        (URDF[: len(URDF) // 2], "not well-formed"),
        (bytes(np.random.default_rng(0).integers(0, 256, 2000, dtype=np.uint8)), "UTF-8"),
        (b"\0" * 100, "zero bytes"),
        (mjcf().encode("utf-16"), "UTF-8"),
        (mjcf().replace("palm", "pälm").encode("latin-1"), "UTF-8"),
        (BOMB, "document type"),
        (BOMB.encode("utf-16"), "UTF-8"),
        ("<!DOCTYPE html><html><body>404</body></html>", "document type"),
        ("<a>" * 5000 + "</a>" * 5000, ""),
    ],
    ids=["empty", "blank", "text", "truncated", "truncated_urdf", "random", "zeros", "utf16", "latin1", "bomb", "bomb16", "html", "deep"],
)  # fmt: skip
def test_not_xml(content, says, extension, tmp_path):
    message = refusal(write(tmp_path / f"hand.{extension}", content))
    assert says in message
    assert "hand" in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<mujoco/>", "not a hand"),
        ("<svg/>", "svg"),
        ('<mujoco><worldbody><geom size=".1"/></worldbody></mujoco>', "no joint that moves a shape"),
        (mjcf().replace("<joint name=", "<site name=").replace(' range="-1.6 0"', "").replace(' axis="0 1 0"', "").replace(' range="0 1.6"', "").replace(' qpos="0 0"', ""), "no joint that moves a shape"),
        (mjcf(inner='<body name="x"><joint type="ball"/><geom size=".01"/></body>').replace("0 0\"/></key", '0 0 1 0 0 0"/></key'), "ball or free"),
        (mjcf(inner='<body name="tip" pos="0 0 .07"><joint name="tip" axis="0 1 0" range="-1 1"/><geom size=".01"/></body>', end='<equality><connect name="bar" body1="tip" body2="right" anchor="0 0 0"/></equality>').replace("0 0\"/></key", '0 0 0"/></key'), "'bar' closes a linkage"),
        (mjcf(end='<equality><joint joint1="left" joint2="right"/><joint joint1="right" joint2="left"/></equality>'), "circle"),
        (mjcf(end='<equality><joint joint1="left" joint2="nobody"/></equality>'), "nobody"),
        (mjcf().replace('axis="0 1 0"', 'axis="0 0 0"'), "axis"),
        (mjcf().replace('range="0 1.6"', 'range="0 0" limited="true"'), "range"),
        (mjcf().replace('range="0 1.6"', 'range="0 nan"'), "'0 nan' of <joint> is not a number"),
        (mjcf().replace('range="0 1.6"', 'range="nan.5 1"'), "'nan.5 1' of <joint> is not a number"),
        (mjcf().replace('pos=".04 0 .01"', 'pos="inf 0 0"'), "body 'left' of the model has pos inf"),
        (mjcf().replace('axis="0 1 0"', 'axis="0 1 -inf"'), "joint 'left' of the model has axis"),
        (mjcf().replace('size=".008"', 'size=".008" mass="1e300"'), "has mass 1e+300"),
        (mjcf(end='<equality><joint joint1="left" joint2="right" polycoef="0 1e300 0 0 0"/></equality>'), "has data 0, 1e+300"),
        (mjcf().replace('pos=".04 0 .01"', 'pos="1e300 0 0"'), "1e+300"),
        (mjcf().replace('pos=".04 0 .01"', 'pos="40 0 10"').replace('pos="-.04 0 .01"', 'pos="-40 0 10"'), "80.1 m"),
        (mjcf().replace('pos=".04 0 .01"', 'pos="a b c"'), "pos"),
        (mjcf().replace('name="right"', 'name="left"'), "left"),
        (mjcf().replace('name="left" pos', 'name="world" pos'), "world"),
        (mjcf().replace("<geom", "<gem"), "gem"),
        (mjcf().replace('type="capsule"', 'type="plane"').replace('fromto="0 0 .01 0 0 .07"', "").replace('size=".008"', 'size="1 1 1"'), "plane"),
        (mjcf(end='<option timestep="nan"/>'), "nan"),
        (mjcf(end='<size nuser_body="2000000000"/>'), "2000000000"),
        (mjcf(assets='<asset><texture name="t" type="2d" builtin="flat" width="200000" height="200000"/></asset>'), "200000"),
        (mjcf(assets='<asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset>'), "<hfield>"),
        (mjcf(inner='<flexcomp name="f" type="grid" count="400 400 400" dim="3" spacing=".1 .1 .1" mass="1"/>'), "<flexcomp>"),
        (mjcf(inner='<replicate count="2000000" euler="0 0 .1"><body><joint range="0 1"/><geom size=".01"/></body></replicate>'), "replicas"),
        (mjcf(inner='<replicate count="1000"><replicate count="1000"><geom size=".01"/></replicate></replicate>'), "replicas"),
        (mjcf(inner='<body><joint axis="1 0 0" range="0 1"/><geom size=".004"/>' * 80 + "</body>" * 80), "82 moving bodies"),
        (mjcf(assets='<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1" face="0 1 99"/></asset>', inner='<geom type="mesh" mesh="m"/>'), "99"),
        (mjcf(assets='<asset><mesh name="m" builtin="supersphere" params="100000 1 1"/></asset>'), "100000"),
    ],
)  # fmt: skip
def test_mjcf_that_is_no_hand(content, says, tmp_path):
    assert says in refusal(write(tmp_path / "hand.xml", content))


# ---------------------------------------------------------------------------------------------------
# References


def box_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    trimesh.creation.box((0.02, 0.02, 0.02)).export(path)
    return path


MESH = '<asset><mesh name="m" file="{}"/></asset>'
USE = '<geom type="mesh" mesh="m"/>'


@pytest.mark.parametrize(
    ("assets", "reference"),
    [
        (MESH.format("../secret.stl"), "../secret.stl"),
        (MESH.format("sub/../../secret.stl"), "sub/../../secret.stl"),
        (MESH.format("..\\secret.stl"), "..\\\\secret.stl"),
        (MESH.format("{outside}/secret.stl"), "secret.stl"),
        ('<compiler meshdir=".."/>' + MESH.format("secret.stl"), "secret.stl"),
        ('<compiler assetdir=".."/>' + MESH.format("secret.stl"), "secret.stl"),
        ('<compiler meshdir="..\\"/>' + MESH.format("secret.stl"), "secret.stl"),
        ('<compiler meshdir="{outside}"/>' + MESH.format("secret.stl"), "secret.stl"),
        ('<include file="directory.xml"/>' + MESH.format("secret.stl"), "secret.stl"),
        ('<include file="sub/mesh.xml"/>', "../../secret.stl"),
        ('<include file="../secret.xml"/>', "../secret.xml"),
        ('<INCLUDE file="../secret.xml"/>', "../secret.xml"),
        ('<include file="..\\secret.xml"/>', "secret.xml"),
        (MESH.format("link.stl"), "link.stl"),
        ('<asset><model name="x" file="../secret.xml"/></asset>' + MESH.format("own.stl"), "../secret.xml"),
        ('<asset><texture name="t" type="cube" fileup="../secret.png"/></asset>' + MESH.format("own.stl"), "../secret.png"),
    ],
)  # fmt: skip
def test_mjcf_that_reads_outside_its_folder(assets, reference, tmp_path):
    """The files are there: nothing but the check stands between them and MuJoCo."""
    box_file(tmp_path / "secret.stl")
    write(tmp_path / "secret.xml", "<mujoco/>")
    folder = tmp_path / "hand"
    box_file(folder / "own.stl")
    write(folder / "directory.xml", '<mujoco><compiler meshdir=".."/></mujoco>')
    write(folder / "sub" / "mesh.xml", f"<mujoco>{MESH.format('../../secret.stl')}</mujoco>")
    (folder / "link.stl").symlink_to(tmp_path / "secret.stl")
    text = mjcf(assets=assets.replace("{outside}", str(tmp_path)), inner=USE)
    message = refusal(write(folder / "hand.xml", text))
    assert reference in message
    assert "outside of its folder 'hand'" in message


def test_mjcf_references_inside_the_folder_are_read(tmp_path, monkeypatch):
    """The other side of the check: folders, nested includes and attached models of one's own work."""
    box_file(tmp_path / "meshes" / "part" / "box.stl")
    write(tmp_path / "parts" / "assets.xml", '<mujoco><include file="more.xml"/></mujoco>')
    write(tmp_path / "parts" / "more.xml", f"<mujoco>{MESH.format('part/../part/box.stl')}</mujoco>")
    assets = '<compiler meshdir="meshes"/><include file="parts/assets.xml"/>'
    path = write(tmp_path / "hand.xml", mjcf(assets=assets, inner=USE))
    assert len(import_model(path)[0].geoms) == 4
    monkeypatch.chdir(tmp_path)
    assert len(import_model(Path("hand.xml"))[0].geoms) == 4
    monkeypatch.chdir(tmp_path / "cwd")

    tip = '<mujoco><worldbody><body name="tip"><geom name="tip" size=".01"/></body></worldbody></mujoco>'
    write(tmp_path / "parts" / "tip.xml", tip)
    assets = '<asset><model name="tip" file="parts/tip.xml"/></asset>'
    text = mjcf(assets=assets, inner='<attach model="tip" body="tip" prefix="l_"/>')
    model, _ = import_model(write(tmp_path / "attached.xml", text))
    assert "l_tip" in [g.name for g in model.geoms]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"hand.xml": mjcf(assets='<include file="hand.xml"/>')}, "in a circle"),
        ({"hand.xml": mjcf(assets='<include file="a.xml"/>'), "a.xml": '<mujoco><include file="b.xml"/></mujoco>', "b.xml": '<mujoco><include file="a.xml"/></mujoco>'}, "'a.xml'|a.xml is included"),
        ({"hand.xml": mjcf(assets='<include file="gone.xml"/>')}, "gone.xml"),
        ({"hand.xml": mjcf(assets='<include file=""/>')}, "includes ''"),
        ({"hand.xml": mjcf(assets='<include file="a.xml"/>'), "a.xml": "<mujoco"}, "a.xml is not well-formed"),
        ({"hand.xml": mjcf(assets='<asset><model name="x" file="hand.xml"/></asset>')}, "attaches itself"),
        ({"hand.xml": mjcf(assets='<asset><model name="x" file="a.xml"/></asset>'), "a.xml": '<mujoco><asset><model name="y" file="hand.xml"/></asset></mujoco>'}, "attaches itself"),
        ({"hand.xml": mjcf(assets='<asset><model name="x" file="gone.xml"/></asset>')}, "gone.xml"),
        ({"hand.xml": mjcf(assets="".join(f'<include file="{k}.xml"/>' for k in range(60)))} | {f"{k}.xml": "<mujoco><worldbody/></mujoco>" for k in range(60)}, "more than 50 files"),
        ({"hand.xml": mjcf(assets=MESH.format("gone.stl"), inner=USE)}, "gone.stl"),
        ({"hand.xml": mjcf(assets=MESH.format("text.stl"), inner=USE), "text.stl": "not a mesh " * 20}, "text.stl"),
        ({"hand.xml": mjcf(assets=MESH.format("text.obj"), inner=USE), "text.obj": "not a mesh " * 20}, "vertices"),
        ({"hand.xml": mjcf(assets=MESH.format("empty.stl"), inner=USE), "empty.stl": ""}, "empty.stl"),
        ({"hand.xml": mjcf(assets=MESH.format("mesh.dae"), inner=USE), "mesh.dae": "<COLLADA/>"}, "mesh.dae"),
        ({"hand.xml": mjcf(assets=MESH.format("x" * 300 + ".stl"), inner=USE)}, "no file name"),
    ],
)  # fmt: skip
def test_mjcf_whose_files_are_missing_or_broken(files, says, tmp_path):
    for name, content in files.items():
        write(tmp_path / name, content)
    message = refusal(tmp_path / "hand.xml")
    assert any(option in message for option in says.split("|"))


def test_the_dangerous_ones_do_not_end_the_process(tmp_path):
    """The same in a process of its own, whose end would be seen: MuJoCo overflows its stack on some of them."""
    dangerous = {
        "itself.xml": mjcf(assets='<asset><model name="x" file="itself.xml"/></asset>'),
        "attached.xml": mjcf(
            assets='<asset><model name="x" file="attached.xml"/></asset>',
            inner='<attach model="x" body="palm" prefix="p"/>',
        ),
        "replicas.xml": mjcf(inner='<replicate count="9000000"><geom size=".01"/></replicate>'),
        "texture.xml": mjcf(
            assets='<asset><texture name="t" builtin="flat" width="90000" height="90000"/></asset>'
        ),
        "deep.xml": mjcf(inner="<body>" * 4000 + "</body>" * 4000),
        "deep.urdf": "<robot>" + "<link>" * 4000 + "</link>" * 4000 + "</robot>",
        "chain.urdf": long_chain(3000),
        "bomb.xml": BOMB,
    }
    for name, content in dangerous.items():
        write(tmp_path / "files" / name, content)
    code = (
        "import sys, pathlib\n"
        "from fistful.errors import FistfulError\n"
        "from fistful.hands import load_hand\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    try:\n"
        "        load_hand(path)\n"
        "    except FistfulError as error:\n"
        "        print(path.name, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "files")], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    refused = [line.split()[0] for line in done.stdout.splitlines()]
    assert refused == sorted(dangerous)


# ---------------------------------------------------------------------------------------------------
# URDF

LEFT = '<parent link="palm"/><child link="left"/>'


def long_chain(count: int) -> str:
    links = "".join(f'<link name="l{k}"/>' for k in range(count))
    joints = "".join(
        f'<joint name="j{k}" type="fixed"><parent link="l{k}"/><child link="l{k + 1}"/></joint>'
        for k in range(count - 1)
    )
    return f"<robot>{links}{joints}</robot>"


def with_mesh(reference: str) -> str:
    return URDF.replace('<box size=".1 .1 .02"/>', f'<mesh filename="{reference}"/>')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<robot/>", "0 links"),
        (URDF.replace("collision", "ignored"), "no joint that moves a shape"),
        (with_mesh("gone.stl"), "gone.stl"),
        (with_mesh("package://small/meshes/gone.stl"), "package://small/meshes/gone.stl"),
        (with_mesh("../secret.stl"), "outside of its folder"),
        (with_mesh("package://small/../../secret.stl"), "outside of its folder"),
        (with_mesh("file:///etc/hostname"), "outside of its folder"),
        (with_mesh("https://example.org/hand.stl"), "https://example.org/hand.stl"),
        (with_mesh("text.stl"), "text.stl"),
        (with_mesh("text.xyz"), "text.xyz"),
        (with_mesh("flat.obj"), "flat"),
        (with_mesh("nan.obj"), "nan.obj"),
        (with_mesh(""), "''"),
        (with_mesh('own.stl" scale="0 0 0'), "own"),
        (with_mesh('own.stl" scale="1 1'), "'1 1'"),
        (URDF.replace("<box", "<banana"), "<banana>"),
        (URDF.replace(LEFT, '<parent link="left"/><child link="palm"/>').replace('<parent link="palm"/><child link="right"/>', '<parent link="palm"/><child link="left"/>'), "cycle"),
        (URDF.replace(LEFT, '<parent link="left"/><child link="left"/>'), "cycle"),
        (URDF.replace("</robot>", '<link name="loose"/></robot>'), "2 roots"),
        (URDF.replace('<parent link="palm"/>', '<parent link="plam"/>'), "'plam'"),
        (URDF.replace('<child link="right"/>', ""), "'right' has no <child"),
        (URDF.replace('<link name="right">', '<link name="left">'), "'left' is missing or used twice"),
        (URDF.replace('<link name="right">', "<link>"), "''"),
        (URDF.replace('<joint name="right"', '<joint name="left"'), "'left' is missing or used twice"),
        (URDF.replace('<axis xyz="0 1 0"/>', '<axis xyz="0 0 0"/>'), "zero axis"),
        (URDF.replace('<axis xyz="0 1 0"/>', '<axis xyz="0 1"/>'), "'0 1'"),
        (URDF.replace('xyz=".04 0 .01"', 'xyz="nan 0 0"'), "'nan 0 0'"),
        (URDF.replace('xyz=".04 0 .01"', 'xyz="1e400 0 0"'), "'1e400 0 0'"),
        (URDF.replace('rpy="0 0 0"', 'rpy="0 zero 0"'), "'0 zero 0'"),
        (URDF.replace('lower="-1.6"', 'lower="low"'), "'low'"),
        (URDF.replace('lower="-1.6"', 'lower="3"'), "empty range [3, 0]"),
        (URDF.replace('lower="-1.6"', ""), "empty range [0, 0]"),
        (URDF.replace('type="revolute"', 'type="planar"'), "'planar'"),
        (URDF.replace('type="revolute"', 'type="floating"'), "'floating'"),
        (URDF.replace('type="revolute"', ""), "''"),
        (URDF.replace('type="revolute"', 'type="fixed"'), "no joint that moves a shape"),
        (URDF.replace('velocity="1"/></joint>', 'velocity="1"/><mimic joint="nobody"/></joint>'), "'nobody'"),
        (URDF.replace('velocity="1"/></joint>', 'velocity="1"/><mimic/></joint>'), "''"),
        (URDF.replace('velocity="1"/></joint>', 'velocity="1"/><mimic joint="left"/></joint>'), "left"),
        (URDF.replace('velocity="1"/></joint>\n</robot>', 'velocity="1"/><mimic joint="left"/></joint></robot>').replace('velocity="1"/></joint>', 'velocity="1"/><mimic joint="right"/></joint>', 1), "circle"),
        (URDF.replace('velocity="1"/></joint>\n</robot>', 'velocity="1"/><mimic joint="left" multiplier="x"/></joint></robot>'), "'x'"),
        (URDF.replace('size=".02 .02 .06"', 'size="-1 .02 .06"'), "size"),
        (URDF.replace('size=".02 .02 .06"', ""), "size"),
        (URDF.replace('size=".1 .1 .02"', 'size="100 100 20"'), "millimetres"),
        (long_chain(200), "no joint that moves a shape"),
    ],
)  # fmt: skip
def test_bad_urdf(text, says, tmp_path):
    folder = tmp_path / "small"
    box_file(tmp_path / "secret.stl")
    box_file(folder / "own.stl")
    write(folder / "text.stl", "not a mesh " * 20)
    write(folder / "text.xyz", "1 2 3")
    write(folder / "flat.obj", "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3\nf 1 3 4\nf 1 2 4\nf 2 3 4\n")
    write(folder / "nan.obj", "v nan 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 1\nf 1 2 3\nf 1 3 4\nf 1 2 4\nf 2 3 4\n")
    assert says in refusal(write(folder / "hand.urdf", text))


def test_a_urdf_with_the_extension_of_an_mjcf_is_read_as_what_it_is(tmp_path):
    assert import_model(write(tmp_path / "hand.xml", URDF))[0].joints == ("left", "right")
    assert "<robot>, found <mujoco>" in refusal(write(tmp_path / "hand.urdf", mjcf()))


# ---------------------------------------------------------------------------------------------------
# Names and descriptions


def test_names_and_paths(tmp_path):
    assert "Did you mean 'allegro'?" in refusal("alegro")
    assert "gone.xml" in refusal(tmp_path / "gone.xml")
    assert "is a folder" in refusal(tmp_path)
    assert "is a folder" in refusal("")
    assert "too long" in refusal("x" * 5000)
    assert "no hand called" in refusal("a\0b")
    assert "not a hand file" in refusal(box_file(tmp_path / "box.stl"))
    assert "not a hand file" in refusal(write(tmp_path / "hand.txt", mjcf()))
    assert "not a hand file" in refusal(write(tmp_path / "hand", mjcf()))
    # An object's mesh under a hand's name.
    assert "UTF-8" in refusal(write(tmp_path / "mesh.xml", box_file(tmp_path / "box.stl").read_bytes()))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("schema = 1", "schema = 2", "schema 2"),
        ("schema = 1", "", "schema None"),
        ('name = "small"\n', "", "misses the entry 'name'"),
        ('model = "small.xml"', "", "misses the entry 'model'"),
        ("[fingers]", "[digits]", "misses the entry 'fingers'"),
        ('surfaces = ["left_pad", "right_pad"]', "", "misses the entry 'surfaces'"),
        ('body = "left", ', "", "misses the entry 'body'"),
        ('body = "left"', 'body = "lfet"', "'lfet'"),
        ('left = "left"', 'left = "lfet"', "'lfet'"),
        ('left = "left"', 'left = "palm"', "'palm'"),
        ("left = ", "left ", "not a TOML file"),
        ('joints = ["left", "right"]', 'joints = ["left", "rihgt"]', "'rihgt'"),
        ('joints = ["left", "right"]', "joints = []", "names no joint"),
        ('joints = ["left", "right"]', "joints = 3", "malformed"),
        ('["left_pad", "right_pad"]', '["left_pad", "palm"]', "'palm'"),
        ('["left_pad", "right_pad"]', '["left_pad"]', "malformed"),
        ('["left_pad", "right_pad"]', '["left_pad", "left_pad"]', "'left_pad' twice"),
        ('["left_pad", "right_pad"]', '["left_pad", "right_pad", "left_pad"]', "malformed"),
        ("direction = [-1, 0, 0]", "direction = [0, 0, 0]", "[0, 0, 0]"),
        ("direction = [-1, 0, 0]", "direction = [nan, 0, 0]", "nan"),
        ("direction = [-1, 0, 0]", "direction = [1, 0]", "malformed"),
        ("direction = [-1, 0, 0]", 'direction = "up"', "malformed"),
        ("direction = [-1, 0, 0]", f"direction = [1{'0' * 400}, 0, 0]", "malformed"),
        ("direction = [-1, 0, 0]", f"direction = [{'9' * 5000}, 0, 0]", "not a TOML file"),
        ("cone_deg = 50 }]\n\n[[surface]]", "cone_deg = 0 }]\n\n[[surface]]", "cone_deg 0"),
        ("cone_deg = 50 }]\n\n[[surface]]", "cone_deg = 400 }]\n\n[[surface]]", "cone_deg 400"),
        ("cone_deg = 50 }]\n\n[[surface]]", "cone_deg = nan }]\n\n[[surface]]", "cone_deg nan"),
        ('patches = [{ body = "left", direction = [-1, 0, 0], cone_deg = 50 }]', "patches = []", "'left_pad' of 'small' is empty"),
        ("direction = [-1, 0, 0], cone_deg = 50", "direction = [0, 0.0123, -1], cone_deg = 0.001", "'left_pad' of 'small' is empty"),
        ('name = "right_pad"', 'name = "left_pad"', "'left_pad' is described twice"),
        ("[[opposition_space]]", '[[opposition_space]]\nname = "left-right"\nsurfaces = ["left_pad", "right_pad"]\njoints = ["left"]\n[[opposition_space]]', "same name"),
        ("span_mm = [20, 40]", "span_mm = [20]", "malformed"),
        ("span_mm = [20, 40]", "span_mm = 20", "malformed"),
        ('"small.xml"', '"gone.xml"', "gone.xml"),
        ('"small.xml"', '"../small.xml"', "outside of its folder"),
        ('"small.xml"', '"/etc/hostname"', "outside of its folder"),
        ('"small.xml"', '"a\\u0000b.xml"', "no file name"),
        ('"small.xml"', f'"{"x" * 300}.xml"', "no file name"),
        ('"small.xml"', '"broken.xml"', "broken.xml is not well-formed"),
        ('"small.xml"', '"reads.xml"', "'own.stl'"),
        ('"small.xml"', '"includes.xml"', "'small.xml'"),
        ('"small.xml"', '"small.toml"', "not well-formed"),
        ("schema = 1", "schema = 1\nx = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("schema = 1", "\x07", "not a TOML file"),
    ],
)  # fmt: skip
def test_bad_description(old, new, says, tmp_path):
    folder = tmp_path / "hand"
    write(tmp_path / "small.xml", mjcf())
    write(folder / "small.xml", mjcf())
    box_file(folder / "own.stl")
    write(folder / "broken.xml", mjcf()[:-30])
    write(folder / "reads.xml", mjcf(assets=MESH.format("own.stl"), inner=USE))
    write(folder / "includes.xml", '<mujoco><include file="small.xml"/></mujoco>')
    assert old in TOML
    assert says in refusal(write(folder / "small.toml", TOML.replace(old, new, 1)))


def test_a_description_that_is_not_text(tmp_path):
    assert "not a TOML file" in refusal(write(tmp_path / "hand.toml", b"\xff\xfe\x00"))
    assert "schema None" in refusal(write(tmp_path / "empty.toml", ""))


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything"
)
@pytest.mark.parametrize("name", ["hand.xml", "hand.urdf", "hand.toml"])
def test_a_file_that_may_not_be_read(name, tmp_path):
    path = write(tmp_path / name, mjcf())
    path.chmod(0)
    assert "can not be read" in refusal(path)


# ---------------------------------------------------------------------------------------------------
# Fuzzing: mutated files either load or are refused

TOKENS = [b'"', b"<", b">", b"/", b"0", b"-1", b"1e9", b"1e-9", b" ", b"nan", b"left", b"right", b"palm", b"world",
          b"mesh", b"ball", b"free", b"slide", b"joint", b"body", b"geom", b"range", b"[", b"]", b"=", b"\xff", b"\n"]  # fmt: skip


@st.composite
def mutated(draw, original: bytes) -> bytes:
    """The original with some stretches deleted, doubled, swapped, or replaced by a token."""
    data = original
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 40))
        end, piece = start + length, data[start : start + length]
        action = draw(st.sampled_from(["delete", "double", "token", "byte", "truncate"]))
        if action == "delete":
            data = data[:start] + data[end:]
        elif action == "double":
            data = data[:end] + piece + data[end:]
        elif action == "token":
            data = data[:start] + draw(st.sampled_from(TOKENS)) + data[start + draw(st.integers(0, 6)) :]
        elif action == "byte":
            data = data[:start] + bytes([draw(st.integers(0, 255))]) + data[start + 1 :]
        elif draw(st.integers(0, 9)) == 0:
            data = data[:start]
    return data


fuzzed = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def survives(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        if path.suffix == ".toml":
            hand = load_hand(path)
            model = hand.model
        else:
            model, notes = import_model(path)
            assert all("\n" not in note for note in notes)
    except FistfulError as error:
        assert "\n" not in str(error)
        return
    assert model.joints
    assert np.all(np.isfinite(model.poses(model.open_pose).p_HB))
    assert np.all(model.lower < model.upper)
    assert not math.isnan(model.torque_limit.sum())


@fuzzed
@given(mutated(mjcf().encode()))
def test_fuzzed_mjcf(tmp_path, content):
    survives(tmp_path / "fuzz.xml", content)


@fuzzed
@given(mutated(URDF.encode()))
def test_fuzzed_urdf(tmp_path, content):
    survives(tmp_path / "fuzz.urdf", content)


@fuzzed
@given(mutated(TOML.encode()))
def test_fuzzed_description(tmp_path, content):
    (tmp_path / "small.xml").write_text(mjcf())
    survives(tmp_path / "fuzz.toml", content)
