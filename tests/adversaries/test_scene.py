"""The red team's own tools: what is open to a key, a token, a model or a look, they find."""

from __future__ import annotations

from tests.adversaries.scene import LATER, SECRET, Scene


def test_a_key_that_opens_and_a_token_that_reads_are_found(scene: Scene) -> None:
    scene.attacker.tokens.append(scene.home)
    assert any(SECRET in text for text in scene.open_rows())
    assert any(SECRET in text for text in scene.open_doors())


def test_the_scene_goes_on_by_itself(scene: Scene) -> None:
    scene.save_as_victim()
    assert f"{LATER} number 1" in scene.read_by(scene.home)
    scene.work()
    assert "By file." in scene.read_by(scene.home)
    assert SECRET in scene.models.heard_at_home()
    assert scene.models.heard_elsewhere() == ""
    scene.assert_nothing_opened()
    assert SECRET in scene.look_at(scene.grant(scene.ann), scene.ann)
    assert "No live exception" in scene.look_at(scene.grant(scene.mallory, answer="NO"), scene.mallory)
