from pathlib import Path

import pytest


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A place for a log."""
    return f"file://{tmp_path}/log"
