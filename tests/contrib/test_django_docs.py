"""The snippets of docs/django.md make a project, and it runs, with SQLite and the Redis servers of the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django")
pytest.importorskip("redis")

PAGE = Path(__file__).parent.parent.parent / "docs" / "django.md"

BEFORE = """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "default"}}
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
AFTER = """
assert User.objects.using(shard_router().owner(7)).get().name == "Ann"
assert list(ann.order_set.values_list("number", flat=True)) == [1]
from django.core.cache import cache, caches
cache.set_many({str(i): i for i in range(20)})
assert cache.get_many(map(str, range(20))) == {str(i): i for i in range(20)}
assert len(caches["default"].ring.names) == 2
from django.db import connections
connections.close_all()
print("all is well")
"""

FLEET = """
from django.db import connections
from ringhash.contrib.django import using_key
from ringhash.fleet import Fleet
from shop.models import User
with Fleet({name: f"sqlite:///{name}" for name in shard_router().shards}, shard_router().router) as fleet:
    fleet.install()
"""
FENCED = """
print(User.objects.using(database).get(id=7).name)
connections.close_all()
"""


def test_the_project_of_the_page_runs(redis_nodes: list[Any], tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    settings, use, models, cache, fenced = blocks
    cache = re.sub(r"redis://10\.0\.0\.(\d)", lambda match: redis_nodes[int(match[1]) - 1].url, cache)
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "models.py").write_text(models)
    (tmp_path / "settings.py").write_text(BEFORE + settings + cache)
    (tmp_path / "manage.py").write_text(MANAGE)
    first = "import os, django\nos.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\ndjango.setup()\nfrom ringhash.contrib.django import shard_router\n"
    (tmp_path / "use.py").write_text(first + use + AFTER)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    run("manage.py", "makemigrations", "shop")
    assert "3 of 3 shards are migrated" in run("manage.py", "migrate_shards")
    run("manage.py", "check", "--fail-level", "WARNING")
    assert run("use.py") == "all is well\n"
    (tmp_path / "fenced.py").write_text(first + FLEET + fenced + FENCED)
    assert run("fenced.py") == "Anna\n"
