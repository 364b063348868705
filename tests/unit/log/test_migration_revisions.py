"""The revisions of the migrations, as read without Alembic."""

from alembic.config import Config
from alembic.script import ScriptDirectory

from shared.log.admin.server_check import revisions
from shared.log.database import MIGRATIONS


def test_the_revisions_read_from_the_files_are_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    known, newest = revisions()
    assert known == {each.revision for each in script.walk_revisions()}
    assert newest == script.get_current_head()
