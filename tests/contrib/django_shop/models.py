from __future__ import annotations

from typing import ClassVar

from django.db import models

from ringhash.contrib.django.managers import ShardManager


class Country(models.Model):
    code = models.CharField(max_length=2, primary_key=True)


class User(models.Model):
    id = models.IntegerField(primary_key=True)
    name = models.CharField(max_length=40)
    country = models.ForeignKey(Country, models.PROTECT, null=True)

    objects: ClassVar = ShardManager()


class Customer(User):
    class Meta:
        proxy = True


class Order(models.Model):
    """With the plain manager: the guards must hold without ours."""

    number = models.IntegerField()
    user = models.ForeignKey(User, models.CASCADE, related_name="orders")


class Setting(models.Model):
    """It is not sharded."""

    name = models.CharField(max_length=40, primary_key=True)
