"""A first start that compiles says so."""

from pathlib import Path

from cli.supervisor.first_compilation import is_due


def test_the_first_start_of_an_installation_compiles_and_the_next_one_does_not(tmp_path: Path) -> None:
    cache = tmp_path / "scheduler" / "kernels" / "__pycache__"
    cache.mkdir(parents=True)
    assert is_due({}, tmp_path)
    assert not is_due({"NUMBA_CACHE_DIR": "/var/cache/numba"}, tmp_path)
    (cache / "fused.evaluate-12.py311.nbi").touch()
    assert not is_due({}, tmp_path)
