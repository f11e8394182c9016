from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


def note(apps, editor):
    """Rows that each shard has."""
    if editor.connection.alias != "default":
        apps.get_model("django_shop", "Country").objects.using(editor.connection.alias).create(code="at")


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            "Country", [("code", models.CharField(max_length=2, primary_key=True, serialize=False))]
        ),
        migrations.CreateModel(
            "Setting", [("name", models.CharField(max_length=40, primary_key=True, serialize=False))]
        ),
        migrations.CreateModel(
            "User",
            [
                ("id", models.IntegerField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=40)),
                (
                    "country",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, to="django_shop.country"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.IntegerField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="orders",
                        to="django_shop.user",
                    ),
                ),
            ],
        ),
        migrations.RunPython(note, migrations.RunPython.noop),
    ]
