# A part of _core.pyx: what a router is at one moment, and the one reference to it.

cdef class Snapshot(Answering):
    """What names owners at one moment: a table, and entries of keys that have an owner of their own.

    It never changes, so one read gives a consistent view. A subclass in Python adds what
    else the moment has: its epoch, what is down.

    Args:
        table: A compiled table (`Answering`), or a placement: one that has its compiled table as
            `_table`, or one that is asked by its `owner` in Python.
        entries: Keys with an owner of their own, or None. They have the seed and the tags of a ring or
            of shards below, so that one hash serves both.
        entry_names: The name for each value of `entries`. None instead of a name has
            `_owner_of_entry(key, value)` say who it is, or raise.
    """

    cdef readonly object table
    cdef readonly EntryTable entries
    cdef readonly tuple entry_names
    cdef Answering compiled
    cdef Table ring            # of these two at most one is not None; they take a hash that is known
    cdef ShardTable shards
    cdef bint is_plain         # a ring and nothing else

    def __cinit__(self, table, EntryTable entries=None, tuple entry_names not None=(), *args, **options):
        cdef HashSpace space
        if table is None:
            raise TypeError("a snapshot needs a table")
        self.table = table
        compiled = table if isinstance(table, Answering) else getattr(table, "_table", None)
        if isinstance(compiled, Answering):
            self.compiled = compiled
        elif not callable(getattr(table, "owner", None)):
            raise TypeError(f"{type(table).__name__} is not a table: it has no owner(key)")
        if isinstance(compiled, Table):
            self.ring = compiled
        elif isinstance(compiled, ShardTable):
            self.shards = compiled
        if entries is not None and len(entries):
            self.entries = entries
            self.entry_names = entry_names
            if isinstance(compiled, HashSpace):
                space = compiled
                if space.seed != entries.seed or space.hash_tags != entries.hash_tags:
                    raise ValueError("entries must have the seed and the hash tags of the table below")
        else:
            self.entry_names = ()
        self.is_plain = self.ring is not None and self.entries is None

    def __init__(self, *args, **options):
        pass  # it never changes

    cdef object owner_of(self, object key):
        return self.answer(key)

    # Each of these is a whole lookup: a live one reads its snapshot once and asks that.

    cdef inline object answer(self, object key):
        if rare(not self.is_plain):
            return self.answer_other(key)
        return self.ring.answer(key)

    cdef object answer_other(self, object key):
        cdef KeyBytes read
        cdef object keeper
        cdef int32_t entry
        if self.entries is None:
            return self.compiled.owner_of(key) if self.compiled is not None else self.table.owner(key)
        keeper = self.entries.read_key(<PyObject*>key, &read)
        entry = self.entries.find_read(&read)
        if rare(entry >= 0):
            return self.entry_owner(key, entry)
        if self.ring is not None:
            if rare(self.ring.at.size == 0):
                self.ring._fail_empty()
            return <object>self.ring.name_of[find(&self.ring.at, <uint32_t>(read.hash >> 32))]
        if self.shards is not None:
            return self.shards.name_at(<uint32_t>(read.hash >> 32))
        return self.compiled.owner_of(key) if self.compiled is not None else self.table.owner(key)

    cdef object entry_owner(self, object key, int32_t entry):
        cdef object name = None
        if entry < PyTuple_GET_SIZE(self.entry_names):
            name = self.entry_names[entry]
        return self._owner_of_entry(key, entry) if name is None else name

    def _owner_of_entry(self, key, entry):
        raise LookupError(f"the node of the entry of {key!r} is not there")

    cdef object pinned(self, object key):
        """The name of the entry of a key; None: it has none."""
        cdef KeyBytes read
        cdef object keeper
        cdef int32_t entry
        if self.entries is None:
            return None
        keeper = self.entries.read_key(<PyObject*>key, &read)
        entry = self.entries.find_read(&read)
        return None if entry < 0 else self.entry_owner(key, entry)

    cdef object preferred(self, object key, object n, object distinct, object strict):
        if rare(not self.is_plain):
            return self.preferred_other(key, n, distinct, strict)
        return self.ring.owners_of(key, n, distinct, strict)

    cdef object preferred_other(self, object key, object n, object distinct, object strict):
        cdef object name
        cdef Walk walk
        if self.ring is None:
            return self._owners_without_ring(key, n, distinct, strict)
        name = self.pinned(key)
        if name is None:
            return self.ring.owners_of(key, n, distinct, strict)
        n = self.ring.at_most(count_of(n), strict)
        walk = self.ring.walk_of(key)
        walk.put_ahead(name)
        return tuple(self.ring._owners_along(walk, n, distinct))

    cdef object along(self, object key):
        cdef object name
        cdef Walk walk
        if self.ring is None:
            return self._walk_without_ring(key)
        name = self.pinned(key)
        walk = self.ring.walk_of(key)
        if name is not None:
            walk.put_ahead(name)
        return walk

    def owner(self, key):
        """owner($self, key, /)
--

Return the owner of `key` at this moment."""
        return self.answer(key)

    def entry_of(self, key):
        """entry_of($self, key, /)
--

Return the name that `key` has an entry for; None when it has none."""
        return self.pinned(key)

    def owners(self, key, n, distinct="node", strict=False):
        """owners($self, key, n, distinct='node', strict=False)
--

Return the first n distinct nodes from `key` at this moment; as `Ring.owners`."""
        return self.preferred(key, n, distinct, strict)

    def walk(self, key):
        """walk($self, key, /)
--

Iterate over every node of this moment once, from `key` on; as `Ring.walk`."""
        return self.along(key)

    def position(self, key):
        """position($self, key, /)
--

Return the position of `key` in the space of the placement."""
        if self.ring is not None:
            return self.ring.position_off_path(key)
        if self.shards is not None:
            return self.shards.position(key)
        return self._position_without_ring(key)

    # What another placement than a ring does; a subclass may know better.

    def _owners_without_ring(self, key, n, distinct, strict):
        return self.table.owners(key, n, distinct, strict)

    def _walk_without_ring(self, key):
        return self.table.walk(key)

    def _position_without_ring(self, key):
        return self.table.position(key)


cdef class LiveLookup:
    """The snapshot of the moment: one reference, which every lookup reads once.

    A change is one store of another snapshot, by `_publish`. So a reader has one moment or the next,
    and never waits; and a signal finds the old one or the new one.
    """

    cdef Snapshot now

    def __cinit__(self, *args, **options):
        self.now = NOTHING

    cdef inline Snapshot current(self):
        # Costs nothing where there is a GIL. Without one, a reader must not meet a snapshot between
        # its last reference and its end.
        with cython.critical_section(self):
            return self.now

    def _publish(self, Snapshot snapshot not None, Snapshot expected not None):
        """Let `snapshot` be the one that counts if `expected` still is; return whether it was."""
        with cython.critical_section(self):
            if self.now is not expected:
                return False
            self.now = snapshot
        return True

    @property
    def snapshot(self):
        """The state of this moment, which never changes."""
        return self.current()

    def owner(self, key):
        """owner($self, key, /)
--

Return the owner of `key` at this moment; as `Ring.owner`, and as fast."""
        return self.current().answer(key)

    def __getitem__(self, key):
        return self.current().answer(key)

    def owners(self, key, n, distinct="node", strict=False):
        """owners($self, key, n, distinct='node', strict=False)
--

Return the first n distinct nodes from `key` at this moment; as `Ring.owners`."""
        return self.current().preferred(key, n, distinct, strict)

    def walk(self, key):
        """walk($self, key, /)
--

Iterate over every node of this moment once, from `key` on; as `Ring.walk`."""
        return self.current().along(key)

    def position(self, key):
        """position($self, key, /)
--

Return the position of `key`; as `Ring.position`."""
        return self.current().position(key)


cdef Table NO_TABLE = Table((), ())
cdef Snapshot NOTHING = Snapshot(NO_TABLE)
