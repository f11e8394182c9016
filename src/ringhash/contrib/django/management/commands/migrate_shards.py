"""`manage.py migrate_shards`: Django's `migrate` on all shards, several at a time."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ringhash.contrib.django.migrate import Migrated, migrate_shards

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]  # Django has no annotations
    """Migrate all shards, and say how each went."""

    help = "Run migrate on the databases of all shards: on the first alone, then on the others side by side."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments of `migrate` that make sense for many databases, and two more."""
        parser.add_argument("app_label", nargs="?", help="The application to migrate; all by default.")
        parser.add_argument("migration_name", nargs="?", help="The migration to go to; the last by default.")
        parser.add_argument("--workers", type=int, default=4, help="How many databases at a time (4).")
        parser.add_argument("--shards", nargs="+", metavar="ALIAS", help="Only these databases.")
        parser.add_argument("--fake", action="store_true", help="Only say that the migrations have run.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Migrate, a line for each database, and fail if one did."""
        arguments = [word for word in (options["app_label"], options["migration_name"]) if word]
        try:
            results = migrate_shards(
                *arguments,
                shards=options["shards"],
                workers=options["workers"],
                heard=self._say,
                fake=options["fake"],
            )
        except ValueError as error:
            raise CommandError(str(error)) from error
        failed = [result.database for result in results if result.error is not None]
        untried = [result.database for result in results if not result.tried]
        self.stdout.write(
            f"{len(results) - len(failed) - len(untried)} of {len(results)} shards are migrated"
        )
        if failed:
            rest = f"; not begun: {', '.join(untried)}" if untried else ""
            raise CommandError(f"failed: {', '.join(failed)}{rest}")

    def _say(self, result: Migrated) -> None:
        if not result.tried:
            self.stdout.write(f"{result.database}: not begun")
        elif result.error is None:
            done = result.output.count("... OK") + result.output.count("... FAKED")
            self.stdout.write(f"{result.database}: {done} migrations in {result.seconds:.1f} s")
        else:
            self.stdout.write(f"{result.database}: {type(result.error).__name__}: {result.error}")
